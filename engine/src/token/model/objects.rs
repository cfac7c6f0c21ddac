//! What lies in the model, and what may be done with it. Errors are CKR_ numbers.

use super::super::door::{Handle, Operation};
use super::super::template::Template;
use super::{SECRET_MAX_BYTES, cipher, oaep};
use crate::domain::{
    AttributeType as A, AttributeValue as V, Attributes, Mechanism, ObjectClass, ObjectId, Parameters, ckk,
};
use cryptoki_sys::{
    CK_RV, CKM_AES_KEY_GEN, CKM_AES_KEY_WRAP_KWP, CKM_GENERIC_SECRET_KEY_GEN, CKM_RSA_PKCS_KEY_PAIR_GEN,
    CKM_RSA_PKCS_OAEP, CKR_ATTRIBUTE_READ_ONLY, CKR_ATTRIBUTE_SENSITIVE, CKR_ATTRIBUTE_TYPE_INVALID,
    CKR_ATTRIBUTE_VALUE_INVALID, CKR_ENCRYPTED_DATA_INVALID, CKR_FUNCTION_FAILED,
    CKR_KEY_FUNCTION_NOT_PERMITTED, CKR_KEY_HANDLE_INVALID, CKR_KEY_NOT_WRAPPABLE, CKR_KEY_SIZE_RANGE,
    CKR_KEY_TYPE_INCONSISTENT, CKR_KEY_UNEXTRACTABLE, CKR_MECHANISM_INVALID, CKR_OBJECT_HANDLE_INVALID,
    CKR_SESSION_HANDLE_INVALID, CKR_SIGNATURE_INVALID, CKR_TEMPLATE_INCOMPLETE, CKR_TEMPLATE_INCONSISTENT,
    CKR_UNWRAPPING_KEY_HANDLE_INVALID, CKR_WRAPPED_KEY_INVALID, CKR_WRAPPED_KEY_LEN_RANGE,
    CKR_WRAPPING_KEY_HANDLE_INVALID,
};
use std::collections::{BTreeMap, BTreeSet};
use zeroize::Zeroizing;

/// The bits of the member's own keys.
const MEMBER_KEY_BITS: u64 = 3072;

/// The attributes that it knows. UNWRAP_TEMPLATE and COPYABLE are not among them, as with many tokens.
const KNOWN: [A; 22] = [
    A::CLASS,
    A::TOKEN,
    A::PRIVATE,
    A::LABEL,
    A::VALUE,
    A::KEY_TYPE,
    A::ID,
    A::SENSITIVE,
    A::ENCRYPT,
    A::DECRYPT,
    A::WRAP,
    A::UNWRAP,
    A::SIGN,
    A::SIGN_RECOVER,
    A::VERIFY,
    A::VERIFY_RECOVER,
    A::DERIVE,
    A::MODULUS,
    A::PUBLIC_EXPONENT,
    A::VALUE_LEN,
    A::EXTRACTABLE,
    A::MODIFIABLE,
];

/// An object. Its value is a secret's bytes or a pair's PKCS#8; a public key has none.
struct Object {
    attributes: Attributes,
    value: Zeroizing<Vec<u8>>,
    /// The session that made it; None for a token object.
    owner: Option<u64>,
}

impl Object {
    fn flag(&self, attribute: A) -> bool {
        self.attributes.get(&attribute) == Some(&V::Bool(true))
    }

    fn number(&self, attribute: A) -> Option<u64> {
        match self.attributes.get(&attribute) {
            Some(V::Number(number)) => Some(*number),
            _ => None,
        }
    }

    fn bytes(&self, attribute: A) -> &[u8] {
        match self.attributes.get(&attribute) {
            Some(V::Bytes(bytes)) => bytes,
            _ => &[],
        }
    }

    fn is(&self, class: ObjectClass, key_type: u64) -> bool {
        self.number(A::CLASS) == Some(class.number()) && self.number(A::KEY_TYPE) == Some(key_type)
    }
}

/// The objects and the sessions.
#[derive(Default)]
pub(super) struct Objects {
    table: BTreeMap<Handle, Object>,
    sessions: BTreeSet<u64>,
    /// Who has logged in, over all sessions: the user, or else the security officer.
    pub login: Option<bool>,
    /// Keys of a group whose last copy was destroyed, until somebody asks.
    pub destroyed: Vec<ObjectId>,
    next: u64,
}

impl Objects {
    /// Every object's CKA_ID.
    pub fn ids(&self) -> impl Iterator<Item = &[u8]> {
        self.table.values().map(|object| object.bytes(A::ID))
    }

    /// The CKA_ID of every token object.
    pub fn lasting(&self) -> impl Iterator<Item = &[u8]> {
        self.table.values().filter(|object| object.owner.is_none()).map(|object| object.bytes(A::ID))
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// C_OpenSession.
    pub fn open(&mut self) -> u64 {
        let session = self.fresh();
        self.sessions.insert(session);
        session
    }

    /// C_CloseSession.
    pub fn close(&mut self, session: u64) {
        self.sessions.remove(&session);
        self.table.retain(|_, object| object.owner != Some(session));
        if self.sessions.is_empty() {
            self.login = None;
        }
    }

    pub fn end_sessions(&mut self) {
        self.sessions.clear();
        self.table.retain(|_, object| object.owner.is_none());
        self.login = None;
    }

    pub fn check(&self, session: u64) -> Result<(), CK_RV> {
        if self.sessions.contains(&session) { Ok(()) } else { Err(CKR_SESSION_HANDLE_INVALID) }
    }

    /// Makes an object of a template and the value that goes with it.
    fn admit(&mut self, session: u64, mut attributes: Attributes, value: Zeroizing<Vec<u8>>) -> Handle {
        let owner = (attributes.get(&A::TOKEN) != Some(&V::Bool(true))).then_some(session);
        attributes.insert(A::TOKEN, V::Bool(owner.is_none()));
        attributes.entry(A::MODIFIABLE).or_insert(V::Bool(true));
        let handle = self.fresh();
        self.table.insert(handle, Object { attributes, value, owner });
        handle
    }

    fn admit_secret(
        &mut self,
        session: u64,
        mut attributes: Attributes,
        value: Zeroizing<Vec<u8>>,
        wrong_length: CK_RV,
    ) -> Result<Handle, CK_RV> {
        if attributes.get(&A::CLASS) != Some(&V::Number(ObjectClass::SecretKey.number())) {
            return Err(CKR_TEMPLATE_INCONSISTENT);
        }
        let fits = match attributes.get(&A::KEY_TYPE) {
            Some(V::Number(ckk::AES)) => matches!(value.len(), 16 | 24 | 32),
            Some(V::Number(ckk::GENERIC_SECRET)) => (1..=SECRET_MAX_BYTES).contains(&value.len()),
            _ => return Err(CKR_TEMPLATE_INCONSISTENT),
        };
        if !fits {
            return Err(wrong_length);
        }
        attributes.insert(A::VALUE_LEN, V::Number(value.len() as u64));
        for flag in [A::SENSITIVE, A::EXTRACTABLE] {
            attributes.entry(flag).or_insert(V::Bool(false));
        }
        Ok(self.admit(session, attributes, value))
    }

    /// C_GenerateKey.
    pub fn generate(
        &mut self,
        session: u64,
        mechanism: &Mechanism,
        template: &Template,
    ) -> Result<Handle, CK_RV> {
        let mut attributes = known(template)?;
        let kind = match mechanism.number {
            CKM_AES_KEY_GEN => ckk::AES,
            CKM_GENERIC_SECRET_KEY_GEN => ckk::GENERIC_SECRET,
            _ => return Err(CKR_MECHANISM_INVALID),
        };
        if *attributes.entry(A::KEY_TYPE).or_insert(V::Number(kind)) != V::Number(kind) {
            return Err(CKR_TEMPLATE_INCONSISTENT);
        }
        let Some(V::Number(length)) = attributes.get(&A::VALUE_LEN) else {
            return Err(CKR_TEMPLATE_INCOMPLETE);
        };
        let length = usize::try_from(*length).ok().filter(|length| *length <= SECRET_MAX_BYTES);
        let value = random(length.ok_or(CKR_KEY_SIZE_RANGE)?)?;
        self.admit_secret(session, attributes, value, CKR_KEY_SIZE_RANGE)
    }

    /// C_GenerateKeyPair: only the member's own two, of which the first unwraps and the second decrypts.
    pub fn generate_pair(
        &mut self,
        session: u64,
        pairs: usize,
        mechanism: &Mechanism,
        (public, private): (&Template, &Template),
    ) -> Result<(Handle, Handle), CK_RV> {
        if mechanism.number != CKM_RSA_PKCS_KEY_PAIR_GEN {
            return Err(CKR_MECHANISM_INVALID);
        }
        let bits = public.attributes().iter().find(|(attribute, _)| *attribute == A::MODULUS_BITS);
        let mut privates = known(private)?;
        let has = |usage| privates.get(&usage) == Some(&V::Bool(true));
        let index = match (has(A::UNWRAP), has(A::DECRYPT)) {
            (true, false) => pairs,
            (false, true) => pairs + 1,
            _ => return Err(CKR_KEY_SIZE_RANGE),
        };
        if bits.is_none_or(|(_, bits)| *bits != V::Number(MEMBER_KEY_BITS)) {
            return Err(CKR_KEY_SIZE_RANGE);
        }
        let pair = oaep::pair(index).ok_or(CKR_FUNCTION_FAILED)?;
        let (modulus, exponent) = oaep::public(&pair).ok_or(CKR_FUNCTION_FAILED)?;
        let others = public.attributes().iter().filter(|(attribute, _)| *attribute != A::MODULUS_BITS);
        let mut publics: Attributes = others.cloned().collect();
        for attributes in [&mut publics, &mut privates] {
            attributes.insert(A::MODULUS, V::Bytes(modulus.clone()));
            attributes.insert(A::PUBLIC_EXPONENT, V::Bytes(exponent.clone()));
        }
        let public = self.admit(session, publics, Zeroizing::default());
        Ok((public, self.admit(session, privates, pair)))
    }

    /// C_CreateObject: secrets by value, and RSA public keys.
    pub fn create(&mut self, session: u64, template: &Template) -> Result<Handle, CK_RV> {
        let mut attributes = known(template)?;
        if let Some(V::Bytes(value)) = attributes.remove(&A::VALUE) {
            return self.admit_secret(
                session,
                attributes,
                Zeroizing::new(value),
                CKR_ATTRIBUTE_VALUE_INVALID,
            );
        }
        let object = Object { attributes, value: Zeroizing::default(), owner: None };
        if !object.is(ObjectClass::PublicKey, ckk::RSA) {
            return Err(CKR_TEMPLATE_INCONSISTENT);
        }
        if object.bytes(A::MODULUS).is_empty() || object.bytes(A::PUBLIC_EXPONENT).is_empty() {
            return Err(CKR_TEMPLATE_INCOMPLETE);
        }
        Ok(self.admit(session, object.attributes, Zeroizing::default()))
    }

    fn key(&self, handle: Handle, usage: A, invalid: CK_RV) -> Result<&Object, CK_RV> {
        let key = self.table.get(&handle).ok_or(invalid)?;
        if key.flag(usage) { Ok(key) } else { Err(CKR_KEY_FUNCTION_NOT_PERMITTED) }
    }

    /// C_WrapKey: secret keys, by AES or RSA.
    pub fn wrap(&self, mechanism: &Mechanism, wrapping: Handle, key: Handle) -> Result<Vec<u8>, CK_RV> {
        let wrapping = self.key(wrapping, A::WRAP, CKR_WRAPPING_KEY_HANDLE_INVALID)?;
        let key = self.table.get(&key).ok_or(CKR_KEY_HANDLE_INVALID)?;
        if !key.flag(A::EXTRACTABLE) {
            return Err(CKR_KEY_UNEXTRACTABLE);
        }
        if key.number(A::CLASS) != Some(ObjectClass::SecretKey.number()) {
            return Err(CKR_KEY_NOT_WRAPPABLE);
        }
        match mechanism.number {
            CKM_AES_KEY_WRAP_KWP if wrapping.is(ObjectClass::SecretKey, ckk::AES) => {
                cipher::wrap(&wrapping.value, &key.value)
            }
            CKM_RSA_PKCS_OAEP if wrapping.is(ObjectClass::PublicKey, ckk::RSA) => {
                encrypt(mechanism, wrapping, &key.value)
            }
            CKM_AES_KEY_WRAP_KWP | CKM_RSA_PKCS_OAEP => Err(CKR_KEY_TYPE_INCONSISTENT),
            _ => Err(CKR_MECHANISM_INVALID),
        }
    }

    /// C_UnwrapKey: secret keys.
    pub fn unwrap(
        &mut self,
        session: u64,
        (mechanism, unwrapping): (&Mechanism, Handle),
        wrapped: &[u8],
        template: &Template,
    ) -> Result<Handle, CK_RV> {
        let attributes = known(template)?;
        let unwrapping = self.key(unwrapping, A::UNWRAP, CKR_UNWRAPPING_KEY_HANDLE_INVALID)?;
        let value = match mechanism.number {
            CKM_AES_KEY_WRAP_KWP if unwrapping.is(ObjectClass::SecretKey, ckk::AES) => {
                cipher::unwrap(&unwrapping.value, wrapped)?
            }
            CKM_RSA_PKCS_OAEP if unwrapping.is(ObjectClass::PrivateKey, ckk::RSA) => {
                decrypt(mechanism, unwrapping, wrapped)?.ok_or(CKR_WRAPPED_KEY_INVALID)?
            }
            CKM_AES_KEY_WRAP_KWP | CKM_RSA_PKCS_OAEP => return Err(CKR_KEY_TYPE_INCONSISTENT),
            _ => return Err(CKR_MECHANISM_INVALID),
        };
        self.admit_secret(session, attributes, value, CKR_WRAPPED_KEY_LEN_RANGE)
    }

    /// C_DestroyObject.
    pub fn destroy(&mut self, object: Handle) -> Result<(), CK_RV> {
        let gone = self.table.remove(&object).ok_or(CKR_OBJECT_HANDLE_INVALID)?;
        self.note_destroyed(gone.bytes(A::ID));
        Ok(())
    }

    /// C_GetAttributeValue.
    pub fn read(&self, object: Handle, attribute: A) -> Result<Zeroizing<Vec<u8>>, CK_RV> {
        let object = self.table.get(&object).ok_or(CKR_OBJECT_HANDLE_INVALID)?;
        if attribute == A::VALUE && !object.value.is_empty() {
            let secret = object.number(A::CLASS) == Some(ObjectClass::SecretKey.number());
            let readable = secret && object.flag(A::EXTRACTABLE) && !object.flag(A::SENSITIVE);
            return if readable { Ok(object.value.clone()) } else { Err(CKR_ATTRIBUTE_SENSITIVE) };
        }
        match object.attributes.get(&attribute) {
            Some(V::Bool(flag)) => Ok(Zeroizing::new(vec![u8::from(*flag)])),
            Some(V::Number(number)) => Ok(Zeroizing::new(number.to_ne_bytes().to_vec())),
            Some(V::Bytes(bytes)) => Ok(Zeroizing::new(bytes.clone())),
            Some(V::Template(_)) | None => Err(CKR_ATTRIBUTE_TYPE_INVALID),
        }
    }

    /// C_SetAttributeValue of a flag: protection only grows.
    pub fn set_flag(&mut self, object: Handle, attribute: A, value: bool) -> Result<(), CK_RV> {
        let object = self.table.get_mut(&object).ok_or(CKR_OBJECT_HANDLE_INVALID)?;
        let loosens = (attribute == A::SENSITIVE && !value) || (attribute == A::EXTRACTABLE && value);
        let fixed = matches!(attribute, A::TOKEN | A::PRIVATE | A::MODIFIABLE);
        if !object.flag(A::MODIFIABLE) || loosens || fixed {
            return Err(CKR_ATTRIBUTE_READ_ONLY);
        }
        if !KNOWN.contains(&attribute) {
            return Err(CKR_ATTRIBUTE_TYPE_INVALID);
        }
        object.attributes.insert(attribute, V::Bool(value));
        Ok(())
    }

    /// C_FindObjects: every session sees all objects.
    pub fn find(&self, template: &Template) -> Vec<Handle> {
        let fits = |object: &Object| {
            template.attributes().iter().all(|(wanted, value)| object.attributes.get(wanted) == Some(value))
        };
        self.table.iter().filter(|(_, object)| fits(object)).map(|(handle, _)| *handle).collect()
    }

    /// C_Sign, C_Encrypt, C_Decrypt.
    pub fn run(
        &self,
        operation: Operation,
        mechanism: &Mechanism,
        key: Handle,
        data: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, CK_RV> {
        let usage = match operation {
            Operation::Sign => A::SIGN,
            Operation::Encrypt => A::ENCRYPT,
            Operation::Decrypt => A::DECRYPT,
            Operation::SignRecover | Operation::VerifyRecover => return Err(CKR_MECHANISM_INVALID),
        };
        let key = self.key(key, usage, CKR_KEY_HANDLE_INVALID)?;
        match operation {
            Operation::Sign if key.is(ObjectClass::SecretKey, ckk::GENERIC_SECRET) => {
                cipher::mac(mechanism, &key.value, data).map(Zeroizing::new)
            }
            Operation::Encrypt | Operation::Decrypt if key.is(ObjectClass::SecretKey, ckk::AES) => {
                cipher::aes(operation, mechanism, &key.value, data)
            }
            Operation::Encrypt if key.is(ObjectClass::PublicKey, ckk::RSA) => {
                encrypt(mechanism, key, data).map(Zeroizing::new)
            }
            Operation::Decrypt if key.is(ObjectClass::PrivateKey, ckk::RSA) => {
                decrypt(mechanism, key, data)?.ok_or(CKR_ENCRYPTED_DATA_INVALID)
            }
            _ => Err(CKR_KEY_TYPE_INCONSISTENT),
        }
    }

    /// C_Verify.
    pub fn verify(
        &self,
        mechanism: &Mechanism,
        key: Handle,
        data: &[u8],
        signature: &[u8],
    ) -> Result<(), CK_RV> {
        let key = self.key(key, A::VERIFY, CKR_KEY_HANDLE_INVALID)?;
        if !key.is(ObjectClass::SecretKey, ckk::GENERIC_SECRET) {
            return Err(CKR_KEY_TYPE_INCONSISTENT);
        }
        let good = cipher::mac(mechanism, &key.value, data)? == signature;
        if good { Ok(()) } else { Err(CKR_SIGNATURE_INVALID) }
    }
}

/// Random bytes.
pub(super) fn random(bytes: usize) -> Result<Zeroizing<Vec<u8>>, CK_RV> {
    let mut out = Zeroizing::new(vec![0; bytes]);
    getrandom::fill(&mut out).map_err(|_| CKR_FUNCTION_FAILED)?;
    Ok(out)
}

/// A template's attributes, if it knows them all.
fn known(template: &Template) -> Result<Attributes, CK_RV> {
    let attributes = template.attributes();
    if attributes.iter().all(|(attribute, _)| KNOWN.contains(attribute)) {
        Ok(attributes.iter().cloned().collect())
    } else {
        Err(CKR_ATTRIBUTE_TYPE_INVALID)
    }
}

/// RSA-OAEP with SHA-1 and no label is all that it knows of RSA.
fn knows_rsa(mechanism: &Mechanism) -> Result<(), CK_RV> {
    use cryptoki_sys::{CKM_SHA_1, CKR_MECHANISM_PARAM_INVALID};
    match &mechanism.parameters {
        _ if mechanism.number != CKM_RSA_PKCS_OAEP => Err(CKR_MECHANISM_INVALID),
        Parameters::Oaep { hash: CKM_SHA_1, label, .. } if label.is_empty() => Ok(()),
        _ => Err(CKR_MECHANISM_PARAM_INVALID),
    }
}

fn encrypt(mechanism: &Mechanism, key: &Object, clear: &[u8]) -> Result<Vec<u8>, CK_RV> {
    knows_rsa(mechanism)?;
    oaep::encrypt(key.bytes(A::MODULUS), key.bytes(A::PUBLIC_EXPONENT), clear).ok_or(CKR_KEY_SIZE_RANGE)
}

fn decrypt(mechanism: &Mechanism, key: &Object, sealed: &[u8]) -> Result<Option<Zeroizing<Vec<u8>>>, CK_RV> {
    knows_rsa(mechanism)?;
    Ok(oaep::decrypt(&key.value, sealed))
}
