//! A group of members, each a process of this binary.

use crate::table::say;
use aws_lc_rs::rand;
use keyraft_engine::clock::Clock;
use keyraft_engine::domain::{
    AttributeType, AttributeValue, Attributes, Curve, KeyAlgorithm, MemberId, ObjectClass,
};
use keyraft_engine::wire::{
    Answer, ClientRequest, CreateKey, GroupStatus, KeyTemplate, MemberStatus, ObjectRow,
};
use keyraft_node::caller::{Caller, status, unexpected};
use keyraft_node::config::Config;
use keyraft_node::engine::Socket;
use keyraft_node::exit::{Exit, Problem};
use keyraft_node::process::children;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Set in the environment, it makes this binary a member.
pub const AS_MEMBER: &str = "KEYRAFT_BENCH_MEMBER";
/// How long one step may take.
pub const STEP_LIMIT: Duration = Duration::from_secs(600);
/// Between two looks at something that is awaited.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A process that ends with its value.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Nothing is left to do about a process that cannot be ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder that goes with its value.
pub struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Folder {
    /// Makes a folder of a fresh name.
    pub fn new(parent: &Path, name: &str, keep: bool) -> Result<Self, Problem> {
        let path = parent.join(format!("keyraft-bench-{}-{name}", std::process::id()));
        make_folder(&path)?;
        Ok(Self { path, keep })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.keep {
            say(format!("kept: {}", self.path.display()));
        } else if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("warning: {} could not be removed: {error}", self.path.display());
        }
    }
}

fn make_folder(path: &Path) -> Result<(), Problem> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|e| Problem::io(format!("making {}", path.display()), &e))
}

/// Writes a file that only its owner may read.
pub fn write_private(path: &Path, text: &str) -> Result<(), Problem> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options.open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|e| Problem::io(format!("writing {}", path.display()), &e))
}

/// Ports that are free now: all are held until the last is found, so that they differ.
pub fn free_ports(count: usize) -> Result<Vec<u16>, Problem> {
    let listeners: Result<Vec<TcpListener>, _> =
        (0..count).map(|_| TcpListener::bind(("127.0.0.1", 0))).collect();
    let ports = listeners.and_then(|l| l.iter().map(|l| l.local_addr().map(|a| a.port())).collect());
    ports.map_err(|e| Problem::io("looking for free ports on 127.0.0.1", &e))
}

struct Member {
    name: String,
    home: PathBuf,
    socket_path: PathBuf,
    socket: Socket,
    process: Option<Process>,
}

/// The group. Its processes end and its folder goes with it.
pub struct Group {
    // Before the folder: the processes end first.
    members: Vec<Member>,
    folder: Folder,
    module: String,
    /// What stands between a member and its token.
    shim: Option<PathBuf>,
    log: Option<String>,
}

impl Group {
    /// A group of so many members, in sync.
    pub async fn form(parent: &Path, module: &str, count: usize, log: Option<&str>) -> Result<Self, Problem> {
        Self::form_with(parent, module, count, log, None).await
    }

    /// The same with tokens that are as sick as [`Group::rules`] says, played by this library.
    pub async fn form_behind(
        parent: &Path,
        module: &str,
        count: usize,
        log: Option<&str>,
        shim: &Path,
    ) -> Result<Self, Problem> {
        Self::form_with(parent, module, count, log, Some(shim.to_path_buf())).await
    }

    async fn form_with(
        parent: &Path,
        module: &str,
        count: usize,
        log: Option<&str>,
        shim: Option<PathBuf>,
    ) -> Result<Self, Problem> {
        let folder = Folder::new(parent, "group", log.is_some())?;
        let mut secret = [0; 32];
        rand::fill(&mut secret)
            .map_err(|_| Problem::new(Exit::Unexpected, "the machine gives no random bytes", ""))?;
        let secret: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        write_private(&folder.path().join("domain-secret"), &secret)?;
        write_private(&folder.path().join("so-pin"), "12345678")?;
        let log = log.map(str::to_string);
        let mut group = Self { members: Vec::new(), folder, module: module.into(), shim, log };
        group.prepare()?;
        group.run(0, &["init", "--label", "bench", "--create-token"]).await?;
        group.start(0).await?;
        for _ in 1..count {
            let index = group.add().await?;
            group.start(index).await?;
        }
        for index in 0..count {
            group.wait_in_sync(index).await?;
        }
        Ok(group)
    }

    /// Makes the next member's folder; gives its index.
    fn prepare(&mut self) -> Result<usize, Problem> {
        let index = self.members.len();
        let name = char::from(b'a' + index as u8).to_string();
        let home = self.folder.path().join(&name);
        make_folder(&home)?;
        write_private(&home.join("pin"), "1234")?;
        let port = free_ports(1)?[0];
        let mut token = toml::Table::new();
        let library =
            self.shim.as_ref().map_or_else(|| self.module.clone(), |shim| shim.display().to_string());
        token.insert("module".into(), library.into());
        token.insert("label".into(), format!("bench-{name}").into());
        token.insert("pin_file".into(), "pin".into());
        if self.module != "embedded" {
            let mut environment = toml::Table::new();
            let conf = softhsm_conf(&home)?;
            environment.insert("SOFTHSM2_CONF".into(), conf.display().to_string().into());
            if self.shim.is_some() {
                environment.insert("KEYRAFT_SHIM_MODULE".into(), self.module.clone().into());
                let rules = home.join("rules").display().to_string();
                environment.insert("KEYRAFT_SHIM_RULES".into(), rules.into());
            }
            token.insert("environment".into(), environment.into());
        }
        let mut member = toml::Table::new();
        member.insert("name".into(), name.clone().into());
        member.insert("data".into(), "data".into());
        member.insert("listen".into(), format!("127.0.0.1:{port}").into());
        member.insert("socket".into(), "sock".into());
        let mut domain = toml::Table::new();
        domain.insert("name".into(), "bench".into());
        let secret = self.folder.path().join("domain-secret");
        domain.insert("secret_file".into(), secret.display().to_string().into());
        let mut file = toml::Table::new();
        file.insert("member".into(), member.into());
        file.insert("token".into(), token.into());
        file.insert("domain".into(), domain.into());
        if let Some(filter) = &self.log {
            let mut log = toml::Table::new();
            log.insert("filter".into(), filter.clone().into());
            file.insert("log".into(), log.into());
        }
        let path = home.join("keyraft.toml");
        write_private(&path, &file.to_string())?;
        let config = Config::load(&path)?;
        let socket = Socket::new(config.socket.clone());
        self.members.push(Member { name, home, socket_path: config.socket, socket, process: None });
        Ok(index)
    }

    fn command(&self, index: usize) -> Result<Command, Problem> {
        let program = std::env::current_exe().map_err(|e| Problem::io("finding the own program", &e))?;
        let mut command = Command::new(program);
        command.env(AS_MEMBER, "1").arg("--config").arg(self.members[index].home.join("keyraft.toml"));
        command.env_remove("KEYRAFT_MEMBER_CONFIG").env_remove("KEYRAFT_SOCKET").env_remove("NOTIFY_SOCKET");
        command.process_group(0).stdin(Stdio::null());
        Ok(command)
    }

    /// Runs one command of a member to its end, and gives its JSON.
    async fn run(&self, index: usize, words: &[&str]) -> Result<serde_json::Value, Problem> {
        let mut command = self.command(index)?;
        command.arg("--json").args(words);
        if words.contains(&"--create-token") {
            command.arg("--so-pin-file").arg(self.folder.path().join("so-pin"));
        }
        let output = tokio::process::Command::from(command).kill_on_drop(true).output().await;
        let output = output.map_err(|e| Problem::io(format!("running 'keyraft {}'", words[0]), &e))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let what = format!("'keyraft {}' failed ({}):\n{}", words[0], output.status, said.trim_end());
            return Err(Problem::new(Exit::Unexpected, what, ""));
        }
        serde_json::from_slice(&output.stdout).map_err(|e| Problem::new(Exit::Unexpected, e, ""))
    }

    /// A further member: its token made and admitted to the group, not yet started. Gives its index.
    pub async fn add(&mut self) -> Result<usize, Problem> {
        let index = self.prepare()?;
        let said = self.run(0, &["invite"]).await?;
        let invitation = self.members[index].home.join("invitation");
        write_private(&invitation, said["invitation"].as_str().unwrap_or_default())?;
        let path = invitation.display().to_string();
        self.run(index, &["join", &path, "--create-token"]).await?;
        Ok(index)
    }

    /// Starts a member's process; gives the time until it answers.
    pub async fn start(&mut self, index: usize) -> Result<Duration, Problem> {
        let begin = Clock.now();
        let mut options = File::options();
        let log = options.create(true).append(true).mode(0o600).open(self.members[index].home.join("log"));
        let log = log.map_err(|e| Problem::io("opening a member's log", &e))?;
        let mut command = self.command(index)?;
        let parent = std::process::id().to_string();
        command.args(["serve", "--end-with-parent", &parent]).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().map_err(|e| Problem::io("starting a member", &e))?;
        let member = &mut self.members[index];
        let process = member.process.insert(Process(child));
        member.socket = Socket::new(member.socket_path.clone());
        while member.socket.greet().await.is_err() {
            if let Ok(Some(status)) = process.0.try_wait() {
                let what = format!("member {} ended: {status}", member.name);
                return Err(Problem::new(Exit::Unexpected, what, ""));
            }
            in_time(begin, "a member's first answer")?;
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(Clock.now() - begin)
    }

    /// kill -9.
    pub fn end(&mut self, index: usize) {
        self.members[index].process = None;
    }

    /// Sends a signal to a member's own process, or to the one that watches it, with which it ends.
    fn signal(&self, index: usize, signal: Signal, watcher: bool) -> Result<(), Problem> {
        let Some(process) = &self.members[index].process else { return Ok(()) };
        let watching = process.0.id();
        let ids = if watcher { vec![watching] } else { children(watching) };
        for id in ids.into_iter().filter_map(|id| Pid::from_raw(i32::try_from(id).ok()?)) {
            kill_process(id, signal).map_err(|e| Problem::io("signalling a member", &e.into()))?;
        }
        Ok(())
    }

    /// kill -9, and nothing else: [`Group::end`] tidies up.
    pub fn kill_now(&self, index: usize) -> Result<(), Problem> {
        self.signal(index, Signal::KILL, true)
    }

    /// SIGSTOP, or SIGCONT.
    pub fn silence(&self, index: usize, silent: bool) -> Result<(), Problem> {
        self.signal(index, if silent { Signal::STOP } else { Signal::CONT }, false)
    }

    /// kill -9, until the group knows.
    pub async fn kill(&mut self, index: usize) -> Result<(), Problem> {
        let me = self.id(index).await?;
        self.end(index);
        let begin = Clock.now();
        loop {
            let seen = self.primary_view().await?;
            if seen.members.iter().any(|m| m.member == me && !m.in_sync) {
                return Ok(());
            }
            in_time(begin, "the group's notice of a lost member")?;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn id(&self, index: usize) -> Result<MemberId, Problem> {
        Ok(self.seen(index).await?.answered_by)
    }

    /// The group as a member sees it.
    pub async fn seen(&self, index: usize) -> Result<GroupStatus, Problem> {
        status(&self.members[index].socket, STEP_LIMIT).await
    }

    /// The index of the primary.
    pub async fn primary(&self) -> Result<usize, Problem> {
        let begin = Clock.now();
        loop {
            for index in (0..self.members.len()).filter(|i| self.members[*i].process.is_some()) {
                let seen = self.seen(index).await?;
                if seen.primary == Some(seen.answered_by) {
                    return Ok(index);
                }
            }
            in_time(begin, "a primary")?;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn primary_view(&self) -> Result<GroupStatus, Problem> {
        self.seen(self.primary().await?).await
    }

    /// Waits until the primary counts a member as in sync.
    pub async fn wait_in_sync(&self, index: usize) -> Result<(), Problem> {
        let name = &self.members[index].name;
        let begin = Clock.now();
        let mut at = self.primary().await?;
        loop {
            let seen = self.seen(at).await?;
            if seen.primary != Some(seen.answered_by) {
                at = self.primary().await?;
            }
            let there = |m: &MemberStatus| m.name == *name && m.in_sync;
            if seen.members.iter().any(there) {
                return Ok(());
            }
            in_time(begin, "a member's being in sync")?;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// A connection of its own to a member.
    pub fn connect(&self, index: usize) -> Socket {
        Socket::new(self.members[index].socket_path.clone())
    }

    /// A member's folder.
    pub fn home(&self, index: usize) -> &Path {
        &self.members[index].home
    }

    /// Where a member answers local clients.
    pub fn socket_path(&self, index: usize) -> &Path {
        &self.members[index].socket_path
    }

    /// Gives the group's user a PIN.
    pub async fn set_pin(&self, index: usize, pin: &str) -> Result<(), Problem> {
        let file = self.folder.path().join("user-pin");
        write_private(&file, pin)?;
        let file = file.display().to_string();
        self.run(index, &["pin", "set", "--role", "user", "--pin-file", &file]).await.map(|_| ())
    }

    /// How sick a member's token is from now on: rules of the shim.
    pub fn rules(&self, index: usize, rules: &str) -> Result<(), Problem> {
        let path = self.members[index].home.join("rules");
        let fresh = path.with_extension("new");
        write_private(&fresh, rules)?;
        fs::rename(&fresh, &path).map_err(|e| Problem::io(format!("writing {}", path.display()), &e))
    }

    /// What a member's process has in memory, KiB.
    pub fn resident(&self, index: usize) -> Result<u64, Problem> {
        let Some(process) = &self.members[index].process else { return Ok(0) };
        // The member's own process is its supervisor's child.
        children(process.0.id()).into_iter().map(resident).sum()
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }
}

/// What a process has in memory, KiB.
pub fn resident(process: u32) -> Result<u64, Problem> {
    let path = format!("/proc/{process}/status");
    let text = fs::read_to_string(&path).map_err(|e| Problem::io(format!("reading {path}"), &e))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    Ok(line.and_then(|l| l.split_whitespace().next()).and_then(|n| n.parse().ok()).unwrap_or(0))
}

/// A SoftHSM configuration with its tokens beside it.
pub fn softhsm_conf(home: &Path) -> Result<PathBuf, Problem> {
    let tokens = home.join("softhsm");
    make_folder(&tokens)?;
    let conf = home.join("softhsm2.conf");
    let text = format!(
        "directories.tokendir = {}\nobjectstore.backend = file\nlog.level = ERROR\n",
        tokens.display()
    );
    write_private(&conf, &text)?;
    Ok(conf)
}

/// Fails when a step has taken too long.
pub fn in_time(begin: Instant, what: &str) -> Result<(), Problem> {
    if Clock.now() - begin < STEP_LIMIT {
        return Ok(());
    }
    Err(Problem::new(Exit::TryAgain, format!("waited {} s in vain for {what}", STEP_LIMIT.as_secs()), ""))
}

/// Somebody who creates keys over one connection.
pub struct Creator<'a> {
    caller: Caller<'a>,
    algorithm: KeyAlgorithm,
    name: String,
    made: usize,
}

impl<'a> Creator<'a> {
    /// Makes contact.
    pub async fn begin(socket: &'a Socket, algorithm: KeyAlgorithm, name: String) -> Result<Self, Problem> {
        Ok(Self { caller: Caller::begin(socket, STEP_LIMIT).await?, algorithm, name, made: 0 })
    }

    /// One key.
    pub async fn create(&mut self) -> Result<(), Problem> {
        self.made += 1;
        let label = AttributeValue::Bytes(format!("{}-{}", self.name, self.made).into_bytes());
        let attributes: Attributes = [(AttributeType::LABEL, label)].into();
        let template = KeyTemplate { algorithm: self.algorithm, attributes };
        let make = |request, watermark| {
            ClientRequest::Create(CreateKey { request, watermark, template: template.clone() })
        };
        match self.caller.change(make).await? {
            Answer::Created(_) => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

/// P-256, the kind that is measured.
pub const P256: KeyAlgorithm = KeyAlgorithm::Ec(Curve::P256);

/// Keys among rows: a pair counts once.
pub fn keys_among(rows: &[ObjectRow]) -> usize {
    rows.iter().filter(|row| row.class != ObjectClass::PublicKey).count()
}
