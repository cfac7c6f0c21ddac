//! Whether this process is initialised. A forked child is not until it says so itself, and never touches its parent's
//! connections.

use crate::config;
use crate::module::Module;
use crate::rv::{Result, Rv};
use arc_swap::ArcSwapOption;
use cryptoki_sys::{CKR_CRYPTOKI_ALREADY_INITIALIZED, CKR_CRYPTOKI_NOT_INITIALIZED, CKR_GENERAL_ERROR};
use std::sync::Arc;

struct Initialised {
    process: u32,
    module: Arc<Module>,
}

/// Loaded without a lock: a lock that another thread held at a fork would stay held in the child for ever.
static CURRENT: ArcSwapOption<Initialised> = ArcSwapOption::const_empty();

/// The module of this process.
pub(crate) fn current() -> Result<Arc<Module>> {
    let current = CURRENT.load();
    match current.as_ref() {
        Some(initialised) if initialised.process == std::process::id() => Ok(initialised.module.clone()),
        _ => Err(Rv(CKR_CRYPTOKI_NOT_INITIALIZED)),
    }
}

/// C_Initialize. Reads the configuration; connects to nobody.
pub(crate) fn initialize() -> Result<()> {
    if current().is_ok() {
        return Err(Rv(CKR_CRYPTOKI_ALREADY_INITIALIZED));
    }
    let config = config::load().map_err(|text| {
        // The one thing that a person must see without asking: nothing works before it is mended.
        eprintln!("keyraft-pkcs11: {text}");
        Rv(CKR_GENERAL_ERROR)
    })?;
    let module = Arc::new(Module::new(&config));
    CURRENT.store(Some(Arc::new(Initialised { process: std::process::id(), module })));
    Ok(())
}

/// C_Finalize. Calls under way end with what they have.
pub(crate) fn finalize() -> Result<()> {
    current()?;
    CURRENT.store(None);
    Ok(())
}
