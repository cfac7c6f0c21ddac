//! What only the room itself can see of an embedded token: every object in it, by its own session.

use super::door::Operation;
use super::smk::Purpose;
use super::template::{self, Template};
use super::{
    ModuleSource, Pin, Sending, SlotChoice, TokenConfig, TokenError, TokenVerdict, UsedKey, initialize, slot,
    task,
};
use crate::domain::{
    AttributeRecord, AttributeType as A, AttributeValue as V, Attributes, ContentKey, EnvelopeContent,
    Generation, GroupId, KeyAlgorithm, Mechanism, ObjectClass, ObjectId, Residency, Version,
};
use crate::wire::{SessionName, UseKind};
use std::sync::Arc;

fn config(folder: &std::path::Path) -> TokenConfig {
    let source = ModuleSource::Embedded { folder: folder.join("token") };
    let pin = Pin::new("12345678".into());
    initialize(&source, "unit", &pin, &pin).unwrap();
    TokenConfig { source, slot: SlotChoice::Only, pin: Some(pin), residency: None }
}

#[test]
fn the_smk_and_member_keys_do_what_they_are_for_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let vault = slot::open(&config(folder.path())).unwrap();
    vault.ledger.index.lock().bind(GroupId([1; 8]));
    let session = vault.module.open(vault.slot).unwrap();
    let generation = Generation(1);
    let made = vault.create_smk(&session, generation, None).unwrap();
    vault.member_key(Purpose::Unlock).unwrap();
    let kind = KeyAlgorithm::Aes { bits: 256 };
    let originated = vault.originate(&session, &generation.into(), kind, &Attributes::new()).unwrap();
    let transport = vault.member_key(Purpose::Transport).unwrap();
    let delivered =
        vault.deliver_smk(&session, generation, &made.self_blob, &transport.public.spki()).unwrap();

    let mut secrets = 0;
    for object in session.find(&Template::default()).unwrap() {
        let class = session.read_number(object, A::CLASS);
        if class == Some(ObjectClass::SecretKey.number()) || class == Some(ObjectClass::PrivateKey.number()) {
            secrets += 1;
            assert_eq!(session.read_flag(object, A::SENSITIVE), Some(true));
            assert_eq!(session.read_flag(object, A::EXTRACTABLE), Some(false));
            assert!(session.set_flag(object, A::EXTRACTABLE, true).is_err());
        }
    }
    // The SMK and its working copy, transport, unlock, canary and signer; nothing in passing is left.
    assert_eq!(secrets, 6);

    let smk = vault.smk(generation).unwrap();
    let token_smk = vault.ledger.index.lock().smks[&generation].token;
    assert_ne!(smk, token_smk, "the working copy is in use");
    let readable = template::key(kind, false, false, true).usages(ObjectClass::SecretKey, |_| false);
    let blob = originated.wrapped.unwrap().bytes.clone();
    let rfc5649 = &vault.abilities.rfc5649;
    for key in [smk, token_smk] {
        assert!(session.unwrap(rfc5649, key, &blob, &readable).is_err(), "no readable key comes out");
        assert!(session.unwrap(rfc5649, key, &made.self_blob, &readable).is_err(), "nor the SMK");
        assert!(session.wrap(rfc5649, smk, key).is_err(), "nor does it leave wrapped");
        assert!(session.set_flag(key, A::DECRYPT, true).is_err());
    }
    let oaep = super::smk::oaep();
    let wrong_use = vault.module.open(vault.slot).unwrap();
    assert!(wrong_use.run(Operation::Decrypt, &oaep, transport.handle, &delivered).is_err());
    assert!(session.unwrap(&oaep, transport.handle, &delivered, &readable).is_err());
    let unlock = vault.member_key(Purpose::Unlock).unwrap();
    let strict = template::key(kind, false, true, false).usages(ObjectClass::SecretKey, |_| false);
    assert!(session.unwrap(&oaep, unlock.handle, &delivered, &strict).is_err());
}

#[test]
fn what_goes_by_value_lies_hidden_and_leaves_nothing_readable() {
    let folder = tempfile::tempdir().unwrap();
    let vault =
        slot::open(&TokenConfig { residency: Some(Residency::Token), ..config(folder.path()) }).unwrap();
    vault.ledger.index.lock().bind(GroupId([1; 8]));
    let session = vault.module.open(vault.slot).unwrap();
    let generation = Generation(1);
    vault.create_smk(&session, generation, None).unwrap();
    let kinds = [KeyAlgorithm::Ed25519, KeyAlgorithm::ODD_SECRET];
    let sending = Sending { generation, in_memory: kinds.into() };
    for (object, kind) in (1..).map(ObjectId).zip(kinds) {
        let asked = Attributes::from([(A::SIGN, V::Bool(true))]);
        let made = vault.originate(&session, &sending, kind, &asked).unwrap();
        let attributes = asked.into_iter().chain(made.facts).collect();
        let record = AttributeRecord { class: kind.resident_class(), algorithm: Some(kind), attributes };
        let name = ContentKey { object, version: Version(1), generation };
        vault.import(name, &record, made.wrapped.as_ref()).unwrap();
        let mut cut = made.wrapped.unwrap();
        cut.bytes.pop();
        let second = ContentKey { version: Version(2), ..name };
        assert!(vault.import(second, &record, Some(&cut)).is_err(), "a value of another length");
        assert_eq!(vault.ledger.index.lock().keys[&object].held, Some(name));
    }
    let mut keys = 0;
    for object in session.find(&Template::default()).unwrap() {
        let class = session.read_number(object, A::CLASS);
        let inner = [ObjectClass::SecretKey, ObjectClass::PrivateKey].map(|class| Some(class.number()));
        if inner.contains(&class) {
            keys += 1;
            assert_eq!(session.read_flag(object, A::SENSITIVE), Some(true));
            assert_eq!(session.read_flag(object, A::EXTRACTABLE), Some(false));
            assert!(session.read(object, A::VALUE).is_err());
        }
    }
    // The two keys and the SMK, each with its working copy; the transport and the canary key, and the signer.
    assert_eq!(keys, 9);
}

#[test]
fn what_a_kill_left_of_a_new_token_goes_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str, files: &[&str]| {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).unwrap();
        files.iter().for_each(|file| std::fs::write(path.join(file), "x").unwrap());
        path
    };
    let left = |name| place(name, &["token.sql", "token.sql-journal"]);
    let ours = [left(".token.0123456789abcdef"), place(".token.0000000000000000", &[])];
    let others = [
        left(".token.0123456789ABCDEF"),
        left(".token.0123"),
        left(".other.0123456789abcdef"),
        place(".token.1111111111111111", &["token.sql", "letter"]),
    ];
    let config = config(folder.path());
    assert!(ours.iter().all(|path| !path.exists()) && others.iter().all(|path| path.exists()));
    let again = left(".token.0123456789abcdef");
    slot::open(&config).unwrap();
    assert!(!again.exists() && others.iter().all(|path| path.exists()));
}

#[tokio::test]
async fn a_closed_token_answers_so_and_a_full_queue_is_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let token = task::Token::open(config(folder.path())).unwrap();
    let other = token.clone();
    token.close().await;
    assert!(matches!(other.canary().await, Err(TokenError::Closed)));
    assert_eq!(TokenError::Busy(1024).verdict(), TokenVerdict::Limit);
    assert_eq!(format!("{:?}", Pin::new("1234".into())), "Pin(..)");
}

#[test]
fn ambiguous_errors_are_judged_by_the_canary() {
    let folder = tempfile::tempdir().unwrap();
    let vault = slot::open(&config(folder.path())).unwrap();
    let error = || TokenError::Call { call: "C_Decrypt", code: 0x30, verdict: TokenVerdict::Failed };
    assert_eq!(vault.judge(error()).verdict(), TokenVerdict::Refused);
    std::fs::remove_dir_all(folder.path().join("token")).unwrap();
    assert_eq!(vault.judge(error()).verdict(), TokenVerdict::Failed);
}

#[test]
fn a_session_object_that_the_token_lost_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let vault = slot::open(&config(folder.path())).unwrap();
    vault.ledger.index.lock().bind(GroupId([1; 8]));
    let session = vault.module.open(vault.slot).unwrap();
    let generation = Generation(1);
    vault.create_smk(&session, generation, None).unwrap();
    let kind = KeyAlgorithm::Aes { bits: 256 };
    let asked = Attributes::from([(A::ENCRYPT, V::Bool(true))]);
    let made = vault.originate(&session, &generation.into(), kind, &asked).unwrap();
    let attributes = asked.into_iter().chain(made.facts).collect();
    let record = AttributeRecord { class: ObjectClass::SecretKey, algorithm: Some(kind), attributes };
    let content = Arc::new(EnvelopeContent { record, wrapped: made.wrapped });
    let name = SessionName([7; 16]);
    let whole = UsedKey::Session { name, content: Some((generation, content)) };
    let by_name = UsedKey::Session { name, content: None };
    let ecb = Mechanism::plain(0x1081);
    let encrypt = |key| vault.operate(&session, key, &UseKind::Encrypt, &ecb, &[5; 16]);
    let lose = || {
        let handle = vault.with_keys([&by_name], |[handle]| Ok(handle)).unwrap();
        assert!(vault.destroy(handle).unwrap());
    };
    let first = encrypt(&whole).unwrap();
    lose();
    assert_eq!(encrypt(&whole).unwrap(), first);
    lose();
    assert!(matches!(encrypt(&by_name), Err(TokenError::UnknownSession)));
    assert!(!vault.ledger.index.lock().guests.knows(name));
    assert_eq!(encrypt(&whole).unwrap(), first);
}
