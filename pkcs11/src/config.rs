//! client.toml: which groups an application sees.

use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The whole file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// One slot each.
    pub groups: Vec<GroupConfig>,
}

/// One group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupConfig {
    /// The Unix sockets of its members on this machine, the preferred one first.
    pub sockets: Vec<PathBuf>,
    /// Its slot's number.
    pub slot: u64,
    /// The longest that a call takes before it fails.
    pub timeout: Duration,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    group: Vec<GroupTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupTable {
    sockets: Vec<PathBuf>,
    slot: Option<u64>,
    timeout_ms: Option<u64>,
}

/// Groups that one file may name.
const GROUPS_MAX: usize = 32;
/// Sockets of one group.
const SOCKETS_MAX: usize = keyraft_engine::limits::MEMBERS_MAX;
/// timeout_ms, least and most.
const TIMEOUT_MS: std::ops::RangeInclusive<u64> = 100..=600_000;
/// A file longer than this is none of ours, bytes.
const FILE_MAX_BYTES: u64 = 1024 * 1024;

/// Reads the file that KEYRAFT_CONFIG names, else the user's, else the system's. The text of an error says which file,
/// which key, and what to do.
pub(crate) fn load() -> Result<Config, String> {
    let path = find()?;
    let told = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let size = std::fs::metadata(&path).map_err(|e| told(&e))?.len();
    if size > FILE_MAX_BYTES {
        return Err(told(&format!("{size} bytes are too many for a client.toml")));
    }
    let text = std::fs::read_to_string(&path).map_err(|e| told(&e))?;
    parse(&text).map_err(|e| told(&e))
}

fn find() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os("KEYRAFT_CONFIG") {
        return Ok(named.into());
    }
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".config"));
    let user = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
    let user = user.map(|folder| folder.join("keyraft/client.toml"));
    let system = PathBuf::from("/etc/keyraft/client.toml");
    let mut places: Vec<&Path> = Vec::new();
    places.extend(user.as_deref());
    places.push(&system);
    places.iter().find(|path| path.is_file()).map(|path| path.to_path_buf()).ok_or_else(|| {
        let names: Vec<_> = places.iter().map(|path| path.display().to_string()).collect();
        format!(
            "no configuration: name one in KEYRAFT_CONFIG, or write {}. 'keyraft client config' prints the lines",
            names.join(" or ")
        )
    })
}

pub(crate) fn parse(text: &str) -> Result<Config, String> {
    let file: File = toml::from_str(text).map_err(|e| e.to_string())?;
    if file.group.is_empty() || file.group.len() > GROUPS_MAX {
        return Err(format!("group: name 1 to {GROUPS_MAX} groups, each as a [[group]] with its sockets"));
    }
    let mut groups: Vec<GroupConfig> = Vec::new();
    for (index, table) in file.group.into_iter().enumerate() {
        if table.sockets.is_empty() || table.sockets.len() > SOCKETS_MAX {
            return Err(format!("group.sockets: name 1 to {SOCKETS_MAX} sockets of members"));
        }
        if let Some(relative) = table.sockets.iter().find(|path| !path.is_absolute()) {
            return Err(format!("group.sockets: {} is no absolute path", relative.display()));
        }
        let timeout_ms = table.timeout_ms.unwrap_or(20_000);
        if !TIMEOUT_MS.contains(&timeout_ms) {
            let (least, most) = TIMEOUT_MS.into_inner();
            return Err(format!("group.timeout_ms: {timeout_ms} is not within {least} to {most}"));
        }
        let slot = table.slot.unwrap_or(index as u64);
        if groups.iter().any(|group| group.slot == slot) {
            return Err(format!("group.slot: {slot} is used twice"));
        }
        groups.push(GroupConfig { sockets: table.sockets, slot, timeout: Duration::from_millis(timeout_ms) });
    }
    Ok(Config { groups })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_groups_with_their_defaults() {
        let config =
            parse("[[group]]\nsockets = ['/run/a', '/run/b']\n[[group]]\nsockets = ['/run/c']\nslot = 7")
                .expect("good");
        assert_eq!(config.groups.iter().map(|group| group.slot).collect::<Vec<_>>(), [0, 7]);
        assert_eq!(config.groups[0].timeout, Duration::from_secs(20));
    }

    #[test]
    fn says_which_key_is_wrong() {
        let group = |keys: &str| format!("[[group]]\nsockets = ['/run/a']\n{keys}\n");
        for (text, key) in [
            (String::new(), "group"),
            ("[[group]]\nsockets = []".into(), "group.sockets"),
            ("[[group]]\nsockets = ['a']".into(), "group.sockets"),
            (group("timeout_ms = 1"), "group.timeout_ms"),
            (group("colour = 1"), "colour"),
            (format!("{}{}", group("slot = 3"), group("slot = 3")), "group.slot"),
        ] {
            let error = parse(&text).expect_err(&text);
            assert!(error.contains(key), "{error}");
        }
    }
}
