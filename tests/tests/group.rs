//! Whole groups: applications elsewhere, mixed tokens, killed members, members that leave, lost and full tokens, the way
//! back with the offline key, secrets that stay secret, bad input, what a group tells of itself.

#[path = "group/bad.rs"]
mod bad;
#[path = "group/clients.rs"]
mod clients;
#[path = "group/crash.rs"]
mod crash;
#[path = "group/full.rs"]
mod full;
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
#[path = "group/telemetry.rs"]
mod telemetry;
