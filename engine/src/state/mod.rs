//! What the group has agreed on. `apply` is deterministic: no clock, no randomness, no IO, no token. Envelopes
//! (the bulk) are kept by the store under their [`ContentKey`], never change under it, and are dropped by the
//! store once no checkpoint names them; so the state itself stays an index entry an object.

mod applications;
mod apply;
pub mod command;
mod duty;
mod isolation;
#[cfg(all(test, feature = "test-hooks"))]
mod mistakes;
mod objects;
pub mod pins;
#[cfg(test)]
mod properties;
mod requests;
mod roster;
#[cfg(test)]
mod scripts;
mod shared;

pub use applications::Applications;
pub use command::{
    Authority, Bootstrap, Command, DirectChanges, GroupOption, InviteId, IsolatedService, LeaveReason,
    NewObject, Options, Outcome, PartialKeys, RecoveryCopy, Refusal, Rejection, RequestContext, RequestState,
    Settlement, Smk, Verdict,
};
pub use duty::{AutoRecovery, Duty, WayBack};
pub use isolation::Fence;
pub use pins::{AttemptTag, Pin, PinHash, Pins};
pub use requests::RequestTable;

use crate::clock::UnixMillis;
use crate::domain::{
    ContentKey, Envelope, Generation, GroupId, Lineage, LogIndex, MemberCard, MemberId, ObjectClass,
    ObjectId, RequestId,
};
use crate::limits::PRIORITY_DEFAULT;
use imbl::{OrdMap, OrdSet};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A member's standing towards the in-sync set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// Not counted on: catching up, away, or its token failed. Why, for people.
    OutOfSync(Option<LeaveReason>),
    /// Settling needs it since this entry; it serves once it has reached it.
    Entering(LogIndex),
    /// Holds every settled object it is meant to.
    InSync,
}

/// A row of the roster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// What it says of itself.
    pub card: MemberCard,
    /// Where it stands.
    pub standing: Standing,
    /// The entry that last wrote this row.
    pub index: LogIndex,
    /// What it is for.
    pub duty: Duty,
    /// Its way back into the in-sync set.
    pub way_back: WayBack,
    /// How much it is preferred as primary: the lowest leads.
    pub priority: u8,
}

impl Member {
    /// A member as it enters the roster.
    pub(crate) fn new(card: MemberCard, standing: Standing, duty: Duty, index: LogIndex) -> Self {
        Self { card, standing, index, duty, way_back: WayBack::default(), priority: PRIORITY_DEFAULT }
    }

    /// True if it left the in-sync set and comes back only once an operator asks for it.
    pub fn awaits_operator(&self, options: &Options) -> bool {
        let left = matches!(self.standing, Standing::OutOfSync(Some(_)));
        left && !self.way_back.called && !options.auto_recovery.leaves(self.way_back.tries)
    }
}

/// Where an object stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Committed, not yet answered: invisible, imported by every member.
    Pending(RequestId),
    /// Agreed.
    Settled,
    /// Removed, not yet dropped everywhere: invisible, dropped by every member.
    Removing(RequestId),
}

/// An agreed object: an index entry. The content is in the store under `content`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Names its content.
    pub content: ContentKey,
    /// Its class.
    pub class: ObjectClass,
    /// Where it stands.
    pub phase: Phase,
    /// Members that do not carry it, and why.
    pub excluded: BTreeMap<MemberId, Refusal>,
    /// The entry that last wrote this row.
    pub index: LogIndex,
}

impl Object {
    /// True if `member` is meant to hold it in its token.
    pub fn is_held_by(&self, member: MemberId) -> bool {
        self.class.is_resident()
            && !matches!(self.phase, Phase::Removing(_))
            && !self.excluded.contains_key(&member)
    }
}

/// An open invitation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invite {
    /// SHA-256 of its secret.
    pub secret_hash: [u8; 32],
    /// The end of its life.
    pub expires: UnixMillis,
    /// The duty of the member that it admits.
    pub duty: Duty,
}

/// What a bootstrapped group is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its identity.
    pub id: GroupId,
    /// Its history.
    pub lineage: Lineage,
    /// The virtual token's label.
    pub label: String,
    /// Its certificate authority.
    pub authority: Authority,
}

/// The agreed state. Cloning is cheap (maps share structure), so that a checkpoint is written from a clone while
/// writes go on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    applied: LogIndex,
    group: Option<Group>,
    options: Options,
    #[serde(deserialize_with = "shared::map")]
    members: OrdMap<MemberId, Member>,
    next_member: u64,
    #[serde(deserialize_with = "shared::map")]
    invites: OrdMap<InviteId, Invite>,
    #[serde(deserialize_with = "shared::map")]
    smks: OrdMap<Generation, Smk>,
    #[serde(deserialize_with = "shared::map")]
    objects: OrdMap<ObjectId, Object>,
    #[serde(deserialize_with = "shared::set")]
    unsettled: OrdSet<RequestId>,
    /// The lowest id that was never reserved.
    next_object: u64,
    /// Ids that are reserved and unused, by the primary that asked for them.
    #[serde(deserialize_with = "shared::map_of_sets")]
    reserved: OrdMap<MemberId, OrdSet<ObjectId>>,
    requests: RequestTable,
    pins: Pins,
    applications: Applications,
    fence: Option<Fence>,
}

/// What one applied command did, for those who act on it after the state has moved on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// The answer to the proposer.
    pub outcome: Outcome,
    /// Contents that the store must keep from now on.
    pub contents: Vec<(ContentKey, Envelope)>,
    /// Objects whose row changed or went.
    pub objects: Vec<ObjectId>,
    /// True if the roster, the options, the invitations or the SMKs changed.
    pub roster: bool,
}

impl State {
    /// Applies one committed command. Same state and command, same outcome, on every member. An index at or below
    /// the applied one changes nothing.
    pub fn apply(&mut self, index: LogIndex, command: Command) -> Effects {
        apply::apply(self, index, command)
    }

    /// Notes an entry that carries no command (a blank or a membership entry).
    pub fn skip(&mut self, index: LogIndex) {
        self.applied = self.applied.max(index);
    }

    /// The last applied entry.
    pub fn applied(&self) -> LogIndex {
        self.applied
    }

    /// The group, once bootstrapped.
    pub fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    /// The options.
    pub fn options(&self) -> Options {
        self.options
    }

    /// Since when the group fences, and who has yet to confirm it; None in serve mode.
    pub fn fence(&self) -> Option<&Fence> {
        self.fence.as_ref()
    }

    /// The PINs of the virtual token, and who tried wrong ones.
    pub fn pins(&self) -> &Pins {
        &self.pins
    }

    /// The applications that have a certificate.
    pub fn applications(&self) -> &Applications {
        &self.applications
    }

    /// The roster, by id.
    pub fn members(&self) -> impl Iterator<Item = (MemberId, &Member)> {
        self.members.iter().map(|(id, member)| (*id, member))
    }

    /// One member.
    pub fn member(&self, id: MemberId) -> Option<&Member> {
        self.members.get(&id)
    }

    /// True if this state has admitted nobody of this id yet, and removed nobody: ids only grow. A later state may know
    /// the member.
    pub fn is_to_come(&self, id: MemberId) -> bool {
        id.0 >= self.next_member
    }

    /// The members that settling needs: in sync, or entering.
    pub fn required(&self) -> BTreeSet<MemberId> {
        self.members
            .iter()
            .filter(|(_, m)| !matches!(m.standing, Standing::OutOfSync(_)))
            .map(|(id, _)| *id)
            .collect()
    }

    /// The members that are in sync.
    pub fn in_sync(&self) -> BTreeSet<MemberId> {
        self.members.iter().filter(|(_, m)| m.standing == Standing::InSync).map(|(id, _)| *id).collect()
    }

    /// The members in sync in the order in which they are asked to use a key: active ones, then standbys.
    pub fn in_serving_order(&self) -> Vec<MemberId> {
        let of = |duty| {
            let fit = move |m: &Member| m.standing == Standing::InSync && m.duty == duty;
            self.members.iter().filter(move |(_, m)| fit(m)).map(|(id, _)| *id)
        };
        of(Duty::Active).chain(of(Duty::Standby)).collect()
    }

    /// An open invitation.
    pub fn invite(&self, id: InviteId) -> Option<&Invite> {
        self.invites.get(&id)
    }

    /// Every live SMK generation, oldest first.
    pub fn smks(&self) -> impl Iterator<Item = &Smk> {
        self.smks.values()
    }

    /// The generation that new keys use.
    pub fn generation(&self) -> Option<Generation> {
        self.smks.get_max().map(|(generation, _)| *generation)
    }

    /// Every row, pending and removing ones too.
    pub fn objects(&self) -> impl Iterator<Item = (ObjectId, &Object)> {
        self.objects.iter().map(|(id, object)| (*id, object))
    }

    /// One row, in whatever phase.
    pub fn object(&self, id: ObjectId) -> Option<&Object> {
        self.objects.get(&id)
    }

    /// Requests that wait for a Settle, oldest client first.
    pub fn unsettled(&self) -> impl Iterator<Item = RequestId> {
        self.unsettled.iter().copied()
    }

    /// Rows that wait for a settlement.
    pub fn unsettled_objects(&self) -> impl Iterator<Item = (ObjectId, &Object)> {
        self.unsettled.iter().flat_map(|request| self.objects_of(*request))
    }

    /// The rows of one unsettled request.
    pub fn objects_of(&self, request: RequestId) -> impl Iterator<Item = (ObjectId, &Object)> {
        let ids = match self.requests.get(request) {
            Some(RequestState::Creating(ids) | RequestState::Removing(ids)) => ids,
            _ => Vec::new(),
        };
        ids.into_iter().filter_map(|id| self.objects.get(&id).map(|object| (id, object)))
    }

    /// Where a request stands: None if it was never applied (or its client is unknown).
    pub fn request(&self, id: RequestId) -> Option<RequestState> {
        self.requests.get(id)
    }

    /// What came so far of this very request: None if it is not in the table.
    ///
    /// # Errors
    /// [`Rejection::ParametersDiffer`] if its id was used for something else.
    pub fn repeated(&self, request: &RequestContext) -> Result<Option<RequestState>, Rejection> {
        self.requests.known(request)
    }

    /// The members that a Done for this unsettled request must cover now; empty if no token has to hold or drop
    /// anything, or if the request is not unsettled.
    pub fn waits_for(&self, id: RequestId) -> BTreeSet<MemberId> {
        match self.request(id) {
            Some(RequestState::Creating(objects) | RequestState::Removing(objects)) => {
                objects.iter().flat_map(|object| self.must_act(*object)).collect()
            }
            _ => BTreeSet::new(),
        }
    }

    /// The members whose tokens are counted on for one object now.
    fn must_act(&self, id: ObjectId) -> BTreeSet<MemberId> {
        match self.objects.get(&id) {
            Some(object) if object.class.is_resident() => {
                let mut members = self.required();
                members.retain(|member| !object.excluded.contains_key(member));
                members
            }
            _ => BTreeSet::new(),
        }
    }

    /// Contents that this state names: what a checkpoint of it must keep.
    pub fn contents(&self) -> impl Iterator<Item = ContentKey> {
        self.objects.values().map(|object| object.content)
    }

    /// True if [`State::contents`] has this content.
    pub fn names_content(&self, content: ContentKey) -> bool {
        self.objects.get(&content.object).is_some_and(|object| object.content == content)
    }
}
