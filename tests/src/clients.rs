//! Programs that load a PKCS#11 module, driven step by step: over SoftHSM loaded directly, then over the module of a
//! group. What passes on a token of one's own must pass on the group's.

use crate::group::{Ended, SOFTHSM, write_private};
use crate::{Group, TokenKind, turn};
use keyraft_engine::clock::Clock;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// How long one program may take before it counts as hanging.
pub const PROGRAM_LIMIT: Duration = Duration::from_secs(60);
/// The users' PIN of every token under test.
pub const PIN: &str = "user-pin-1234";
/// The security officers' PIN of every token under test.
pub const SO_PIN: &str = "so-pin-5678";

/// A module to load, and what it needs.
#[derive(Clone, Debug)]
pub struct Target {
    /// For people: whose token this is.
    pub name: &'static str,
    /// The module.
    pub module: PathBuf,
    /// What programs find in their environment.
    pub environment: Vec<(String, String)>,
    /// The token's label.
    pub label: String,
    /// The user's PIN.
    pub pin: String,
    /// The security officer's PIN.
    pub so_pin: String,
}

impl Target {
    /// A fresh SoftHSM token in this folder, without anything of ours.
    pub fn softhsm(folder: &Path) -> Self {
        assert!(Path::new(SOFTHSM).is_file(), "{SOFTHSM} is missing: run 'dev/deps.sh test'");
        let tokens = folder.join("tokens");
        fs::create_dir_all(&tokens).expect("makes a folder");
        let conf = folder.join("softhsm2.conf");
        write_private(
            &conf,
            &format!(
                "directories.tokendir = {}\nobjectstore.backend = file\nlog.level = ERROR\n",
                tokens.display()
            ),
        );
        let target = Self {
            name: "SoftHSM itself",
            module: SOFTHSM.into(),
            environment: vec![("SOFTHSM2_CONF".into(), conf.display().to_string())],
            label: "clients".into(),
            pin: PIN.into(),
            so_pin: SO_PIN.into(),
        };
        let battery = Battery::begin(&target);
        let words = ["--init-token", "--free", "--label", "clients", "--pin", PIN, "--so-pin", SO_PIN];
        battery.run("softhsm2-util", words).unwrap_or_else(|error| panic!("a fresh token: {error}"));
        target
    }

    /// The module of a group, by the sockets of all its members.
    pub fn group(name: &'static str, group: &Group) -> Self {
        Self::group_as(name, group, "client.toml", 0..group.members.len(), "")
    }

    /// The same with a file of its own, that names these members, and more keys.
    pub fn group_as(
        name: &'static str,
        group: &Group,
        file: &str,
        members: std::ops::Range<usize>,
        keys: &str,
    ) -> Self {
        let conf = group.path(file);
        let sockets: Vec<String> =
            group.members[members].iter().map(|m| format!("{:?}", m.folder.join("sock"))).collect();
        write_private(&conf, &format!("[[group]]\nsockets = [{}]\n{keys}\n", sockets.join(", ")));
        Self {
            name,
            module: module(),
            environment: vec![("KEYRAFT_CONFIG".into(), conf.display().to_string())],
            label: "test".into(),
            pin: PIN.into(),
            so_pin: SO_PIN.into(),
        }
    }
}

/// The module under test, beside the program under test.
pub fn module() -> PathBuf {
    let module = crate::group::program().with_file_name("libkeyraft_pkcs11.so");
    assert!(
        module.is_file(),
        "{} is missing: build it first by 'cargo build -p keyraft-pkcs11' (with --release if the tests are)",
        module.display()
    );
    module
}

/// Gives a group its user PIN.
pub async fn set_user_pin(group: &Group) {
    let pin = group.path("user-pin");
    write_private(&pin, PIN);
    group.json(0, &["pin", "set", "--role", "user", "--pin-file", &pin.display().to_string()]).await;
}

/// A group of three with these tokens, its PINs set, that takes every kind of key its tokens have.
pub async fn group(kind: TokenKind) -> Group {
    let group = Group::form(&[kind; 3]).await;
    // Ed25519 keys enter SoftHSM no other way.
    if kind == TokenKind::SoftHsm {
        group.json(0, &["option", "set", "allow_inmemory_import", "true"]).await;
    }
    let file = group.path("so-pin").display().to_string();
    group.json(0, &["pin", "set", "--role", "so", "--pin-file", &file]).await;
    set_user_pin(&group).await;
    group
}

/// One step and how it went.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its name, the same on every target.
    pub name: String,
    /// What was wrong, if something was.
    pub outcome: Result<(), String>,
}

/// A row of steps over one target, with a folder for what they leave.
pub struct Battery<'a> {
    /// What the steps run over.
    pub target: &'a Target,
    folder: TempDir,
    steps: Vec<Step>,
}

impl<'a> Battery<'a> {
    /// Begins one.
    pub fn begin(target: &'a Target) -> Self {
        // A socket's path must be short, whatever TMPDIR says.
        let folder = tempfile::Builder::new().prefix("kc").tempdir_in("/tmp").expect("makes a folder");
        Self { target, folder, steps: Vec::new() }
    }

    /// Takes a step. True if it went well; the ones after it are taken all the same.
    pub fn step(&mut self, name: &str, take: impl FnOnce(&Self) -> Result<(), String>) -> bool {
        assert!(self.steps.iter().all(|step| step.name != name), "two steps are called '{name}'");
        let outcome = take(self);
        let went_well = outcome.is_ok();
        self.steps.push(Step { name: name.into(), outcome });
        went_well
    }

    /// Steps that a script of ours has taken: one line each, `ok NAME` or `failed NAME: what was wrong`.
    pub fn take_over(&mut self, said: &Ended) {
        for line in said.out.lines() {
            let step = if let Some(name) = line.strip_prefix("ok ") {
                Step { name: name.into(), outcome: Ok(()) }
            } else if let Some((name, why)) =
                line.strip_prefix("failed ").and_then(|rest| rest.split_once(": "))
            {
                Step { name: name.into(), outcome: Err(why.into()) }
            } else {
                continue;
            };
            self.steps.push(step);
        }
        self.step("it runs to its end", |_| match said.code {
            0 => Ok(()),
            code => Err(format!("ended with {code}: {}", tail(&said.said()))),
        });
    }

    /// A path in the battery's folder.
    pub fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Writes a file into the battery's folder, and gives its path.
    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        fs::write(self.folder.path().join(name), bytes)
            .unwrap_or_else(|error| panic!("writing {name}: {error}"));
        self.path(name)
    }

    /// Reads a file of the battery's folder.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, String> {
        fs::read(self.folder.path().join(name)).map_err(|error| format!("{name}: {error}"))
    }

    /// A program with the target's environment, in the battery's folder, not yet started.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for name in [
            "KEYRAFT_CONFIG",
            "KEYRAFT_MEMBER_CONFIG",
            "KEYRAFT_SOCKET",
            "SOFTHSM2_CONF",
            "SSH_AUTH_SOCK",
            "DISPLAY",
        ] {
            command.env_remove(name);
        }
        command.env("LC_ALL", "C").env("HOME", self.folder.path()).env("XDG_CONFIG_HOME", self.folder.path());
        command.envs(self.target.environment.iter().map(|(name, value)| (name, value)));
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    /// Runs a program to its end, which must be a good one.
    pub fn run<W: AsRef<OsStr>>(
        &self,
        program: &str,
        words: impl IntoIterator<Item = W>,
    ) -> Result<Ended, String> {
        let mut command = self.command(program);
        command.args(words);
        good(finish(command)?)
    }

    /// Runs a program with words parted by blanks; `@name` is a file of the battery.
    pub fn go(&self, program: &str, words: &str) -> Result<Ended, String> {
        self.run(program, self.words(words))
    }

    /// Words parted by blanks; `@name` is a file of the battery.
    pub fn words(&self, words: &str) -> Vec<String> {
        let word =
            |word: &str| word.strip_prefix('@').map_or_else(|| word.to_string(), |name| self.path(name));
        words.split_whitespace().map(word).collect()
    }

    /// The steps taken.
    pub fn end(self) -> Vec<Step> {
        self.steps
    }
}

/// A tool that dev/deps.sh has put into the target folder.
pub fn tool(path: &str) -> String {
    let profile = crate::group::program().parent().map(Path::to_path_buf).unwrap_or_default();
    profile.parent().unwrap_or(&profile).join("tools").join(path).display().to_string()
}

/// A free port on 127.0.0.1, for a server among the programs.
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    listener.local_addr().expect("has an address").port()
}

/// Starts a program whose words go to these files. Panics if it is not there: what is missing is never passed over.
pub fn start(mut command: Command, out: &Path, err: &Path) -> Child {
    let file = |path: &Path| File::create(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdout(file(out)).stderr(file(err));
    command.spawn().unwrap_or_else(|error| panic!("{program}: {error}; run 'dev/deps.sh test'"))
}

/// Runs a program to its end, whatever that is. One that hangs is ended, and an error.
pub fn finish(command: Command) -> Result<Ended, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    // Files, not pipes: a program that leaves a child behind would keep a pipe open for ever.
    let folder = tempfile::tempdir().map_err(|error| format!("a folder for {program}: {error}"))?;
    let (out, err) = (folder.path().join("out"), folder.path().join("err"));
    let mut child = start(command, &out, &err);
    let end = Clock.now() + PROGRAM_LIMIT;
    let status = loop {
        match child.try_wait().map_err(|error| format!("{program}: {error}"))? {
            Some(status) => break status,
            None if Clock.now() < end => std::thread::sleep(Duration::from_millis(5)),
            None => {
                child.kill().and_then(|()| child.wait()).map_err(|error| format!("{program}: {error}"))?;
                return Err(format!("{program} has not ended after {PROGRAM_LIMIT:?}"));
            }
        }
    };
    let text = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    Ok(Ended { code: status.code().unwrap_or(-1), out: text(&out), err: text(&err) })
}

/// An end with another code than 0 is an error.
pub fn good(ended: Ended) -> Result<Ended, String> {
    if ended.code == 0 {
        Ok(ended)
    } else {
        Err(format!("ended with {}: {}", ended.code, tail(&ended.said())))
    }
}

/// What a program said must contain this.
pub fn says(ended: &Ended, text: &str) -> Result<(), String> {
    let said = ended.said();
    if said.contains(text) { Ok(()) } else { Err(format!("does not say '{text}': {}", tail(&said))) }
}

/// Two results that must be the same.
pub fn same<T: PartialEq + std::fmt::Debug>(left: &T, right: &T, what: &str) -> Result<(), String> {
    if left == right { Ok(()) } else { Err(format!("{what}: {left:?} is not {right:?}")) }
}

/// The last words, in one line.
fn tail(said: &str) -> String {
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(4)..].join(" | ")
}

/// Runs a client's steps over SoftHSM itself and over groups with both kinds of token, in one run, and shows all.
/// Every step that passes on SoftHSM must pass on the group's module, unless pkcs11/FEATURES.md says why not; a step
/// that it excuses must fail.
pub async fn compare(client: &str, battery: fn(&mut Battery<'_>)) {
    let folder = tempfile::tempdir().expect("makes a folder");
    let direct = take(battery, Target::softhsm(folder.path())).await;
    let mut complaints = Vec::new();
    let mut table =
        format!("{client}: {} of {} steps pass on SoftHSM itself\n", passed(&direct), direct.len());
    for (name, kind) in
        [("a group on SoftHSM", TokenKind::SoftHsm), ("a group on embedded", TokenKind::Embedded)]
    {
        let _turn = turn().await;
        let group = group(kind).await;
        let ours = take(battery, Target::group(name, &group)).await;
        let _ = writeln!(table, "{client}: {} of {} steps pass on {name}", passed(&ours), ours.len());
        complaints.extend(judge(client, name, &direct, &ours));
        let _ = write!(table, "{}", rows(&direct, &ours));
    }
    print!("{table}");
    assert!(complaints.is_empty(), "{table}\n{}", complaints.join("\n"));
}

/// Takes the steps where waiting for programs holds up nobody.
async fn take(battery: fn(&mut Battery<'_>), target: Target) -> Vec<Step> {
    let steps = tokio::task::spawn_blocking(move || {
        let mut running = Battery::begin(&target);
        battery(&mut running);
        running.end()
    });
    steps.await.expect("a battery does not panic")
}

fn passed(steps: &[Step]) -> usize {
    steps.iter().filter(|step| step.outcome.is_ok()).count()
}

/// One line for each step that failed somewhere.
fn rows(direct: &[Step], ours: &[Step]) -> String {
    let at_home: BTreeMap<&str, &Step> = direct.iter().map(|step| (step.name.as_str(), step)).collect();
    let line = |step: &Step| {
        let home = at_home.get(step.name.as_str()).map(|home| &home.outcome);
        let how = match (home, &step.outcome) {
            (Some(Ok(())), Ok(())) => return None,
            (Some(Err(why)), Ok(())) => format!("only on ours (there: {why})"),
            (Some(Err(there)), Err(why)) => format!("on neither (there: {there}; here: {why})"),
            (_, Err(why)) => format!("NOT ON OURS: {why}"),
            (None, Ok(())) => "not taken there".into(),
        };
        Some(format!("  {}: {how}\n", step.name))
    };
    ours.iter().filter_map(line).collect()
}

fn judge(client: &str, name: &str, direct: &[Step], ours: &[Step]) -> Vec<String> {
    let mut complaints = Vec::new();
    let excuses = excuses();
    for home in direct {
        let Some(here) = ours.iter().find(|step| step.name == home.name) else {
            complaints.push(format!("{client}, {name}: '{}' was not taken", home.name));
            continue;
        };
        let excused = excuses.iter().any(|e| e.client == client && e.step == home.name && e.counts_for(name));
        match (&home.outcome, &here.outcome) {
            (Ok(()), Err(why)) if !excused => {
                complaints.push(format!("{client}, {name}: '{}': {why}", home.name))
            }
            (_, Ok(())) if excused => complaints.push(format!(
                "{client}, {name}: '{}' passes: take its line out of pkcs11/FEATURES.md",
                home.name
            )),
            _ => {}
        }
    }
    if passed(ours) + excuses.iter().filter(|e| e.client == client).count() < passed(direct) {
        complaints.push(format!("{client}, {name}: fewer steps pass than on SoftHSM itself"));
    }
    complaints
}

/// A step that need not pass, with the reason that users read.
struct Excuse {
    client: String,
    step: String,
    members: String,
}

impl Excuse {
    fn counts_for(&self, name: &str) -> bool {
        self.members == "all" || name.ends_with(&self.members)
    }
}

/// The table in pkcs11/FEATURES.md: `| client | step | all, SoftHSM or embedded | why |` under "Steps that differ".
fn excuses() -> Vec<Excuse> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pkcs11/FEATURES.md");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let table = text.split("## Steps that differ").nth(1).and_then(|rest| rest.split("\n## ").next());
    let rows = table.unwrap_or_default().lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [client, step, members, why] = cells[..] else {
            panic!("pkcs11/FEATURES.md: '{row}' is not '| client | step | members | why |'")
        };
        assert!(
            ["all", "SoftHSM", "embedded"].contains(&members),
            "pkcs11/FEATURES.md: '{members}' are no members"
        );
        assert!(why.len() > 20, "pkcs11/FEATURES.md: '{step}' has no reason");
        Excuse { client: client.into(), step: step.into(), members: members.into() }
    })
    .collect()
}
