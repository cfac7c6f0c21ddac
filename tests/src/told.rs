//! An application that loads the module and does as it is told: tests/src/bin/pkcs11-client.

use crate::clients::{PIN, module};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The application's program, beside the program under test.
pub fn program() -> PathBuf {
    crate::group::program().with_file_name("pkcs11-client")
}

/// The application, started by this command, in one of its modes, with a configuration as `keyraft client add` wrote it.
pub fn application(mut program: Command, folder: &Path, mode: &str) -> Command {
    program.arg(module()).args(["test", PIN, mode]).env("KEYRAFT_CONFIG", folder.join("client.toml"));
    program
}

/// One that reads what to do; it ends with its value.
#[derive(Debug)]
pub struct Told {
    child: Child,
    input: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Told {
    /// Starts it.
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
        let input = child.stdin.take().expect("is piped");
        let answers = BufReader::new(child.stdout.take().expect("is piped")).lines();
        Self { child, input, answers }
    }

    /// What it answers, whatever that is.
    pub fn ask(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").expect("it reads");
        self.answers.next().expect("it answers").expect("in text")
    }

    /// What a call that must succeed yields.
    pub fn good(&mut self, line: &str) -> String {
        let answer = self.ask(line);
        let value = answer.strip_prefix("ok").unwrap_or_else(|| panic!("'{line}' is answered by '{answer}'"));
        value.trim().to_string()
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        // Nothing is left to do about a process that cannot be ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
