//! What is built for use has nothing of what tests need.

use super::source::{files, root, text};

fn table(path: &str) -> toml::Table {
    text(path).parse().unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Cargo unites the features of all packages that one command builds: a default member whose dependencies ask for
/// `test-hooks` would put them into the program.
#[test]
fn no_default_member_asks_for_test_hooks() {
    let workspace = table("Cargo.toml");
    let members = workspace["workspace"]["default-members"].as_array().expect("a list");
    assert!(members.iter().any(|member| member.as_str() == Some("node")), "the program is built");
    for member in members.iter().filter_map(toml::Value::as_str) {
        let path = format!("{member}/Cargo.toml");
        let dependencies = table(&path).get("dependencies").map(ToString::to_string).unwrap_or_default();
        assert!(!dependencies.contains("test-hooks"), "{path}: {dependencies}");
    }
}

/// For the same reason the program is built by its package's name.
#[test]
fn the_program_is_built_by_its_package() {
    let papers = files(&[".md", ".toml", ".sh", "Makefile"]);
    assert!(root().join("Makefile").is_file() && papers.iter().any(|path| path == "Makefile"));
    for path in papers {
        for line in text(&path).lines().filter(|line| line.contains("--bin keyraft")) {
            assert!(line.contains("--package keyraft-node"), "{path}: {line}");
        }
    }
}
