//! A fuzz target on every decoder: what comes from the wire, from disk, from a token, from people and from
//! applications. Each takes valid bytes, changed at a few places, and must answer without a panic, within
//! [`run::ANSWER_MAX`] and within [`run::memory_max_bytes`]. A target runs for $KEYRAFT_FUZZ_SECONDS, one second if
//! that is not said. What fails is printed as hexadecimal, after it was made as small as it gets.

#[path = "fuzz/disk.rs"]
mod disk;
#[path = "fuzz/joining.rs"]
mod joining;
#[path = "fuzz/keys.rs"]
mod keys;
#[path = "fuzz/log.rs"]
mod log;
#[path = "fuzz/meter.rs"]
mod meter;
#[path = "fuzz/run.rs"]
mod run;
#[path = "fuzz/samples.rs"]
mod samples;
#[path = "fuzz/socket.rs"]
mod socket;
mod support;
#[path = "fuzz/text.rs"]
mod text;
#[path = "fuzz/wire.rs"]
mod wire;
