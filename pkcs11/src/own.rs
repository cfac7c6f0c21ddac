//! What makes a slot one member's own: whether its token is there, and what it is called.

use crate::config::{GroupConfig, MemberConfig};
use crate::link::{Link, Lost};
use keyraft_engine::clock::Clock;
use keyraft_engine::health::Pace;
use keyraft_engine::wire::{SlotAnswer, SlotCall, SlotInfo, SlotReply};
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// How long a member may take to show that it is there.
const PRESENCE_LIMIT: Duration = Duration::from_millis(500);
/// How long that is believed: a program asks several times in a row.
const PRESENCE_KEPT: Duration = Duration::from_secs(1);
/// Bytes of CK_TOKEN_INFO's label.
const LABEL_BYTES: usize = 32;

/// A member's own slot.
pub(crate) struct Own {
    place: String,
    presence: Link,
    /// What it was, when it last said so.
    known: Mutex<Option<SlotInfo>>,
    seen: Mutex<Option<(Instant, bool)>>,
    told: Mutex<Option<bool>>,
}

impl Own {
    pub fn new(config: &MemberConfig) -> Self {
        let hasty = GroupConfig { timeout: PRESENCE_LIMIT, ..config.only.clone() };
        Self {
            place: config.place.clone(),
            presence: Link::new(&hasty),
            known: Mutex::default(),
            seen: Mutex::default(),
            told: Mutex::default(),
        }
    }

    /// True if the member answers, whatever it says. `info` asks what it is.
    pub fn is_present(&self, info: SlotCall) -> bool {
        let seen = *self.seen.lock();
        if let Some((at, present)) = seen
            && Clock.now().saturating_duration_since(at) < PRESENCE_KEPT
        {
            return present;
        }
        // One that is not there is not waited for: the caller asks for several, one after another.
        let answer = self.presence.once(info, Pace::Quick);
        let present = !matches!(answer, Err(Lost::Nobody));
        if let Ok(SlotReply { answer: SlotAnswer::Info(info), .. }) = answer {
            *self.known.lock() = Some(*info);
        }
        *self.seen.lock() = Some((Clock.now(), present));
        self.told.lock().get_or_insert(present);
        present
    }

    /// True if that is another answer than the last time.
    pub fn has_turned(&self, present: bool) -> bool {
        self.told.lock().replace(present).is_some_and(|before| before != present)
    }

    /// Names group and member, or where the member should be.
    pub fn description(&self) -> String {
        let known = self.known.lock();
        match known.as_ref().and_then(|info| Some((&info.label, info.member.as_ref()?))) {
            Some((label, (member, name))) => format!("keyraft {label}, member {member} ({name})"),
            None => format!("keyraft member at {}", self.place),
        }
    }
}

/// A token's label: the group's, and behind a stroke the member's name, which is never cut.
pub(crate) fn label(info: &SlotInfo) -> String {
    let Some((_, name)) = &info.member else { return info.label.clone() };
    let mut end = info.label.len().min(LABEL_BYTES.saturating_sub(name.len() + 1));
    while !info.label.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}/{name}", &info.label[..end])
}

/// A token's serial number: the group's id, or ten of its digits and the member's number, by which it is no group's.
pub(crate) fn serial(info: &SlotInfo) -> String {
    let group = info.group.to_string();
    match &info.member {
        None => group,
        Some((member, _)) => format!("{}m{:05}", &group[..10], member.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyraft_engine::domain::{GroupId, LogIndex, MemberId};
    use keyraft_engine::wire::PinState;

    fn info(label: &str, member: Option<(u64, &str)>) -> SlotInfo {
        let pin = PinState { set: true, tries: 0, tries_max: 10 };
        SlotInfo {
            group: GroupId([0xab; 8]),
            label: label.into(),
            applied: LogIndex(1),
            mechanisms: Vec::new(),
            user_pin: pin,
            so_pin: pin,
            member: member.map(|(id, name)| (MemberId(id), name.into())),
        }
    }

    #[test]
    fn names_tell_members_from_their_group_and_from_each_other() {
        let group = info("payments", None);
        assert_eq!((label(&group).as_str(), serial(&group).as_str()), ("payments", "abababababababab"));
        let (two, three) = (info("payments", Some((2, "b"))), info("payments", Some((3, "c"))));
        assert_eq!((label(&two).as_str(), serial(&two).as_str()), ("payments/b", "abababababm00002"));
        assert_ne!(serial(&two), serial(&three));
        let long = info("a label that takes the whole of it", Some((4, "frankfurt-2")));
        assert_eq!(label(&long), "a label that takes t/frankfurt-2");
        assert_eq!(label(&long).len(), LABEL_BYTES);
    }
}
