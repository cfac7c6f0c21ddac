//! What members say: who leads, who is in sync, whether a new key is usable at each of them, and in the end what each has.
//! The same events as those of real members.

use super::network::{Network, guard};
use super::recorder::Recorder;
use super::world::{Unanswered, World, asks};
use crate::edn::Value;
use crate::history::{Event, Function};
use crate::limits;
use crate::workload::parted;
use keyraft_engine::domain::{AttributeType, AttributeValue, Mechanism, ObjectId, Parameters};
use keyraft_engine::wire::{
    Answer, ClientRequest, FailureKind, GroupStatus, ObjectRow, SecretBytes, UseKind, UseRequest,
};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;

/// CKM_AES_ECB: the same of the same, so that members can be compared.
const AES_ECB: u64 = 0x1081;
/// What members make something of to prove a key.
const TEXT: &[u8; 16] = b"keyraft's proof.";
/// A member's words for a key that its token does not hold. The kind of failure is that of a member out of sync.
const LACKING: &str = "the token does not hold object";
/// Between two tries of the last look.
const AGAIN: Duration = Duration::from_millis(100);

/// What is known of who leads.
#[derive(Debug, Default)]
pub struct Look {
    primary: Mutex<Option<usize>>,
}

/// How a use at one member ended.
enum Used {
    Output(Vec<u8>),
    /// There is no such key; said behind a read barrier.
    Absent,
    /// The member knows of it, and its token does not hold it.
    Lacking,
    Silent(String),
}

async fn status(network: &Network, place: usize, limit: Duration) -> Result<GroupStatus, String> {
    match asks(network.clone(), place, ClientRequest::Status, limit).await {
        Ok(Answer::Status(status)) => Ok(*status),
        Ok(_) => Err("it answered another question".into()),
        Err(Unanswered::Failed(failure)) => Err(failure.to_string()),
        Err(Unanswered::Silent(why)) => Err(why),
    }
}

async fn use_key(network: &Network, place: usize, object: i64, limit: Duration) -> Used {
    let Some(member) = network.member_at(place) else { return Used::Silent("nobody is there".into()) };
    let request = ClientRequest::Use(UseRequest {
        object: ObjectId(u64::try_from(object).unwrap_or(0)),
        kind: UseKind::Encrypt,
        mechanism: Mechanism { number: AES_ECB, parameters: Parameters::None },
        data: SecretBytes(TEXT.to_vec().into()),
        at: Some(member),
    });
    match asks(network.clone(), place, request, limit).await {
        Ok(Answer::Used { output, .. }) => Used::Output(output.0.to_vec()),
        Ok(_) => Used::Silent("it answered another question".into()),
        Err(Unanswered::Failed(failure)) if failure.kind == FailureKind::NotFound => Used::Absent,
        Err(Unanswered::Failed(failure)) if failure.message.contains(LACKING) => Used::Lacking,
        Err(Unanswered::Failed(failure)) => Used::Silent(failure.to_string()),
        Err(Unanswered::Silent(why)) => Used::Silent(why),
    }
}

fn number(number: u64) -> Value {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

impl Look {
    /// The primary's place, as last seen.
    pub fn primary(&self) -> Option<usize> {
        *guard(&self.primary)
    }

    /// Asks one member now and then how it sees the group, for as long as its machine lives.
    pub async fn watch(
        self: Arc<Self>,
        network: Network,
        recorder: Arc<Recorder>,
        place: usize,
        disk: Snapshots,
    ) {
        loop {
            tokio::time::sleep(limits::LOOK_EVERY).await;
            if let Ok(status) = status(&network, place, limits::LOOK).await {
                self.note(&network, &recorder, place, &status, disk());
            }
        }
    }

    fn note(
        &self,
        network: &Network,
        recorder: &Recorder,
        place: usize,
        status: &GroupStatus,
        snapshot: bool,
    ) {
        let primary = status.primary.and_then(|member| network.place_of(member));
        if primary.is_some() {
            *guard(&self.primary) = primary;
        }
        let in_sync = status.members.iter().filter(|row| row.in_sync);
        let in_sync = in_sync.filter_map(|row| network.place_of(row.member)).map(|place| place as i64);
        let value = Value::map([
            ("member", number(place as u64)),
            ("term", number(status.term)),
            ("primary", primary.map_or(Value::Nil, |primary| number(primary as u64))),
            ("leads", Value::Bool(primary == Some(place))),
            ("in-sync", Value::numbers(in_sync)),
            ("applied", number(status.applied.0)),
            ("snapshots", number(u64::from(snapshot))),
        ]);
        recorder.take(Event::nemesis(Function::Seen, value));
    }

    /// Uses each key that was just answered at one member, and now and then one that was answered lately; and each that was
    /// just deleted.
    pub async fn probe(
        network: Network,
        recorder: Arc<Recorder>,
        place: usize,
        mut news: mpsc::UnboundedReceiver<News>,
    ) {
        let mut lately = VecDeque::new();
        loop {
            // A member that has come back must have what was answered before, also while nothing new is answered.
            let mut next = match tokio::time::timeout(limits::LOOK_EVERY, news.recv()).await {
                Ok(None) => return,
                Ok(news) => news,
                Err(_) => None,
            };
            let (mut made, mut gone) = (None, None);
            // While a member hung, many came: the last are tried.
            while let Some(one) = next {
                match one {
                    News::Made(id) => {
                        lately.extend(made.replace(id));
                        lately.drain(..lately.len().saturating_sub(LATELY));
                    }
                    News::Gone(id) => {
                        lately.retain(|other| *other != id);
                        made = made.filter(|made| *made != id);
                        gone = Some(id);
                    }
                }
                next = news.try_recv().ok();
            }
            let older = lately.pop_front();
            for object in older.into_iter().chain(made) {
                probe_one(&network, &recorder, place, Function::Probe, object).await;
            }
            lately.extend(older.into_iter().chain(made));
            if let Some(object) = gone {
                probe_one(&network, &recorder, place, Function::Ghost, object).await;
            }
        }
    }
}

/// One of so many keys that were answered lately is tried with each new one.
const LATELY: usize = 8;

/// What becomes of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Its creation was answered.
    Made(i64),
    /// Its deletion was answered.
    Gone(i64),
}

async fn probe_one(network: &Network, recorder: &Recorder, place: usize, function: Function, object: i64) {
    let before = is_in_sync(network, place).await;
    let result = match use_key(network, place, object, limits::LOOK).await {
        Used::Output(_) => "ok",
        Used::Absent => "absent",
        Used::Lacking => "lacking",
        Used::Silent(_) => "silent",
    };
    let after = is_in_sync(network, place).await;
    let value = Value::map([
        ("object", Value::Int(object)),
        ("member", number(place as u64)),
        ("in-sync-before", Value::Bool(before)),
        ("in-sync-after", Value::Bool(after)),
        ("result", Value::word(result)),
    ]);
    recorder.take(Event::nemesis(function, value));
}

/// Says whether a machine's disk holds a snapshot.
pub type Snapshots = Box<dyn Fn() -> bool + Send>;

async fn is_in_sync(network: &Network, place: usize) -> bool {
    let member = network.member_at(place);
    let status = status(network, place, limits::LOOK).await;
    status.is_ok_and(|status| status.members.iter().any(|row| Some(row.member) == member && row.in_sync))
}

/// Fine if every member sees all in sync, nothing unsettled, and a primary.
///
/// # Errors
/// As [`World::step`]; inside, what is missing.
pub fn whole(world: &mut World) -> Result<Result<(), String>, String> {
    let all = world.machines.len();
    for place in 0..all {
        let network = world.network.clone();
        let asked =
            world.wait(async move { status(&network, place, limits::LOOK).await }, limits::LOOK * 2)?;
        let now = match asked {
            Some(Ok(now)) => now,
            Some(Err(why)) => return Ok(Err(format!("member {place}: {why}"))),
            None => return Ok(Err(format!("member {place} says nothing"))),
        };
        let in_sync = now.members.iter().filter(|member| member.in_sync).count();
        if in_sync != all || now.members.len() != all || now.unsettled != 0 || now.primary.is_none() {
            let (unsettled, primary) = (now.unsettled, now.primary);
            return Ok(Err(format!(
                "member {place} sees {in_sync} of {all} in sync, {unsettled} unsettled, primary {primary:?}"
            )));
        }
    }
    Ok(Ok(()))
}

/// Every member lists its keys and uses each. Of one that does not answer nothing is written down, and checkers miss it.
pub async fn last(network: Network, recorder: Arc<Recorder>, members: usize) {
    for place in 0..members {
        let Some(rows) = patiently(|| list(&network, place)).await else { continue };
        let shown = rows.iter().map(|row| {
            let (tag, _) = parted(&text(row, AttributeType::ID));
            Value::List(vec![
                number(row.object.0),
                Value::Text(tag),
                Value::Text(text(row, AttributeType::LABEL)),
            ])
        });
        let objects = Value::List(shown.collect());
        let value = Value::map([("member", number(place as u64)), ("objects", objects)]);
        recorder.take(Event::nemesis(Function::Listed, value));
        for row in &rows {
            let object = i64::try_from(row.object.0).unwrap_or(i64::MAX);
            let proof = patiently(|| async {
                match use_key(&network, place, object, limits::LOOK * 5).await {
                    Used::Output(output) => Ok(output),
                    Used::Absent => Ok(b"absent".to_vec()),
                    Used::Lacking => Err(LACKING.into()),
                    Used::Silent(why) => Err(why),
                }
            });
            // Who cannot use a key has no proof of it, and the checker says so.
            let Some(output) = proof.await else { continue };
            let mut digest = String::new();
            output.iter().for_each(|byte| {
                let _ = write!(digest, "{byte:02x}");
            });
            let value = Value::map([
                ("member", number(place as u64)),
                ("object", Value::Int(object)),
                ("digest", Value::Text(digest)),
            ]);
            recorder.take(Event::nemesis(Function::Proof, value));
        }
    }
}

async fn list(network: &Network, place: usize) -> Result<Vec<ObjectRow>, String> {
    let mut rows: Vec<ObjectRow> = Vec::new();
    loop {
        let after = rows.last().map(|row| row.object);
        let request = ClientRequest::List { label: None, after };
        match asks(network.clone(), place, request, limits::LOOK * 5).await {
            Ok(Answer::Objects { rows: more_rows, more }) => {
                let end = !more || more_rows.is_empty();
                rows.extend(more_rows);
                if end {
                    return Ok(rows);
                }
            }
            Ok(_) => return Err("it answered another question".into()),
            Err(Unanswered::Failed(failure)) => return Err(failure.to_string()),
            Err(Unanswered::Silent(why)) => return Err(why),
        }
    }
}

/// Tries again until [`limits::LAST_LOOK`] is over.
async fn patiently<T, F: Future<Output = Result<T, String>>>(mut ask: impl FnMut() -> F) -> Option<T> {
    let end = tokio::time::Instant::now() + limits::LAST_LOOK;
    loop {
        match ask().await {
            Ok(answer) => return Some(answer),
            Err(_) if tokio::time::Instant::now() >= end => return None,
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

/// An attribute as text.
fn text(row: &ObjectRow, attribute: AttributeType) -> String {
    match row.attributes.get(&attribute) {
        Some(AttributeValue::Bytes(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    }
}
