//! One simulated application on the virtual slot: its login, its request ids, and what each of the workload's calls becomes,
//! as the PKCS#11 module does it.

use super::asks::{Asker, Lost};
use super::network::guard;
use crate::watch::AES_ECB;
use crate::workload::{Call, Outcome, Told, joined, parted, value_of};
use keyraft_engine::domain::ClientName;
use keyraft_engine::domain::{
    AttributeType as A, AttributeValue as V, Attributes, ClientId, LogIndex, Mechanism, ObjectClass,
    ObjectId, RequestId,
};
use keyraft_engine::health::Pace;
use keyraft_engine::wire::{
    Answer, Change, ClientRequest, CompareAndSet, Failure, FailureKind, Keep, KeyRef, Made, MakeBy, Role,
    Sealed, SecretBytes, SessionName, SlotAnswer, SlotCall, SlotRequest, Ticket, UseKind,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The user's PIN of every token and of the group.
pub const PIN: &str = "user-pin-1234";
/// CKM_AES_KEY_GEN
const AES_KEY_GEN: u64 = 0x1080;
/// CKK_AES
const AES: u64 = 0x1F;
/// What is used is this block.
const BLOCK: [u8; 16] = [7; 16];
/// Bytes of a key.
const KEY_BYTES: u64 = 32;

const CKR_ACTION_PROHIBITED: u64 = 0x1B;
const CKR_KEY_HANDLE_INVALID: u64 = 0x60;
const CKR_OBJECT_HANDLE_INVALID: u64 = 0x82;
const CKR_USER_NOT_LOGGED_IN: u64 = 0x101;
const CKR_FUNCTION_REJECTED: u64 = 0x200;

/// The session objects of all applications, by the number that the workload knows them under. That no application uses those of
/// another slot is the workload's doing.
pub type SessionObjects = Arc<Mutex<Kept>>;

/// Session objects, and the last number.
#[derive(Debug, Default)]
pub struct Kept {
    all: BTreeMap<i64, (SessionName, Sealed)>,
    last: i64,
}

/// An application.
pub struct Application {
    asker: Asker,
    objects: SessionObjects,
    seed: u64,
    seen: LogIndex,
    ticket: Option<Ticket>,
    client: Option<ClientId>,
    last: u64,
}

/// A call that did not succeed.
type Refused = Lost;
type Tried<T> = Result<T, Refused>;

fn strange() -> Refused {
    Lost::Failed(Failure::new(FailureKind::Internal, "a member answered another question"))
}

impl Application {
    /// One that asks through this.
    pub fn new(asker: Asker, objects: SessionObjects, seed: u64) -> Self {
        Self { asker, objects, seed, seen: LogIndex(0), ticket: None, client: None, last: 0 }
    }

    /// Logs in, if it is not. False if that failed.
    pub async fn log_in(&mut self) -> bool {
        if self.ticket.is_some() {
            return true;
        }
        let pin = SecretBytes(PIN.as_bytes().to_vec().into());
        let ask = |change: Change| SlotRequest::Login {
            role: Role::User,
            pin: pin.clone(),
            attempt: change.request,
        };
        if let Ok(SlotAnswer::Ticket(ticket)) = self.change(ask).await {
            self.ticket = Some(ticket);
        }
        self.ticket.is_some()
    }

    /// Does what the workload says.
    pub async fn act(&mut self, call: &Call) -> Outcome {
        let told = match call {
            Call::Create { label, tag } => self.create(label, tag, call.imports()).await,
            Call::Find { label } => self.find(label).await,
            Call::Use { key, .. } => {
                let used = self.encrypt(KeyRef::Object(object(*key))).await;
                used.map(|_| Told::Done)
            }
            Call::Look { key, .. } => self.look(*key).await,
            Call::Set { key, tag, value, .. } => self.set(*key, tag, value).await,
            Call::Write { key, tag, value } => self.set(*key, tag, &value.to_string()).await,
            Call::Delete { key, .. } => {
                let object = object(*key);
                self.change(|change| SlotRequest::Destroy { change, object }).await.map(|_| Told::Done)
            }
            Call::Read { key } => return self.read(*key).await,
            Call::Cas { key, tag, from, to } => return self.compare_and_set(*key, tag, *from, *to).await,
            Call::SessionMake { .. } => self.session_make().await,
            Call::SessionUse { key, .. } => return self.session_use(*key).await,
            Call::SessionEnd { key, .. } => {
                guard(&self.objects).all.remove(key);
                Ok(Told::Done)
            }
        };
        if matches!(&told, Err(Lost::Failed(failure)) if failure.ckr() == CKR_USER_NOT_LOGGED_IN) {
            self.ticket = None;
        }
        ended(told)
    }

    fn slot_call(&self, ask: SlotRequest) -> ClientRequest {
        ClientRequest::Slot(Box::new(SlotCall {
            who: ClientName::default(),
            ticket: self.ticket.clone(),
            seen: self.seen,
            tries: 0,
            ask,
            direct: false,
        }))
    }

    fn heard(&mut self, answer: Answer) -> Tried<SlotAnswer> {
        let Answer::Slot(reply) = answer else { return Err(strange()) };
        self.seen = self.seen.max(reply.index);
        Ok(reply.answer)
    }

    async fn ask(&mut self, ask: SlotRequest, pace: Pace) -> Tried<SlotAnswer> {
        let asked = self.asker.ask(self.slot_call(ask), pace).await;
        self.heard(asked.answer?)
    }

    async fn client(&mut self) -> Tried<ClientId> {
        if let Some(client) = self.client {
            return Ok(client);
        }
        let SlotAnswer::Info(info) = self.ask(SlotRequest::Info, Pace::Search).await? else {
            return Err(strange());
        };
        let nonce = keyraft_engine::transport::random_bytes().map_err(|_| Lost::Nobody)?;
        let client = ClientId { born: info.applied, nonce: u64::from_le_bytes(nonce) };
        self.client = Some(client);
        Ok(client)
    }

    async fn next_request(&mut self) -> Tried<Change> {
        let client = self.client().await?;
        self.last += 1;
        Ok(Change { request: RequestId { client, sequence: self.last }, watermark: self.last })
    }

    /// Asks for a change, once whatever happens on the way.
    async fn change(&mut self, ask: impl Fn(Change) -> SlotRequest) -> Tried<SlotAnswer> {
        let change = self.next_request().await?;
        let asked = self.asker.ask(self.slot_call(ask(change)), Pace::Slow).await;
        match asked.answer {
            // The group has forgotten this application, and nothing was done: it begins anew.
            Err(Lost::Failed(failure)) if failure.kind == FailureKind::Expired && !asked.lost_one => {
                self.client = None;
                let change = self.next_request().await?;
                let asked = self.asker.ask(self.slot_call(ask(change)), Pace::Slow).await;
                self.heard(asked.answer?)
            }
            answer => self.heard(answer?),
        }
    }

    async fn create(&mut self, label: &str, tag: &str, imported: bool) -> Tried<Told> {
        let mut template = Attributes::from([
            (A::TOKEN, V::Bool(true)),
            (A::ENCRYPT, V::Bool(true)),
            (A::DECRYPT, V::Bool(true)),
            (A::LABEL, V::Bytes(label.as_bytes().to_vec())),
            (A::ID, V::Bytes(joined(tag, "").into_bytes())),
        ]);
        let by = if imported {
            let value = value_of(self.seed, tag).to_vec();
            template.extend([
                (A::CLASS, V::Number(ObjectClass::SecretKey.number())),
                (A::KEY_TYPE, V::Number(AES)),
                (A::SENSITIVE, V::Bool(true)),
                (A::VALUE, V::Bytes(value)),
            ]);
            MakeBy::Create { template }
        } else {
            template.insert(A::VALUE_LEN, V::Number(KEY_BYTES));
            MakeBy::Generate { mechanism: Mechanism::plain(AES_KEY_GEN), template }
        };
        match self.make(Keep::Agreed, by).await?.key {
            KeyRef::Object(id) => Ok(Told::Key(number(id))),
            KeyRef::Session { .. } => Err(strange()),
        }
    }

    async fn make(&mut self, keep: Keep, by: MakeBy) -> Tried<Made> {
        let ask = |change| SlotRequest::Make { change, keep, by: Box::new(by.clone()) };
        match self.change(ask).await? {
            SlotAnswer::Made(made) => made.into_iter().next().ok_or_else(strange),
            _ => Err(strange()),
        }
    }

    async fn find(&mut self, label: &str) -> Tried<Told> {
        let template = Attributes::from([(A::LABEL, V::Bytes(label.as_bytes().to_vec()))]);
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let ask = SlotRequest::Find { template: template.clone(), after };
            let SlotAnswer::Found { objects, more } = self.ask(ask, Pace::Search).await? else {
                return Err(strange());
            };
            found.extend(objects.iter().copied().map(number));
            after = objects.last().copied();
            if !more || after.is_none() {
                return Ok(Told::Keys(found));
            }
        }
    }

    async fn look(&mut self, key: i64) -> Tried<Told> {
        match self.ask(SlotRequest::Read(object(key)), Pace::Search).await? {
            SlotAnswer::Record(record) => {
                Ok(Told::Id(String::from_utf8_lossy(record.bytes(A::ID)).into_owned()))
            }
            _ => Err(strange()),
        }
    }

    async fn set(&mut self, key: i64, tag: &str, value: &str) -> Tried<Told> {
        let id = joined(tag, value).into_bytes();
        let ask = |change| SlotRequest::SetAttributes {
            change,
            key: KeyRef::Object(object(key)),
            attributes: Attributes::from([(A::ID, V::Bytes(id.clone()))]),
        };
        self.change(ask).await.map(|_| Told::Done)
    }

    async fn encrypt(&mut self, key: KeyRef) -> Tried<SlotAnswer> {
        let ask = SlotRequest::Use {
            key,
            kind: UseKind::Encrypt,
            mechanism: Mechanism::plain(AES_ECB),
            data: SecretBytes(BLOCK.to_vec().into()),
        };
        self.ask(ask, Pace::Quick).await
    }

    /// Every row that a list tells of is read behind a barrier.
    async fn read(&mut self, key: i64) -> Outcome {
        let mut after = None;
        loop {
            let asked = self.asker.ask(ClientRequest::List { label: None, after }, Pace::Search).await;
            let (rows, more) = match asked.answer {
                Ok(Answer::Objects { rows, more }) => (rows, more),
                Ok(_) => return ended(Err(strange())),
                Err(lost) => return ended(Err(lost)),
            };
            if let Some(row) = rows.iter().find(|row| row.object == object(key)) {
                let id = match row.attributes.get(&A::ID) {
                    Some(V::Bytes(id)) => String::from_utf8_lossy(id).into_owned(),
                    _ => String::new(),
                };
                return Outcome::Done(Told::Number(parted(&id).1.parse().ok()));
            }
            after = rows.last().map(|row| row.object);
            if !more || after.is_none() {
                return Outcome::Absent;
            }
        }
    }

    async fn compare_and_set(&mut self, key: i64, tag: &str, from: i64, to: i64) -> Outcome {
        let change = match self.next_request().await {
            Ok(change) => change,
            // Nothing was asked yet.
            Err(lost) => return Outcome::Refused(told(&lost)),
        };
        let id = |value: i64| V::Bytes(joined(tag, &value.to_string()).into_bytes());
        let request = ClientRequest::CompareAndSet(Box::new(CompareAndSet {
            request: change.request,
            watermark: change.watermark,
            object: object(key),
            attribute: A::ID,
            expected: Some(id(from)),
            value: id(to),
        }));
        match self.asker.ask(request, Pace::Slow).await.answer {
            Ok(Answer::ComparedAndSet(true)) => Outcome::Done(Told::Done),
            Ok(Answer::ComparedAndSet(false)) => Outcome::Differs,
            Ok(_) => ended(Err(strange())),
            Err(lost) => ended(Err(lost)),
        }
    }

    async fn session_make(&mut self) -> Tried<Told> {
        let template = Attributes::from([
            (A::TOKEN, V::Bool(false)),
            (A::VALUE_LEN, V::Number(KEY_BYTES)),
            (A::ENCRYPT, V::Bool(true)),
        ]);
        let by = MakeBy::Generate { mechanism: Mechanism::plain(AES_KEY_GEN), template };
        match self.make(Keep::Session, by).await?.key {
            KeyRef::Session { name, sealed: Some(sealed) } => {
                let mut kept = guard(&self.objects);
                kept.last += 1;
                let number = kept.last;
                kept.all.insert(number, (name, *sealed));
                Ok(Told::Key(number))
            }
            _ => Err(strange()),
        }
    }

    async fn session_use(&mut self, key: i64) -> Outcome {
        let Some((name, sealed)) = guard(&self.objects).all.get(&key).cloned() else {
            return Outcome::Absent;
        };
        let used = match self.encrypt(KeyRef::Session { name, sealed: None }).await {
            Ok(SlotAnswer::SendSealed(_)) => {
                self.encrypt(KeyRef::Session { name, sealed: Some(Box::new(sealed)) }).await
            }
            used => used,
        };
        ended(used.map(|_| Told::Done))
    }
}

fn object(key: i64) -> ObjectId {
    ObjectId(u64::try_from(key).unwrap_or(0))
}

fn number(object: ObjectId) -> i64 {
    i64::try_from(object.0).unwrap_or(i64::MAX)
}

fn told(lost: &Lost) -> String {
    match lost {
        Lost::Failed(failure) => failure.message.clone(),
        Lost::Nobody => "no member answered in time".into(),
    }
}

/// What a call's end says. A change that failed may have been made, unless the group said that it was not.
fn ended(outcome: Tried<Told>) -> Outcome {
    let lost = match outcome {
        Ok(told) => return Outcome::Done(told),
        Err(lost) => lost,
    };
    let number = if let Lost::Failed(failure) = &lost { failure.ckr() } else { 0 };
    match number {
        CKR_KEY_HANDLE_INVALID | CKR_OBJECT_HANDLE_INVALID => Outcome::Absent,
        CKR_FUNCTION_REJECTED | CKR_USER_NOT_LOGGED_IN | CKR_ACTION_PROHIBITED => {
            Outcome::Refused(told(&lost))
        }
        _ => Outcome::Silent(told(&lost)),
    }
}
