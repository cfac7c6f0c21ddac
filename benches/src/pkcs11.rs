//! What a token imports by itself: the bound of everything that is built on it.

use crate::members::{Folder, softhsm_conf};
use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::mechanism::Mechanism;
use cryptoki::object::{Attribute, KeyType, ObjectClass};
use cryptoki::session::UserType;
use cryptoki::types::AuthPin;
use keyraft_engine::clock::Clock;
use keyraft_node::exit::{Exit, Problem};
use std::path::Path;
use std::process::Command;

/// Imports a second on a fresh SoftHSM token, measured by a process of its own.
pub fn limit(parent: &Path, library: &Path, count: usize) -> Result<f64, Problem> {
    let folder = Folder::new(parent, "token", false)?;
    let conf = softhsm_conf(folder.path())?;
    let program = std::env::current_exe().map_err(|e| Problem::io("finding the own program", &e))?;
    let mut command = Command::new(program);
    command.arg("--token-limit").arg(count.to_string()).arg("--softhsm").arg(library);
    let output = command.env("SOFTHSM2_CONF", conf).output();
    let output = output.map_err(|e| Problem::io("measuring the token", &e))?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().map_err(|_| {
        let said = String::from_utf8_lossy(&output.stderr);
        Problem::new(Exit::Token, format!("the token's own limit was not measured: {}", said.trim_end()), "")
    })
}

/// Unwraps so many P-256 private keys into the token.
pub fn unwraps_per_second(library: &Path, count: usize) -> Result<f64, Problem> {
    times(library, count).map_err(|e| Problem::new(Exit::Token, e, ""))
}

fn times(library: &Path, count: usize) -> Result<f64, cryptoki::error::Error> {
    let module = Pkcs11::new(library)?;
    module.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK))?;
    let slot = module.get_all_slots()?[0];
    let (so_pin, pin) = (AuthPin::new("12345678".into()), AuthPin::new("1234".into()));
    module.init_token(slot, &so_pin, "limit")?;
    let slot = module.get_slots_with_initialized_token()?[0];
    let session = module.open_rw_session(slot)?;
    session.login(UserType::So, Some(&so_pin))?;
    session.init_pin(&pin)?;
    session.logout()?;
    session.login(UserType::User, Some(&pin))?;
    let length = Attribute::ValueLen(32.into());
    let wrapping = [Attribute::Token(false), length, Attribute::Wrap(true), Attribute::Unwrap(true)];
    let wrapping = session.generate_key(&Mechanism::AesKeyGen, &wrapping)?;
    // The DER name of P-256.
    let curve = Attribute::EcParams(vec![0x06, 0x08, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x03, 0x01, 0x07]);
    let public = [Attribute::Token(false), curve];
    let private = [Attribute::Token(false), Attribute::Extractable(true), Attribute::Sensitive(false)];
    let (_, key) = session.generate_key_pair(&Mechanism::EccKeyPairGen, &public, &private)?;
    let wrapped = session.wrap_key(&Mechanism::AesKeyWrapPad, wrapping, key)?;
    let template = [
        Attribute::Token(true),
        Attribute::Private(true),
        Attribute::Sensitive(true),
        Attribute::Extractable(false),
        Attribute::Sign(true),
        Attribute::Class(ObjectClass::PRIVATE_KEY),
        Attribute::KeyType(KeyType::EC),
    ];
    let begin = Clock.now();
    for _ in 0..count {
        session.unwrap_key(&Mechanism::AesKeyWrapPad, wrapping, &wrapped, &template)?;
    }
    Ok(count as f64 / (Clock.now() - begin).as_secs_f64())
}
