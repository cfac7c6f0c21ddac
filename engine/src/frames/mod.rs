//! Requests and answers as they travel: cut into frames. `frame` is the format, `blocking` a stream of them for those who
//! may block; the transport has its own for those who may not.

pub(crate) mod blocking;
pub(crate) mod frame;
