//! What the log can say, and what comes of it. The order of variants is the log format: add at the end, never
//! behind a cfg. tests/scripts/format shows the bytes.

use super::duty::{AutoRecovery, Duty};
use super::pins::{AttemptTag, PinHash};
use crate::clock::UnixMillis;
use crate::domain::{
    ApplicationName, ClientName, ContentKey, Envelope, Fingerprint, Generation, GroupId, Lineage, LogIndex,
    MemberCard, MemberId, ObjectClass, ObjectId, RequestId, Role, Version,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A change asked for by a client: its identity and the bound below which the client asks for nothing again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestContext {
    /// The request.
    pub id: RequestId,
    /// Outcomes of lower sequences may be forgotten; asking for one answers Expired.
    pub watermark: u64,
    /// SHA-256 over the request's parameters, first 16 bytes: the same id with others is refused.
    pub parameters: [u8; 16],
}

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// The first entry of a group: its identity, first member (in sync), first SMK generation.
    Bootstrap(Box<Bootstrap>),
    /// Opens an invitation.
    Invite {
        /// Its public name.
        id: InviteId,
        /// SHA-256 of its secret.
        secret_hash: [u8; 32],
        /// The end of its life.
        expires: UnixMillis,
        /// When the primary opened it; invitations that were over by then are dropped.
        at: UnixMillis,
        /// The duty of the member that it admits.
        duty: Duty,
    },
    /// Admits the holder of an invitation as a new member, out of sync. Uses the invitation up.
    Admit {
        /// The invitation.
        invite: InviteId,
        /// When the primary verified it.
        at: UnixMillis,
        /// The newcomer.
        card: Box<MemberCard>,
    },
    /// A member says what it is now (a new address, a new token, a new profile).
    Announce {
        /// The member.
        member: MemberId,
        /// What it is.
        card: Box<MemberCard>,
    },
    /// Removes a member for good; its id is never used again.
    RemoveMember {
        /// The member.
        member: MemberId,
    },
    /// From this entry on, settling needs this member too; it is in sync once it has reached this entry.
    EnterInSync {
        /// The member.
        member: MemberId,
    },
    /// The member's reconciler has reached an index at or behind its entering: it is in sync.
    ReachInSync {
        /// The member.
        member: MemberId,
        /// What its reconciler has reached.
        reached: LogIndex,
    },
    /// Takes a member out of the in-sync set; refused for the last one.
    LeaveInSync {
        /// The member.
        member: MemberId,
        /// Why.
        reason: LeaveReason,
    },
    /// Reserves the next block of object ids for one primary.
    ReserveIds {
        /// Who asked.
        member: MemberId,
        /// How many.
        count: u64,
    },
    /// Puts new objects, pending: invisible until settled.
    Put {
        /// The request.
        request: RequestContext,
        /// One object, or a pair.
        objects: Vec<NewObject>,
    },
    /// Ends pending puts and unfinished removals.
    Settle {
        /// One a request.
        settlements: Vec<Settlement>,
    },
    /// Removes objects: invisible at once, finished when every in-sync member has dropped its copies.
    Remove {
        /// The request.
        request: RequestContext,
        /// The objects (a pair has two).
        objects: Vec<ObjectId>,
    },
    /// Sets one of the group's options.
    SetOption(GroupOption),
    /// Sets a role's PIN, or takes it away. Every wrong try at the old one is forgotten.
    SetPin {
        /// Whose.
        role: Role,
        /// The new PIN's hash; None: nobody can log in as this role.
        hash: Option<PinHash>,
        /// The version that it follows; refused if another one has come meanwhile.
        follows: u32,
        /// The application's request, if there was one.
        by: Option<RequestId>,
    },
    /// Counts a try at a PIN as wrong, before it is looked at. The same attempt counts once.
    ChargePin {
        /// Who tries.
        who: ClientName,
        /// As what.
        role: Role,
        /// The attempt.
        attempt: RequestId,
        /// Tells this attempt's PIN from another one that is tried under the same attempt.
        tag: AttemptTag,
    },
    /// The try was right: forgets this client's wrong ones.
    ClearPin {
        /// Who tried.
        who: ClientName,
        /// As what.
        role: Role,
    },
    /// Swaps a settled object's content for its next version. It shows at once; members import it anew.
    Replace {
        /// The request.
        request: RequestContext,
        /// The object with its next version; its class and exclusions stay as they are.
        object: NewObject,
    },
    /// Lets an application prove itself by a certificate. The same again changes nothing.
    AddClient {
        /// Its name.
        name: ApplicationName,
        /// The key that its certificate is for.
        tls: Fingerprint,
    },
    /// Refuses an application from now on.
    RemoveClient {
        /// Its name.
        name: ApplicationName,
    },
    /// Makes a member active or a standby; refused for the last active one. The same again changes nothing.
    SetDuty {
        /// The member.
        member: MemberId,
        /// What it shall be.
        duty: Duty,
    },
    /// Counts one of the tries to take a member back that has left the in-sync set: it was not there.
    CountRetry {
        /// The member.
        member: MemberId,
    },
    /// An operator wants a member back in the in-sync set, however many tries were counted.
    Recover {
        /// The member.
        member: MemberId,
    },
    /// Says how much the group prefers a member as its primary.
    SetPriority {
        /// The member.
        member: MemberId,
        /// The lowest leads.
        priority: u8,
    },
    /// A member keeps on its disk that the group fences since this entry: whatever becomes of it, it serves no more
    /// without a lease.
    ConfirmFence {
        /// The member.
        member: MemberId,
        /// The entry that began it.
        since: LogIndex,
    },
    /// Notes that a compare-and-set found another value: its request ends so, and the object stays as it is.
    Differ {
        /// The request.
        request: RequestContext,
        /// The object.
        object: ObjectId,
        /// The version that was looked at; refused if another one has come meanwhile.
        version: Version,
    },
}

/// openraft asks for Display and prints it: kinds and ids, never contents.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bootstrap(b) => write!(f, "Bootstrap {}", b.group),
            Self::Invite { id, .. } => write!(f, "Invite {id}"),
            Self::Admit { card, .. } => write!(f, "Admit {}", card.name),
            Self::Announce { member, .. } => write!(f, "Announce {member}"),
            Self::RemoveMember { member } => write!(f, "RemoveMember {member}"),
            Self::EnterInSync { member } => write!(f, "EnterInSync {member}"),
            Self::ReachInSync { member, reached } => write!(f, "ReachInSync {member} {reached}"),
            Self::LeaveInSync { member, reason } => write!(f, "LeaveInSync {member} ({reason})"),
            Self::ReserveIds { member, count } => write!(f, "ReserveIds {count} for {member}"),
            Self::Put { request, objects } => {
                write!(f, "Put {}", request.id)?;
                objects.iter().try_for_each(|o| write!(f, " {}", o.content.object))
            }
            Self::Settle { settlements } => write!(f, "Settle {}", settlements.len()),
            Self::Remove { request, objects } => {
                write!(f, "Remove {}", request.id)?;
                objects.iter().try_for_each(|o| write!(f, " {o}"))
            }
            Self::SetOption(option) => write!(f, "SetOption {option:?}"),
            Self::SetPin { role, follows, .. } => write!(f, "SetPin {role} after {follows}"),
            Self::ChargePin { who, role, attempt, .. } => write!(f, "ChargePin {who} {role} {attempt}"),
            Self::ClearPin { who, role } => write!(f, "ClearPin {who} {role}"),
            Self::Replace { request, object } => {
                write!(f, "Replace {} {}", request.id, object.content)
            }
            Self::AddClient { name, .. } => write!(f, "AddClient {name}"),
            Self::RemoveClient { name } => write!(f, "RemoveClient {name}"),
            Self::SetDuty { member, duty } => write!(f, "SetDuty {member} {duty}"),
            Self::CountRetry { member } => write!(f, "CountRetry {member}"),
            Self::Recover { member } => write!(f, "Recover {member}"),
            Self::SetPriority { member, priority } => write!(f, "SetPriority {member} {priority}"),
            Self::ConfirmFence { member, since } => write!(f, "ConfirmFence {member} since {since}"),
            Self::Differ { request, object, .. } => write!(f, "Differ {} {object}", request.id),
        }
    }
}

/// The public name of an invitation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InviteId(pub [u8; 8]);

impl fmt::Display for InviteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for InviteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How a group begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bootstrap {
    /// Its identity.
    pub group: GroupId,
    /// 1 for a new group.
    pub lineage: Lineage,
    /// The virtual token's label.
    pub label: String,
    /// The first member.
    pub card: MemberCard,
    /// The first SMK generation.
    pub smk: Smk,
    /// The group's certificate authority.
    pub authority: Authority,
    /// The options at birth.
    pub options: Options,
}

/// The group's certificate authority, kept in the agreed state.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// Its certificate, DER.
    pub certificate: Vec<u8>,
    /// Its private key (PKCS#8), sealed under the envelope key of generation 1.
    pub sealed_key: Envelope,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority(..)")
    }
}

/// One generation of the SMK as the group agreed on it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Smk {
    /// Its number.
    pub generation: Generation,
    /// The SMK wrapped by itself (RFC 5649, 40 bytes): what admission unwraps, never an application object.
    pub self_blob: Vec<u8>,
    /// SMK and envelope key wrapped to the offline recovery key, if one was named.
    pub recovery: Option<RecoveryCopy>,
}

impl fmt::Debug for Smk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Smk({})", self.generation)
    }
}

/// What the offline recovery key can open (RSA-OAEP, SHA-1).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryCopy {
    /// SubjectPublicKeyInfo (DER) of the recovery key.
    pub recipient: Vec<u8>,
    /// The SMK under it.
    pub smk: Vec<u8>,
    /// The envelope key under it.
    pub envelope_key: Vec<u8>,
}

impl fmt::Debug for RecoveryCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecoveryCopy(..)")
    }
}

/// A new object as the primary originated it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewObject {
    /// Its name; the id comes from a block reserved for this primary.
    pub content: ContentKey,
    /// Its class: says whether members import it.
    pub class: ObjectClass,
    /// Its sealed content.
    pub envelope: Envelope,
    /// Members that cannot carry it (only with `partial_keys = allow`), and why.
    pub excluded: BTreeMap<MemberId, Refusal>,
}

/// The end of one pending put or one unfinished removal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settlement {
    /// The request that made it pending.
    pub request: RequestId,
    /// How it ends.
    pub verdict: Verdict,
}

/// How a pending request ends. Order is the log format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// These members hold it (put) or have dropped it (removal). Honoured only if they cover the in-sync set.
    Done {
        /// The members.
        holders: BTreeSet<MemberId>,
        /// Members whose tokens refused it, with `partial_keys = allow`.
        excluded: BTreeMap<MemberId, Refusal>,
    },
    /// A healthy token refused it: it is gone everywhere. Puts only.
    Aborted(Refusal),
}

/// Why a healthy member refused an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Who refused.
    pub member: MemberId,
    /// Why, for people; at most `limits::TEXT_MAX_BYTES`.
    pub reason: String,
}

/// Why a member left the in-sync set. Order is the log format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaveReason {
    /// It did not answer within its import deadline.
    Unreachable,
    /// Its token failed its canary or an import.
    TokenFailed(String),
    /// It said goodbye.
    Stopped,
}

impl fmt::Display for LeaveReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable => f.write_str("unreachable"),
            Self::TokenFailed(why) => write!(f, "token failed: {why}"),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

/// Whether a key that some in-sync member cannot carry may exist. Order is the log format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartialKeys {
    /// Refused before commit.
    #[default]
    Refuse,
    /// Kept; the object shows which members lack it, and use is routed around them.
    Allow,
}

/// What a member does when cut off from the quorum. Order is the log format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IsolatedService {
    /// Existing keys stay usable.
    #[default]
    Serve,
    /// Use stops outside a lease.
    Fence,
}

/// What `synchronize` does with what was made or deleted on one member's own slot. Order is the log format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DirectChanges {
    /// What was made there is destroyed, what was deleted there is imported again.
    #[default]
    Undo,
    /// What was made there becomes the group's, what was deleted there is deleted in the group.
    Adopt,
}

/// The group's options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// See [`PartialKeys`].
    pub partial_keys: PartialKeys,
    /// Lets a key pass through process memory where a token cannot wrap its kind.
    pub allow_inmemory_import: bool,
    /// See [`IsolatedService`].
    pub isolated_service: IsolatedService,
    /// Lets the security officer of the virtual token empty it by C_InitToken.
    pub allow_init_token: bool,
    /// See [`AutoRecovery`].
    pub auto_recovery: AutoRecovery,
    /// Among candidates for primary, priority comes before uptime.
    pub primary_override: bool,
    /// Uptimes of candidates for primary that differ by no more are equal, seconds.
    pub uptime_margin_s: u32,
    /// See [`DirectChanges`].
    pub direct_changes: DirectChanges,
}

/// One option, set. Order is the log format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupOption {
    /// See [`PartialKeys`].
    PartialKeys(PartialKeys),
    /// See [`Options::allow_inmemory_import`].
    AllowInmemoryImport(bool),
    /// See [`IsolatedService`].
    IsolatedService(IsolatedService),
    /// See [`Options::allow_init_token`].
    AllowInitToken(bool),
    /// See [`AutoRecovery`].
    AutoRecovery(AutoRecovery),
    /// See [`Options::primary_override`].
    PrimaryOverride(bool),
    /// See [`Options::uptime_margin_s`]; at most `limits::UPTIME_MARGIN_MAX_SECONDS`.
    UptimeMargin(u32),
    /// See [`DirectChanges`].
    DirectChanges(DirectChanges),
}

/// What an applied command came to. The same on every member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Nothing to tell (also for the entries that openraft makes itself).
    #[default]
    Applied,
    /// The newcomer's id.
    Admitted(MemberId),
    /// The block of ids: `first` to `first + count - 1`.
    Reserved {
        /// The first id.
        first: ObjectId,
        /// How many.
        count: u64,
    },
    /// The request's state after this command: for Put and Remove.
    Request(RequestState),
    /// One a settlement, in order: true if it was honoured now.
    Settled(Vec<bool>),
    /// The command changed nothing.
    Rejected(Rejection),
    /// Wrong tries of the client, this one among them: for ChargePin.
    Charged(u32),
}

/// Where a request stands. Order is the log format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestState {
    /// Put, and waiting for the in-sync members.
    Creating(Vec<ObjectId>),
    /// Removed, and waiting for the in-sync members to drop it.
    Removing(Vec<ObjectId>),
    /// Held by every in-sync member.
    Created(Vec<ObjectId>),
    /// Dropped by every in-sync member.
    Removed(Vec<ObjectId>),
    /// Refused by a healthy token, gone everywhere.
    Aborted(Refusal),
    /// Refused by `apply`: nothing was put or removed.
    Rejected(Rejection),
    /// Agreed in a new version.
    Replaced(ObjectId),
    /// A compare-and-set found another value.
    Differs(ObjectId),
}

/// Why `apply` refused a command. Order is the log format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Rejection {
    /// A second Bootstrap.
    #[error("the group exists already")]
    AlreadyBootstrapped,
    /// Anything before Bootstrap.
    #[error("the group does not exist yet")]
    NotBootstrapped,
    /// No such member.
    #[error("there is no member {0}: see 'keyraft member list'")]
    NoSuchMember(MemberId),
    /// The group is full.
    #[error("the group has its {max} members already", max = crate::limits::MEMBERS_MAX)]
    TooManyMembers,
    /// The name or address is taken.
    #[error("a member with the name or address '{0}' exists: choose another in its configuration")]
    MemberExists(String),
    /// The invitation is unknown, used or over.
    #[error("the invitation is unknown, used or expired: ask for a new one with 'keyraft invite'")]
    InviteInvalid,
    /// Too many open invitations.
    #[error("{max} invitations are open: use one or wait until they expire", max = crate::limits::INVITES_MAX)]
    TooManyInvites,
    /// The last in-sync member cannot leave.
    #[error("{0} is the last member in sync and cannot leave")]
    LastInSync(MemberId),
    /// The member is not where the command needs it.
    #[error("{0} does not stand where this needs it")]
    WrongStanding(MemberId),
    /// The object id is not from a reserved block, or was used.
    #[error("object id {0} is not free")]
    IdNotFree(ObjectId),
    /// Sealed under a generation that is not current.
    #[error("SMK generation {0} is not current")]
    StaleGeneration(Generation),
    /// No such settled object.
    #[error("there is no object {0}: see 'keyraft key list'")]
    NoSuchObject(ObjectId),
    /// Below the watermark, or the client was forgotten.
    #[error("the request is too old: its outcome is no longer kept; look for the key before asking again")]
    Expired,
    /// The same request id with other parameters.
    #[error("the request id was used for another request")]
    ParametersDiffer,
    /// The client asks for too much at once.
    #[error("the client has {max} requests above its watermark", max = crate::limits::OUTCOMES_PER_CLIENT_MAX)]
    TooManyRequests,
    /// The command's shape is wrong (too many objects, too long a text, a key blob that is an SMK's own).
    #[error("the command is malformed: {0}")]
    Malformed(String),
    /// The client has had its tries.
    #[error(
        "the PIN is locked for this client after {max} wrong tries: the security officer unlocks the user's with \
         C_InitPIN, an operator either with 'keyraft pin set'", max = crate::limits::PIN_TRIES_MAX
    )]
    PinLocked,
    /// No such PIN is set.
    #[error("no {0} PIN is set: an operator sets it with 'keyraft pin set --role {0}'")]
    PinNotSet(Role),
    /// The PIN has another version by now.
    #[error("the {0} PIN was changed meanwhile: try again")]
    PinChanged(Role),
    /// A replacement of another version than the agreed one.
    #[error("the object has version {0} by now")]
    Superseded(Version),
    /// The name has another key, or the key another name.
    #[error("a client '{0}' exists: choose another name, or remove it with 'keyraft client remove {0}'")]
    ClientExists(ApplicationName),
    /// No such client.
    #[error("there is no client '{0}': see 'keyraft client list'")]
    NoSuchClient(ApplicationName),
    /// The list is full.
    #[error("{max} clients have certificates: remove one that is no longer used", max = crate::limits::APPLICATIONS_MAX)]
    TooManyClients,
    /// Somebody has to serve.
    #[error(
        "{0} is the last active member and cannot become a standby: make another one active first with \
         'keyraft member activate'"
    )]
    LastActive(MemberId),
}

/// A version that follows none.
pub const FIRST_VERSION: Version = Version(1);
