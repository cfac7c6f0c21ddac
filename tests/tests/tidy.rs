//! The house rules, as tests: who may use what, who may wait, and what no file may hold.

#[path = "tidy/builds.rs"]
mod builds;
#[path = "tidy/papers.rs"]
mod papers;
#[path = "tidy/rooms.rs"]
mod rooms;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/words.rs"]
mod words;
