//! Rust programs: the cryptoki crate.

use keyraft_tests::clients::{Battery, compare, finish};
use keyraft_tests::group::Ended;
use std::process::Command;

#[tokio::test(flavor = "multi_thread")]
async fn cryptoki() {
    compare("cryptoki", battery).await;
}

/// The application of tests/src/bin/pkcs11-client, not yet started: `mode` is "steps", a number of seconds or "talk".
pub fn program(b: &Battery<'_>, mode: &str) -> Command {
    let mut command = b.command(env!("CARGO_BIN_EXE_pkcs11-client"));
    command.arg(&b.target.module).args([&b.target.label, &b.target.pin, mode]);
    command
}

fn battery(b: &mut Battery<'_>) {
    let said =
        finish(program(b, "steps")).unwrap_or_else(|why| Ended { code: -1, out: String::new(), err: why });
    b.take_over(&said);
}
