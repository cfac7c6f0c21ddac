//! The process itself: its environment, its core files, its signals, its word to systemd.

use crate::config::Config;
use crate::exit::{Exit, Problem};
use keyraft_engine::clock::Clock;
use keyraft_engine::limits;
use keyraft_engine::telemetry::Event;
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Closes the ways by which a member's memory could reach a file: core files and debuggers of the same user. New
/// files are for the owner alone.
pub fn close_up() -> Result<(), Problem> {
    rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })
        .map_err(|e| Problem::io("switching core files off", &e.into()))?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|e| Problem::io("keeping debuggers out", &e.into()))?;
    rustix::process::umask(rustix::fs::Mode::from_bits_truncate(0o077));
    Ok(())
}

/// Asks the kernel to end this process with the one that started it.
fn end_with_parent() -> Result<(), Problem> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|e| Problem::io("asking to end with the parent", &e.into()))
}

/// Asks the kernel to end this process with its parent, which has this id, and makes sure that it is still there.
pub fn end_with(parent: u32) -> Result<(), Problem> {
    end_with_parent()?;
    let now = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    if now == Some(parent) {
        return Ok(());
    }
    Err(Problem::new(
        Exit::Unexpected,
        "the parent of the member's process has ended",
        "start 'keyraft serve' anew",
    ))
}

/// Ends this process by force if it has not ended by then: a library that hangs may keep it from ending.
pub fn end_within(limit: std::time::Duration) {
    let end = move || {
        std::thread::sleep(limit);
        // It can fail for no process of one's own.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    };
    if let Err(error) = std::thread::Builder::new().name("end".into()).spawn(end) {
        tracing::error!(code = Event::NoEndThread.code(), %error, "the system starts no thread: this process may not end");
    }
}

/// What must change in the environment before a token's library is loaded: set to a value, or removed.
fn wanted_environment(config: &Config) -> BTreeMap<String, Option<String>> {
    let mut wanted = BTreeMap::new();
    if config.token.module.is_none() {
        // The embedded token's OpenSSL must read no file that loads a foreign library; its tokens must not depend
        // on somebody's environment.
        wanted.insert("OPENSSL_CONF".into(), Some("/dev/null".into()));
        wanted.insert("KRYOPTIC_EC_POINT_ENCODING".into(), None);
    }
    wanted.extend(config.token.environment.iter().map(|(name, value)| (name.clone(), Some(value.clone()))));
    wanted
}

fn changes(config: &Config, now: impl Fn(&str) -> Option<OsString>) -> BTreeMap<String, Option<String>> {
    let mut wanted = wanted_environment(config);
    wanted.retain(|name, value| now(name) != value.as_ref().map(OsString::from));
    wanted
}

/// Gives the token's library the environment that the configuration names. The process executes itself again, since
/// changing the environment of a running one is not safe. Must be called before any thread exists.
pub fn apply_environment(config: &Config) -> Result<(), Problem> {
    let changes = changes(config, |name| std::env::var_os(name));
    if changes.is_empty() {
        return Ok(());
    }
    let program = std::env::current_exe().map_err(|e| Problem::io("finding the own program", &e))?;
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1));
    for (name, value) in changes {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Err(Problem::io("executing the own program again", &command.exec()))
}

/// Tells systemd, if it started us with `Type=notify`, how we are.
pub fn notify(state: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = notify_at(socket.as_bytes(), state) {
        tracing::warn!(code = Event::SystemdNotTold.code(), %error, "systemd could not be told '{state}'");
    }
}

fn notify_at(socket: &[u8], state: &str) -> std::io::Result<()> {
    let address = match socket.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(socket))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

/// Kills a supervisor, with which the kernel kills its member, and waits until both are gone: the member's folder, token
/// and port are free then.
pub fn kill_member(mut supervisor: Child) {
    let members = children(supervisor.id());
    // Nothing is left to do about a process that cannot be ended.
    let _ = supervisor.kill();
    let _ = supervisor.wait();
    let end = Clock.now() + limits::CLOSE_GRACE;
    while members.iter().any(|member| is_alive(*member)) && Clock.now() < end {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// The processes that a process of one thread has started and that are alive.
pub fn children(process: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|id| id.parse().ok()).filter(|id| is_alive(*id)).collect()
}

/// False once a process holds nothing any more, also if nobody has waited for it yet.
pub fn is_alive(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return false };
    threads.flatten().any(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state follows the name, which stands in brackets.
        stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
    })
}

/// Waits for SIGTERM or SIGINT; tells which.
pub async fn stop_signal() -> &'static str {
    use tokio::signal::unix::{SignalKind, signal};
    match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
        (Ok(mut terminate), Ok(mut interrupt)) => tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        },
        _ => {
            tracing::error!(
                code = Event::SignalsNotHeard.code(),
                "signals cannot be heard: stop this member by SIGKILL"
            );
            std::future::pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn config(module: &str) -> Config {
        let text = format!(
            "[member]\nname = \"a\"\ndata = \"d\"\nlisten = \"127.0.0.1:1\"\n[token]\nmodule = \"{module}\"\n\
             pin_env = \"P\"\nenvironment = {{ SOFTHSM2_CONF = \"/s.conf\" }}\n\
             [domain]\nname = \"d\"\nsecret_env = \"S\"\n"
        );
        Config::parse(Path::new("/k.toml"), &text).expect("is good")
    }

    #[test]
    fn only_what_differs_is_changed() {
        let none = |_: &str| None;
        let library = changes(&config("/x.so"), none);
        assert_eq!(library.keys().collect::<Vec<_>>(), ["SOFTHSM2_CONF"]);
        let embedded = changes(&config("embedded"), none);
        assert_eq!(embedded.keys().collect::<Vec<_>>(), ["OPENSSL_CONF", "SOFTHSM2_CONF"]);
        // The second run, in the environment that the first one made, changes nothing: no loop.
        let second = changes(&config("embedded"), |name| match name {
            "OPENSSL_CONF" => Some("/dev/null".into()),
            "SOFTHSM2_CONF" => Some("/s.conf".into()),
            _ => None,
        });
        assert!(second.is_empty());
    }

    #[test]
    fn children_are_seen_until_they_are_gone() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & wait"]);
        let supervisor = command.spawn().expect("starts");
        let end = Clock.now() + limits::OVERALL;
        while children(supervisor.id()).is_empty() {
            assert!(Clock.now() < end, "it starts a child");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let child = children(supervisor.id())[0];
        assert!(is_alive(child));
        let pid =
            rustix::process::Pid::from_raw(i32::try_from(child).expect("is small")).expect("is a process");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("is ours");
        kill_member(supervisor);
        assert!(!is_alive(child));
    }

    #[test]
    fn systemd_hears_us() {
        let folder = tempfile::tempdir().expect("makes a folder");
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("binds");
        notify_at(path.as_os_str().as_bytes(), "READY=1").expect("sends");
        let mut buffer = [0; 32];
        let count = socket.recv(&mut buffer).expect("receives");
        assert_eq!(&buffer[..count], b"READY=1");
    }
}
