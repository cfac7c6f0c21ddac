//! Message operations (PKCS#11 v3.0 section 5.9 and on): one Init, then whole messages with parameters of their own.

use crate::module;
use crate::operation::{KeyedOperation, Kind};
use crate::rv::{Result, Rv};
use crate::session::Session;
use cryptoki_sys::{
    CKF_MESSAGE_DECRYPT, CKF_MESSAGE_ENCRYPT, CKF_MESSAGE_SIGN, CKF_MESSAGE_VERIFY, CKM_AES_GCM,
    CKR_DATA_LEN_RANGE, CKR_DEVICE_ERROR, CKR_ENCRYPTED_DATA_LEN_RANGE, CKR_FUNCTION_NOT_SUPPORTED,
    CKR_MECHANISM_INVALID, CKR_MECHANISM_PARAM_INVALID,
};
use keyraft_engine::domain::{Mechanism, Parameters};
use keyraft_engine::limits;
use zeroize::Zeroizing;

/// What CK_GCM_MESSAGE_PARAMS says of one message.
pub(crate) struct Gcm {
    /// pIv
    pub iv: Vec<u8>,
    /// ulTagBits
    pub tag_bits: u64,
}

/// An encrypted message.
pub(crate) struct Sealed {
    /// The ciphertext, as long as the plaintext.
    pub ciphertext: Vec<u8>,
    /// The tag.
    pub tag: Vec<u8>,
}

impl Gcm {
    fn tag_bytes(&self) -> Result<usize> {
        match self.tag_bits {
            bits @ (32 | 64 | 96 | 104 | 112 | 120 | 128) => Ok(usize::try_from(bits / 8).unwrap_or(16)),
            _ => Err(Rv(CKR_MECHANISM_PARAM_INVALID)),
        }
    }

    fn parameters(&self, aad: &[u8]) -> Parameters {
        Parameters::Gcm { iv: self.iv.clone(), aad: aad.to_vec(), tag_bits: self.tag_bits }
    }
}

/// C_MessageEncryptInit and its kin. Only where the members' tokens have messages too; for encryption AES-GCM alone.
pub(crate) fn begin(session: &Session, kind: Kind, mechanism: Mechanism, key: u64) -> Result<()> {
    let flag = match kind {
        Kind::Encrypt => CKF_MESSAGE_ENCRYPT,
        Kind::Decrypt => CKF_MESSAGE_DECRYPT,
        Kind::Sign => CKF_MESSAGE_SIGN,
        Kind::Verify => CKF_MESSAGE_VERIFY,
        Kind::SignRecover | Kind::VerifyRecover => return Err(Rv(CKR_FUNCTION_NOT_SUPPORTED)),
    };
    if matches!(kind, Kind::Encrypt | Kind::Decrypt) && mechanism.number != CKM_AES_GCM {
        return Err(Rv(CKR_MECHANISM_INVALID));
    }
    let key = module::key(session, key)?;
    let operation = KeyedOperation::begin_as(&session.slot, kind, flag, key, mechanism)?;
    session.begin_messages(operation)
}

/// C_EncryptMessage.
pub(crate) fn encrypt(session: &Session, gcm: &Gcm, aad: &[u8], plaintext: &[u8]) -> Result<Sealed> {
    let tag_bytes = gcm.tag_bytes()?;
    let operation = session.messages(Kind::Encrypt)?;
    let output = operation.message(&session.slot, gcm.parameters(aad), plaintext, None)?;
    if output.len() != plaintext.len() + tag_bytes {
        return Err(Rv(CKR_DEVICE_ERROR));
    }
    let (ciphertext, tag) = output.split_at(plaintext.len());
    Ok(Sealed { ciphertext: ciphertext.to_vec(), tag: tag.to_vec() })
}

/// C_DecryptMessage.
pub(crate) fn decrypt(
    session: &Session,
    gcm: &Gcm,
    aad: &[u8],
    ciphertext: &[u8],
    tag: &[u8],
) -> Result<Zeroizing<Vec<u8>>> {
    if tag.len() != gcm.tag_bytes()? {
        return Err(Rv(CKR_ENCRYPTED_DATA_LEN_RANGE));
    }
    let operation = session.messages(Kind::Decrypt)?;
    operation.message(&session.slot, gcm.parameters(aad), &[ciphertext, tag].concat(), None)
}

/// C_SignMessage, without parameters of the message's own.
pub(crate) fn sign(session: &Session, data: &[u8]) -> Result<Zeroizing<Vec<u8>>> {
    let operation = session.messages(Kind::Sign)?;
    operation.message(&session.slot, operation.mechanism().parameters.clone(), data, None)
}

/// C_VerifyMessage.
pub(crate) fn verify(session: &Session, data: &[u8], signature: &[u8]) -> Result<()> {
    let operation = session.messages(Kind::Verify)?;
    let parameters = operation.mechanism().parameters.clone();
    operation.message(&session.slot, parameters, data, Some(signature)).map(|_| ())
}

/// A message that comes in parts. A message is one call to a member, so the parts wait for the last.
pub(crate) struct Gathering {
    /// What is done with it.
    pub kind: Kind,
    /// For encryption: its parameters and its additional data.
    pub gcm: Option<(Gcm, Vec<u8>)>,
    data: Zeroizing<Vec<u8>>,
}

/// C_EncryptMessageBegin and its kin.
pub(crate) fn begin_parts(session: &Session, kind: Kind, gcm: Option<(Gcm, Vec<u8>)>) -> Result<()> {
    session.messages(kind)?;
    session.gather(Gathering { kind, gcm, data: Zeroizing::default() })
}

/// A part that is not the last.
pub(crate) fn add_part(session: &Session, kind: Kind, part: &[u8]) -> Result<()> {
    let mut gathering = session.take_gathering(kind)?;
    if gathering.data.len() + part.len() > limits::OPERATION_DATA_MAX_BYTES {
        return Err(Rv(CKR_DATA_LEN_RANGE));
    }
    gathering.data.extend_from_slice(part);
    session.gather(gathering)
}

/// The last part: works on the whole message. That goes on waiting if `work` says so, and ends otherwise.
pub(crate) fn last_part<T>(
    session: &Session,
    kind: Kind,
    part: &[u8],
    work: impl FnOnce(&Gathering, &[u8]) -> Result<T>,
    waits: impl FnOnce(&T) -> bool,
) -> Result<T> {
    let gathering = session.take_gathering(kind)?;
    let whole = Zeroizing::new([&gathering.data, part].concat());
    let done = work(&gathering, &whole)?;
    if waits(&done) {
        session.gather(gathering)?;
    }
    Ok(done)
}

/// An IV of the token's own making, for ivGenerator CKG_GENERATE and CKG_GENERATE_RANDOM: the fixed bits stay.
pub(crate) fn random_iv(session: &Session, iv: &mut [u8], fixed_bits: u64) -> Result<()> {
    let fixed = usize::try_from(fixed_bits / 8).unwrap_or(usize::MAX);
    if !fixed_bits.is_multiple_of(8) || fixed >= iv.len() {
        return Err(Rv(CKR_MECHANISM_PARAM_INVALID));
    }
    let random = module::random(session, iv.len() - fixed)?;
    iv[fixed..].copy_from_slice(&random);
    Ok(())
}
