//! The demo's members: real processes of this very binary, each with a folder, a token and a socket.

use super::token::TokenKind;
use crate::cli::Demo;
use crate::engine::Socket;
use crate::exit::{Exit, Problem};
use crate::output;
use crate::process::kill_member;
use crate::text::hex;
use aws_lc_rs::rand;
use keyraft_engine::clock::Clock;
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// How long a member may take from its start to its first answer. A token's probe takes a second or two.
const START_LIMIT: Duration = Duration::from_secs(60);

/// One member of the demo.
pub struct Member {
    /// Its name, and its folder's.
    pub name: String,
    folder: PathBuf,
    child: Option<Child>,
    /// Where it answers.
    pub socket: Socket,
}

impl Member {
    /// Its configuration file.
    pub fn config(&self) -> PathBuf {
        self.folder.join("keyraft.toml")
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// True while its process should be running.
    pub fn runs(&self) -> bool {
        self.child.is_some()
    }
}

/// All of them. Dropping it ends every process and removes the folder, unless it was let go.
pub struct Group {
    program: PathBuf,
    folder: PathBuf,
    /// True if the folder goes when this goes.
    remove: bool,
    keep: bool,
    /// The members, in the order of their names.
    pub members: Vec<Member>,
}

impl Group {
    /// Makes the folders, the configurations and the secrets; starts nothing.
    pub fn prepare(options: &Demo, kind: &TokenKind) -> Result<Self, Problem> {
        let program = std::env::current_exe().map_err(|e| Problem::io("finding the own program", &e))?;
        let folder = options
            .dir
            .clone()
            .unwrap_or_else(|| std::env::temp_dir().join(format!("keyraft-demo-{}", std::process::id())));
        let folder =
            std::path::absolute(&folder).map_err(|e| Problem::io("finding the working folder", &e))?;
        make_folder(&folder)?;
        let mut group =
            Self { program, folder, remove: !options.keep, keep: options.keep, members: Vec::new() };
        let secret = group.folder.join("domain-secret");
        let mut random = [0; 32];
        rand::fill(&mut random)
            .map_err(|_| Problem::new(Exit::Unexpected, "the machine gives no random bytes", "try again"))?;
        write_private(&secret, &hex(&random))?;
        write_private(&group.folder.join("so-pin"), &options.so_pin)?;
        write_private(&group.folder.join("pin"), &options.pin)?;
        let ports = free_ports(usize::from(options.members))?;
        for (index, port) in ports.into_iter().enumerate() {
            let name = char::from(b'a' + index as u8).to_string();
            let member = prepare_member(&group.folder, &name, port, options, kind)?;
            group.members.push(member);
        }
        let sockets: Vec<PathBuf> = group.members.iter().map(|m| m.socket.path().to_path_buf()).collect();
        write_private(&group.client_config(), &(output::client_config(&sockets).text + "\n"))?;
        Ok(group)
    }

    /// Where everything is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What the PKCS#11 module reads to use this group.
    pub fn client_config(&self) -> PathBuf {
        self.folder.join("client.toml")
    }

    fn command(&self, index: usize) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--config").arg(self.members[index].config());
        // The demo is its own world: nothing of the caller's environment may point a member elsewhere.
        command.env_remove("KEYRAFT_MEMBER_CONFIG").env_remove("KEYRAFT_SOCKET").env_remove("NOTIFY_SOCKET");
        // Ctrl-C at the terminal is the demo's to handle.
        command.process_group(0).stdin(Stdio::null());
        command
    }

    /// Runs one command of a member to its end, and gives its JSON.
    pub async fn run(&self, index: usize, words: &[&str]) -> Result<serde_json::Value, Problem> {
        let mut command = self.command(index);
        command.arg("--json").args(words);
        let shown = words.first().copied().unwrap_or_default();
        let output: Output = tokio::process::Command::from(command)
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|e| Problem::io(format!("running 'keyraft {shown}'"), &e))?;
        if !output.status.success() {
            return Err(told(shown, &self.members[index].name, &output));
        }
        serde_json::from_slice(&output.stdout).map_err(|e| {
            Problem::new(Exit::Unexpected, format!("'keyraft {shown}' printed no JSON: {e}"), "")
        })
    }

    /// Starts a member's process and waits until it answers.
    pub async fn start(&mut self, index: usize) -> Result<(), Problem> {
        let log = File::options()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(self.members[index].log())
            .map_err(|e| Problem::io("opening a member's log", &e))?;
        let mut command = self.command(index);
        command.arg("serve").stdout(Stdio::null()).stderr(log);
        if !self.keep {
            command.arg("--end-with-parent").arg(std::process::id().to_string());
        }
        let child = command.spawn().map_err(|e| Problem::io("starting a member", &e))?;
        self.members[index].child = Some(child);
        self.wait_answer(index).await
    }

    async fn wait_answer(&mut self, index: usize) -> Result<(), Problem> {
        let end = Clock.now() + START_LIMIT;
        loop {
            if self.members[index].socket.greet().await.is_ok() {
                return Ok(());
            }
            let member = &mut self.members[index];
            let ended = member.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            if let Some(status) = ended {
                member.child = None;
                return Err(Problem::new(
                    Exit::Unexpected,
                    format!("member {} ended: {status}", member.name),
                    "",
                ));
            }
            if Clock.now() >= end {
                return Err(Problem::new(
                    Exit::Unreachable,
                    format!(
                        "member {} does not answer {} s after its start",
                        member.name,
                        START_LIMIT.as_secs()
                    ),
                    "",
                ));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// kill -9, and waits for the end.
    pub fn kill(&mut self, index: usize) {
        if let Some(child) = self.members[index].child.take() {
            kill_member(child);
        }
    }

    /// What the members said that may explain a failure.
    pub fn last_words(&self) -> String {
        let mut out = String::new();
        for member in &self.members {
            let Ok(text) = fs::read_to_string(member.log()) else { continue };
            let lines: Vec<&str> = text
                .lines()
                .filter(|l| !l.contains(" openraft::") && (l.contains(" WARN ") || l.contains("rror")))
                .collect();
            for line in lines.iter().rev().take(LAST_WORDS_LINES).rev() {
                out.push_str(&format!("  {}: {line}\n", member.name));
            }
        }
        out
    }

    /// Leaves processes and folder to the person; gives the process ids.
    pub fn let_go(mut self) -> Vec<u32> {
        self.remove = false;
        self.members.iter_mut().filter_map(|m| m.child.take()).map(|child| child.id()).collect()
    }
}

/// The problem that a command printed in JSON, as the demo tells it.
fn told(command: &str, member: &str, output: &Output) -> Problem {
    let said = String::from_utf8_lossy(&output.stderr);
    let error = said.find('{').and_then(|at| serde_json::from_str::<serde_json::Value>(&said[at..]).ok());
    let field = |name: &str| error.as_ref().and_then(|e| e["error"][name].as_str()).unwrap_or_default();
    let why = if field("message").is_empty() { said.trim_end() } else { field("message") };
    let code = output.status.code();
    let exit = Exit::ALL.iter().copied().find(|exit| code == Some(i32::from(exit.code())));
    let what = format!("'keyraft {command}' of member {member} failed: {why}");
    Problem::new(exit.unwrap_or(Exit::Unexpected), what, field("help"))
}

/// Lines shown of each member's log after a failure.
const LAST_WORDS_LINES: usize = 8;

impl Drop for Group {
    fn drop(&mut self) {
        for member in &mut self.members {
            if let Some(child) = member.child.take() {
                kill_member(child);
            }
        }
        if self.remove
            && let Err(error) = fs::remove_dir_all(&self.folder)
        {
            eprintln!("warning: {} could not be removed: {error}", self.folder.display());
        }
    }
}

/// Makes the folder, or takes an empty one.
fn make_folder(folder: &Path) -> Result<(), Problem> {
    match fs::DirBuilder::new().recursive(false).mode(0o700).create(folder) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            let empty = fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none());
            if empty {
                return Ok(());
            }
            let what = format!("{} is not empty", folder.display());
            Err(Problem::usage(what, "name a folder that does not exist yet, or remove it first"))
        }
        Err(e) => Err(Problem::usage(
            format!("cannot make the folder {}: {e}", folder.display()),
            "name a folder by --dir whose parent exists and that you may write",
        )),
    }
}

fn write_private(path: &Path, text: &str) -> Result<(), Problem> {
    let mut options = File::options();
    options.write(true).create_new(true).mode(0o600);
    options
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|e| Problem::io(format!("writing {}", path.display()), &e))
}

/// Ports that are free now: all are held until the last is found, so that they differ.
fn free_ports(count: usize) -> Result<Vec<u16>, Problem> {
    let listeners: Result<Vec<TcpListener>, _> =
        (0..count).map(|_| TcpListener::bind(("127.0.0.1", 0))).collect();
    let ports = listeners.and_then(|l| l.iter().map(|l| l.local_addr().map(|a| a.port())).collect());
    ports.map_err(|e| Problem::io("looking for free ports on 127.0.0.1", &e))
}

fn prepare_member(
    folder: &Path,
    name: &str,
    port: u16,
    options: &Demo,
    kind: &TokenKind,
) -> Result<Member, Problem> {
    let home = folder.join(name);
    let tokens = home.join("softhsm");
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&tokens)
        .map_err(|e| Problem::io(format!("making {}", tokens.display()), &e))?;
    write_private(&home.join("pin"), &options.pin)?;
    let mut token = toml::Table::new();
    token.insert("module".into(), kind.module().into());
    token.insert("label".into(), format!("demo-{name}").into());
    token.insert("pin_file".into(), "pin".into());
    if let TokenKind::Library(_) = kind {
        let conf = home.join("softhsm2.conf");
        let text = format!(
            "directories.tokendir = {}\nobjectstore.backend = file\nlog.level = ERROR\n",
            tokens.display()
        );
        write_private(&conf, &text)?;
        let mut environment = toml::Table::new();
        environment.insert("SOFTHSM2_CONF".into(), conf.display().to_string().into());
        token.insert("environment".into(), environment.into());
    }
    let mut member = toml::Table::new();
    member.insert("name".into(), name.into());
    member.insert("data".into(), "data".into());
    member.insert("listen".into(), format!("127.0.0.1:{port}").into());
    member.insert("socket".into(), "sock".into());
    let mut domain = toml::Table::new();
    domain.insert("name".into(), "demo".into());
    domain.insert("secret_file".into(), folder.join("domain-secret").display().to_string().into());
    let mut file = toml::Table::new();
    file.insert("member".into(), member.into());
    file.insert("token".into(), token.into());
    file.insert("domain".into(), domain.into());
    write_private(&home.join("keyraft.toml"), &file.to_string())?;
    // The reader of configurations refuses what cannot be, such as a socket's path that is too long.
    let config = crate::config::Config::load(&home.join("keyraft.toml"))?;
    Ok(Member { name: name.into(), socket: Socket::new(config.socket), folder: home, child: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ() {
        let mut ports = free_ports(5).expect("finds ports");
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 5);
    }

    #[test]
    fn only_an_empty_folder_is_taken() {
        let folder = tempfile::tempdir().expect("makes a folder");
        assert_eq!(make_folder(&folder.path().join("new")), Ok(()));
        assert_eq!(make_folder(&folder.path().join("new")), Ok(()));
        assert_eq!(make_folder(folder.path()).expect_err("is refused").exit, Exit::Usage);
        assert!(make_folder(&folder.path().join("a/b")).expect_err("is refused").remedy.contains("--dir"));
    }
}
