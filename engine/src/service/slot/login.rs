//! Logins: every try is counted in the log before anybody looks at it. A member without a quorum answers a few by
//! itself, so that applications of a cut-off site go on.

use super::super::change::{rejection_failure, unexpected};
use super::super::{Core, consensus_failure};
use crate::aside;
use crate::domain::{ClientId, ClientName, RequestId, Role};
use crate::limits;
use crate::state::{Command, IsolatedService, Outcome, Pin, PinHash, Rejection};
use crate::telemetry::Event;
use crate::virtual_slot::pin;
use crate::virtual_slot::ticket::{self, TicketError};
use crate::wire::{
    Answer, ClientRequest, Failure, FailureKind, PinState, SecretBytes, SlotAnswer, SlotCall, SlotReply,
    SlotRequest, Ticket,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tracing::warn;

const PIN_INCORRECT: u64 = 0xA0;
const PIN_LOCKED: u64 = 0xA4;
const USER_NOT_LOGGED_IN: u64 = 0x101;

type Client = (ClientName, Role);

/// What a member keeps of logins under way.
pub struct Logins {
    /// A client's tries are looked at one after another: right ones at the same time must not lock it out.
    lines: Mutex<BTreeMap<Client, Arc<tokio::sync::Mutex<()>>>>,
    /// Hashing takes memory.
    hashing: Semaphore,
    /// Wrong tries that this member answered without a quorum, until the client's right one.
    isolated: Mutex<BTreeMap<Client, u32>>,
}

impl Default for Logins {
    fn default() -> Self {
        Self {
            lines: Mutex::default(),
            hashing: Semaphore::new(limits::PIN_HASHES_MAX),
            isolated: Mutex::default(),
        }
    }
}

impl Logins {
    fn line(&self, client: &Client) -> Arc<tokio::sync::Mutex<()>> {
        let mut lines = self.lines.lock();
        lines.retain(|_, line| Arc::strong_count(line) > 1);
        lines.entry(client.clone()).or_default().clone()
    }

    /// Counts a try without a quorum; None if the client has had all of `budget`.
    fn charge(&self, client: &Client, budget: u32) -> Option<u32> {
        let mut isolated = self.isolated.lock();
        if isolated.len() >= limits::PIN_CLIENTS_MAX && !isolated.contains_key(client) {
            return None;
        }
        let tries = isolated.entry(client.clone()).or_default();
        *tries = tries.checked_add(1).filter(|tries| *tries <= budget)?;
        Some(*tries)
    }

    fn clear(&self, client: &Client) {
        self.isolated.lock().remove(client);
    }
}

/// How long the answer to a wrong try waits.
fn delay(tries: u32) -> Duration {
    let doubled = 1u32.checked_shl(tries.saturating_sub(1)).unwrap_or(u32::MAX);
    limits::PIN_DELAY_MIN.saturating_mul(doubled).min(limits::PIN_DELAY_MAX)
}

fn wrong() -> Failure {
    Failure::pkcs11(PIN_INCORRECT, "the PIN is wrong")
}

/// A ticket that is not good, as applications see it.
fn not_logged_in(error: TicketError) -> Failure {
    match error {
        TicketError::NoKey => Failure::new(FailureKind::Internal, error),
        _ => Failure::pkcs11(USER_NOT_LOGGED_IN, error),
    }
}

impl Core {
    /// Login, Renew, SetPin, InitPin and InitToken, all but Renew at the primary.
    pub(super) async fn slot_login(&self, call: &SlotCall) -> Result<SlotAnswer, Failure> {
        match &call.ask {
            SlotRequest::Login { role, pin, attempt } => {
                let version = self.prove_pin(&call.who, *role, pin, *attempt).await?;
                let ticket = self.ticket(attempt.client, &call.who, *role, version)?;
                Ok(SlotAnswer::Ticket(ticket))
            }
            SlotRequest::Renew => self.renew(call),
            SlotRequest::SetPin { change, old, new } => self.slot_set_pin(call, *change, old, new).await,
            SlotRequest::InitPin { change, pin } => self.slot_init_pin(call, *change, pin).await,
            SlotRequest::InitToken { change, pin } => self.slot_init_token(call, *change, pin).await,
            _ => Err(Failure::new(FailureKind::Internal, "this call is no login")),
        }
    }

    /// As what the caller is logged in; None without a ticket. CKR_USER_NOT_LOGGED_IN if the ticket is not good any
    /// more.
    pub(super) fn ticket_role(&self, call: &SlotCall) -> Result<Option<Role>, Failure> {
        let Some(ticket) = &call.ticket else { return Ok(None) };
        let now = self.clock.unix();
        let checked =
            self.agreed.read(|state| ticket::check(&self.keys, state.pins(), ticket, &call.who, now));
        checked.map(Some).map_err(not_logged_in)
    }

    /// The user's PIN and the security officer's, as this client sees them.
    pub(super) fn pin_states(&self, who: &ClientName) -> (PinState, PinState) {
        self.agreed.read(|state| {
            let pins = state.pins();
            let of = |role| PinState {
                set: pins.pin(role).hash.is_some(),
                tries: pins.tries(who, role),
                tries_max: limits::PIN_TRIES_MAX,
            };
            (of(Role::User), of(Role::SecurityOfficer))
        })
    }

    fn renew(&self, call: &SlotCall) -> Result<SlotAnswer, Failure> {
        match (&call.ticket, self.ticket_role(call)?) {
            (Some(old), Some(role)) => {
                let ticket = self.ticket(old.client, &call.who, role, old.pin_version)?;
                Ok(SlotAnswer::Ticket(ticket))
            }
            _ => Err(Failure::pkcs11(USER_NOT_LOGGED_IN, "nobody is logged in: log in first")),
        }
    }

    /// A ticket for whoever knew the PIN of this version.
    pub(super) fn ticket(
        &self,
        client: ClientId,
        who: &ClientName,
        role: Role,
        version: u32,
    ) -> Result<Ticket, Failure> {
        ticket::make(&self.keys, client, who, role, version, self.clock.unix()).map_err(not_logged_in)
    }

    /// True in the sense of [`ticket::check_made`]: the PIN may have changed since.
    pub(super) fn ticket_made(&self, call: &SlotCall, ticket: &Ticket) -> Result<(), Failure> {
        ticket::check_made(&self.keys, ticket, &call.who, self.clock.unix()).map_err(not_logged_in)
    }

    /// Counts a try, then looks at the PIN; a right one takes the count back. Gives the PIN's version.
    pub(super) async fn prove_pin(
        &self,
        who: &ClientName,
        role: Role,
        pin: &SecretBytes,
        attempt: RequestId,
    ) -> Result<u32, Failure> {
        let client = (who.clone(), role);
        let line = self.logins.line(&client);
        let _turn = line.lock().await;
        let tag = ticket::attempt_tag(&self.keys, attempt, pin).map_err(not_logged_in)?;
        let charge = Command::ChargePin { who: who.clone(), role, attempt, tag };
        let tries = match self.consensus.propose(charge).await.map_err(|e| consensus_failure(&e))?.1 {
            Outcome::Charged(tries) => tries,
            Outcome::Rejected(rejection) => return Err(rejection_failure(&rejection)),
            other => return Err(unexpected(&other)),
        };
        let agreed = self.agreed.read(|state| state.pins().pin(role).clone());
        if !self.is_right(role, pin, &agreed).await? {
            if tries >= limits::PIN_TRIES_MAX {
                warn!(code = Event::LoginLocked.code(), client = %who, %role, "too many wrong PINs: this client is locked out");
            }
            tokio::time::sleep(delay(tries)).await;
            return Err(wrong());
        }
        self.settle_simple(Command::ClearPin { who: who.clone(), role }).await?;
        self.logins.clear(&client);
        Ok(agreed.version)
    }

    async fn is_right(&self, role: Role, pin: &SecretBytes, agreed: &Pin) -> Result<bool, Failure> {
        let Some(hash) = agreed.hash.clone() else {
            return Err(rejection_failure(&Rejection::PinNotSet(role)));
        };
        let pin = pin.clone();
        self.hashing(move || pin::is_right(&pin, &hash)).await
    }

    /// Hashes a new PIN.
    pub(super) async fn hash_pin(&self, pin: &SecretBytes) -> Result<PinHash, Failure> {
        let salt = crate::transport::random_bytes().map_err(|e| Failure::new(FailureKind::Internal, e))?;
        let pin = pin.clone();
        self.hashing(move || pin::hash(&pin, salt)).await
    }

    async fn hashing<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, pin::PinError> + Send + 'static,
    ) -> Result<T, Failure> {
        let internal = |e: &dyn std::fmt::Display| Failure::new(FailureKind::Internal, e);
        let _permit = self.logins.hashing.acquire().await.map_err(|e| internal(&e))?;
        let done = aside::start(work).await.map_err(|e| internal(&e))?;
        done.map_err(super::pins::refused)
    }

    /// A login at the primary; without a quorum at this member.
    pub(in crate::service) async fn login_anywhere(&self, call: Box<SlotCall>) -> Result<Answer, Failure> {
        let request = ClientRequest::Slot(call.clone());
        let SlotRequest::Login { role, pin, attempt } = &call.ask else {
            return Err(Failure::new(FailureKind::Internal, "this call is no login"));
        };
        let failure = match self.at_primary_within(request, limits::LOGIN_QUORUM_WAIT).await {
            // Another primary that is merely slow or busy counts the try itself, sooner or later.
            Err(failure) if self.is_without_quorum(&failure) => failure,
            done => {
                if done.is_ok() {
                    self.logins.clear(&(call.who.clone(), *role));
                }
                return done;
            }
        };
        let serves = self.agreed.read(|state| state.options().isolated_service == IsolatedService::Serve);
        if !serves || self.may_answer().is_err() {
            return Err(failure);
        }
        let version = self.prove_pin_isolated(&call.who, *role, pin).await?;
        let ticket = self.ticket(attempt.client, &call.who, *role, version)?;
        let index = self.agreed.read(|state| state.applied());
        Ok(Answer::Slot(Box::new(SlotReply { index, answer: SlotAnswer::Ticket(ticket) })))
    }

    /// True if a failure means that no quorum answers: nobody leads, or this member does and waits in vain.
    fn is_without_quorum(&self, failure: &Failure) -> bool {
        let leader = self.consensus.leadership().borrow().leader;
        match failure.kind {
            FailureKind::NoQuorum | FailureKind::NotPrimary { .. } => true,
            FailureKind::Deadline => leader.is_none_or(|leader| leader == self.me),
            _ => false,
        }
    }

    /// Looks at a PIN without a quorum. The agreed count goes on counting; what this member adds to it is bounded.
    async fn prove_pin_isolated(
        &self,
        who: &ClientName,
        role: Role,
        pin: &SecretBytes,
    ) -> Result<u32, Failure> {
        let client = (who.clone(), role);
        let line = self.logins.line(&client);
        let _turn = line.lock().await;
        let (agreed, charged) =
            self.agreed.read(|state| (state.pins().pin(role).clone(), state.pins().tries(who, role)));
        let left = limits::PIN_TRIES_MAX.saturating_sub(charged);
        let budget = left.min(limits::PIN_TRIES_ISOLATED_MAX);
        let tries = self.logins.charge(&client, budget).ok_or_else(|| {
            let text = format!(
                "no quorum answers, and {} takes no more tries of this client without one: log in when it is back",
                self.me
            );
            Failure::pkcs11(PIN_LOCKED, text)
        })?;
        if !self.is_right(role, pin, &agreed).await? {
            tokio::time::sleep(delay(charged.saturating_add(tries))).await;
            return Err(wrong());
        }
        self.logins.clear(&client);
        Ok(agreed.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_grows_and_is_bounded() {
        let waits: Vec<u128> = [1, 2, 3, 6, 10, 40].map(|tries| delay(tries).as_millis()).into();
        assert_eq!(waits, [100, 200, 400, 3000, 3000, 3000]);
    }

    #[test]
    fn a_member_alone_takes_a_few_wrong_tries_of_each_client() {
        let logins = Logins::default();
        let client = |name: &str| (ClientName(name.into()), Role::User);
        for tries in 1..=limits::PIN_TRIES_ISOLATED_MAX {
            assert_eq!(logins.charge(&client("uid:1"), limits::PIN_TRIES_ISOLATED_MAX), Some(tries));
        }
        for _ in 0..3 {
            assert_eq!(logins.charge(&client("uid:1"), limits::PIN_TRIES_ISOLATED_MAX), None);
        }
        assert_eq!(logins.charge(&client("uid:2"), limits::PIN_TRIES_ISOLATED_MAX), Some(1));
        assert_eq!(logins.charge(&client("uid:3"), 0), None, "the agreed count is used up");
        logins.clear(&client("uid:1"));
        assert_eq!(logins.charge(&client("uid:1"), limits::PIN_TRIES_ISOLATED_MAX), Some(1));
    }
}
