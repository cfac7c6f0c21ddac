//! Whole groups: applications elsewhere, mixed tokens, killed members, members that leave, standbys, the way back, lost
//! and full tokens, the offline key, secrets that stay secret, bad input.
//! Whole groups: applications elsewhere, mixed tokens, killed members, members that leave, lost and full tokens, the way
//! back with the offline key, secrets that stay secret, bad input,
//! sick tokens.
//! Whole groups: applications elsewhere, mixed tokens, members that are killed, stopped or leave, lost and full tokens,
//! the way back with the offline key, secrets that stay secret, bad input.
//! back with the offline key, secrets that stay secret, bad input, what a group tells of itself.

#[path = "group/bad.rs"]
mod bad;
#[path = "group/clients.rs"]
mod clients;
#[path = "group/crash.rs"]
mod crash;
#[path = "group/failover.rs"]
mod failover;
#[path = "group/full.rs"]
mod full;
#[path = "group/isolation.rs"]
mod isolation;
#[path = "group/login.rs"]
mod login;
#[path = "group/lost.rs"]
mod lost;
#[path = "group/members.rs"]
mod members;
#[path = "group/mixed.rs"]
mod mixed;
#[path = "group/recovery.rs"]
mod recovery;
#[path = "group/secrets.rs"]
mod secrets;
#[path = "group/under_load.rs"]
mod under_load;
#[path = "group/standby.rs"]
mod standby;
#[path = "group/sick.rs"]
mod sick;
#[path = "group/telemetry.rs"]
mod telemetry;
