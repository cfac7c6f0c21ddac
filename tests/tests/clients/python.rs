//! python-pkcs11 from PyPI, driven by a script of ours.

use keyraft_tests::clients::{Battery, compare, finish, tool};
use keyraft_tests::group::Ended;
use std::process::Command;

#[tokio::test(flavor = "multi_thread")]
async fn python() {
    compare("python-pkcs11", battery).await;
}

/// The script, not yet started: `mode` is "steps" or a number of seconds.
pub fn program(b: &Battery<'_>, mode: &str) -> Command {
    let mut command = b.command(&tool("python/bin/python"));
    command.arg(b.file("client.py", include_str!("client.py")));
    command.arg(&b.target.module).args([&b.target.label, &b.target.pin, &b.target.so_pin, mode]);
    command
}

fn battery(b: &mut Battery<'_>) {
    let said =
        finish(program(b, "steps")).unwrap_or_else(|why| Ended { code: -1, out: String::new(), err: why });
    b.take_over(&said);
}
