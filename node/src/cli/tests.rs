use super::*;
use clap::{CommandFactory, error::ErrorKind};

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(std::iter::once("keyraft").chain(line.split(' ')))
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
    assert!(Cli::command().render_help().to_string().contains("no member answers"));
}

#[test]
fn good_lines() {
    for line in [
        "init --create-token --so-pin-file so --label group --recovery-key r.pem",
        "init --group-pin-file p --group-so-pin-env SO",
        "pin set --role user --pin-file p",
        "pin set --role so --pin-credential so",
        "client config",
        "client config /run/a.sock /run/b.sock",
        "invite --life 60",
        "join invitation.txt --create-token",
        "serve --config a.toml",
        "status --json",
        "check",
        "key create ec:p256 --label x --id 0a --extractable --no-sensitive --only sign,verify",
        "key import aes:256 --in k --encoding hex --label y",
        "key import certificate --in c.pem",
        "key list --label x --limit 5",
        "key show 7 --pem",
        "key delete x",
        "key sign x --mechanism ecdsa-sha384 --in d --out s --format raw --encoding hex --at m2",
        "key verify x --signature s --in d",
        "key encrypt x --aad a",
        "key decrypt 3 --mechanism rsa-oaep",
        "member list",
        "member remove m2",
        "member add-standby --life 60",
        "member standby m2",
        "member activate 2",
        "member recover m2",
        "recovery-mode manual",
        "recovery-mode auto --retries -1 --interval 60",
        "option set auto_recovery -1,60",
        "member priority m2 1",
        "option show",
        "option set partial_keys allow",
        "synchronize",
        "coverage",
        "step-down --to 3",
        "recover",
        "recover --create-token --so-pin-file so",
        "config example",
        "demo --members 5 --dir d --keep --token libsofthsm2.so --label l --pin 1234 --so-pin 5678",
    ] {
        parse(line).unwrap_or_else(|e| panic!("{line}: {e}"));
    }
}

#[test]
fn bad_lines_are_usage_errors_that_say_what_to_do() {
    for (line, says) in [
        ("key create ec:p999", "use aes:128"),
        ("key create ec:p256 --id xyz", "0a1b2c"),
        ("key create ec:p256 --only fly", "possible values"),
        ("key import nothing", "certificate"),
        ("key sign x --mechanism md5", "ecdsa-sha256"),
        ("key sign x --at none", "member list"),
        ("key list --limit 0", "1..=1000000"),
        ("member remove m0", "member list"),
        ("member standby m0", "member list"),
        ("recovery-mode never", "possible values"),
        ("recovery-mode auto --retries -2", "-1..=500"),
        ("recovery-mode auto --interval 0", "1..=86400"),
        ("demo --members 2", "3..=7"),
        ("demo --pin 12", "4 to 255"),
        ("init --so-pin-file x", "--create-token"),
        ("init --group-pin-file x --group-pin-env Y", "cannot be used with"),
        ("pin set --role user", "--pin-file"),
        ("invite --life 0", "1..="),
        ("status --deadline 0", "1..=3600"),
        ("fly", "unrecognized"),
    ] {
        let error = parse(line).expect_err(line);
        assert_ne!(error.kind(), ErrorKind::DisplayHelp);
        assert_eq!(error.exit_code(), i32::from(Exit::Usage.code()));
        assert!(error.to_string().contains(says), "{line}: {error}");
    }
}
