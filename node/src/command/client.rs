//! Commands about applications that prove themselves by a certificate.

use super::done;
use crate::caller::{Ask, Caller, repeat, status, unexpected};
use crate::cli::ClientCommand;
use crate::exit::{Exit, Problem};
use crate::output::{self, View};
use crate::text::to_pem;
use keyraft_engine::domain::{ApplicationName, LogIndex};
use keyraft_engine::transport::pki;
use keyraft_engine::wire::{Answer, ClientRequest, Remedy};
use serde_json::json;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

const KEY: &str = "key.pem";
const CERTIFICATE: &str = "certificate.pem";
const AUTHORITY: &str = "authority.pem";
const CONFIG: &str = "client.toml";

pub(super) async fn run(ask: &dyn Ask, limit: Duration, command: &ClientCommand) -> Result<View, Problem> {
    match command {
        ClientCommand::Add { name, out } => add(ask, limit, name, out).await,
        ClientCommand::List => match repeat(ask, limit, || ClientRequest::Clients).await? {
            Answer::Clients(clients) => Ok(output::clients(&clients)),
            other => Err(unexpected(&other)),
        },
        ClientCommand::Remove { name } => {
            let caller = Caller::born(ask, limit, LogIndex(0))?;
            done(&caller, || ClientRequest::RemoveClient(name.clone())).await?;
            Ok(View::done(format!("the client {name} is removed: members refuse it from now on")))
        }
        // `run` of the crate's root keeps it to itself.
        ClientCommand::Config { .. } => Err(Problem::usage("this command needs no running member", "")),
    }
}

/// The key is made here and goes nowhere else; the group signs a certificate for it.
async fn add(ask: &dyn Ask, limit: Duration, name: &ApplicationName, out: &Path) -> Result<View, Problem> {
    let addresses: Vec<String> =
        status(ask, limit).await?.members.into_iter().map(|member| member.address).collect();
    let (certificate, authority) = certify(ask, limit, name, out).await?;
    write_new(&out.join(CERTIFICATE), to_pem("CERTIFICATE", &certificate).as_bytes(), 0o644)?;
    write_new(&out.join(AUTHORITY), to_pem("CERTIFICATE", &authority).as_bytes(), 0o644)?;
    write_new(&out.join(CONFIG), config(&addresses).as_bytes(), 0o644)?;
    let text = format!(
        "the client {name} is added: carry {} to its machine by a way that keeps {KEY} secret, and let KEYRAFT_CONFIG \
         name its {CONFIG} there",
        out.display()
    );
    Ok(View::line(text, json!({"client": name.to_string(), "folder": out, "members": addresses})))
}

/// Makes and keeps the key; gives the certificate for it and the authority's.
async fn certify(
    ask: &dyn Ask,
    limit: Duration,
    name: &ApplicationName,
    out: &Path,
) -> Result<(Vec<u8>, Vec<u8>), Problem> {
    let pki_problem = |error: pki::PkiError| Problem::new(Exit::Unexpected, error, "try again");
    let key = pki::new_tls_key().map_err(pki_problem)?;
    let request = pki::signing_request(&key).map_err(pki_problem)?;
    let key = zeroize::Zeroizing::new(to_pem("PRIVATE KEY", &key));
    // Before anybody is asked: a client whose key cannot be kept must not come to be.
    folder(out)?;
    write_new(&out.join(KEY), key.as_bytes(), 0o600)?;
    let make = || ClientRequest::AddClient { name: name.clone(), signing_request: request.clone() };
    match repeat(ask, limit, make).await {
        Ok(Answer::Certified { certificate, authority }) => Ok((certificate, authority)),
        Ok(other) => Err(unexpected(&other)),
        Err(failure) if failure.remedy() == Remedy::GiveUp => {
            // Nothing was done, and the key is of no use without a certificate.
            let _ = fs::remove_file(out.join(KEY));
            Err(failure.into())
        }
        Err(failure) => {
            let mut problem = Problem::from(failure);
            problem.remedy = format!(
                "it may have happened: see 'keyraft client list'; 'keyraft client remove {name}', then add it again"
            );
            Err(problem)
        }
    }
}

/// What the PKCS#11 module reads. Paths are relative to the file.
fn config(addresses: &[String]) -> String {
    let list: Vec<String> = addresses.iter().map(|address| json!(address).to_string()).collect();
    format!(
        "[[group]]\nmembers = [{}]\ncertificate = \"{CERTIFICATE}\"\nkey = \"{KEY}\"\nauthority = \"{AUTHORITY}\"\n",
        list.join(", ")
    )
}

fn folder(path: &Path) -> Result<(), Problem> {
    if path.is_dir() {
        for name in [KEY, CERTIFICATE, AUTHORITY, CONFIG] {
            if path.join(name).exists() {
                return Err(Problem::usage(
                    format!("{} exists: it may be another client's", path.join(name).display()),
                    "name another folder by --out",
                ));
            }
        }
        return Ok(());
    }
    let made = fs::DirBuilder::new().mode(0o700).create(path);
    made.map_err(|e| Problem::io(format_args!("making {}", path.display()), &e))
}

fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Problem> {
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = file.and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(|e| Problem::io(format_args!("writing {}", path.display()), &e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::BoxFuture;
    use keyraft_engine::wire::{Failure, FailureKind};
    use std::os::unix::fs::PermissionsExt;

    /// A group that adds nobody.
    struct Full;

    impl Ask for Full {
        fn ask(&self, request: ClientRequest, _: Duration) -> BoxFuture<'_, Result<Answer, Failure>> {
            assert!(matches!(request, ClientRequest::AddClient { .. }));
            Box::pin(async move { Err(Failure::new(FailureKind::Refused, "no")) })
        }
    }

    #[test]
    fn the_files_are_new_and_the_key_is_private() {
        let folder_of = tempfile::tempdir().expect("makes a folder");
        let out = folder_of.path().join("web");
        folder(&out).expect("makes it");
        assert_eq!(fs::metadata(&out).expect("is there").permissions().mode() & 0o777, 0o700);
        write_new(&out.join(KEY), b"secret", 0o600).expect("writes");
        assert_eq!(fs::metadata(out.join(KEY)).expect("is there").permissions().mode() & 0o777, 0o600);
        assert!(write_new(&out.join(KEY), b"other", 0o600).is_err(), "never over another's key");
        assert!(folder(&out).expect_err("is another client's").what.contains(KEY));
    }

    #[test]
    fn the_configuration_names_every_member() {
        let text = config(&["a:1".into(), "b:2".into()]);
        let read: toml::Table = text.parse().expect("is TOML");
        let group = &read["group"][0];
        assert_eq!(group["members"].as_array().map(Vec::len), Some(2));
        assert_eq!(group["key"].as_str(), Some("key.pem"));
    }

    #[tokio::test]
    async fn who_is_refused_leaves_nothing_behind() {
        let folder_of = tempfile::tempdir().expect("makes a folder");
        let out = folder_of.path().join("web");
        let name = "web".parse().expect("a name");
        assert!(certify(&Full, Duration::from_secs(1), &name, &out).await.is_err());
        assert!(out.is_dir() && !out.join(KEY).exists());
    }
}
