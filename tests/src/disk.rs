//! A disk that can be full.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system in memory; unmounted when dropped.
#[derive(Debug)]
pub struct Small(PathBuf);

impl Small {
    /// Mounts one of so many MiB, as root.
    pub fn mount(at: &Path, mib: u32) -> Self {
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mib}m,mode=700"), "keyraft-test"])
            .arg(at)
            .status()
            .expect("runs mount");
        assert!(done.success(), "mount -t tmpfs at {} failed: {done}", at.display());
        Self(at.to_path_buf())
    }

    /// Writes a file until nothing more fits.
    pub fn fill(&self) -> PathBuf {
        let path = self.0.join("filler");
        let mut file = File::create(&path).expect("is made");
        for size in [64 * 1024, 4096, 512, 1] {
            let block = vec![0; size];
            while file.write_all(&block).is_ok() {}
        }
        path
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let done = Command::new("umount").arg("--lazy").arg(&self.0).status();
        if !done.is_ok_and(|status| status.success()) {
            eprintln!("warning: {} is still mounted", self.0.display());
        }
    }
}
