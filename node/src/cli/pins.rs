//! What the command line says of applications and the PINs that they log in with.

use clap::{Args, Subcommand, ValueEnum};
use keyraft_engine::domain::ApplicationName;
use std::path::PathBuf;

/// The PINs that applications log in to the group with. Members keep hashes of them alone.
#[derive(Debug, Args)]
pub struct GroupPins {
    /// File (mode 600) with the user PIN of the group's virtual token
    #[arg(long, value_name = "FILE", group = "group_pin")]
    pub group_pin_file: Option<PathBuf>,
    /// Environment variable with it
    #[arg(long, value_name = "NAME", group = "group_pin")]
    pub group_pin_env: Option<String>,
    /// systemd credential with it
    #[arg(long, value_name = "NAME", group = "group_pin")]
    pub group_pin_credential: Option<String>,
    /// File (mode 600) with the security officer's PIN of the group's virtual token
    #[arg(long, value_name = "FILE", group = "group_so_pin")]
    pub group_so_pin_file: Option<PathBuf>,
    /// Environment variable with it
    #[arg(long, value_name = "NAME", group = "group_so_pin")]
    pub group_so_pin_env: Option<String>,
    /// systemd credential with it
    #[arg(long, value_name = "NAME", group = "group_so_pin")]
    pub group_so_pin_credential: Option<String>,
}

/// What to do with the group's PINs.
#[derive(Debug, Subcommand)]
pub enum PinCommand {
    /// Set a PIN; every login under the old one ends, and nobody is locked out any more
    Set(PinSet),
}

/// Options of `pin set`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("pin").required(true))]
pub struct PinSet {
    /// Whose
    #[arg(long, value_enum)]
    pub role: PinRole,
    /// File (mode 600) with the new PIN
    #[arg(long, value_name = "FILE", group = "pin")]
    pub pin_file: Option<PathBuf>,
    /// Environment variable with it
    #[arg(long, value_name = "NAME", group = "pin")]
    pub pin_env: Option<String>,
    /// systemd credential with it
    #[arg(long, value_name = "NAME", group = "pin")]
    pub pin_credential: Option<String>,
}

/// Who has a PIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PinRole {
    /// The user: works with keys
    User,
    /// The security officer: sets the user's PIN
    So,
}

/// What to do for applications.
#[derive(Debug, Subcommand)]
pub enum ClientCommand {
    /// Print a client.toml for applications on this machine
    Config {
        /// Sockets of members on this machine; the configured member's if none is given
        #[arg(value_name = "SOCKET")]
        sockets: Vec<PathBuf>,
    },
    /// Let an application on another machine in: make its key, and have the group sign its certificate
    Add {
        /// Its name: 1 to 64 of a to z, 0 to 9 and '-'
        name: ApplicationName,
        /// Folder for its client.toml, key.pem, certificate.pem and authority.pem
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// List the applications that have a certificate
    List,
    /// Refuse an application from now on, its open connections too
    Remove {
        /// Its name
        name: ApplicationName,
    },
}
