//! A group of real processes.

use crate::{STEP_LIMIT, eventually};
use keyraft_engine::clock::Clock;
use keyraft_engine::domain::MemberId;
use keyraft_engine::wire::GroupStatus;
use keyraft_node::caller::status;
use keyraft_node::engine::Socket;
use keyraft_node::process::{children, kill_member};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// Where Debian puts SoftHSM.
pub const SOFTHSM: &str = "/usr/lib/softhsm/libsofthsm2.so";

/// The user's PIN of every token.
pub const PIN: &str = "user-pin-1234";

/// What kind of token a member has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// The one in the binary.
    Embedded,
    /// SoftHSM, with a configuration and a folder of its own.
    SoftHsm,
    /// The same behind the shim, which plays a sick token by [`Member::play`].
    Shim,
    /// The same, logged in to by a protected authentication path: the member has no PIN.
    Protected,
}

/// One member.
pub struct Member {
    /// Its name, and its folder's.
    pub name: String,
    /// Where its configuration, data, PIN and log are.
    pub folder: PathBuf,
    /// Where it answers.
    pub socket: Socket,
    /// Its id, once it has joined.
    pub id: MemberId,
    kind: TokenKind,
    /// The network namespace that it lives in, if it has one of its own.
    pub namespace: Option<String>,
    child: Option<Child>,
}

impl Member {
    /// Its data folder.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Where its token lies.
    pub fn token(&self, kind: TokenKind) -> PathBuf {
        match kind {
            TokenKind::Embedded => self.data().join("token"),
            TokenKind::SoftHsm | TokenKind::Shim | TokenKind::Protected => self.folder.join("softhsm"),
        }
    }

    /// What it has said.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// True while its process should be running.
    pub fn runs(&self) -> bool {
        self.child.is_some()
    }

    /// What the shim before its token plays from now on: its rules, or nothing.
    pub fn play(&self, rules: &str) {
        let aside = self.folder.join("rules.new");
        write_private(&aside, rules);
        fs::rename(&aside, self.folder.join("rules")).expect("renames");
    }

    /// The id of the member's own process, below its supervisor; None while there is none.
    pub fn process(&self) -> Option<u32> {
        children(self.child.as_ref()?.id()).first().copied()
    }
}

/// All of them. Dropping it ends every process and removes the folder.
pub struct Group {
    program: PathBuf,
    folder: TempDir,
    /// The members, in the order of their names.
    pub members: Vec<Member>,
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code; -1 for a signal.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Ended {
    /// Everything that it said.
    pub fn said(&self) -> String {
        format!("{}{}", self.out, self.err)
    }
}

/// The shim, beside the program under test.
fn shim() -> PathBuf {
    let shim = program().with_file_name("libkeyraft_shim.so");
    assert!(shim.is_file(), "{} is missing: build it first by 'cargo build -p keyraft-shim'", shim.display());
    shim
}

/// The program under test, beside the running test's folder.
pub fn program() -> PathBuf {
    let own = std::env::current_exe().expect("a test knows its own path");
    let target = own.parent().and_then(Path::parent).expect("tests lie in target/*/deps");
    let program = target.join("keyraft");
    assert!(
        program.is_file(),
        "{} is missing: build it first by 'cargo build --package keyraft-node --bin keyraft' (with --release if the tests are)",
        program.display()
    );
    program
}

impl Group {
    /// Makes folders, configurations and secrets; starts nothing.
    pub fn prepare(kinds: &[TokenKind]) -> Self {
        if kinds.iter().any(|kind| *kind != TokenKind::Embedded) {
            assert!(Path::new(SOFTHSM).is_file(), "{SOFTHSM} is missing: apt-get install softhsm2");
        }
        // A socket's path must be short, whatever TMPDIR says.
        let folder = tempfile::Builder::new().prefix("kr").tempdir_in("/tmp").expect("makes a folder");
        let mut group = Self { program: program(), folder, members: Vec::new() };
        write_private(&group.path("domain-secret"), "a secret of the tests, long enough");
        write_private(&group.path("so-pin"), "so-pin-5678");
        for (index, kind) in kinds.iter().enumerate() {
            let member = group.prepare_member(index, *kind);
            group.members.push(member);
        }
        group
    }

    /// Prepares and starts a group, and waits until every member is in sync.
    pub async fn form(kinds: &[TokenKind]) -> Self {
        let mut group = Self::prepare(kinds);
        group.begin().await;
        group
    }

    /// Makes the first member, lets the others join, and waits until all are in sync.
    pub async fn begin(&mut self) {
        self.begin_with(&[]).await;
    }

    /// As [`Group::begin`], with more words for `init`.
    pub async fn begin_with(&mut self, more: &[&str]) {
        let so_pin = self.path("so-pin").display().to_string();
        let new = ["--create-token", "--so-pin-file", &so_pin];
        let token = |member: &Member| -> &[&str] {
            // Its maker's tool has made it.
            if member.kind == TokenKind::Protected { &[] } else { &new }
        };
        self.json(0, &[&["init", "--label", "test"][..], token(&self.members[0]), more].concat()).await;
        self.start(0).await;
        for index in 1..self.members.len() {
            let joined = self.join(index, 0, token(&self.members[index])).await;
            assert_eq!(joined.code, 0, "member {} joins: {}", self.members[index].name, joined.said());
            self.start(index).await;
        }
        self.wait_in_sync().await;
        for index in 0..self.members.len() {
            self.members[index].id = self.status(index).await.answered_by;
        }
    }

    /// Lets a member join by an invitation of another's; starts nothing.
    pub async fn join(&self, index: usize, by: usize, more: &[&str]) -> Ended {
        let invitation = self.json(by, &["invite"]).await;
        let path = self.path("invitation");
        write_private(&path, invitation["invitation"].as_str().expect("is text"));
        let path = path.display().to_string();
        self.run(index, &[&["join", &path][..], more].concat()).await
    }

    /// A path in the group's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn prepare_member(&self, index: usize, kind: TokenKind) -> Member {
        let name = char::from(b'a' + u8::try_from(index).expect("few members")).to_string();
        let folder = self.path(&name);
        let tokens = folder.join("softhsm");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&tokens).expect("makes folders");
        write_private(&folder.join("pin"), PIN);
        let module = match kind {
            TokenKind::Embedded => "embedded".into(),
            TokenKind::SoftHsm => SOFTHSM.into(),
            TokenKind::Shim | TokenKind::Protected => shim().display().to_string(),
        };
        let environment = match kind {
            TokenKind::Embedded => String::new(),
            TokenKind::SoftHsm | TokenKind::Shim | TokenKind::Protected => {
                let conf = folder.join("softhsm2.conf");
                let text = format!(
                    "directories.tokendir = {}\nobjectstore.backend = file\nlog.level = ERROR\n",
                    tokens.display()
                );
                write_private(&conf, &text);
                if kind == TokenKind::Protected {
                    make_token(&conf, &format!("token-{name}"));
                }
                environment(&conf, &folder.join("rules"), kind)
            }
        };
        let login = match kind {
            TokenKind::Protected => "login = \"protected\"",
            TokenKind::Embedded | TokenKind::SoftHsm | TokenKind::Shim => "pin_file = \"pin\"",
        };
        let text = format!(
            "[member]\nname = \"{name}\"\ndata = \"data\"\nlisten = \"127.0.0.1:{}\"\nsocket = \"sock\"\n\
             [token]\nmodule = \"{module}\"\nlabel = \"token-{name}\"\n{login}\n{environment}\
             [domain]\nname = \"test\"\nsecret_file = \"{}\"\n",
            free_port(),
            self.path("domain-secret").display()
        );
        write_private(&folder.join("keyraft.toml"), &text);
        let socket = Socket::new(folder.join("sock"));
        Member { name, folder, socket, id: MemberId(0), kind, namespace: None, child: None }
    }

    fn command(&self, index: usize) -> Command {
        let mut command = match &self.members[index].namespace {
            // It becomes the program: the process that is started is the member.
            Some(name) => {
                let mut inside = Command::new("ip");
                inside.args(["netns", "exec", name]).arg(&self.program);
                inside
            }
            None => Command::new(&self.program),
        };
        command.arg("--config").arg(self.members[index].folder.join("keyraft.toml"));
        // The caller's environment must not point a member elsewhere.
        for name in
            ["KEYRAFT_CONFIG", "KEYRAFT_MEMBER_CONFIG", "KEYRAFT_SOCKET", "NOTIFY_SOCKET", "SOFTHSM2_CONF"]
        {
            command.env_remove(name);
        }
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    /// Runs a command with a member's configuration to its end, whatever that is.
    pub async fn run(&self, index: usize, words: &[&str]) -> Ended {
        let mut command = self.command(index);
        command.args(words);
        let running = tokio::process::Command::from(command).kill_on_drop(true).output();
        let output: Output = tokio::time::timeout(STEP_LIMIT, running)
            .await
            .unwrap_or_else(|_| panic!("'keyraft {}' has not ended after {STEP_LIMIT:?}", words.join(" ")))
            .expect("runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code = output.status.code().unwrap_or(-1);
        Ended { code, out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// Runs a command that must succeed, and gives its JSON.
    pub async fn json(&self, index: usize, words: &[&str]) -> Value {
        let ended = self.run(index, &[&["--json"][..], words].concat()).await;
        let shown = words.join(" ");
        assert_eq!(ended.code, 0, "'keyraft {shown}' at {}: {}", self.members[index].name, ended.said());
        serde_json::from_str(&ended.out).unwrap_or_else(|e| panic!("'keyraft {shown}' gave no JSON: {e}"))
    }

    /// Starts a member's process.
    pub fn spawn(&mut self, index: usize) {
        let member = &self.members[index];
        assert!(!member.runs(), "member {} runs already", member.name);
        let log = File::options()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(member.folder.join("log"))
            .expect("opens the log");
        let mut command = self.command(index);
        let parent = std::process::id().to_string();
        command.args(["serve", "--end-with-parent", &parent]).stdout(Stdio::null()).stderr(log);
        self.members[index].child = Some(command.spawn().expect("starts"));
    }

    /// Starts a member and waits until it answers.
    pub async fn start(&mut self, index: usize) {
        self.spawn(index);
        let end = Clock.now() + STEP_LIMIT;
        while self.members[index].socket.greet().await.is_err() {
            let member = &mut self.members[index];
            let ended = member.child.as_mut().and_then(|child| child.try_wait().expect("can be waited for"));
            assert!(ended.is_none(), "member {} ended ({ended:?}): {}", member.name, member.log());
            assert!(Clock.now() < end, "member {} does not answer: {}", member.name, member.log());
            tokio::time::sleep(crate::LOOK_EVERY).await;
        }
    }

    /// kill -9 of the member and its supervisor, and waits for their end.
    pub fn kill(&mut self, index: usize) {
        if let Some(child) = self.members[index].child.take() {
            kill_member(child);
        }
    }

    /// SIGSTOP: it hangs, and its connections stay open.
    pub fn pause(&self, index: usize) {
        self.signal(index, rustix::process::Signal::STOP);
    }

    /// SIGCONT after [`Group::pause`].
    pub fn go_on(&self, index: usize) {
        self.signal(index, rustix::process::Signal::CONT);
    }

    /// A running member's own process.
    fn process(&self, index: usize) -> u32 {
        self.members[index].process().expect("the member runs")
    }

    /// Sends a running member a signal; its supervisor gets none.
    pub fn signal(&self, index: usize, signal: rustix::process::Signal) {
        let process = i32::try_from(self.process(index)).expect("is small");
        let pid = rustix::process::Pid::from_raw(process).expect("is a process");
        rustix::process::kill_process(pid, signal).expect("can be signalled");
    }

    /// The processor time that a running member has used, in the kernel's ticks.
    pub fn ticks(&self, index: usize) -> u64 {
        let stat = format!("/proc/{}/stat", self.process(index));
        let stat = fs::read_to_string(stat).expect("the process is there");
        // Behind the program's name: utime and stime are the 12th and the 13th.
        let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ');
        fields.skip(11).take(2).map(|field| field.parse::<u64>().expect("is a number")).sum()
    }

    /// SIGTERM, and waits for the end, which must come in order.
    pub async fn stop(&mut self, index: usize) {
        let Some(mut child) = self.members[index].child.take() else { return };
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("can be signalled");
        let end = Clock.now() + STEP_LIMIT;
        loop {
            if let Some(status) = child.try_wait().expect("can be waited for") {
                assert!(status.success(), "{} ended badly: {status}", self.members[index].name);
                return;
            }
            if Clock.now() >= end {
                let _ = child.kill();
                let _ = child.wait();
                panic!("{} does not stop", self.members[index].name);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The group as a member sees it.
    pub async fn status(&self, index: usize) -> GroupStatus {
        let socket = &self.members[index].socket;
        status(socket, STEP_LIMIT).await.unwrap_or_else(|e| panic!("status at {index}: {e}"))
    }

    /// Which member leads, as one member sees it.
    pub async fn primary(&self, seen_by: usize) -> usize {
        let leads = self.status(seen_by).await.primary.expect("there is a primary");
        self.members.iter().position(|member| member.id == leads).expect("it is one of them")
    }

    /// Waits until every running member sees all members in sync, nothing unsettled, and one primary.
    pub async fn wait_in_sync(&self) {
        self.wait_so_many_in_sync(self.members.len()).await;
    }

    /// Waits until every running member sees so many in sync, nothing unsettled, and a primary.
    pub async fn wait_so_many_in_sync(&self, count: usize) {
        let all: Vec<usize> = (0..self.members.len()).filter(|i| self.members[*i].runs()).collect();
        self.wait_until_these_see(&all, count).await;
    }

    /// Waits until each of these members sees so many in sync, nothing unsettled, and a primary.
    pub async fn wait_until_these_see(&self, these: &[usize], count: usize) {
        for index in these.iter().copied() {
            eventually(async || {
                let now = status(&self.members[index].socket, STEP_LIMIT).await.map_err(|e| e.to_string())?;
                let in_sync = now.members.iter().filter(|m| m.in_sync).count();
                if in_sync == count && now.unsettled == 0 && now.primary.is_some() {
                    return Ok(());
                }
                Err(format!("member {} sees {now:#?}", self.members[index].name))
            })
            .await;
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for member in &mut self.members {
            if let Some(child) = member.child.take() {
                kill_member(child);
            }
        }
        if std::thread::panicking() {
            for member in &self.members {
                let log = member.log();
                let lines: Vec<&str> = log.lines().collect();
                eprintln!("--- the last words of member {}", member.name);
                lines.iter().rev().take(15).rev().for_each(|line| eprintln!("{line}"));
            }
        }
    }
}

/// What the library behind a member's token finds in its environment.
fn environment(conf: &Path, rules: &Path, kind: TokenKind) -> String {
    let mut pairs = vec![("SOFTHSM2_CONF", conf.display().to_string())];
    if kind != TokenKind::SoftHsm {
        pairs.push(("KEYRAFT_SHIM_MODULE", SOFTHSM.into()));
        pairs.push(("KEYRAFT_SHIM_RULES", rules.display().to_string()));
    }
    if kind == TokenKind::Protected {
        pairs.push(("KEYRAFT_SHIM_PIN", PIN.into()));
    }
    let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name} = {value:?}")).collect();
    format!("environment = {{ {} }}\n", pairs.join(", "))
}

/// A token made by SoftHSM's own tool.
fn make_token(conf: &Path, label: &str) {
    let mut command = Command::new("softhsm2-util");
    command.args(["--init-token", "--free", "--label", label, "--pin", PIN, "--so-pin", "so-pin-5678"]);
    let made =
        command.env("SOFTHSM2_CONF", conf).output().expect("softhsm2-util runs: apt-get install softhsm2");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// Writes a file that only its owner may read.
pub fn write_private(path: &Path, text: &str) {
    let mut options = File::options();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .unwrap_or_else(|e| panic!("writing {}: {e}", path.display()));
}

/// A port that is free now and below those that the kernel gives to outgoing connections: a member that was killed
/// must find it free again.
pub fn free_port() -> u16 {
    const FIRST: u16 = 12_000;
    const COUNT: u16 = 18_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() * 37 % u32::from(COUNT)).expect("is below COUNT");
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + (start + step % COUNT) % COUNT;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port is free on 127.0.0.1");
}
