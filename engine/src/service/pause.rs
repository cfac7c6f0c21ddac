//! Named points between the steps of a change, at which a test can stop this process and kill it. Compiled out
//! unless the feature `test-hooks` is on.

/// Stops here while the file `$KEYRAFT_PAUSE_DIR/NAME` exists; says so by making `NAME.reached` beside it.
#[cfg(feature = "test-hooks")]
pub async fn point(name: &str) {
    let Some(folder) = std::env::var_os("KEYRAFT_PAUSE_DIR").map(std::path::PathBuf::from) else { return };
    let wanted = folder.join(name);
    if !wanted.exists() {
        return;
    }
    if let Err(error) = std::fs::write(folder.join(format!("{name}.reached")), b"") {
        tracing::error!(%error, name, "the pause cannot be told");
    }
    while wanted.exists() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// Does nothing in a build for use.
#[cfg(not(feature = "test-hooks"))]
pub async fn point(_name: &str) {}
