//! Where secrets come from: a file, an environment variable or a systemd credential. Never the command line, which
//! every user of the machine can read.

use crate::exit::{Exit, Problem};
use std::ffi::OsString;
use std::fmt;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// A secret longer than this is a mistake (a wrong file), bytes.
const SECRET_FILE_MAX_BYTES: u64 = 4096;

/// Names a secret; holds none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// A file that only its owner may read.
    File(PathBuf),
    /// An environment variable.
    Environment(String),
    /// A file in systemd's $CREDENTIALS_DIRECTORY.
    Credential(String),
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::Credential(name) => write!(f, "systemd credential {name}"),
        }
    }
}

/// The first source that is given.
pub fn given(
    file: Option<&PathBuf>,
    environment: Option<&String>,
    credential: Option<&String>,
) -> Option<SecretSource> {
    let file = file.map(|path| SecretSource::File(path.clone()));
    file.or_else(|| environment.map(|name| SecretSource::Environment(name.clone())))
        .or_else(|| credential.map(|name| SecretSource::Credential(name.clone())))
}

fn problem(what: impl fmt::Display, remedy: impl fmt::Display) -> Problem {
    Problem::new(Exit::Config, what, remedy)
}

impl SecretSource {
    /// Reads the secret; one line end at its end is cut off. `purpose` names it in errors.
    pub fn read(&self, purpose: &str) -> Result<Zeroizing<String>, Problem> {
        self.read_from(purpose, |name| std::env::var_os(name))
    }

    fn read_from(
        &self,
        purpose: &str,
        environment: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Zeroizing<String>, Problem> {
        let text = match self {
            Self::File(path) => read_private(path, purpose)?,
            Self::Environment(name) => {
                let value = environment(name).ok_or_else(|| {
                    problem(
                        format!("{purpose}: environment variable {name} is not set"),
                        format!("set {name}, or name a file with mode 600 instead"),
                    )
                })?;
                Zeroizing::new(value.into_string().map_err(|_| not_text(purpose, self))?)
            }
            Self::Credential(name) => {
                let folder = environment("CREDENTIALS_DIRECTORY").ok_or_else(|| {
                    problem(
                        format!("{purpose}: no $CREDENTIALS_DIRECTORY, so there is no credential '{name}'"),
                        format!("start the member by systemd with LoadCredential={name}:/path/to/file"),
                    )
                })?;
                read_text(&Path::new(&folder).join(name), purpose)?
            }
        };
        let cut = text.strip_suffix('\n').map_or(text.as_str(), |t| t.strip_suffix('\r').unwrap_or(t));
        if cut.is_empty() {
            return Err(problem(format!("{purpose}: {self} is empty"), "write the secret into it"));
        }
        Ok(Zeroizing::new(cut.to_string()))
    }
}

fn not_text(purpose: &str, source: &SecretSource) -> Problem {
    problem(format!("{purpose}: {source} is not UTF-8 text"), "use a secret of plain characters")
}

fn read_private(path: &Path, purpose: &str) -> Result<Zeroizing<String>, Problem> {
    let shown = path.display();
    let facts = std::fs::metadata(path).map_err(|e| {
        problem(
            format!("{purpose}: cannot read file {shown}: {e}"),
            "name a file that exists and that you may read",
        )
    })?;
    if !facts.is_file() {
        return Err(problem(format!("{purpose}: {shown} is no file"), "name a file"));
    }
    if facts.mode() & 0o077 != 0 {
        return Err(problem(
            format!("{purpose}: file {shown} may be read by others (mode {:03o})", facts.mode() & 0o777),
            format!("chmod 600 {shown}"),
        ));
    }
    read_text(path, purpose)
}

fn read_text(path: &Path, purpose: &str) -> Result<Zeroizing<String>, Problem> {
    let shown = path.display();
    let fail = |e: std::io::Error| {
        problem(
            format!("{purpose}: cannot read file {shown}: {e}"),
            "name a file that exists and that you may read",
        )
    };
    // The capacity is set first: a growing buffer would leave copies of the secret behind.
    let mut text = Zeroizing::new(String::with_capacity(SECRET_FILE_MAX_BYTES as usize + 1));
    let file = std::fs::File::open(path).map_err(fail)?;
    file.take(SECRET_FILE_MAX_BYTES + 1).read_to_string(&mut text).map_err(fail)?;
    if text.len() as u64 > SECRET_FILE_MAX_BYTES {
        return Err(problem(
            format!("{purpose}: file {shown} is longer than {SECRET_FILE_MAX_BYTES} bytes"),
            "name the file that holds the secret alone",
        ));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(folder: &Path, name: &str, text: &[u8], mode: u32) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("writes");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("sets the mode");
        path
    }

    #[test]
    fn every_source_is_read() {
        let folder = tempfile::tempdir().expect("makes a folder");
        let path = file(folder.path(), "pin", b"1234\n", 0o600);
        let none = |_: &str| None;
        assert_eq!(
            SecretSource::File(path).read_from("pin", none).as_deref().map(|s| s.as_str()),
            Ok("1234")
        );
        let environment = SecretSource::Environment("P".into());
        let read = environment.read_from("pin", |name| (name == "P").then(|| "a b".into()));
        assert_eq!(read.as_deref().map(|s| s.as_str()), Ok("a b"));
        let home = folder.path().as_os_str().to_owned();
        let credential = SecretSource::Credential("pin".into());
        let read =
            credential.read_from("pin", |name| (name == "CREDENTIALS_DIRECTORY").then(|| home.clone()));
        assert_eq!(read.as_deref().map(|s| s.as_str()), Ok("1234"));
    }

    #[test]
    fn refusals_say_what_to_do() {
        let folder = tempfile::tempdir().expect("makes a folder");
        let none = |_: &str| None;
        let cases = [
            (SecretSource::File(file(folder.path(), "open", b"1", 0o640)), "chmod 600"),
            (SecretSource::File(file(folder.path(), "empty", b"\n", 0o600)), "write the secret"),
            (SecretSource::File(file(folder.path(), "long", &[b'x'; 5000], 0o600)), "alone"),
            (SecretSource::File(file(folder.path(), "binary", &[0xff, 0xfe], 0o600)), "that you may read"),
            (SecretSource::File(folder.path().join("missing")), "exists"),
            (SecretSource::File(folder.path().to_path_buf()), "name a file"),
            (SecretSource::Environment("NOPE".into()), "set NOPE"),
            (SecretSource::Credential("pin".into()), "LoadCredential=pin"),
        ];
        for (source, remedy) in cases {
            let problem = source.read_from("token.pin", none).expect_err("is refused");
            assert_eq!(problem.exit, Exit::Config);
            assert!(problem.what.contains("token.pin"), "{problem}");
            assert!(problem.remedy.contains(remedy), "{source}: {problem}");
        }
    }
}
