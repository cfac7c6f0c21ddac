//! Keys that applications unwrap and derive: made as session objects in passing, known for what they are, and sent off
//! under the SMK like any new key. Their value is never read, unless it was asked to be readable.

use super::carry::{self, Fresh};
use super::der::{self, PublicKey};
use super::ffi::{Handle, Session};
use super::keys::is_sensitive;
use super::template::Template;
use super::vault::{Passing, Vault};
use super::{Originated, TokenError, TokenVerdict, UsedKey, parameters, proof};
use crate::domain::{
    AttributeType as A, AttributeValue as V, Attributes, CannotCarry, Curve, Generation, KeyAlgorithm,
    Mechanism, ObjectClass, ObjectId, Parameters,
};
use crate::limits;

const CKK_RSA: u64 = 0x00;
const CKK_EC: u64 = 0x03;
const CKK_GENERIC_SECRET: u64 = 0x10;
const CKK_AES: u64 = 0x1F;
const CKK_EC_EDWARDS: u64 = 0x40;

/// What RFC 5649 adds to a key whose length is a multiple of 8 bytes.
const WRAP_OVERHEAD_BYTES: usize = 8;

/// A key on its way in, as the application wants it.
pub(super) struct Arrival {
    pub generation: Generation,
    pub class: ObjectClass,
    /// CKK_
    pub key_type: u64,
    pub asked: Attributes,
    /// What holds against what was asked for.
    pub forced: Attributes,
}

impl Arrival {
    fn check(&self) -> Result<(), TokenError> {
        match (self.class, self.key_type) {
            (ObjectClass::SecretKey, CKK_AES | CKK_GENERIC_SECRET)
            | (ObjectClass::PrivateKey, CKK_RSA | CKK_EC | CKK_EC_EDWARDS) => Ok(()),
            _ => Err(TokenError::UnknownKind(self.key_type)),
        }
    }

    fn force(&mut self, attribute: A, value: bool) {
        if self.asked.insert(attribute, V::Bool(value)) != Some(V::Bool(value)) {
            self.forced.insert(attribute, V::Bool(value));
        }
    }

    /// A session object, extractable for this moment only. The proof's usage is granted beside what was asked for.
    fn template(&self) -> Template {
        let proof = if self.key_type == CKK_AES { A::ENCRYPT } else { A::SIGN };
        let asked = |usage| self.asked.get(&usage) == Some(&V::Bool(true));
        Template::default()
            .number(A::CLASS, self.class.number())
            .number(A::KEY_TYPE, self.key_type)
            .flag(A::TOKEN, false)
            .flag(A::PRIVATE, true)
            .flag(A::SENSITIVE, is_sensitive(&self.asked))
            .flag(A::EXTRACTABLE, true)
            .usages(self.class, |usage| usage == proof || asked(usage))
    }
}

impl Vault {
    /// C_UnwrapKey by a key of the application's.
    pub fn originate_unwrapped(
        &self,
        session: &Session,
        arrival: Arrival,
        mechanism: &Mechanism,
        unwrapping: &UsedKey,
        wrapped: &[u8],
    ) -> Result<(KeyAlgorithm, Originated), TokenError> {
        if wrapped.len() > limits::WRAPPED_KEY_MAX_BYTES {
            return Err(TokenError::TooLong(wrapped.len()));
        }
        arrival.check()?;
        parameters::check("C_UnwrapKey", mechanism)?;
        let _exclusive = self.gate.write();
        let mut passing = Passing::new(session);
        let key = self.with_keys_alone([unwrapping], |[unwrapping]| {
            Ok(session.unwrap(mechanism, unwrapping, wrapped, &arrival.template())?)
        })?;
        self.settle(session, arrival, passing.keep(key))
    }

    /// C_DeriveKey from a key of the application's.
    pub fn originate_derived(
        &self,
        session: &Session,
        mut arrival: Arrival,
        mechanism: &Mechanism,
        base: &UsedKey,
        value_len: Option<u64>,
    ) -> Result<(KeyAlgorithm, Originated), TokenError> {
        arrival.check()?;
        parameters::check("C_DeriveKey", mechanism)?;
        let _exclusive = self.gate.write();
        let mut passing = Passing::new(session);
        let second = match (mechanism.number, &mechanism.parameters) {
            (parameters::CONCATENATE_BASE_AND_KEY, Parameters::Number(second)) => {
                Some(UsedKey::Agreed(ObjectId(*second)))
            }
            _ => None,
        };
        let mut derive = |mechanism: &Mechanism, bases: &[Handle]| {
            if parameters::keeps_value(mechanism.number) {
                self.inherit(&mut arrival, bases);
            }
            let template = match value_len {
                Some(length) => arrival.template().number(A::VALUE_LEN, length),
                None => arrival.template(),
            };
            Ok(session.derive(mechanism, bases[0], &template)?)
        };
        let key = match second {
            Some(second) => self.with_keys_alone([base, &second], |bases| {
                self.must_derive(bases[1])?;
                let parameters = Parameters::Number(bases[1]);
                derive(&Mechanism { number: mechanism.number, parameters }, &bases)
            })?,
            None => self.with_keys_alone([base], |bases| derive(mechanism, &bases))?,
        };
        self.settle(session, arrival, passing.keep(key))
    }

    /// What is put together from keys is as sensitive as each of them, and leaves no more than they do. Not every
    /// token sees to that.
    fn inherit(&self, arrival: &mut Arrival, bases: &[Handle]) {
        let any = |attribute, value| {
            bases.iter().any(|base| self.keeper.read_flag(*base, attribute) != Some(!value))
        };
        for (attribute, value) in [(A::SENSITIVE, true), (A::EXTRACTABLE, false)] {
            if any(attribute, value) {
                arrival.force(attribute, value);
            }
        }
    }

    /// A second key is named by a mechanism's parameter, where nobody else looks.
    fn must_derive(&self, key: Handle) -> Result<(), TokenError> {
        const KEY_FUNCTION_NOT_PERMITTED: u64 = 0x68;
        if self.keeper.read_flag(key, A::DERIVE) == Some(true) {
            return Ok(());
        }
        let verdict = TokenVerdict::Caller(KEY_FUNCTION_NOT_PERMITTED);
        Err(TokenError::Call { call: "C_DeriveKey", code: KEY_FUNCTION_NOT_PERMITTED, verdict })
    }

    /// Finds out what the key is, and sends it off.
    fn settle(
        &self,
        session: &Session,
        mut arrival: Arrival,
        key: Handle,
    ) -> Result<(KeyAlgorithm, Originated), TokenError> {
        // Some tokens make a key sensitive because its base is.
        if session.read_flag(key, A::SENSITIVE) == Some(true) {
            arrival.force(A::SENSITIVE, true);
        }
        let algorithm = self.kind_of(session, &arrival, key)?;
        self.carries(algorithm)?;
        let public =
            if algorithm.is_pair() { Some(public_of(session, &arrival, key, algorithm)?) } else { None };
        let fresh = Fresh { key, public };
        let mut made = self.send_off(session, arrival.generation, algorithm, &arrival.asked, &fresh, None)?;
        made.facts.extend(arrival.forced);
        Ok((algorithm, made))
    }

    fn kind_of(&self, session: &Session, arrival: &Arrival, key: Handle) -> Result<KeyAlgorithm, TokenError> {
        let unknown = TokenError::UnknownKind(arrival.key_type);
        match arrival.key_type {
            CKK_AES | CKK_GENERIC_SECRET => {
                let bytes = self.length_of(session, arrival, key)?;
                match (arrival.key_type, u16::try_from(bytes)) {
                    (CKK_GENERIC_SECRET, Ok(bytes)) => Ok(KeyAlgorithm::GenericSecret { bytes }),
                    (CKK_AES, Ok(bytes @ (16 | 24 | 32))) => Ok(KeyAlgorithm::Aes { bits: bytes * 8 }),
                    _ => Err(unknown),
                }
            }
            CKK_RSA => {
                let modulus = session.read(key, A::MODULUS)?;
                match der::trim(&modulus).len() {
                    bytes @ (256 | 384 | 512) => {
                        u16::try_from(bytes * 8).map(|bits| KeyAlgorithm::Rsa { bits }).map_err(|_| unknown)
                    }
                    _ => Err(unknown),
                }
            }
            CKK_EC => {
                let params = session.read(key, A::EC_PARAMS)?;
                [Curve::P256, Curve::P384, Curve::P521]
                    .into_iter()
                    .find(|curve| proof::curve_params(*curve) == *params)
                    .map(KeyAlgorithm::Ec)
                    .ok_or(unknown)
            }
            CKK_EC_EDWARDS => Ok(KeyAlgorithm::Ed25519),
            _ => Err(unknown),
        }
    }

    /// A secret's length. Some tokens do not tell it (SoftHSM says 0), so it is read from what the SMK makes of the
    /// key; and then proved, since the same tokens fill odd lengths up with zeros. AES keys are proved by their use.
    fn length_of(&self, session: &Session, arrival: &Arrival, key: Handle) -> Result<u64, TokenError> {
        if !is_sensitive(&arrival.asked) {
            return Ok(session.read(key, A::VALUE)?.len() as u64);
        }
        if let Some(length @ 1..) = session.read_number(key, A::VALUE_LEN) {
            return Ok(length);
        }
        const SHA256: u64 = 0x250;
        let smk = self.smk(arrival.generation)?;
        let wrapped = session.wrap(&self.abilities.rfc5649, smk, key)?;
        let length = wrapped.len().saturating_sub(WRAP_OVERHEAD_BYTES);
        if arrival.key_type == CKK_AES {
            return Ok(length as u64);
        }
        let mut passing = Passing::new(session);
        let copy = session.unwrap(&self.abilities.rfc5649, smk, &wrapped, &arrival.template())?;
        let copy = passing.keep(copy);
        let digest = |key| session.digest_key(&Mechanism::plain(SHA256), key);
        if digest(copy)? != digest(key)? {
            let bytes = u16::try_from(length).unwrap_or(u16::MAX);
            let algorithm = KeyAlgorithm::GenericSecret { bytes };
            return Err(TokenError::CannotCarry { algorithm, why: CannotCarry::Length });
        }
        Ok(length as u64)
    }
}

/// The public parts of an unwrapped private key: as the token tells them, or as the application does. The proof that
/// follows shows if they are right.
fn public_of(
    session: &Session,
    arrival: &Arrival,
    key: Handle,
    algorithm: KeyAlgorithm,
) -> Result<PublicKey, TokenError> {
    if let Ok(public) = carry::read_public(session, key, algorithm) {
        return Ok(public);
    }
    let told = match arrival.asked.get(&A::PUBLIC_KEY_INFO) {
        Some(V::Bytes(told)) if proof::is_public_key(told, algorithm) => PublicKey::parse(told),
        _ => None,
    };
    told.ok_or(TokenError::BadInput(
        "this token does not tell the public point of the private key: give its CKA_PUBLIC_KEY_INFO along",
    ))
}
