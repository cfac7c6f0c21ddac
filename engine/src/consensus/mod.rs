//! How the group agrees: openraft behind one door.

pub mod store;
pub mod types;
