//! The members' processes, folders and secrets. Dropping it ends and removes all.

use super::ask::Member as Asked;
use super::disk::Small;
use super::ends;
use super::leaks::Ear;
use super::net::Net;
use super::outside::ports;
use super::processes;
use super::switch::Bad;
use crate::limits;
use crate::workload::mark;
use keyraft_engine::clock::Clock;
use keyraft_engine::wire::GroupStatus;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// The user's PIN, of every token and of the group.
pub const PIN: &str = "user-pin-1234";
/// The group's label.
pub const LABEL: &str = "jepsen";
/// A member's data folder, where its disk shall misbehave at times, MiB.
const DISK_MIB: u64 = 96;
/// Where Debian puts SoftHSM,
const SOFTHSM: &str = "/usr/lib/softhsm/libsofthsm2.so";
/// and the library that tells a process another time.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// What a group needs so that its faults can be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// A network of its own for each member; else all are on loopback.
    pub networks: bool,
    /// A disk of its own for each member.
    pub disks: bool,
    /// Tokens of SoftHSM's behind this module, which plays a sick one.
    pub shim: Option<PathBuf>,
    /// A clock for each member that can be set.
    pub clocks: bool,
}

/// One member.
#[derive(Debug)]
struct Member {
    child: Option<Child>,
    disk: Option<Small>,
    /// How far its log was heard, in bytes.
    heard: u64,
    /// How its process has ended by itself since somebody asked.
    ends: Vec<String>,
    /// That of the present child is among what was told.
    is_told: bool,
}

/// All of them.
#[derive(Debug)]
pub struct Cluster {
    program: PathBuf,
    members: Vec<Member>,
    /// The network between them, if it is not loopback.
    net: Option<Net>,
    /// Where each listens.
    addresses: Vec<String>,
    needs: Needs,
    folder: TempDir,
}

fn private(path: &Path, text: &str) -> Result<(), String> {
    let mut options = File::options();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|e| format!("{}: {e}", path.display()))
}

impl Cluster {
    /// Makes folders, networks and configurations; starts nothing.
    pub fn prepare(program: &Path, count: usize, needs: Needs, seed: u64) -> Result<Self, String> {
        let missing = |path: &str, package: &str| match Path::new(path).is_file() {
            true => Ok(()),
            false => Err(format!("{path} is missing: apt-get install {package}")),
        };
        needs.shim.as_ref().map_or(Ok(()), |_| missing(SOFTHSM, "softhsm2"))?;
        if needs.clocks {
            missing(FAKETIME, "libfaketime")?;
        }
        // A socket's path must be short, whatever TMPDIR says.
        let prefix = format!("kj{}-", std::process::id());
        let folder =
            tempfile::Builder::new().prefix(&prefix).tempdir_in("/tmp").map_err(|e| e.to_string())?;
        let net = match needs.networks {
            true => Some(Net::new(count, seed, Ear::new(mark(seed)))?),
            false => None,
        };
        let addresses = match needs.networks {
            true => (0..count).map(|index| format!("{}:7400", Net::address(index))).collect(),
            false => ports(count)?.into_iter().map(|port| format!("127.0.0.1:{port}")).collect(),
        };
        let program = program.into();
        let mut cluster = Self { program, members: Vec::new(), net, addresses, needs, folder };
        private(&cluster.path("domain-secret"), "a secret of the fault tests, long enough")?;
        private(&cluster.path("so-pin"), "so-pin-5678")?;
        private(&cluster.path("user-pin"), PIN)?;
        for index in 0..count {
            let disk = cluster.prepare_member(index)?;
            cluster.members.push(Member { child: None, disk, heard: 0, ends: Vec::new(), is_told: false });
        }
        private(&cluster.path("client.toml"), &cluster.client_config())?;
        Ok(cluster)
    }

    /// A member's folder, with its configuration; its disk, if it shall have one of its own.
    fn prepare_member(&self, index: usize) -> Result<Option<Small>, String> {
        let folder = self.path(&format!("m{index}"));
        let (data, tokens) = (folder.join("data"), self.tokens(index));
        for path in [&data, &tokens] {
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.map_err(|e| format!("{}: {e}", path.display()))?;
        }
        let disk = match self.needs.disks {
            true => Some(Small::mount(&data, &folder.join("image"), DISK_MIB)?),
            false => None,
        };
        private(&folder.join("pin"), PIN)?;
        self.play(index, "")?;
        self.set_clock(index, 0)?;
        let token = match &self.needs.shim {
            None => "module = \"embedded\"".into(),
            Some(shim) => {
                let conf = folder.join("softhsm2.conf");
                let text =
                    format!("directories.tokendir = {}\nobjectstore.backend = file\n", tokens.display());
                private(&conf, &text)?;
                format!(
                    "module = {shim:?}\nenvironment = {{ SOFTHSM2_CONF = {conf:?}, KEYRAFT_SHIM_MODULE = {SOFTHSM:?}, \
                     KEYRAFT_SHIM_RULES = {:?} }}",
                    folder.join("rules")
                )
            }
        };
        let text = format!(
            "[member]\nname = \"m{index}\"\ndata = \"data\"\nlisten = \"{}\"\nsocket = \"sock\"\n\
             [token]\n{token}\nlabel = \"token-{index}\"\npin_file = \"pin\"\n\
             [domain]\nname = \"jepsen\"\nsecret_file = \"{}\"\n",
            self.addresses.get(index).map_or("", String::as_str),
            self.path("domain-secret").display()
        );
        private(&folder.join("keyraft.toml"), &text)?;
        Ok(disk)
    }

    /// Where a member's token is, if it is SoftHSM's.
    fn tokens(&self, index: usize) -> PathBuf {
        self.path(&format!("m{index}/softhsm"))
    }

    /// What a member's token plays from now on: the shim's rules, or nothing.
    pub fn play(&self, index: usize, rules: &str) -> Result<(), String> {
        self.replace(&format!("m{index}/rules"), rules)
    }

    /// A member's clock goes wrong by so many seconds from now on.
    pub fn set_clock(&self, index: usize, seconds: i64) -> Result<(), String> {
        self.replace(&format!("m{index}/clock"), &format!("{seconds:+}s\n"))
    }

    /// A file gets a new content in one step.
    fn replace(&self, name: &str, text: &str) -> Result<(), String> {
        let (aside, path) = (self.path("aside"), self.path(name));
        private(&aside, text)?;
        fs::rename(&aside, &path).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Slot 0 asks any member; slot 1 only the first, and so on.
    fn client_config(&self) -> String {
        let sockets: Vec<String> =
            (0..self.count()).map(|index| format!("{:?}", self.socket(index))).collect();
        let slot =
            |sockets: &str| format!("[[group]]\nsockets = [{sockets}]\ntimeout_ms = {}\n", limits::CALL_MS);
        let alone: String = sockets.iter().map(|socket| slot(socket)).collect();
        format!("{}{alone}", slot(&sockets.join(", ")))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.members.len()
    }

    /// A path in the folder of all.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where a member answers.
    pub fn socket(&self, index: usize) -> PathBuf {
        self.path(&format!("m{index}/sock"))
    }

    /// Where a member's last snapshot is, once it has written one.
    pub fn snapshot(&self, index: usize) -> PathBuf {
        self.path(&format!("m{index}/data/snapshots/checkpoint"))
    }

    /// What a member has said.
    pub fn log(&self, index: usize) -> PathBuf {
        self.path(&format!("m{index}/log"))
    }

    /// Copies what the members have said into a folder.
    pub fn keep_logs(&self, folder: &Path) {
        for index in 0..self.count() {
            // A run without its logs is a run all the same.
            let _ = fs::create_dir_all(folder);
            let _ = fs::copy(self.log(index), folder.join(format!("member-{index}.log")));
        }
    }

    fn command(&self, index: usize) -> Result<Command, String> {
        let mut command = match &self.net {
            Some(net) => {
                let space = net.space(index).ok_or_else(|| format!("there is no member {index}"))?;
                // Not by "ip netns exec": that gives a process mounts of its own, which would keep a cut-off disk alive.
                let mut command = Command::new("nsenter");
                command.arg(format!("--net=/run/netns/{space}")).arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        command.arg("--config").arg(self.path(&format!("m{index}/keyraft.toml")));
        for name in ["KEYRAFT_CONFIG", "KEYRAFT_MEMBER_CONFIG", "KEYRAFT_SOCKET", "NOTIFY_SOCKET"] {
            command.env_remove(name);
        }
        if self.needs.clocks {
            // Time that only runs is left alone: what waits by it would be lost.
            command
                .env("LD_PRELOAD", FAKETIME)
                .env("FAKETIME_TIMESTAMP_FILE", self.path(&format!("m{index}/clock")));
            for name in ["FAKETIME_DONT_FAKE_MONOTONIC", "FAKETIME_NO_CACHE", "NO_FAKE_STAT"] {
                command.env(name, "1");
            }
        }
        // Ctrl-C is for us alone: we end them.
        command.current_dir(self.folder.path()).stdin(Stdio::null()).process_group(0);
        Ok(command)
    }

    /// Runs a command of a member's to its end, and gives what it printed.
    pub fn keyraft(&self, index: usize, words: &[&str], stop: &AtomicBool) -> Result<String, String> {
        let shown = words.join(" ");
        let mut child = self
            .command(index)?
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("'keyraft {shown}': {error}"))?;
        let end = Clock.now() + limits::COMMAND;
        while child.try_wait().map_err(|error| error.to_string())?.is_none() {
            if stop.load(Ordering::Relaxed) || Clock.now() > end {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("'keyraft {shown}' was ended: it was stopped, or took too long"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let output = child.wait_with_output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(format!("'keyraft {shown}': {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Forms the group: the first member makes it, the others join one after another.
    pub fn form(&mut self, stop: &AtomicBool, mut told: impl FnMut(&str)) -> Result<(), String> {
        let so_pin = self.path("so-pin").display().to_string();
        told("member 0 makes the group");
        let token = ["--create-token", "--so-pin-file", &so_pin];
        self.keyraft(0, &[&["init", "--label", LABEL][..], &token].concat(), stop)?;
        self.start(0)?;
        self.wait(0, stop)?;
        for index in 1..self.count() {
            told(&format!("member {index} joins"));
            self.join(index, 0, stop)?;
        }
        let pin = self.path("user-pin").display().to_string();
        self.keyraft(0, &["pin", "set", "--role", "user", "--pin-file", &pin], stop)?;
        Ok(())
    }

    /// A member joins by an invitation of another's, and answers.
    pub fn join(&mut self, index: usize, by: usize, stop: &AtomicBool) -> Result<(), String> {
        let said = self.keyraft(by, &["--json", "invite"], stop)?;
        let json: serde_json::Value = serde_json::from_str(&said).map_err(|e| format!("invite: {e}"))?;
        let text = json["invitation"].as_str().ok_or("'keyraft invite' printed no invitation")?;
        private(&self.path("invitation"), text)?;
        let (path, so_pin) = (self.path("invitation"), self.path("so-pin"));
        let (path, so_pin) = (path.display().to_string(), so_pin.display().to_string());
        self.keyraft(index, &["join", &path, "--create-token", "--so-pin-file", &so_pin], stop)?;
        self.start(index)?;
        self.wait(index, stop)
    }

    /// Ends a member, and removes its data and its token: what it was is gone.
    pub fn forget(&mut self, index: usize) -> Result<(), String> {
        self.kill(index);
        for folder in [self.path(&format!("m{index}/data")), self.tokens(index)] {
            let told = |error: std::io::Error| format!("{}: {error}", folder.display());
            // The folder itself may be a disk's, which has a folder of its own in it.
            for entry in fs::read_dir(&folder).map_err(told)? {
                let path = entry.map_err(told)?.path();
                match path.is_dir() {
                    true if path.ends_with("lost+found") => {}
                    true => fs::remove_dir_all(&path).map_err(told)?,
                    false => fs::remove_file(&path).map_err(told)?,
                }
            }
        }
        Ok(())
    }

    /// Waits until a member answers, and sees all that there are in sync: then the next may join.
    fn wait(&mut self, index: usize, stop: &AtomicBool) -> Result<(), String> {
        let mut asked = Asked::new(self.socket(index));
        let end = Clock.now() + limits::COMMAND;
        let ready = |status: GroupStatus| {
            status.primary.is_some() && status.members.iter().all(|member| member.in_sync)
        };
        while !asked.status(limits::LOOK).is_ok_and(ready) {
            if stop.load(Ordering::Relaxed) {
                return Err("stopped".into());
            }
            if Clock.now() > end || self.ended(index) {
                let log = fs::read_to_string(self.log(index)).unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(3).collect();
                return Err(format!("member {index} does not answer: {}", last.join(" | ")));
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        Ok(())
    }

    /// Starts a member's process, if it does not run.
    pub fn start(&mut self, index: usize) -> Result<(), String> {
        let log = File::options().create(true).append(true).mode(0o600).open(self.log(index));
        let log = log.map_err(|e| format!("{}: {e}", self.log(index).display()))?;
        let mut command = self.command(index)?;
        let parent = std::process::id().to_string();
        command.args(["serve", "--end-with-parent", &parent]).stdout(Stdio::null()).stderr(log);
        let member = self.members.get_mut(index).ok_or_else(|| format!("there is no member {index}"))?;
        if member.child.is_none() {
            member.is_told = false;
            member.child = Some(command.spawn().map_err(|error| format!("{command:?}: {error}"))?);
        }
        Ok(())
    }

    /// True if a member's process ended by itself.
    pub fn ended(&mut self, index: usize) -> bool {
        let child = self.members.get_mut(index).and_then(|member| member.child.as_mut());
        child.is_some_and(|child| child.try_wait().is_ok_and(|status| status.is_some()))
    }

    /// Which members' processes have ended by themselves since somebody asked, and how.
    pub fn ends(&mut self) -> Vec<(usize, String)> {
        for index in 0..self.count() {
            self.hear(index);
        }
        let members = self.members.iter_mut().enumerate();
        members.flat_map(|(index, member)| member.ends.drain(..).map(move |why| (index, why))).collect()
    }

    /// Keeps how a member's process has ended by itself.
    fn hear(&mut self, index: usize) {
        let log = self.log(index);
        let Some(member) = self.members.get_mut(index) else { return };
        member.ends.extend(ends::since(&log, &mut member.heard));
        let over = member.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
        if let Some(status) = over.filter(|_| !member.is_told) {
            member.is_told = true;
            let said = fs::read_to_string(&log).unwrap_or_default();
            member.ends.push(ends::for_good(status, &said));
        }
    }

    /// Starts a member's process anew if it ended by itself.
    pub fn revive(&mut self, index: usize) -> Result<(), String> {
        if self.ended(index) {
            self.kill(index);
        }
        self.start(index)
    }

    /// kill -9, and waits for the end.
    pub fn kill(&mut self, index: usize) {
        self.hear(index);
        if let Some(child) = self.members.get_mut(index).and_then(|member| member.child.take()) {
            processes::kill(child);
        }
    }

    /// SIGSTOP, or SIGCONT.
    pub fn pause(&self, index: usize, pause: bool) -> Result<(), String> {
        let signal = if pause { Signal::STOP } else { Signal::CONT };
        let child = self.members.get(index).and_then(|member| member.child.as_ref());
        child.map_or(Ok(()), |child| {
            processes::signal(child, signal).map_err(|error| format!("member {index}: {error}"))
        })
    }

    /// From now on exactly these links are cut: nothing from the first reaches the second.
    pub fn cut(&self, cut: BTreeSet<(usize, usize)>) {
        self.net.iter().for_each(|net| net.switch.cut(cut.clone()));
    }

    /// From now on a member's links do this.
    pub fn spoil(&self, member: usize, change: impl Fn(&mut Bad)) {
        self.net.iter().for_each(|net| net.switch.spoil(member, &change));
    }

    /// Ends the network, and gives what was heard on it.
    pub fn silence(&mut self) -> Result<Ear, String> {
        let heard = self.net.as_mut().and_then(|net| net.switch.end());
        heard.ok_or_else(|| "the switch between the members has ended by itself".into())
    }

    /// A member's disk, if it has one of its own.
    pub fn disk(&mut self, index: usize) -> Result<&mut Small, String> {
        let disk = self.members.get_mut(index).and_then(|member| member.disk.as_mut());
        disk.ok_or_else(|| format!("member {index} has no disk of its own"))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // A process cannot end while it waits for a disk that hangs.
        for disk in self.members.iter_mut().filter_map(|member| member.disk.as_mut()) {
            disk.release();
        }
        for index in 0..self.members.len() {
            self.kill(index);
        }
    }
}
