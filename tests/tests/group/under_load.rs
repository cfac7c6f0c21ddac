//! One fault after another while an application works with eight threads: nothing fails, nothing is late, and in the end
//! all members are equal.

use super::clients::a_client;
use keyraft_tests::TokenKind::{Embedded, Shim};
use keyraft_tests::disk::Small;
use keyraft_tests::keys::{everywhere, list};
use keyraft_tests::network::Network;
use keyraft_tests::told::{Told, application, program};
use keyraft_tests::{Group, root, turn};
use std::time::Duration;

/// Threads that use keys.
const THREADS: usize = 8;
/// No operation may take longer: the module's deadline by default, milliseconds.
const OVERALL_MS: u64 = 20_000;

/// What happens to a member.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Its process is gone at once.
    Killed,
    /// Its process hangs, with every connection open.
    Stopped,
    /// Nothing comes to it or goes from it any more.
    Cut,
    /// Its token's calls do not return.
    TokenHangs,
    /// Its token's calls fail.
    TokenFails,
    /// Its data folder takes nothing more.
    DiskFull,
}

/// All of them, as they come.
const FAULTS: [Fault; 6] =
    [Fault::Killed, Fault::Stopped, Fault::Cut, Fault::TokenHangs, Fault::TokenFails, Fault::DiskFull];
/// Whose token may be sick, and whose disk full.
const SICK: usize = 1;
const FULL: usize = 2;

/// How long each fault lasts, and how often all of them come; more of both in `make soak`.
fn schedule() -> (Duration, usize) {
    let number = |name: &str, usual: u64| match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|e| panic!("{name} is a number: {e}")),
        Err(_) => usual,
    };
    (Duration::from_secs(number("KEYRAFT_FAULT_SECONDS", 5)), number("KEYRAFT_FAULT_ROUNDS", 1) as usize)
}

/// A group whose members have a network each, one token behind a shim that can make it sick, one member's data on a disk
/// of its own; and the folder of an application.
async fn group_to_hurt() -> (Group, Network, Small, std::path::PathBuf) {
    let mut group = Group::prepare(&[Embedded, Shim, Embedded]);
    let network = Network::around(&mut group);
    std::fs::create_dir(group.members[FULL].data()).expect("is made");
    let disk = Small::mount(&group.members[FULL].data(), 64);
    group.begin().await;
    let folder = a_client(&group).await;
    (group, network, disk, folder)
}

async fn hurt(
    (group, network, disk): (&mut Group, &Network, &Small),
    index: usize,
    fault: Fault,
    lasts: Duration,
) {
    match fault {
        Fault::Killed => {
            group.kill(index);
            tokio::time::sleep(lasts).await;
            group.start(index).await;
        }
        Fault::Stopped => {
            group.pause(index);
            tokio::time::sleep(lasts).await;
            group.go_on(index);
        }
        Fault::Cut => {
            network.cut(index);
            tokio::time::sleep(lasts).await;
            network.heal(index);
        }
        Fault::TokenHangs | Fault::TokenFails => {
            let what = if matches!(fault, Fault::TokenHangs) { "hang" } else { "fail 0x30" };
            group.members[index].play(&format!("C_Sign {what}\nC_Encrypt {what}\n"));
            tokio::time::sleep(lasts).await;
            group.members[index].play("");
        }
        Fault::DiskFull => {
            let filler = disk.fill();
            tokio::time::sleep(lasts).await;
            std::fs::remove_file(filler).expect("is removed");
            // A member that cannot write ends; somebody starts it once there is room.
            group.kill(index);
            group.start(index).await;
        }
    }
    group.wait_in_sync().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_operation_fails_whatever_happens_to_a_member() {
    if !root("a network namespace and a small file system") {
        return;
    }
    let _turn = turn().await;
    let (lasts, rounds) = schedule();
    let (mut group, network, disk, folder) = group_to_hurt().await;
    let mut told = Told::start(application(network.command(&program()), &folder, "talk"));
    let session = told.good("open");
    told.good(&format!("login {session}"));
    let key = told.good(&format!("ec {session} token signs"));
    told.good(&format!("load {THREADS} {key}"));
    for _ in 0..rounds {
        for fault in FAULTS {
            let index = match fault {
                Fault::DiskFull => FULL,
                Fault::TokenHangs | Fault::TokenFails => SICK,
                Fault::Killed | Fault::Stopped | Fault::Cut => group.primary(0).await,
            };
            told.good("waited");
            hurt((&mut group, &network, &disk), index, fault, lasts).await;
            let said = told.good("waited");
            let pauses: Vec<u64> = said.split(' ').map(|ms| ms.parse().expect("is a number")).collect();
            println!("{fault:?}: longest pause of use {} ms, of changes {} ms", pauses[0], pauses[1]);
            assert!(pauses.iter().all(|ms| *ms < OVERALL_MS), "{fault:?}: something was late: {said} ms");
        }
    }
    let said = told.good("unload");
    println!("uses, changes, failures: {said}");
    let counts: Vec<u64> = said.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(counts[0] > 0 && counts[1] > 0, "nothing was done: {said}");
    assert_eq!(counts[2], 0, "operations failed: {said}");
    // The first key is a pair. Of those made in rounds every second one was kept.
    let rows = list(&group.members[0].socket).await.len();
    assert_eq!(rows as u64, 2 + counts[1].div_ceil(2), "keys are missing or left over");
    for (index, member) in group.members.iter().enumerate() {
        assert_eq!(everywhere(&member.socket, 3).await, rows, "{} sees other keys", member.name);
        let ended = group.run(index, &["check"]).await;
        assert_eq!(ended.code, 0, "{}: {}", member.name, ended.said());
    }
}
