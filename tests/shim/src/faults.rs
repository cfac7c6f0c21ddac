//! Plays the faults that the rules ask for, round the real call.

use crate::rules::{Rule, Rules, What, parse};
use parking_lot::{FairMutex, Mutex};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const GENERAL_ERROR: u64 = 0x05;
/// How often a call that hangs looks if its rule is gone.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The rules as they stand in their file.
pub(crate) struct Control {
    path: Option<PathBuf>,
    inner: Mutex<Inner>,
    /// Held by the call that is served.
    device: FairMutex<()>,
}

#[derive(Default)]
struct Inner {
    stamp: Option<Stamp>,
    /// None if the file cannot be understood.
    rules: Option<Rules>,
}

/// What tells one writing of the file from the next: device, inode, length, time of change.
type Stamp = (u64, u64, u64, i64, i64);

fn stamp(path: &Path) -> Option<Stamp> {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.dev(), meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec()))
}

impl Control {
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        let inner = Inner { stamp: None, rules: Some(Rules::default()) };
        Self { path, inner: Mutex::new(inner), device: FairMutex::new(()) }
    }

    /// This process's, by its environment.
    pub(crate) fn own() -> &'static Self {
        static OWN: OnceLock<Control> = OnceLock::new();
        OWN.get_or_init(|| Self::new(std::env::var_os("KEYRAFT_SHIM_RULES").map(PathBuf::from)))
    }

    /// Looks at the file again, then asks `ask`.
    fn ask<T>(&self, ask: impl FnOnce(&mut Option<Rules>) -> T) -> T {
        let mut inner = self.inner.lock();
        if let Some(path) = &self.path {
            let now = stamp(path);
            if now != inner.stamp {
                inner.stamp = now;
                inner.rules = match parse(&std::fs::read_to_string(path).unwrap_or_default()) {
                    Ok(rules) => Some(Rules::new(rules)),
                    Err(bad) => {
                        eprintln!("keyraft-shim: {}: {bad}", path.display());
                        None
                    }
                };
            }
        }
        ask(&mut inner.rules)
    }

    fn holds(&self, rule: &Rule) -> bool {
        self.ask(|rules| rules.as_ref().is_some_and(|rules| rules.has(rule)))
    }

    /// One call of a function: `forward` does its work at the real module.
    pub(crate) fn around(&self, function: &str, forward: impl FnOnce() -> u64) -> u64 {
        let Ok(rule) = self.ask(|rules| rules.as_mut().map(|rules| rules.count(function)).ok_or(())) else {
            return GENERAL_ERROR;
        };
        let Some(rule) = rule else { return forward() };
        match rule.what {
            What::Delay(time) => {
                std::thread::sleep(time);
                forward()
            }
            What::Serve(time) => {
                let _device = self.device.lock();
                let end = now() + time;
                let done = forward();
                std::thread::sleep(end.saturating_duration_since(now()));
                done
            }
            What::Fail(code) => code,
            What::Lie(code) => {
                forward();
                code
            }
            What::Hang => {
                while self.holds(&rule) {
                    std::thread::sleep(LOOK_EVERY);
                }
                forward()
            }
            What::Abort => std::process::abort(),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the shim plays a device, which has a time of its own")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn write(path: &Path, text: &str) {
        let aside = path.with_extension("aside");
        std::fs::write(&aside, text).expect("writes");
        std::fs::rename(&aside, path).expect("renames");
    }

    #[test]
    fn faults_come_and_go_with_the_file() {
        let folder = tempfile::tempdir().expect("makes a folder");
        let path = folder.path().join("rules");
        let control = Control::new(Some(path.clone()));
        assert_eq!(control.around("C_Sign", || 0), 0, "no file, no rules");
        write(&path, "C_Sign fail 0x30");
        assert_eq!(control.around("C_Sign", || panic!("does no work")), 0x30);
        assert_eq!(control.around("C_Verify", || 0), 0);
        let mut worked = false;
        write(&path, "C_Sign lie 0x30 times 1");
        let told = control.around("C_Sign", || {
            worked = true;
            0
        });
        assert_eq!((told, worked), (0x30, true));
        assert_eq!(control.around("C_Sign", || 0), 0, "once only");
        write(&path, "C_Sign nonsense");
        assert_eq!(control.around("C_Verify", || 0), GENERAL_ERROR);
        write(&path, "");
        assert_eq!(control.around("C_Verify", || 7), 7);
    }

    #[test]
    fn a_call_hangs_until_its_rule_is_gone() {
        let folder = tempfile::tempdir().expect("makes a folder");
        let path = folder.path().join("rules");
        write(&path, "C_Sign hang");
        let control = Arc::new(Control::new(Some(path.clone())));
        let hung = std::thread::spawn({
            let control = control.clone();
            move || control.around("C_Sign", || 0)
        });
        std::thread::sleep(LOOK_EVERY * 10);
        assert!(!hung.is_finished());
        // Another rule for it, and others beside it, do not set it free; its own end does.
        write(&path, "C_Verify hang\nC_Sign hang");
        std::thread::sleep(LOOK_EVERY * 10);
        assert!(!hung.is_finished());
        write(&path, "C_Verify hang");
        assert_eq!(hung.join().expect("ends"), 0);
    }

    #[test]
    fn a_device_serves_one_call_at_a_time() {
        let folder = tempfile::tempdir().expect("makes a folder");
        let path = folder.path().join("rules");
        write(&path, "* serve 10");
        let control = Control::new(Some(path));
        let start = now();
        std::thread::scope(|scope| {
            for function in ["C_Sign", "C_Verify", "C_Sign", "C_Decrypt"] {
                let control = &control;
                scope.spawn(move || assert_eq!(control.around(function, || 0), 0));
            }
        });
        assert!(now() - start >= Duration::from_millis(40));
    }
}
