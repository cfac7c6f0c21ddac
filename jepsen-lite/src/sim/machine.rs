//! A simulated machine of a member: what outlives its processes (data folder, disk, token, clocks), and the process that
//! runs the real member, started again by a supervisor when it ends by itself.

use super::application::PIN;
use super::host::Host;
use super::leaks::Search;
use super::network::{Network, Place, guard};
use super::peers::{Joining, Links, address, serve};
use keyraft_engine::assembly::{
    Engine, InitGroup, MemberConfig, World as Surroundings, home, init, join_through,
};
use keyraft_engine::clock::{MemberClock, Skew};
use keyraft_engine::cloning::{Domain, Invitation};
use keyraft_engine::consensus::Timings;
use keyraft_engine::consensus::model_disk::ModelDisk;
use keyraft_engine::limits::{
    ELECTION_MAX, ELECTION_MIN, RAFT_HEARTBEAT, RESTART_CALM, RESTART_MAX, RESTART_MIN,
};
use keyraft_engine::token::{ModelToken, ModuleSource, Pin, SlotChoice, TokenConfig, initialize};
use keyraft_engine::transport::pki;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;

/// Begins the reason of an end that is a fault whatever was broken.
pub const PANICKED: &str = "it panicked";
/// What a sync of a healthy disk takes.
pub const SYNC: Duration = Duration::from_millis(1);
const SO_PIN: &str = "so-pin-5678";
const SECRET: &[u8] = b"a secret of the simulation, long enough";

/// What a running member is told by the one who breaks things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Take a snapshot now, and drop what lies before it.
    Snapshot,
}

/// A member's machine.
pub struct Machine {
    /// Its place on the network.
    pub place: Place,
    /// Its token.
    pub token: Arc<ModelToken>,
    /// Its disk.
    pub disk: ModelDisk,
    /// How its clocks are off.
    pub skew: &'static Skew,
    /// Its process.
    pub host: Host,
    config: MemberConfig,
    network: Network,
    orders: Option<mpsc::UnboundedSender<Order>>,
    /// Set when the process ended by itself: why.
    ended: Arc<Mutex<Option<String>>>,
    /// It shall run.
    wanted: bool,
    started: Duration,
    pause: Duration,
    again: Option<Duration>,
    /// Lives of this machine as a member: a member that was removed joins as another one.
    lives: usize,
    root: PathBuf,
    search: Arc<Search>,
}

fn config(place: Place, folder: PathBuf, token: &Arc<ModelToken>) -> Result<MemberConfig, String> {
    Ok(MemberConfig {
        name: format!("m{place}"),
        listen: ([127, 0, 0, 1], 7400).into(),
        advertise: address(place),
        socket: folder.join("sock"),
        folder,
        socket_users: Vec::new(),
        token: TokenConfig {
            source: ModuleSource::Model(token.clone()),
            slot: SlotChoice::Only,
            pin: Some(Pin::new(PIN.into())),
            residency: None,
        },
        domain: Domain::new("jepsen", SECRET.to_vec().into()).map_err(|error| error.to_string())?,
        timings: Timings {
            heartbeat: RAFT_HEARTBEAT,
            election_min: ELECTION_MIN,
            election_max: ELECTION_MAX,
        },
        monitored_interfaces: Vec::new(),
    })
}

/// A token that nobody has used, with a label and a PIN.
fn token(number: usize) -> Result<Arc<ModelToken>, String> {
    let token = ModelToken::new(u8::try_from(number % 256).unwrap_or(0));
    let source = ModuleSource::Model(token.clone());
    let (so_pin, pin) = (Pin::new(SO_PIN.into()), Pin::new(PIN.into()));
    initialize(&source, &format!("token-{number}"), &so_pin, &pin).map_err(|error| error.to_string())?;
    Ok(token)
}

/// A disk that nobody has used, all of whose writes are looked through.
fn disk(place: Place, search: &Arc<Search>) -> ModelDisk {
    let (disk, search) = (ModelDisk::default(), search.clone());
    disk.set_sync_time(SYNC);
    disk.set_witness(Arc::new(move |bytes| search.written(place, bytes)));
    disk
}

impl Machine {
    /// A machine with an empty disk and an empty token.
    ///
    /// # Errors
    /// The token cannot be made ready.
    pub fn new(place: Place, root: &Path, network: &Network, search: &Arc<Search>) -> Result<Self, String> {
        let token = token(place)?;
        Ok(Self {
            place,
            config: config(place, root.join(format!("m{place}-0")), &token)?,
            token,
            disk: disk(place, search),
            skew: Box::leak(Box::default()),
            host: Host::default(),
            network: network.clone(),
            orders: None,
            ended: Arc::default(),
            wanted: false,
            started: Duration::ZERO,
            pause: RESTART_MIN,
            again: None,
            lives: 1,
            root: root.into(),
            search: search.clone(),
        })
    }

    /// All that the machine held is gone: it is as new.
    ///
    /// # Errors
    /// As [`Machine::new`].
    pub fn renew(&mut self, machines: usize) -> Result<(), String> {
        // Its data folder stays behind; another one is used.
        self.token = token(self.place + machines * self.lives)?;
        self.config =
            config(self.place, self.root.join(format!("m{}-{}", self.place, self.lives)), &self.token)?;
        self.disk = disk(self.place, &self.search);
        self.lives += 1;
        Ok(())
    }

    /// What makes a group with this machine as its first member.
    pub fn founding(&self, group: InitGroup) -> impl Future<Output = Result<(), String>> + Send + 'static {
        let (config, disk) = (self.config.clone(), self.disk.clone());
        async move {
            let log = disk.log().map_err(|error| error.to_string())?;
            let made = init(&config, group, log, disk.store()).await;
            made.map(|_| ()).map_err(|error| error.to_string())
        }
    }

    /// What lets this machine join by an invitation.
    pub fn joining(&self, invitation: String) -> impl Future<Output = Result<(), String>> + Send + 'static {
        let (config, network, place) = (self.config.clone(), self.network.clone(), self.place);
        async move {
            let invitation = Invitation::parse(&invitation).map_err(|error| error.to_string())?;
            let sponsors = Joining { network, place };
            let joined = join_through(&config, invitation, &sponsors).await;
            joined.map(|_| ()).map_err(|error| error.to_string())
        }
    }

    /// Runs this on the machine in place of its member.
    ///
    /// # Errors
    /// As [`Host::start`].
    pub fn run(&mut self, task: impl Future<Output = ()> + Send + 'static) -> Result<(), String> {
        self.token.reboot();
        self.host.start(task)
    }

    /// Starts the member's process, and again whenever it ends by itself.
    ///
    /// # Errors
    /// As [`Host::start`].
    pub fn start(&mut self, now: Duration) -> Result<(), String> {
        self.wanted = true;
        self.pause = RESTART_MIN;
        self.launch(now)
    }

    fn launch(&mut self, now: Duration) -> Result<(), String> {
        self.again = None;
        self.started = now;
        self.token.reboot();
        let (sender, orders) = mpsc::unbounded_channel();
        self.orders = Some(sender);
        let (config, disk, skew) = (self.config.clone(), self.disk.clone(), self.skew);
        let (network, place, ended) = (self.network.clone(), self.place, Arc::default());
        self.ended = Arc::clone(&ended);
        self.host.start(async move {
            let lived = tokio::spawn(live(config, disk, skew, network, place, orders)).await;
            *guard(&ended) = Some(lived.unwrap_or_else(|error| format!("{PANICKED}: {error}")));
        })
    }

    /// kill -9, and nobody starts it again.
    pub fn kill(&mut self) {
        self.wanted = false;
        self.end();
    }

    fn end(&mut self) {
        self.again = None;
        self.orders = None;
        self.host.kill();
        self.network.hang_up(self.place);
        self.disk.kill();
        self.token.reboot();
    }

    /// Its process is stopped, or goes on.
    pub fn pause(&mut self, paused: bool) {
        self.host.pause(paused);
        self.network.pause(self.place, paused);
    }

    /// A process that waits to be started again is started now.
    pub fn hurry(&mut self, now: Duration) {
        self.again = self.again.map(|_| now);
        self.pause = RESTART_MIN;
    }

    /// Tells the member something.
    pub fn order(&self, order: Order) {
        if let Some(orders) = &self.orders {
            // One that is about to end takes no orders.
            let _ = orders.send(order);
        }
    }

    /// The supervisor: says why, if the process has ended by itself; starts it again when it is time.
    ///
    /// # Errors
    /// As [`Host::start`].
    pub fn supervise(&mut self, now: Duration) -> Result<Option<String>, String> {
        let ended = guard(&self.ended).take();
        if ended.is_some() {
            let wanted = self.wanted;
            self.end();
            self.wanted = wanted;
            if now.saturating_sub(self.started) >= RESTART_CALM {
                self.pause = RESTART_MIN;
            }
            self.again = wanted.then_some(now + self.pause);
            self.pause = (self.pause * 2).min(RESTART_MAX);
        }
        if self.again.is_some_and(|again| again <= now) {
            self.launch(now)?;
        }
        Ok(ended)
    }
}

/// The life of one process.
async fn live(
    config: MemberConfig,
    disk: ModelDisk,
    skew: &'static Skew,
    network: Network,
    place: Place,
    mut orders: mpsc::UnboundedReceiver<Order>,
) -> String {
    let named = home::load(&config.folder)
        .map_err(|error| error.to_string())
        .and_then(|identity| pki::named(&identity.certificate).map_err(|error| error.to_string()));
    let named = match named {
        Ok(named) => named,
        Err(why) => return why,
    };
    let links = Arc::new(Links::new(&network, place, named));
    let surroundings = Surroundings { clock: MemberClock::skewed(skew), peers: links };
    let log = match disk.log() {
        Ok(log) => log,
        Err(error) => return format!("it cannot read its log: {error}"),
    };
    let engine = match Engine::start_in(config, surroundings, log, disk.store()).await {
        Ok(engine) => engine,
        Err(error) => return format!("it cannot start: {error}"),
    };
    let door = network.listen(place, named.member);
    tokio::spawn(serve(network, engine.handler(), door));
    loop {
        tokio::select! {
            fault = engine.failed() => return fault.reason,
            Some(order) = orders.recv() => match order {
                // One whose consensus has ended ends by itself.
                Order::Snapshot => drop(engine.compact().await),
            },
        }
    }
}
