//! A network of its own for every member: namespaces on one bridge, and packets that are dropped without a word.

use crate::group::Group;
use std::fs;
use std::path::Path;
use std::process::Command;

/// One namespace a member, and one for the bridge between them. Dropped, they are gone.
pub struct Network {
    names: Vec<String>,
    hub: String,
}

fn run(words: &[&str]) {
    let output = Command::new(words[0]).args(&words[1..]).output();
    let output = output.unwrap_or_else(|e| panic!("{words:?}: {e}"));
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn address(index: usize) -> String {
    format!("10.77.0.{}", index + 1)
}

impl Network {
    /// Gives every member of a prepared group a namespace and an address of its own. Needs root.
    pub fn around(group: &mut Group) -> Self {
        let unique = std::process::id();
        let mut network = Self { names: Vec::new(), hub: format!("kr{unique}hub") };
        let hub = network.hub.clone();
        run(&["ip", "netns", "add", &hub]);
        run(&["ip", "-n", &hub, "link", "add", "bridge", "type", "bridge"]);
        run(&["ip", "-n", &hub, "link", "set", "bridge", "up"]);
        run(&["ip", "-n", &hub, "addr", "add", "10.77.0.254/24", "dev", "bridge"]);
        for (index, member) in group.members.iter_mut().enumerate() {
            let (name, port) = (format!("kr{unique}m{index}"), format!("m{index}"));
            run(&["ip", "netns", "add", &name]);
            network.names.push(name.clone());
            let peer = ["peer", "name", "eth0", "netns", &name];
            run(&[&["ip", "-n", &hub, "link", "add", &port, "type", "veth"][..], &peer].concat());
            run(&["ip", "-n", &hub, "link", "set", &port, "master", "bridge", "up"]);
            run(&["ip", "-n", &name, "addr", "add", &format!("{}/24", address(index)), "dev", "eth0"]);
            run(&["ip", "-n", &name, "link", "set", "eth0", "up"]);
            run(&["ip", "-n", &name, "link", "set", "lo", "up"]);
            let path = member.folder.join("keyraft.toml");
            let text = fs::read_to_string(&path).expect("is there");
            fs::write(&path, text.replace("127.0.0.1:", &format!("{}:", address(index)))).expect("writes");
            member.namespace = Some(name);
        }
        network
    }

    /// A program that reaches every member, from the bridge.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.hub]).arg(program);
        command
    }

    /// Drops every packet from and to a member from now on.
    pub fn cut(&self, index: usize) {
        let rules = "add table inet cut; \
                     add chain inet cut in { type filter hook input priority 0; policy drop; }; \
                     add chain inet cut out { type filter hook output priority 0; policy drop; }";
        run(&["ip", "netns", "exec", &self.names[index], "nft", rules]);
    }

    /// Lets packets through again.
    pub fn heal(&self, index: usize) {
        run(&["ip", "netns", "exec", &self.names[index], "nft", "delete table inet cut"]);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in self.names.iter().chain([&self.hub]) {
            // A namespace that stays behind disturbs nobody.
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}
