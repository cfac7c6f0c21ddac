//! From a configuration to an open token: the library, the slot, the login, the sweep, the index.

use super::door::{Handle, Module, Session, TokenInfo, User};
use super::error::{Fault, rv_name};
use super::probe;
use super::tag::Tag;
use super::template::{self, Template};
use super::vault::{Canary, Index, Ledger, Vault};
use super::{ModuleSource, Pin, SlotChoice, TokenConfig, TokenError, carry, proof};
use crate::domain::{
    AttributeType as A, Curve, KeyAlgorithm, Mechanism, ObjectClass, Profile, Residency, TokenIdentity,
};
use crate::telemetry::Event;
use cryptoki_sys::{CKF_PROTECTED_AUTHENTICATION_PATH, CKF_TOKEN_INITIALIZED};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Digits behind the name of a token that is being made.
const ASIDE_HEX_DIGITS: usize = 16;

static LIBRARIES: Mutex<BTreeMap<PathBuf, &'static Module>> = Mutex::new(BTreeMap::new());
static SEATS: Mutex<BTreeSet<(usize, u64)>> = Mutex::new(BTreeSet::new());

/// The right of one handle to a slot. A login, the gate and the sweep hold for a whole process.
pub(super) struct Seat(usize, u64);

impl Seat {
    fn take(module: &'static Module, slot: u64) -> Result<Self, TokenError> {
        let place = (std::ptr::from_ref(module).addr(), slot);
        if SEATS.lock().insert(place) { Ok(Self(place.0, place.1)) } else { Err(TokenError::InUse) }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        SEATS.lock().remove(&(self.0, self.1));
    }
}

/// Opens a token: everything short of its threads.
pub(super) fn open(config: &TokenConfig) -> Result<Vault, TokenError> {
    let (module, slot) = find(&config.source, &config.slot)?;
    let seat = Seat::take(module, slot)?;
    let info = module.token_info(slot)?;
    let keeper = module.open(slot)?;
    let asks_itself = info.flags & CKF_PROTECTED_AUTHENTICATION_PATH != 0;
    match &config.pin {
        _ if asks_itself => log_in(&keeper, User::Normal, None)?,
        Some(pin) => log_in(&keeper, User::Normal, Some(pin))?,
        None => return Err(TokenError::NeedsPin),
    }
    // Half-written objects look like session objects, so this comes before the first of those.
    let found = sweep(&keeper)?;
    let default = match config.source {
        ModuleSource::Embedded { .. } => Residency::Session,
        ModuleSource::Library { .. } => Residency::Token,
        #[cfg(feature = "test-hooks")]
        ModuleSource::Model(_) => Residency::Token,
    };
    let residency = config.residency.unwrap_or(default);
    let identity = TokenIdentity {
        manufacturer: info.manufacturer,
        model: info.model,
        serial: info.serial,
        label: info.label,
    };
    let (abilities, profile) = probe_apart(module, slot, identity, residency)?;
    let key = canary(&keeper, &found)?;
    let expect = proof::encrypt_zeros(&keeper, key)?;
    let canary = Canary { key, expect, signer: signer(&keeper, &profile), file: database(&config.source) };
    let index = Mutex::new(Index { found, ..Index::default() });
    let ledger = Arc::new(Ledger { profile, index, calls: Arc::default() });
    Ok(Vault {
        module,
        slot,
        keeper,
        gate: RwLock::new(()),
        uses: AtomicU64::new(0),
        abilities,
        ledger,
        canary,
        _seat: seat,
    })
}

/// Probes fail on purpose, and a failed operation spoils its session.
fn probe_apart(
    module: &'static Module,
    slot: u64,
    identity: TokenIdentity,
    residency: Residency,
) -> Result<(probe::Abilities, Profile), TokenError> {
    let session = module.open(slot)?;
    probe::probe((module, slot), &session, identity, residency)
}

fn database(source: &ModuleSource) -> Option<(PathBuf, u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let ModuleSource::Embedded { folder } = source else { return None };
    let path = std::fs::canonicalize(folder).ok()?.join("token.sql");
    let meta = std::fs::metadata(&path).ok()?;
    Some((path, meta.dev(), meta.ino()))
}

fn load(path: &Path) -> Result<&'static Module, TokenError> {
    let trouble = |reason: String| TokenError::Module { path: path.to_path_buf(), reason };
    let real = std::fs::canonicalize(path).map_err(|error| trouble(error.to_string()))?;
    let mut libraries = LIBRARIES.lock();
    if let Some(module) = libraries.get(&real) {
        return Ok(module);
    }
    let module: &'static Module = Box::leak(Box::new(Module::load(&real).map_err(trouble)?));
    libraries.insert(real, module);
    Ok(module)
}

#[cfg(feature = "embedded")]
fn embedded(folder: &Path) -> Result<(&'static Module, u64), TokenError> {
    super::embedded::slot(folder)
}

#[cfg(not(feature = "embedded"))]
fn embedded(folder: &Path) -> Result<(&'static Module, u64), TokenError> {
    let reason = "this build has no embedded token: name a PKCS#11 library instead".to_string();
    Err(TokenError::Folder { folder: folder.to_path_buf(), reason })
}

/// The library and the slot of the token that is meant.
fn find(source: &ModuleSource, choice: &SlotChoice) -> Result<(&'static Module, u64), TokenError> {
    let path = match source {
        ModuleSource::Embedded { folder } => {
            if !folder.join("token.sql").is_file() {
                let reason = "it holds no token: 'keyraft init' or 'keyraft join' makes one".to_string();
                return Err(TokenError::Folder { folder: folder.clone(), reason });
            }
            sweep_aside(folder);
            let (module, slot) = embedded(folder)?;
            let info = module.token_info(slot)?;
            return if fits(choice, &info) { Ok((module, slot)) } else { Err(no_slot(choice, &[info])) };
        }
        ModuleSource::Library { path } => path,
        #[cfg(feature = "test-hooks")]
        ModuleSource::Model(token) => return only(token.module(), choice),
    };
    let module = load(path)?;
    let mut tokens = Vec::new();
    for slot in module.slots()? {
        let info = module.token_info(slot)?;
        if info.flags & CKF_TOKEN_INITIALIZED != 0 {
            tokens.push((slot, info));
        }
    }
    let mut fitting = tokens.iter().filter(|(_, info)| fits(choice, info));
    match (fitting.next(), fitting.next()) {
        (Some((slot, _)), None) => Ok((module, *slot)),
        _ => Err(no_slot(choice, &tokens.into_iter().map(|(_, info)| info).collect::<Vec<_>>())),
    }
}

/// The only slot, if the token in it was initialised and is the one that is meant.
#[cfg(feature = "test-hooks")]
fn only(module: &'static Module, choice: &SlotChoice) -> Result<(&'static Module, u64), TokenError> {
    let info = module.token_info(0)?;
    let made = info.flags & CKF_TOKEN_INITIALIZED != 0;
    if made && fits(choice, &info) { Ok((module, 0)) } else { Err(no_slot(choice, &[info])) }
}

fn fits(choice: &SlotChoice, info: &TokenInfo) -> bool {
    match choice {
        SlotChoice::Only => true,
        SlotChoice::Label(label) => *label == info.label,
        SlotChoice::Serial(serial) => *serial == info.serial,
    }
}

fn no_slot(choice: &SlotChoice, tokens: &[TokenInfo]) -> TokenError {
    let choice = match choice {
        SlotChoice::Only => "'the only token'".to_string(),
        SlotChoice::Label(label) => format!("label '{label}'"),
        SlotChoice::Serial(serial) => format!("serial '{serial}'"),
    };
    let names: Vec<String> = tokens.iter().map(|t| format!("'{}' (serial {})", t.label, t.serial)).collect();
    let found =
        if names.is_empty() { "there is no token".into() } else { format!("there are {}", names.join(", ")) };
    TokenError::NoSlot { choice, found }
}

fn log_in(session: &Session, user: User, pin: Option<&Pin>) -> Result<(), TokenError> {
    const PIN_INCORRECT: u64 = 0xA0;
    const PIN_INVALID: u64 = 0xA1;
    const PIN_LEN_RANGE: u64 = 0xA2;
    const PIN_LOCKED: u64 = 0xA4;
    const ALREADY_LOGGED_IN: u64 = 0x100;
    match session.login(user, pin.map(Pin::expose)) {
        Ok(()) | Err(Fault { code: ALREADY_LOGGED_IN, .. }) => Ok(()),
        Err(Fault { code: PIN_INCORRECT | PIN_INVALID | PIN_LEN_RANGE, .. }) => Err(TokenError::WrongPin),
        Err(Fault { code: PIN_LOCKED, .. }) => Err(TokenError::PinLocked),
        Err(fault) => Err(fault.into()),
    }
}

/// What one look at an object tells.
pub(super) enum Seen {
    /// A token object, with its tag if it is ours.
    Whole(Option<Tag>),
    /// Half-written: it answers no class, or says that it is no token object.
    Half,
    /// Not an object that can be destroyed or that concerns anybody: kryoptic lists its mechanisms as objects.
    Scenery,
}

/// Looks at one object.
pub(super) fn look(session: &Session, object: Handle) -> Seen {
    match session.read_number(object, A::CLASS) {
        None => return Seen::Half,
        Some(class) if class > ObjectClass::SecretKey.number() => return Seen::Scenery,
        Some(_) => {}
    }
    if session.read_flag(object, A::TOKEN) != Some(true) {
        return Seen::Half;
    }
    Seen::Whole(session.read(object, A::ID).ok().and_then(|id| Tag::parse(&id)))
}

/// Destroys half-written objects and indexes the whole ones. A whole object is never destroyed here.
fn sweep(session: &Session) -> Result<BTreeMap<Tag, Vec<Handle>>, TokenError> {
    let mut found: BTreeMap<Tag, Vec<Handle>> = BTreeMap::new();
    let mut swept = 0usize;
    for object in session.find(&Template::default())? {
        match look(session, object) {
            Seen::Whole(Some(tag)) => found.entry(tag).or_default().push(object),
            Seen::Half => {
                // SoftHSM 2.7 has been seen to fail here although the object goes.
                let _ = session.destroy(object);
                swept += 1;
            }
            Seen::Whole(None) | Seen::Scenery => {}
        }
    }
    if swept > 0 {
        tracing::warn!(
            code = Event::HalfWrittenRemoved.code(),
            swept,
            "half-written objects of an earlier crash were removed from the token"
        );
    }
    Ok(found)
}

/// The canary key, made if the token has none.
fn canary(session: &Session, found: &BTreeMap<Tag, Vec<Handle>>) -> Result<Handle, TokenError> {
    if let Some(handle) = found.get(&Tag::Canary).and_then(|handles| handles.first()) {
        return Ok(*handle);
    }
    let algorithm = KeyAlgorithm::Aes { bits: 128 };
    let tag = Tag::Canary.text();
    let template = template::key(algorithm, true, true, false)
        .usages(ObjectClass::SecretKey, |usage| usage == A::ENCRYPT)
        .number(A::VALUE_LEN, 16)
        .bytes(A::ID, tag.as_bytes())
        .bytes(A::LABEL, tag.as_bytes())
        .flag(A::MODIFIABLE, false);
    Ok(session.generate(&Mechanism::plain(algorithm.generator()), &template)?)
}

/// The key that proves that the token signs, where it does.
fn signer(session: &Session, profile: &Profile) -> Option<(Handle, super::der::PublicKey)> {
    let kinds = [KeyAlgorithm::Ec(Curve::P256), KeyAlgorithm::Rsa { bits: 2048 }];
    let kind = kinds.into_iter().find(|kind| profile.carries.contains(kind))?;
    carry::generate_signer(session, kind).ok()
}

/// Makes a token: on a free slot of a library, or in a folder of its own. Blocks.
///
/// # Errors
/// The library or folder cannot be used, no slot is free, or the token refuses a PIN.
pub fn initialize(source: &ModuleSource, label: &str, so_pin: &Pin, pin: &Pin) -> Result<(), TokenError> {
    if label.is_empty() || label.len() > 32 {
        return Err(TokenError::BadInput("a token's label has 1 to 32 bytes"));
    }
    match source {
        ModuleSource::Library { path } => {
            let module = load(path)?;
            let mut free = None;
            for slot in module.slots()? {
                let info = module.token_info(slot)?;
                if info.flags & CKF_TOKEN_INITIALIZED == 0 {
                    free = free.or(Some(slot));
                } else if info.label == label {
                    let found = format!("a token with the label '{label}' is there");
                    let anew = "name another token.label, or remove this one with its maker's tool";
                    return Err(TokenError::Exists { found, anew });
                }
            }
            let slot = free.ok_or_else(|| no_free("no slot is free".to_string()))?;
            initialize_slot(module, slot, label, so_pin, pin)
        }
        ModuleSource::Embedded { folder } => initialize_folder(folder, label, so_pin, pin),
        #[cfg(feature = "test-hooks")]
        ModuleSource::Model(token) => {
            let module = token.module();
            match only(module, &SlotChoice::Only) {
                Ok(_) => {
                    let found = "the model is a token".to_string();
                    Err(TokenError::Exists { found, anew: "take another one" })
                }
                Err(_) => initialize_slot(module, 0, label, so_pin, pin),
            }
        }
    }
}

fn no_free(found: String) -> TokenError {
    TokenError::NoSlot { choice: "'a free slot for a new token'".to_string(), found }
}

fn aside_prefix(name: &std::ffi::OsStr) -> String {
    format!(".{}.", name.to_string_lossy())
}

/// Removes what a kill left of a token that was being made: it never held a key. Nothing else is touched.
fn sweep_aside(folder: &Path) {
    let (Some(name), Some(parent)) = (folder.file_name(), folder.parent()) else { return };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    let prefix = aside_prefix(name);
    for entry in entries.flatten() {
        let path = entry.path();
        let named =
            entry.file_name().to_str().and_then(|text| text.strip_prefix(&prefix)).is_some_and(|hex| {
                hex.len() == ASIDE_HEX_DIGITS && data_encoding::HEXLOWER.decode(hex.as_bytes()).is_ok()
            });
        let ours = named
            && std::fs::read_dir(&path).is_ok_and(|mut inside| {
                inside.all(|file| {
                    file.is_ok_and(|file| file.file_name().to_string_lossy().starts_with("token.sql"))
                })
            });
        if ours {
            tracing::warn!(code = Event::UnfinishedTokenRemoved.code(), folder = %path.display(), "a token that was never finished is removed");
            if let Err(error) = std::fs::remove_dir_all(&path) {
                tracing::warn!(code = Event::UnfinishedTokenStays.code(), folder = %path.display(), %error, "it cannot be removed");
            }
        }
    }
}

/// A kill while a token is made leaves it stuck, so it is made aside and renamed when it is whole.
fn initialize_folder(folder: &Path, label: &str, so_pin: &Pin, pin: &Pin) -> Result<(), TokenError> {
    use std::os::unix::fs::DirBuilderExt;
    let trouble = |reason: String| TokenError::Folder { folder: folder.to_path_buf(), reason };
    if std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
        let found = format!("the embedded token's folder {} is there", folder.display());
        return Err(TokenError::Exists { found, anew: "remove that folder, and with it every key in it" });
    }
    sweep_aside(folder);
    let mut random = [0; ASIDE_HEX_DIGITS / 2];
    getrandom::fill(&mut random).map_err(|error| trouble(format!("no random bytes: {error}")))?;
    let name = folder.file_name().ok_or_else(|| trouble("it has no name".to_string()))?;
    let parent = match folder.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let aside = parent.join(format!("{}{}", aside_prefix(name), data_encoding::HEXLOWER.encode(&random)));
    let io = |error: std::io::Error| trouble(error.to_string());
    std::fs::DirBuilder::new().mode(0o700).create(&aside).map_err(io)?;
    let made = embedded(&aside)
        .and_then(|(module, slot)| initialize_slot(module, slot, label, so_pin, pin))
        .and_then(|()| {
            let sync = |path: &Path| std::fs::File::open(path).and_then(|file| file.sync_all());
            sync(&aside.join("token.sql")).map_err(io)?;
            sync(&aside).map_err(io)?;
            std::fs::rename(&aside, folder).map_err(io)?;
            sync(parent).map_err(io)
        });
    if made.is_err() {
        let _ = std::fs::remove_dir_all(&aside);
    }
    made
}

fn initialize_slot(
    module: &'static Module,
    slot: u64,
    label: &str,
    so_pin: &Pin,
    pin: &Pin,
) -> Result<(), TokenError> {
    let refused = |fault: Fault| match fault.code {
        0xA0..=0xA2 => TokenError::NoSlot {
            choice: "'a new token'".to_string(),
            found: format!("the token refuses the PIN it is to get ({})", rv_name(fault.code)),
        },
        _ => fault.into(),
    };
    module.init_token(slot, so_pin.expose(), label).map_err(refused)?;
    let session = module.open(slot)?;
    log_in(&session, User::SecurityOfficer, Some(so_pin))?;
    session.init_pin(pin.expose()).map_err(refused)?;
    Ok(session.logout()?)
}
