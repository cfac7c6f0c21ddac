//! What the virtual slot is made of, as pure thinking: no log, no token, no waiting.

pub mod pin;
pub mod ticket;
