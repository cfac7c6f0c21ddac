//! The one file that touches the engine's assembly, its local client, and the storage.

use crate::caller::Ask;
use crate::config::Config;
use crate::exit::{Exit, Problem};
use crate::secret::SecretSource;
use futures::FutureExt;
use futures::future::BoxFuture;
use keyraft_engine::assembly::{self, Engine, HomeError, MemberConfig, StartError, Survivor, home};
use keyraft_engine::clock::Clock;
use keyraft_engine::cloning::Domain;
use keyraft_engine::consensus::Timings;
use keyraft_engine::domain::{GroupId, MemberId};
use keyraft_engine::limits;
use keyraft_engine::token::{self, ModuleSource, Pin, SlotChoice, TokenConfig, TokenError};
use keyraft_engine::transport::Client;
use keyraft_engine::virtual_slot;
use keyraft_engine::wire::{Answer, ClientRequest, Failure, FailureKind, SecretBytes};
use keyraft_storage::{SledLog, Storage, StorageError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use zeroize::Zeroizing;

pub use keyraft_engine::assembly::Fault;
pub use keyraft_engine::assembly::Findings;
pub use keyraft_engine::assembly::InitGroup;
pub use keyraft_engine::assembly::{Monitor, Survey};
pub use keyraft_engine::cloning::Invitation;

/// The member at a Unix socket. A lost connection is made anew by the next attempt.
pub struct Socket {
    path: PathBuf,
    client: Mutex<Option<Arc<Client>>>,
}

impl Socket {
    /// A socket that is not connected yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path, client: Mutex::new(None) }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Connects; a problem if nobody is there.
    pub async fn greet(&self) -> Result<(), Problem> {
        self.client().await.map(|_| ()).map_err(|failure| match failure.kind {
            FailureKind::Forbidden | FailureKind::BadRequest => failure.into(),
            _ => {
                let remedy = "start the member with 'keyraft serve', or name another socket with --socket";
                Problem::new(Exit::Unreachable, format!("no member answers at {}", failure.message), remedy)
            }
        })
    }

    async fn client(&self) -> Result<Arc<Client>, Failure> {
        let mut slot = self.client.lock().await;
        // What is left of a member that has ended is no connection to the one that runs now.
        if let Some(client) = slot.as_ref().filter(|client| !client.is_closed()) {
            return Ok(client.clone());
        }
        let client = Arc::new(Client::connect_unix(&self.path).await?);
        *slot = Some(client.clone());
        Ok(client)
    }
}

impl Ask for Socket {
    fn ask(&self, request: ClientRequest, limit: Duration) -> BoxFuture<'_, Result<Answer, Failure>> {
        async move {
            let client = self.client().await?;
            let answer = client.call(request, limit).await;
            if client.is_closed() {
                self.client.lock().await.take_if(|kept| Arc::ptr_eq(kept, &client));
            }
            answer
        }
        .boxed()
    }
}

/// A member that has begun to exist, or to exist again.
pub struct Begun {
    /// Its group.
    pub group: GroupId,
    /// Itself.
    pub member: MemberId,
    /// True if an offline recovery key can open the group's keys.
    pub recoverable: bool,
}

/// Refuses a data folder in which a member lives.
pub fn refuse_occupied(config: &Config) -> Result<(), Problem> {
    home::refuse_occupied(&config.data).map_err(home_problem)
}

/// Makes the configured token, with the configured PIN as its user's.
pub fn create_token(config: &Config, so_pin: &str) -> Result<(), Problem> {
    let so_pin = Pin::new(so_pin.to_string());
    let label = config.token.label.clone().unwrap_or_else(|| config.name.chars().take(32).collect());
    home::prepare(&config.data).map_err(home_problem)?;
    let Some(pin) = pin(config)? else {
        return Err(Problem::usage(
            "a token whose PIN it asks for itself (token.login = \"protected\") cannot be made here",
            "make it with its maker's tool, and leave --create-token out",
        ));
    };
    token::initialize(&module(config), &label, &so_pin, &pin).map_err(|e| start_problem(e.into()))
}

/// Reads a new PIN of the group's virtual token, and refuses what cannot be one. `purpose` names it in errors.
pub fn group_pin(source: &SecretSource, purpose: &str) -> Result<SecretBytes, Problem> {
    let pin = SecretBytes(Zeroizing::new(source.read(purpose)?.as_bytes().to_vec()));
    virtual_slot::pin::check_new(&pin)
        .map_err(|e| Problem::usage(format!("{purpose}: {e}"), "write it into its source"))?;
    Ok(pin)
}

/// Begins a group.
pub async fn init(config: &Config, group: InitGroup) -> Result<Begun, Problem> {
    let member = member_config(config)?;
    home::prepare(&config.data).map_err(home_problem)?;
    let storage = open_storage(config)?;
    let report = assembly::init(&member, group, storage.log, storage.store).await.map_err(start_problem)?;
    Ok(Begun { group: report.group, member: report.member, recoverable: report.recoverable })
}

/// Reads an invitation from a file, or from standard input if the path is `-`.
pub fn read_invitation(path: &Path) -> Result<Invitation, Problem> {
    let text = if path.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin().lock())
    } else {
        std::fs::read_to_string(path)
    };
    let text = text.map(Zeroizing::new).map_err(|e| {
        Problem::usage(
            format!("cannot read the invitation {}: {e}", path.display()),
            "make one with 'keyraft invite'",
        )
    })?;
    Invitation::parse(&text).map_err(|e| Problem::usage(e, "make a new one with 'keyraft invite'"))
}

/// Joins a group.
pub async fn join(config: &Config, invitation: Invitation) -> Result<Begun, Problem> {
    let report = assembly::join(&member_config(config)?, invitation).await.map_err(start_problem)?;
    Ok(Begun { group: report.group, member: report.member, recoverable: true })
}

/// Gives a member with a new token the group's keys again.
pub async fn recover(config: &Config) -> Result<Begun, Problem> {
    let report = assembly::recover(&member_config(config)?).await.map_err(start_problem)?;
    Ok(Begun { group: report.group, member: report.member, recoverable: true })
}

/// Examines a member that is not running.
pub async fn check(config: &Config) -> Result<Findings, Problem> {
    Ok(assembly::check(&member_config(config)?).await)
}

/// A member that is not running, read as the survivor of a lost majority.
pub async fn survivor(config: &Config) -> Result<Survivor<SledLog>, Problem> {
    let storage = claim(config).await?;
    Survivor::examine(&member_config(config)?, storage.log, storage.store).await.map_err(start_problem)
}

/// Lets the survivor begin a new history.
pub async fn begin_anew(survivor: Survivor<SledLog>, config: &Config) -> Result<Survey, Problem> {
    survivor.begin_anew(&member_config(config)?).await.map_err(start_problem)
}

/// A member running in this process.
pub struct Running(Engine);

impl Running {
    /// Starts the configured member on its store.
    ///
    /// A member that ran before (`again`) asks to be started once more while its token is not there or fails.
    pub async fn start(config: &Config, storage: Storage, again: bool) -> Result<Self, Problem> {
        let member = member_config(config)?;
        Engine::start(member, storage.log, storage.store).await.map(Self).map_err(|error| {
            // Never for a PIN that is wrong or missing: trying on would lock the token.
            let token = match &error {
                StartError::Token(error) | StartError::Locked(error) => matches!(
                    error,
                    TokenError::Call { .. }
                        | TokenError::NoSlot { .. }
                        | TokenError::Module { .. }
                        | TokenError::Hangs(_)
                        | TokenError::Closed
                ),
                _ => false,
            };
            let mut problem = start_problem(error);
            if again && token {
                problem.exit = Exit::Again;
            }
            problem
        })
    }

    /// Its id.
    pub fn member(&self) -> MemberId {
        self.0.member()
    }

    /// How it is, for a monitor.
    pub fn monitor(&self) -> Monitor {
        self.0.monitor()
    }

    /// Resolves, with the reason, when the member cannot go on.
    pub async fn failed(&self) -> Fault {
        self.0.failed().await
    }

    /// Stops in order.
    pub async fn stop(self) {
        self.0.stop().await;
    }
}

fn module(config: &Config) -> ModuleSource {
    match &config.token.module {
        Some(path) => ModuleSource::Library { path: path.clone() },
        None => ModuleSource::Embedded { folder: config.data.join("token") },
    }
}

/// The token's PIN; None if the token asks for it itself.
fn pin(config: &Config) -> Result<Option<Pin>, Problem> {
    let Some(source) = &config.token.pin else { return Ok(None) };
    Ok(Some(Pin::new(source.read("token.pin")?.to_string())))
}

fn member_config(config: &Config) -> Result<MemberConfig, Problem> {
    let slot = match (&config.token.label, &config.token.serial) {
        (_, Some(serial)) => SlotChoice::Serial(serial.clone()),
        (Some(label), None) if config.token.module.is_some() => SlotChoice::Label(label.clone()),
        _ => SlotChoice::Only,
    };
    let secret = Zeroizing::new(config.domain_secret.read("domain.secret")?.as_bytes().to_vec());
    let domain = Domain::new(config.domain.clone(), secret)
        .map_err(|e| Problem::new(Exit::Config, format!("{}: {e}", config.path.display()), ""))?;
    Ok(MemberConfig {
        folder: config.data.clone(),
        name: config.name.clone(),
        listen: config.listen,
        advertise: config.advertise.clone(),
        socket: config.socket.clone(),
        socket_users: config.socket_users.clone(),
        token: TokenConfig {
            source: module(config),
            slot,
            pin: pin(config)?,
            residency: config.token.residency,
        },
        domain,
        timings: Timings {
            heartbeat: config.timings.heartbeat,
            election_min: config.timings.election_min,
            election_max: config.timings.election_max,
        },
        monitored_interfaces: config.monitored_interfaces.clone(),
    })
}

/// Opens the store of a member that exists, and so keeps every other process out of its folder and its token. One that
/// is just ending is waited for, up to [`limits::FOLDER_PATIENCE`].
pub async fn claim(config: &Config) -> Result<Storage, Problem> {
    home::load(&config.data).map_err(home_problem)?;
    let end = Clock.now() + limits::FOLDER_PATIENCE;
    loop {
        match Storage::open(&config.data) {
            Err(StorageError::InUse { .. }) if Clock.now() < end => {
                tokio::time::sleep(limits::RECONNECT_MIN).await
            }
            opened => return opened.map_err(storage_problem),
        }
    }
}

fn open_storage(config: &Config) -> Result<Storage, Problem> {
    Storage::open(&config.data).map_err(storage_problem)
}

fn storage_problem(error: StorageError) -> Problem {
    let exit = if matches!(error, StorageError::InUse { .. }) { Exit::Refused } else { Exit::Unexpected };
    Problem::new(exit, error, "")
}

fn home_problem(error: HomeError) -> Problem {
    let exit = match error {
        HomeError::Empty(_) | HomeError::Occupied(_) | HomeError::Open { .. } => Exit::Refused,
        HomeError::Damaged { .. } | HomeError::Io { .. } => Exit::Unexpected,
    };
    Problem::new(exit, error, "")
}

fn start_problem(error: StartError) -> Problem {
    let exit = match error {
        StartError::Direct(_) => Exit::Unexpected,
        StartError::Home(error) => return home_problem(error),
        StartError::Group(failure) => return failure.into(),
        StartError::Token(TokenError::Exists { .. }) => Exit::Refused,
        StartError::Token(_)
        | StartError::SmkAbsent { .. }
        | StartError::SmkForeign { .. }
        | StartError::Locked(_) => Exit::Token,
        StartError::Handshake(_)
        | StartError::Pin(_)
        | StartError::Lineage { .. }
        | StartError::NothingLeft
        | StartError::AloneAlready(_)
        | StartError::QuorumLives(_) => Exit::Refused,
        StartError::NobodyThere(_) => Exit::Unreachable,
        StartError::Listen { .. } => Exit::Config,
        StartError::Consensus(_) | StartError::Pki(_) | StartError::Random(_) | StartError::Envelope(_) => {
            Exit::Unexpected
        }
    };
    Problem::new(exit, error, "")
}
