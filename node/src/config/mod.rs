//! The configuration file. Every error names the file, the key, what is wrong with it and what to do; nothing is
//! changed by reading one. Secrets are only named here, and read when a command needs them.

mod keys;
#[cfg(test)]
mod tests;

pub use keys::example;

use crate::exit::{Exit, Problem};
use crate::secret::SecretSource;
use keyraft_engine::domain::Residency;
use keyraft_engine::limits;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A member's configuration, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where it was read from.
    pub path: PathBuf,
    /// Name for people.
    pub name: String,
    /// The data folder.
    pub data: PathBuf,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where others reach it.
    pub advertise: String,
    /// Where monitors are answered; nowhere if None.
    pub metrics: Option<SocketAddr>,
    /// The socket for local commands.
    pub socket: PathBuf,
    /// User ids that may use the socket besides root and the member's own.
    pub socket_users: Vec<u32>,
    /// Network interfaces whose state counts when the group chooses its primary.
    pub monitored_interfaces: Vec<String>,
    /// The token.
    pub token: TokenSection,
    /// The domain's name.
    pub domain: String,
    /// The domain's secret.
    pub domain_secret: SecretSource,
    /// The log.
    pub log: LogSection,
    /// Raft's times.
    pub timings: TimingsSection,
}

/// How the token is found and opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSection {
    /// The library; None for the embedded token.
    pub module: Option<PathBuf>,
    /// Chosen by label.
    pub label: Option<String>,
    /// Chosen by serial number.
    pub serial: Option<String>,
    /// The user PIN; None if the token asks for it on a protected authentication path.
    pub pin: Option<SecretSource>,
    /// Where keys live; the token's default if None.
    pub residency: Option<Residency>,
    /// Environment that the library needs.
    pub environment: BTreeMap<String, String>,
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSection {
    /// True for JSON lines.
    pub json: bool,
    /// Directives of `tracing_subscriber::EnvFilter`.
    pub filter: String,
}

/// Raft's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimingsSection {
    /// Between two heartbeats.
    pub heartbeat: Duration,
    /// Silence before an election, at least.
    pub election_min: Duration,
    /// Silence before an election, at most.
    pub election_max: Duration,
}

/// The file as it stands; `keys::check` has seen every value before.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    member: MemberFile,
    token: TokenFile,
    domain: DomainFile,
    #[serde(default)]
    log: LogFile,
    #[serde(default)]
    timings: TimingsFile,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberFile {
    name: String,
    data: PathBuf,
    listen: String,
    advertise: Option<String>,
    socket: Option<PathBuf>,
    metrics: Option<String>,
    #[serde(default)]
    socket_users: Vec<u32>,
    #[serde(default)]
    monitored_interfaces: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenFile {
    module: String,
    label: Option<String>,
    serial: Option<String>,
    pin_file: Option<PathBuf>,
    pin_env: Option<String>,
    pin_credential: Option<String>,
    login: Option<String>,
    residency: Option<Residency>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DomainFile {
    name: String,
    secret_file: Option<PathBuf>,
    secret_env: Option<String>,
    secret_credential: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LogFile {
    format: Option<String>,
    filter: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TimingsFile {
    heartbeat_ms: Option<u64>,
    election_min_ms: Option<u64>,
    election_max_ms: Option<u64>,
}

/// An error that names file, key and remedy.
fn bad(path: &Path, key: &str, why: impl fmt::Display, remedy: impl fmt::Display) -> Problem {
    Problem::new(Exit::Config, format!("{}: key '{key}' {why}", path.display()), remedy)
}

impl Config {
    /// Reads and checks a file.
    pub fn load(path: &Path) -> Result<Self, Problem> {
        let text = std::fs::read_to_string(path).map_err(|e| {
            Problem::new(
                Exit::Config,
                format!("cannot read the configuration {}: {e}", path.display()),
                "name it with --config or KEYRAFT_MEMBER_CONFIG; 'keyraft config example' prints one to start from",
            )
        })?;
        let absolute =
            std::path::absolute(path).map_err(|e| Problem::io("finding the working folder", &e))?;
        Self::parse(&absolute, &text)
    }

    /// Checks the text of a file that stands at `path`.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Problem> {
        let syntax = |e: toml::de::Error| {
            let line = e.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            Problem::new(
                Exit::Config,
                format!("{}: line {line} is not TOML: {}", path.display(), e.message()),
                "correct the line; 'keyraft config example' shows the form",
            )
        };
        let table: toml::Table = text.parse().map_err(syntax)?;
        keys::check(path, &table)?;
        let file: File = toml::from_str(text).map_err(syntax)?;
        Self::from_file(path, file)
    }

    fn from_file(path: &Path, mut file: File) -> Result<Self, Problem> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        let member = file.member;
        text_within(path, "member.name", &member.name, limits::TEXT_MAX_BYTES)?;
        text_within(path, "domain.name", &file.domain.name, limits::TEXT_MAX_BYTES)?;
        let listen: SocketAddr = member.listen.parse().map_err(|_| {
            let why = format!("is '{}', which is no IP address with a port", member.listen);
            bad(path, "member.listen", why, "write it like 0.0.0.0:7400 or [::]:7400")
        })?;
        let metrics = member.metrics.map(|text| monitor_address(path, &text)).transpose()?;
        let data = folder.join(member.data);
        let socket = member.socket.map_or_else(|| data.join("keyraft.sock"), |s| folder.join(s));
        if socket.as_os_str().len() > SOCKET_PATH_MAX_BYTES {
            let why = format!(
                "gives {}, longer than the {SOCKET_PATH_MAX_BYTES} bytes a socket may have",
                socket.display()
            );
            return Err(bad(path, "member.socket", why, "choose a shorter path, for example below /run"));
        }
        let advertise = advertised(path, member.advertise, listen)?;
        let pin = token_pin(path, folder, &mut file.token)?;
        let domain_secret = one_of(
            path,
            folder,
            "domain.secret",
            file.domain.secret_file,
            file.domain.secret_env,
            file.domain.secret_credential,
        )?;
        let module = match file.token.module.as_str() {
            "embedded" => None,
            library => Some(folder.join(library)),
        };
        if file.token.label.is_some() && file.token.serial.is_some() {
            return Err(bad(
                path,
                "token.serial",
                "stands beside token.label",
                "name the token by one of them",
            ));
        }
        if let Some(label) = &file.token.label {
            text_within(path, "token.label", label, TOKEN_LABEL_MAX_BYTES)?;
        }
        for name in file.token.environment.keys() {
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(bad(
                    path,
                    "token.environment",
                    format!("names a variable '{name}'"),
                    "write NAME = \"value\"",
                ));
            }
        }
        Ok(Self {
            name: member.name,
            data,
            listen,
            advertise,
            metrics,
            socket,
            socket_users: member.socket_users,
            monitored_interfaces: member.monitored_interfaces,
            token: TokenSection {
                module,
                label: file.token.label,
                serial: file.token.serial,
                pin,
                residency: file.token.residency,
                environment: file.token.environment,
            },
            domain: file.domain.name,
            domain_secret,
            log: log_section(path, file.log)?,
            timings: timings(path, &file.timings)?,
            path: path.to_path_buf(),
        })
    }
}

/// Linux gives a socket's path 108 bytes with its closing zero.
const SOCKET_PATH_MAX_BYTES: usize = 107;
/// openraft tells of every step of an election at info, and of every heartbeat that a lost member misses at warn.
const DEFAULT_FILTER: &str = "info,openraft=error";
/// CK_TOKEN_INFO.label
const TOKEN_LABEL_MAX_BYTES: usize = 32;

fn text_within(path: &Path, key: &str, text: &str, max: usize) -> Result<(), Problem> {
    if text.len() > max || text.chars().any(char::is_control) {
        let why = format!("is longer than {max} bytes or has control characters");
        return Err(bad(path, key, why, "choose a shorter, plain text"));
    }
    Ok(())
}

fn monitor_address(path: &Path, text: &str) -> Result<SocketAddr, Problem> {
    text.parse().map_err(|_| {
        let why = format!("is '{text}', which is no IP address with a port");
        bad(path, "member.metrics", why, "write it like 127.0.0.1:9464 or [::1]:9464")
    })
}

fn advertised(path: &Path, given: Option<String>, listen: SocketAddr) -> Result<String, Problem> {
    let Some(address) = given else {
        if listen.ip().is_unspecified() {
            let why = format!("is missing, and nobody can reach the listen address {listen}");
            return Err(bad(
                path,
                "member.advertise",
                why,
                "add advertise = \"host:port\" that others reach it at",
            ));
        }
        return Ok(listen.to_string());
    };
    let good = address
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|p| p > 0));
    if !good || address.len() > limits::TEXT_MAX_BYTES || address.contains(char::is_whitespace) {
        return Err(bad(path, "member.advertise", "is no host:port", "write it like a.example.net:7400"));
    }
    Ok(address)
}

/// The source of the token's PIN; None if the token asks for it itself.
fn token_pin(path: &Path, folder: &Path, token: &mut TokenFile) -> Result<Option<SecretSource>, Problem> {
    let sources = (token.pin_file.take(), token.pin_env.take(), token.pin_credential.take());
    if token.login.as_deref() != Some("protected") {
        return one_of(path, folder, "token.pin", sources.0, sources.1, sources.2).map(Some);
    }
    if token.module == "embedded" {
        let remedy =
            "leave it out and name a PIN, or name the PKCS#11 library of a token that has such a path";
        return Err(bad(path, "token.login", "is \"protected\", which the embedded token cannot do", remedy));
    }
    match sources {
        (None, None, None) => Ok(None),
        _ => Err(bad(
            path,
            "token.login",
            "is \"protected\", and a PIN is named as well",
            "leave pin_file, pin_env and pin_credential out: the token asks for the PIN itself; or leave login out",
        )),
    }
}

fn one_of(
    path: &Path,
    folder: &Path,
    key: &str,
    file: Option<PathBuf>,
    environment: Option<String>,
    credential: Option<String>,
) -> Result<SecretSource, Problem> {
    let mut sources: Vec<SecretSource> = file
        .map(|f| SecretSource::File(folder.join(f)))
        .into_iter()
        .chain(environment.map(SecretSource::Environment))
        .chain(credential.map(SecretSource::Credential))
        .collect();
    match (sources.pop(), sources.is_empty()) {
        (Some(source), true) => check_source(path, key, source),
        (found, _) => {
            let why = if found.is_none() { "has no source" } else { "has more than one source" };
            let remedy = format!("give exactly one of {key}_file, {key}_env and {key}_credential");
            Err(bad(path, &format!("{key}_file"), why, remedy))
        }
    }
}

fn check_source(path: &Path, key: &str, source: SecretSource) -> Result<SecretSource, Problem> {
    match &source {
        SecretSource::Environment(name) if name.contains(['=', '\0']) => Err(bad(
            path,
            &format!("{key}_env"),
            "is no name of a variable",
            "write a plain name like KEYRAFT_PIN",
        )),
        SecretSource::Credential(name) if name.contains('/') || name == ".." || name == "." => Err(bad(
            path,
            &format!("{key}_credential"),
            "is no name of a credential",
            "write a plain name like pin",
        )),
        _ => Ok(source),
    }
}

fn log_section(path: &Path, file: LogFile) -> Result<LogSection, Problem> {
    let filter = file.filter.unwrap_or_else(|| DEFAULT_FILTER.into());
    if let Err(e) = tracing_subscriber::EnvFilter::try_new(&filter) {
        let why = format!("is no filter: {e}");
        return Err(bad(
            path,
            "log.filter",
            why,
            "write a level (error, warn, info, debug, trace) or module=level",
        ));
    }
    Ok(LogSection { json: file.format.as_deref() == Some("json"), filter })
}

fn timings(path: &Path, file: &TimingsFile) -> Result<TimingsSection, Problem> {
    let or = |given: Option<u64>, default: Duration| given.map_or(default, Duration::from_millis);
    let timings = TimingsSection {
        heartbeat: or(file.heartbeat_ms, limits::RAFT_HEARTBEAT),
        election_min: or(file.election_min_ms, limits::ELECTION_MIN),
        election_max: or(file.election_max_ms, limits::ELECTION_MAX),
    };
    if timings.election_min < timings.heartbeat * 2 {
        let why = "is less than twice the heartbeat";
        let remedy = format!("set it to {} or more", (timings.heartbeat * 2).as_millis());
        return Err(bad(path, "timings.election_min_ms", why, remedy));
    }
    if timings.election_max <= timings.election_min {
        let remedy = format!("set it to {} or more", timings.election_min.as_millis() + 1);
        return Err(bad(path, "timings.election_max_ms", "is not above election_min_ms", remedy));
    }
    Ok(timings)
}
