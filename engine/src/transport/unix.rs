//! The Unix socket of local clients: made so that no other user can reach it, and never taken from a living member.

use rustix::fs::{FlockOperation, flock};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream as Probe;
use std::path::Path;
use tokio::net::UnixListener;

/// The longest path that the kernel takes for a socket, bytes.
const PATH_MAX_BYTES: usize = 107;

/// Refuses a path that is too long for a socket, before the kernel does so without a reason.
pub(super) fn check_length(path: &Path) -> io::Result<()> {
    let length = path.as_os_str().len();
    if length <= PATH_MAX_BYTES {
        return Ok(());
    }
    let message = format!(
        "the socket path {} has {length} bytes and the kernel takes {PATH_MAX_BYTES}: choose a shorter one",
        path.display()
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// Binds the socket with mode 0600; a missing folder is made with mode 0700. A socket that nobody answers is
/// removed first. Refused if a process answers there, or if the path is something else than a socket.
pub fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    check_length(path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // Two processes that start at once must not remove each other's fresh socket: one looks and binds at a time.
    let lock = File::open(folder)?;
    flock(&lock, FlockOperation::LockExclusive)?;
    remove_stale(path)?;
    let listener = UnixListener::bind(path)?;
    // Until this line the process's umask decides; whoever comes in by then is judged by its credentials as well.
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

fn remove_stale(path: &Path) -> io::Result<()> {
    let kind = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !kind.is_socket() {
        let message = format!("{} exists and is no socket: choose another path or remove it", path.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
    }
    match Probe::connect(path) {
        Ok(_) => {
            let message =
                format!("another process serves at {}: stop it or choose another path", path.display());
            Err(io::Error::new(io::ErrorKind::AddrInUse, message))
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_is_private_and_never_stolen() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("run/keyraft.sock");
        let listener = bind_unix(&path).expect("binds");
        let mode = |path: &Path| fs::metadata(path).expect("metadata").permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().expect("parent")), 0o700);
        let error = bind_unix(&path).expect_err("in use");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        assert!(path.exists(), "a dead process leaves its socket behind");
        bind_unix(&path).expect("a stale socket is replaced");
    }

    #[tokio::test]
    async fn other_files_and_long_paths_are_refused() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("precious");
        fs::write(&path, "data").expect("written");
        assert_eq!(bind_unix(&path).expect_err("a file").kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).expect("still there"), b"data");
        let error = bind_unix(&folder.path().join("x".repeat(120))).expect_err("too long");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("shorter"), "{error}");
    }
}
