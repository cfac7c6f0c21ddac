//! A disk of its own for a member's data, that can be full and whose power can be cut: ext4 on a loop device.

use super::net::run;
use super::power;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A small file system; unmounted when dropped.
#[derive(Debug)]
pub struct Small {
    at: PathBuf,
    image: PathBuf,
}

impl Small {
    /// Mounts one of so many MiB over a folder, as root; its image is this file.
    pub fn mount(at: &Path, image: &Path, mib: u64) -> Result<Self, String> {
        let told = |error: std::io::Error| format!("{}: {error}", image.display());
        File::create(image).and_then(|file| file.set_len(mib << 20)).map_err(told)?;
        run(&["mkfs.ext4", "-q", "-m", "0", "-F", &image.display().to_string()])?;
        let disk = Self { at: at.to_path_buf(), image: image.to_path_buf() };
        disk.attach()?;
        // ext4 gives a fresh file system's root to everybody.
        run(&["chmod", "700", &at.display().to_string()])?;
        Ok(disk)
    }

    fn attach(&self) -> Result<(), String> {
        let (image, at) = (self.image.display().to_string(), self.at.display().to_string());
        run(&["mount", "-o", "loop", &image, &at])
    }

    fn filler(&self) -> PathBuf {
        self.at.join("filler")
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

    /// Makes room again; after a power cut there may be nothing to remove.
    pub fn empty(&self) -> Result<(), String> {
        match std::fs::remove_file(self.filler()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(format!("{}: {error}", self.filler().display()))
            }
            _ => Ok(()),
        }
    }

    /// Drops everything that the device does not have yet.
    pub fn cut(&self) -> Result<(), String> {
        power::cut(&self.at)
    }

    /// Power again: the file system finds what is on the device. Nobody may have a file of it open.
    pub fn restore(&self) -> Result<(), String> {
        run(&["umount", &self.at.display().to_string()])?;
        self.attach()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // Lazily: a process that was just killed may still be closing its files. The loop device goes with it.
        if let Err(why) = run(&["umount", "--lazy", &self.at.display().to_string()]) {
            eprintln!("warning: {why}");
        }
    }
}
