//! What is written beside the code is true of it.

use super::source::{files, root, text};
use serde_json::Value;
use std::collections::BTreeSet;

fn papers() -> Vec<String> {
    files(&[".md"])
}

fn complain(complaints: &[String], rule: &str) {
    assert!(complaints.is_empty(), "{rule}\n  {}", complaints.join("\n  "));
}

/// Links lead somewhere.
#[test]
fn links_lead_to_files() {
    let mut complaints = Vec::new();
    for paper in papers() {
        let folder = root().join(&paper).parent().map(|p| p.to_path_buf()).unwrap_or_default();
        for link in text(&paper).split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !folder.join(target).exists() {
                complaints.push(format!("{paper} links to {link}"));
            }
        }
    }
    complain(&complaints, "links lead to files that are there:");
}

const FOLDERS: &[&str] = &["engine", "storage", "node", "tests", "benches", "jepsen-lite", "docs", "dev"];
const ENDINGS: &[&str] = &["rs", "md", "txt", "toml", "sh", "json"];

/// Files that prose and comments name are there: a file that moved takes its mentions with it.
#[test]
fn named_files_are_there() {
    let mut complaints = Vec::new();
    for path in files(&[".md", ".rs", ".toml"]) {
        for word in text(&path).split(|c: char| !c.is_alphanumeric() && !"/_-.".contains(c)) {
            let word = word.trim_matches('.');
            let ours = FOLDERS.iter().any(|folder| word.starts_with(&format!("{folder}/")));
            let ending = word.rsplit('.').next().unwrap_or_default();
            if ours && ENDINGS.contains(&ending) && word.contains('.') && !named_file_exists(&path, word) {
                complaints.push(format!("{path} names {word}"));
            }
        }
    }
    complain(&complaints, "files that are named are there:");
}

/// From the project's root, from the crate, or from the file's own folder.
fn named_file_exists(path: &str, word: &str) -> bool {
    let own = root().join(path);
    root().join(word).exists() || own.ancestors().skip(1).any(|folder| folder.join(word).exists())
}

/// What stands in code blocks and between backticks.
fn quoted(text: &str) -> Vec<String> {
    let mut quoted = Vec::new();
    for (number, block) in text.split("```").enumerate() {
        if number % 2 == 1 {
            quoted.extend(block.lines().skip(1).map(str::to_string));
        } else {
            quoted.extend(block.split('`').skip(1).step_by(2).map(str::to_string));
        }
    }
    quoted
}

/// Every `make` that a person is told to type is there.
#[test]
fn make_knows_what_papers_promise() {
    let makefile = text("Makefile");
    let targets: BTreeSet<&str> = makefile
        .lines()
        .filter(|line| !line.starts_with(['\t', ' ', '#']))
        .filter_map(|line| line.split_once(':').filter(|(_, rest)| !rest.starts_with('=')))
        .flat_map(|(names, _)| names.split_whitespace())
        .collect();
    let mut complaints = Vec::new();
    for paper in papers() {
        for line in quoted(&text(&paper)) {
            let Some(rest) = line.trim().strip_prefix("make ") else { continue };
            let target = rest.split_whitespace().next().unwrap_or_default();
            if !targets.contains(target) {
                complaints.push(format!("{paper}: make {target}"));
            }
        }
    }
    complain(&complaints, "the Makefile lacks:");
    for target in ["demo", "test", "soak", "bench", "fix", "help"] {
        assert!(targets.contains(target), "the Makefile lacks {target}");
    }
    assert!(text("README.md").contains("make demo") && text("README.md").contains("make test"));
    assert!(text(".ci/run").contains("make test"), "CI does not run the README's test command");
}

/// The libraries that the workspace lists.
fn chosen(manifest: &str) -> Vec<String> {
    let listed = manifest
        .split("[workspace.dependencies]")
        .nth(1)
        .and_then(|rest| rest.split("\n[").next())
        .expect("the workspace lists its dependencies");
    let names =
        listed.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(" = "));
    names.map(|(name, _)| name.trim().to_string()).filter(|name| !name.starts_with("keyraft-")).collect()
}

/// Every library that the project chose has its reason in docs/decisions, and every decision is in the index.
#[test]
fn choices_have_reasons() {
    let decisions: Vec<String> = papers().into_iter().filter(|p| p.starts_with("docs/decisions/")).collect();
    let prose: String = decisions.iter().map(|path| text(path)).collect();
    let manifest = text("Cargo.toml");
    let mut complaints: Vec<String> = chosen(&manifest)
        .into_iter()
        .filter(|name| {
            !prose.split(|c: char| !c.is_alphanumeric() && c != '-' && c != '_').any(|word| word == name)
        })
        .map(|name| format!("{name} has no reason in docs/decisions"))
        .collect();
    let index = text("docs/decisions/0000-index.md");
    let unlisted = decisions
        .iter()
        .filter_map(|path| path.rsplit('/').next())
        .filter(|name| *name != "0000-index.md" && !index.contains(&format!("({name})")));
    complaints.extend(unlisted.map(|name| format!("{name} is not in the index")));
    complain(&complaints, "choices:");
}

/// A library that no crate uses is none of ours.
#[test]
fn every_chosen_library_is_used() {
    let manifests: String =
        files(&["Cargo.toml"]).iter().filter(|p| *p != "Cargo.toml").map(|p| text(p)).collect();
    let unused: Vec<String> = chosen(&text("Cargo.toml"))
        .into_iter()
        .filter(|name| {
            !manifests.lines().any(|line| {
                line.starts_with(&format!("{name}.workspace"))
                    || line.starts_with(&format!("{name} = {{ workspace"))
            })
        })
        .collect();
    complain(&unused, "the workspace lists libraries that no crate uses:");
}

/// Every row of the comparison names tests that are there.
#[test]
fn the_comparison_names_tests() {
    let paper = text("docs/LUNA.md");
    let rows: Vec<&str> =
        paper.lines().filter(|line| line.starts_with("| ") && line.contains(".rs::")).collect();
    let tests = files(&[".rs"]);
    let mut complaints = Vec::new();
    for row in &rows {
        for name in quoted(row).into_iter().filter(|word| word.contains(".rs::")) {
            let (file, function) = name.split_once("::").expect("has one");
            let there = tests.iter().any(|path| {
                path.ends_with(&format!("/{file}")) && text(path).contains(&format!("fn {function}("))
            });
            if !there {
                complaints.push(name);
            }
        }
    }
    let table = paper.split("## Not done").next().unwrap_or_default();
    let bare = table.lines().filter(|line| line.starts_with("| ") && !line.contains(".rs::")).skip(2);
    complaints.extend(bare.map(|row| format!("no test: {row}")));
    assert!(rows.len() > 10, "the comparison is empty");
    complain(&complaints, "docs/LUNA.md names tests that are not there, or none:");
}

/// Every vector is listed, can be read, and is a rule with cases.
#[test]
fn vectors_are_whole() {
    let list = text("tests/vectors/README.md");
    let vectors: Vec<String> =
        files(&[".json"]).into_iter().filter(|path| path.starts_with("tests/vectors/")).collect();
    assert_eq!(vectors.len(), list.matches(".json |").count(), "tests/vectors/README.md lists other files");
    for path in vectors {
        let name = path.rsplit('/').next().unwrap_or_default();
        assert!(list.contains(&format!("| {name} |")), "{name} is not in tests/vectors/README.md");
        let vector: Value = serde_json::from_str(&text(&path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        assert!(vector["rule"].is_string(), "{path} has no rule");
        assert!(vector["cases"].as_array().is_some_and(|cases| !cases.is_empty()), "{path} has no cases");
    }
}
