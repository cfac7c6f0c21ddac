//! Who logs in, and as what.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The name under which a client's wrong PINs are counted: `uid:N` on the Unix socket, `client:NAME` by certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClientName(pub String);

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Who is logged in (CKU_). Order is the wire and log format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// CKU_USER
    User,
    /// CKU_SO
    SecurityOfficer,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "user",
            Self::SecurityOfficer => "so",
        })
    }
}
