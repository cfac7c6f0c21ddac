//! Keys that applications unwrap and derive: made as session objects in passing, known for what they are, and sent off
//! under the SMK like any new key. Their value is never read, unless it was asked to be readable or goes by value.

use super::carry::{self, Fresh};
use super::der::{self, PublicKey};
use super::door::{Handle, Session};
use super::keys::is_sensitive;
use super::template::Template;
use super::vault::{Passing, Vault};
use super::{Originated, Sending, TokenError, UsedKey, parameters, proof};
use crate::domain::{
    AttributeType as A, AttributeValue as V, Attributes, CannotCarry, Curve, KeyAlgorithm, Mechanism,
    ObjectClass, Parameters, ckk,
};
use crate::limits;
use aws_lc_rs::agreement;
use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::signature::{self, ParsedPublicKey, VerificationAlgorithm};

/// What RFC 5649 adds to a key whose length is a multiple of 8 bytes.
const WRAP_OVERHEAD_BYTES: usize = 8;

/// A key on its way in, as the application wants it.
pub(super) struct Arrival {
    pub sending: Sending,
    pub class: ObjectClass,
    /// CKK_
    pub key_type: u64,
    pub asked: Attributes,
    /// What holds against what was asked for.
    pub forced: Attributes,
    /// Made readable in passing, though it is to be sensitive: its value goes into the envelope.
    pub readable: bool,
}

impl Arrival {
    pub fn new(sending: Sending, class: ObjectClass, key_type: u64, asked: &Attributes) -> Self {
        let (asked, forced) = (asked.clone(), Attributes::new());
        Self { sending, class, key_type, asked, forced, readable: false }
    }

    fn check(&self) -> Result<(), TokenError> {
        match (self.class, self.key_type) {
            (ObjectClass::SecretKey, ckk::AES | ckk::GENERIC_SECRET)
            | (ObjectClass::PrivateKey, ckk::RSA | ckk::EC | ckk::EC_EDWARDS) => Ok(()),
            _ => Err(TokenError::UnknownKind(self.key_type)),
        }
    }

    fn is_hidden(&self) -> bool {
        is_sensitive(&self.asked) && !self.readable
    }

    fn force(&mut self, attribute: A, value: bool) {
        if self.asked.insert(attribute, V::Bool(value)) != Some(V::Bool(value)) {
            self.forced.insert(attribute, V::Bool(value));
        }
    }

    /// A session object, extractable for this moment only. What it is known by is granted beside what was asked for.
    fn template(&self) -> Template {
        let known_by: &[A] = match self.key_type {
            ckk::AES => &[A::ENCRYPT],
            ckk::EC => &[A::SIGN, A::DERIVE],
            _ => &[A::SIGN],
        };
        let asked = |usage| self.asked.get(&usage) == Some(&V::Bool(true));
        Template::default()
            .number(A::CLASS, self.class.number())
            .number(A::KEY_TYPE, self.key_type)
            .flag(A::TOKEN, false)
            .flag(A::PRIVATE, true)
            .flag(A::SENSITIVE, self.is_hidden())
            .flag(A::EXTRACTABLE, true)
            .usages(self.class, |usage| known_by.contains(&usage) || asked(usage))
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
        self.take_in(session, arrival, |arrival| {
            self.with_keys_alone([unwrapping], |[unwrapping]| {
                Ok(session.unwrap(mechanism, unwrapping, wrapped, &arrival.template())?)
            })
        })
    }

    /// C_DeriveKey from a key of the application's.
    pub fn originate_derived(
        &self,
        session: &Session,
        arrival: Arrival,
        mechanism: &Mechanism,
        base: &UsedKey,
        value_len: Option<u64>,
    ) -> Result<(KeyAlgorithm, Originated), TokenError> {
        arrival.check()?;
        parameters::check("C_DeriveKey", mechanism)?;
        let _exclusive = self.gate.write();
        self.take_in(session, arrival, |arrival| {
            self.with_keys_alone([base], |[base]| {
                if parameters::keeps_value(mechanism.number) {
                    self.inherit(arrival, base);
                }
                let template = match value_len {
                    Some(length) => arrival.template().number(A::VALUE_LEN, length),
                    None => arrival.template(),
                };
                Ok(session.derive(mechanism, base, &template)?)
            })
        })
    }

    /// Makes a key that arrives, and once more if its value must be read: what it is shows only when it is there.
    fn take_in(
        &self,
        session: &Session,
        mut arrival: Arrival,
        mut make: impl FnMut(&mut Arrival) -> Result<Handle, TokenError>,
    ) -> Result<(KeyAlgorithm, Originated), TokenError> {
        let mut passing = Passing::new(session);
        let mut key = passing.keep(make(&mut arrival)?);
        if let Some(algorithm) = self.must_be_read(session, &arrival, key)? {
            arrival.readable = true;
            key = passing.keep(make(&mut arrival)?);
            // Some tokens make a key sensitive because its base is.
            if session.read_flag(key, A::SENSITIVE) != Some(false) {
                return Err(TokenError::CannotCarry { algorithm, why: CannotCarry::Kind });
            }
        }
        self.settle(session, arrival, key)
    }

    /// The kind of a sensitive key that goes by value (if it is a secret of odd length, perhaps another length).
    fn must_be_read(
        &self,
        session: &Session,
        arrival: &Arrival,
        key: Handle,
    ) -> Result<Option<KeyAlgorithm>, TokenError> {
        if arrival.sending.in_memory.is_empty() || !is_sensitive(&arrival.asked) {
            return Ok(None);
        }
        match self.kind_of(session, arrival, key) {
            Ok(algorithm) => Ok(arrival.sending.by_value(algorithm).then_some(algorithm)),
            Err(TokenError::CannotCarry { algorithm, why: CannotCarry::Length })
                if arrival.sending.by_value(KeyAlgorithm::ODD_SECRET) =>
            {
                Ok(Some(algorithm))
            }
            Err(error) => Err(error),
        }
    }

    /// What is put together from a key is as sensitive as that, and leaves no more than it does. Not every token sees
    /// to that.
    fn inherit(&self, arrival: &mut Arrival, base: Handle) {
        for (attribute, value) in [(A::SENSITIVE, true), (A::EXTRACTABLE, false)] {
            if self.keeper.read_flag(base, attribute) != Some(!value) {
                arrival.force(attribute, value);
            }
        }
    }

    /// Finds out what the key is, and sends it off.
    fn settle(
        &self,
        session: &Session,
        mut arrival: Arrival,
        key: Handle,
    ) -> Result<(KeyAlgorithm, Originated), TokenError> {
        // Some tokens make a key sensitive because its base is.
        if !is_sensitive(&arrival.asked) && session.read_flag(key, A::SENSITIVE) == Some(true) {
            arrival.force(A::SENSITIVE, true);
        }
        let algorithm = self.kind_of(session, &arrival, key)?;
        self.carries(algorithm, arrival.sending.by_value(algorithm))?;
        let public =
            if algorithm.is_pair() { Some(public_of(session, &arrival, key, algorithm)?) } else { None };
        let fresh = Fresh { key, public };
        let mut made = self.send_off(session, &arrival.sending, algorithm, &arrival.asked, &fresh, None)?;
        made.facts.extend(arrival.forced);
        Ok((algorithm, made))
    }

    fn kind_of(&self, session: &Session, arrival: &Arrival, key: Handle) -> Result<KeyAlgorithm, TokenError> {
        let unknown = TokenError::UnknownKind(arrival.key_type);
        match arrival.key_type {
            ckk::AES | ckk::GENERIC_SECRET => {
                let bytes = self.length_of(session, arrival, key)?;
                match (arrival.key_type, u16::try_from(bytes)) {
                    (ckk::GENERIC_SECRET, Ok(bytes)) => Ok(KeyAlgorithm::GenericSecret { bytes }),
                    (ckk::AES, Ok(bytes @ (16 | 24 | 32))) => Ok(KeyAlgorithm::Aes { bits: bytes * 8 }),
                    _ => Err(unknown),
                }
            }
            ckk::RSA => {
                let modulus = session.read(key, A::MODULUS)?;
                match der::trim(&modulus).len() {
                    bytes @ (256 | 384 | 512) => {
                        u16::try_from(bytes * 8).map(|bits| KeyAlgorithm::Rsa { bits }).map_err(|_| unknown)
                    }
                    _ => Err(unknown),
                }
            }
            ckk::EC => {
                let params = session.read(key, A::EC_PARAMS)?;
                [Curve::P256, Curve::P384, Curve::P521]
                    .into_iter()
                    .find(|curve| proof::curve_params(*curve) == *params)
                    .map(KeyAlgorithm::Ec)
                    .ok_or(unknown)
            }
            ckk::EC_EDWARDS => Ok(KeyAlgorithm::Ed25519),
            _ => Err(unknown),
        }
    }

    /// A secret's length. Some tokens do not tell it (SoftHSM says 0), so it is read from what the SMK makes of the
    /// key; and then proved, since the same tokens fill odd lengths up with zeros. AES keys are proved by their use.
    fn length_of(&self, session: &Session, arrival: &Arrival, key: Handle) -> Result<u64, TokenError> {
        if !arrival.is_hidden() {
            return Ok(session.read(key, A::VALUE)?.len() as u64);
        }
        if let Some(length @ 1..) = session.read_number(key, A::VALUE_LEN) {
            return Ok(length);
        }
        const SHA256: u64 = 0x250;
        let smk = self.smk(arrival.sending.generation)?;
        let wrapped = session.wrap(&self.abilities.rfc5649, smk, key)?;
        let length = wrapped.len().saturating_sub(WRAP_OVERHEAD_BYTES);
        if arrival.key_type == ckk::AES {
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

/// The public parts of an unwrapped private key: as the token tells them, as the application does, or (SoftHSM's private
/// EC keys have no point) as its use shows. The proof that follows shows if they are right.
fn public_of(
    session: &Session,
    arrival: &Arrival,
    key: Handle,
    algorithm: KeyAlgorithm,
) -> Result<PublicKey, TokenError> {
    if let Ok(public) = carry::read_public(session, key, algorithm) {
        return Ok(public);
    }
    match (arrival.asked.get(&A::PUBLIC_KEY_INFO), algorithm) {
        (Some(V::Bytes(told)), _) if proof::is_public_key(told, algorithm) => PublicKey::parse(told),
        (_, KeyAlgorithm::Ec(curve)) => point_by_use(session, key, curve)?,
        _ => None,
    }
    .ok_or(TokenError::BadInput(
        "this token does not tell the public part of the private key: give its CKA_PUBLIC_KEY_INFO along",
    ))
}

/// The agreement of a private key with the curve's generator is the first coordinate of its public point. A signature
/// tells which of the two points with that coordinate it is.
fn point_by_use(session: &Session, key: Handle, curve: Curve) -> Result<Option<PublicKey>, TokenError> {
    const ECDH1_DERIVE: u64 = 0x1050;
    const NO_DERIVATION: u64 = 1;
    let (agreement, signature): (_, &'static dyn VerificationAlgorithm) = match curve {
        Curve::P256 => (&agreement::ECDH_P256, &signature::ECDSA_P256_SHA256_FIXED),
        Curve::P384 => (&agreement::ECDH_P384, &signature::ECDSA_P384_SHA384_FIXED),
        Curve::P521 => (&agreement::ECDH_P521, &signature::ECDSA_P521_SHA512_FIXED),
    };
    let length = proof::coordinate_bytes(curve);
    let mut one = vec![0; length];
    one[length - 1] = 1;
    let generator = agreement::PrivateKey::from_private_key(agreement, &one)
        .and_then(|one| one.compute_public_key().map_err(Into::into))
        .map_err(|_| TokenError::BadInput("a curve without a generator"))?;
    let parameters = Parameters::Ecdh {
        kdf: NO_DERIVATION,
        shared: Vec::new(),
        public: der::element(der::OCTET_STRING, generator.as_ref()),
    };
    // Half of a public key: nothing that must be kept from this process.
    let template = Template::default()
        .number(A::CLASS, ObjectClass::SecretKey.number())
        .number(A::KEY_TYPE, ckk::GENERIC_SECRET)
        .flag(A::TOKEN, false)
        .flag(A::SENSITIVE, false)
        .flag(A::EXTRACTABLE, true)
        .number(A::VALUE_LEN, length as u64);
    let mut passing = Passing::new(session);
    let mechanism = Mechanism { number: ECDH1_DERIVE, parameters };
    let half = passing.keep(session.derive(&mechanism, key, &template)?);
    let half = session.read(half, A::VALUE)?;
    let points = [0x02, 0x03].into_iter().filter_map(|sign| {
        let point = ParsedPublicKey::new(signature, [&[sign], half.as_slice()].concat()).ok()?;
        PublicKey::parse(point.as_der().ok()?.as_ref())
    });
    Ok(points.into_iter().find(|point| proof::check_private(session, key, point).is_ok()))
}
