//! A disk of its own for a member's data, that can be full, slow, hang, fail, and whose power can be cut: ext4 on a loop
//! device. A frozen file system takes no write until it is thawed: that is a hung disk, and one frozen again and again for
//! a moment is a slow one.

use super::net::run;
use super::power;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// A slow disk stands still for so long, milliseconds,
const STILL_MS: u64 = 120;
/// and then takes writes for so long, milliseconds.
const MOVES_MS: u64 = 30;

/// A small file system; unmounted when dropped.
#[derive(Debug)]
pub struct Small {
    at: PathBuf,
    image: PathBuf,
    slow: Option<Slow>,
}

impl Small {
    /// Mounts one of so many MiB over a folder, as root; its image is this file.
    pub fn mount(at: &Path, image: &Path, mib: u64) -> Result<Self, String> {
        let told = |error: std::io::Error| format!("{}: {error}", image.display());
        File::create(image).and_then(|file| file.set_len(mib << 20)).map_err(told)?;
        run(&["mkfs.ext4", "-q", "-m", "0", "-F", &image.display().to_string()])?;
        let disk = Self { at: at.to_path_buf(), image: image.to_path_buf(), slow: None };
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
    ///
    /// # Errors
    /// It cannot be written, though there may be room.
    pub fn fill(&self) -> Result<(), String> {
        let filled = File::create(self.filler()).and_then(fill_up);
        filled.map_err(|error| format!("{}: {error}", self.filler().display()))
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

    /// Drops everything that the device does not have yet; every later write fails.
    pub fn cut(&self) -> Result<(), String> {
        power::cut(&self.at)
    }

    /// Power again: the file system finds what is on the device. Nobody may have a file of it open.
    pub fn restore(&self) -> Result<(), String> {
        run(&["umount", &self.at.display().to_string()])?;
        self.attach()
    }

    /// Every write hangs from now on.
    pub fn freeze(&self) -> Result<(), String> {
        freeze(&self.at, true)
    }

    /// What hung goes on.
    pub fn thaw(&self) -> Result<(), String> {
        freeze(&self.at, false)
    }

    /// Every write takes its time from now on.
    pub fn slow_down(&mut self) {
        self.slow.get_or_insert_with(|| Slow::new(self.at.clone()));
    }

    /// Neither slow nor hung any more, whatever it was.
    pub fn release(&mut self) {
        self.slow = None;
        // One that is not frozen cannot be thawed.
        let _ = self.thaw();
    }

    /// Writes are as fast as before.
    pub fn speed_up(&mut self) {
        self.slow = None;
    }
}

/// Writes until there is no room for a single byte.
fn fill_up(mut file: impl Write) -> std::io::Result<()> {
    for size in [64 * 1024, 4096, 512, 1] {
        let block = vec![0; size];
        let full = loop {
            if let Err(error) = file.write_all(&block) {
                break error;
            }
        };
        if full.kind() != std::io::ErrorKind::StorageFull {
            return Err(full);
        }
    }
    Ok(())
}

fn freeze(at: &Path, still: bool) -> Result<(), String> {
    run(&["fsfreeze", if still { "--freeze" } else { "--unfreeze" }, &at.display().to_string()])
}

impl Drop for Small {
    fn drop(&mut self) {
        self.release();
        // Lazily: a process that was just killed may still be closing its files. The loop device goes with it.
        if let Err(why) = run(&["umount", "--lazy", &self.at.display().to_string()]) {
            eprintln!("warning: {why}");
        }
    }
}

/// Whoever makes a disk slow. Dropped, it is as it was.
#[derive(Debug)]
struct Slow {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Slow {
    fn new(at: PathBuf) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&end);
        let thread = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                if freeze(&at, true).is_ok() {
                    std::thread::sleep(Duration::from_millis(STILL_MS));
                    if let Err(why) = freeze(&at, false) {
                        eprintln!("warning: {why}");
                    }
                }
                std::thread::sleep(Duration::from_millis(MOVES_MS));
            }
        });
        Self { end, thread: Some(thread) }
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        // A thread that panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Error, ErrorKind};

    /// Has room for so many bytes, and then fails like this.
    struct Room(usize, ErrorKind);

    impl Write for Room {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let fits = bytes.len().min(self.0);
            self.0 -= fits;
            if fits == 0 { Err(Error::from(self.1)) } else { Ok(fits) }
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_disk_is_full_only_if_it_says_so() {
        let mut room = Room(70_001, ErrorKind::StorageFull);
        fill_up(&mut room).expect("is full");
        assert_eq!(room.0, 0, "to the last byte");
        let error = fill_up(Room(70_001, ErrorKind::ReadOnlyFilesystem)).expect_err("is not full");
        assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
    }

    #[test]
    fn a_disk_that_cannot_be_filled_says_why() {
        let disk = Small { at: "/nonexistent".into(), image: "/nonexistent".into(), slow: None };
        let why = disk.fill().expect_err("there is none");
        std::mem::forget(disk);
        assert!(why.starts_with("/nonexistent/filler: "), "{why}");
    }
}
