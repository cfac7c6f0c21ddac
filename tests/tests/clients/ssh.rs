//! OpenSSH: keys of the token by ssh-keygen and ssh-agent, and a certification authority in the token.

use keyraft_tests::clients::{Battery, compare, finish, good, says, start};
use keyraft_tests::group::Ended;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn openssh() {
    compare("OpenSSH", battery).await;
}

/// Asks for no PIN at a terminal: a program of ours says it.
fn ssh(b: &Battery<'_>, program: &str, words: &str) -> Result<Ended, String> {
    let mut command = b.command(program);
    command.env("SSH_ASKPASS", b.path("ask")).env("SSH_ASKPASS_REQUIRE", "force");
    command.env("SSH_AUTH_SOCK", b.path("agent")).args(b.words(words));
    good(finish(command)?)
}

fn battery(b: &mut Battery<'_>) {
    b.file("data", "what is signed");
    let ask = b.file("ask", format!("#!/bin/sh\necho {}\n", b.target.pin));
    std::fs::set_permissions(ask, std::fs::Permissions::from_mode(0o700)).expect("is our file");
    let module = b.target.module.display().to_string();
    let kinds =
        [("rsa:2048", "01", "rsa"), ("EC:prime256v1", "02", "ec256"), ("EC:secp384r1", "03", "ec384")];
    for (kind, id, label) in kinds {
        b.step(&format!("a key made by pkcs11-tool: {label}"), |b| {
            let token = format!("--module {module} --token-label {}", b.target.label);
            let key = format!("--keypairgen --key-type {kind} --id {id} --label {label} --usage-sign");
            b.go("pkcs11-tool", &format!("{token} --login --pin {} {key}", b.target.pin)).map(drop)
        });
    }
    b.step("ssh-keygen -D", |b| {
        let said = ssh(b, "ssh-keygen", &format!("-D {module}"))?;
        for (_, _, label) in kinds {
            let Some(line) = said.out.lines().find(|line| line.ends_with(&format!(" {label}"))) else {
                return Err(format!("{label} is not shown: {}", said.said()));
            };
            b.file(&format!("{label}.pub"), format!("{line}\n"));
        }
        Ok(())
    });
    b.step("a certificate signed by the token", |b| {
        new_user(b)?;
        ssh(b, "ssh-keygen", &format!("-s @ec256.pub -D {module} -I id -n me @user.pub"))?;
        says(&ssh(b, "ssh-keygen", "-L -f @user-cert.pub")?, "using ecdsa-sha2-nistp256")
    });
    let mut agent = begin_agent(b);
    with_agent(b, &module, &kinds.map(|(_, _, label)| label));
    agent.kill().and_then(|()| agent.wait()).expect("the agent can be ended");
}

/// A key pair without a passphrase, which takes an empty word.
fn new_user(b: &Battery<'_>) -> Result<Ended, String> {
    b.run("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", &b.path("user")])
}

fn begin_agent(b: &Battery<'_>) -> Child {
    let mut agent = b.command("ssh-agent");
    // Modules outside of /usr/lib must be named.
    agent.args(b.words("-D -a @agent -P /*"));
    let child = start(agent, Path::new(&b.path("agent.out")), Path::new(&b.path("agent.err")));
    for _ in 0..200 {
        if Path::new(&b.path("agent")).exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

fn with_agent(b: &mut Battery<'_>, module: &str, labels: &[&str]) {
    b.step("ssh-add -s", |b| ssh(b, "ssh-add", &format!("-s {module}")).map(drop));
    b.step("ssh-add -L", |b| {
        let said = ssh(b, "ssh-add", "-L")?;
        labels.iter().try_for_each(|label| says(&said, label))
    });
    for label in labels {
        b.step(&format!("ssh-add -T: {label}"), |b| ssh(b, "ssh-add", &format!("-T @{label}.pub")).map(drop));
        b.step(&format!("ssh-keygen -Y sign: {label}"), |b| {
            let public = b.read(&format!("{label}.pub"))?;
            b.file("allowed", format!("me {}", String::from_utf8_lossy(&public)));
            let _ = std::fs::remove_file(b.path("data.sig"));
            ssh(b, "ssh-keygen", &format!("-Y sign -n file -f @{label}.pub @data"))?;
            let mut check = b.command("ssh-keygen");
            check.args(b.words("-Y verify -n file -f @allowed -I me -s @data.sig"));
            check.stdin(std::fs::File::open(b.path("data")).map_err(|error| error.to_string())?);
            says(&good(finish(check)?)?, "Good \"file\" signature")
        });
    }
    b.step("a certificate signed through the agent", |b| {
        let _ = std::fs::remove_file(b.path("user-cert.pub"));
        ssh(b, "ssh-keygen", "-U -s @rsa.pub -I id -n me @user.pub")?;
        says(&ssh(b, "ssh-keygen", "-L -f @user-cert.pub")?, "Signing CA: RSA")
    });
    b.step("the token's keys leave the agent and come again", |b| {
        ssh(b, "ssh-add", &format!("-e {module}"))?;
        ssh(b, "ssh-add", &format!("-s {module}"))?;
        ssh(b, "ssh-add", &format!("-T @{}.pub", labels[0])).map(drop)
    });
}
