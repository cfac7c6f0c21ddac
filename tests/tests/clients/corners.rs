//! What PKCS#11 wants of a module at its edges; see tests/src/bin/pkcs11-client/corners.rs.

use crate::rust;
use keyraft_tests::clients::{Battery, Target, finish, group};
use keyraft_tests::{TokenKind, turn};

#[tokio::test(flavor = "multi_thread")]
async fn corners() {
    let _turn = turn().await;
    let group = group(TokenKind::Embedded).await;
    let target = Target::group("a group on embedded", &group);
    let steps = tokio::task::spawn_blocking(move || {
        let mut b = Battery::begin(&target);
        let said = finish(rust::program(&b, "corners")).unwrap_or_else(|why| panic!("{why}"));
        b.take_over(&said);
        b.end()
    });
    let steps = steps.await.expect("does not panic");
    assert!(steps.len() > 30, "only {} steps were taken", steps.len());
    let failed: Vec<String> =
        steps.iter().filter_map(|s| Some(format!("{}: {}", s.name, s.outcome.as_ref().err()?))).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
