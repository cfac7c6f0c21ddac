//! What a token can do, found by doing it with session objects. Advertised flags lie.

use super::TokenError;
use super::carry;
use super::door::{Handle, Module, Session};
use super::template::{self, Template};
use super::vault::Passing;
use crate::domain::{
    AttributeType as A, Attributes, KeyAlgorithm, Mechanism, ObjectClass, Profile, Residency, TokenIdentity,
    WrapAlgorithm,
};
use std::collections::BTreeSet;

/// RFC 5649 by its number in PKCS#11 3.x (kryoptic, NSS), and by SoftHSM's. NSS has another format under the second,
/// so the first is tried first.
const RFC5649: [u64; 2] = [0x210B, 0x210A];
const RSA_KEY_PAIR_GEN: u64 = 0x00;
const SMK: KeyAlgorithm = KeyAlgorithm::Aes { bits: 256 };

/// How to speak to this token.
#[derive(Clone)]
pub(super) struct Abilities {
    /// Its number for RFC 5649.
    pub rfc5649: Mechanism,
    /// It enforces CKA_UNWRAP_TEMPLATE.
    pub unwrap_template: bool,
    /// It knows CKA_COPYABLE.
    pub copyable: bool,
}

impl Abilities {
    /// A template's strictest end: not copyable where the token knows that, and not modifiable. Always last.
    pub fn seal(&self, template: Template) -> Template {
        let template = if self.copyable { template.flag(A::COPYABLE, false) } else { template };
        template.flag(A::MODIFIABLE, false)
    }

    /// Adds an UNWRAP_TEMPLATE where the token enforces one.
    pub fn confine(&self, template: Template, flags: &[(A, bool)]) -> Template {
        if self.unwrap_template { template.nested(A::UNWRAP_TEMPLATE, flags) } else { template }
    }
}

/// Tries everything once. Takes the time of one RSA-2048 generation.
pub(super) fn probe(
    (module, slot): (&Module, u64),
    session: &Session,
    identity: TokenIdentity,
    residency: Residency,
) -> Result<(Abilities, Profile), TokenError> {
    let mut passing = Passing::new(session);
    let smk = passing.keep(session.generate(&generator(SMK), &wrapping_key().number(A::VALUE_LEN, 32))?);
    let rfc5649 = RFC5649
        .map(Mechanism::plain)
        .into_iter()
        .find(|mechanism| round_trip(session, mechanism, smk, SMK).is_ok());
    let Some(rfc5649) = rfc5649 else {
        return Err(TokenError::Module {
            path: identity.model.clone().into(),
            reason: "its token has no AES key wrap with padding (RFC 5649) that works".to_string(),
        });
    };
    let carries = |algorithm| match algorithm {
        // Generating large RSA keys takes seconds: one size stands for those that the token can generate.
        KeyAlgorithm::Rsa { bits } if bits > 2048 => false,
        other => round_trip(session, &rfc5649, smk, other).is_ok(),
    };
    let mut kinds: BTreeSet<_> = KeyAlgorithm::promised().into_iter().filter(|kind| carries(*kind)).collect();
    let exact_lengths = keeps_lengths(session, &rfc5649, smk).unwrap_or(false);
    let carries_in_memory = KeyAlgorithm::promised()
        .into_iter()
        // RSA keys are wrapped by every token that makes them.
        .filter(|kind| !kinds.contains(kind) && !matches!(kind, KeyAlgorithm::Rsa { .. }))
        .chain((!exact_lengths).then_some(KeyAlgorithm::ODD_SECRET))
        .filter(|kind| by_value(session, *kind).is_ok())
        .collect();
    if kinds.contains(&KeyAlgorithm::Rsa { bits: 2048 })
        && let Some((_, largest)) = module.key_sizes(slot, RSA_KEY_PAIR_GEN)
    {
        kinds.extend(
            [3072u16, 4096]
                .iter()
                .filter(|bits| u64::from(**bits) <= largest)
                .map(|bits| KeyAlgorithm::Rsa { bits: *bits }),
        );
    }
    let abilities = Abilities {
        unwrap_template: enforces_template(session, &rfc5649),
        copyable: knows_copyable(session),
        rfc5649,
    };
    let profile = Profile {
        identity,
        wraps: BTreeSet::from([WrapAlgorithm::Rfc5649]),
        carries: kinds,
        carries_in_memory,
        exact_lengths,
        unwrap_template: abilities.unwrap_template,
        residency,
        mechanisms: module.mechanisms(slot).unwrap_or_default(),
    };
    Ok((abilities, profile))
}

fn generator(algorithm: KeyAlgorithm) -> Mechanism {
    Mechanism::plain(algorithm.generator())
}

fn wrapping_key() -> Template {
    template::key(SMK, false, true, false)
        .usages(ObjectClass::SecretKey, |usage| usage == A::WRAP || usage == A::UNWRAP)
}

fn round_trip(
    session: &Session,
    mechanism: &Mechanism,
    smk: Handle,
    algorithm: KeyAlgorithm,
) -> Result<(), TokenError> {
    let mut passing = Passing::new(session);
    let fresh = carry::generate(session, &mut passing, algorithm, true)?;
    carry::wrap_proved(session, (mechanism, smk), algorithm, &Attributes::new(), &fresh).map(|_| ())
}

/// A readable session key, read and created again.
fn by_value(session: &Session, algorithm: KeyAlgorithm) -> Result<(), TokenError> {
    let mut passing = Passing::new(session);
    let fresh = carry::generate(session, &mut passing, algorithm, false)?;
    let value = carry::read_value(session, fresh.key, algorithm)?;
    carry::recreate_proved(session, algorithm, &Attributes::new(), &fresh, &value)
}

/// A secret of 21 bytes must come back as 21 bytes; SoftHSM 2.6.1 makes 24 of them.
fn keeps_lengths(session: &Session, mechanism: &Mechanism, smk: Handle) -> Result<bool, TokenError> {
    const VALUE: [u8; 21] = *b"twenty-one bytes long";
    let odd = KeyAlgorithm::ODD_SECRET;
    let open =
        || template::key(odd, false, false, true).usages(ObjectClass::SecretKey, |usage| usage == A::SIGN);
    let mut passing = Passing::new(session);
    let key = passing.keep(session.create(&open().bytes(A::VALUE, &VALUE))?);
    let wrapped = session.wrap(mechanism, smk, key)?;
    let copy = passing.keep(session.unwrap(mechanism, smk, &wrapped, &open())?);
    Ok(session.read(copy, A::VALUE)?.as_slice() == VALUE)
}

/// A key with UNWRAP_TEMPLATE {SENSITIVE} must not give out a readable key.
fn enforces_template(session: &Session, mechanism: &Mechanism) -> bool {
    let mut passing = Passing::new(session);
    let mut attempt = || {
        let strict =
            wrapping_key().number(A::VALUE_LEN, 32).nested(A::UNWRAP_TEMPLATE, &[(A::SENSITIVE, true)]);
        let strict = passing.keep(session.generate(&generator(SMK), &strict).ok()?);
        let key = carry::generate(session, &mut passing, SMK, true).ok()?.key;
        let wrapped = session.wrap(mechanism, strict, key).ok()?;
        let as_ =
            |sensitive| template::key(SMK, false, sensitive, true).usages(ObjectClass::SecretKey, |_| false);
        passing.keep(session.unwrap(mechanism, strict, &wrapped, &as_(true)).ok()?);
        match session.unwrap(mechanism, strict, &wrapped, &as_(false)) {
            Err(_) => Some(true),
            Ok(copy) => session.read_flag(passing.keep(copy), A::SENSITIVE),
        }
    };
    attempt().unwrap_or(false)
}

fn knows_copyable(session: &Session) -> bool {
    let template =
        wrapping_key().number(A::VALUE_LEN, 32).flag(A::COPYABLE, false).flag(A::MODIFIABLE, false);
    let mut passing = Passing::new(session);
    session
        .generate(&generator(SMK), &template)
        .is_ok_and(|key| session.read_flag(passing.keep(key), A::COPYABLE) == Some(false))
}
