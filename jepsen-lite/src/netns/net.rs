//! A network of its own for each member: a namespace with one device, whose packets all go through [`Switch`]. All of it goes
//! with its value; what a killed run left behind is swept by the next.

use super::leaks::Ear;
use super::switch::Switch;
use super::tun;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Names of namespaces begin so, then come the process's number and the member's.
const PREFIX: &str = "keyraft-jl-";

/// The members' networks.
#[derive(Debug)]
pub struct Net {
    spaces: Spaces,
    /// What lies between them.
    pub switch: Switch,
}

/// Runs a command to its end, which must be good.
pub fn run(words: &[&str]) -> Result<(), String> {
    let Some((program, rest)) = words.split_first() else { return Ok(()) };
    // Ctrl-C is for us alone: what we begin we end.
    let done = Command::new(program).args(rest).process_group(0).output();
    let done = done.map_err(|error| format!("{program}: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("'{}' failed: {}", words.join(" "), String::from_utf8_lossy(&done.stderr).trim()))
}

/// Removes namespaces whose process has ended without doing so.
pub fn sweep() {
    let Ok(list) = Command::new("ip").args(["netns", "list"]).output() else { return };
    for name in String::from_utf8_lossy(&list.stdout).lines().filter_map(|line| line.split(' ').next()) {
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // Another run may be sweeping too.
            let _ = run(&["ip", "netns", "del", name]);
        }
    }
}

/// Namespaces that are gone with their value.
#[derive(Debug)]
struct Spaces(Vec<String>);

impl Spaces {
    /// One more, with a device of this name that is called eth0 inside.
    fn add(&mut self, space: String, index: usize, device: &str) -> Result<OwnedFd, String> {
        run(&["ip", "netns", "add", &space])?;
        self.0.push(space.clone());
        let port = tun::device(device)?;
        run(&["ip", "link", "set", "dev", device, "netns", &space, "name", "eth0"])?;
        let address = format!("{}/24", Net::address(index));
        let at = ["ip", "-n", &space];
        run(&[&at[..], &["addr", "add", &address, "dev", "eth0"]].concat())?;
        run(&[&at[..], &["link", "set", "lo", "up"]].concat())?;
        run(&[&at[..], &["link", "set", "eth0", "up"]].concat())?;
        Ok(port)
    }
}

impl Drop for Spaces {
    fn drop(&mut self) {
        for space in &self.0 {
            if let Err(why) = run(&["ip", "netns", "del", space]) {
                eprintln!("warning: {why}");
            }
        }
    }
}

impl Net {
    /// Makes so many, as root; the ear hears what is said between them.
    pub fn new(count: usize, seed: u64, ear: Ear) -> Result<Self, String> {
        sweep();
        let own = std::process::id();
        let mut spaces = Spaces(Vec::new());
        let ports: Result<Vec<OwnedFd>, String> = (0..count)
            .map(|index| spaces.add(format!("{PREFIX}{own}-{index}"), index, &format!("kj{own}x{index}")))
            .collect();
        let switch = Switch::new(ports?, seed, ear);
        Ok(Self { spaces, switch })
    }

    /// A member's address.
    pub fn address(index: usize) -> String {
        format!("10.77.0.{}", index + 1)
    }

    /// The namespace that a member lives in.
    pub fn space(&self, index: usize) -> Option<&str> {
        self.spaces.0.get(index).map(String::as_str)
    }
}
