//! What C callers are told: CKR_ numbers, and how a member's failures become one.

use cryptoki_sys::{
    CK_RV, CKR_ARGUMENTS_BAD, CKR_DEVICE_ERROR, CKR_FUNCTION_FAILED, CKR_FUNCTION_REJECTED,
    CKR_GENERAL_ERROR, CKR_KEY_HANDLE_INVALID, CKR_OBJECT_HANDLE_INVALID,
};
use keyraft_engine::wire::{Failure, FailureKind};

/// A CKR_ number other than CKR_OK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rv(pub CK_RV);

/// What a function of the module gives, or why not.
pub(crate) type Result<T> = std::result::Result<T, Rv>;

impl From<&Failure> for Rv {
    fn from(failure: &Failure) -> Self {
        Self(match &failure.kind {
            FailureKind::TokenRefused { code } => *code,
            FailureKind::NotFound => CKR_OBJECT_HANDLE_INVALID,
            FailureKind::BadRequest => CKR_ARGUMENTS_BAD,
            FailureKind::Forbidden | FailureKind::Refused => CKR_FUNCTION_REJECTED,
            FailureKind::Expired => CKR_FUNCTION_FAILED,
            FailureKind::NotPrimary { .. }
            | FailureKind::NoQuorum
            | FailureKind::Deadline
            | FailureKind::TokenFailed
            | FailureKind::NotInSync
            | FailureKind::Busy
            | FailureKind::Stopping
            | FailureKind::Standby => CKR_DEVICE_ERROR,
            FailureKind::Internal => CKR_GENERAL_ERROR,
        })
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
