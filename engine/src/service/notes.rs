//! Notes what clients ask and how it ends: numbers for monitors, and a bounded memory for `explain`.

use super::Core;
use crate::clock::UnixMillis;
use crate::domain::{ClientName, MemberId, ObjectId};
use crate::limits;
use crate::telemetry::metrics::Pending;
use crate::telemetry::{Kind, Metrics, Ring, Verdict};
use crate::wire::{
    Answer, ClientRequest, Failure, Keep, KeyRef, MakeBy, Operation, Remedy, SlotAnswer, SlotCall,
    SlotRequest, UseKind,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a member tells of itself.
pub struct Telemetry {
    /// Its numbers.
    pub metrics: Arc<Metrics>,
    /// When its process started.
    pub started: UnixMillis,
    /// The last operations of clients.
    pub(super) noted: Ring<Noted>,
    /// Operations a second, over the last seconds.
    pub(super) rate: Mutex<f64>,
    /// Each member's place in or out of sync, and since when this member has seen it so.
    pub(super) since: Mutex<BTreeMap<MemberId, (bool, UnixMillis)>>,
}

impl Telemetry {
    /// Nothing noted yet.
    pub fn new(started: UnixMillis) -> Self {
        Self {
            metrics: Arc::default(),
            started,
            noted: Ring::new(limits::EXPLAIN_MAX),
            rate: Mutex::default(),
            since: Mutex::default(),
        }
    }
}

/// What is asked, as far as notes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    kind: Kind,
    word: &'static str,
    mechanism: Option<u64>,
    object: Option<ObjectId>,
    tries: u8,
}

/// One operation as it is kept.
#[derive(Clone)]
pub(super) struct Noted {
    at: UnixMillis,
    client: ClientName,
    asked: Asked,
    by: MemberId,
    took: Duration,
    failure: Option<(u64, String)>,
}

/// An operation under way.
pub(super) struct Begun<'a> {
    asked: Asked,
    at: Instant,
    _pending: Pending<'a>,
}

/// What a request is in the notes; None for what only looks.
pub(super) fn asked_of(request: &ClientRequest) -> Option<Asked> {
    let of = |kind: Kind, object| Asked { kind, word: kind.word(), mechanism: None, object, tries: 1 };
    let admin = |word| Asked { word, ..of(Kind::Admin, None) };
    Some(match request {
        ClientRequest::Slot(call) => asked_of_slot(call),
        ClientRequest::Create(create) => {
            let mechanism = Some(create.template.algorithm.generator());
            Asked { mechanism, ..of(Kind::Create, None) }
        }
        ClientRequest::Import(_) => of(Kind::Import, None),
        ClientRequest::Delete(deletion) => of(Kind::Delete, deletion.objects.first().copied()),
        ClientRequest::List { .. } => of(Kind::Find, None),
        ClientRequest::Show(object) => of(Kind::Read, Some(*object)),
        ClientRequest::Use(usage) => {
            let mechanism = Some(usage.mechanism.number);
            Asked { mechanism, ..of(kind_of_use(&usage.kind), Some(usage.object)) }
        }
        ClientRequest::SetPin { .. } => of(Kind::Pin, None),
        ClientRequest::Invite { .. } => admin("invite"),
        ClientRequest::RemoveMember(_) => admin("member remove"),
        ClientRequest::StepDown { .. } => admin("step-down"),
        ClientRequest::SetOption(_) => admin("option set"),
        ClientRequest::AddClient { .. } => admin("client add"),
        ClientRequest::RemoveClient(_) => admin("client remove"),
        ClientRequest::Synchronize => admin("synchronize"),
        ClientRequest::Recover => admin("recover"),
        ClientRequest::InviteStandby { .. } => admin("member add-standby"),
        ClientRequest::SetDuty { .. } => admin("member duty"),
        ClientRequest::RecoverMember(_) => admin("member recover"),
        ClientRequest::SetPriority { .. } => admin("member priority"),
        ClientRequest::Adopt(_) => admin("adopt"),
        ClientRequest::CompareAndSet(ask) => of(Kind::Change, Some(ask.object)),
        ClientRequest::Status
        | ClientRequest::Coverage { .. }
        | ClientRequest::Check
        | ClientRequest::Clients
        | ClientRequest::Pulses
        | ClientRequest::Explain { .. } => return None,
    })
}

/// What a call on the virtual slot is in the notes.
pub(super) fn asked_of_slot(call: &SlotCall) -> Asked {
    let agreed = |key: &KeyRef| match key {
        KeyRef::Object(object) => Some(*object),
        KeyRef::Session { .. } => None,
    };
    let (kind, mechanism, object) = match &call.ask {
        SlotRequest::Info => (Kind::Info, None, None),
        SlotRequest::Login { .. } => (Kind::Login, None, None),
        SlotRequest::Renew
        | SlotRequest::SetPin { .. }
        | SlotRequest::InitPin { .. }
        | SlotRequest::InitToken { .. } => (Kind::Pin, None, None),
        SlotRequest::Find { .. } => (Kind::Find, None, None),
        SlotRequest::Read(object) => (Kind::Read, None, Some(*object)),
        SlotRequest::Make { by, .. } => {
            let (kind, mechanism) = way(by);
            (kind, mechanism, None)
        }
        SlotRequest::SetAttributes { key, .. } => (Kind::Change, None, agreed(key)),
        SlotRequest::Destroy { object, .. } => (Kind::Delete, None, Some(*object)),
        SlotRequest::Use { key, kind, mechanism, .. } => {
            (kind_of_use(kind), Some(mechanism.number), agreed(key))
        }
        SlotRequest::Wrap { mechanism, key, .. } => (Kind::Wrap, Some(mechanism.number), agreed(key)),
        SlotRequest::Random { .. } => (Kind::Random, None, None),
    };
    let word = match &call.ask {
        SlotRequest::Renew => "renew",
        SlotRequest::SetPin { .. } => "set-pin",
        SlotRequest::InitPin { .. } => "init-pin",
        SlotRequest::InitToken { .. } => "init-token",
        SlotRequest::Make { keep: Keep::Session, by, .. } if way(by).0 == Kind::Create => "create (session)",
        _ => kind.word(),
    };
    Asked { kind, word, mechanism, object, tries: call.tries.max(1) }
}

fn way(by: &MakeBy) -> (Kind, Option<u64>) {
    match by {
        MakeBy::Generate { mechanism, .. } | MakeBy::GeneratePair { mechanism, .. } => {
            (Kind::Create, Some(mechanism.number))
        }
        MakeBy::Unwrap { mechanism, .. } | MakeBy::Derive { mechanism, .. } => {
            (Kind::Import, Some(mechanism.number))
        }
        MakeBy::Create { .. } | MakeBy::Copy { .. } => (Kind::Import, None),
    }
}

fn kind_of_use(kind: &UseKind) -> Kind {
    match kind {
        UseKind::Sign | UseKind::SignRecover => Kind::Sign,
        UseKind::Verify(_) | UseKind::VerifyRecover => Kind::Verify,
        UseKind::Encrypt => Kind::Encrypt,
        UseKind::Decrypt => Kind::Decrypt,
    }
}

fn verdict(done: &Result<Answer, Failure>) -> Verdict {
    match done.as_ref().map_err(Failure::remedy) {
        Ok(_) => Verdict::Ok,
        Err(Remedy::GiveUp) => Verdict::Refused,
        Err(Remedy::TryAgain) => Verdict::TryAgain,
        Err(Remedy::TryAnotherMember) => Verdict::Elsewhere,
    }
}

/// The object that an answer names first.
fn made(answer: &Answer) -> Option<ObjectId> {
    match answer {
        Answer::Created(rows) => rows.first().map(|row| row.object),
        Answer::Slot(reply) => match &reply.answer {
            SlotAnswer::Made(made) => made.iter().find_map(|made| match &made.key {
                KeyRef::Object(object) => Some(*object),
                KeyRef::Session { .. } => None,
            }),
            _ => None,
        },
        _ => None,
    }
}

/// True for an answer that only asks for the rest of the question.
fn is_half(done: &Result<Answer, Failure>) -> bool {
    matches!(done, Ok(Answer::Slot(reply)) if matches!(reply.answer, SlotAnswer::SendSealed(_)))
}

impl Core {
    /// A client's request, noted with its end.
    pub(super) async fn client_noted(
        &self,
        who: ClientName,
        request: ClientRequest,
    ) -> Result<Answer, Failure> {
        let mut by = self.me;
        let Some(asked) = asked_of(&request) else { return self.client(request, &mut by).await };
        let begun = self.begin(asked);
        let done = self.client(request, &mut by).await;
        self.note(begun, who, by, &done);
        done
    }

    /// An operation begins.
    pub(super) fn begin(&self, asked: Asked) -> Begun<'_> {
        Begun { asked, at: self.clock.now(), _pending: self.telemetry.metrics.begin() }
    }

    /// It has ended.
    pub(super) fn note(
        &self,
        begun: Begun<'_>,
        client: ClientName,
        by: MemberId,
        done: &Result<Answer, Failure>,
    ) {
        if is_half(done) {
            return;
        }
        let took = self.clock.now().saturating_duration_since(begun.at);
        let mut asked = begun.asked;
        let metrics = &self.telemetry.metrics;
        metrics.ended(asked.kind, verdict(done), took);
        if asked.tries > 1 {
            metrics.tried_again();
        }
        let by = match done {
            Ok(Answer::Used { by, .. }) => *by,
            _ => by,
        };
        asked.object = asked.object.or_else(|| done.as_ref().ok().and_then(made));
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let at = UnixMillis(self.clock.unix().0.saturating_sub(millis));
        let failure = done.as_ref().err().map(|failure| (failure.ckr(), short(&failure.message)));
        self.telemetry.noted.push(Noted { at, client, asked, by, took, failure });
    }

    /// The last operations that were asked of this member, oldest first.
    pub(super) fn operations(&self, client: Option<&str>, last: u32) -> Vec<Operation> {
        let last = usize::try_from(last.min(limits::EXPLAIN_ROWS_MAX)).unwrap_or(usize::MAX);
        let wanted = |noted: &Noted| client.is_none_or(|name| is_called(&noted.client, name));
        let rows = self.telemetry.noted.last(last, wanted).into_iter();
        rows.map(|noted| {
            let (code, reason) = noted.failure.unwrap_or_default();
            Operation {
                at: noted.at,
                client: noted.client.0,
                kind: noted.asked.word.to_string(),
                mechanism: noted.asked.mechanism,
                object: noted.asked.object,
                asked: self.me,
                by: noted.by,
                tries: noted.asked.tries,
                micros: u64::try_from(noted.took.as_micros()).unwrap_or(u64::MAX),
                code,
                reason,
            }
        })
        .collect()
    }
}

/// True if a person who writes `name` means this client.
fn is_called(client: &ClientName, name: &str) -> bool {
    client.0 == name || client.0.strip_prefix("client:") == Some(name)
}

fn short(text: &str) -> String {
    let mut end = text.len().min(limits::TEXT_MAX_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::LogIndex;
    use crate::wire::SlotReply;

    #[test]
    fn a_person_may_leave_the_prefix_out() {
        let client = ClientName("client:web".into());
        assert!(is_called(&client, "web") && is_called(&client, "client:web"));
        assert!(!is_called(&client, "we") && !is_called(&ClientName("uid:0".into()), "0"));
    }

    #[test]
    fn what_only_looks_is_not_noted() {
        assert_eq!(asked_of(&ClientRequest::Status), None);
        assert_eq!(asked_of(&ClientRequest::Show(ObjectId(7))).and_then(|a| a.object), Some(ObjectId(7)));
        let reply = SlotReply {
            index: LogIndex(1),
            answer: SlotAnswer::SendSealed(crate::wire::SessionName([1; 16])),
        };
        assert!(is_half(&Ok(Answer::Slot(Box::new(reply)))));
        assert!(!is_half(&Ok(Answer::Done)));
    }

    #[test]
    fn long_reasons_are_cut_between_characters() {
        assert_eq!(short("no"), "no");
        let cut = short(&"ä".repeat(200));
        assert!(cut.len() <= limits::TEXT_MAX_BYTES && cut.chars().all(|c| c == 'ä'));
    }
}
