//! Operations with a key: their data is gathered here and goes to a member whole, so that any member can do it, and a
//! lost one is not noticed. Results wait here until the caller's buffer is large enough.

use crate::blocks::{Cut, Stream, Way};
use crate::hash::{Hasher, Parts, parts};
use crate::mechanism;
use crate::object::Object;
use crate::rv::{Result, Rv};
use crate::slot::Slot;
use cryptoki_sys::{
    CKF_DECRYPT, CKF_ENCRYPT, CKF_SIGN, CKF_SIGN_RECOVER, CKF_VERIFY, CKF_VERIFY_RECOVER, CKM_AES_CBC,
    CKR_DATA_LEN_RANGE, CKR_DEVICE_ERROR, CKR_KEY_FUNCTION_NOT_PERMITTED, CKR_KEY_HANDLE_INVALID,
    CKR_KEY_TYPE_INCONSISTENT, CKR_MECHANISM_INVALID, CKR_OPERATION_NOT_INITIALIZED, CKR_USER_NOT_LOGGED_IN,
};
use keyraft_engine::domain::{
    AttributeRecord, AttributeType as A, AttributeValue, Curve, KeyAlgorithm, Mechanism, ObjectClass,
    Parameters,
};
use keyraft_engine::health::Pace;
use keyraft_engine::limits;
use keyraft_engine::wire::{SecretBytes, SlotAnswer, SlotRequest, UseKind};
use std::sync::Arc;
use zeroize::Zeroizing;

/// Data of more bytes than this takes long.
const MUCH_DATA_BYTES: usize = 64 * 1024;

/// What is done with the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sign,
    SignRecover,
    Verify,
    VerifyRecover,
    Encrypt,
    Decrypt,
}

impl Kind {
    /// The usage that the key must have.
    fn usage(self) -> A {
        match self {
            Self::Sign => A::SIGN,
            Self::SignRecover => A::SIGN_RECOVER,
            Self::Verify => A::VERIFY,
            Self::VerifyRecover => A::VERIFY_RECOVER,
            Self::Encrypt => A::ENCRYPT,
            Self::Decrypt => A::DECRYPT,
        }
    }

    /// The flag that the mechanism must have.
    fn flag(self) -> u64 {
        match self {
            Self::Sign => CKF_SIGN,
            Self::SignRecover => CKF_SIGN_RECOVER,
            Self::Verify => CKF_VERIFY,
            Self::VerifyRecover => CKF_VERIFY_RECOVER,
            Self::Encrypt => CKF_ENCRYPT,
            Self::Decrypt => CKF_DECRYPT,
        }
    }

    /// The class of key, besides secret ones, that can do it.
    fn class(self) -> ObjectClass {
        match self {
            Self::Sign | Self::SignRecover | Self::Decrypt => ObjectClass::PrivateKey,
            Self::Verify | Self::VerifyRecover | Self::Encrypt => ObjectClass::PublicKey,
        }
    }
}

/// How a caller takes output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// A NULL buffer: tell the length.
    Query,
    /// A buffer of so many bytes.
    Bytes(usize),
}

/// What a caller gets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// The length that a buffer must have; the operation goes on.
    Length(usize),
    /// The same, and CKR_BUFFER_TOO_SMALL.
    TooSmall(usize),
    /// The output.
    Bytes(Zeroizing<Vec<u8>>),
}

impl Output {
    /// Hands output over if there is room, else its length.
    pub fn fit(
        bytes: Zeroizing<Vec<u8>>,
        room: Room,
    ) -> std::result::Result<Self, (Self, Zeroizing<Vec<u8>>)> {
        match room {
            Room::Query => Err((Self::Length(bytes.len()), bytes)),
            Room::Bytes(space) if space < bytes.len() => Err((Self::TooSmall(bytes.len()), bytes)),
            Room::Bytes(_) => Ok(Self::Bytes(bytes)),
        }
    }
}

/// What has been gathered of the data.
#[derive(Clone)]
enum Gathered {
    /// Nothing yet.
    Nothing,
    /// All of it, up to [`limits::OPERATION_DATA_MAX_BYTES`].
    Whole(Zeroizing<Vec<u8>>),
    /// Its digest.
    Digest(Parts, Box<Hasher>),
    /// What a stream holds back.
    Stream(Stream),
}

/// A result that waits for a buffer that it fits into.
#[derive(Clone)]
struct Waiting {
    /// What it is the result of: the single call's data, or the end.
    of: Option<Zeroizing<Vec<u8>>>,
    bytes: Zeroizing<Vec<u8>>,
}

/// An operation with a key, from its Init to its end.
#[derive(Clone)]
pub(crate) struct KeyedOperation {
    /// What it is.
    pub kind: Kind,
    /// The user has proved himself for this operation.
    pub authenticated: bool,
    key: Object,
    record: Arc<AttributeRecord>,
    mechanism: Mechanism,
    gathered: Gathered,
    waiting: Option<Waiting>,
    /// The members know the mechanism as it is.
    known: bool,
    /// The mechanism that signs a digest may be used with this key.
    raw_allowed: bool,
    /// CKM_AES_CBC may be used with this key.
    plain_cbc: bool,
}

impl KeyedOperation {
    /// Begins an operation, as far as that can be judged here; members judge again.
    pub fn begin(slot: &Slot, kind: Kind, key: Object, mechanism: Mechanism) -> Result<Self> {
        Self::begin_as(slot, kind, kind.flag(), key, mechanism)
    }

    /// The same where the mechanism must have another flag.
    pub fn begin_as(slot: &Slot, kind: Kind, flag: u64, key: Object, mechanism: Mechanism) -> Result<Self> {
        let known = slot.known()?;
        let info = known.mechanism(mechanism.number).ok_or(Rv(CKR_MECHANISM_INVALID))?;
        if info.flags & flag == 0 {
            return Err(Rv(CKR_MECHANISM_INVALID));
        }
        let remembered = match &key {
            Object::Agreed(id) => slot.remembered(*id),
            Object::Session(_) => None,
        };
        let record = match remembered.filter(|record| judge(kind, record, &mechanism).is_ok()) {
            Some(record) => record,
            None => {
                let record = slot.record(&key).map_err(Rv::of_key)?;
                judge(kind, &record, &mechanism)?;
                record
            }
        };
        let confined = is_confined(&record);
        let knows = |number| known.info.mechanisms.iter().any(|info| info.number == number);
        let shared = knows(mechanism.number);
        let raw_allowed = !confined && parts(mechanism.number).is_some_and(|parts| knows(parts.raw));
        Ok(Self {
            kind,
            authenticated: false,
            key,
            mechanism,
            gathered: Gathered::Nothing,
            waiting: None,
            known: shared || confined,
            raw_allowed,
            plain_cbc: known.mechanism(CKM_AES_CBC).is_some() && !confined,
            record,
        })
    }

    /// True once a part was given.
    fn is_parted(&self) -> bool {
        !matches!(self.gathered, Gathered::Nothing)
    }

    fn way(&self) -> Way {
        if self.kind == Kind::Decrypt { Way::Decrypt } else { Way::Encrypt }
    }

    /// Whether the data may be signed through its digest: not where the key names the mechanisms it allows.
    fn parts(&self) -> Option<Parts> {
        parts(self.mechanism.number).filter(|_| self.raw_allowed)
    }

    fn check_user(&self) -> Result<()> {
        if self.record.flag(A::ALWAYS_AUTHENTICATE) && !self.authenticated {
            return Err(Rv(CKR_USER_NOT_LOGGED_IN));
        }
        Ok(())
    }

    /// The whole operation on one piece of data; the result waits if there is no room for it.
    pub fn single(&mut self, slot: &Slot, data: &[u8], room: Room) -> Result<Output> {
        if self.is_parted() {
            return Err(Rv(CKR_OPERATION_NOT_INITIALIZED));
        }
        self.check_user()?;
        let bytes = match self.waiting.take() {
            Some(waiting) if waiting.of.as_ref().is_some_and(|of| of.as_slice() == data) => waiting.bytes,
            _ => self.whole(slot, data, None)?,
        };
        Ok(self.hand_over(bytes, Some(data), room))
    }

    /// The whole verification of one piece of data.
    pub fn verify(&mut self, slot: &Slot, data: &[u8], signature: &[u8]) -> Result<()> {
        if self.is_parted() {
            return Err(Rv(CKR_OPERATION_NOT_INITIALIZED));
        }
        self.check_user()?;
        self.whole(slot, data, Some(signature)).map(|_| ())
    }

    fn hand_over(&mut self, bytes: Zeroizing<Vec<u8>>, of: Option<&[u8]>, room: Room) -> Output {
        match Output::fit(bytes, room) {
            Ok(output) => output,
            Err((told, bytes)) => {
                self.waiting = Some(Waiting { of: of.map(|of| Zeroizing::new(of.to_vec())), bytes });
                told
            }
        }
    }

    /// Carries out the operation on all of its data.
    fn whole(&self, slot: &Slot, data: &[u8], signature: Option<&[u8]>) -> Result<Zeroizing<Vec<u8>>> {
        let long = data.len() > limits::OPERATION_DATA_MAX_BYTES;
        if (long || !self.known)
            && let Some(parts) = self.parts()
        {
            let mut hasher = parts.hash.begin();
            hasher.update(data);
            return self.through_digest(slot, parts, hasher, signature);
        }
        if long && let Some(mut stream) = Stream::new(&self.mechanism, self.way(), self.plain_cbc) {
            let mut output = Zeroizing::new(Vec::with_capacity(data.len() + 16));
            for part in data.chunks(limits::OPERATION_DATA_MAX_BYTES / 2) {
                output.extend_from_slice(&self.push(slot, &mut stream, part)?);
            }
            output.extend_from_slice(&self.end(slot, &mut stream)?);
            return Ok(output);
        }
        if long {
            return Err(Rv(CKR_DATA_LEN_RANGE));
        }
        self.run(slot, &self.mechanism, data, signature)
    }

    fn through_digest(
        &self,
        slot: &Slot,
        parts: Parts,
        hasher: Hasher,
        signature: Option<&[u8]>,
    ) -> Result<Zeroizing<Vec<u8>>> {
        let input = parts.input(&hasher.finish());
        let mechanism = Mechanism { number: parts.raw, parameters: self.mechanism.parameters.clone() };
        self.run(slot, &mechanism, &input, signature)
    }

    /// An ECDSA signature in its full width. PKCS#11 lets a caller shorten both numbers alike (v3.1 section 6.3.1), and Java
    /// does where both begin with zeros; tokens refuse that.
    fn full_width(&self, mechanism: &Mechanism, signature: &[u8]) -> Vec<u8> {
        let bytes = match self.record.algorithm {
            Some(KeyAlgorithm::Ec(curve)) if mechanism::is_ecdsa(mechanism.number) => coordinate_bytes(curve),
            _ => return signature.to_vec(),
        };
        widened(signature, bytes)
    }

    /// How long such a call takes: the ranking tells calls of one kind from those of another.
    fn pace(&self, data_bytes: usize) -> Pace {
        let private = matches!(self.kind, Kind::Sign | Kind::SignRecover | Kind::Decrypt);
        match self.record.algorithm {
            _ if data_bytes > MUCH_DATA_BYTES => Pace::Heavy,
            Some(KeyAlgorithm::Rsa { bits }) if private && bits > 2048 => Pace::Heavy,
            Some(KeyAlgorithm::Rsa { .. } | KeyAlgorithm::Ec(_) | KeyAlgorithm::Ed25519) if private => {
                Pace::Signing
            }
            _ => Pace::Quick,
        }
    }

    /// One call to a member.
    fn run(
        &self,
        slot: &Slot,
        mechanism: &Mechanism,
        data: &[u8],
        signature: Option<&[u8]>,
    ) -> Result<Zeroizing<Vec<u8>>> {
        let kind = match self.kind {
            Kind::Sign => UseKind::Sign,
            Kind::SignRecover => UseKind::SignRecover,
            Kind::Verify => UseKind::Verify(self.full_width(mechanism, signature.unwrap_or_default())),
            Kind::VerifyRecover => UseKind::VerifyRecover,
            Kind::Encrypt => UseKind::Encrypt,
            Kind::Decrypt => UseKind::Decrypt,
        };
        let answer = slot.ask_about(self.pace(data.len()), &[&self.key], |mut keys| SlotRequest::Use {
            key: keys.remove(0),
            kind: kind.clone(),
            mechanism: mechanism.clone(),
            data: SecretBytes(Zeroizing::new(data.to_vec())),
        });
        let answer = answer.map_err(Rv::of_key).inspect_err(|rv| {
            if let (CKR_KEY_HANDLE_INVALID, Object::Agreed(id)) = (rv.0, &self.key) {
                slot.forget(*id);
            }
        });
        match answer? {
            SlotAnswer::Output(output) => Ok(output.0),
            SlotAnswer::Done => Ok(Zeroizing::default()),
            _ => Err(Rv(CKR_DEVICE_ERROR)),
        }
    }

    /// One message of a message operation: the whole operation, with parameters of its own.
    pub fn message(
        &self,
        slot: &Slot,
        parameters: Parameters,
        data: &[u8],
        signature: Option<&[u8]>,
    ) -> Result<Zeroizing<Vec<u8>>> {
        self.check_user()?;
        if data.len() > limits::OPERATION_DATA_MAX_BYTES {
            return Err(Rv(CKR_DATA_LEN_RANGE));
        }
        let mechanism = Mechanism { number: self.mechanism.number, parameters };
        self.run(slot, &mechanism, data, signature)
    }

    /// The mechanism that the operation began with.
    pub fn mechanism(&self) -> &Mechanism {
        &self.mechanism
    }

    /// Bytes that an update with so many more gives.
    pub fn update_length(&self, more: usize) -> usize {
        match &self.gathered {
            Gathered::Stream(stream) => stream.update_length(more),
            Gathered::Nothing if matches!(self.kind, Kind::Encrypt | Kind::Decrypt) => {
                Stream::new(&self.mechanism, self.way(), self.plain_cbc)
                    .map_or(0, |stream| stream.update_length(more))
            }
            _ => 0,
        }
    }

    /// Takes a part. Encryption and decryption may give output, of [`KeyedOperation::update_length`] bytes.
    pub fn update(&mut self, slot: &Slot, part: &[u8]) -> Result<Zeroizing<Vec<u8>>> {
        self.check_user()?;
        // A result that waited for a buffer is of fewer parts.
        self.waiting = None;
        if !self.is_parted() {
            self.gathered = match (self.kind, self.parts()) {
                (Kind::Sign | Kind::Verify, Some(parts)) => {
                    Gathered::Digest(parts, Box::new(parts.hash.begin()))
                }
                (Kind::Encrypt | Kind::Decrypt, _) => {
                    Stream::new(&self.mechanism, self.way(), self.plain_cbc)
                        .map_or_else(|| Gathered::Whole(Zeroizing::default()), Gathered::Stream)
                }
                _ => Gathered::Whole(Zeroizing::default()),
            };
        }
        let mut gathered = std::mem::replace(&mut self.gathered, Gathered::Nothing);
        let output = match &mut gathered {
            Gathered::Digest(_, hasher) => {
                hasher.update(part);
                Ok(Zeroizing::default())
            }
            Gathered::Stream(stream) => self.push(slot, stream, part),
            Gathered::Whole(data) if data.len() + part.len() <= limits::OPERATION_DATA_MAX_BYTES => {
                data.extend_from_slice(part);
                Ok(Zeroizing::default())
            }
            Gathered::Whole(_) | Gathered::Nothing => Err(Rv(CKR_DATA_LEN_RANGE)),
        };
        self.gathered = gathered;
        output
    }

    /// The end of a multi-part operation; the result waits if there is no room for it.
    pub fn finish(&mut self, slot: &Slot, room: Room) -> Result<Output> {
        self.check_user()?;
        let bytes = match self.waiting.take() {
            Some(waiting) if waiting.of.is_none() => waiting.bytes,
            // What was gathered stays until the result is handed over: more parts may come after a query.
            _ => self.last(slot, None)?,
        };
        Ok(self.hand_over(bytes, None, room))
    }

    /// The end of a multi-part verification.
    pub fn finish_verify(&mut self, slot: &Slot, signature: &[u8]) -> Result<()> {
        self.check_user()?;
        self.last(slot, Some(signature)).map(|_| ())
    }

    fn last(&mut self, slot: &Slot, signature: Option<&[u8]>) -> Result<Zeroizing<Vec<u8>>> {
        match self.gathered.clone() {
            Gathered::Nothing => self.whole(slot, &[], signature),
            Gathered::Whole(data) => self.whole(slot, &data, signature),
            Gathered::Digest(parts, hasher) => self.through_digest(slot, parts, *hasher, signature),
            Gathered::Stream(mut stream) => self.end(slot, &mut stream),
        }
    }

    fn push(&self, slot: &Slot, stream: &mut Stream, part: &[u8]) -> Result<Zeroizing<Vec<u8>>> {
        let mut output = Zeroizing::new(Vec::new());
        for piece in part.chunks(limits::OPERATION_DATA_MAX_BYTES / 2) {
            if let Some(cut) = stream.update(piece) {
                output.extend_from_slice(&self.run_cut(slot, stream, &cut)?);
            }
        }
        Ok(output)
    }

    fn end(&self, slot: &Slot, stream: &mut Stream) -> Result<Zeroizing<Vec<u8>>> {
        match stream.finish() {
            Some(cut) => self.run_cut(slot, stream, &cut),
            None => Ok(Zeroizing::default()),
        }
    }

    fn run_cut(&self, slot: &Slot, stream: &mut Stream, cut: &Cut) -> Result<Zeroizing<Vec<u8>>> {
        let output = self.run(slot, &cut.mechanism, &cut.data, None)?;
        stream.advance(&cut.data, &output);
        Ok(output)
    }
}

/// True if the key names the mechanisms that it allows.
fn is_confined(record: &AttributeRecord) -> bool {
    let list = record.attributes.get(&A::ALLOWED_MECHANISMS);
    list.is_some_and(|list| !matches!(list, AttributeValue::Bytes(list) if list.is_empty()))
}

/// Whether a key may be used so, as its record says.
fn judge(kind: Kind, record: &AttributeRecord, mechanism: &Mechanism) -> Result<()> {
    let class = record.class;
    if class != ObjectClass::SecretKey && class != kind.class() {
        return Err(Rv(CKR_KEY_TYPE_INCONSISTENT));
    }
    let wanted = crate::mechanism::key_type(mechanism.number);
    let has = record.attributes.get(&A::KEY_TYPE);
    if let (Some(wanted), Some(AttributeValue::Number(has))) = (wanted, has)
        && wanted != *has
    {
        return Err(Rv(CKR_KEY_TYPE_INCONSISTENT));
    }
    if !record.flag(kind.usage()) {
        return Err(Rv(CKR_KEY_FUNCTION_NOT_PERMITTED));
    }
    Ok(())
}

fn coordinate_bytes(curve: Curve) -> usize {
    match curve {
        Curve::P256 => 32,
        Curve::P384 => 48,
        Curve::P521 => 66,
    }
}

/// Two numbers of equal length, each in so many bytes; as they are if they are longer or of odd length.
fn widened(signature: &[u8], bytes: usize) -> Vec<u8> {
    let half = signature.len() / 2;
    if half >= bytes || half == 0 || !signature.len().is_multiple_of(2) {
        return signature.to_vec();
    }
    let mut wide = vec![0; 2 * bytes];
    wide[bytes - half..bytes].copy_from_slice(&signature[..half]);
    wide[2 * bytes - half..].copy_from_slice(&signature[half..]);
    wide
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortened_signatures_get_their_zeros_back() {
        assert_eq!(widened(&[1, 2, 3, 4], 3), [0, 1, 2, 0, 3, 4]);
        for kept in [&[1, 2, 3, 4][..], &[1, 2, 3], &[]] {
            assert_eq!(widened(kept, 2), kept);
        }
        assert_eq!(widened(&[1, 2, 3, 4, 5, 6], 2), [1, 2, 3, 4, 5, 6]);
    }
}
