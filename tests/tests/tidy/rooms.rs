//! Who may use what. Everything points downwards, each library stands behind one door, and only listed files wait.

use super::source::{Source, everything, name_at, production, root, text, words};
use std::collections::BTreeSet;

/// The engine's rooms from the ground up, as `lib.rs` lists them.
fn rooms() -> Vec<String> {
    let map = text("engine/src/lib.rs");
    let rooms: Vec<String> = map
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod "))
        .filter_map(|rest| rest.split(';').next().map(str::to_string))
        .collect();
    assert!(rooms.len() > 10, "the map in engine/src/lib.rs lists only {rooms:?}");
    rooms
}

fn room_of(path: &str) -> Option<String> {
    let inside = path.strip_prefix("engine/src/")?;
    let first = inside.split('/').next()?;
    Some(first.trim_end_matches(".rs").to_string()).filter(|room| room != "lib")
}

fn complain(complaints: &[String], rule: &str) {
    assert!(complaints.is_empty(), "{rule}\n  {}", complaints.join("\n  "));
}

#[test]
fn every_room_is_on_the_map() {
    let found: BTreeSet<String> = std::fs::read_dir(root().join("engine/src"))
        .expect("lists the rooms")
        .filter_map(|entry| room_of(&format!("engine/src/{}", entry.ok()?.file_name().to_str()?)))
        .collect();
    assert_eq!(found, rooms().into_iter().collect(), "left: the folder; right: engine/src/lib.rs");
}

/// The rooms that a file names by `crate::`, or by a `super::` that leads to the crate's root.
fn named_rooms(source: &Source, rooms: &[String]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let depth = source.path.matches('/').count() - 2 + usize::from(!source.path.ends_with("/mod.rs"));
    for prefix in ["crate::".to_string(), "super::".repeat(depth)] {
        for at in words(&source.code, &prefix) {
            let after = at + prefix.len();
            if source.code.get(after) == Some(&'{') {
                let close = source.code[after..].iter().position(|c| *c == ';').unwrap_or(0);
                let list: String = source.code[after..after + close].iter().collect();
                let names = list.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_string);
                found.extend(names.filter(|name| rooms.contains(name)).map(|name| (at, name)));
            } else {
                let name = name_at(&source.code, after);
                if rooms.contains(&name) {
                    found.push((at, name));
                }
            }
        }
    }
    found
}

/// A room may use only rooms listed before it.
#[test]
fn rooms_depend_downwards() {
    let rooms = rooms();
    let height = |room: &str| rooms.iter().position(|listed| listed == room);
    let mut complaints = Vec::new();
    for source in production(&["engine/src"]) {
        let Some(own) = room_of(&source.path) else { continue };
        for (at, used) in named_rooms(&source, &rooms) {
            if height(&used) > height(&own) {
                complaints.push(format!("{} is in {own} and uses {used}", source.at(at)));
            }
        }
    }
    complain(&complaints, "a room uses only rooms that engine/src/lib.rs lists before it:");
}

/// Nothing points back from engine to storage to node to tests.
#[test]
fn crates_depend_downwards() {
    let order = ["engine", "storage", "node"];
    for (height, own) in order.iter().enumerate() {
        let used = text(&format!("{own}/Cargo.toml"));
        for above in &order[height + 1..] {
            assert!(!used.contains(&format!("keyraft-{above}")), "{own} uses {above}");
        }
    }
}

/// Which files may name a library. A change of the library then changes these files alone.
const DOORS: &[(&str, &[&str])] = &[
    ("sled", &["storage/"]),
    // assembly takes a log store through, and names its trait for that.
    (
        "openraft",
        &[
            "engine/src/consensus/",
            "engine/src/assembly/init.rs",
            "engine/src/assembly/engine.rs",
            "engine/src/assembly/force.rs",
            "storage/",
        ],
    ),
    ("cryptoki_sys", &["engine/src/token/", "pkcs11/src/"]),
    ("libloading", &["engine/src/token/ffi.rs"]),
    ("kryoptic_lib", &["engine/src/token/ffi.rs"]),
    ("rusqlite", &["engine/src/token/"]),
    ("bincode", &["engine/src/codec.rs"]),
    ("aes_gcm", &["engine/src/envelope/"]),
    ("argon2", &["engine/src/cloning/", "engine/src/virtual_slot/pin.rs"]),
    ("rustls", &["engine/src/transport/", "engine/src/client/"]),
    ("tokio_rustls", &["engine/src/transport/"]),
    ("rcgen", &["engine/src/transport/"]),
    ("clap", &["node/src/", "jepsen-lite/src/main.rs"]),
    ("axum", &["node/src/http.rs"]),
    ("prometheus_client", &["engine/src/telemetry/"]),
    ("plotters", &["jepsen-lite/src/report/plots.rs"]),
    ("toml", &["node/src/config/", "node/src/demo/", "pkcs11/src/config.rs"]),
];

#[test]
fn each_library_stands_behind_its_door() {
    let mut complaints = Vec::new();
    for source in production(&["engine", "storage", "node", "pkcs11", "jepsen-lite"]) {
        for (library, door) in DOORS {
            let place = words(&source.code, &format!("{library}::")).into_iter().next();
            if let Some(at) = place.filter(|_| !door.iter().any(|open| source.path.starts_with(open))) {
                complaints.push(format!(
                    "{} names {library}; its place is {}",
                    source.at(at),
                    door.join(", ")
                ));
            }
        }
    }
    complain(&complaints, "each library is named behind its door alone:");
}

/// The files that may hold `unsafe`. Each says beside every block why it is right; clippy sees to that.
const UNSAFE: &[&str] = &[
    "engine/src/token/ffi.rs",
    // The module's own door to C.
    "pkcs11/src/ffi.rs",
    // The ioctl that cuts a file system's power.
    "storage/tests/support/power.rs",
    "jepsen-lite/src/netns/power.rs",
    // libc's functions that tell what is random and what time it is.
    "jepsen-lite/src/sim/entropy.rs",
    // The ioctl that makes a network device.
    "jepsen-lite/src/netns/tun.rs",
    // The module's functions as C applications call them, and fork.
    "tests/src/bin/pkcs11-client/raw.rs",
    // The shim's function list, and the real module's behind it.
    "tests/shim/src/ffi.rs",
    "tests/src/bin/pkcs11-client/raw/wishes.rs",
    // The allocator that counts what a decoder takes.
    "tests/tests/fuzz/meter.rs",
];

#[test]
fn unsafe_is_where_it_is_listed() {
    let holding: BTreeSet<String> = everything()
        .into_iter()
        .filter(|source| !words(&source.all, "unsafe").is_empty())
        .map(|source| source.path)
        .collect();
    let listed: BTreeSet<String> = UNSAFE.iter().map(ToString::to_string).collect();
    assert_eq!(holding, listed, "left: files with unsafe; right: the list of this test");
}

/// The files that may wait. Whatever is not here decides, and can be tested without a clock or a network.
const WAITING: &[&str] = &[
    "engine/src/simulation/pace.rs",
    "engine/src/token/model/hands.rs",
    "engine/src/token/task.rs",
    "engine/src/transport/",
    "engine/src/consensus/",
    "engine/src/reconciler/task.rs",
    "engine/src/service/",
    "engine/src/assembly/",
    "storage/src/log.rs",
    "storage/src/writer.rs",
    "node/src/caller.rs",
    "node/src/command/",
    "node/src/demo/",
    "node/src/engine.rs",
    "node/src/http.rs",
    "node/src/process.rs",
    "node/src/run.rs",
    "node/src/serve.rs",
    "node/src/supervisor.rs",
];

/// In the rooms that wait, the files that only think.
const THINKING: &[&str] = &[
    "engine/src/transport/hello.rs",
    "engine/src/transport/pki.rs",
    "engine/src/transport/tls.rs",
    "engine/src/consensus/error.rs",
    "engine/src/consensus/message.rs",
    "engine/src/consensus/settings.rs",
    "engine/src/consensus/store.rs",
    "engine/src/service/lease.rs",
    "engine/src/service/opinions.rs",
    "engine/src/service/record.rs",
    "engine/src/service/settler.rs",
    "engine/src/assembly/home.rs",
    "engine/src/assembly/monitor.rs",
    "node/src/command/drill/report.rs",
];

#[test]
fn only_listed_files_wait() {
    let mut complaints = Vec::new();
    for source in production(&["engine/src", "storage/src", "node/src"]) {
        let open = WAITING.iter().any(|path| source.path.starts_with(path));
        if open && !THINKING.contains(&source.path.as_str()) {
            continue;
        }
        for word in ["async", "await"] {
            complaints.extend(words(&source.code, word).first().map(|at| source.at(*at)));
        }
    }
    complain(&complaints, "these files wait and are not listed for it:");
}

/// Where a member's thinking is done: same input, same output, on every member and in every replay.
const PURE: &[&str] = &[
    "engine/src/limits.rs",
    "engine/src/codec.rs",
    "engine/src/domain/",
    "engine/src/state/",
    "engine/src/envelope/",
    "engine/src/cloning/",
    "engine/src/membership/",
    "engine/src/wire/",
    "engine/src/health/",
    "engine/src/balance/",
    "engine/src/reconciler/plan.rs",
    "engine/src/service/lease.rs",
    "engine/src/service/opinions.rs",
    "engine/src/service/record.rs",
    "engine/src/service/settler.rs",
];

const IMPURE: &[&str] = &[
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "std::thread",
    "std::io",
    "tokio",
    "getrandom",
    "rustix",
    "Clock",
    "println!",
];

#[test]
fn deciding_is_pure() {
    let mut complaints = Vec::new();
    for source in production(&["engine/src"]) {
        if !PURE.iter().any(|path| source.path.starts_with(path)) {
            continue;
        }
        for word in IMPURE {
            complaints
                .extend(words(&source.code, word).first().map(|at| format!("{} has {word}", source.at(*at))));
        }
    }
    complain(&complaints, "these files decide: no IO, no clock, no randomness, no threads:");
}
