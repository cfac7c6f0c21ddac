//! Who may do what with an object: what tokens enforce unevenly or not at all, enforced here for all of them.

use super::ckr;
use super::mechanisms::is_refused;
use super::traits::{Date, Traits};
use crate::clock::UnixMillis;
use crate::domain::{AttributeRecord, AttributeType as A, AttributeValue as V, ObjectClass, ckk};
use crate::wire::{Failure, Role, UseKind};

/// Who asks, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// As what, if the application is logged in.
    pub role: Option<Role>,
    /// The day, UTC.
    pub today: Date,
}

/// What a key is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// C_Sign
    Sign,
    /// C_Verify
    Verify,
    /// C_Encrypt
    Encrypt,
    /// C_Decrypt
    Decrypt,
    /// C_SignRecover
    SignRecover,
    /// C_VerifyRecover
    VerifyRecover,
    /// C_WrapKey
    Wrap,
    /// C_UnwrapKey
    Unwrap,
    /// C_DeriveKey
    Derive,
}

impl From<&UseKind> for Need {
    fn from(kind: &UseKind) -> Self {
        match kind {
            UseKind::Sign => Self::Sign,
            UseKind::Verify(_) => Self::Verify,
            UseKind::Encrypt => Self::Encrypt,
            UseKind::Decrypt => Self::Decrypt,
            UseKind::SignRecover => Self::SignRecover,
            UseKind::VerifyRecover => Self::VerifyRecover,
        }
    }
}

impl Need {
    /// The flag that permits it.
    pub fn flag(self) -> A {
        match self {
            Self::Sign => A::SIGN,
            Self::Verify => A::VERIFY,
            Self::Encrypt => A::ENCRYPT,
            Self::Decrypt => A::DECRYPT,
            Self::SignRecover => A::SIGN_RECOVER,
            Self::VerifyRecover => A::VERIFY_RECOVER,
            Self::Wrap => A::WRAP,
            Self::Unwrap => A::UNWRAP,
            Self::Derive => A::DERIVE,
        }
    }

    /// What a handle is called that names no key for it.
    pub fn bad_handle(self) -> u64 {
        match self {
            Self::Wrap => ckr::WRAPPING_KEY_HANDLE_INVALID,
            Self::Unwrap => ckr::UNWRAPPING_KEY_HANDLE_INVALID,
            _ => ckr::KEY_HANDLE_INVALID,
        }
    }

    /// The failure for a handle that names nothing.
    pub fn unknown(self) -> Failure {
        Failure::pkcs11(self.bad_handle(), "there is no such key")
    }
}

/// The day of a moment, UTC.
pub fn day(moment: UnixMillis) -> Date {
    // Days since 0000-03-01, in eras of 400 years that begin in March: leap days end a year.
    let days = moment.0 / 86_400_000 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = (era * 400 + year + carry) % 10_000;
    let mut date = [b'0'; 8];
    let mut digits = year * 10_000 + month * 100 + day;
    for digit in date.iter_mut().rev() {
        *digit += (digits % 10) as u8;
        digits /= 10;
    }
    date
}

/// A private object shows itself to the logged-in user alone.
///
/// # Errors
/// USER_NOT_LOGGED_IN.
pub fn may_see(traits: &Traits, role: Option<Role>) -> Result<(), Failure> {
    may_see_private(traits.flags.is_set(A::PRIVATE), role)
}

/// The same for an object that is still a plan.
///
/// # Errors
/// USER_NOT_LOGGED_IN.
pub fn may_see_private(private: bool, role: Option<Role>) -> Result<(), Failure> {
    if !private || role == Some(Role::User) {
        return Ok(());
    }
    Err(Failure::pkcs11(ckr::USER_NOT_LOGGED_IN, "a private object needs the user to be logged in"))
}

/// Whether a key may be used so.
///
/// # Errors
/// The CKR_ number that says why not.
pub fn may_use(traits: &Traits, need: Need, mechanism: u64, asker: Asker) -> Result<(), Failure> {
    let Some(algorithm) = traits.algorithm else { return Err(need.unknown()) };
    may_see(traits, asker.role)?;
    if is_refused(mechanism) {
        let text = "the mechanism keeps state in one token: a group cannot share it";
        return Err(Failure::pkcs11(ckr::MECHANISM_INVALID, text));
    }
    if !fits(mechanism, algorithm.key_type()) {
        let text = format!("a key of kind {algorithm} does not fit the mechanism");
        return Err(Failure::pkcs11(ckr::KEY_TYPE_INCONSISTENT, text));
    }
    if !traits.flags.is_set(need.flag()) {
        let text = format!("the key does not have {}", need.flag());
        return Err(Failure::pkcs11(ckr::KEY_FUNCTION_NOT_PERMITTED, text));
    }
    if !traits.allowed.is_empty() && !traits.allowed.contains(&mechanism) {
        return Err(Failure::pkcs11(
            ckr::MECHANISM_INVALID,
            "CKA_ALLOWED_MECHANISMS does not name the mechanism",
        ));
    }
    if traits.start.is_some_and(|start| asker.today < start)
        || traits.end.is_some_and(|end| asker.today > end)
    {
        let text = "today lies outside CKA_START_DATE and CKA_END_DATE";
        return Err(Failure::pkcs11(ckr::KEY_FUNCTION_NOT_PERMITTED, text));
    }
    Ok(())
}

/// True unless the mechanism is known to be for keys of other CKK_ numbers. What is not known here, the token decides.
fn fits(mechanism: u64, key_type: u64) -> bool {
    let needed = match mechanism {
        // RSA: PKCS#1, X.509, OAEP, PSS, with and without a hash; RSA_AES_KEY_WRAP.
        0x0001..=0x000E | 0x0040..=0x0047 | 0x0060..=0x0067 | 0x1054 => ckk::RSA,
        // ECDSA with and without a hash, ECDH.
        0x1041..=0x104A | 0x1050..=0x1052 => ckk::EC,
        // EdDSA.
        0x1057 => ckk::EC_EDWARDS,
        // AES: block modes, counter modes, MACs, key wraps, derivations by encrypting.
        0x1081..=0x108F | 0x1104 | 0x1105 | 0x2104..=0x210B => ckk::AES,
        _ => return true,
    };
    key_type == needed
}

/// Whether one key may wrap another.
///
/// # Errors
/// The CKR_ number that says why not.
pub fn may_wrap(
    wrapping: &AttributeRecord,
    key: &AttributeRecord,
    mechanism: u64,
    asker: Asker,
) -> Result<(), Failure> {
    may_use(&Traits::of(wrapping), Need::Wrap, mechanism, asker)?;
    let traits = Traits::of(key);
    may_see(&traits, asker.role)?;
    if !matches!(key.class, ObjectClass::PrivateKey | ObjectClass::SecretKey) {
        return Err(Failure::pkcs11(ckr::KEY_NOT_WRAPPABLE, "only secret and private keys are wrapped"));
    }
    if !key.flag(A::EXTRACTABLE) {
        return Err(Failure::pkcs11(ckr::KEY_UNEXTRACTABLE, "the key is not extractable"));
    }
    if key.flag(A::WRAP_WITH_TRUSTED) && !wrapping.flag(A::TRUSTED) {
        return Err(Failure::pkcs11(ckr::KEY_NOT_WRAPPABLE, "only a trusted key may wrap this one"));
    }
    if let Some(V::Template(demanded)) = wrapping.attributes.get(&A::WRAP_TEMPLATE) {
        let class = V::Number(key.class.number());
        let has = |a: &A| if *a == A::CLASS { Some(&class) } else { key.attributes.get(a) };
        if let Some((attribute, _)) = demanded.iter().find(|(a, v)| has(a) != Some(v)) {
            let text = format!("{attribute} is not what the wrapping key's template demands");
            return Err(Failure::pkcs11(ckr::KEY_NOT_WRAPPABLE, text));
        }
    }
    Ok(())
}

/// Whether an object may be changed, copied or destroyed: CKA_MODIFIABLE, CKA_COPYABLE or CKA_DESTROYABLE permits it.
///
/// # Errors
/// USER_NOT_LOGGED_IN, ACTION_PROHIBITED.
pub fn may_touch(traits: &Traits, permission: A, role: Option<Role>) -> Result<(), Failure> {
    may_see(traits, role)?;
    if traits.flags.is_set(permission) {
        return Ok(());
    }
    Err(Failure::pkcs11(ckr::ACTION_PROHIBITED, format!("the object has {permission} = false")))
}

#[cfg(test)]
#[path = "tests/policy.rs"]
mod tests;
