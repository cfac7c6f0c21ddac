//! Histories whose verdicts are known: our own beside this file, and those of others in a folder that KEYRAFT_HISTORIES
//! names, with an INDEX.tsv of `file<tab>verdict` lines.

use keyraft_jepsen_lite::history::read;
use keyraft_jepsen_lite::judge::{BUDGET, judge};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The folder's verdicts, compared with what we say. Gives the number of files.
fn compare(folder: &Path) -> usize {
    let index = std::fs::read_to_string(folder.join("INDEX.tsv"))
        .unwrap_or_else(|error| panic!("{}: {error}", folder.join("INDEX.tsv").display()));
    let rows: Vec<(&str, &str)> = index.lines().skip(1).filter_map(|line| line.split_once('\t')).collect();
    assert!(!rows.is_empty(), "{} lists no history", folder.display());
    let mut steps = 0;
    let mut wrong = Vec::new();
    for (name, expected) in &rows {
        let history = read(&folder.join(name)).unwrap_or_else(|error| panic!("{error}"));
        let first = judge(&history, BUDGET).unwrap_or_else(|error| panic!("{name}: {error}"));
        let again = judge(&history, BUDGET).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(first, again, "{name}: two looks at one history differ");
        steps += first.steps;
        if first.verdict.to_string() != expected.trim() {
            wrong.push(format!("{name} is {expected} and we say {}", first.verdict));
        }
    }
    println!("{}: {} histories, {steps} steps", folder.display(), rows.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    rows.len()
}

fn own() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("histories")
}

#[test]
fn our_own_histories() {
    assert!(compare(&own()) >= 10);
}

#[test]
fn others_histories() {
    match std::env::var_os("KEYRAFT_HISTORIES") {
        Some(folder) => {
            compare(Path::new(&folder));
        }
        None => {
            // Not by eprintln: what a passing test prints is kept from whoever runs it, and this run proves less.
            let words =
                "KEYRAFT_HISTORIES names no folder: only the project's own small histories were judged";
            writeln!(std::io::stderr(), "{words}").expect("can be said");
            compare(&own());
        }
    }
}
