//! The virtual token's PINs as the group agreed on them, and who tried wrong ones. A try is counted before anybody
//! looks at it, so that no crash and no change of the primary forgets one; each client has its own count, so that
//! nobody's guesses lock out somebody else.

use super::apply::{Applied, malformed};
use super::{Effects, Outcome, Rejection};
use crate::domain::{ClientName, LogIndex, RequestId, Role};
use crate::limits::{PIN_CLIENTS_MAX, PIN_TRIES_MAX, TEXT_MAX_BYTES};
use imbl::OrdMap;
use serde::{Deserialize, Serialize};
use std::fmt;

/// An argon2id hash of a PIN (PHC string). Never printed: whoever has it can try PINs without being counted.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinHash(pub String);

impl fmt::Debug for PinHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PinHash(..)")
    }
}

/// Tells the PINs of two tries under one attempt apart. A MAC under a key that members alone know: the log gives
/// nothing to guess with.
pub type AttemptTag = [u8; 16];

/// A role's PIN.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// Its hash; None if it is not set.
    pub hash: Option<PinHash>,
    /// Counts up with every change. Logins under an older one are over.
    pub version: u32,
    /// The application's request that set it.
    pub by: Option<RequestId>,
}

/// Wrong tries of one client since its last right one: at most [`PIN_TRIES_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Tries {
    attempts: Vec<(RequestId, AttemptTag)>,
    last: LogIndex,
}

impl Tries {
    fn count(&self) -> u32 {
        u32::try_from(self.attempts.len()).unwrap_or(u32::MAX)
    }

    fn is_locked(&self) -> bool {
        self.count() >= PIN_TRIES_MAX
    }
}

/// The PINs and the counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pins {
    user: Pin,
    security_officer: Pin,
    /// Only clients that have wrong tries.
    #[serde(deserialize_with = "super::shared::map")]
    tries: OrdMap<(ClientName, Role), Tries>,
}

impl Pins {
    /// A role's PIN.
    pub fn pin(&self, role: Role) -> &Pin {
        match role {
            Role::User => &self.user,
            Role::SecurityOfficer => &self.security_officer,
        }
    }

    /// Wrong tries of a client since its last right one.
    pub fn tries(&self, who: &ClientName, role: Role) -> u32 {
        self.tries.get(&(who.clone(), role)).map_or(0, Tries::count)
    }

    pub(super) fn set(
        &mut self,
        role: Role,
        hash: Option<PinHash>,
        follows: u32,
        by: Option<RequestId>,
    ) -> Applied {
        if hash.as_ref().is_some_and(|hash| hash.0.is_empty() || hash.0.len() > TEXT_MAX_BYTES) {
            return Err(malformed("the PIN's hash is empty or too long"));
        }
        let pin = match role {
            Role::User => &mut self.user,
            Role::SecurityOfficer => &mut self.security_officer,
        };
        let next = pin.version.checked_add(1).filter(|_| pin.version == follows);
        let version = next.ok_or(Rejection::PinChanged(role))?;
        *pin = Pin { hash, version, by };
        let others = self.tries.iter().filter(|((_, of), _)| *of != role);
        self.tries = others.map(|(key, row)| (key.clone(), row.clone())).collect();
        Ok(Effects::default())
    }

    pub(super) fn charge(
        &mut self,
        index: LogIndex,
        who: ClientName,
        role: Role,
        attempt: RequestId,
        tag: AttemptTag,
    ) -> Applied {
        if who.0.is_empty() || who.0.len() > TEXT_MAX_BYTES {
            return Err(malformed("the client's name is empty or too long"));
        }
        if self.pin(role).hash.is_none() {
            return Err(Rejection::PinNotSet(role));
        }
        let key = (who, role);
        if !self.tries.contains_key(&key) {
            self.make_room()?;
        }
        let row = self.tries.entry(key).or_default();
        match row.attempts.iter().find(|(charged, _)| *charged == attempt) {
            Some((_, charged)) if *charged != tag => return Err(Rejection::ParametersDiffer),
            Some(_) => {}
            None if row.is_locked() => return Err(Rejection::PinLocked),
            None => row.attempts.push((attempt, tag)),
        }
        row.last = index;
        Ok(Effects { outcome: Outcome::Charged(row.count()), ..Effects::default() })
    }

    pub(super) fn clear(&mut self, who: ClientName, role: Role) -> Effects {
        self.tries.remove(&(who, role));
        Effects::default()
    }

    /// Locked clients stay: a crowd of names must not unlock one.
    fn make_room(&mut self) -> Result<(), Rejection> {
        if self.tries.len() < PIN_CLIENTS_MAX {
            return Ok(());
        }
        let open = self.tries.iter().filter(|(_, row)| !row.is_locked());
        let idle = open.min_by_key(|(_, row)| row.last).map(|(key, _)| key.clone());
        self.tries.remove(&idle.ok_or(Rejection::TooManyRequests)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ClientId;

    fn attempt(n: u64) -> RequestId {
        RequestId { client: ClientId { born: LogIndex(1), nonce: 7 }, sequence: n }
    }

    fn who(name: &str) -> ClientName {
        ClientName(name.into())
    }

    fn with_pins() -> Pins {
        let mut pins = Pins::default();
        for role in [Role::User, Role::SecurityOfficer] {
            pins.set(role, Some(PinHash("h".into())), 0, None).expect("is set");
        }
        pins
    }

    fn charge(pins: &mut Pins, name: &str, n: u64) -> Result<Outcome, Rejection> {
        let charged = pins.charge(LogIndex(n), who(name), Role::User, attempt(n), [0; 16]);
        charged.map(|effects| effects.outcome)
    }

    #[test]
    fn a_client_locks_itself_out_and_nobody_else() {
        let mut pins = with_pins();
        for n in 1..=u64::from(PIN_TRIES_MAX) {
            assert_eq!(charge(&mut pins, "uid:1", n), Ok(Outcome::Charged(n as u32)));
        }
        assert_eq!(charge(&mut pins, "uid:1", 99), Err(Rejection::PinLocked));
        // The last attempt, repeated, is still the same try.
        assert_eq!(charge(&mut pins, "uid:1", 10), Ok(Outcome::Charged(10)));
        assert_eq!(charge(&mut pins, "uid:2", 1), Ok(Outcome::Charged(1)));
        assert_eq!(pins.tries(&who("uid:1"), Role::SecurityOfficer), 0);
        pins.set(Role::User, Some(PinHash("new".into())), 1, None).expect("is set");
        assert_eq!(charge(&mut pins, "uid:1", 100), Ok(Outcome::Charged(1)));
    }

    #[test]
    fn one_attempt_tries_one_pin() {
        let mut pins = with_pins();
        assert_eq!(charge(&mut pins, "uid:1", 1), Ok(Outcome::Charged(1)));
        let other = pins.charge(LogIndex(2), who("uid:1"), Role::User, attempt(1), [1; 16]);
        assert_eq!(other, Err(Rejection::ParametersDiffer));
        assert_eq!(pins.tries(&who("uid:1"), Role::User), 1);
    }

    #[test]
    fn a_change_must_follow_what_it_saw() {
        let mut pins = with_pins();
        let late = pins.set(Role::User, Some(PinHash("late".into())), 0, None);
        assert_eq!(late, Err(Rejection::PinChanged(Role::User)));
        assert_eq!(pins.pin(Role::User).version, 1);
        pins.set(Role::User, None, 1, None).expect("is taken away");
        assert_eq!(charge(&mut pins, "uid:1", 1), Err(Rejection::PinNotSet(Role::User)));
        assert_eq!(pins.pin(Role::User).version, 2, "tickets of the old PIN must not come back");
    }

    #[test]
    fn a_crowd_of_names_unlocks_nobody() {
        let mut pins = with_pins();
        for n in 1..=u64::from(PIN_TRIES_MAX) {
            charge(&mut pins, "locked", n).expect("is charged");
        }
        for n in 0..PIN_CLIENTS_MAX as u64 + 10 {
            charge(&mut pins, &format!("uid:{n}"), 100 + n).expect("is charged");
        }
        assert_eq!(pins.tries.len(), PIN_CLIENTS_MAX);
        assert_eq!(pins.tries(&who("locked"), Role::User), PIN_TRIES_MAX);
        assert_eq!(pins.tries(&who("uid:0"), Role::User), 0, "the longest idle went");
    }
}
