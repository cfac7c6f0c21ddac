//! Tickets: what a login yields. Members alone make them, each member checks them with what it has, nothing is
//! stored: so a login outlives the member that took it.

use crate::clock::UnixMillis;
use crate::codec;
use crate::domain::{ClientId, ClientName, RequestId, Role};
use crate::envelope::{EnvelopeKey, EnvelopeKeys};
use crate::limits::TICKET_LIFE;
use crate::state::{AttemptTag, Pins};
use crate::wire::{SecretBytes, Ticket};
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

const TICKET_INFO: &[u8] = b"keyraft ticket";
const ATTEMPT_INFO: &[u8] = b"keyraft pin attempt";
const PARAMETERS_INFO: &[u8] = b"keyraft request parameters";

/// Why a ticket is not good. The application must log in again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    /// No member of this group made it, or it was changed since.
    #[error("the login's ticket was not made by a member of this group: log in again")]
    Forged,
    /// Another client has it.
    #[error("the login's ticket belongs to another client: log in again")]
    OtherClient,
    /// Its life is over.
    #[error("the login is {} hours old and over: log in again", TICKET_LIFE.as_secs() / 3600)]
    Expired,
    /// The PIN was changed since.
    #[error("the PIN was changed since this login: log in with the new one")]
    OldPin,
    /// There is no envelope key, or the ticket cannot be written.
    #[error("this member has no envelope key to make tickets with: see its log")]
    NoKey,
}

/// Makes a ticket that is good from `now` for [`TICKET_LIFE`].
pub fn make(
    keys: &EnvelopeKeys,
    client: ClientId,
    who: &ClientName,
    role: Role,
    pin_version: u32,
    now: UnixMillis,
) -> Result<Ticket, TicketError> {
    let life = u64::try_from(TICKET_LIFE.as_millis()).unwrap_or(u64::MAX);
    let expires = UnixMillis(now.0.saturating_add(life));
    let mut ticket = Ticket { client, who: who.clone(), role, pin_version, expires, mac: [0; 32] };
    let (_, key) = keys.current().ok_or(TicketError::NoKey)?;
    ticket.mac = mac(key, &ticket)?.finalize().into_bytes().into();
    Ok(ticket)
}

/// True if it is a member's, this client's and still alive, whatever has become of the PIN.
pub fn check_made(
    keys: &EnvelopeKeys,
    ticket: &Ticket,
    who: &ClientName,
    now: UnixMillis,
) -> Result<(), TicketError> {
    // A ticket outlives the change to a new generation: every key that lives may have made it.
    let mut made = false;
    for (_, key) in keys.iter() {
        made |= mac(key, ticket)?.verify_slice(&ticket.mac).is_ok();
    }
    if !made {
        return Err(TicketError::Forged);
    }
    if ticket.who != *who {
        return Err(TicketError::OtherClient);
    }
    if ticket.expires <= now { Err(TicketError::Expired) } else { Ok(()) }
}

/// [`check_made`], and the PIN is the one that it was got by. A member that is behind may know an older version than
/// the ticket's: the ticket is good there too.
pub fn check(
    keys: &EnvelopeKeys,
    pins: &Pins,
    ticket: &Ticket,
    who: &ClientName,
    now: UnixMillis,
) -> Result<Role, TicketError> {
    check_made(keys, ticket, who, now)?;
    let pin = pins.pin(ticket.role);
    let current =
        ticket.pin_version > pin.version || (ticket.pin_version == pin.version && pin.hash.is_some());
    if current { Ok(ticket.role) } else { Err(TicketError::OldPin) }
}

/// Tells the PIN of an attempt from others under the same attempt.
pub fn attempt_tag(
    keys: &EnvelopeKeys,
    attempt: RequestId,
    pin: &SecretBytes,
) -> Result<AttemptTag, TicketError> {
    let (_, key) = keys.current().ok_or(TicketError::NoKey)?;
    let mut mac = keyed(key, ATTEMPT_INFO);
    mac.update(&attempt.client.born.0.to_be_bytes());
    mac.update(&attempt.client.nonce.to_be_bytes());
    mac.update(&attempt.sequence.to_be_bytes());
    mac.update(&pin.0);
    let whole: [u8; 32] = mac.finalize().into_bytes().into();
    let mut tag = AttemptTag::default();
    tag.copy_from_slice(&whole[..16]);
    Ok(tag)
}

/// Tells a request's parameters from others under the same id, and tells nobody else anything of them: they may hold a
/// short secret, and lie in the log. The oldest key is the one that a repeat will find too.
pub fn parameters_tag(keys: &EnvelopeKeys, parameters: &[u8]) -> Result<[u8; 16], TicketError> {
    let (_, key) = keys.iter().next().ok_or(TicketError::NoKey)?;
    let mut mac = keyed(key, PARAMETERS_INFO);
    mac.update(parameters);
    let whole: [u8; 32] = mac.finalize().into_bytes().into();
    let mut tag = [0; 16];
    tag.copy_from_slice(&whole[..16]);
    Ok(tag)
}

fn mac(key: &EnvelopeKey, ticket: &Ticket) -> Result<Hmac<Sha256>, TicketError> {
    let fields = (ticket.client, &ticket.who, ticket.role, ticket.pin_version, ticket.expires);
    let bytes = codec::encode(&fields).map_err(|_| TicketError::NoKey)?;
    let mut mac = keyed(key, TICKET_INFO);
    mac.update(&bytes);
    Ok(mac)
}

fn keyed(key: &EnvelopeKey, info: &[u8]) -> Hmac<Sha256> {
    let mut derived = Zeroizing::new([0; 32]);
    Hkdf::<Sha256>::new(None, key.expose())
        .expand(info, derived.as_mut_slice())
        .expect("HKDF-SHA256 gives up to 8,160 bytes");
    Hmac::new_from_slice(derived.as_slice()).expect("HMAC takes keys of every length")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Generation, LogIndex};
    use crate::state::State;

    const NOW: UnixMillis = UnixMillis(1_000);

    fn keys(byte: u8, generation: u32) -> EnvelopeKeys {
        let mut keys = EnvelopeKeys::default();
        keys.insert(Generation(generation), EnvelopeKey::from_bytes([byte; 32]));
        keys
    }

    fn who() -> ClientName {
        ClientName("uid:5".into())
    }

    fn ticket(keys: &EnvelopeKeys, version: u32) -> Ticket {
        let client = ClientId { born: LogIndex(3), nonce: 4 };
        make(keys, client, &who(), Role::User, version, NOW).expect("is made")
    }

    #[test]
    fn only_what_a_member_made_is_good() {
        let keys = keys(1, 1);
        let good = ticket(&keys, 1);
        assert_eq!(check_made(&keys, &good, &who(), NOW), Ok(()));
        let changes: [fn(&mut Ticket); 6] = [
            |t| t.client.nonce += 1,
            |t| t.who = ClientName("uid:0".into()),
            |t| t.role = Role::SecurityOfficer,
            |t| t.pin_version += 1,
            |t| t.expires.0 += 1,
            |t| t.mac[31] ^= 1,
        ];
        for change in changes {
            let mut bad = good.clone();
            change(&mut bad);
            let who = bad.who.clone();
            assert_eq!(check_made(&keys, &bad, &who, NOW), Err(TicketError::Forged));
        }
    }

    #[test]
    fn another_group_another_client_another_day() {
        let own = keys(1, 1);
        let good = ticket(&own, 1);
        assert_eq!(check_made(&keys(2, 1), &good, &who(), NOW), Err(TicketError::Forged));
        let other = ClientName("uid:6".into());
        assert_eq!(check_made(&own, &good, &other, NOW), Err(TicketError::OtherClient));
        assert_eq!(check_made(&own, &good, &who(), UnixMillis(good.expires.0 - 1)), Ok(()));
        assert_eq!(check_made(&own, &good, &who(), good.expires), Err(TicketError::Expired));
    }

    #[test]
    fn a_ticket_outlives_a_new_generation_and_not_a_new_pin() {
        let mut keys = keys(1, 1);
        let good = ticket(&keys, 1);
        keys.insert(Generation(2), EnvelopeKey::from_bytes([2; 32]));
        assert_eq!(check_made(&keys, &good, &who(), NOW), Ok(()));
        let state = State::default();
        // No PIN is set here: a version 0 was never given out; a later one is news that this member lacks.
        let none = ticket(&keys, 0);
        assert_eq!(check(&keys, state.pins(), &none, &who(), NOW), Err(TicketError::OldPin));
        assert_eq!(check(&keys, state.pins(), &good, &who(), NOW), Ok(Role::User));
    }

    #[test]
    fn tags_tell_pins_and_attempts_apart() {
        let keys = keys(1, 1);
        let pin = |text: &str| SecretBytes(Zeroizing::new(text.as_bytes().to_vec()));
        let attempt = |n| RequestId { client: ClientId { born: LogIndex(1), nonce: 1 }, sequence: n };
        let tag = |n, text| attempt_tag(&keys, attempt(n), &pin(text)).expect("a tag");
        assert_eq!(tag(1, "1234"), tag(1, "1234"));
        assert_ne!(tag(1, "1234"), tag(1, "1235"));
        assert_ne!(tag(1, "1234"), tag(2, "1234"));
    }
}
