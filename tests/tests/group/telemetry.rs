//! What a group tells of itself: numbers and health over the monitor's port, the last operations of clients, a status that
//! says what is wrong, and a drill that loses nothing.

use super::clients::a_client;
use keyraft_node::exit::Exit;
use keyraft_tests::TokenKind::{self, Embedded, SoftHsm};
use keyraft_tests::group::free_port;
use keyraft_tests::told::{Told, application, program};
use keyraft_tests::{Group, eventually, turn};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

/// A group whose members have a monitor's port each.
async fn watched(kinds: &[TokenKind]) -> (Group, Vec<SocketAddr>) {
    let mut group = Group::prepare(kinds);
    let ports: Vec<SocketAddr> =
        kinds.iter().map(|_| SocketAddr::from(([127, 0, 0, 1], free_port()))).collect();
    for (member, port) in group.members.iter().zip(&ports) {
        let path = member.folder.join("keyraft.toml");
        let text = std::fs::read_to_string(&path).expect("reads the configuration");
        let text = text.replace("[token]", &format!("metrics = \"{port}\"\n[token]"));
        std::fs::write(&path, text).expect("writes the configuration");
    }
    group.begin().await;
    (group, ports)
}

/// One request; the status and the body. Errors are for `eventually`.
fn ask(port: SocketAddr, line: &str) -> Result<(u16, String), String> {
    let limit = Duration::from_secs(5);
    let talk = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&port, limit)?;
        stream.set_read_timeout(Some(limit))?;
        // It asks to keep the connection, and reads until the port ends it.
        write!(stream, "{line} HTTP/1.1\r\nhost: monitor\r\nconnection: keep-alive\r\n\r\n")?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        Ok(said)
    };
    let said = talk().map_err(|error| format!("{port}: {error}"))?;
    let (head, body) = said.split_once("\r\n\r\n").ok_or_else(|| format!("no HTTP: {said}"))?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    Ok((status.ok_or_else(|| format!("no status: {head}"))?, body.to_string()))
}

fn health(port: SocketAddr) -> Result<(u16, Value), String> {
    let (status, body) = ask(port, "GET /healthz")?;
    let value = serde_json::from_str(&body).map_err(|error| format!("{error}: {body}"))?;
    Ok((status, value))
}

/// Every sample of a scrape: name with labels, value. Panics over what Prometheus would not read.
fn numbers(port: SocketAddr) -> BTreeMap<String, f64> {
    let (status, text) = ask(port, "GET /metrics").expect("answers");
    assert_eq!(status, 200, "{text}");
    let mut types = BTreeMap::new();
    let mut samples = BTreeMap::new();
    for line in text.lines() {
        if let Some(described) = line.strip_prefix("# TYPE ") {
            let (name, kind) = described.split_once(' ').expect("a name and a type");
            assert!(types.insert(name.to_string(), kind.to_string()).is_none(), "{name} is described twice");
        } else if !line.starts_with('#') {
            let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
            let plain = name.split('{').next().unwrap_or_default();
            let known = ["", "_bucket", "_sum", "_count"]
                .iter()
                .any(|suffix| plain.strip_suffix(suffix).is_some_and(|family| types.contains_key(family)));
            assert!(known && plain.starts_with("keyraft_"), "{line} has no type");
            let value = value.parse().unwrap_or_else(|e| panic!("{line}: {e}"));
            assert!(samples.insert(name.to_string(), value).is_none(), "{name} is there twice");
        }
    }
    samples
}

fn signs(port: SocketAddr) -> f64 {
    numbers(port)["keyraft_operations_total{kind=\"sign\",result=\"ok\"}"]
}

async fn sign(group: &Group, at: usize, key: &str) {
    let data = group.path("data");
    std::fs::write(&data, "data").expect("writes");
    let ended = group.run(at, &["key", "sign", key, "--in", &data.display().to_string()]).await;
    assert_eq!(ended.code, 0, "{}", ended.said());
}

#[tokio::test]
async fn monitors_see_numbers_and_health() {
    let _turn = turn().await;
    let (mut group, ports) = watched(&[Embedded, SoftHsm, Embedded]).await;
    group.json(0, &["key", "create", "ec:p256", "--label", "secret-label"]).await;
    let before = signs(ports[1]);
    sign(&group, 1, "secret-label").await;
    sign(&group, 1, "secret-label").await;
    let after = numbers(ports[1]);
    assert_eq!(after["keyraft_operations_total{kind=\"sign\",result=\"ok\"}"], before + 2.0);
    assert_eq!(after["keyraft_operation_seconds_count{kind=\"sign\"}"], before + 2.0);
    assert_eq!((after["keyraft_members"], after["keyraft_members_in_sync"]), (3.0, 3.0));
    assert_eq!((after["keyraft_serving"], after["keyraft_token_healthy"]), (1.0, 1.0));
    assert_eq!(after["keyraft_objects"], 2.0);
    assert!(after["keyraft_token_calls_total"] > 2.0 && after["keyraft_imports_total{result=\"ok\"}"] >= 1.0);
    assert!(after["keyraft_applied_index"] > 1.0 && after["keyraft_term"] >= 1.0);
    let primaries: f64 = ports.iter().map(|port| numbers(*port)["keyraft_is_primary"]).sum();
    assert_eq!(primaries, 1.0);
    let text = ask(ports[1], "GET /metrics").expect("answers").1;
    assert!(!text.contains("secret-label"), "labels of keys are nobody's business: {text}");
    for (line, status) in
        [("GET /", 404), ("GET /metrics/x", 404), ("POST /metrics", 405), ("PUT /healthz", 405)]
    {
        assert_eq!(ask(ports[0], line).expect("answers").0, status, "{line}");
    }
    let (status, body) = health(ports[1]).expect("answers");
    assert_eq!((status, &body["serving"]), (200, &Value::Bool(true)), "{body}");
    assert_eq!(body["standby"], false, "{body}");
    let shown = group.json(0, &["status"]).await;
    assert_eq!(shown["well"], true, "{shown}");
    assert!(shown["members"][1]["operations_per_second"].is_number(), "{shown}");

    // The token of one member goes: its monitor and everybody's status say so.
    let tokens = group.members[1].token(SoftHsm);
    std::fs::remove_dir_all(&tokens).expect("is removed");
    std::fs::create_dir(&tokens).expect("is made");
    eventually(async || match health(ports[1])? {
        (503, body) if body["reason"].as_str().is_some_and(|why| why.contains("token")) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    assert_eq!(numbers(ports[1])["keyraft_token_healthy"], 0.0);
    assert!(group.members[1].log().contains("KR1201"), "{}", group.members[1].log());
    let ended = group.run(0, &["status"]).await;
    assert_eq!(ended.code, 0, "{}", ended.said());
    assert!(ended.out.starts_with("SOMETHING IS WRONG: 2 of 3 members serve keys"), "{}", ended.out);
    let lost = group.members[1].id;
    assert!(ended.out.contains(&format!("the token of {lost} ('b') failed")), "{}", ended.out);

    // A member that has just started, and hears of nobody, does not serve at once.
    for index in 0..3 {
        group.kill(index);
    }
    group.start(0).await;
    let (status, body) = eventually(async || health(ports[0])).await;
    assert_eq!(status, 503, "{body}");
    assert!(body["reason"].as_str().is_some_and(|why| why.contains("the group's word")), "{body}");
    eventually(async || match health(ports[0])? {
        (200, _) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

#[tokio::test]
async fn the_last_operations_are_explained() {
    let _turn = turn().await;
    let group = Group::form(&[Embedded; 3]).await;
    let folder = a_client(&group).await;
    let mut told = Told::start(application(Command::new(program()), &folder, "talk"));
    let session = told.good("open");
    told.good(&format!("login {session}"));
    let key = told.good(&format!("ec {session} token web-key"));
    told.good(&format!("sign {session} {key}"));
    sign(&group, 1, "web-key").await;
    let missing = group.run(2, &["key", "show", "4711"]).await;
    assert_eq!(missing.code, i32::from(Exit::NotFound.code()), "{}", missing.said());

    // Whichever member is asked, it asks all.
    for at in 0..3 {
        let all = group.json(at, &["explain", "--client", "web", "--last", "100"]).await;
        let rows = all["operations"].as_array().expect("a list").clone();
        let times: Vec<&str> = rows.iter().filter_map(|row| row["time"].as_str()).collect();
        assert!(times.is_sorted(), "{all}");
        assert!(rows.iter().all(|row| row["client"] == "client:web" && row["try"] == 1), "{all}");
        let one = |what: &str| {
            rows.iter().find(|row| row["what"] == what).unwrap_or_else(|| panic!("{what}: {all}"))
        };
        let signed = one("sign");
        assert_eq!(
            (&signed["mechanism"], &signed["result"]),
            (&"CKM_ECDSA".into(), &"CKR_OK".into()),
            "{all}"
        );
        assert_eq!(signed["object"].to_string(), key, "{all}");
        assert!(signed["micros"].as_u64().is_some_and(|micros| micros > 0), "{all}");
        let primary = group.status(at).await.primary.map(|m| m.to_string()).expect("there is a primary");
        assert_eq!(one("login")["by"], primary.as_str(), "{all}");
        assert_eq!(all["silent"], Value::Array(vec![]), "{all}");
    }
    let own = group.json(0, &["explain"]).await;
    let rows = own["operations"].as_array().expect("a list");
    let failed = rows.last().expect("there is one");
    assert_eq!((&failed["what"], &failed["object"]), (&"read".into(), &4711.into()), "{own}");
    assert_eq!(failed["result"], "CKR_OBJECT_HANDLE_INVALID", "{own}");
    assert!(failed["reason"].as_str().is_some_and(|why| why.contains("4711")), "{own}");
    let text = group.run(0, &["explain", "--last", "1"]).await;
    assert!(text.out.starts_with("TIME") && text.out.lines().count() == 2, "{}", text.out);
}

#[tokio::test]
async fn a_drill_loses_nothing() {
    let _turn = turn().await;
    let mut group = Group::form(&[Embedded; 3]).await;
    let before = group.status(0).await;
    let drilled = group.json(0, &["drill", "--seconds", "6"]).await;
    assert_eq!((&drilled["lost"], &drilled["moved"]), (&0.into(), &true.into()), "{drilled}");
    assert_ne!(drilled["primary"], drilled["primary_before"], "{drilled}");
    for load in ["signatures", "changes"] {
        assert!(drilled[load]["done"].as_u64().is_some_and(|done| done > 10), "{drilled}");
    }
    println!("drill: {drilled}");
    let after = group.status(1).await;
    assert_eq!(after.objects, before.objects, "the drill's keys are gone");
    assert!(after.term > before.term, "the primary moved");

    group.kill(2);
    group.wait_so_many_in_sync(2).await;
    let refused = group.run(0, &["drill", "--seconds", "2"]).await;
    assert_eq!(refused.code, i32::from(Exit::Refused.code()), "{}", refused.said());
    assert!(refused.err.contains("out of sync") && refused.err.contains("--force"), "{}", refused.said());
    let forced = group.json(0, &["drill", "--seconds", "3", "--force"]).await;
    assert_eq!(forced["lost"], 0, "{forced}");
}
