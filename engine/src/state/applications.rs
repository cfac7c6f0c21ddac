//! The applications that may prove themselves by a certificate, each by the key that its certificate bears. Who is not
//! listed is refused, whatever certificate it has.

use super::apply::Applied;
use super::{Effects, Rejection, shared};
use crate::domain::{ApplicationName, Fingerprint};
use crate::limits::APPLICATIONS_MAX;
use imbl::OrdMap;
use serde::{Deserialize, Serialize};

/// The list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applications(#[serde(deserialize_with = "shared::map")] OrdMap<ApplicationName, Fingerprint>);

impl Applications {
    /// True if the application is listed with this TLS key.
    pub fn has(&self, name: &ApplicationName, tls: Fingerprint) -> bool {
        self.0.get(name) == Some(&tls)
    }

    /// Every application with its TLS key, by name.
    pub fn all(&self) -> impl Iterator<Item = (&ApplicationName, Fingerprint)> {
        self.0.iter().map(|(name, tls)| (name, *tls))
    }

    /// Lists an application. The same again is no error: its answer may have been lost.
    pub(super) fn add(&mut self, name: ApplicationName, tls: Fingerprint) -> Applied {
        if self.has(&name, tls) {
            return Ok(Effects::default());
        }
        if self.0.contains_key(&name) {
            return Err(Rejection::ClientExists(name));
        }
        if let Some((other, _)) = self.all().find(|(_, listed)| *listed == tls) {
            return Err(Rejection::ClientExists(other.clone()));
        }
        if self.0.len() >= APPLICATIONS_MAX {
            return Err(Rejection::TooManyClients);
        }
        self.0.insert(name, tls);
        Ok(Effects::default())
    }

    pub(super) fn remove(&mut self, name: ApplicationName) -> Applied {
        match self.0.remove(&name) {
            Some(_) => Ok(Effects::default()),
            None => Err(Rejection::NoSuchClient(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ApplicationName {
        text.parse().expect("a name")
    }

    #[test]
    fn a_name_has_one_key_and_a_key_one_name() {
        let (one, two) = (Fingerprint([1; 32]), Fingerprint([2; 32]));
        let mut listed = Applications::default();
        for _ in 0..2 {
            assert_eq!(listed.add(name("web"), one), Ok(Effects::default()));
        }
        assert!(listed.has(&name("web"), one));
        assert!(!listed.has(&name("web"), two) && !listed.has(&name("db"), one));
        assert_eq!(listed.add(name("web"), two), Err(Rejection::ClientExists(name("web"))));
        assert_eq!(listed.add(name("db"), one), Err(Rejection::ClientExists(name("web"))));
        assert_eq!(listed.remove(name("web")), Ok(Effects::default()));
        assert!(!listed.has(&name("web"), one));
        assert_eq!(listed.remove(name("web")), Err(Rejection::NoSuchClient(name("web"))));
        assert_eq!(listed.add(name("web"), two), Ok(Effects::default()));
    }

    #[test]
    fn the_list_is_bounded() {
        let mut listed = Applications::default();
        let key = |number: usize| {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&number.to_be_bytes());
            Fingerprint(bytes)
        };
        for number in 0..APPLICATIONS_MAX {
            listed.add(name(&format!("a{number}")), key(number)).expect("has room");
        }
        assert_eq!(listed.add(name("more"), key(APPLICATIONS_MAX)), Err(Rejection::TooManyClients));
        assert_eq!(listed.add(name("a0"), key(0)), Ok(Effects::default()), "known already");
    }
}
