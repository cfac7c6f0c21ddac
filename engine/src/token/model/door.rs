//! Two kinds of token behind one face: the C library's, and the model. In builds without simulations `ffi` itself is
//! what the room calls by this name.

use super::super::ffi;
use super::super::template::Template;
use super::session::{ModelModule, ModelSession};
use crate::domain::{AttributeType, Mechanism, MechanismInfo};
use std::path::Path;
use zeroize::Zeroizing;

pub(in super::super) use super::super::error::Fault;
#[cfg(feature = "embedded")]
pub(in super::super) use ffi::ALREADY_INITIALIZED;
pub(in super::super) use ffi::{Handle, Operation, SIGNATURE_INVALID, TokenInfo, User};

/// As `ffi`'s.
pub(in super::super) enum Module {
    /// A loaded library.
    Library(ffi::Module),
    /// A token in memory.
    Model(ModelModule),
}

/// As `ffi`'s.
pub(in super::super) enum Session {
    /// A loaded library's.
    Library(ffi::Session),
    /// A token's in memory.
    Model(ModelSession),
}

/// The same call of either kind.
macro_rules! either {
    ($kind:ident, $($name:ident ( $($argument:ident : $type:ty),* ) -> $result:ty;)*) => {
        impl $kind {
            $(pub fn $name(&self, $($argument: $type),*) -> $result {
                match self {
                    Self::Library(library) => library.$name($($argument),*),
                    Self::Model(model) => model.$name($($argument),*),
                }
            })*
        }
    };
}

impl Module {
    pub fn load(path: &Path) -> Result<Self, String> {
        ffi::Module::load(path).map(Self::Library)
    }

    #[cfg(feature = "embedded")]
    pub fn embedded() -> Result<Self, String> {
        ffi::Module::embedded().map(Self::Library)
    }

    #[cfg(feature = "embedded")]
    pub fn initialize(&self, reserved: Option<&str>) -> Result<(), Fault> {
        match self {
            Self::Library(library) => library.initialize(reserved),
            Self::Model(_) => Ok(()),
        }
    }

    pub fn open(&'static self, slot: u64) -> Result<Session, Fault> {
        match self {
            Self::Library(library) => library.open(slot).map(Session::Library),
            Self::Model(model) => model.open().map(Session::Model),
        }
    }
}

either! { Module,
    slots() -> Result<Vec<u64>, Fault>;
    token_info(slot: u64) -> Result<TokenInfo, Fault>;
    key_sizes(slot: u64, mechanism: u64) -> Option<(u64, u64)>;
    mechanisms(slot: u64) -> Result<Vec<MechanismInfo>, Fault>;
    init_token(slot: u64, so_pin: &str, label: &str) -> Result<(), Fault>;
}

either! { Session,
    login(user: User, pin: Option<&str>) -> Result<(), Fault>;
    logout() -> Result<(), Fault>;
    init_pin(pin: &str) -> Result<(), Fault>;
    generate(mechanism: &Mechanism, template: &Template) -> Result<Handle, Fault>;
    generate_pair(mechanism: &Mechanism, public: &Template, private: &Template) -> Result<(Handle, Handle), Fault>;
    create(template: &Template) -> Result<Handle, Fault>;
    wrap(mechanism: &Mechanism, wrapping: Handle, key: Handle) -> Result<Vec<u8>, Fault>;
    unwrap(mechanism: &Mechanism, unwrapping: Handle, wrapped: &[u8], template: &Template) -> Result<Handle, Fault>;
    derive(mechanism: &Mechanism, base: Handle, template: &Template) -> Result<Handle, Fault>;
    random(bytes: usize) -> Result<Zeroizing<Vec<u8>>, Fault>;
    digest_key(mechanism: &Mechanism, key: Handle) -> Result<Vec<u8>, Fault>;
    destroy(object: Handle) -> Result<(), Fault>;
    read(object: Handle, attribute: AttributeType) -> Result<Zeroizing<Vec<u8>>, Fault>;
    read_number(object: Handle, attribute: AttributeType) -> Option<u64>;
    read_flag(object: Handle, attribute: AttributeType) -> Option<bool>;
    set_flag(object: Handle, attribute: AttributeType, value: bool) -> Result<(), Fault>;
    find(template: &Template) -> Result<Vec<Handle>, Fault>;
    run(operation: Operation, mechanism: &Mechanism, key: Handle, data: &[u8]) -> Result<Zeroizing<Vec<u8>>, Fault>;
    verify(mechanism: &Mechanism, key: Handle, data: &[u8], signature: &[u8]) -> Result<(), Fault>;
}
