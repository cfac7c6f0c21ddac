//! A network of our own, with a loopback interface that can be cut: a network namespace of the kernel's.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A namespace. It goes with its value.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

fn run(words: &[&str]) {
    let (program, rest) = words.split_first().expect("a program");
    let done = Command::new(program).args(rest).output();
    let done = done.unwrap_or_else(|e| panic!("{program}: {e}; run 'dev/deps.sh test'"));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "'{}' failed: {said}", words.join(" "));
}

impl Namespace {
    /// Makes one, as root.
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("keyraft-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        run(&["ip", "netns", "add", &name]);
        let space = Self { name };
        run(&["ip", "-n", &space.name, "link", "set", "lo", "up"]);
        space.nft("add table inet cuts");
        space.nft("add chain inet cuts input { type filter hook input priority 0; }");
        space
    }

    fn nft(&self, rule: &str) {
        run(&["ip", "netns", "exec", &self.name, "nft", rule]);
    }

    /// A command that runs in here.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Silently drops everything from and to a port: nobody is told, connections hang.
    pub fn cut(&self, port: u16) {
        self.nft(&format!("add rule inet cuts input tcp dport {port} drop"));
        self.nft(&format!("add rule inet cuts input tcp sport {port} drop"));
    }

    /// Lets everything through again.
    pub fn heal(&self) {
        self.nft("flush chain inet cuts input");
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let gone = Command::new("ip").args(["netns", "del", &self.name]).status();
        if !gone.is_ok_and(|status| status.success()) {
            eprintln!("warning: network namespace {} is still there", self.name);
        }
    }
}
