//! A register's number is read, and compared and set, over the members' sockets: PKCS#11 has no call for either. A read lists
//! the object from behind the read barrier; a comparison is repeated under its request id at one member after another, so
//! that it happens once.

use super::ask::{CallError, Member};
use crate::limits;
use crate::watch::text;
use crate::workload::{Outcome, Told, joined, parted};
use keyraft_engine::clock::Clock;
use keyraft_engine::domain::{AttributeType, AttributeValue, ClientId, ObjectId, RequestId};
use keyraft_engine::wire::{Answer, ClientRequest, CompareAndSet, FailureKind, Remedy};
use std::path::PathBuf;
use std::time::Duration;

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);
/// CKR_OBJECT_HANDLE_INVALID: there is no such object.
const NO_OBJECT: u64 = 0x82;

/// The members that one client asks, and who it is to them.
#[derive(Debug)]
pub struct Registers {
    members: Vec<Member>,
    client: Option<ClientId>,
    nonce: u64,
    sequence: u64,
}

impl Registers {
    /// A client of these members, with a number that no other has.
    pub fn new(sockets: Vec<PathBuf>, nonce: u64) -> Self {
        Self { members: sockets.into_iter().map(Member::new).collect(), client: None, nonce, sequence: 0 }
    }

    /// The number that an object holds.
    pub fn read(&mut self, key: i64) -> Outcome {
        let object = ObjectId(u64::try_from(key).unwrap_or(0));
        // Without a label, the list comes from behind the barrier whatever is there.
        let request = ClientRequest::List { label: None, after: Some(ObjectId(object.0.saturating_sub(1))) };
        let number = move |answer: Answer| match answer {
            Answer::Objects { rows, .. } => match rows.first().filter(|row| row.object == object) {
                Some(row) => {
                    Outcome::Done(Told::Number(parted(&text(row, AttributeType::ID)).1.parse().ok()))
                }
                None => Outcome::Absent,
            },
            _ => Outcome::Silent("the member answered another question".into()),
        };
        self.repeat(&request, number)
    }

    /// The number becomes `to` if it is `from`.
    pub fn cas(&mut self, key: i64, tag: &str, from: i64, to: i64) -> Outcome {
        let Some(client) = self.born() else { return Outcome::Refused("no member answers".into()) };
        self.sequence += 1;
        let id = |number: i64| AttributeValue::Bytes(joined(tag, &number.to_string()).into_bytes());
        let request = ClientRequest::CompareAndSet(Box::new(CompareAndSet {
            request: RequestId { client, sequence: self.sequence },
            watermark: self.sequence,
            object: ObjectId(u64::try_from(key).unwrap_or(0)),
            attribute: AttributeType::ID,
            expected: Some(id(from)),
            value: id(to),
        }));
        self.repeat(&request, |answer| match answer {
            Answer::ComparedAndSet(true) => Outcome::Done(Told::Done),
            Answer::ComparedAndSet(false) => Outcome::Differs,
            _ => Outcome::Silent("the member answered another question".into()),
        })
    }

    /// Who it is: born when it first asked.
    fn born(&mut self) -> Option<ClientId> {
        if self.client.is_none() {
            let status = self.members.iter_mut().find_map(|member| member.status(limits::LOOK).ok())?;
            self.client = Some(ClientId { born: status.applied, nonce: self.nonce });
        }
        self.client
    }

    fn repeat(&mut self, request: &ClientRequest, read: impl Fn(Answer) -> Outcome) -> Outcome {
        let end = Clock.now() + Duration::from_millis(limits::CALL_MS);
        let (mut sent, mut why) = (false, String::new());
        for turn in 0.. {
            let left = end.saturating_duration_since(Clock.now());
            let count = self.members.len().max(1);
            let Some(member) = self.members.get_mut(turn % count).filter(|_| !left.is_zero()) else { break };
            match member.call(request, left.min(limits::LOOK)) {
                Ok(answer) => return read(answer),
                Err(CallError::Unreachable(error)) => why = error.to_string(),
                Err(CallError::Failed(failure)) if failure.remedy() == Remedy::GiveUp => {
                    let gone = FailureKind::TokenRefused { code: NO_OBJECT };
                    return match failure.kind {
                        kind if kind == FailureKind::NotFound || kind == gone => Outcome::Absent,
                        _ => Outcome::Silent(failure.message),
                    };
                }
                Err(error) => (sent, why) = (true, error.to_string()),
            }
            std::thread::sleep(PAUSE.min(left));
        }
        if sent { Outcome::Silent(why) } else { Outcome::Refused(why) }
    }
}
