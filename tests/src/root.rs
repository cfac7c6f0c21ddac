//! Tests that need root. Packages that do not depend on this one take the file as a module of their own.

use std::io::Write as _;

/// True if this test may do what only root can. Panics if it may not and nobody has allowed to skip it.
pub fn root(why: &str) -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    let skip = std::env::var("KEYRAFT_SKIP_ROOT_TESTS").is_ok_and(|value| value == "1");
    assert!(skip, "{why} needs root: run as root, or set KEYRAFT_SKIP_ROOT_TESTS=1");
    // Not by eprintln: what a passing test prints is kept from whoever runs it, and this run proves less.
    let words = format!("skipped, since KEYRAFT_SKIP_ROOT_TESTS=1: {why} needs root");
    writeln!(std::io::stderr(), "{words}").expect("can be said");
    false
}
