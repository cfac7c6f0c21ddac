//! `jepsen-lite check` as people and scripts use it.

use std::path::Path;
use std::process::{Command, Output};

fn check(file: &Path, more: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_jepsen-lite");
    Command::new(program).arg("check").arg(file).args(more).output().expect("runs")
}

fn own(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("histories").join(name)
}

#[test]
fn the_last_line_is_the_verdict_and_the_exit_code_says_it() {
    for (name, more, verdict, code) in [
        ("register-fresh.log", &[][..], "linearizable", 0),
        ("register-stale.log", &[], "not-linearizable", 1),
        ("keys-unanswered.edn", &["--steps", "0"], "unknown", 2),
    ] {
        let output = check(&own(name), more);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(said.lines().last(), Some(verdict), "{name}: {said}");
        assert_eq!(output.status.code(), Some(code), "{name}");
    }
}

#[test]
fn what_fails_is_shown_with_its_lines() {
    let output = check(&own("register-stale.log"), &[]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("line 6: 1 ok read 1"), "{said}");
}

fn outside(words: &[&str]) -> Output {
    let own = env!("CARGO_BIN_EXE_jepsen-lite");
    let program = ["run", "--rung", "outside", "--keyraft", own, "--module", own];
    Command::new(own).args(program).args(words).output().expect("runs")
}

#[test]
fn rung_outside_refuses_by_name_what_it_does_not_have() {
    let output = outside(&["--nemesis", "kill,power"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("outside does not have the fault 'power': it has kill, pause"), "{said}");
}

/// This program is built with what simulated mistakes need.
#[test]
fn rung_outside_refuses_a_build_for_tests() {
    let output = outside(&["--nemesis", "kill"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("is built with hooks for tests"), "{said}");
}

#[test]
fn what_is_no_history_is_an_error_that_says_where() {
    let file = tempfile::NamedTempFile::new().expect("is made");
    std::fs::write(file.path(), "{:process 0, :type :invoke, :f :read, :value nil}\n{:process 0}\n")
        .expect("is written");
    let output = check(file.path(), &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("line 2") && said.contains(":type"), "{said}");
}

#[test]
fn what_is_asked_wrongly_is_no_verdict() {
    let run =
        |words: &[&str]| Command::new(env!("CARGO_BIN_EXE_jepsen-lite")).args(words).output().expect("runs");
    let file = tempfile::NamedTempFile::new().expect("is made");
    let path = file.path().display().to_string();
    for (words, why) in [
        (&["check"][..], "required"),
        (&["run", "--rung", "sim", "--mutant", "nonesuch"], "none of that name"),
        (&["run", "--rung", "sim", "--module", "x.so"], "real members"),
        (&["run", "--rung", "sim", "--out", &path], &path),
    ] {
        let output = run(words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{words:?}: {said}");
        assert!(said.contains(why) && output.stdout.is_empty(), "{words:?}: {said}");
    }
    assert_eq!(run(&["--help"]).status.code(), Some(0));
}

/// As in `jepsen-lite check FILE | head -1`, and on a full disk.
#[test]
fn a_reader_who_has_heard_enough_is_no_error_and_a_full_disk_is_one() {
    let told = |stdout: std::process::Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_jepsen-lite"));
        command.arg("check").arg(own("register-stale.log")).stdout(stdout).output().expect("runs")
    };
    let (reader, writer) = std::io::pipe().expect("is made");
    drop(reader);
    let gone = told(writer.into());
    assert_eq!((gone.status.code(), gone.stderr.as_slice()), (Some(1), &b""[..]));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("opens");
    let full = told(full.into());
    assert_eq!(full.status.code(), Some(3), "{}", String::from_utf8_lossy(&full.stderr));
}
