//! The nouns: identities, keys, attributes, objects, members. Plain data, no behaviour beyond checks.

pub mod application;
pub mod attribute;
pub mod ids;
pub mod key;
pub mod login;
pub mod mechanism;
pub mod member;
pub mod object;

pub use application::{ApplicationName, BadName};
pub use attribute::{AttributeRecord, AttributeType, AttributeValue, Attributes, ObjectClass};
pub use ids::{
    ClientId, Fingerprint, Generation, GroupId, Lineage, LogIndex, MemberId, ObjectId, RequestId, Version,
};
pub use key::{Curve, KeyAlgorithm, ckk, has_usage};
pub use login::{ClientName, Role};
pub use mechanism::{Mechanism, MechanismInfo, Parameters};
pub use member::{CannotCarry, MemberCard, Profile, Residency, TokenIdentity};
pub use object::{ContentKey, Envelope, EnvelopeContent, WrapAlgorithm, WrappedKey};
