//! A network of its own for each member: a namespace, a cable to a switch in another namespace, and rules that drop what
//! comes from whom. All of it goes with its value; what a killed run left behind is swept by the next.

use std::path::Path;
use std::process::Command;

/// Names of namespaces begin so, then come the process's number and the member's.
const PREFIX: &str = "keyraft-jl-";

/// The members' networks.
#[derive(Debug)]
pub struct Net {
    spaces: Vec<String>,
    switch: String,
}

/// Runs a command to its end, which must be good.
pub fn run(words: &[&str]) -> Result<(), String> {
    let Some((program, rest)) = words.split_first() else { return Ok(()) };
    let done = Command::new(program).args(rest).output().map_err(|error| format!("{program}: {error}"))?;
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

impl Net {
    /// Makes so many, as root.
    pub fn new(count: usize) -> Result<Self, String> {
        sweep();
        let own = format!("{PREFIX}{}", std::process::id());
        let mut net = Self { spaces: Vec::new(), switch: format!("{own}-switch") };
        run(&["ip", "netns", "add", &net.switch])?;
        run(&["ip", "-n", &net.switch, "link", "add", "name", "hub", "type", "bridge"])?;
        run(&["ip", "-n", &net.switch, "link", "set", "dev", "hub", "up"])?;
        for index in 0..count {
            let (space, port) = (format!("{own}-{index}"), format!("p{index}"));
            run(&["ip", "netns", "add", &space])?;
            net.spaces.push(space.clone());
            let at = ["ip", "-n", &net.switch, "link"];
            let cable = ["add", "name", &port, "type", "veth", "peer", "name", "eth0", "netns", &space];
            run(&[&at[..], &cable].concat())?;
            run(&[&at[..], &["set", "dev", &port, "master", "hub", "up"]].concat())?;
            run(&["ip", "-n", &space, "link", "set", "lo", "up"])?;
            run(&[
                "ip",
                "-n",
                &space,
                "addr",
                "add",
                &format!("{}/24", Self::address(index)),
                "dev",
                "eth0",
            ])?;
            run(&["ip", "-n", &space, "link", "set", "eth0", "up"])?;
            net.rule(index, "add table inet cuts")?;
            net.rule(index, "add chain inet cuts input { type filter hook input priority 0; }")?;
        }
        Ok(net)
    }

    /// A member's address.
    pub fn address(index: usize) -> String {
        format!("10.77.0.{}", index + 1)
    }

    /// The namespace that a member lives in.
    pub fn space(&self, index: usize) -> Option<&str> {
        self.spaces.get(index).map(String::as_str)
    }

    fn rule(&self, index: usize, rule: &str) -> Result<(), String> {
        let space = self.space(index).ok_or_else(|| format!("there is no member {index}"))?;
        run(&["ip", "netns", "exec", space, "nft", rule])
    }

    /// Nothing from one reaches the other any more. Nobody is told.
    pub fn cut(&self, from: usize, to: usize) -> Result<(), String> {
        self.rule(to, &format!("add rule inet cuts input ip saddr {} drop", Self::address(from)))
    }

    /// Everything reaches a member again.
    pub fn heal(&self, index: usize) -> Result<(), String> {
        self.rule(index, "flush chain inet cuts input")
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for space in self.spaces.iter().chain([&self.switch]) {
            if let Err(why) = run(&["ip", "netns", "del", space]) {
                eprintln!("warning: {why}");
            }
        }
    }
}
