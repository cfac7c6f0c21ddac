//! What applications ask of the virtual slot, through the PKCS#11 module. A failure bears a CKR_ number where PKCS#11
//! has one ([`FailureKind::TokenRefused`](super::FailureKind::TokenRefused)). Order of variants is the wire format.

use super::client::{SecretBytes, UseKind};
use super::failure::Undecided;
use crate::clock::UnixMillis;
use crate::domain::{
    AttributeRecord, Attributes, ClientId, Envelope, Generation, GroupId, LogIndex, Mechanism, MechanismInfo,
    MemberId, ObjectId, RequestId,
};
pub use crate::domain::{ClientName, Role};
use serde::{Deserialize, Serialize};

/// A call on the virtual slot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SlotCall {
    /// Who asks, as the member that took the connection knows it; whatever a client writes here is replaced.
    pub who: ClientName,
    /// What the application's login yielded; None before it.
    pub ticket: Option<Ticket>,
    /// The highest index among the answers that this application has had: the answer shows at least that.
    pub seen: LogIndex,
    /// Which try of the same call this is, from 1; 0 if the asker does not count. A member that does not serve itself
    /// refuses the first one, where another may do it as well, and hands the later ones on.
    pub tries: u8,
    /// What is asked.
    pub ask: SlotRequest,
    /// Asked on the member's own slot: it answers by itself, with what it holds.
    pub direct: bool,
}

/// Proof of a login, good at every member. Only members can make one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// The application.
    pub client: ClientId,
    /// Its name, which only this client may use the ticket under.
    pub who: ClientName,
    /// As what.
    pub role: Role,
    /// The version of the role's PIN: a changed PIN ends every login under the old one.
    pub pin_version: u32,
    /// Not good after this.
    pub expires: UnixMillis,
    /// HMAC-SHA256 over the fields above, under a key that members derive from the envelope key.
    pub mac: [u8; 32],
}

/// A change that, repeated under its request id, happens once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Its id.
    pub request: RequestId,
    /// Lower sequences are never asked for again.
    pub watermark: u64,
}

/// Names an object: an agreed one by its handle, a session object by its sealed form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyRef {
    /// An agreed object.
    Object(ObjectId),
    /// A session object. A member that does not know the name answers [`SlotAnswer::SendSealed`] unless `sealed` is
    /// there.
    Session {
        /// Its name.
        name: SessionName,
        /// The object itself.
        sealed: Option<Box<Sealed>>,
    },
}

/// A session object's random name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionName(pub [u8; 16]);

/// A session object as the module keeps it: an [`EnvelopeContent`](crate::domain::EnvelopeContent) sealed under the
/// group's envelope key, with group and name as associated data. Any member opens it; nobody else does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// The envelope key's generation.
    pub generation: Generation,
    /// The content.
    pub envelope: Envelope,
}

/// What is asked of the virtual slot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum SlotRequest {
    /// What the slot and its token are.
    Info,
    /// C_Login. Repeated under the same request, a wrong PIN counts once.
    Login {
        /// As what.
        role: Role,
        /// The PIN.
        pin: SecretBytes,
        /// The attempt.
        attempt: RequestId,
    },
    /// A new ticket for one that is about to expire.
    Renew,
    /// C_SetPIN: by whoever is logged in, or the user if nobody is. Who was logged in gets a ticket under the new
    /// PIN, anybody else Done. The change's request counts as the attempt at the old PIN.
    SetPin {
        /// The attempt.
        change: Change,
        /// The old PIN.
        old: SecretBytes,
        /// The new PIN.
        new: SecretBytes,
    },
    /// C_InitPIN, by the security officer.
    InitPin {
        /// The change.
        change: Change,
        /// The new PIN of the user.
        pin: SecretBytes,
    },
    /// C_InitToken: destroys every object of the group, where the group's option allows it.
    InitToken {
        /// The change.
        change: Change,
        /// The security officer's PIN.
        pin: SecretBytes,
    },
    /// C_FindObjectsInit: handles of agreed objects that fit, in rising order.
    Find {
        /// Every attribute must be equal.
        template: Attributes,
        /// Go on behind this object.
        after: Option<ObjectId>,
    },
    /// Every attribute of an agreed object.
    Read(ObjectId),
    /// Makes objects by any of PKCS#11's ways.
    Make {
        /// The change.
        change: Change,
        /// Agreed, or a session object.
        keep: Keep,
        /// How.
        by: Box<MakeBy>,
    },
    /// C_SetAttributeValue.
    SetAttributes {
        /// The change.
        change: Change,
        /// The object.
        key: KeyRef,
        /// The new values.
        attributes: Attributes,
    },
    /// C_DestroyObject of an agreed object.
    Destroy {
        /// The change.
        change: Change,
        /// The object.
        object: ObjectId,
    },
    /// A whole operation with a key, from its Init to its end.
    Use {
        /// The key.
        key: KeyRef,
        /// What with it.
        kind: UseKind,
        /// How.
        mechanism: Mechanism,
        /// The data.
        data: SecretBytes,
    },
    /// C_WrapKey.
    Wrap {
        /// How.
        mechanism: Mechanism,
        /// The wrapping key.
        wrapping: KeyRef,
        /// The key to wrap.
        key: KeyRef,
    },
    /// C_GenerateRandom, from a member's token.
    Random {
        /// Bytes, at most [`RANDOM_MAX_BYTES`](crate::limits::RANDOM_MAX_BYTES).
        bytes: u32,
    },
}

impl SlotRequest {
    /// What an attempt without an answer leaves undecided. A session object that nobody was told of is nobody's.
    pub fn undecided(&self) -> Undecided {
        match self {
            Self::Make { keep: Keep::Agreed, .. }
            | Self::SetPin { .. }
            | Self::InitPin { .. }
            | Self::InitToken { .. } => Undecided::Making,
            Self::SetAttributes { key: KeyRef::Object(_), .. } | Self::Destroy { .. } => Undecided::Changing,
            Self::Info
            | Self::Login { .. }
            | Self::Renew
            | Self::Find { .. }
            | Self::Read(_)
            | Self::Make { keep: Keep::Session, .. }
            | Self::SetAttributes { key: KeyRef::Session { .. }, .. }
            | Self::Use { .. }
            | Self::Wrap { .. }
            | Self::Random { .. } => Undecided::Nothing,
        }
    }
}

/// Where a new object shall live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keep {
    /// CKA_TOKEN = true: agreed by the group.
    Agreed,
    /// CKA_TOKEN = false: sealed, and kept by the module.
    Session,
}

/// The ways in which objects come. Templates are as the application gave them, CKA_TOKEN included.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum MakeBy {
    /// C_GenerateKey.
    Generate {
        /// The generating mechanism.
        mechanism: Mechanism,
        /// The key's template.
        template: Attributes,
    },
    /// C_GenerateKeyPair. Made are the public key, then the private one.
    GeneratePair {
        /// The generating mechanism.
        mechanism: Mechanism,
        /// The public key's template.
        public: Attributes,
        /// The private key's template.
        private: Attributes,
    },
    /// C_CreateObject.
    Create {
        /// The object.
        template: Attributes,
    },
    /// C_CopyObject.
    Copy {
        /// The original.
        of: KeyRef,
        /// What differs.
        template: Attributes,
    },
    /// C_UnwrapKey.
    Unwrap {
        /// How.
        mechanism: Mechanism,
        /// The unwrapping key.
        unwrapping: KeyRef,
        /// The wrapped key.
        wrapped: Vec<u8>,
        /// The new key's template.
        template: Attributes,
    },
    /// C_DeriveKey.
    Derive {
        /// How.
        mechanism: Mechanism,
        /// The base key.
        base: KeyRef,
        /// The new key's template.
        template: Attributes,
    },
}

/// The answer to a [`SlotCall`].
#[derive(Debug, Serialize, Deserialize)]
pub struct SlotReply {
    /// What the answering member had applied.
    pub index: LogIndex,
    /// The answer.
    pub answer: SlotAnswer,
}

/// Answers of the virtual slot.
#[derive(Debug, Serialize, Deserialize)]
pub enum SlotAnswer {
    /// Done; nothing to tell.
    Done,
    /// To Info.
    Info(Box<SlotInfo>),
    /// To Login and Renew, and to SetPin by somebody who was logged in.
    Ticket(Ticket),
    /// To Find.
    Found {
        /// Handles, rising.
        objects: Vec<ObjectId>,
        /// There are more behind the last.
        more: bool,
    },
    /// To Read, and to SetAttributes: what applications may see of the object. CKA_VALUE is there only where it may
    /// be read. SetAttributes has Done if the object was destroyed again before this answer.
    Record(Box<AttributeRecord>),
    /// To Make: one a made object.
    Made(Vec<Made>),
    /// To Use, Wrap and Random.
    Output(SecretBytes),
    /// The member does not know this session object: the same call again, with its sealed form.
    SendSealed(SessionName),
}

/// A made object.
#[derive(Debug, Serialize, Deserialize)]
pub struct Made {
    /// Its handle, or its sealed form.
    pub key: KeyRef,
    /// What applications may see of it; None if it was destroyed again before this answer.
    pub record: Option<AttributeRecord>,
}

/// What the slot and its token are (CK_SLOT_INFO, CK_TOKEN_INFO).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotInfo {
    /// The group; its first 16 hexadecimal digits are the serial number.
    pub group: GroupId,
    /// The token's label.
    pub label: String,
    /// A client program that begins now was born at this index.
    pub applied: LogIndex,
    /// The mechanisms that the members share, by number.
    pub mechanisms: Vec<MechanismInfo>,
    /// The user's PIN.
    pub user_pin: PinState,
    /// The security officer's PIN.
    pub so_pin: PinState,
    /// Asked on a member's own slot: who that is, and its name.
    pub member: Option<(MemberId, String)>,
}

/// A PIN as CKF_*_PIN_* tell it, for the asking client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinState {
    /// False until somebody set it.
    pub set: bool,
    /// Wrong tries of this client since its last right one.
    pub tries: u32,
    /// Wrong tries after which it is locked for this client.
    pub tries_max: u32,
}
