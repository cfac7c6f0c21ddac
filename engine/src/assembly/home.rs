//! A member's data folder: who it is. One file, written aside, synced and renamed; only its owner may read it.
//! The envelope keys in it are locked to the token's unlock key, so the token opens the folder.

use crate::codec::CodecError;
use crate::domain::{Generation, GroupId, Lineage, MemberId};
use crate::durable::{self, DurableError};
use crate::wire::Roster;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

const FILE: &str = "identity";
const FORCED: &str = "force-quorum";
const FILE_MAX_BYTES: usize = 1024 * 1024;

/// What a member knows of one SMK generation.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockedGeneration {
    /// Its number.
    pub generation: Generation,
    /// The SMK wrapped by itself: proves that the token holds the right one.
    pub self_blob: Vec<u8>,
    /// The envelope key under the token's unlock key (RSA-OAEP).
    pub locked_envelope_key: Vec<u8>,
}

/// Who a member is.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its group.
    pub group: GroupId,
    /// Its group's history.
    pub lineage: Lineage,
    /// Its id.
    pub member: MemberId,
    /// Its certificate, DER.
    pub certificate: Vec<u8>,
    /// The group's authority, DER.
    pub authority: Vec<u8>,
    /// Its TLS key, PKCS#8.
    pub tls_key: Zeroizing<Vec<u8>>,
    /// Where members were when it joined: used until it has the agreed roster.
    pub roster: Roster,
    /// Every SMK generation that it was given.
    pub generations: Vec<LockedGeneration>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({} of {})", self.member, self.group)
    }
}

/// Why the data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// No member lives here.
    #[error("no member lives in {}: 'keyraft init' starts a group there, 'keyraft join' joins one", .0.display())]
    Empty(PathBuf),
    /// A member lives here already.
    #[error("a member lives in {} already: choose another data folder, or 'keyraft serve' to start it", .0.display())]
    Occupied(PathBuf),
    /// The identity file is damaged or of another version.
    #[error("{} cannot be read: {source}. Restore it from a backup, or remove the member and join as a new one",
        path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: CodecError,
    },
    /// Others may read it.
    #[error("{} can be read by others (mode {mode:o}): run chmod 600 on it", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The disk said no.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

impl From<DurableError> for HomeError {
    fn from(error: DurableError) -> Self {
        match error {
            DurableError::Damaged { path, source } => Self::Damaged { path, source },
            DurableError::Open { path, mode } => Self::Open { path, mode },
            DurableError::Io { path, source } => Self::Io { path, source },
        }
    }
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> HomeError + '_ {
    move |source| HomeError::Io { path: path.to_path_buf(), source }
}

/// Makes the folder, for its owner alone.
pub fn prepare(folder: &Path) -> Result<(), HomeError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io_error(folder))
}

/// Refuses a folder in which a member lives.
pub fn refuse_occupied(folder: &Path) -> Result<(), HomeError> {
    let path = folder.join(FILE);
    match path.try_exists().map_err(io_error(&path))? {
        true => Err(HomeError::Occupied(folder.to_path_buf())),
        false => Ok(()),
    }
}

/// Reads who lives in a folder.
pub fn load(folder: &Path) -> Result<Identity, HomeError> {
    durable::read(&folder.join(FILE), FILE_MAX_BYTES)?.ok_or_else(|| HomeError::Empty(folder.to_path_buf()))
}

/// Writes who lives in a folder: all of it or nothing, durable when this returns.
pub fn save(folder: &Path, identity: &Identity) -> Result<(), HomeError> {
    Ok(durable::write(&folder.join(FILE), identity, FILE_MAX_BYTES)?)
}

/// Leaves word of a history begun by force, for the log of the next start.
pub fn note_forced(folder: &Path, what: &str) -> Result<(), HomeError> {
    Ok(durable::write(&folder.join(FORCED), &what, FILE_MAX_BYTES)?)
}

/// The word that [`note_forced`] left, if there is one.
pub fn forced(folder: &Path) -> Result<Option<String>, HomeError> {
    Ok(durable::read(&folder.join(FORCED), FILE_MAX_BYTES)?)
}

/// It was said: the next start says it no more.
pub fn forget_forced(folder: &Path) -> Result<(), HomeError> {
    let path = folder.join(FORCED);
    fs::remove_file(&path).map_err(io_error(&path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn identity() -> Identity {
        Identity {
            group: GroupId([7; 8]),
            lineage: Lineage(1),
            member: MemberId(3),
            certificate: vec![1],
            authority: vec![2],
            tls_key: Zeroizing::new(vec![3]),
            roster: Roster::default(),
            generations: vec![],
        }
    }

    #[test]
    fn word_of_a_forced_history_is_kept_until_it_was_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        assert_eq!(forced(path).expect("read"), None);
        note_forced(path, "m1 goes on").expect("noted");
        assert_eq!(forced(path).expect("read").as_deref(), Some("m1 goes on"));
        forget_forced(path).expect("forgotten");
        assert_eq!(forced(path).expect("read"), None);
    }

    #[test]
    fn round_trip_and_refusals() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        assert!(matches!(load(path), Err(HomeError::Empty(_))));
        refuse_occupied(path).expect("empty");
        save(path, &identity()).expect("saved");
        assert_eq!(load(path).expect("loaded"), identity());
        assert!(matches!(refuse_occupied(path), Err(HomeError::Occupied(_))));

        let file = path.join(FILE);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("chmod");
        assert!(matches!(load(path), Err(HomeError::Open { mode: 0o644, .. })));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("chmod");
        let mut bytes = fs::read(&file).expect("read");
        bytes[9] ^= 1;
        fs::write(&file, bytes).expect("write");
        assert!(matches!(load(path), Err(HomeError::Damaged { .. })));
    }
}
