//! The rung without networks of the members' own: the program and the module as they are shipped, as ordinary processes on
//! loopback, by any user. What can be broken from outside is the processes alone.

use crate::nemesis::Fault;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

/// What this rung has.
pub const OUTSIDE_FAULTS: &[Fault] = &[Fault::Kill, Fault::Pause];

/// A build with hooks for tests reads this variable, and names it.
const HOOK: &[u8] = b"KEYRAFT_MUTANT";

/// Fine if a file is built for use: without the hooks that tests need.
///
/// # Errors
/// It has them, or cannot be read.
pub fn is_shipped(file: &Path) -> Result<(), String> {
    let bytes = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    if bytes.windows(HOOK.len()).any(|window| window == HOOK) {
        return Err(format!(
            "{} is built with hooks for tests, and rung outside wants what is shipped: build it by its package's name \
             alone, with --release, and name it by --keyraft or --module",
            file.display()
        ));
    }
    Ok(())
}

/// Ports of loopback that nobody uses now, for so many members.
pub fn ports(count: usize) -> Result<Vec<u16>, String> {
    // All are held until all are known, so that none comes twice.
    let held: std::io::Result<Vec<TcpListener>> =
        (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect();
    let ports = held.and_then(|held| held.iter().map(|one| Ok(one.local_addr()?.port())).collect());
    ports.map_err(|error: std::io::Error| format!("ports of loopback: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn what_has_hooks_for_tests_is_refused() {
        let file = |bytes: &[u8]| {
            let file = tempfile::NamedTempFile::new().expect("is made");
            std::fs::write(file.path(), bytes).expect("is written");
            is_shipped(file.path())
        };
        assert_eq!(file(b"as it is shipped"), Ok(()));
        let why = file(&[b"\0\x01", HOOK, b"\0"].concat()).expect_err("has hooks");
        assert!(why.contains("hooks for tests") && why.contains("--release"), "{why}");
        is_shipped(Path::new("/nonexistent/keyraft")).expect_err("is missing");
    }

    #[test]
    fn every_member_has_a_port_of_its_own() {
        let ports = ports(9).expect("there are some");
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), 9, "{ports:?}");
    }
}
