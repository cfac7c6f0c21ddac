//! The primary is killed between each two steps of a create and of a delete: the repeated request gets the one
//! outcome, an answered key is usable everywhere in sync, nothing is left unsettled.

mod support;

use keyraft_engine::clock::Clock;
use keyraft_engine::domain::{Curve, KeyAlgorithm};
use keyraft_engine::wire::{Answer, ClientRequest, CoverageState};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use support::Group;

const CREATE: [&str; 6] =
    ["create.checked", "create.originated", "create.put", "settle.before", "settle.after", "create.settled"];
const DELETE: [&str; 5] =
    ["delete.checked", "delete.removed", "settle.before", "settle.after", "delete.settled"];

/// The engine looks for its pauses where its environment says; so the test runs itself once more with that set.
fn with_pauses(test: &str, run: impl FnOnce(&Path)) {
    if let Some(folder) = std::env::var_os("KEYRAFT_PAUSE_DIR") {
        return run(Path::new(&folder));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = std::env::current_exe().expect("this program");
    let mut again = Command::new(program);
    again.args(["--exact", test, "--nocapture"]).env("KEYRAFT_PAUSE_DIR", folder.path());
    assert!(again.status().expect("runs").success());
}

async fn wait_for(file: &Path) {
    let started = Clock.now();
    while !file.exists() {
        assert!(
            Clock.now().duration_since(started) < Duration::from_secs(30),
            "{} is not reached",
            file.display()
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Sends a request through a member that is not the primary, kills the primary at the point, and gives the answer
/// that the client got and who was killed.
async fn kill_at(
    group: &mut Group,
    folder: &Path,
    point: &str,
    request: ClientRequest,
) -> (Answer, u64, u64) {
    let primary = group.primary(1).await;
    let through = primary % 3 + 1;
    let wanted = folder.join(point);
    let reached = folder.join(format!("{point}.reached"));
    std::fs::write(&wanted, b"").expect("asks for the pause");
    let engine = group.engine(through);
    let asked = tokio::spawn(async move { engine.call(request).await });
    wait_for(&reached).await;
    group.kill(primary);
    std::fs::remove_file(&wanted).expect("was there");
    std::fs::remove_file(&reached).expect("was there");
    let answer = asked.await.expect("runs").unwrap_or_else(|failure| panic!("{point}: {failure}"));
    (answer, through, primary)
}

/// Everyone is back, in sync, and equal.
async fn all_equal(group: &mut Group, through: u64, killed: u64, point: &str) {
    group.start(killed).await;
    group.wait_in_sync(through, 3).await;
    let labels = group.labels(through).await;
    for id in 1..=3 {
        assert_eq!(group.labels(id).await, labels, "{point}");
    }
    assert_eq!(group.status(through).await.unsettled, 0, "{point}");
    group.call(through, ClientRequest::Synchronize).await.expect("all are equal");
    // A member that has just come back is unknown to the primary until its first report.
    let started = Clock.now();
    loop {
        let coverage = group.call(through, ClientRequest::Coverage { after: None }).await.expect("answers");
        let Answer::Coverage { rows, .. } = coverage else { panic!("{coverage:?}") };
        let mut cells = rows.iter().flat_map(|row| &row.members);
        if cells.all(|cell| cell.state == CoverageState::Present) {
            return;
        }
        assert!(Clock.now().duration_since(started) < Duration::from_secs(10), "{point}: {rows:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn a_create_happens_once_wherever_the_primary_dies() {
    with_pauses("a_create_happens_once_wherever_the_primary_dies", |folder| {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let mut group = Group::new();
            group.form(3).await;
            for point in CREATE {
                let making = group.making(KeyAlgorithm::Ec(Curve::P256), point).await;
                let request = making.clone().into_request();
                let (answer, through, killed) = kill_at(&mut group, folder, point, request).await;
                let Answer::Created(rows) = answer else { panic!("{answer:?}") };
                assert_eq!(group.make(through, &making).await.expect("the same outcome"), rows, "{point}");
                group.sign(through, rows[0].object, None).await.expect("is usable");
                all_equal(&mut group, through, killed, point).await;
                for by in 1..=3 {
                    group.sign(through, rows[0].object, Some(by)).await.expect("is usable everywhere");
                }
                let named = group.labels(through).await.into_iter().filter(|label| label == point).count();
                assert_eq!(named, 2, "{point}: one pair, not more");
            }
        });
    });
}

#[test]
fn a_delete_happens_once_wherever_the_primary_dies() {
    with_pauses("a_delete_happens_once_wherever_the_primary_dies", |folder| {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let mut group = Group::new();
            group.form(3).await;
            for point in DELETE {
                let key = group.create(1, KeyAlgorithm::Aes { bits: 256 }, point).await.expect("creates");
                let request = group.deletion(&[key[0].object]);
                let (_, through, killed) = kill_at(&mut group, folder, point, request.clone()).await;
                group.call(through, request).await.expect("the same outcome");
                assert!(!group.labels(through).await.iter().any(|label| label == point), "{point}");
                all_equal(&mut group, through, killed, point).await;
                assert!(!group.labels(killed).await.iter().any(|label| label == point), "{point}");
            }
        });
    });
}
