//! What C callers are told: CKR_ numbers, and how a member's failures become one.

use cryptoki_sys::{CK_RV, CKR_KEY_HANDLE_INVALID, CKR_OBJECT_HANDLE_INVALID};
use keyraft_engine::wire::Failure;

/// A CKR_ number other than CKR_OK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rv(pub CK_RV);

/// What a function of the module gives, or why not.
pub(crate) type Result<T> = std::result::Result<T, Rv>;

impl From<&Failure> for Rv {
    fn from(failure: &Failure) -> Self {
        Self(failure.ckr())
    }
}

impl Rv {
    /// The same where the object was named as a key.
    pub fn of_key(self) -> Self {
        if self.0 == CKR_OBJECT_HANDLE_INVALID { Self(CKR_KEY_HANDLE_INVALID) } else { self }
    }
}

/// Tells a person why a function failed, if KEYRAFT_DEBUG is set: C callers see a number alone. Never a secret.
pub(crate) fn explain(what: &dyn std::fmt::Display) {
    if std::env::var_os("KEYRAFT_DEBUG").is_some() {
        eprintln!("keyraft-pkcs11: {what}");
    }
}
