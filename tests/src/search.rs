//! Looks for a secret in files, in the clear and in its usual encodings.

use data_encoding::{BASE32, BASE64, BASE64_NOPAD, BASE64URL_NOPAD, HEXLOWER, HEXUPPER};
use std::fs;
use std::path::{Path, PathBuf};

/// What a value looks like where it should not be.
pub struct Needles(Vec<(&'static str, Vec<u8>)>);

impl Needles {
    /// Every usual shape of a value.
    pub fn of(value: &[u8]) -> Self {
        let reversed: Vec<u8> = value.iter().rev().copied().collect();
        let spaced: Vec<String> = value.iter().map(|byte| format!("{byte:02x}")).collect();
        let decimal: Vec<String> = value.iter().map(u8::to_string).collect();
        let mut all = vec![
            ("raw", value.to_vec()),
            ("raw, reversed", reversed),
            ("hex", HEXLOWER.encode(value).into_bytes()),
            ("HEX", HEXUPPER.encode(value).into_bytes()),
            ("hex with colons", spaced.join(":").into_bytes()),
            ("base64", BASE64.encode(value).into_bytes()),
            ("base64url", BASE64URL_NOPAD.encode(value).into_bytes()),
            ("base32", BASE32.encode(value).into_bytes()),
            ("debug", decimal.join(", ").into_bytes()),
            ("json", decimal.join(",").into_bytes()),
        ];
        // Inside a longer text, base64 shows a value at one of three offsets; its ends mix with the neighbours.
        for skip in [1, 2] {
            let inner = &value[3 - skip..];
            let whole = &inner[..inner.len() / 3 * 3];
            all.push(("base64 inside a text", BASE64_NOPAD.encode(whole).into_bytes()));
        }
        Self(all)
    }

    /// How a value shows in these bytes, if it does.
    pub fn find(&self, bytes: &[u8]) -> Option<&'static str> {
        // One pass for all of them: files are many megabytes.
        let mut firsts = [false; 256];
        self.0.iter().for_each(|(_, needle)| firsts[usize::from(needle[0])] = true);
        for (at, byte) in bytes.iter().enumerate() {
            if firsts[usize::from(*byte)] {
                let rest = &bytes[at..];
                if let Some((shape, _)) = self.0.iter().find(|(_, needle)| rest.starts_with(needle)) {
                    return Some(shape);
                }
            }
        }
        None
    }

    /// Every file below a folder that shows the value, and how. Gives the number of files and bytes read, too.
    pub fn find_below(&self, folder: &Path) -> Found {
        let mut found = Found::default();
        let mut folders = vec![folder.to_path_buf()];
        while let Some(next) = folders.pop() {
            for entry in fs::read_dir(&next).unwrap_or_else(|e| panic!("{}: {e}", next.display())) {
                let path = entry.expect("lists").path();
                let kind = fs::symlink_metadata(&path).expect("is there").file_type();
                if kind.is_dir() {
                    folders.push(path);
                } else if kind.is_file() {
                    let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                    found.files += 1;
                    found.bytes += bytes.len();
                    if let Some(shape) = self.find(&bytes) {
                        found.hits.push((path, shape));
                    }
                }
            }
        }
        found
    }
}

/// What a search came to.
#[derive(Debug, Default)]
pub struct Found {
    /// Files read.
    pub files: usize,
    /// Bytes read.
    pub bytes: usize,
    /// Where the value shows, and how.
    pub hits: Vec<(PathBuf, &'static str)>,
}
