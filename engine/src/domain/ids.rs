//! Identities and counters. Each is a type of its own, so that one cannot stand in for another.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

number!(
    /// A member, named by the log; never reused within a group. 1 is the first.
    MemberId(u64), "m"
);
number!(
    /// An agreed object. Also its PKCS#11 object handle, in every process, for ever; never reused. 1 is the first.
    ObjectId(u64), ""
);
number!(
    /// A version of an object's content, from 1. A changed usage is a new version.
    Version(u32), "v"
);
number!(
    /// A generation of the SMK and of the envelope key, from 1.
    Generation(u32), "g"
);
number!(
    /// An index of the Raft log.
    LogIndex(u64), "#"
);
number!(
    /// A group's unbroken history, from 1; only `force-quorum` starts a new one.
    Lineage(u32), "l"
);

impl ObjectId {
    /// The next id.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A group, drawn at random by `init`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupId(pub [u8; 8]);

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// SHA-256 of a certificate's or token key's SubjectPublicKeyInfo.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One run of one client program. `born` is an applied index that the client learned when it connected:
/// when the request table forgets old clients, it remembers only the youngest birth that it forgot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClientId {
    /// Applied index at the client's first contact.
    pub born: LogIndex,
    /// Random; keeps clients of the same birth apart.
    pub nonce: u64,
}

/// One change asked for by one client; repeated until it is answered, it still happens once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId {
    /// Who asks.
    pub client: ClientId,
    /// From 1, rising.
    pub sequence: u64,
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}.{}", self.client.nonce, self.sequence)
    }
}
