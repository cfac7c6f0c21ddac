//! Embedded tokens: kryoptic, linked in. Its state is global to the process, but C_Initialize may be called again and
//! again to add slots. It also opens every slot's database anew each time, and fails as a whole if one cannot be
//! opened. So each slot has a path of its own in a passing folder of links: while a slot is added its link leads to the
//! token's folder and all older links lead to an empty place; afterwards the links are removed. SQLite resolves links
//! when it opens a database, so a live token never depends on one.

use super::TokenError;
use super::door::{ALREADY_INITIALIZED, Module};
use super::error::rv_name;
use parking_lot::Mutex;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

/// The database's name in a token's folder.
pub(super) const DATABASE: &str = "token.sql";

/// What kryoptic has been told so far.
struct Registry {
    module: &'static Module,
    /// Where the links are made; a fresh random name for each process.
    links: PathBuf,
    /// Each slot's folder, by slot number. A slot is never given to another folder.
    slots: Vec<Home>,
}

/// A token's folder, and the file that its slot has open: a database put in its place is another token.
struct Home {
    folder: PathBuf,
    file: Option<(u64, u64)>,
}

static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);

/// The slot of the token in a folder; the folder must exist. A new slot is made unless this process has one for the
/// very same database. A folder without a database gets one: a token to be initialised.
pub(super) fn slot(folder: &Path) -> Result<(&'static Module, u64), TokenError> {
    let trouble = |reason: String| TokenError::Folder { folder: folder.to_path_buf(), reason };
    let folder = fs::canonicalize(folder).map_err(|e| trouble(format!("{e}. 'keyraft init' makes it")))?;
    let mut registry = REGISTRY.lock();
    if registry.is_none() {
        *registry = Some(Registry::new().map_err(trouble)?);
    }
    let registry = registry.as_mut().expect("made just now");
    let file = identity(&folder);
    let known =
        registry.slots.iter().position(|home| home.folder == folder && home.file == file && file.is_some());
    let slot = match known {
        Some(slot) => slot,
        None => registry.add(&folder).map_err(trouble)?,
    };
    Ok((registry.module, slot as u64))
}

/// Device and inode of a folder's database.
fn identity(folder: &Path) -> Option<(u64, u64)> {
    let meta = fs::metadata(folder.join(DATABASE)).ok()?;
    Some((meta.dev(), meta.ino()))
}

impl Registry {
    fn new() -> Result<Self, String> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| format!("no random bytes: {error}"))?;
        let name = format!("keyraft-{}", data_encoding::HEXLOWER.encode(&random));
        let module = Box::leak(Box::new(Module::embedded()?));
        Ok(Self { module, links: std::env::temp_dir().join(name), slots: Vec::new() })
    }

    fn add(&mut self, folder: &Path) -> Result<usize, String> {
        let made = self.link_and_initialize(folder);
        let removed = fs::remove_dir_all(&self.links);
        made?;
        removed.map_err(|error| format!("cannot remove {}: {error}", self.links.display()))?;
        self.slots.push(Home { folder: folder.to_path_buf(), file: identity(folder) });
        Ok(self.slots.len() - 1)
    }

    fn link_and_initialize(&self, folder: &Path) -> Result<(), String> {
        let config = self.link(folder).map_err(|error| format!("{}: {error}", self.links.display()))?;
        let reserved = format!("kryoptic_conf={}", config.display());
        match self.module.initialize(Some(&reserved)) {
            Ok(()) => Ok(()),
            Err(fault) if fault.code == ALREADY_INITIALIZED => Ok(()),
            Err(fault) => Err(format!("the embedded token does not open it: {}", rv_name(fault.code))),
        }
    }

    /// Makes the links and the configuration that names them all.
    fn link(&self, folder: &Path) -> io::Result<PathBuf> {
        fs::DirBuilder::new().mode(0o700).create(&self.links)?;
        let nowhere = self.links.join("nowhere");
        fs::DirBuilder::new().mode(0o700).create(&nowhere)?;
        let mut text = String::new();
        for slot in 0..=self.slots.len() {
            let link = self.links.join(format!("slot{slot}"));
            let target = if slot == self.slots.len() { folder } else { &nowhere };
            symlink(target, &link)?;
            let database = link.join(DATABASE);
            writeln!(
                text,
                "[[slots]]\nslot = {slot}\ndbtype = \"sqlite\"\ndbargs = {:?}",
                database.display().to_string()
            )
            .expect("writing to a String does not fail");
        }
        let config = self.links.join("slots.toml");
        fs::write(&config, text)?;
        Ok(config)
    }
}
