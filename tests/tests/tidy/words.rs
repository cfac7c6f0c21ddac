//! What no file may hold.

use super::source::{everything, files, production, text, words};

fn complain(complaints: &[String], rule: &str) {
    assert!(complaints.is_empty(), "{rule}\n  {}", complaints.join("\n  "));
}

/// Nothing that comes from the wire, a disk, a token or a caller may end a process.
#[test]
fn production_code_does_not_panic() {
    let mut complaints = Vec::new();
    for source in production(&["engine/src", "storage/src", "node/src", "pkcs11/src", "jepsen-lite/src"]) {
        for word in [".unwrap()", ".unwrap_err()", "panic!", "unreachable!", "todo!", "unimplemented!"] {
            let places = words(&source.code, word).into_iter();
            complaints.extend(places.map(|at| format!("{} has {word}", source.at(at))));
        }
        // What cannot be is expected with a reason, not with a word.
        for at in words(&source.code, ".expect(") {
            let after: String = source.text[at + ".expect(".len()..].iter().take(200).collect();
            if !after.trim_start().starts_with('"') {
                continue; // another method of that name
            }
            let reason = after.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next());
            if reason.is_none_or(|reason| reason.split_whitespace().count() < 3) {
                complaints.push(format!("{} expects without a reason", source.at(at)));
            }
        }
    }
    complain(&complaints, "production code answers errors, and says why what it expects must be so:");
}

/// Only what a person asked for is printed; everything else is logged.
#[test]
fn only_the_program_prints() {
    let mut complaints = Vec::new();
    for source in production(&["engine/src", "storage/src"]) {
        for word in ["println!", "eprintln!", "print!", "eprint!"] {
            complaints.extend(words(&source.code, word).first().map(|at| source.at(*at)));
        }
    }
    complain(&complaints, "the engine and the storage print nothing:");
}

const LINES_MAX: usize = 600;
/// Every `unsafe` of the module stands in one file, and PKCS#11 has a hundred functions.
const LONG: &str = "pkcs11/src/ffi.rs";

#[test]
fn files_are_of_one_thought() {
    let long: Vec<String> = files(&[".rs"])
        .into_iter()
        .map(|path| (text(&path).lines().count(), path))
        .filter(|(lines, path)| *lines > LINES_MAX && path != LONG)
        .map(|(lines, path)| format!("{path} has {lines} lines"))
        .collect();
    complain(&long, "a file has at most 600 lines; split it by thought:");
}

#[test]
fn files_are_clean() {
    let mut complaints = Vec::new();
    // Put together here, so that this file does not hold them.
    let marks = [["TO", "DO"], ["FIX", "ME"], ["XX", "X"], ["HA", "CK"]].map(|halves| halves.concat());
    for path in files(&[".rs", ".md", ".toml", ".sh", "Makefile", "run"]) {
        let text = text(&path);
        for (number, line) in text.lines().enumerate() {
            let at = format!("{path}:{}", number + 1);
            if line.trim_end() != line {
                complaints.push(format!("{at} ends in blanks"));
            }
            let mut words = line.split(|c: char| !c.is_alphanumeric());
            if let Some(mark) = words.find(|word| marks.iter().any(|mark| mark == word)) {
                complaints.push(format!("{at} says {mark}: finish it, or make an issue of it"));
            }
        }
        if !text.ends_with('\n') || text.ends_with("\n\n") {
            complaints.push(format!("{path} does not end in one line end"));
        }
    }
    complain(&complaints, "files are clean:");
}

/// A bound that nothing keeps is a promise that nobody holds.
#[test]
fn every_limit_is_kept_somewhere() {
    let sources = production(&["engine/src", "storage/src", "node/src", "pkcs11/src"]);
    let mut complaints = Vec::new();
    for home in ["engine/src/limits.rs", "storage/src/limits.rs"] {
        for line in text(home).lines() {
            let Some(name) = line.strip_prefix("pub const ").and_then(|rest| rest.split(':').next()) else {
                continue;
            };
            let used = sources.iter().any(|source| {
                let uses = words(&source.code, name).len();
                uses > usize::from(source.path == home)
            });
            if !used {
                complaints.push(format!("{name} in {home}"));
            }
        }
    }
    complain(&complaints, "these limits are used nowhere:");
}

/// A code that nothing says would be looked for in vain.
#[test]
fn every_event_is_told() {
    let home = "engine/src/telemetry/events.rs";
    let sources = production(&["engine/src", "storage/src", "node/src"]);
    let events = text(home);
    let names = events.lines().filter_map(|line| line.trim().split_once(" = \"").map(|(name, _)| name));
    let untold: Vec<String> = names
        .filter(|name| {
            let word = format!("Event::{name}");
            !sources.iter().any(|source| source.path != home && !words(&source.code, &word).is_empty())
        })
        .map(str::to_string)
        .collect();
    complain(&untold, "these events are told nowhere:");
}

/// What a person may have to act on has a code.
#[test]
fn warnings_have_a_code() {
    let (mut complaints, mut seen) = (Vec::new(), 0);
    for source in production(&["engine/src", "storage/src", "node/src"]) {
        for word in ["warn!(", "error!("] {
            for at in words(&source.code, word) {
                let call: String = source.code[at + word.len()..].iter().take(60).collect();
                let call = call.trim_start();
                seen += 1;
                if !call.starts_with("code") && !source.path.ends_with("service/pause.rs") {
                    complaints.push(source.at(at));
                }
            }
        }
    }
    assert!(seen > 20, "only {seen} warnings were found");
    complain(&complaints, "warnings and errors have a code from engine/src/telemetry/events.rs first:");
}

/// Advisories that are ignored, and lints that are switched off, say why.
#[test]
fn exceptions_have_a_reason() {
    let mut complaints = Vec::new();
    for source in everything() {
        for word in ["#[allow(", "#![allow(", "#[expect(", "#![expect("] {
            for at in words(&source.all, word) {
                let item: String = source.text[at..].iter().take_while(|c| **c != ']').collect();
                if !item.contains("reason = ") {
                    complaints.push(source.at(at));
                }
            }
        }
    }
    complain(&complaints, "a lint is switched off with a reason:");
}
