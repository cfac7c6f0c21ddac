//! Whole groups: applications elsewhere, mixed tokens, members that are killed, stopped, silent or leave, standbys, the way
//! back, lost, full and sick tokens, the offline key, secrets that stay secret, bad input, what a group tells of itself.

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
#[path = "group/silence.rs"]
mod silence;
#[path = "group/standby.rs"]
mod standby;
#[path = "group/sick.rs"]
mod sick;
#[path = "group/telemetry.rs"]
mod telemetry;
