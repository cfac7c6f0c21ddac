//! What the README and the configuration example tell a person to do works as it is written.

use clap::Parser;
use keyraft_node::cli::Cli;
use keyraft_node::config::{self, Config};
use std::path::{Path, PathBuf};

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The `keyraft` lines in a paper's code blocks and between its backticks, without what the shell makes of them.
fn commands(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for (number, part) in text.split("```").enumerate() {
        if number % 2 == 1 {
            lines.extend(part.lines().map(str::to_string));
        } else {
            lines.extend(part.split('`').skip(1).step_by(2).map(|quoted| quoted.replace('\n', " ")));
        }
    }
    let plain = |line: String| {
        let end = line.find(['#', '>', '&', '|', '<']).unwrap_or(line.len());
        line[..end].trim().to_string()
    };
    lines.into_iter().map(plain).filter(|line| line.starts_with("keyraft ")).collect()
}

#[test]
fn every_command_of_the_papers_is_one() {
    let mut seen = 0;
    for paper in ["README.md", "CONTRIBUTING.md", "docs/ARCHITECTURE.md", "docs/OPERATING.md"] {
        let Ok(text) = std::fs::read_to_string(project().join(paper)) else {
            panic!("{paper} is missing");
        };
        for line in commands(&text) {
            let parsed = Cli::try_parse_from(line.split_whitespace());
            let asks_for_help = line.ends_with("--help") || line.ends_with("--version");
            assert!(parsed.is_ok() || asks_for_help, "{paper}: {line}\n{}", parsed.expect_err("is refused"));
            seen += 1;
        }
    }
    assert!(seen > 5, "only {seen} commands were found");
}

#[test]
fn the_example_is_a_configuration() {
    let parsed = Config::parse(Path::new("/etc/keyraft/keyraft.toml"), &config::example());
    assert!(parsed.is_ok(), "{:?}", parsed.err());
}
