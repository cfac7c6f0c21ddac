//! An application that loads the module and does as it is told: tests/src/bin/pkcs11-client.

use crate::clients::{PIN, module};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// How long one answer may take.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(90);

/// The application's program, beside the program under test.
pub fn program() -> PathBuf {
    crate::group::program().with_file_name("pkcs11-client")
}

/// The application, started by this command, in one of its modes, with a configuration as `keyraft client add` wrote it.
pub fn application(program: Command, folder: &Path, mode: &str) -> Command {
    application_of(program, &folder.join("client.toml"), mode)
}

/// The same with this configuration.
pub fn application_of(mut program: Command, config: &Path, mode: &str) -> Command {
    program.arg(module()).args(["test", PIN, mode]).env("KEYRAFT_CONFIG", config);
    program
}

/// One that reads what to do; it ends with its value.
#[derive(Debug)]
pub struct Told {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

impl Told {
    /// Starts it.
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
        let input = child.stdin.take().expect("is piped");
        let lines = BufReader::new(child.stdout.take().expect("is piped")).lines();
        let (send, answers) = channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| send.send(line)));
        Self { child, input, answers }
    }

    /// Tells it what to do.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("it reads");
    }

    /// What it answers to that, whatever it is.
    pub fn hear(&mut self, line: &str) -> String {
        let answer = self.answers.recv_timeout(ANSWER_LIMIT);
        answer.unwrap_or_else(|error| panic!("'{line}' is not answered within {ANSWER_LIMIT:?}: {error}"))
    }

    /// Both.
    pub fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear(line)
    }

    /// What a call yields that it was told, and that must succeed.
    pub fn hear_good(&mut self, line: &str) -> String {
        let answer = self.hear(line);
        let value = answer.strip_prefix("ok").unwrap_or_else(|| panic!("'{line}' is answered by '{answer}'"));
        value.trim().to_string()
    }

    /// What a call that must succeed yields.
    pub fn good(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear_good(line)
    }

    /// The number that a call returns which must not succeed.
    pub fn refused(&mut self, line: &str) -> String {
        let answer = self.ask(line);
        let rest =
            answer.strip_prefix("error ").unwrap_or_else(|| panic!("'{line}' is answered by '{answer}'"));
        rest.split(' ').next().unwrap_or_default().to_string()
    }

    /// A session, logged in as the user.
    pub fn login(&mut self) -> String {
        let session = self.good("open");
        self.good(&format!("login {session}"));
        session
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.child.kill().expect("can be killed");
        self.child.wait().expect("ends");
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        // Nothing is left to do about a process that cannot be ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
