//! The papers of a run, made from its history alone: results.json, timeline.html, rate.svg and latency.svg.

mod bands;
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

/// What a run leaves in its folder, besides the members' logs.
const PAPERS: [&str; 7] =
    [HISTORY, "history.edn", "results.json", "timeline.html", "rate.svg", "latency.svg", "members.log"];

/// Makes a run's folder, and clears it of an earlier run's papers, so that two runs are never mixed.
///
/// # Errors
/// The folder cannot be made or written.
pub fn begin(folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(told(folder))?;
    // What cannot be written is known before the run, not after it.
    drop(create(&folder.join(HISTORY))?);
    let entries = std::fs::read_dir(folder).map_err(told(folder))?;
    for entry in entries {
        let entry = entry.map_err(told(folder))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if PAPERS.contains(&name.as_str()) || (name.starts_with("member-") && name.ends_with(".log")) {
            std::fs::remove_file(entry.path()).map_err(told(&entry.path()))?;
        }
    }
    Ok(())
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
