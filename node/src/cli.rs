//! The command line.

mod force;
mod pins;
mod standing;
mod watch;

pub use standing::{InviteLife, OneMember, RecoveryKind, RecoveryMode};

pub use force::ForceQuorum;
pub use pins::{ClientCommand, GroupPins, PinCommand, PinRole, PinSet};
pub use watch::{Drill, Explain};

use crate::exit::Exit;
use crate::mechanism::Named;
use crate::text::Encoding;
use clap::{Args, Parser, Subcommand, ValueEnum};
use keyraft_engine::domain::{KeyAlgorithm, MemberId};
use keyraft_engine::limits;
use std::path::PathBuf;
use std::time::Duration;

/// Keeps the keys of a group of PKCS#11 tokens equal.
#[derive(Debug, Parser)]
#[command(name = "keyraft", version, after_help = Exit::table(), after_long_help = Exit::table())]
pub struct Cli {
    /// What holds for every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What holds for every command.
#[derive(Clone, Debug, Args)]
pub struct Global {
    /// Configuration file
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "KEYRAFT_MEMBER_CONFIG",
        default_value = "keyraft.toml"
    )]
    pub config: PathBuf,
    /// Socket of the member to ask; the configuration is then not read
    #[arg(long, global = true, value_name = "PATH", env = "KEYRAFT_SOCKET")]
    pub socket: Option<PathBuf>,
    /// Answer in JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Seconds to keep trying
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = limits::OVERALL.as_secs(),
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub deadline: u64,
}

impl Global {
    /// How long to keep trying.
    pub fn deadline(&self) -> Duration {
        Duration::from_secs(self.deadline)
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a new group with this machine's token as its first member
    Init(Init),
    /// Print an invitation for one new member
    Invite {
        /// Seconds that it is good for
        #[arg(long, value_name = "SECONDS", default_value_t = limits::INVITE_LIFE_SECONDS,
            value_parser = clap::value_parser!(u64).range(1..=2_592_000))]
        life: u64,
    },
    /// Join the group that an invitation names
    Join(Join),
    /// Be a member: run until stopped
    Serve(Serve),
    /// Show the group as a member sees it
    Status,
    /// Prove by throw-away keys what the token can carry, and look for what is wrong
    Check,
    /// Create, use and delete keys
    #[command(subcommand)]
    Key(Key),
    /// Set the PINs that applications log in to the group with
    #[command(subcommand)]
    Pin(PinCommand),
    /// Set up applications
    #[command(subcommand)]
    Client(ClientCommand),
    /// List members, say what they are for, take them back, remove them
    #[command(subcommand)]
    Member(Member),
    /// Say who takes members back that left the in-sync set
    RecoveryMode(RecoveryMode),
    /// Show and set the group's options
    #[command(subcommand, name = "option")]
    GroupOption(Options),
    /// Compare agreed with held on every member now, and tell what was done and what could not be; undoes or adopts what
    /// was changed on members' own slots
    Synchronize,
    /// Show which member holds what
    Coverage,
    /// Show what clients asked lately, and what became of it
    Explain(Explain),
    /// Hand the primary over under a small load, and show what the load noticed of it
    Drill(Drill),
    /// Hand the primary's part to another member
    StepDown {
        /// To whom; the best candidate if not given
        #[arg(long, value_name = "MEMBER", value_parser = member_id)]
        to: Option<MemberId>,
    },
    /// Take this member's token back into use after its repair or replacement
    Recover(CreateToken),
    /// Begin a new history with this member alone, when the majority is lost for good; the member must be stopped
    ForceQuorum(ForceQuorum),
    /// Print a configuration to start from
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Watch a group of real processes form, lose its primary and recover
    Demo(Demo),
}

/// Options of `init`.
#[derive(Debug, Args)]
pub struct Init {
    /// Label of the group's virtual token
    #[arg(long, default_value = "keyraft", value_parser = label)]
    pub label: String,
    /// PEM file of an RSA public key; its private half, kept offline, can open every key of the group
    #[arg(long, value_name = "FILE")]
    pub recovery_key: Option<PathBuf>,
    /// Making the token.
    #[command(flatten)]
    pub token: CreateToken,
    /// The group's PINs.
    #[command(flatten)]
    pub pins: GroupPins,
}

/// Options of `join`.
#[derive(Debug, Args)]
pub struct Join {
    /// File with the text that `keyraft invite` printed; - for standard input
    #[arg(value_name = "FILE")]
    pub invitation: PathBuf,
    /// Making the token.
    #[command(flatten)]
    pub token: CreateToken,
}

/// Making a token where there is none.
#[derive(Debug, Args)]
pub struct CreateToken {
    /// Make the token if there is none yet
    #[arg(long)]
    pub create_token: bool,
    /// File (mode 600) with the security officer's PIN for the new token
    #[arg(long, value_name = "FILE", requires = "create_token", conflicts_with = "so_pin_env")]
    pub so_pin_file: Option<PathBuf>,
    /// Environment variable with the security officer's PIN for the new token
    #[arg(long, value_name = "NAME", requires = "create_token")]
    pub so_pin_env: Option<String>,
}

/// Options of `serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// End with the process that started this one, which has this id
    #[arg(long, hide = true, value_name = "PID")]
    pub end_with_parent: Option<u32>,

    /// Be the member's process itself; its parent, which starts it, has this id
    #[arg(long, hide = true, value_name = "PID")]
    pub supervised: Option<u32>,

    /// A process of this member ran before
    #[arg(long, hide = true, requires = "supervised")]
    pub again: bool,
}

/// What to do with keys.
#[derive(Debug, Subcommand)]
pub enum Key {
    /// Make a new key on every token
    Create(KeyCreate),
    /// Bring a key, a certificate or data in
    Import(KeyImport),
    /// List keys
    List {
        /// Only those with this label
        #[arg(long)]
        label: Option<String>,
        /// At most so many
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        limit: u32,
    },
    /// Show one key with its attributes
    Show {
        /// Object id, or a label that no other object has
        key: String,
        /// Print the public key or the certificate as PEM instead
        #[arg(long)]
        pem: bool,
    },
    /// Delete a key: by label a whole pair, by id one object
    Delete {
        /// Object id, or a label that no other key has
        key: String,
    },
    /// Sign
    Sign(KeySign),
    /// Verify a signature
    Verify(KeyVerify),
    /// Encrypt
    Encrypt(KeyCipher),
    /// Decrypt
    Decrypt(KeyCipher),
}

/// What a new key is like.
#[derive(Debug, Args)]
pub struct KeyTraits {
    /// Its label
    #[arg(long, value_parser = label)]
    pub label: Option<String>,
    /// Its CKA_ID
    #[arg(long, value_name = "HEX", value_parser = bytes)]
    pub id: Option<Bytes>,
    /// Applications may wrap it out
    #[arg(long)]
    pub extractable: bool,
    /// Its value may be read (needs --extractable to be of use)
    #[arg(long)]
    pub no_sensitive: bool,
    /// Its attributes can never be changed
    #[arg(long)]
    pub no_modifiable: bool,
    /// It may be used for these alone; for all that its kind knows if not given
    #[arg(long, value_name = "USE,...", value_delimiter = ',')]
    pub only: Vec<Usage>,
}

/// A use that a key may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Usage {
    /// Sign (and verify with the public key)
    Sign,
    /// Verify
    Verify,
    /// Encrypt
    Encrypt,
    /// Decrypt
    Decrypt,
    /// Wrap other keys
    Wrap,
    /// Unwrap other keys
    Unwrap,
    /// Derive other keys
    Derive,
}

/// Options of `key create`.
#[derive(Debug, Args)]
pub struct KeyCreate {
    /// aes:128, aes:192, aes:256, secret:N (bytes), rsa:2048, rsa:3072, rsa:4096, ec:p256, ec:p384, ec:p521, ed25519
    #[arg(value_name = "KIND")]
    pub algorithm: KeyAlgorithm,
    /// What it is like.
    #[command(flatten)]
    pub traits: KeyTraits,
}

/// Options of `key import`.
#[derive(Debug, Args)]
pub struct KeyImport {
    /// A kind of key as for create, or certificate, or data
    #[arg(value_name = "KIND", value_parser = import_kind)]
    pub kind: ImportKind,
    /// The value is a public key (SubjectPublicKeyInfo) of that kind
    #[arg(long)]
    pub public: bool,
    /// What it is like.
    #[command(flatten)]
    pub traits: KeyTraits,
    /// Where the value is: a secret's bytes, PKCS#8, SubjectPublicKeyInfo, a certificate, data; PEM is recognised
    #[arg(long = "in", value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// How the value is written, if it is no PEM
    #[arg(long, value_enum, default_value = "raw")]
    pub encoding: Encoding,
}

/// What an import brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportKind {
    /// A key.
    Key(KeyAlgorithm),
    /// A certificate.
    Certificate,
    /// Data.
    Data,
}

/// Where data comes from and goes to.
#[derive(Debug, Args)]
pub struct Streams {
    /// Where the data is; standard input if not given
    #[arg(long = "in", value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Where the result goes; standard output if not given
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// What a use of a key needs.
#[derive(Debug, Args)]
pub struct KeyUse {
    /// Object id, or a label that no other key has
    pub key: String,
    /// Mechanism; a good one for the kind of key if not given
    #[arg(long, value_enum)]
    pub mechanism: Option<Named>,
    /// Only at this member
    #[arg(long, value_name = "MEMBER", value_parser = member_id)]
    pub at: Option<MemberId>,
}

/// The shape of an ECDSA signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// As most programs want it
    Der,
    /// r || s, as PKCS#11 gives it
    Raw,
}

/// Options of `key sign`.
#[derive(Debug, Args)]
pub struct KeySign {
    /// The key.
    #[command(flatten)]
    pub with: KeyUse,
    /// The data.
    #[command(flatten)]
    pub streams: Streams,
    /// Shape of an ECDSA signature
    #[arg(long, value_enum, default_value = "der")]
    pub format: Format,
    /// How the signature is written
    #[arg(long, value_enum, default_value = "base64")]
    pub encoding: Encoding,
}

/// Options of `key verify`.
#[derive(Debug, Args)]
pub struct KeyVerify {
    /// The key.
    #[command(flatten)]
    pub with: KeyUse,
    /// Where the data is; standard input if not given
    #[arg(long = "in", value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Where the signature is
    #[arg(long, value_name = "FILE")]
    pub signature: PathBuf,
    /// Shape of an ECDSA signature
    #[arg(long, value_enum, default_value = "der")]
    pub format: Format,
    /// How the signature is written
    #[arg(long, value_enum, default_value = "base64")]
    pub encoding: Encoding,
}

/// Options of `key encrypt` and `key decrypt`.
#[derive(Debug, Args)]
pub struct KeyCipher {
    /// The key.
    #[command(flatten)]
    pub with: KeyUse,
    /// The data.
    #[command(flatten)]
    pub streams: Streams,
    /// Additional data that AES-GCM authenticates
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub aad: String,
    /// How the ciphertext is written: nonce and ciphertext for AES
    #[arg(long, value_enum, default_value = "base64")]
    pub encoding: Encoding,
}

/// What to do with members.
#[derive(Debug, Subcommand)]
pub enum Member {
    /// List the members
    List,
    /// Print an invitation for one new member that holds every key and serves only while no active member does
    AddStandby(InviteLife),
    /// Let a standby serve like the others
    Activate(OneMember),
    /// Let a member hold every key and serve only while no active member does
    Standby(OneMember),
    /// Take a member back that left the in-sync set
    Recover(OneMember),
    /// Remove a member for good; its id is never used again
    Remove {
        /// Its id
        #[arg(value_parser = member_id)]
        member: MemberId,
    },
    /// Say how much the group prefers a member as its primary
    Priority {
        /// Its id
        #[arg(value_parser = member_id)]
        member: MemberId,
        /// 0 to 255; the lowest leads, 128 is every member's until it is set
        priority: u8,
    },
}

/// What to do with the group's options.
#[derive(Debug, Subcommand)]
pub enum Options {
    /// Show them
    Show,
    /// Set one: partial_keys refuse|allow, allow_inmemory_import true|false, isolated_service serve|fence,
    /// allow_init_token true|false, auto_recovery RETRIES or RETRIES,SECONDS (0 for none, -1 for no end), primary_override
    /// true|false (priority before uptime when the primary is chosen), uptime_margin_s 0 to 86400 (uptimes that differ by
    /// no more are equal), direct_changes undo|adopt
    Set {
        /// Its name
        name: String,
        /// Its value
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
}

/// What to do with configurations.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print a commented example
    Example,
}

/// Options of `demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// How many members
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(3..=7))]
    pub members: u8,
    /// Folder to work in; it must not exist yet, or be empty
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Leave the group running, and print how to talk to it
    #[arg(long)]
    pub keep: bool,
    /// "embedded", or a PKCS#11 library by path or name, such as libsofthsm2.so
    #[arg(long, default_value = "embedded")]
    pub token: String,
    /// Label of the group's virtual token
    #[arg(long, default_value = "demo", value_parser = label)]
    pub label: String,
    /// User PIN of the throw-away tokens, and of the group's virtual token
    #[arg(long, default_value = "1234-demo", value_parser = pin)]
    pub pin: String,
    /// Security officer's PIN of the throw-away tokens, and of the group's virtual token
    #[arg(long, default_value = "5678-demo", value_parser = pin)]
    pub so_pin: String,
}

/// Bytes given in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

fn bytes(text: &str) -> Result<Bytes, String> {
    let bytes = data_encoding::HEXLOWER_PERMISSIVE
        .decode(text.as_bytes())
        .map_err(|e| format!("it is no hexadecimal ({e}): write it like 0a1b2c"))?;
    if bytes.is_empty() || bytes.len() > limits::TEXT_MAX_BYTES {
        return Err(format!("give 1 to {} bytes", limits::TEXT_MAX_BYTES));
    }
    Ok(Bytes(bytes))
}

fn label(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > limits::TEXT_MAX_BYTES || text.chars().any(char::is_control) {
        return Err(format!("give 1 to {} bytes of plain text", limits::TEXT_MAX_BYTES));
    }
    Ok(text.to_string())
}

fn pin(text: &str) -> Result<String, String> {
    // SoftHSM takes 4 to 255 bytes, and so does the embedded token.
    if (4..=255).contains(&text.len()) && !text.chars().any(char::is_control) {
        return Ok(text.to_string());
    }
    Err("give 4 to 255 plain characters".into())
}

/// `m3` or `3`.
pub fn member_id(text: &str) -> Result<MemberId, String> {
    let digits = text.strip_prefix('m').unwrap_or(text);
    match digits.parse() {
        Ok(number) if number > 0 => Ok(MemberId(number)),
        _ => Err("it is no member id: write it like m3; 'keyraft member list' shows them".into()),
    }
}

fn import_kind(text: &str) -> Result<ImportKind, String> {
    match text {
        "certificate" => Ok(ImportKind::Certificate),
        "data" => Ok(ImportKind::Data),
        key => key.parse().map(ImportKind::Key).map_err(|e| format!("{e}; or certificate, or data")),
    }
}

#[cfg(test)]
mod tests;
