//! The virtual slot's requests, asked of whole members in this process.

mod support;

use keyraft_engine::domain::{
    AttributeType as A, AttributeValue as V, Attributes, ClientId, LogIndex, Mechanism, ObjectId, RequestId,
};
use keyraft_engine::wire::{
    Answer, Change, ClientName, ClientRequest, Failure, FailureKind, Keep, KeyRef, Made, MakeBy, SecretBytes,
    SlotAnswer, SlotCall, SlotReply, SlotRequest, UseKind,
};
use std::cell::Cell;
use support::Group;
use zeroize::Zeroizing;

const AES_KEY_GEN: u64 = 0x1080;
const EC_KEY_PAIR_GEN: u64 = 0x1040;
const ECDSA: u64 = 0x1041;
const AES_ECB: u64 = 0x1081;
const P256: [u8; 10] = [6, 8, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 3, 1, 7];

/// An application: what it has seen, and its next change.
struct Application<'a> {
    group: &'a Group,
    seen: Cell<LogIndex>,
    sequence: Cell<u64>,
}

impl Application<'_> {
    async fn ask(&self, at: u64, ask: SlotRequest) -> Result<SlotAnswer, Failure> {
        let call = SlotCall {
            who: ClientName::default(),
            ticket: None,
            seen: self.seen.get(),
            tries: 1,
            ask,
            direct: false,
        };
        match self.group.call(at, ClientRequest::Slot(Box::new(call))).await? {
            Answer::Slot(reply) => {
                let SlotReply { index, answer } = *reply;
                self.seen.set(index.max(self.seen.get()));
                Ok(answer)
            }
            other => panic!("{other:?}"),
        }
    }

    fn change(&self) -> Change {
        self.sequence.set(self.sequence.get() + 1);
        let client = ClientId { born: LogIndex(1), nonce: 7 };
        Change { request: RequestId { client, sequence: self.sequence.get() }, watermark: 1 }
    }

    async fn make(&self, at: u64, keep: Keep, by: MakeBy) -> Result<Vec<Made>, Failure> {
        let ask = SlotRequest::Make { change: self.change(), keep, by: Box::new(by) };
        match self.ask(at, ask).await? {
            SlotAnswer::Made(made) => Ok(made),
            other => panic!("{other:?}"),
        }
    }

    async fn find(&self, at: u64, template: Attributes) -> Vec<ObjectId> {
        match self.ask(at, SlotRequest::Find { template, after: None }).await.expect("finds") {
            SlotAnswer::Found { objects, more: false } => objects,
            other => panic!("{other:?}"),
        }
    }

    async fn operate(
        &self,
        at: u64,
        key: &KeyRef,
        kind: UseKind,
        mechanism: u64,
        data: &[u8],
    ) -> Result<SlotAnswer, Failure> {
        let data = SecretBytes(Zeroizing::new(data.to_vec()));
        let mechanism = Mechanism::plain(mechanism);
        self.ask(at, SlotRequest::Use { key: key.clone(), kind, mechanism, data }).await
    }
}

fn output(answer: Result<SlotAnswer, Failure>) -> Vec<u8> {
    match answer.expect("works") {
        SlotAnswer::Output(output) => output.0.to_vec(),
        other => panic!("{other:?}"),
    }
}

fn code<T: std::fmt::Debug>(result: Result<T, Failure>) -> u64 {
    match result.expect_err("is refused").kind {
        FailureKind::TokenRefused { code } => code,
        other => panic!("{other:?}"),
    }
}

/// A template of an object that needs no login.
fn open(label: &str, more: &[(A, V)]) -> Attributes {
    let mut template =
        Attributes::from([(A::PRIVATE, V::Bool(false)), (A::LABEL, V::Bytes(label.as_bytes().to_vec()))]);
    template.extend(more.iter().cloned());
    template
}

fn pair(label: &str) -> MakeBy {
    MakeBy::GeneratePair {
        mechanism: Mechanism::plain(EC_KEY_PAIR_GEN),
        public: open(label, &[(A::EC_PARAMS, V::Bytes(P256.to_vec()))]),
        private: open(label, &[]),
    }
}

fn aes(label: &str) -> MakeBy {
    let template = open(label, &[(A::VALUE_LEN, V::Number(32))]);
    MakeBy::Generate { mechanism: Mechanism::plain(AES_KEY_GEN), template }
}

#[tokio::test(flavor = "multi_thread")]
async fn agreed_objects_come_change_and_go_at_every_member() {
    let mut group = Group::new();
    group.form(3).await;
    let app = Application { group: &group, seen: Cell::default(), sequence: Cell::default() };
    let made = app.make(2, Keep::Agreed, pair("web")).await.expect("makes");
    let [public, private] = &made[..] else { panic!("{made:?}") };
    let record = |made: &Made| made.record.clone().expect("is there");
    assert_eq!(record(public).attributes.get(&A::CLASS), Some(&V::Number(2)));
    assert!(record(private).flag(A::TOKEN) && record(private).flag(A::NEVER_EXTRACTABLE));
    for at in 1..=3 {
        let found = app.find(at, Attributes::from([(A::LABEL, V::Bytes(b"web".to_vec()))])).await;
        assert_eq!(found.len(), 2);
        let signature = output(app.operate(at, &private.key, UseKind::Sign, ECDSA, &[9; 32]).await);
        let verify = UseKind::Verify(signature);
        app.operate(at % 3 + 1, &public.key, verify, ECDSA, &[9; 32]).await.expect("is good");
        let bad = UseKind::Verify(vec![1; 64]);
        assert_eq!(code(app.operate(at, &public.key, bad, ECDSA, &[9; 32]).await), 0xC0);
    }

    // A usage is taken away: no member signs any more.
    let attributes = Attributes::from([(A::SIGN, V::Bool(false)), (A::LABEL, V::Bytes(b"old".to_vec()))]);
    let set = SlotRequest::SetAttributes { change: app.change(), key: private.key.clone(), attributes };
    let SlotAnswer::Record(record) = app.ask(3, set).await.expect("changes") else { panic!("no record") };
    assert_eq!(record.label(), "old");
    for at in 1..=3 {
        assert_eq!(code(app.operate(at, &private.key, UseKind::Sign, ECDSA, &[9; 32]).await), 0x68);
        assert_eq!(app.find(at, open("old", &[])).await.len(), 1);
    }

    // Destroyed: gone at every member, and once only.
    let KeyRef::Object(object) = private.key else { panic!("no handle") };
    let destroy = SlotRequest::Destroy { change: app.change(), object };
    for _ in 0..2 {
        assert!(matches!(app.ask(1, destroy.clone()).await, Ok(SlotAnswer::Done)));
    }
    for at in 1..=3 {
        assert_eq!(code(app.ask(at, SlotRequest::Read(object)).await), 0x82);
        assert_eq!(app.find(at, open("old", &[])).await, []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happened_is_answered_though_the_object_has_gone_again() {
    let mut group = Group::new();
    group.form(2).await;
    let app = Application { group: &group, seen: Cell::default(), sequence: Cell::default() };
    let make = SlotRequest::Make { change: app.change(), keep: Keep::Agreed, by: Box::new(aes("gone")) };
    let made = |answer| match answer {
        Ok(SlotAnswer::Made(mut made)) => made.remove(0),
        other => panic!("{other:?}"),
    };
    let first = made(app.ask(1, make.clone()).await);
    let KeyRef::Object(object) = first.key else { panic!("no handle") };
    let attributes = Attributes::from([(A::LABEL, V::Bytes(b"new".to_vec()))]);
    let set = SlotRequest::SetAttributes { change: app.change(), key: first.key.clone(), attributes };
    app.ask(2, set.clone()).await.expect("changes");
    let destroy = SlotRequest::Destroy { change: app.change(), object };
    app.ask(2, destroy).await.expect("destroys");
    for at in 1..=2 {
        // As if the first answers had been lost.
        let again = made(app.ask(at, make.clone()).await);
        assert_eq!((again.key, again.record), (first.key.clone(), None));
        assert!(matches!(app.ask(at, set.clone()).await, Ok(SlotAnswer::Done)));
        assert_eq!(code(app.operate(at, &first.key, UseKind::Encrypt, AES_ECB, &[3; 16]).await), 0x60);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn session_objects_work_at_every_member_and_leave_nothing() {
    let mut group = Group::new();
    group.form(3).await;
    let app = Application { group: &group, seen: Cell::default(), sequence: Cell::default() };
    let made = app.make(1, Keep::Session, aes("passing")).await.expect("makes");
    let KeyRef::Session { name, .. } = made[0].key else { panic!("no session object") };
    let bare = KeyRef::Session { name, sealed: None };
    let first = output(app.operate(1, &bare, UseKind::Encrypt, AES_ECB, &[3; 16]).await);
    for at in 2..=3 {
        let unknown = app.operate(at, &bare, UseKind::Encrypt, AES_ECB, &[3; 16]).await;
        assert!(matches!(unknown, Ok(SlotAnswer::SendSealed(asked)) if asked == name));
        let again = output(app.operate(at, &made[0].key, UseKind::Encrypt, AES_ECB, &[3; 16]).await);
        assert_eq!(again, first);
        let known = output(app.operate(at, &bare, UseKind::Decrypt, AES_ECB, &first).await);
        assert_eq!(known, [3; 16]);
    }
    assert_eq!(app.find(2, Attributes::new()).await, []);

    // A copy of it becomes an agreed object: the same key.
    let by = MakeBy::Copy { of: made[0].key.clone(), template: open("kept", &[(A::TOKEN, V::Bool(true))]) };
    let kept = app.make(3, Keep::Agreed, by).await.expect("copies");
    let same = output(app.operate(2, &kept[0].key, UseKind::Encrypt, AES_ECB, &[3; 16]).await);
    assert_eq!(same, first);

    // Without a login nothing private is made.
    let private = Attributes::from([(A::VALUE_LEN, V::Number(16))]);
    let by = MakeBy::Generate { mechanism: Mechanism::plain(AES_KEY_GEN), template: private };
    assert_eq!(code(app.make(1, Keep::Session, by).await), 0x101);
}
