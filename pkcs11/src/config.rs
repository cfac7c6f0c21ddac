//! client.toml: which groups an application sees.

use keyraft_engine::balance::Ranking;
use keyraft_engine::client::Credentials;
use keyraft_engine::limits;
use rustix::process::{getegid, geteuid, getgid, getuid};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use zeroize::Zeroizing;

/// The whole file.
#[derive(Debug)]
pub(crate) struct Config {
    /// One slot each.
    pub groups: Vec<GroupConfig>,
    /// Behind those, one slot for each member of the groups with `ha_only = false`.
    pub members: Vec<MemberConfig>,
}

/// One member's own slot.
#[derive(Clone, Debug)]
pub(crate) struct MemberConfig {
    /// Where it answers, for people.
    pub place: String,
    /// The group, as if this were its only member; `slot` is the member's.
    pub only: GroupConfig,
}

/// One group.
#[derive(Clone, Debug)]
pub(crate) struct GroupConfig {
    /// The Unix sockets of its members on this machine.
    pub sockets: Vec<PathBuf>,
    /// The members that it reaches by a certificate, asked after those.
    pub remote: Option<Remote>,
    /// Its slot's number.
    pub slot: u64,
    /// The longest that a call takes before it fails.
    pub timeout: Duration,
    /// How its members are ranked.
    pub ranking: Ranking,
    /// The weights of members, by socket or `host:port`; the others have 1.
    pub weights: BTreeMap<String, u32>,
    /// The most data of one call that is sent again when a member is lost under it, bytes.
    pub replay_bytes_max: usize,
    /// Its members show no slots of their own.
    pub ha_only: bool,
}

impl GroupConfig {
    /// Each member alone, by its place.
    fn alone(&self) -> impl Iterator<Item = (String, Self)> {
        let sockets = self.sockets.iter().map(|socket| {
            let only = Self { sockets: vec![socket.clone()], remote: None, ..self.clone() };
            (socket.display().to_string(), only)
        });
        let remote = self.remote.iter().flat_map(|remote| remote.members.iter().map(move |at| (at, remote)));
        let remote = remote.map(|(at, remote)| {
            let remote = Remote { members: vec![at.clone()], credentials: remote.credentials.clone() };
            (at.clone(), Self { sockets: Vec::new(), remote: Some(remote), ..self.clone() })
        });
        sockets.chain(remote)
    }

    /// Each member's name in the file, in the order in which they are known.
    fn names(&self) -> impl Iterator<Item = String> {
        let sockets = self.sockets.iter().map(|path| path.display().to_string());
        sockets.chain(self.remote.iter().flat_map(|remote| remote.members.iter().cloned()))
    }

    /// Each member's weight, in the same order.
    pub fn weights(&self) -> Vec<u32> {
        self.names().map(|name| self.weights.get(&name).copied().unwrap_or(1)).collect()
    }
}

/// Members on other machines.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    /// `host:port` of each.
    pub members: Vec<String>,
    /// What the application proves itself with.
    pub credentials: Credentials,
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
    #[serde(default)]
    sockets: Vec<PathBuf>,
    #[serde(default)]
    members: Vec<String>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    authority: Option<PathBuf>,
    slot: Option<u64>,
    timeout_ms: Option<u64>,
    ranking: Option<String>,
    #[serde(default)]
    weights: BTreeMap<String, u32>,
    replay_bytes_max: Option<usize>,
    ha_only: Option<bool>,
}

/// Groups that one file may name.
const GROUPS_MAX: usize = 32;
/// Sockets of one group, and members elsewhere.
const MEMBERS_MAX: usize = limits::MEMBERS_MAX;
/// timeout_ms, least and most.
const TIMEOUT_MS: std::ops::RangeInclusive<u64> = 100..=600_000;
/// A file longer than this is none of ours, bytes.
const FILE_MAX_BYTES: u64 = 1024 * 1024;

/// Reads the file that KEYRAFT_CONFIG names, else the user's, else the system's. The text of an error says which file,
/// which key, and what to do.
pub(crate) fn load() -> Result<Config, String> {
    let path = find()?;
    let told = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let text = String::from_utf8(read(&path)?.to_vec()).map_err(|e| told(&e))?;
    // A bare name has the working folder's.
    parse(&text, path.parent().unwrap_or(Path::new(""))).map_err(|e| told(&e))
}

/// A file of ours; it may be a key.
fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let told = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let size = std::fs::metadata(path).map_err(|e| told(&e))?.len();
    if size > FILE_MAX_BYTES {
        return Err(told(&format!("{size} bytes are too many")));
    }
    std::fs::read(path).map(Zeroizing::new).map_err(|e| told(&e))
}

fn find() -> Result<PathBuf, String> {
    // A program that runs with more rights than its caller has takes nothing from the caller's environment.
    let lent = getuid() != geteuid() || getgid() != getegid();
    let variable = |name: &str| std::env::var_os(name).filter(|_| !lent);
    if let Some(named) = variable("KEYRAFT_CONFIG") {
        return Ok(named.into());
    }
    let home = || Some(PathBuf::from(variable("HOME")?).join(".config"));
    let user = variable("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
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

pub(crate) fn parse(text: &str, folder: &Path) -> Result<Config, String> {
    let file: File = toml::from_str(text).map_err(|e| e.to_string())?;
    if file.group.is_empty() || file.group.len() > GROUPS_MAX {
        return Err(format!(
            "group: name 1 to {GROUPS_MAX} groups, each as a [[group]] with its sockets or members"
        ));
    }
    let mut groups: Vec<GroupConfig> = Vec::new();
    for (index, table) in file.group.into_iter().enumerate() {
        let count = table.sockets.len() + table.members.len();
        if count == 0 || count > MEMBERS_MAX {
            return Err(format!(
                "group.sockets, group.members: name 1 to {MEMBERS_MAX} members, by their sockets on this machine or as \
                 host:port"
            ));
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
        let remote = remote(&table, folder)?;
        let timeout = Duration::from_millis(timeout_ms);
        let ranking = ranking(table.ranking.as_deref())?;
        let replay_bytes_max = replay_bytes_max(table.replay_bytes_max)?;
        let ha_only = table.ha_only.unwrap_or(true);
        let (sockets, weights) = (table.sockets, table.weights);
        let group =
            GroupConfig { sockets, remote, slot, timeout, ranking, weights, replay_bytes_max, ha_only };
        check_weights(&group)?;
        groups.push(group);
    }
    let members = own_slots(&groups)?;
    Ok(Config { groups, members })
}

/// The slots of single members: numbered behind the groups', in the order of the file.
fn own_slots(groups: &[GroupConfig]) -> Result<Vec<MemberConfig>, String> {
    let last = groups.iter().map(|group| group.slot).max().unwrap_or(0);
    let shown = groups.iter().filter(|group| !group.ha_only).flat_map(GroupConfig::alone);
    let numbered = shown.zip(1..).map(|((place, only), behind)| {
        let slot =
            last.checked_add(behind).ok_or("group.slot: no numbers are left for the members' own slots")?;
        Ok(MemberConfig { place, only: GroupConfig { slot, ..only } })
    });
    numbered.collect()
}

fn ranking(name: Option<&str>) -> Result<Ranking, String> {
    let Some(name) = name else { return Ok(Ranking::default()) };
    let known = Ranking::NAMES.into_iter().find(|(known, _)| *known == name);
    known.map(|(_, ranking)| ranking).ok_or_else(|| {
        let names = Ranking::NAMES.map(|(known, _)| known).join(", ");
        format!("group.ranking: '{name}' is none of {names}")
    })
}

fn replay_bytes_max(bytes: Option<usize>) -> Result<usize, String> {
    // A call never carries more.
    let most = limits::OPERATION_DATA_MAX_BYTES;
    match bytes.unwrap_or(most) {
        bytes if bytes <= most => Ok(bytes),
        bytes => Err(format!("group.replay_bytes_max: {bytes} is not within 0 to {most}")),
    }
}

fn check_weights(group: &GroupConfig) -> Result<(), String> {
    let names: Vec<String> = group.names().collect();
    for (name, weight) in &group.weights {
        if !names.contains(name) {
            return Err(format!("group.weights: '{name}' is none of the group's sockets and members"));
        }
        if *weight > limits::WEIGHT_MAX {
            let max = limits::WEIGHT_MAX;
            return Err(format!("group.weights: {weight} of '{name}' is not within 0 to {max}"));
        }
    }
    if group.weights().iter().all(|weight| *weight == 0) {
        return Err("group.weights: give at least one member a weight above 0".into());
    }
    Ok(())
}

fn remote(table: &GroupTable, folder: &Path) -> Result<Option<Remote>, String> {
    let is_place = |text: &str| {
        text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
    };
    if let Some(wrong) = table.members.iter().find(|place| !is_place(place)) {
        return Err(format!("group.members: '{wrong}' is no host:port"));
    }
    if table.members.is_empty() {
        return match (&table.certificate, &table.key, &table.authority) {
            (None, None, None) => Ok(None),
            _ => Err("group.members: name the members that certificate, key and authority are for".into()),
        };
    }
    let file = |key: &str, path: &Option<PathBuf>| {
        let missing =
            || format!("group.{key}: members need it; 'keyraft client add' makes all that is needed");
        path.as_ref().map(|path| folder.join(path)).ok_or_else(missing)
    };
    let told = |key: &str, why: String| format!("group.{key}: {why}");
    let key = file("key", &table.key)?;
    check_private(&key).map_err(|e| told("key", e))?;
    let key = read(&key).map_err(|e| told("key", e))?;
    let certificate = read(&file("certificate", &table.certificate)?).map_err(|e| told("certificate", e))?;
    let authority = read(&file("authority", &table.authority)?).map_err(|e| told("authority", e))?;
    let credentials =
        Credentials::from_pem(&certificate, &key, &authority).map_err(|e| told("certificate", e))?;
    Ok(Some(Remote { members: table.members.clone(), credentials }))
}

/// Whoever can read the key is this application.
fn check_private(path: &Path) -> Result<(), String> {
    let told = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let mode = std::fs::metadata(path).map_err(|e| told(&e))?.permissions().mode();
    if mode & 0o007 == 0 {
        return Ok(());
    }
    Err(told(&format!("every user may use it (mode {:o}): chmod o-rwx it", mode & 0o777)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Config, String> {
        parse(text, Path::new("/nonexistent"))
    }

    #[test]
    fn reads_groups_with_their_defaults() {
        let config =
            read_text("[[group]]\nsockets = ['/run/a', '/run/b']\n[[group]]\nsockets = ['/run/c']\nslot = 7")
                .expect("good");
        assert_eq!(config.groups.iter().map(|group| group.slot).collect::<Vec<_>>(), [0, 7]);
        assert_eq!(config.groups[0].timeout, Duration::from_secs(20));
        assert_eq!(config.groups[0].ranking, Ranking::LeastBusy);
        assert_eq!(config.groups[0].replay_bytes_max, limits::OPERATION_DATA_MAX_BYTES);
    }

    #[test]
    fn reads_rankings_and_weights() {
        for (name, ranking) in Ranking::NAMES {
            let text = format!(
                "[[group]]\nsockets = ['/run/a', '/run/b']\nranking = '{name}'\nweights = {{ '/run/b' = 3 }}"
            );
            let config = read_text(&text).expect("good");
            assert_eq!((config.groups[0].ranking, config.groups[0].weights()), (ranking, vec![1, 3]));
        }
    }

    #[test]
    fn members_have_slots_of_their_own_behind_the_groups() {
        let config = read_text(
            "[[group]]\nsockets = ['/run/a', '/run/b']\nha_only = false\n[[group]]\nsockets = ['/run/c']\nslot = 7\n\
             [[group]]\nsockets = ['/run/d']\nha_only = false",
        )
        .expect("good");
        let slots: Vec<_> = config.members.iter().map(|own| (own.only.slot, own.place.as_str())).collect();
        assert_eq!(slots, [(8, "/run/a"), (9, "/run/b"), (10, "/run/d")]);
        assert_eq!(config.members[1].only.sockets, [PathBuf::from("/run/b")]);
        let hidden = read_text("[[group]]\nsockets = ['/run/a']").expect("good");
        assert!(hidden.members.is_empty());
        let full = format!("[[group]]\nsockets = ['/run/a']\nha_only = false\nslot = {}", i64::MAX);
        assert_eq!(read_text(&full).map(|config| config.members[0].only.slot), Ok(1 << 63));
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
            (group("ranking = 'best'"), "group.ranking"),
            (group("replay_bytes_max = 9999999"), "group.replay_bytes_max"),
            (group("weights = { '/run/b' = 1 }"), "group.weights"),
            (group("weights = { '/run/a' = 1001 }"), "group.weights"),
            (group("weights = { '/run/a' = 0 }"), "group.weights"),
            ("[[group]]".into(), "group.members"),
            (group("members = ['nowhere']"), "group.members"),
            (group("members = ['a:99999']"), "group.members"),
            (group("key = 'key.pem'"), "group.members"),
            (group("members = ['a:1']"), "group.key"),
            (group("members = ['a:1']\nkey = 'key.pem'"), "/nonexistent/key.pem"),
            (format!("{}{}", group("slot = 3"), group("slot = 3")), "group.slot"),
        ] {
            let error = read_text(&text).expect_err(&text);
            assert!(error.contains(key), "{error}");
        }
    }

    #[test]
    fn a_key_that_everybody_may_read_is_refused() {
        let folder = std::env::temp_dir().join(format!("keyraft-config-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("makes a folder");
        let key = folder.join("key.pem");
        let set = |mode| {
            std::fs::write(&key, "no key").expect("writes");
            std::fs::set_permissions(&key, PermissionsExt::from_mode(mode)).expect("sets the mode");
        };
        set(0o640);
        assert_eq!(check_private(&key), Ok(()));
        set(0o604);
        let error = check_private(&key).expect_err("is refused");
        std::fs::remove_dir_all(&folder).expect("is removed");
        assert!(error.contains("604") && error.contains("chmod"), "{error}");
    }
}
