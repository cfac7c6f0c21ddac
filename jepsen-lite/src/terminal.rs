//! What is told on standard output.

use std::fmt::Display;
use std::io::{ErrorKind, Write};

/// Tells a line. A reader who has heard enough is no error.
///
/// # Errors
/// It cannot be written.
pub fn say(line: impl Display) -> Result<(), String> {
    match writeln!(std::io::stdout().lock(), "{line}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(format!("writing the result: {error}")),
        _ => Ok(()),
    }
}
