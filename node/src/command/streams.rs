//! Data in from a file or standard input, results out to a file or standard output.

use crate::exit::Problem;
use keyraft_engine::limits;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::Path;
use zeroize::Zeroizing;

/// Reads a file, or standard input for `-` and for none; refuses more than one operation may have.
pub(crate) fn read(path: Option<&Path>) -> Result<Zeroizing<Vec<u8>>, Problem> {
    match path {
        None => read_limited(io::stdin().lock(), "standard input"),
        Some(path) if path == Path::new("-") => read_limited(io::stdin().lock(), "standard input"),
        Some(path) => {
            let file = File::open(path).map_err(|e| {
                Problem::usage(
                    format!("cannot read {}: {e}", path.display()),
                    "name a file that you may read",
                )
            })?;
            read_limited(file, &path.display().to_string())
        }
    }
}

fn read_limited(from: impl Read, name: &str) -> Result<Zeroizing<Vec<u8>>, Problem> {
    let max = limits::OPERATION_DATA_MAX_BYTES;
    let mut data = Zeroizing::new(Vec::new());
    from.take(max as u64 + 1)
        .read_to_end(&mut data)
        .map_err(|e| Problem::usage(format!("cannot read {name}: {e}"), "name a file that you may read"))?;
    if data.len() > max {
        return Err(Problem::usage(
            format!("{name} is longer than the {max} bytes of one operation"),
            "sign a digest of it, or encrypt it under a key of your own and that key here",
        ));
    }
    Ok(data)
}

/// Writes to a file (made anew, for the owner alone), or to standard output; text gets a line end.
pub(crate) fn write(path: Option<&Path>, bytes: &[u8], text: bool) -> Result<(), Problem> {
    let mut bytes = Zeroizing::new(bytes.to_vec());
    match path {
        Some(path) if path != Path::new("-") => {
            if text {
                bytes.push(b'\n');
            }
            let write = || -> io::Result<()> {
                use std::io::Write;
                use std::os::unix::fs::OpenOptionsExt;
                let mut options = File::options();
                options.write(true).create(true).truncate(true).mode(0o600);
                options.open(path)?.write_all(&bytes)
            };
            write().map_err(|e| {
                Problem::usage(
                    format!("cannot write {}: {e}", path.display()),
                    "name a file that you may write",
                )
            })
        }
        _ => {
            if text || io::stdout().is_terminal() {
                bytes.push(b'\n');
            }
            super::write_out(&bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_much_is_refused() {
        let much = vec![0; limits::OPERATION_DATA_MAX_BYTES + 1];
        assert!(read_limited(&much[..], "x").expect_err("is refused").what.contains("x is longer"));
        assert_eq!(read_limited(&much[1..], "x").map(|d| d.len()), Ok(limits::OPERATION_DATA_MAX_BYTES));
    }
}
