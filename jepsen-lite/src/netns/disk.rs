//! A disk that can be full.

use super::net::run;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A small file system in memory; unmounted when dropped.
#[derive(Debug)]
pub struct Small(PathBuf);

impl Small {
    /// Mounts one of so many MiB over a folder, as root.
    pub fn mount(at: &Path, mib: u32) -> Result<Self, String> {
        let size = format!("size={mib}m,mode=700");
        run(&["mount", "-t", "tmpfs", "-o", &size, "keyraft-jl", &at.display().to_string()])?;
        Ok(Self(at.to_path_buf()))
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Writes a file until nothing more fits.
    pub fn fill(&self) -> Result<(), String> {
        let mut file =
            File::create(self.filler()).map_err(|e| format!("{}: {e}", self.filler().display()))?;
        for size in [64 * 1024, 4096, 512, 1] {
            let block = vec![0; size];
            while file.write_all(&block).is_ok() {}
        }
        Ok(())
    }

    /// Makes room again.
    pub fn empty(&self) -> Result<(), String> {
        std::fs::remove_file(self.filler()).map_err(|e| format!("{}: {e}", self.filler().display()))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // Lazily: a process that was just killed may still be closing its files.
        if let Err(why) = run(&["umount", "--lazy", &self.0.display().to_string()]) {
            eprintln!("warning: {why}");
        }
    }
}
