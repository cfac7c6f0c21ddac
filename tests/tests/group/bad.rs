//! Bad input: a clear error, the exit code of the table, nothing changed.

use keyraft_engine::domain::KeyAlgorithm;
use keyraft_node::exit::Exit;
use keyraft_tests::TokenKind::{Embedded, SoftHsm};
use keyraft_tests::group::write_private;
use keyraft_tests::keys::{create_at, list};
use keyraft_tests::{Group, eventually, turn};

#[tokio::test]
async fn bad_input_is_named_and_changes_nothing() {
    let _turn = turn().await;
    let group = Group::form(&[Embedded]).await;
    let socket = &group.members[0].socket;
    create_at(socket, "twice", KeyAlgorithm::Aes { bits: 256 }).await.expect("is made");
    create_at(socket, "twice", KeyAlgorithm::Aes { bits: 256 }).await.expect("is made");
    create_at(socket, "pair", "ec:p256".parse().expect("is a kind")).await.expect("is made");
    let file = |name: &str, text: &str| {
        write_private(&group.path(name), text);
        group.path(name).display().to_string()
    };
    let short = file("short", "0123456789");
    let no_pem = file("no-pem", "-----BEGIN CERTIFICATE-----\nAQI=\n-----END CERTIFICATE-----\n");
    let empty = file("empty", "");
    let odd = file("odd", "abc");
    let torn = file("torn", "keyraft-invitation-torn");
    let signature = file("signature", "MAA=");
    let missing = group.path("missing").display().to_string();
    let mut before = (list(socket).await, group.status(0).await.options);

    let table: &[(&[&str], Exit, &str)] = &[
        (&["fly"], Exit::Usage, "unrecognized subcommand"),
        (&["key", "create", "ec:p999"], Exit::Usage, "ec:p256"),
        (&["key", "create", "secret:0"], Exit::Usage, "1 to"),
        (&["key", "create", "rsa:1024"], Exit::Usage, "rsa:2048"),
        (&["key", "create", "aes:256", "--id", "xyz"], Exit::Usage, "hexadecimal"),
        (&["key", "create", "aes:256", "--label", ""], Exit::Usage, "plain text"),
        (&["key", "create", "aes:256", "--only", "fly"], Exit::Usage, "possible values"),
        (&["key", "import", "aes:256", "--in", &short], Exit::Usage, "no key of this kind"),
        (&["key", "import", "aes:256", "--in", &empty], Exit::Usage, "no value"),
        (&["key", "import", "aes:256", "--in", &missing], Exit::Usage, "missing"),
        (&["key", "import", "aes:256", "--in", &odd, "--encoding", "hex"], Exit::Usage, "hex"),
        (&["key", "import", "aes:256", "--in", &short, "--public"], Exit::Usage, "--public"),
        (&["key", "import", "rsa:2048", "--in", &no_pem], Exit::Usage, "PRIVATE KEY"),
        (&["key", "import", "rsa:2048", "--in", &short], Exit::Usage, "PKCS#8"),
        (&["key", "import", "ec:p256", "--public", "--in", &short], Exit::Usage, "SubjectPublicKeyInfo"),
        (&["key", "show", "nobody"], Exit::NotFound, "key list"),
        (&["key", "show", "999999"], Exit::NotFound, "key list"),
        (&["key", "delete", "nobody"], Exit::NotFound, "key list"),
        (&["key", "delete", "999999"], Exit::NotFound, "key list"),
        (&["key", "delete", "twice"], Exit::Usage, "object id"),
        (&["key", "sign", "twice", "--in", &short], Exit::Usage, "object id"),
        (&["key", "sign", "pair", "--mechanism", "md5", "--in", &short], Exit::Usage, "ecdsa-sha256"),
        (&["key", "sign", "pair", "--mechanism", "aes-gcm", "--in", &short], Exit::Usage, "ecdsa-sha256"),
        (
            &["key", "sign", "pair", "--mechanism", "rsa-pss-sha256", "--in", &short],
            Exit::Refused,
            "mechanism",
        ),
        (&["key", "sign", "pair", "--at", "m9", "--in", &short], Exit::NotFound, "member list"),
        (&["key", "sign", "pair", "--in", &missing], Exit::Usage, "missing"),
        (&["key", "encrypt", "pair", "--in", &short], Exit::Usage, "does not encrypt"),
        (&["key", "verify", "pair", "--signature", &short, "--in", &short], Exit::Usage, "base64"),
        (&["key", "verify", "pair", "--signature", &signature, "--in", &short], Exit::Usage, "raw"),
        (&["key", "list", "--limit", "0"], Exit::Usage, "1..=1000000"),
        (&["member", "remove", "m0"], Exit::Usage, "member list"),
        (&["member", "remove", "m9"], Exit::NotFound, "m9"),
        (
            &["member", "remove", "m1"],
            Exit::Refused,
            "m1 ('a') is the primary: hand over with 'keyraft step-down'",
        ),
        (&["option", "set", "partial_keys", "maybe"], Exit::Usage, "refuse or allow"),
        (&["option", "set", "fly", "true"], Exit::Usage, "partial_keys"),
        (&["step-down", "--to", "m9"], Exit::Refused, "status"),
        (&["step-down"], Exit::Refused, "nobody to hand over to"),
        (&["invite", "--life", "0"], Exit::Usage, "1..="),
        (&["status", "--deadline", "0"], Exit::Usage, "1..=3600"),
        (&["status", "--socket", &missing], Exit::Unreachable, "no member answers"),
        (&["status", "--config", &missing], Exit::Config, "config example"),
        (&["status", "--config", &short], Exit::Config, "not TOML"),
        (&["init"], Exit::Refused, "a member lives in"),
        (&["init", "--create-token"], Exit::Refused, "a member lives in"),
        (&["init", "--recovery-key", &short], Exit::Usage, "openssl genrsa"),
        (&["init", "--so-pin-file", &short], Exit::Usage, "--create-token"),
        (&["join", &missing], Exit::Usage, "keyraft invite"),
        (&["join", &torn], Exit::Usage, "keyraft invite"),
    ];
    let mut wrong = Vec::new();
    for (words, exit, says) in table {
        let ended = group.run(0, words).await;
        if ended.code != i32::from(exit.code()) || !ended.err.contains(says) {
            wrong.push(format!(
                "'keyraft {}' is to end with {} and to say '{says}', but ended with {}:\n{}",
                words.join(" "),
                exit.code(),
                ended.code,
                ended.said()
            ));
        }
        let after = (list(socket).await, group.status(0).await.options);
        if after != before {
            wrong.push(format!("'keyraft {}' changed something: {after:?}", words.join(" ")));
            before = after;
        }
    }
    assert!(wrong.is_empty(), "{} of {} lines:\n{}", wrong.len(), table.len(), wrong.join("\n"));
}

#[tokio::test]
async fn commands_about_a_healthy_group_succeed() {
    let _turn = turn().await;
    let group = Group::form(&[Embedded]).await;
    // A member that has just started waits for the group's word.
    eventually(async || match group.run(0, &["check"]).await {
        ended if ended.code == 0 => Ok(()),
        ended => Err(ended.said()),
    })
    .await;
    for words in [
        &["status"][..],
        &["check"],
        &["coverage"],
        &["synchronize"],
        &["recover"],
        &["member", "list"],
        &["option", "show"],
        &["key", "list"],
    ] {
        group.json(0, words).await;
    }
}

#[tokio::test]
async fn a_token_that_exists_is_not_made_again_and_the_refusal_says_what_to_do() {
    let _turn = turn().await;
    let group = Group::prepare(&[Embedded, SoftHsm]);
    let so_pin = group.path("so-pin").display().to_string();
    for (index, kind) in [Embedded, SoftHsm].into_iter().enumerate() {
        let member = &group.members[index];
        let make = ["init", "--create-token", "--so-pin-file", &so_pin];
        group.json(index, &make).await;
        // The first try left a token and, say, a broken store; the person begins again.
        for entry in std::fs::read_dir(member.data()).expect("lists") {
            let path = entry.expect("lists").path();
            match path.is_dir() {
                true if path == member.token(kind) => {}
                true => std::fs::remove_dir_all(path).expect("is removed"),
                false => std::fs::remove_file(path).expect("is removed"),
            }
        }
        let ended = group.run(index, &make).await;
        assert_eq!(ended.code, i32::from(Exit::Refused.code()), "{}", ended.said());
        for says in ["already, and a token is never overwritten", "leave --create-token out"] {
            assert!(ended.err.contains(says), "{}", ended.said());
        }
        group.json(index, &["init"]).await;
    }
}
