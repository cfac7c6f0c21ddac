//! From the command line to an exit code.

use crate::caller::Ask;
use crate::cli::{Cli, ClientCommand, Command, ConfigCommand, CreateToken, GroupPins, Init, Join};
use crate::config::{self, Config, LogSection};
use crate::engine::{self, InitGroup, Socket};
use crate::exit::{Exit, Problem};
use crate::output::{self, View};
use crate::secret::{self, SecretSource};
use crate::{command, demo, process, serve, supervisor, text};
use clap::Parser;
use keyraft_engine::wire::SecretBytes;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// How long threads may take to end after the member has stopped.
const END_LIMIT: Duration = Duration::from_millis(200);

/// Runs the command line; the exit code is from the table in `exit`.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let ended = match &cli.command {
        Command::Serve(options) if options.supervised.is_none() => supervise(&cli, options.end_with_parent),
        _ => dispatch(&cli).map(|()| Exit::Done.code()),
    };
    let code = match ended {
        Ok(code) => code,
        Err(problem) => {
            if cli.global.json {
                eprintln!("{:#}", problem.to_json());
            } else {
                eprintln!("error: {problem}");
            }
            problem.exit.code()
        }
    };
    ExitCode::from(code)
}

/// `serve`, as the parent of the member's process.
fn supervise(cli: &Cli, parent: Option<u32>) -> Result<u8, Problem> {
    let config = own_member(cli)?;
    if let Some(parent) = parent {
        process::end_with(parent)?;
    }
    serve::start_log(&config.log)?;
    // One thread: the member's process ends with the thread that starts it.
    runtime(false)?.block_on(supervisor::supervise())
}

fn dispatch(cli: &Cli) -> Result<(), Problem> {
    match &cli.command {
        Command::Config(ConfigCommand::Example) => command::write_out(config::example().as_bytes()),
        Command::Demo(options) => runtime(false)?.block_on(demo::run(options, cli.global.json)),
        Command::Serve(options) => {
            let config = own_member(cli)?;
            if let Some(parent) = options.supervised {
                process::end_with(parent)?;
            }
            serve::start_log(&config.log)?;
            let runtime = runtime(true)?;
            let ended = runtime.block_on(serve::serve(&config, options.again));
            // Whatever still waits on a thread (a token that hangs) must not hold up the end, nor its library afterwards.
            process::end_within(keyraft_engine::limits::END_GRACE);
            runtime.shutdown_timeout(END_LIMIT);
            ended
        }
        Command::Client(ClientCommand::Config { sockets }) => client_config(cli, sockets),
        Command::Init(options) => init(cli, options),
        Command::Join(options) => join(cli, options),
        Command::Check if !serves(cli)? => check(cli),
        Command::Recover(token) if !serves(cli)? => {
            let config = own_member(cli)?;
            quiet_log()?;
            let runtime = runtime(true)?;
            // A member that is starting, or whose supervisor pauses, must not meet another hand in its token.
            let _kept = runtime.block_on(engine::claim(&config))?;
            make_token(&config, token)?;
            let begun = runtime.block_on(engine::recover(&config))?;
            let text = format!(
                "{} of group {} has its keys again: start it with 'keyraft serve'",
                begun.member, begun.group
            );
            print(cli, &View::line(text, begun_json(&begun)))
        }
        Command::Recover(token) if token.create_token => Err(Problem::usage(
            "--create-token makes a new token, and the member still runs with its old one",
            "stop it, then run this again; without --create-token the group is asked to take the member back",
        )),
        Command::ForceQuorum(options) => {
            let config = own_member(cli)?;
            quiet_log()?;
            print(cli, &runtime(true)?.block_on(command::force::run(&config, options))?)
        }
        _ => {
            let socket = Socket::new(socket_path(cli)?);
            runtime(false)?.block_on(async {
                socket.greet().await?;
                let ask: &dyn Ask = &socket;
                match command::run(ask, cli).await? {
                    Some(view) => command::print(&view, cli.global.json),
                    None => Ok(()),
                }
            })
        }
    }
}

fn print(cli: &Cli, view: &View) -> Result<(), Problem> {
    command::print(view, cli.global.json)
}

fn runtime(many_threads: bool) -> Result<Runtime, Problem> {
    let mut builder = if many_threads { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    builder.enable_all().build().map_err(|e| Problem::io("starting threads", &e))
}

/// The configuration, for a command that opens the token in this process.
fn own_member(cli: &Cli) -> Result<Config, Problem> {
    let config = Config::load(&cli.global.config)?;
    process::apply_environment(&config)?;
    process::close_up()?;
    Ok(config)
}

fn quiet_log() -> Result<(), Problem> {
    serve::start_log(&LogSection { json: false, filter: "warn".into() })
}

fn socket_path(cli: &Cli) -> Result<PathBuf, Problem> {
    match &cli.global.socket {
        Some(path) => Ok(path.clone()),
        None => Ok(Config::load(&cli.global.config)?.socket),
    }
}

/// True if a member answers at the socket: then it is asked, since a token has one process at a time.
fn serves(cli: &Cli) -> Result<bool, Problem> {
    let path = socket_path(cli)?;
    Ok(cli.global.socket.is_some() || std::os::unix::net::UnixStream::connect(path).is_ok())
}

fn begun_json(begun: &engine::Begun) -> serde_json::Value {
    json!({"group": begun.group.to_string(), "member": begun.member.to_string(), "recoverable": begun.recoverable})
}

fn make_token(config: &Config, options: &CreateToken) -> Result<(), Problem> {
    if !options.create_token {
        return Ok(());
    }
    let source = match (&options.so_pin_file, &options.so_pin_env) {
        (Some(path), _) => SecretSource::File(path.clone()),
        (None, Some(name)) => SecretSource::Environment(name.clone()),
        (None, None) => {
            return Err(Problem::usage(
                "a new token needs a security officer's PIN",
                "name it by --so-pin-file or --so-pin-env, and keep it",
            ));
        }
    };
    engine::create_token(config, &source.read("--so-pin")?)
}

fn init(cli: &Cli, options: &Init) -> Result<(), Problem> {
    let recovery_key = options.recovery_key.as_ref().map(recovery_key).transpose()?;
    let pins = group_pins(&options.pins)?;
    let config = own_member(cli)?;
    quiet_log()?;
    engine::refuse_occupied(&config)?;
    make_token(&config, &options.token)?;
    let (user_pin, so_pin) = pins;
    let group =
        InitGroup { label: options.label.clone(), recovery_key, user_pin, so_pin, ..InitGroup::default() };
    let without_pin = group.user_pin.is_none();
    let begun = runtime(true)?.block_on(engine::init(&config, group))?;
    if without_pin {
        eprintln!(
            "note: no --group-pin-file was named: applications cannot log in until 'keyraft pin set --role user' gives \
             the group a PIN"
        );
    }
    if !begun.recoverable {
        eprintln!(
            "warning: no --recovery-key was named: whoever loses all tokens of this group loses all its keys"
        );
    }
    let text = format!(
        "group {} '{}' is made, with this member as {}: start it with 'keyraft serve'",
        begun.group, options.label, begun.member
    );
    print(cli, &View::line(text, begun_json(&begun)))
}

/// The user's and the security officer's PIN, where they are named.
fn group_pins(pins: &GroupPins) -> Result<(Option<SecretBytes>, Option<SecretBytes>), Problem> {
    let read = |source: Option<SecretSource>, purpose: &str| -> Result<Option<SecretBytes>, Problem> {
        source.map(|source| engine::group_pin(&source, purpose)).transpose()
    };
    let user = secret::given(
        pins.group_pin_file.as_ref(),
        pins.group_pin_env.as_ref(),
        pins.group_pin_credential.as_ref(),
    );
    let so = secret::given(
        pins.group_so_pin_file.as_ref(),
        pins.group_so_pin_env.as_ref(),
        pins.group_so_pin_credential.as_ref(),
    );
    Ok((read(user, "--group-pin")?, read(so, "--group-so-pin")?))
}

/// `client config`: what the PKCS#11 module reads.
fn client_config(cli: &Cli, sockets: &[PathBuf]) -> Result<(), Problem> {
    let own = if sockets.is_empty() { vec![socket_path(cli)?] } else { sockets.to_vec() };
    let whole: Result<Vec<PathBuf>, _> = own.iter().map(std::path::absolute).collect();
    let whole = whole.map_err(|e| Problem::io("finding the working folder", &e))?;
    print(cli, &output::client_config(&whole))
}

fn recovery_key(path: &PathBuf) -> Result<Vec<u8>, Problem> {
    let shown = path.display();
    let wrong = |why: String| {
        Problem::usage(
            format!("--recovery-key {shown}: {why}"),
            "make one offline: openssl genrsa -out recovery.key 3072; openssl rsa -in recovery.key -pubout -out recovery.pem",
        )
    };
    let given = std::fs::read(path).map_err(|e| wrong(e.to_string()))?;
    match text::from_pem(&given) {
        Some((label, der)) if label == "PUBLIC KEY" => Ok(der),
        Some((label, _)) if label.ends_with("PRIVATE KEY") => {
            Err(wrong("it is a private key; name the public one, and keep this one offline".into()))
        }
        _ => Err(wrong("it is no PEM with a PUBLIC KEY".into())),
    }
}

fn join(cli: &Cli, options: &Join) -> Result<(), Problem> {
    let invitation = engine::read_invitation(&options.invitation)?;
    let config = own_member(cli)?;
    quiet_log()?;
    engine::refuse_occupied(&config)?;
    make_token(&config, &options.token)?;
    let begun = runtime(true)?.block_on(engine::join(&config, invitation))?;
    let text = format!("joined group {} as {}: start it with 'keyraft serve'", begun.group, begun.member);
    print(cli, &View::line(text, begun_json(&begun)))
}

fn check(cli: &Cli) -> Result<(), Problem> {
    let config = own_member(cli)?;
    quiet_log()?;
    let findings = runtime(true)?.block_on(engine::check(&config))?;
    let notes = findings.notes.iter().map(|n| format!("note: {n}"));
    let lines: Vec<String> = findings.errors.iter().map(|e| format!("error: {e}")).chain(notes).collect();
    let mut view = output::findings(&lines);
    view.json = json!({"errors": findings.errors, "notes": findings.notes});
    print(cli, &view)?;
    if findings.errors.is_empty() { Ok(()) } else { Err(command::found(&findings.errors)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recovery_key_must_be_public() {
        let folder = tempfile::tempdir().expect("makes a folder");
        let path = folder.path().join("r.pem");
        std::fs::write(&path, text::to_pem("PUBLIC KEY", &[1])).expect("writes");
        assert_eq!(recovery_key(&path), Ok(vec![1]));
        std::fs::write(&path, text::to_pem("PRIVATE KEY", &[1])).expect("writes");
        let problem = recovery_key(&path).expect_err("is refused");
        assert!(problem.what.contains("keep this one offline"), "{problem}");
        std::fs::write(&path, "x").expect("writes");
        assert!(recovery_key(&path).expect_err("is refused").remedy.contains("openssl"));
    }

    #[test]
    fn a_bad_configuration_ends_with_its_code() {
        let cli =
            Cli::try_parse_from(["keyraft", "status", "--config", "/nonexistent/k.toml"]).expect("parses");
        assert_eq!(dispatch(&cli).expect_err("is refused").exit, Exit::Config);
    }

    #[test]
    fn nobody_at_the_socket_is_unreachable() {
        for line in ["status", "check", "recover", "key list", "coverage"] {
            let words = ["keyraft", "--socket", "/nonexistent/k.sock"].into_iter().chain(line.split(' '));
            let cli = Cli::try_parse_from(words).expect("parses");
            assert_eq!(dispatch(&cli).expect_err(line).exit, Exit::Unreachable);
        }
    }
}
