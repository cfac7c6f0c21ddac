//! Crashes, strangers, half-written objects, tokens that go away.

use crate::bench::{
    Bench, G1, GROUP, Group, LeftKey, PIN, SOFTHSM, asked, case, group, name, record, spawn, verdict,
};
use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::object::Attribute;
use cryptoki::session::UserType;
use keyraft_engine::domain::{Curve, KeyAlgorithm, ObjectId, Residency, Version};
use keyraft_engine::token::{SmkPresence, Token, TokenConfig, TokenVerdict};
use std::path::{Path, PathBuf};
use std::time::Duration;

const P256: KeyAlgorithm = KeyAlgorithm::Ec(Curve::P256);

fn objects(bench: &Bench) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for token in std::fs::read_dir(bench.folder.join("softhsm")).expect("SoftHSM's folder") {
        let token = token.expect("an entry").path();
        for file in std::fs::read_dir(token).expect("a token's folder") {
            let file = file.expect("an entry").path();
            if file.extension().is_some_and(|e| e == "object") && !file.ends_with("token.object") {
                found.push(file);
            }
        }
    }
    found
}

/// A SoftHSM object file that a crash left: a class, CKA_TOKEN=false, nothing else.
fn half_written(folder: &Path, name: &str) {
    let mut bytes = 1u64.to_be_bytes().to_vec();
    for (attribute, kind) in [(0u64, 2u64), (1, 1), (2, 1)] {
        bytes.extend(attribute.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        match kind {
            2 => bytes.extend(4u64.to_be_bytes()),
            _ => bytes.push(0),
        }
    }
    std::fs::write(folder.join(format!("{name}.object")), bytes).expect("an object file");
    std::fs::write(folder.join(format!("{name}.lock")), "").expect("its lock file");
}

/// Makes an object of somebody else's.
fn stranger(label: &str) {
    let library = Pkcs11::new(SOFTHSM).expect("SoftHSM");
    library.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)).expect("C_Initialize");
    for slot in library.get_slots_with_initialized_token().expect("slots") {
        if library.get_token_info(slot).expect("token info").label() == label {
            let session = library.open_rw_session(slot).expect("a session");
            session.login(UserType::User, Some(&PIN.into())).expect("a login");
            let data = [
                Attribute::Class(cryptoki::object::ObjectClass::DATA),
                Attribute::Token(true),
                Attribute::Label(b"not keyraft's".to_vec()),
                Attribute::Value(b"precious".to_vec()),
            ];
            session.create_object(&data).expect("a stranger's object");
        }
    }
}

// The steps of the next case, each in a process of its own.
case!(half_written_objects_go_and_strangers_stay, |bench: Bench| async move {
    let step = std::fs::read_to_string(bench.folder.join("step")).unwrap_or_default();
    let next = |step: &str| {
        std::fs::write(bench.folder.join("step"), step).expect("a note");
        let name = "faults::half_written_objects_go_and_strangers_stay";
        assert!(spawn(name, &bench.folder).wait().expect("a next process").success());
    };
    let config = || bench.softhsm("soft", Residency::Token);
    match step.as_str() {
        "" => {
            let Group { tokens, .. } = group(vec![config()]).await;
            let made = tokens[0].originate(G1, P256, &asked(P256)).await.expect("a key");
            let record = record(P256, &asked(P256), &made);
            tokens[0].import(name(1), &record, made.wrapped.as_ref()).await.expect("an import");
            next("stranger");
        }
        "stranger" => {
            stranger("soft");
            let folder = objects(&bench)[0].parent().expect("a token's folder").to_path_buf();
            half_written(&folder, "00000000-0000-0000-0000-000000000001");
            half_written(&folder, "00000000-0000-0000-0000-000000000002");
            let before = objects(&bench).len();
            next("sweep");
            assert_eq!(objects(&bench).len(), before - 2, "the two half-written objects went, nothing else");
        }
        _ => {
            let token = Token::open(config()).expect("the token opens");
            // Bound to another group, or to none: whole objects are never touched.
            token.bind(GROUP);
            let found = token.inventory().await.expect("an inventory");
            assert_eq!((found.ours, found.foreign, found.half_written), (vec![name(1)], 1, 0));
            assert_eq!(token.held_version(ObjectId(1)), Some(Version(0)));
            token.close().await;
        }
    }
});

// A worker that imports for ever, for the next case to kill. Not a case by itself.
case!(
    #[ignore = "killed by its parent"]
    worker_that_imports,
    |bench: Bench| async move {
        let left = std::fs::read(bench.folder.join("left")).expect("a file");
        let left: Vec<LeftKey> = serde_json::from_slice(&left).expect("JSON");
        let config = victim(&bench);
        let token = Token::open(config).expect("the token opens");
        token.bind(GROUP);
        let self_blob = std::fs::read(bench.folder.join("self_blob")).expect("a file");
        assert_eq!(token.has_smk(G1, &self_blob).await.expect("an answer"), SmkPresence::Present);
        std::fs::write(bench.folder.join("ready"), "").expect("a note");
        loop {
            for key in &left {
                key.import(&token).await;
            }
            for key in &left {
                token.drop_object(ObjectId(key.object)).await.expect("a drop");
            }
        }
    }
);

/// The token that the worker is killed over.
fn victim(bench: &Bench) -> TokenConfig {
    if bench.folder.join("use-embedded").exists() {
        bench.embedded("victim", Residency::Token)
    } else {
        bench.softhsm("victim", Residency::Token)
    }
}

async fn prepare(bench: &Bench, keys: u64) {
    let config = victim(bench);
    let Group { tokens, self_blob } = group(vec![config]).await;
    let mut left = Vec::new();
    for object in 1..=keys {
        let made = tokens[0].originate(G1, P256, &asked(P256)).await.expect("a key");
        left.push(LeftKey::new(object, P256, made));
    }
    std::fs::write(bench.folder.join("left"), serde_json::to_vec(&left).expect("JSON")).expect("a file");
    std::fs::write(bench.folder.join("self_blob"), self_blob).expect("a file");
}

/// Opens the token after the kill, brings everything in, and looks that each key is there once and works.
async fn recover(bench: &Bench) {
    let left = std::fs::read(bench.folder.join("left")).expect("a file");
    let left: Vec<LeftKey> = serde_json::from_slice(&left).expect("JSON");
    let config = victim(bench);
    let token = Token::open(config).expect("the token opens after the kill");
    token.bind(GROUP);
    let self_blob = std::fs::read(bench.folder.join("self_blob")).expect("a file");
    assert_eq!(token.has_smk(G1, &self_blob).await.expect("an answer"), SmkPresence::Present);
    for key in &left {
        key.import(&token).await;
    }
    let found = token.inventory().await.expect("an inventory");
    assert_eq!(found.ours, left.iter().map(|key| name(key.object)).collect::<Vec<_>>());
    assert_eq!((found.foreign, found.half_written, found.smks), (0, 0, vec![G1]));
    token.close().await;
}

async fn kills(bench: &Bench, rounds: u64) {
    let this = if bench.folder.join("use-embedded").exists() {
        "faults::kills_while_importing_leave_the_embedded_token_whole"
    } else {
        "faults::kills_while_importing_leave_softhsm_whole"
    };
    let step = |step: &str| {
        std::fs::write(bench.folder.join("step"), step).expect("a note");
        assert!(spawn(this, &bench.folder).wait().expect("a process").success(), "step {step}");
    };
    match std::fs::read_to_string(bench.folder.join("step")).unwrap_or_default().as_str() {
        "prepare" => prepare(bench, 12).await,
        "recover" => recover(bench).await,
        _ => {
            step("prepare");
            for round in 0..rounds {
                let ready = bench.folder.join("ready");
                let _ = std::fs::remove_file(&ready);
                let mut worker = spawn("faults::worker_that_imports", &bench.folder);
                while !ready.exists() {
                    assert!(worker.try_wait().expect("a worker").is_none(), "the worker ended by itself");
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                tokio::time::sleep(Duration::from_millis(3 + round * 17 % 61)).await;
                worker.kill().expect("a kill");
                worker.wait().expect("its end");
                step("recover");
            }
        }
    }
}

case!(kills_while_importing_leave_softhsm_whole, |bench: Bench| async move { kills(&bench, 10).await });

case!(kills_while_importing_leave_the_embedded_token_whole, |bench: Bench| async move {
    std::fs::write(bench.folder.join("use-embedded"), "").expect("a note");
    kills(&bench, 5).await;
});

case!(the_canary_notices_a_token_that_went_away, |bench: Bench| async move {
    let soft = Token::open(bench.softhsm("soft", Residency::Token)).expect("the token opens");
    let embedded = Token::open(bench.embedded("embedded", Residency::Session)).expect("the token opens");
    for token in [&soft, &embedded] {
        token.canary().await.expect("the token is well");
    }
    std::fs::rename(bench.folder.join("softhsm"), bench.folder.join("gone")).expect("a rename");
    std::fs::rename(bench.folder.join("embedded"), bench.folder.join("gone2")).expect("a rename");
    for token in [soft, embedded] {
        assert_eq!(verdict(token.canary().await), TokenVerdict::Failed);
        token.close().await;
    }
});

case!(a_token_made_anew_in_the_same_place_is_another_token, |bench: Bench| async move {
    for round in 0..3 {
        let config = bench.embedded("again", Residency::Session);
        let Group { tokens, self_blob } = group(vec![config]).await;
        let first = tokens[0].has_smk(G1, &self_blob).await.expect("an answer");
        assert_eq!(first, SmkPresence::Present, "round {round}");
        for token in tokens {
            token.close().await;
        }
        std::fs::remove_dir_all(bench.folder.join("again")).expect("the folder goes");
    }
});

case!(many_embedded_tokens_live_in_one_process, |bench: Bench| async move {
    let mut tokens = Vec::new();
    for number in 0..8 {
        let config = bench.embedded(&format!("token-{number}"), Residency::Session);
        tokens.push(Token::open(config).expect("the token opens"));
    }
    for token in &tokens {
        token.canary().await.expect("each is well while others are added");
    }
});

/// Fills the disk under a folder: a small file system of its own for root, a folder without write permission else.
struct FullDisk(PathBuf);

impl FullDisk {
    fn under(folder: PathBuf) -> Self {
        std::fs::create_dir_all(&folder).expect("a folder");
        if rustix::process::geteuid().is_root() {
            let mut mount = std::process::Command::new("mount");
            let mount = mount.args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"]).arg(&folder);
            assert!(mount.status().expect("mount runs").success(), "root may mount a tmpfs");
        }
        Self(folder)
    }

    fn fill(&self, token: &Path) {
        if rustix::process::geteuid().is_root() {
            let _ = std::fs::write(self.0.join("filler"), vec![1; 1024 * 1024]);
        } else {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o500);
            std::fs::set_permissions(token, mode).expect("permissions");
        }
    }

    fn empty(&self, token: &Path) {
        let _ = std::fs::remove_file(self.0.join("filler"));
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(token, mode).expect("permissions");
    }
}

impl Drop for FullDisk {
    fn drop(&mut self) {
        if rustix::process::geteuid().is_root() {
            let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
}

case!(a_full_token_refuses_and_stays_in_service, |bench: Bench| async move {
    let disk = FullDisk::under(bench.folder.join("softhsm"));
    let Group { tokens, .. } = group(vec![bench.softhsm("soft", Residency::Token)]).await;
    let token = &tokens[0];
    let made = token.originate(G1, P256, &asked(P256)).await.expect("a key");
    let record = record(P256, &asked(P256), &made);
    token.import(name(1), &record, made.wrapped.as_ref()).await.expect("an import");
    let folder = objects(&bench)[0].parent().expect("a token's folder").to_path_buf();
    disk.fill(&folder);
    for object in 2..5 {
        let refused = token.import(name(object), &record, made.wrapped.as_ref()).await;
        assert_eq!(verdict(refused), TokenVerdict::Refused, "a full token is healthy and says no");
        assert_eq!(token.held_version(ObjectId(object)), None);
    }
    token.canary().await.expect("the token is well");
    let digest = [7; 32];
    let ecdsa = keyraft_engine::domain::Mechanism::plain(0x1041);
    crate::bench::sign(token, 1, &ecdsa, &digest).await.expect("what it holds is of use");
    disk.empty(&folder);
    token.import(name(2), &record, made.wrapped.as_ref()).await.expect("there is room again");
    let found = token.inventory().await.expect("an inventory");
    assert_eq!(found.ours, [name(1), name(2)]);
    for token in tokens {
        token.close().await;
    }
});
