//! What goes wrong with tokens, and whose fault it is.

use crate::domain::{CannotCarry, Generation, KeyAlgorithm, ObjectId};
use crate::wire::is_doubtful;
use std::path::PathBuf;

/// A PKCS#11 function that did not return CKR_OK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The function.
    pub call: &'static str,
    /// Its CKR_ number.
    pub code: u64,
}

/// Whose fault a token's error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenVerdict {
    /// A healthy token says no.
    Refused,
    /// The token is broken, gone or not reachable.
    Failed,
    /// The caller's data, mechanism or key does not fit; the CKR_ number.
    Caller(u64),
    /// The token does not hold the object.
    Missing,
    /// A limit of ours; try again later or with less.
    Limit,
}

/// Why a token did not do as asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TokenError {
    /// The PKCS#11 library cannot be used.
    #[error(
        "the PKCS#11 library {path} cannot be used: {reason}. Check the path and the library's own settings"
    )]
    Module {
        /// The library.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The embedded token's folder cannot be used.
    #[error("the embedded token's folder {folder}: {reason}")]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why not, and what to do.
        reason: String,
    },
    /// No slot fits the choice.
    #[error(
        "no token fits the choice {choice}: {found}. Name a token's label or serial number in the configuration"
    )]
    NoSlot {
        /// What was asked for.
        choice: String,
        /// What there is.
        found: String,
    },
    /// A token to be made is there already.
    #[error(
        "{found} already, and a token is never overwritten. To use that token, leave --create-token out; to have a \
         new one, {anew}"
    )]
    Exists {
        /// What is there.
        found: String,
        /// How to have a new one all the same.
        anew: &'static str,
    },
    /// This process has the token open already; a second user of its sessions would break the first.
    #[error("this process has the token open already: close the first handle before opening a second")]
    InUse,
    /// The PIN is not right.
    #[error("the token refuses the PIN. Check it before trying again: a token locks after a few wrong ones")]
    WrongPin,
    /// No PIN was given, and the token has no path of its own to ask for it.
    #[error(
        "the token has no protected authentication path (CKF_PROTECTED_AUTHENTICATION_PATH), so it must be given its PIN: \
         name it by token.pin_file, token.pin_env or token.pin_credential, and leave token.login = \"protected\" out"
    )]
    NeedsPin,
    /// The token has locked its PIN.
    #[error("the token has locked its PIN: its security officer must set a new one")]
    PinLocked,
    /// A PKCS#11 function failed.
    #[error("{call} returned {name}", name = rv_name(*.code))]
    Call {
        /// The function.
        call: &'static str,
        /// Its CKR_ number.
        code: u64,
        /// Whose fault it is.
        verdict: TokenVerdict,
    },
    /// The token cannot carry this kind of key.
    #[error("a key of kind {algorithm} is refused: {why}")]
    CannotCarry {
        /// The kind.
        algorithm: KeyAlgorithm,
        /// Why not.
        why: CannotCarry,
    },
    /// A key came out of the token different from how it went in.
    #[error("the key is not what its record says: {0}")]
    Differs(&'static str),
    /// A key could not be made SENSITIVE or not EXTRACTABLE as its record wants; it was destroyed.
    #[error("the token would hold the key less protected than its record says, so it was destroyed there")]
    Unlockable,
    /// Something destroyed is still there.
    #[error("the token says it destroyed object {0}, but still shows it")]
    StillThere(ObjectId),
    /// The token does not hold this object.
    #[error("the token does not hold object {0}")]
    Missing(ObjectId),
    /// The token does not hold this session object, and its content was not given.
    #[error("the token does not hold this session object: send its content along")]
    UnknownSession,
    /// No kind of key that a group can hold.
    #[error("a key of CKK_ number {0:#x} in this class and size is none that a group can hold")]
    UnknownKind(u64),
    /// The token does not hold the SMK of this generation.
    #[error("the token does not hold the SMK {0} of this group: run 'keyraft recover'")]
    NoSmk(Generation),
    /// The token holds another SMK under this generation.
    #[error("the token holds an SMK {0} that is not this group's; it is left as it is. Use an empty token")]
    ForeignSmk(Generation),
    /// The group is not known yet.
    #[error("the token is not bound to a group yet")]
    Unbound,
    /// A key or record that makes no sense.
    #[error("bad input: {0}")]
    BadInput(&'static str),
    /// Too many jobs wait for the token.
    #[error("the token is busy: {0} jobs wait for it already")]
    Busy(usize),
    /// Data longer than one operation takes.
    #[error("{0} bytes are more than one operation takes")]
    TooLong(usize),
    /// The token gave no answer.
    #[error("the token gave no answer within {0} s")]
    Hangs(u64),
    /// The token was closed.
    #[error("the token was closed")]
    Closed,
}

impl From<Fault> for TokenError {
    fn from(fault: Fault) -> Self {
        let verdict = if is_fatal(fault.code) { TokenVerdict::Failed } else { TokenVerdict::Refused };
        Self::Call { call: fault.call, code: fault.code, verdict }
    }
}

impl TokenError {
    /// Whose fault it is: what the reconciler and failover decide by.
    pub fn verdict(&self) -> TokenVerdict {
        match self {
            Self::Call { verdict, .. } => *verdict,
            Self::Missing(_) | Self::UnknownSession => TokenVerdict::Missing,
            Self::Busy(_) | Self::TooLong(_) => TokenVerdict::Limit,
            Self::BadInput(_) => TokenVerdict::Caller(0x07),
            Self::UnknownKind(_) => TokenVerdict::Caller(0x13),
            Self::CannotCarry { .. } | Self::Differs(_) | Self::Unlockable => TokenVerdict::Refused,
            Self::Module { .. }
            | Self::Folder { .. }
            | Self::NoSlot { .. }
            | Self::Exists { .. }
            | Self::InUse
            | Self::WrongPin
            | Self::NeedsPin
            | Self::PinLocked
            | Self::StillThere(_)
            | Self::NoSmk(_)
            | Self::ForeignSmk(_)
            | Self::Unbound
            | Self::Hangs(_)
            | Self::Closed => TokenVerdict::Failed,
        }
    }

    /// True if only a use of the token can tell a broken token from a refusal: vendors return one number for both.
    pub fn is_ambiguous(&self) -> bool {
        matches!(
            self,
            Self::Call { code, verdict: TokenVerdict::Refused | TokenVerdict::Failed, .. } if is_doubtful(*code)
        )
    }

    /// True if the token answers, but no longer knows this process's sessions or its login: it was reset.
    pub fn is_forgetful(&self) -> bool {
        const SESSION_CLOSED: u64 = 0xB0;
        const SESSION_HANDLE_INVALID: u64 = 0xB3;
        const USER_NOT_LOGGED_IN: u64 = 0x101;
        const CRYPTOKI_NOT_INITIALIZED: u64 = 0x190;
        matches!(
            self,
            Self::Call {
                code: SESSION_CLOSED | SESSION_HANDLE_INVALID | USER_NOT_LOGGED_IN | CRYPTOKI_NOT_INITIALIZED,
                ..
            }
        )
    }

    /// True if it may mean that the token has lost an object, and not only that the object does not fit.
    pub(super) fn is_of_a_handle(&self) -> bool {
        const KEY_HANDLE_INVALID: u64 = 0x60;
        const OBJECT_HANDLE_INVALID: u64 = 0x82;
        const UNWRAPPING_KEY_HANDLE_INVALID: u64 = 0xF0;
        const WRAPPING_KEY_HANDLE_INVALID: u64 = 0x113;
        matches!(
            self,
            Self::Call {
                code: KEY_HANDLE_INVALID
                    | OBJECT_HANDLE_INVALID
                    | UNWRAPPING_KEY_HANDLE_INVALID
                    | WRAPPING_KEY_HANDLE_INVALID,
                ..
            }
        )
    }

    /// The same error with another verdict, if it is a function's error.
    pub(super) fn judged(self, verdict: TokenVerdict) -> Self {
        match self {
            Self::Call { call, code, .. } => Self::Call { call, code, verdict },
            other => other,
        }
    }

    /// The error as one of the caller's making, unless the token itself is gone.
    pub(super) fn blame_caller(self) -> Self {
        match self {
            Self::Call { call, code, verdict: TokenVerdict::Refused } => {
                Self::Call { call, code, verdict: TokenVerdict::Caller(code) }
            }
            other => other,
        }
    }
}

/// Numbers that a working token with an open session never returns.
fn is_fatal(code: u64) -> bool {
    matches!(code, 0x02 | 0x32 | 0xB0 | 0xB3 | 0xE0 | 0xE1 | 0x101 | 0x190)
}

/// The name of a CKR_ number.
pub(super) fn rv_name(code: u64) -> String {
    let name = match code {
        0x02 => "HOST_MEMORY",
        0x05 => "GENERAL_ERROR",
        0x06 => "FUNCTION_FAILED",
        0x07 => "ARGUMENTS_BAD",
        0x10 => "ATTRIBUTE_READ_ONLY",
        0x11 => "ATTRIBUTE_SENSITIVE",
        0x12 => "ATTRIBUTE_TYPE_INVALID",
        0x13 => "ATTRIBUTE_VALUE_INVALID",
        0x1B => "ACTION_PROHIBITED",
        0x20 => "DATA_INVALID",
        0x21 => "DATA_LEN_RANGE",
        0x30 => "DEVICE_ERROR",
        0x31 => "DEVICE_MEMORY",
        0x32 => "DEVICE_REMOVED",
        0x40 => "ENCRYPTED_DATA_INVALID",
        0x41 => "ENCRYPTED_DATA_LEN_RANGE",
        0x54 => "FUNCTION_NOT_SUPPORTED",
        0x60 => "KEY_HANDLE_INVALID",
        0x62 => "KEY_SIZE_RANGE",
        0x63 => "KEY_TYPE_INCONSISTENT",
        0x68 => "KEY_FUNCTION_NOT_PERMITTED",
        0x69 => "KEY_NOT_WRAPPABLE",
        0x6A => "KEY_UNEXTRACTABLE",
        0x70 => "MECHANISM_INVALID",
        0x71 => "MECHANISM_PARAM_INVALID",
        0x82 => "OBJECT_HANDLE_INVALID",
        0x90 => "OPERATION_ACTIVE",
        0xA0 => "PIN_INCORRECT",
        0xA2 => "PIN_LEN_RANGE",
        0xA4 => "PIN_LOCKED",
        0xB3 => "SESSION_HANDLE_INVALID",
        0xC0 => "SIGNATURE_INVALID",
        0xC1 => "SIGNATURE_LEN_RANGE",
        0xD0 => "TEMPLATE_INCOMPLETE",
        0xD1 => "TEMPLATE_INCONSISTENT",
        0xE0 => "TOKEN_NOT_PRESENT",
        0xE1 => "TOKEN_NOT_RECOGNIZED",
        0x100 => "USER_ALREADY_LOGGED_IN",
        0x101 => "USER_NOT_LOGGED_IN",
        0xF0 => "UNWRAPPING_KEY_HANDLE_INVALID",
        0xF1 => "UNWRAPPING_KEY_SIZE_RANGE",
        0xF2 => "UNWRAPPING_KEY_TYPE_INCONSISTENT",
        0x110 => "WRAPPED_KEY_INVALID",
        0x112 => "WRAPPED_KEY_LEN_RANGE",
        0x113 => "WRAPPING_KEY_HANDLE_INVALID",
        0x114 => "WRAPPING_KEY_SIZE_RANGE",
        0x115 => "WRAPPING_KEY_TYPE_INCONSISTENT",
        0x150 => "BUFFER_TOO_SMALL",
        0x190 => "CRYPTOKI_NOT_INITIALIZED",
        _ => return format!("CKR 0x{code:X}"),
    };
    format!("CKR_{name}")
}
