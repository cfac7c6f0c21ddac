//! What simulated members log, with the simulated time and their place before it.

use super::entropy;
use std::fmt;
use std::fs::File;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// The variable that says how much is logged, as `keyraft serve` has it.
const LOG: &str = "KEYRAFT_LOG";
/// The file's name.
const FILE: &str = "members.log";

/// Whose machine is being stepped.
static PLACE: AtomicUsize = AtomicUsize::new(usize::MAX);

/// From now on this machine lives.
pub fn at(place: usize) {
    PLACE.store(place, Ordering::Relaxed);
}

struct Simulated;

impl FormatTime for Simulated {
    fn format_time(&self, to: &mut Writer<'_>) -> fmt::Result {
        let place = PLACE.load(Ordering::Relaxed);
        write!(to, "{:.3} m{place}", entropy::elapsed().as_secs_f64())
    }
}

/// Writes all that is logged from now on into a folder.
///
/// # Errors
/// The file cannot be made.
pub fn begin(folder: &Path) -> Result<(), String> {
    let told = |error: &dyn fmt::Display| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(|error| told(&error))?;
    let file = File::create(folder.join(FILE)).map_err(|error| told(&error))?;
    let filter = EnvFilter::try_from_env(LOG).unwrap_or_else(|_| EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_timer(Simulated).with_ansi(false);
    // Only a single seed's process does so, once.
    subscriber.with_writer(Mutex::new(file)).try_init().map_err(|error| told(&error))
}
