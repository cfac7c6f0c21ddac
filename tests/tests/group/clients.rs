//! Applications on other machines: they prove themselves by a certificate over TCP, through the module, and lose
//! everything when they are removed.

use keyraft_node::exit::Exit;
use keyraft_tests::TokenKind::Embedded;
use keyraft_tests::clients::set_user_pin;
use keyraft_tests::told::{Told, application, program};
use keyraft_tests::{Group, eventually, turn};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

/// CKR_FUNCTION_REJECTED
const REJECTED: &str = "0x200";

/// A group with a user PIN, and the folder of its client "web".
async fn group_with_a_client() -> (Group, std::path::PathBuf) {
    let group = Group::form(&[Embedded; 3]).await;
    let folder = a_client(&group).await;
    (group, folder)
}

/// Gives a group a user PIN and a client "web"; the folder of that.
pub(super) async fn a_client(group: &Group) -> std::path::PathBuf {
    set_user_pin(group).await;
    let folder = group.path("web");
    group.json(1, &["client", "add", "web", "--out", &folder.display().to_string()]).await;
    folder
}

#[tokio::test]
async fn an_application_elsewhere_works_through_the_loss_of_the_primary() {
    let _turn = turn().await;
    let (mut group, folder) = group_with_a_client().await;
    let mut working = application(Command::new(program()), &folder, "8").spawn().expect("starts");
    tokio::time::sleep(Duration::from_secs(3)).await;
    let at = group.primary(0).await;
    group.kill(at);
    let ended = tokio::task::spawn_blocking(move || working.wait().expect("ends")).await.expect("no panic");
    assert!(ended.success(), "an application saw the primary die: {ended}");
}

#[tokio::test]
async fn a_removed_application_is_refused_at_once_and_for_good() {
    let _turn = turn().await;
    let (group, folder) = group_with_a_client().await;
    let mode =
        |name: &str| std::fs::metadata(folder.join(name)).expect("was written").permissions().mode() & 0o777;
    assert_eq!((mode("key.pem"), mode("")), (0o600, 0o700));

    // A name has one key.
    let other = group.path("other");
    let again = group.run(0, &["client", "add", "web", "--out", &other.display().to_string()]).await;
    assert_eq!(again.code, i32::from(Exit::Refused.code()), "{}", again.said());
    assert!(again.err.contains("a client 'web' exists"), "{}", again.said());
    assert!(!other.join("key.pem").exists(), "a key without a certificate is of no use");
    let bad = group.run(0, &["client", "add", "No Name", "--out", &other.display().to_string()]).await;
    assert_eq!(bad.code, i32::from(Exit::Usage.code()), "{}", bad.said());

    let mut told = Told::start(application(Command::new(program()), &folder, "talk"));
    let session = told.good("open");
    told.good(&format!("login {session}"));
    let key = told.good(&format!("ec {session} token web-key"));
    let sign = format!("sign {session} {key}");
    told.good(&sign);
    // Threads have connections of their own, and so has a forked child: every bit of its answer is right.
    assert_eq!(told.good(&format!("threads 8 3 {key}")), "8");
    assert_eq!(told.good(&format!("fork {session} {key}")), "63");
    let listed = group.json(2, &["client", "list"]).await;
    assert_eq!(listed["clients"][0]["client"], "web", "{listed}");

    group.json(2, &["client", "remove", "web"]).await;
    let mut answer = String::new();
    for _ in 0..100 {
        answer = told.ask(&sign);
        if answer.starts_with("error") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(answer.contains(REJECTED), "the open connection: {answer}");
    eventually(async || {
        let fresh = application(Command::new(program()), &folder, "steps").output().expect("runs");
        let said = String::from_utf8_lossy(&fresh.stderr).into_owned();
        if !fresh.status.success() && said.to_lowercase().contains("reject") { Ok(()) } else { Err(said) }
    })
    .await;
    let gone = group.run(0, &["client", "remove", "web"]).await;
    assert_eq!(gone.code, i32::from(Exit::NotFound.code()), "{}", gone.said());

    // The same name comes back under another key; the old one stays refused.
    let fresh = group.path("fresh");
    group.json(0, &["client", "add", "web", "--out", &fresh.display().to_string()]).await;
    let mut returned = Told::start(application(Command::new(program()), &fresh, "talk"));
    let session = returned.good("open");
    returned.good(&format!("login {session}"));
    returned.good(&format!("sign {session} {key}"));
    assert!(told.ask(&sign).contains(REJECTED));
}
