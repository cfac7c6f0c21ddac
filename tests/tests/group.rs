//! Whole groups: mixed tokens, killed members, lost and full tokens, secrets that stay secret, bad input.

#[path = "group/bad.rs"]
mod bad;
#[path = "group/crash.rs"]
mod crash;
#[path = "group/full.rs"]
mod full;
#[path = "group/login.rs"]
mod login;
#[path = "group/lost.rs"]
mod lost;
#[path = "group/mixed.rs"]
mod mixed;
#[path = "group/secrets.rs"]
mod secrets;
