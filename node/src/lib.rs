//! The keyraft member as a program: its configuration, its commands and the demo. What a member *is* lives in the
//! engine; this crate only brings it to a process and to a person.
//!
//! From the ground up: `exit` (exit codes, and errors that say what, why and what to do), `text` (bytes to text and
//! back), `secret` (where PINs come from), `config` (the TOML file), `mechanism` (mechanisms by name), `names`
//! (PKCS#11's names of numbers), `moment` (time for people), `cli`,
//! `output` (tables and JSON), `caller` (asks a member, and again as the remedy says), `process`, `engine` (the one
//! file that touches the engine's assembly and transport), `http` (the monitor's port), `serve`, `supervisor` (starts a
//! member again whose token's library took its process along), `command`, `demo`, `run`.

pub mod caller;
pub mod cli;
pub mod command;
pub mod config;
pub mod demo;
pub mod engine;
pub mod exit;
pub mod http;
pub mod mechanism;
pub mod moment;
pub mod names;
pub mod output;
pub mod process;
pub mod run;
pub mod secret;
pub mod serve;
pub mod supervisor;
pub mod text;
