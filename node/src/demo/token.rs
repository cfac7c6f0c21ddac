//! Which token the demo's members have.

use crate::exit::{Exit, Problem};
use std::path::{Path, PathBuf};

/// The kind of token of every member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// The one in the binary.
    Embedded,
    /// SoftHSM, or another library; it gets a SOFTHSM2_CONF of its own for each member.
    Library(PathBuf),
}

/// Where distributions put SoftHSM and other modules.
const PLACES: &[&str] = &[
    "/usr/lib/softhsm",
    "/usr/lib/x86_64-linux-gnu/softhsm",
    "/usr/lib/aarch64-linux-gnu/softhsm",
    "/usr/lib64/softhsm",
    "/usr/lib64/pkcs11",
    "/usr/lib/pkcs11",
    "/usr/local/lib/softhsm",
    "/opt/homebrew/lib/softhsm",
];

impl TokenKind {
    /// Finds the library that a person named by its path or by its name alone.
    pub fn find(name: &str) -> Result<Self, Problem> {
        Self::find_in(name, PLACES)
    }

    fn find_in(name: &str, places: &[&str]) -> Result<Self, Problem> {
        if name == "embedded" {
            return Ok(Self::Embedded);
        }
        let given = Path::new(name);
        if given.is_file() {
            let path =
                std::path::absolute(given).map_err(|e| Problem::io("finding the working folder", &e))?;
            return Ok(Self::Library(path));
        }
        let found = places.iter().map(|place| Path::new(place).join(name)).find(|path| path.is_file());
        match found {
            Some(path) if !name.contains('/') => Ok(Self::Library(path)),
            _ => Err(Problem::new(
                Exit::NotFound,
                format!("there is no PKCS#11 library '{name}' (looked in {})", places.join(", ")),
                "install SoftHSM with: apt-get install softhsm2   (or name the library by its whole path)",
            )),
        }
    }

    /// The value of `token.module`.
    pub fn module(&self) -> String {
        match self {
            Self::Embedded => "embedded".into(),
            Self::Library(path) => path.display().to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_found_by_name_or_path() {
        let folder = tempfile::tempdir().expect("makes a folder");
        let path = folder.path().join("libx.so");
        std::fs::write(&path, "").expect("writes");
        let place = folder.path().display().to_string();
        let shown = path.display().to_string();
        assert_eq!(TokenKind::find_in("embedded", &[]), Ok(TokenKind::Embedded));
        assert_eq!(TokenKind::find_in("libx.so", &[&place]), Ok(TokenKind::Library(path.clone())));
        assert_eq!(TokenKind::find_in(&shown, &[]), Ok(TokenKind::Library(path)));
        let problem = TokenKind::find_in("liby.so", &[&place]).expect_err("is missing");
        assert!(problem.remedy.contains("apt-get install softhsm2"), "{problem}");
    }
}
