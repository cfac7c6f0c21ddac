//! The room's promises, kept with models; and what each fault looks like from above.

use super::super::door::User;
use super::super::tag::Tag;
use super::super::template::Template;
use super::super::{
    ModelToken, ModuleSource, Pin, SlotChoice, SmkPresence, Token, TokenConfig, TokenError, TokenFault,
    TokenVerdict, initialize,
};
use crate::domain::{
    AttributeRecord, AttributeType as A, AttributeValue as V, Attributes, ContentKey, Generation, GroupId,
    KeyAlgorithm, Mechanism, ObjectClass, ObjectId, Parameters, Version, WrappedKey, ckk,
};
use crate::limits;
use crate::wire::UseKind;
use std::sync::Arc;
use std::time::Duration;

const GENERATION: Generation = Generation(1);
const GROUP: GroupId = GroupId([7; 8]);
const AES_ECB: u64 = 0x1081;

fn config(model: &Arc<ModelToken>) -> TokenConfig {
    let (source, pin) = (ModuleSource::Model(model.clone()), Some(Pin::new("12345678".into())));
    TokenConfig { source, slot: SlotChoice::Label("unit".into()), pin, residency: None }
}

fn blank(number: u8) -> Arc<ModelToken> {
    let model = ModelToken::new(number);
    let pin = |pin: &str| Pin::new(pin.into());
    let source = ModuleSource::Model(model.clone());
    assert!(matches!(Token::open(config(&model)), Err(TokenError::NoSlot { .. })));
    initialize(&source, "unit", &pin("so"), &pin("12345678")).unwrap();
    assert!(matches!(
        initialize(&source, "unit", &pin("so"), &pin("12345678")),
        Err(TokenError::Exists { .. })
    ));
    model
}

fn open(model: &Arc<ModelToken>) -> Token {
    let token = Token::open(config(model)).unwrap();
    token.bind(GROUP);
    token
}

struct Key {
    name: ContentKey,
    record: AttributeRecord,
    wrapped: Option<WrappedKey>,
}

impl Key {
    async fn bring(&self, token: &Token) -> Result<(), TokenError> {
        token.import(self.name, &self.record, self.wrapped.as_ref()).await
    }
}

async fn make(token: &Token, object: u64, kind: KeyAlgorithm) -> Key {
    let usages = kind.resident_class().usages().iter().map(|usage| (*usage, V::Bool(true)));
    let asked = Attributes::from_iter(usages);
    let made = token.originate(GENERATION, kind, &asked).await.unwrap();
    let attributes = asked.into_iter().chain(made.facts).collect();
    let record = AttributeRecord { class: kind.resident_class(), algorithm: Some(kind), attributes };
    let name = ContentKey { object: ObjectId(object), version: Version(1), generation: GENERATION };
    Key { name, record, wrapped: made.wrapped }
}

/// An open model with an SMK, and a key that it holds.
async fn with_key(number: u8) -> (Arc<ModelToken>, Token, Key) {
    let model = blank(number);
    let token = open(&model);
    token.create_smk(GENERATION, None).await.unwrap();
    let key = make(&token, 1, KeyAlgorithm::Aes { bits: 256 }).await;
    key.bring(&token).await.unwrap();
    (model, token, key)
}

async fn encrypt(token: &Token, key: &Key) -> Result<Vec<u8>, TokenError> {
    let done = token.use_key(key.name.object, &UseKind::Encrypt, &Mechanism::plain(AES_ECB), &[1; 32]).await;
    done.map(|sealed| sealed.to_vec())
}

#[tokio::test(start_paused = true)]
async fn keys_travel_from_one_model_to_another() {
    let (one, other) = (open(&blank(0)), open(&blank(1)));
    let smk = one.create_smk(GENERATION, None).await.unwrap();
    assert_eq!(smk.self_blob.len(), 40);
    let keys = other.member_keys().await.unwrap();
    assert_ne!(keys.transport_key, one.member_keys().await.unwrap().transport_key);
    let delivered = one.deliver_smk(GENERATION, &smk.self_blob, &keys.transport_key).await.unwrap();
    assert_eq!(other.has_smk(GENERATION, &smk.self_blob).await.unwrap(), SmkPresence::Absent);
    assert!(one.accept_smk(Generation(2), &delivered, &smk.self_blob).await.is_err(), "another's");
    other.accept_smk(GENERATION, &delivered, &smk.self_blob).await.unwrap();
    assert_eq!(other.has_smk(GENERATION, &smk.self_blob).await.unwrap(), SmkPresence::Present);

    let kinds = one.profile().carries.clone();
    let texts: Vec<String> = kinds.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 4, "{texts:?}");
    assert!(one.profile().exact_lengths && one.profile().carries_in_memory.is_empty());
    for (object, kind) in (1..).zip(kinds.into_iter().chain([KeyAlgorithm::ODD_SECRET])) {
        let key = make(&one, object, kind).await;
        for token in [&one, &other] {
            key.bring(token).await.unwrap();
            key.bring(token).await.unwrap();
        }
        used_on_both(&one, &other, &key).await;
        other.drop_object(key.name.object).await.unwrap();
        assert_eq!(other.held_version(key.name.object), None);
        assert!(one.inventory().await.unwrap().ours.contains(&key.name));
    }
    assert_eq!(other.inventory().await.unwrap().ours, []);
    let locked = other.lock(b"the data folder").await.unwrap();
    assert_eq!(other.unlock(&locked).await.unwrap().as_slice(), b"the data folder");
    assert!(one.unlock(&locked).await.is_err());
}

/// What one makes with a key the other takes.
async fn used_on_both(one: &Token, other: &Token, key: &Key) {
    let object = key.name.object;
    let data = [5; 48];
    if matches!(key.record.algorithm, Some(KeyAlgorithm::GenericSecret { .. })) {
        let mac = Mechanism::plain(0x251);
        let signature = one.use_key(object, &UseKind::Sign, &mac, &data).await.unwrap().to_vec();
        let verify = |token: Token, signature: Vec<u8>| {
            let mac = mac.clone();
            async move { token.use_key(object, &UseKind::Verify(signature), &mac, &data).await }
        };
        verify(other.clone(), signature.clone()).await.unwrap();
        let wrong = verify(other.clone(), vec![0; signature.len()]).await.unwrap_err();
        assert_eq!(wrong.verdict(), TokenVerdict::Caller(0xC0));
        return;
    }
    let gcm = Parameters::Gcm { iv: vec![3; 12], aad: b"beside".to_vec(), tag_bits: 128 };
    let modes = [
        Mechanism::plain(AES_ECB),
        Mechanism { number: 0x1082, parameters: Parameters::Bytes(vec![2; 16]) },
        Mechanism { number: 0x1085, parameters: Parameters::Bytes(vec![2; 16]) },
        Mechanism { number: 0x1087, parameters: gcm },
    ];
    for mode in &modes {
        let sealed = one.use_key(object, &UseKind::Encrypt, mode, &data).await.unwrap();
        assert_ne!(sealed[..48], data);
        assert_eq!(other.use_key(object, &UseKind::Decrypt, mode, &sealed).await.unwrap().as_slice(), data);
    }
    let sealed = one.use_key(object, &UseKind::Encrypt, &modes[3], &data).await.unwrap();
    let torn = other.use_key(object, &UseKind::Decrypt, &modes[3], &sealed[1..]).await;
    assert!(matches!(torn.unwrap_err().verdict(), TokenVerdict::Caller(_)));
}

#[tokio::test(start_paused = true)]
async fn token_objects_outlive_the_process_and_nothing_else_does() {
    let model = blank(2);
    let before = open(&model);
    let smk = before.create_smk(GENERATION, None).await.unwrap();
    let key = make(&before, 1, KeyAlgorithm::Aes { bits: 256 }).await;
    key.bring(&before).await.unwrap();
    let sealed = encrypt(&before, &key).await.unwrap();
    let transport = before.member_keys().await.unwrap();
    assert!(matches!(Token::open(config(&model)), Err(TokenError::InUse)));
    model.reboot();
    // The dead process's handle is still there, and reaches nothing.
    let dead = encrypt(&before, &key).await.unwrap_err();
    assert!(dead.is_forgetful() && dead.verdict() == TokenVerdict::Failed, "{dead}");
    let after = open(&model);
    drop(before);
    assert_eq!(after.held_version(key.name.object), Some(Version(0)));
    assert!(matches!(encrypt(&after, &key).await, Err(TokenError::Missing(_))));
    let inventory = after.inventory().await.unwrap();
    assert_eq!((inventory.ours.as_slice(), inventory.half_written), ([key.name].as_slice(), 0));
    assert_eq!(after.has_smk(GENERATION, &smk.self_blob).await.unwrap(), SmkPresence::Present);
    assert_eq!(after.inventory().await.unwrap().smks, [GENERATION]);
    assert_eq!(after.member_keys().await.unwrap(), transport);
    key.bring(&after).await.unwrap();
    assert_eq!(encrypt(&after, &key).await.unwrap(), sealed);
    after.close().await;
    // A closed one is free for the next of the same process.
    open(&model).canary().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_or_failing_token_has_failed_until_it_is_back() {
    let (model, token, key) = with_key(3).await;
    for fault in [TokenFault::Lost, TokenFault::Fails] {
        model.set_fault(Some(fault));
        assert_eq!(encrypt(&token, &key).await.unwrap_err().verdict(), TokenVerdict::Failed, "{fault:?}");
        assert_eq!(token.canary().await.unwrap_err().verdict(), TokenVerdict::Failed);
        assert!(make_another(&token).await.is_err());
        model.set_fault(None);
        encrypt(&token, &key).await.unwrap();
        token.canary().await.unwrap();
    }
    model.wipe_sessions();
    assert!(token.canary().await.unwrap_err().is_forgetful());
    assert!(encrypt(&token, &key).await.unwrap_err().is_forgetful());
}

#[tokio::test(start_paused = true)]
async fn a_canary_that_fails_does_not_have_itself_sing_again_at_once() {
    let (model, token, key) = with_key(1).await;
    model.set_fault(Some(TokenFault::Lost));
    let doubted = || tokio::time::timeout(limits::CANARY_EVERY, token.doubted());
    assert!(token.canary().await.is_err());
    assert!(doubted().await.is_err(), "it sings when it is time");
    assert!(encrypt(&token, &key).await.is_err());
    assert!(doubted().await.is_ok(), "an error of another call has it sing soon");
}

async fn make_another(token: &Token) -> Result<(), TokenError> {
    let kind = KeyAlgorithm::Aes { bits: 128 };
    token.originate(GENERATION, kind, &Attributes::new()).await.map(|_| ())
}

#[tokio::test(start_paused = true)]
async fn a_liar_does_what_it_denies() {
    let (model, token, key) = with_key(4).await;
    let second = make(&token, 2, KeyAlgorithm::GenericSecret { bytes: 32 }).await;
    model.set_fault(Some(TokenFault::Lies));
    let denied = second.bring(&token).await.unwrap_err();
    assert_eq!(denied.verdict(), TokenVerdict::Refused, "its canary sings: {denied}");
    assert!(token.drop_object(key.name.object).await.is_err());
    encrypt(&token, &key).await.unwrap_err();
    model.set_fault(None);
    token.drop_object(key.name.object).await.unwrap();
    for _ in 0..2 {
        second.bring(&token).await.unwrap();
    }
    assert_eq!(token.inventory().await.unwrap().ours, [second.name]);
}

#[tokio::test(start_paused = true)]
async fn jobs_take_the_time_that_is_set() {
    let (model, token, key) = with_key(5).await;
    let pause = Duration::from_millis(300);
    model.set_pause(pause);
    let began = tokio::time::Instant::now();
    let uses = (0..2 * limits::TOKEN_THREADS).map(|_| encrypt(&token, &key));
    assert!(futures::future::join_all(uses).await.iter().all(Result::is_ok));
    assert_eq!(began.elapsed(), pause * 2, "as many at once as there would be threads");
}

#[tokio::test(start_paused = true)]
async fn what_was_begun_at_a_hung_token_is_done_when_it_is_healed() {
    let (model, token, key) = with_key(6).await;
    model.set_hung(true);
    let given_up = tokio::time::timeout(limits::IMPORT, token.drop_object(key.name.object)).await;
    assert!(given_up.is_err());
    let began = tokio::time::Instant::now();
    assert!(matches!(token.canary().await, Err(TokenError::Hangs(_))));
    assert_eq!(began.elapsed(), limits::CANARY_LIMIT);
    assert!(token.held_version(key.name.object).is_some());
    model.set_hung(false);
    token.canary().await.unwrap();
    assert_eq!(token.held_version(key.name.object), None);
}

#[test]
fn the_models_numbers_choose_their_keys() {
    let pairs: Vec<_> = (0..24).map(|index| super::oaep::pair(index).unwrap()).collect();
    let moduli: std::collections::BTreeSet<_> =
        pairs.iter().map(|pair| super::oaep::public(pair).unwrap().0).collect();
    assert_eq!((moduli.len(), moduli.iter().all(|modulus| modulus.len() == 384)), (24, true));
    let (modulus, exponent) = super::oaep::public(&pairs[3]).unwrap();
    let sealed = super::oaep::encrypt(&modulus, &exponent, b"forty bytes").unwrap();
    assert_eq!(super::oaep::decrypt(&pairs[3], &sealed).unwrap().as_slice(), b"forty bytes");
    assert!(super::oaep::decrypt(&pairs[2], &sealed).is_none());
    assert!(super::oaep::encrypt(&modulus, &exponent, &[0; 343]).is_none(), "one byte too long");
}

#[tokio::test]
async fn who_looks_from_outside_sees_what_lies_there_and_what_was_destroyed() {
    let (model, token, key) = with_key(0).await;
    let object = key.name.object;
    assert_eq!(model.copies(), [object].into());
    model.take_destroyed();
    token.drop_object(object).await.unwrap();
    assert_eq!(model.copies(), [].into());
    assert_eq!(model.take_destroyed(), [object]);
    assert_eq!(model.take_destroyed(), []);
    key.bring(&token).await.unwrap();
    model.reboot();
    assert_eq!(model.take_destroyed(), [], "that its sessions end destroys nothing");
}

#[test]
fn what_outlives_its_session_and_is_nobodys_is_counted() {
    let model = blank(3);
    let door = model.module();
    let session = door.open(0).unwrap();
    session.login(User::Normal, Some("12345678")).unwrap();
    let secret = |lasts| {
        Template::default()
            .number(A::CLASS, ObjectClass::SecretKey.number())
            .number(A::KEY_TYPE, ckk::AES)
            .flag(A::TOKEN, lasts)
            .bytes(A::VALUE, &[7; 32])
    };
    session.create(&secret(false)).unwrap();
    assert_eq!(model.strangers(), 0, "it ends with its session");
    session.create(&secret(true)).unwrap();
    session.create(&secret(true).bytes(A::ID, Tag::Canary.text().as_bytes())).unwrap();
    assert_eq!(model.strangers(), 1, "the canary is the member's own");
}
