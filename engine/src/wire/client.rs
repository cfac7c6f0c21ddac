//! What clients ask. A client may ask any member; the service carries it to the member that can answer.

use super::failure::Undecided;
use super::member::{Compared, ComparisonTotals};
use super::slot::{SlotCall, SlotReply};
use super::telemetry::{MemberPulse, Operation};
use crate::domain::{
    ApplicationName, AttributeType, AttributeValue, Attributes, CannotCarry, ContentKey, Envelope,
    Fingerprint, Generation, GroupId, KeyAlgorithm, Lineage, LogIndex, Mechanism, MemberId, ObjectClass,
    ObjectId, RequestId, Role,
};
use crate::state::{Duty, GroupOption, LeaveReason, Options, RecoveryCopy};
use serde::{Deserialize, Serialize};
use std::fmt;
use zeroize::Zeroizing;

/// From a client. Order is the wire format.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ClientRequest {
    /// Who is there: answered by any member at once.
    Status,
    /// Generates a key or a pair.
    Create(CreateKey),
    /// Brings a key or object in by value.
    Import(ImportKey),
    /// Deletes objects.
    Delete(Deletion),
    /// Lists objects whose label, id or class match; empty filters match all. Behind a read barrier.
    List {
        /// CKA_LABEL, exact.
        label: Option<String>,
        /// Go on behind this object.
        after: Option<ObjectId>,
    },
    /// One object with all its attributes. Behind a read barrier if it is not known.
    Show(ObjectId),
    /// Uses a key.
    Use(UseRequest),
    /// Which member holds what.
    Coverage {
        /// Go on behind this object.
        after: Option<ObjectId>,
    },
    /// Compares agreed with held on every member now, and waits for the result.
    Synchronize,
    /// Opens an invitation; answered with the text to hand over.
    Invite {
        /// Life, seconds.
        life_seconds: u64,
    },
    /// Removes a member for good.
    RemoveMember(MemberId),
    /// Hands the primary's part to another member.
    StepDown {
        /// To whom; the best candidate if None.
        to: Option<MemberId>,
    },
    /// Tells a member to take its token back into use (after its replacement or repair).
    Recover,
    /// Sets an option of the group.
    SetOption(GroupOption),
    /// The member checks its token and its place in the group, and says what it finds.
    Check,
    /// A call on the virtual slot, by an application.
    Slot(Box<SlotCall>),
    /// An operator sets a PIN of the virtual token, and so unlocks it for everybody.
    SetPin {
        /// Whose.
        role: Role,
        /// The new PIN.
        pin: SecretBytes,
    },
    /// Lets an application in by a certificate, and signs that.
    AddClient {
        /// Its name.
        name: ApplicationName,
        /// For the application's own TLS key (PKCS#10 DER); names nobody.
        signing_request: Vec<u8>,
    },
    /// Refuses an application from now on.
    RemoveClient(ApplicationName),
    /// The applications that have a certificate.
    Clients,
    /// As Invite, for a member that begins as a standby.
    InviteStandby {
        /// Life, seconds.
        life_seconds: u64,
    },
    /// Makes a member active or a standby.
    SetDuty {
        /// The member.
        member: MemberId,
        /// What it shall be.
        duty: Duty,
    },
    /// Takes a member back into the in-sync set, however many tries were made.
    RecoverMember(MemberId),
    /// Says how much the group prefers a member as its primary.
    SetPriority {
        /// The member.
        member: MemberId,
        /// The lowest leads.
        priority: u8,
    },
    /// Makes what was made on one member's own slot the group's.
    Adopt(Box<Adoption>),
    /// How every member is now, as each says itself.
    Pulses,
    /// The last operations of clients, at every member.
    Explain {
        /// Only this client's, as members name it: `client:NAME` or `uid:N`.
        client: Option<String>,
        /// At most so many.
        last: u32,
    },
    /// Sets an attribute of an agreed object if it still has a certain value.
    CompareAndSet(Box<CompareAndSet>),
}

impl ClientRequest {
    /// What an attempt without an answer leaves undecided.
    pub fn undecided(&self) -> Undecided {
        match self {
            Self::Slot(call) => call.ask.undecided(),
            Self::Delete(_) | Self::CompareAndSet(_) => Undecided::Changing,
            Self::Status
            | Self::List { .. }
            | Self::Show(_)
            | Self::Use(_)
            | Self::Coverage { .. }
            | Self::Synchronize
            | Self::Check
            | Self::Clients
            | Self::Pulses
            | Self::Explain { .. } => Undecided::Nothing,
            Self::Create(_)
            | Self::Import(_)
            | Self::Invite { .. }
            | Self::InviteStandby { .. }
            | Self::RemoveMember(_)
            | Self::StepDown { .. }
            | Self::Recover
            | Self::RecoverMember(_)
            | Self::SetOption(_)
            | Self::SetPin { .. }
            | Self::AddClient { .. }
            | Self::RemoveClient(_)
            | Self::SetDuty { .. }
            | Self::SetPriority { .. }
            | Self::Adopt(_) => Undecided::Making,
        }
    }
}

/// "If this attribute still has this value, set it to that": one step, whoever else changes the object.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CompareAndSet {
    /// Repeated under the same id, it happens once, and has one outcome.
    pub request: RequestId,
    /// Lower sequences are never asked for again.
    pub watermark: u64,
    /// The object.
    pub object: ObjectId,
    /// One of its attributes that may change.
    pub attribute: AttributeType,
    /// The value that it must have; None: the object must lack it.
    pub expected: Option<AttributeValue>,
    /// The value that it gets.
    pub value: AttributeValue,
}

/// An object of one member alone that becomes the group's: the same key, under an id of the group's.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Adoption {
    /// Repeated under the same id, it happens once.
    pub request: RequestId,
    /// Its name on the member.
    pub content: ContentKey,
    /// Its content, sealed under that name.
    pub envelope: Envelope,
}

/// What to generate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CreateKey {
    /// Repeated under the same id, it happens once.
    pub request: RequestId,
    /// Lower sequences are never asked for again.
    pub watermark: u64,
    /// What.
    pub template: KeyTemplate,
}

/// How a new key shall be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyTemplate {
    /// Kind and size.
    pub algorithm: KeyAlgorithm,
    /// Attributes of the secret or private key that differ from the defaults (SENSITIVE, not EXTRACTABLE, every
    /// usage that the kind knows). LABEL and ID are copied to the public key as well.
    pub attributes: Attributes,
}

/// Bytes that are a secret. Never printed, wiped on drop.
#[derive(Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct SecretBytes(pub Zeroizing<Vec<u8>>);

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretBytes({})", self.0.len())
    }
}

/// What to bring in. Order of variants is the wire format.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ImportKey {
    /// Repeated under the same id, it happens once.
    pub request: RequestId,
    /// Lower sequences are never asked for again.
    pub watermark: u64,
    /// Class of the object.
    pub class: ObjectClass,
    /// Kind and size; None for certificates and data.
    pub algorithm: Option<KeyAlgorithm>,
    /// Attributes besides the value.
    pub attributes: Attributes,
    /// A secret key's value; a private key's PKCS#8; a public key's SubjectPublicKeyInfo; a certificate or data.
    pub value: SecretBytes,
}

/// What to delete.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Deletion {
    /// Repeated under the same id, it happens once.
    pub request: RequestId,
    /// Lower sequences are never asked for again.
    pub watermark: u64,
    /// The objects.
    pub objects: Vec<ObjectId>,
}

/// A single-part use of a key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UseRequest {
    /// The key.
    pub object: ObjectId,
    /// What with it.
    pub kind: UseKind,
    /// How.
    pub mechanism: Mechanism,
    /// The data.
    pub data: SecretBytes,
    /// Only at this member (tests and `demo`); any in-sync member if None.
    pub at: Option<MemberId>,
}

/// What a key is used for. Order is the wire format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UseKind {
    /// C_Sign
    Sign,
    /// C_Verify of this signature
    Verify(Vec<u8>),
    /// C_Encrypt
    Encrypt,
    /// C_Decrypt
    Decrypt,
    /// C_SignRecover
    SignRecover,
    /// C_VerifyRecover
    VerifyRecover,
}

/// Answers to clients. Order is the wire format.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Done; nothing to tell.
    Done,
    /// To Status.
    Status(Box<GroupStatus>),
    /// To Create and Import: the secret key, or private then public.
    Created(Vec<ObjectRow>),
    /// To List and Show. `more` if the list goes on.
    Objects {
        /// The rows.
        rows: Vec<ObjectRow>,
        /// There are more behind the last.
        more: bool,
    },
    /// To Use: signature, ciphertext or plaintext, and who made it. Empty for a good verification.
    Used {
        /// The output.
        output: SecretBytes,
        /// The member that did it.
        by: MemberId,
    },
    /// To Coverage.
    Coverage {
        /// The rows.
        rows: Vec<CoverageRow>,
        /// There are more behind the last.
        more: bool,
    },
    /// To Invite.
    Invitation(String),
    /// To Check: findings for people, one a line; empty if nothing is wrong with the member that was asked.
    Findings(Vec<String>),
    /// To Slot.
    Slot(Box<SlotReply>),
    /// To AddClient.
    Certified {
        /// The application's certificate, DER.
        certificate: Vec<u8>,
        /// The group's authority's, DER.
        authority: Vec<u8>,
    },
    /// To Clients: each with the key of its certificate.
    Clients(Vec<(ApplicationName, Fingerprint)>),
    /// To Synchronize.
    Synchronized {
        /// What was not done first, then what was.
        rows: Vec<ComparisonRow>,
        /// In numbers, member by member.
        totals: Vec<(MemberId, ComparisonTotals)>,
        /// True if there was no room for all rows.
        more: bool,
    },
    /// To Pulses: one a member of the roster.
    Pulses(Vec<MemberPulse>),
    /// To Explain.
    Operations {
        /// Oldest first.
        rows: Vec<Operation>,
        /// Members that did not answer: what they did is not among them.
        silent: Vec<MemberId>,
    },
    /// To CompareAndSet. False: the attribute had another value, and the group has agreed that nothing was set.
    ComparedAndSet(bool),
}

/// What `synchronize` did with one object on one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparisonRow {
    /// The member.
    pub member: MemberId,
    /// The object; None for what concerns the whole member.
    pub object: Option<ObjectId>,
    /// Its label, if it is known.
    pub label: String,
    /// What was done.
    pub action: Compared,
}

/// What `status` shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Who answers.
    pub answered_by: MemberId,
    /// The group.
    pub group: GroupId,
    /// Its history.
    pub lineage: Lineage,
    /// Its label.
    pub label: String,
    /// The primary as this member knows it.
    pub primary: Option<MemberId>,
    /// Raft's term.
    pub term: u64,
    /// What this member has applied.
    pub applied: LogIndex,
    /// Settled objects.
    pub objects: u64,
    /// Pending or removing objects.
    pub unsettled: u64,
    /// The options.
    pub options: Options,
    /// The roster.
    pub members: Vec<MemberStatus>,
    /// True if the virtual token has a user PIN.
    pub user_pin: bool,
    /// True if it has a security officer's PIN.
    pub so_pin: bool,
    /// What the offline recovery key can open, by SMK generation; empty if none was named.
    pub recovery: Vec<(Generation, RecoveryCopy)>,
}

/// A row of `status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its id.
    pub member: MemberId,
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: String,
    /// True if it votes.
    pub voter: bool,
    /// True if it is in sync.
    pub in_sync: bool,
    /// Why not, if it is known.
    pub reason: Option<LeaveReason>,
    /// The last index that the answering member knows it reached.
    pub reached: Option<LogIndex>,
    /// Its token, for people.
    pub token: String,
    /// Kinds of keys that it cannot carry.
    pub cannot: Vec<(KeyAlgorithm, CannotCarry)>,
    /// What it is for.
    pub duty: Duty,
    /// True if it comes back into the in-sync set only once an operator asks for it.
    pub awaits_operator: bool,
    /// How much it is preferred as primary: the lowest leads.
    pub priority: u8,
}

/// An object as clients see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectRow {
    /// Its id and handle.
    pub object: ObjectId,
    /// Its class.
    pub class: ObjectClass,
    /// Kind and size.
    pub algorithm: Option<KeyAlgorithm>,
    /// Every attribute that may be read; none in a list but LABEL and ID.
    pub attributes: Attributes,
}

/// An object's row of `coverage`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoverageRow {
    /// The object.
    pub object: ObjectId,
    /// Its class.
    pub class: ObjectClass,
    /// Its label.
    pub label: String,
    /// One a member.
    pub members: Vec<CoverageCell>,
}

/// One object on one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoverageCell {
    /// The member.
    pub member: MemberId,
    /// How it is there.
    pub state: CoverageState,
}

/// How an object is on a member. Order is the wire format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CoverageState {
    /// Held, or in the record alone.
    Present,
    /// Not yet there.
    Pending,
    /// Not meant to be there.
    Excluded {
        /// Why.
        why: String,
    },
    /// Tried in vain.
    Failed {
        /// Why.
        why: String,
        /// How often.
        tries: u32,
    },
    /// The member did not answer.
    Unknown,
}
