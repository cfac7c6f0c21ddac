//! The members' processes, folders and secrets. Dropping it ends and removes all.

use super::ask::Member as Asked;
use super::disk::Small;
use super::net::Net;
use super::processes;
use crate::limits;
use keyraft_engine::clock::Clock;
use rustix::process::Signal;
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
/// A member's data folder, where the disk shall be full at times, MiB.
const DISK_MIB: u64 = 96;

/// One member.
#[derive(Debug)]
struct Member {
    child: Option<Child>,
    disk: Option<Small>,
}

/// All of them.
#[derive(Debug)]
pub struct Cluster {
    program: PathBuf,
    members: Vec<Member>,
    /// The network between them.
    pub net: Net,
    folder: TempDir,
}

fn private(path: &Path, text: &str) -> Result<(), String> {
    let mut options = File::options();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|e| format!("{}: {e}", path.display()))
}

impl Cluster {
    /// Makes folders, networks and configurations; starts nothing.
    pub fn prepare(program: &Path, count: usize, small_disks: bool) -> Result<Self, String> {
        // A socket's path must be short, whatever TMPDIR says.
        let folder = tempfile::Builder::new().prefix("kj").tempdir_in("/tmp").map_err(|e| e.to_string())?;
        let net = Net::new(count)?;
        let mut cluster = Self { program: program.into(), members: Vec::new(), net, folder };
        private(&cluster.path("domain-secret"), "a secret of the fault tests, long enough")?;
        private(&cluster.path("so-pin"), "so-pin-5678")?;
        private(&cluster.path("user-pin"), PIN)?;
        for index in 0..count {
            let folder = cluster.path(&format!("m{index}"));
            let data = folder.join("data");
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&data)
                .map_err(|e| format!("{}: {e}", data.display()))?;
            let disk =
                if small_disks { Some(Small::mount(&data, &folder.join("image"), DISK_MIB)?) } else { None };
            private(&folder.join("pin"), PIN)?;
            let text = format!(
                "[member]\nname = \"m{index}\"\ndata = \"data\"\nlisten = \"{}:7400\"\nsocket = \"sock\"\n\
                 [token]\nmodule = \"embedded\"\nlabel = \"token-{index}\"\npin_file = \"pin\"\n\
                 [domain]\nname = \"jepsen\"\nsecret_file = \"{}\"\n",
                Net::address(index),
                cluster.path("domain-secret").display()
            );
            private(&folder.join("keyraft.toml"), &text)?;
            cluster.members.push(Member { child: None, disk });
        }
        private(&cluster.path("client.toml"), &cluster.client_config())?;
        Ok(cluster)
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
        let space = self.net.space(index).ok_or_else(|| format!("there is no member {index}"))?;
        // Not by "ip netns exec": that gives a process mounts of its own, which would keep a cut-off disk alive.
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{space}")).arg(&self.program).arg("--config");
        command.arg(self.path(&format!("m{index}/keyraft.toml")));
        for name in ["KEYRAFT_CONFIG", "KEYRAFT_MEMBER_CONFIG", "KEYRAFT_SOCKET", "NOTIFY_SOCKET"] {
            command.env_remove(name);
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
            .map_err(|error| format!("nsenter: {error}"))?;
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
        let token = ["--create-token", "--so-pin-file", &so_pin];
        told("member 0 makes the group");
        self.keyraft(0, &[&["init", "--label", LABEL][..], &token].concat(), stop)?;
        self.start(0)?;
        self.wait(0, stop)?;
        for index in 1..self.count() {
            told(&format!("member {index} joins"));
            let said = self.keyraft(0, &["--json", "invite"], stop)?;
            let json: serde_json::Value = serde_json::from_str(&said).map_err(|e| format!("invite: {e}"))?;
            let text = json["invitation"].as_str().ok_or("'keyraft invite' printed no invitation")?;
            let path = self.path("invitation");
            private(&path, text)?;
            self.keyraft(index, &[&["join", &path.display().to_string()][..], &token].concat(), stop)?;
            self.start(index)?;
            self.wait(index, stop)?;
        }
        let pin = self.path("user-pin").display().to_string();
        self.keyraft(0, &["pin", "set", "--role", "user", "--pin-file", &pin], stop)?;
        Ok(())
    }

    /// Waits until a member answers.
    fn wait(&mut self, index: usize, stop: &AtomicBool) -> Result<(), String> {
        let mut asked = Asked::new(self.socket(index));
        let end = Clock.now() + limits::COMMAND;
        while asked.status(limits::LOOK).is_err() {
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
            member.child = Some(command.spawn().map_err(|error| format!("nsenter: {error}"))?);
        }
        Ok(())
    }

    /// True if a member's process ended by itself.
    pub fn ended(&mut self, index: usize) -> bool {
        let child = self.members.get_mut(index).and_then(|member| member.child.as_mut());
        child.is_some_and(|child| child.try_wait().is_ok_and(|status| status.is_some()))
    }

    /// kill -9, and waits for the end.
    pub fn kill(&mut self, index: usize) {
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

    /// A member's disk, if it is one that can be filled.
    pub fn disk(&self, index: usize) -> Result<&Small, String> {
        let disk = self.members.get(index).and_then(|member| member.disk.as_ref());
        disk.ok_or_else(|| format!("member {index} has no disk of its own"))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for index in 0..self.members.len() {
            self.kill(index);
        }
    }
}
