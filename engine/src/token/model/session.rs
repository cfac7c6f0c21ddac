//! C's functions as the model answers them.

use super::super::door::{Fault, Handle, Operation, TokenInfo, User};
use super::super::template::Template;
use super::objects::{Objects, random};
use super::{ModelToken, SECRET_MAX_BYTES, State, TokenFault};
use crate::domain::{AttributeType, Mechanism, MechanismInfo};
use cryptoki_sys::{
    CK_RV, CKF_DECRYPT, CKF_ENCRYPT, CKF_GENERATE, CKF_GENERATE_KEY_PAIR, CKF_LOGIN_REQUIRED, CKF_SIGN,
    CKF_TOKEN_INITIALIZED, CKF_UNWRAP, CKF_USER_PIN_INITIALIZED, CKF_VERIFY, CKF_WRAP, CKM_AES_CBC,
    CKM_AES_CBC_PAD, CKM_AES_ECB, CKM_AES_GCM, CKM_AES_KEY_GEN, CKM_AES_KEY_WRAP_KWP,
    CKM_GENERIC_SECRET_KEY_GEN, CKM_RSA_PKCS_KEY_PAIR_GEN, CKM_RSA_PKCS_OAEP, CKM_SHA_1_HMAC,
    CKM_SHA256_HMAC, CKM_SHA384_HMAC, CKM_SHA512_HMAC, CKR_CRYPTOKI_NOT_INITIALIZED, CKR_DEVICE_ERROR,
    CKR_DEVICE_REMOVED, CKR_FUNCTION_FAILED, CKR_FUNCTION_NOT_SUPPORTED, CKR_MECHANISM_INVALID,
    CKR_PIN_INCORRECT, CKR_USER_ALREADY_LOGGED_IN, CKR_USER_NOT_LOGGED_IN,
};
use std::sync::Arc;
use zeroize::Zeroizing;

/// What it can do: CKM_, the smallest and the largest key, CKF_.
fn abilities() -> Vec<MechanismInfo> {
    let both = CKF_ENCRYPT | CKF_DECRYPT;
    let mac = CKF_SIGN | CKF_VERIFY;
    let secret = SECRET_MAX_BYTES as u64;
    let mut all: Vec<MechanismInfo> = [
        (CKM_RSA_PKCS_KEY_PAIR_GEN, 3072, 3072, CKF_GENERATE_KEY_PAIR),
        (CKM_RSA_PKCS_OAEP, 2048, 4096, both | CKF_WRAP | CKF_UNWRAP),
        (CKM_SHA_1_HMAC, 1, secret, mac),
        (CKM_SHA256_HMAC, 1, secret, mac),
        (CKM_SHA384_HMAC, 1, secret, mac),
        (CKM_SHA512_HMAC, 1, secret, mac),
        (CKM_GENERIC_SECRET_KEY_GEN, 1, secret, CKF_GENERATE),
        (CKM_AES_KEY_GEN, 16, 32, CKF_GENERATE),
        (CKM_AES_ECB, 16, 32, both),
        (CKM_AES_CBC, 16, 32, both),
        (CKM_AES_CBC_PAD, 16, 32, both),
        (CKM_AES_GCM, 16, 32, both),
        (CKM_AES_KEY_WRAP_KWP, 16, 32, CKF_WRAP | CKF_UNWRAP),
    ]
    .map(|(number, min_key, max_key, flags)| MechanismInfo { number, min_key, max_key, flags })
    .into();
    all.sort_unstable();
    all
}

/// A process's way to the token, for as long as the process lives.
pub(in super::super) struct ModelModule {
    token: Arc<ModelToken>,
    life: u64,
}

/// A session. Closed when dropped, and with it the session objects that it made.
pub(in super::super) struct ModelSession {
    token: Arc<ModelToken>,
    life: u64,
    handle: u64,
}

impl State {
    /// Refuses what a broken token refuses.
    fn check(&self, token: &ModelToken, life: u64) -> Result<(), CK_RV> {
        match self.fault {
            _ if self.life != life => Err(CKR_CRYPTOKI_NOT_INITIALIZED),
            Some(TokenFault::Lost) => Err(CKR_DEVICE_REMOVED),
            Some(TokenFault::Fails) => Err(CKR_DEVICE_ERROR),
            _ if token.pace.is_hung() => Err(CKR_DEVICE_ERROR),
            Some(TokenFault::Lies) | None => Ok(()),
        }
    }
}

impl ModelModule {
    pub(super) fn new(token: Arc<ModelToken>, life: u64) -> Self {
        Self { token, life }
    }

    fn act<T>(
        &self,
        call: &'static str,
        work: impl FnOnce(&mut State) -> Result<T, CK_RV>,
    ) -> Result<T, Fault> {
        let mut state = self.token.state.lock();
        let done = state.check(&self.token, self.life).and_then(|()| work(&mut state));
        done.map_err(|code| Fault { call, code })
    }

    pub fn slots(&self) -> Result<Vec<u64>, Fault> {
        self.act("C_GetSlotList", |_| Ok(vec![0]))
    }

    pub fn token_info(&self, _slot: u64) -> Result<TokenInfo, Fault> {
        self.act("C_GetTokenInfo", |state| {
            let made = CKF_TOKEN_INITIALIZED | CKF_USER_PIN_INITIALIZED;
            let flags = CKF_LOGIN_REQUIRED | if state.pin.is_some() { made } else { 0 };
            Ok(TokenInfo {
                label: state.label.clone().unwrap_or_default(),
                manufacturer: "keyraft".to_string(),
                model: "model".to_string(),
                serial: self.token.number.to_string(),
                flags,
            })
        })
    }

    pub fn key_sizes(&self, _slot: u64, mechanism: u64) -> Option<(u64, u64)> {
        let info = abilities().into_iter().find(|info| info.number == mechanism)?;
        Some((info.min_key, info.max_key))
    }

    pub fn mechanisms(&self, _slot: u64) -> Result<Vec<MechanismInfo>, Fault> {
        self.act("C_GetMechanismList", |_| Ok(abilities()))
    }

    pub fn init_token(&self, _slot: u64, so_pin: &str, label: &str) -> Result<(), Fault> {
        self.act("C_InitToken", |state| {
            state.objects = Objects::default();
            state.label = Some(label.to_string());
            state.so_pin = Zeroizing::new(so_pin.to_string());
            state.pin = None;
            Ok(())
        })
    }

    pub fn open(&self) -> Result<ModelSession, Fault> {
        let handle = self.act("C_OpenSession", |state| Ok(state.objects.open()))?;
        Ok(ModelSession { token: self.token.clone(), life: self.life, handle })
    }
}

impl Drop for ModelSession {
    fn drop(&mut self) {
        let mut state = self.token.state.lock();
        if state.life == self.life {
            state.objects.close(self.handle);
        }
    }
}

/// If a call makes, changes or destroys objects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    None,
    Write,
}

impl ModelSession {
    fn enter<T>(
        &self,
        call: &'static str,
        work: impl FnOnce(&mut State) -> Result<T, CK_RV>,
    ) -> Result<T, Fault> {
        let mut state = self.token.state.lock();
        let open = state.check(&self.token, self.life).and_then(|()| state.objects.check(self.handle));
        open.and_then(|()| work(&mut state)).map_err(|code| Fault { call, code })
    }

    /// A call of the user's.
    fn act<T>(
        &self,
        call: &'static str,
        effect: Effect,
        work: impl FnOnce(&mut Objects) -> Result<T, CK_RV>,
    ) -> Result<T, Fault> {
        self.enter(call, |state| {
            if state.objects.login != Some(true) {
                return Err(CKR_USER_NOT_LOGGED_IN);
            }
            let done = work(&mut state.objects)?;
            if effect == Effect::Write && state.fault == Some(TokenFault::Lies) {
                return Err(CKR_FUNCTION_FAILED);
            }
            Ok(done)
        })
    }

    pub fn login(&self, user: User, pin: Option<&str>) -> Result<(), Fault> {
        self.enter("C_Login", |state| {
            if state.objects.login.is_some() {
                return Err(CKR_USER_ALREADY_LOGGED_IN);
            }
            let (is_user, right) = match user {
                User::Normal => (true, state.pin.as_ref()),
                User::SecurityOfficer => (false, Some(&state.so_pin)),
            };
            if right.map(|right| right.as_str()) != pin {
                return Err(CKR_PIN_INCORRECT);
            }
            state.objects.login = Some(is_user);
            Ok(())
        })
    }

    pub fn logout(&self) -> Result<(), Fault> {
        self.enter("C_Logout", |state| state.objects.login.take().map(|_| ()).ok_or(CKR_USER_NOT_LOGGED_IN))
    }

    pub fn init_pin(&self, pin: &str) -> Result<(), Fault> {
        self.enter("C_InitPIN", |state| {
            if state.objects.login != Some(false) {
                return Err(CKR_USER_NOT_LOGGED_IN);
            }
            state.pin = Some(Zeroizing::new(pin.to_string()));
            Ok(())
        })
    }

    pub fn generate(&self, mechanism: &Mechanism, template: &Template) -> Result<Handle, Fault> {
        self.act("C_GenerateKey", Effect::Write, |objects| objects.generate(self.handle, mechanism, template))
    }

    pub fn generate_pair(
        &self,
        mechanism: &Mechanism,
        public: &Template,
        private: &Template,
    ) -> Result<(Handle, Handle), Fault> {
        let pairs = self.token.pairs();
        self.act("C_GenerateKeyPair", Effect::Write, |objects| {
            objects.generate_pair(self.handle, pairs, mechanism, (public, private))
        })
    }

    pub fn create(&self, template: &Template) -> Result<Handle, Fault> {
        self.act("C_CreateObject", Effect::Write, |objects| objects.create(self.handle, template))
    }

    pub fn wrap(&self, mechanism: &Mechanism, wrapping: Handle, key: Handle) -> Result<Vec<u8>, Fault> {
        self.act("C_WrapKey", Effect::None, |objects| objects.wrap(mechanism, wrapping, key))
    }

    pub fn unwrap(
        &self,
        mechanism: &Mechanism,
        unwrapping: Handle,
        wrapped: &[u8],
        template: &Template,
    ) -> Result<Handle, Fault> {
        self.act("C_UnwrapKey", Effect::Write, |objects| {
            objects.unwrap(self.handle, (mechanism, unwrapping), wrapped, template)
        })
    }

    pub fn derive(&self, _: &Mechanism, _: Handle, _: &Template) -> Result<Handle, Fault> {
        self.act("C_DeriveKey", Effect::None, |_| Err(CKR_MECHANISM_INVALID))
    }

    pub fn random(&self, bytes: usize) -> Result<Zeroizing<Vec<u8>>, Fault> {
        self.act("C_GenerateRandom", Effect::None, |_| random(bytes))
    }

    pub fn digest_key(&self, _: &Mechanism, _: Handle) -> Result<Vec<u8>, Fault> {
        self.act("C_DigestKey", Effect::None, |_| Err(CKR_FUNCTION_NOT_SUPPORTED))
    }

    pub fn destroy(&self, object: Handle) -> Result<(), Fault> {
        self.act("C_DestroyObject", Effect::Write, |objects| objects.destroy(object))
    }

    pub fn read(&self, object: Handle, attribute: AttributeType) -> Result<Zeroizing<Vec<u8>>, Fault> {
        self.act("C_GetAttributeValue", Effect::None, |objects| objects.read(object, attribute))
    }

    pub fn read_number(&self, object: Handle, attribute: AttributeType) -> Option<u64> {
        let value = self.read(object, attribute).ok()?;
        Some(u64::from_ne_bytes(value.as_slice().try_into().ok()?))
    }

    pub fn read_flag(&self, object: Handle, attribute: AttributeType) -> Option<bool> {
        match self.read(object, attribute).ok()?.as_slice() {
            [byte] => Some(*byte != 0),
            _ => None,
        }
    }

    pub fn set_flag(&self, object: Handle, attribute: AttributeType, value: bool) -> Result<(), Fault> {
        self.act("C_SetAttributeValue", Effect::Write, |objects| objects.set_flag(object, attribute, value))
    }

    pub fn find(&self, template: &Template) -> Result<Vec<Handle>, Fault> {
        self.act("C_FindObjects", Effect::None, |objects| Ok(objects.find(template)))
    }

    pub fn run(
        &self,
        operation: Operation,
        mechanism: &Mechanism,
        key: Handle,
        data: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, Fault> {
        let call = match operation {
            Operation::Sign => "C_Sign",
            Operation::SignRecover => "C_SignRecover",
            Operation::VerifyRecover => "C_VerifyRecover",
            Operation::Encrypt => "C_Encrypt",
            Operation::Decrypt => "C_Decrypt",
        };
        self.act(call, Effect::None, |objects| objects.run(operation, mechanism, key, data))
    }

    pub fn verify(
        &self,
        mechanism: &Mechanism,
        key: Handle,
        data: &[u8],
        signature: &[u8],
    ) -> Result<(), Fault> {
        self.act("C_Verify", Effect::None, |objects| objects.verify(mechanism, key, data, signature))
    }
}
