//! What watchers ask members, and how it is written down: who leads, who is in sync, whether a key is usable at each of
//! them, and in the end what each has. Pure, and the same on every rung.

mod tries;

pub use tries::{News, Tries};

use crate::edn::Value;
use crate::history::{Event, Function};
use crate::workload::parted;
use keyraft_engine::domain::{
    AttributeType, AttributeValue, LogIndex, Mechanism, MemberId, ObjectId, Parameters,
};
use keyraft_engine::wire::{
    Answer, ClientRequest, Failure, FailureKind, GroupStatus, ObjectRow, SecretBytes, UseKind, UseRequest,
};
use std::fmt::Write as _;

/// CKM_AES_ECB: the same of the same, so that members can be compared.
pub const AES_ECB: u64 = 0x1081;
/// What members make something of to prove a key.
const TEXT: &[u8; 16] = b"keyraft's proof.";
/// A member's words for a key that its token does not hold. The kind of failure is that of a member out of sync.
const LACKING: &str = "the token does not hold object";

/// How a use at one member ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Used {
    /// With this.
    Output(Vec<u8>),
    /// There is no such key; said behind a read barrier.
    Absent,
    /// The member knows of it, and its token does not hold it.
    Lacking,
    /// Nobody knows.
    Silent(String),
}

impl Used {
    /// What a member that answered says.
    pub fn answered(answer: Result<Answer, Failure>) -> Self {
        match answer {
            Ok(Answer::Used { output, .. }) => Self::Output(output.0.to_vec()),
            Ok(_) => Self::Silent("it answered another question".into()),
            Err(failure) if failure.kind == FailureKind::NotFound => Self::Absent,
            Err(failure) if failure.message.contains(LACKING) => Self::Lacking,
            Err(failure) => Self::Silent(failure.to_string()),
        }
    }

    /// What the member proves of the key; or why that must be asked again.
    ///
    /// # Errors
    /// It proves nothing.
    pub fn proof(self) -> Result<Vec<u8>, String> {
        match self {
            Self::Output(output) => Ok(output),
            Self::Absent => Ok(b"absent".to_vec()),
            Self::Lacking => Err(LACKING.into()),
            Self::Silent(why) => Err(why),
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Output(_) => "ok",
            Self::Absent => "absent",
            Self::Lacking => "lacking",
            Self::Silent(_) => "silent",
        }
    }
}

/// Asks a member, and no other, to use a key.
pub fn use_at(object: i64, member: MemberId) -> ClientRequest {
    ClientRequest::Use(UseRequest {
        object: ObjectId(u64::try_from(object).unwrap_or(0)),
        kind: UseKind::Encrypt,
        mechanism: Mechanism { number: AES_ECB, parameters: Parameters::None },
        data: SecretBytes(TEXT.to_vec().into()),
        at: Some(member),
    })
}

/// True if a member is in sync by this status.
pub fn is_in_sync(status: &GroupStatus, member: MemberId) -> bool {
    status.members.iter().any(|row| row.member == member && row.in_sync)
}

/// What every member must say for the group to be whole.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// So many are in sync.
    pub members: usize,
    /// No more than so many objects are unsettled.
    pub unsettled: u64,
    /// As far as this the log is applied.
    pub applied: LogIndex,
}

/// How far a member has applied the log, if it says what is wanted and knows a primary.
///
/// # Errors
/// What is missing.
pub fn whole(place: usize, status: &GroupStatus, wanted: Wanted) -> Result<LogIndex, String> {
    let in_sync = status.members.iter().filter(|member| member.in_sync).count();
    let members = wanted.members;
    let all = in_sync == members && status.members.len() == members;
    let (unsettled, primary) = (status.unsettled, status.primary);
    if !all || unsettled > wanted.unsettled || primary.is_none() {
        return Err(format!(
            "member {place} sees {in_sync} of {members} in sync, {unsettled} unsettled, primary {primary:?}"
        ));
    }
    if status.applied < wanted.applied {
        return Err(format!(
            "member {place} is behind: at {}, and another at {}",
            status.applied, wanted.applied
        ));
    }
    Ok(status.applied)
}

/// How far all have applied the log, if two answers of [`whole`] about all members, one after the other, say the same.
///
/// # Errors
/// The group was not whole, or the log moved.
pub fn stood_still(
    before: Result<LogIndex, String>,
    after: Result<LogIndex, String>,
) -> Result<LogIndex, String> {
    let (before, after) = (before?, after?);
    if before == after {
        return Ok(after);
    }
    Err(format!("the log goes on, from {before} to {after}, and no client asks"))
}

/// What such answers from before a look and from after it have against the look; None if it is worth something.
pub fn restless(before: Result<LogIndex, String>, after: Result<LogIndex, String>) -> Option<String> {
    let before = before.map_err(|why| format!("before the look: {why}"));
    let after = after.map_err(|why| format!("after the look: {why}"));
    stood_still(before, after).err()
}

fn number(number: u64) -> Value {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

/// How a member sees the group. `place_of` says where a member is.
pub fn seen(
    place: usize,
    status: &GroupStatus,
    snapshot: bool,
    place_of: impl Fn(MemberId) -> Option<usize>,
) -> Event {
    let primary = status.primary.and_then(&place_of);
    let in_sync = status.members.iter().filter(|row| row.in_sync);
    let in_sync = in_sync.filter_map(|row| place_of(row.member)).map(|place| place as i64);
    let value = Value::map([
        ("member", number(place as u64)),
        ("term", number(status.term)),
        ("primary", primary.map_or(Value::Nil, |primary| number(primary as u64))),
        ("leads", Value::Bool(primary == Some(place))),
        ("in-sync", Value::numbers(in_sync)),
        ("applied", number(status.applied.0)),
        ("snapshots", number(u64::from(snapshot))),
    ]);
    Event::nemesis(Function::Seen, value)
}

/// A key was tried at a member that was in sync before and after, or was not.
pub fn tried(
    function: Function,
    place: usize,
    object: i64,
    (before, used, after): (bool, &Used, bool),
) -> Event {
    let value = Value::map([
        ("object", Value::Int(object)),
        ("member", number(place as u64)),
        ("in-sync-before", Value::Bool(before)),
        ("in-sync-after", Value::Bool(after)),
        ("result", Value::word(used.word())),
    ]);
    Event::nemesis(function, value)
}

/// A member's process has ended by itself. `excused` says that its own disk or token left it nothing else.
pub fn ended(place: usize, why: String, excused: bool) -> Event {
    let value = Value::map([
        ("member", number(place as u64)),
        ("why", Value::Text(why)),
        ("excused", Value::Bool(excused)),
    ]);
    Event::nemesis(Function::Ended, value)
}

/// What a member lists in the end.
pub fn listed(place: usize, rows: &[ObjectRow]) -> Event {
    let shown = rows.iter().map(|row| {
        let (tag, _) = parted(&text(row, AttributeType::ID));
        let label = Value::Text(text(row, AttributeType::LABEL));
        Value::List(vec![number(row.object.0), Value::Text(tag), label])
    });
    let value = Value::map([("member", number(place as u64)), ("objects", Value::List(shown.collect()))]);
    Event::nemesis(Function::Listed, value)
}

/// What a member makes of the one text with a key.
pub fn proved(place: usize, object: i64, output: &[u8]) -> Event {
    let mut digest = String::new();
    for byte in output {
        // Writing to a text cannot fail.
        let _ = write!(digest, "{byte:02x}");
    }
    let value = Value::map([
        ("member", number(place as u64)),
        ("object", Value::Int(object)),
        ("digest", Value::Text(digest)),
    ]);
    Event::nemesis(Function::Proof, value)
}

/// An attribute as text.
pub fn text(row: &ObjectRow, attribute: AttributeType) -> String {
    match row.attributes.get(&attribute) {
        Some(AttributeValue::Bytes(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyraft_engine::domain::{GroupId, Lineage};
    use keyraft_engine::state::{Duty, Options};
    use keyraft_engine::token::TokenError;
    use keyraft_engine::wire::MemberStatus;

    /// What member 1 says of two, of which so many are in sync.
    fn status(in_sync: u64, unsettled: u64, primary: Option<u64>, applied: u64) -> GroupStatus {
        let row = |id: u64| MemberStatus {
            member: MemberId(id),
            name: String::new(),
            address: String::new(),
            voter: true,
            in_sync: id <= in_sync,
            reason: None,
            reached: None,
            token: String::new(),
            cannot: Vec::new(),
            duty: Duty::Active,
            awaits_operator: false,
            priority: 0,
        };
        GroupStatus {
            answered_by: MemberId(1),
            group: GroupId([0; 8]),
            lineage: Lineage(0),
            label: String::new(),
            primary: primary.map(MemberId),
            term: 1,
            applied: LogIndex(applied),
            objects: 0,
            unsettled,
            options: Options::default(),
            members: [1, 2].map(row).to_vec(),
            user_pin: false,
            so_pin: false,
            recovery: Vec::new(),
        }
    }

    #[test]
    fn a_group_is_whole_if_nothing_is_missing() {
        let says = |status: GroupStatus| {
            whole(0, &status, Wanted { members: 2, unsettled: 1, applied: LogIndex(7) })
        };
        assert_eq!(says(status(2, 1, Some(2), 9)), Ok(LogIndex(9)));
        assert_eq!(says(status(2, 0, Some(2), 7)), Ok(LogIndex(7)));
        for missing in [
            status(1, 0, Some(2), 9),
            status(2, 2, Some(2), 9),
            status(2, 0, None, 9),
            status(2, 0, Some(2), 6),
        ] {
            assert!(says(missing.clone()).is_err(), "{missing:?}");
        }
        let third =
            whole(0, &status(2, 0, Some(2), 9), Wanted { members: 3, unsettled: 1, applied: LogIndex(7) });
        assert!(third.is_err(), "one is not there at all");
    }

    #[test]
    fn a_look_is_worth_something_if_the_log_stood_still() {
        let (at, why) = (|index| Ok(LogIndex(index)), || Err("no primary".to_string()));
        assert_eq!(restless(at(7), at(7)), None);
        assert!(restless(at(7), at(8)).is_some_and(|why| why.contains("goes on")));
        assert_eq!(restless(why(), at(7)), Some("before the look: no primary".into()));
        assert_eq!(restless(at(7), why()), Some("after the look: no primary".into()));
    }

    #[test]
    fn a_key_that_the_token_lacks_is_told_from_silence() {
        let failed = |kind, message: String| Used::answered(Err(Failure::new(kind, message)));
        let lacks = TokenError::Missing(ObjectId(7)).to_string();
        assert_eq!(failed(FailureKind::NotInSync, lacks), Used::Lacking);
        assert_eq!(failed(FailureKind::NotFound, "gone".into()), Used::Absent);
        assert_eq!(failed(FailureKind::NotInSync, "it starts".into()), Used::Silent("it starts".into()));
    }
}
