//! The papers of a run, made from its history alone: results.json, timeline.html, rate.svg and latency.svg.

mod plots;
mod results;
mod timeline;

pub use results::results;

use crate::checker::Findings;
use crate::history::{History, write_edn, write_jsonl};
use crate::judge::BUDGET;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

/// The history that everything else is made from.
pub const HISTORY: &str = "history.jsonl";

fn told(path: &Path) -> impl Fn(std::io::Error) -> String + '_ {
    move |error| format!("{}: {error}", path.display())
}

fn create(path: &Path) -> Result<BufWriter<File>, String> {
    File::create(path).map(BufWriter::new).map_err(told(path))
}

/// Writes a run's history, in both formats.
///
/// # Errors
/// A file cannot be written.
pub fn keep(folder: &Path, history: &History) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(told(folder))?;
    let (jsonl, edn) = (folder.join(HISTORY), folder.join("history.edn"));
    write_jsonl(history, create(&jsonl)?).map_err(told(&jsonl))?;
    write_edn(history, create(&edn)?).map_err(told(&edn))
}

/// Lets all checkers look at a history, and writes the papers beside it.
///
/// # Errors
/// The history contradicts itself, or a file cannot be written.
pub fn make(folder: &Path, history: &History) -> Result<Findings, String> {
    let findings = crate::checker::look(history, BUDGET).map_err(|error| error.to_string())?;
    let path = folder.join("results.json");
    let text =
        serde_json::to_string_pretty(&results(history, &findings)).map_err(|error| error.to_string())?;
    std::fs::write(&path, text + "\n").map_err(told(&path))?;
    let path = folder.join("timeline.html");
    std::fs::write(&path, timeline::page(history, &findings)).map_err(told(&path))?;
    plots::rate(&folder.join("rate.svg"), history)?;
    plots::latency(&folder.join("latency.svg"), history)?;
    Ok(findings)
}
