//! One group as one slot: who this application is to it, its login, its session objects.

use crate::config::{GroupConfig, MemberConfig};
use crate::link::{Link, Lost, Outcome};
use crate::mechanism;
use crate::object::{Object, Objects};
use crate::own::{self, Own};
use crate::rv::{Result, Rv};
use cryptoki_sys::{
    CKR_DEVICE_ERROR, CKR_GENERAL_ERROR, CKR_KEY_HANDLE_INVALID, CKR_RANDOM_NO_RNG, CKR_TOKEN_NOT_PRESENT,
    CKR_USER_ALREADY_LOGGED_IN, CKR_USER_ANOTHER_ALREADY_LOGGED_IN, CKR_USER_NOT_LOGGED_IN,
};
use keyraft_engine::clock::Clock;
use keyraft_engine::domain::{AttributeRecord, ClientId, LogIndex, MechanismInfo, ObjectId, RequestId};
use keyraft_engine::health::Pace;
use keyraft_engine::limits;
use keyraft_engine::wire::{
    Change, ClientName, FailureKind, KeyRef, Role, SecretBytes, SlotAnswer, SlotCall, SlotInfo, SlotRequest,
    Ticket,
};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Between two tries to get a new ticket.
const RENEW_PAUSE: Duration = Duration::from_secs(60);
/// Records of keys in use that are kept, so that an Init asks nobody.
const RECORDS_MAX: usize = 1024;

/// One group as one slot.
pub(crate) struct Slot {
    /// CK_SLOT_ID
    pub id: u64,
    /// The application's session objects.
    pub objects: Objects,
    /// If the slot is one member's own.
    pub own: Option<Own>,
    link: Link,
    seen: AtomicU64,
    state: Mutex<State>,
    records: Mutex<HashMap<ObjectId, Arc<AttributeRecord>>>,
}

#[derive(Default)]
struct State {
    info: Option<Arc<Known>>,
    client: Option<ClientId>,
    ticket: Option<Ticket>,
    /// When a new ticket was last asked for.
    renewed: Option<Instant>,
    last: u64,
    /// Changes under way.
    open: BTreeSet<u64>,
}

/// What was learned of the group.
pub(crate) struct Known {
    /// As a member said it.
    pub info: SlotInfo,
    /// What the slot offers, by number.
    pub mechanisms: Vec<MechanismInfo>,
}

impl Known {
    /// The token's label.
    pub fn label(&self) -> String {
        own::label(&self.info)
    }

    /// The token's serial number.
    pub fn serial(&self) -> String {
        own::serial(&self.info)
    }

    /// One mechanism of the slot.
    pub fn mechanism(&self, number: u64) -> Option<&MechanismInfo> {
        self.mechanisms.binary_search_by_key(&number, |info| info.number).ok().map(|at| &self.mechanisms[at])
    }
}

impl Slot {
    /// A group's slot.
    pub fn new(config: &GroupConfig) -> Self {
        Self::over(config, None)
    }

    /// A member's own slot.
    pub fn of_member(config: &MemberConfig) -> Self {
        Self::over(&config.only, Some(Own::new(config)))
    }

    fn over(config: &GroupConfig, own: Option<Own>) -> Self {
        Self {
            id: config.slot,
            objects: Objects::default(),
            own,
            link: Link::new(config),
            seen: AtomicU64::new(0),
            state: Mutex::default(),
            records: Mutex::default(),
        }
    }

    fn slot_call(&self, ask: SlotRequest) -> SlotCall {
        let ticket = self.state.lock().ticket.clone();
        SlotCall {
            who: ClientName::default(),
            ticket,
            seen: LogIndex(self.seen.load(Ordering::Relaxed)),
            tries: 0,
            ask,
            direct: self.own.is_some(),
        }
    }

    fn call(&self, call: SlotCall, pace: Pace) -> std::result::Result<SlotAnswer, Lost> {
        let reply = self.link.call(call, pace)?;
        self.seen.fetch_max(reply.index.0, Ordering::Relaxed);
        Ok(reply.answer)
    }

    /// Asks the group. A login that the group no longer honours ends here too; if it was replaced meanwhile, the call
    /// is made once more under the new one.
    pub fn ask(&self, ask: SlotRequest, pace: Pace) -> Result<SlotAnswer> {
        self.renew();
        let call = self.slot_call(ask);
        let (again, under) = (call.ask.clone(), call.ticket.clone());
        let refused = match self.call(call, pace) {
            Err(Lost::Failed(failure)) if Rv::from(&failure) == Rv(CKR_USER_NOT_LOGGED_IN) => failure,
            done => return Ok(done?),
        };
        let now = self.state.lock().ticket.clone();
        if now != under {
            return Ok(self.call(self.slot_call(again), pace)?);
        }
        // The security officer is told the same about what is the user's alone.
        if under.is_some_and(|ticket| ticket.role == Role::User) {
            self.forget_login();
        }
        Err(Lost::Failed(refused).into())
    }

    /// Asks about keys.
    pub fn ask_about(
        &self,
        pace: Pace,
        keys: &[&Object],
        ask: impl Fn(Vec<KeyRef>) -> SlotRequest,
    ) -> Result<SlotAnswer> {
        naming(keys, |names| self.ask(ask(names), pace))
    }

    /// Asks for a change, once whatever happens on the way.
    pub fn change(&self, ask: impl Fn(Change) -> SlotRequest) -> Result<SlotAnswer> {
        self.renew();
        let first = self.change_once(&ask)?;
        match first.reply {
            // The group has forgotten this application, and nothing was done: it begins anew. If an attempt was lost
            // it may have been done before, and only the caller can look.
            Err(Lost::Failed(failure)) if failure.kind == FailureKind::Expired && !first.lost_one => {
                self.state.lock().client = None;
                Ok(self.change_once(&ask)?.reply?.answer)
            }
            reply => Ok(reply?.answer),
        }
    }

    fn change_once(&self, ask: impl Fn(Change) -> SlotRequest) -> Result<Outcome> {
        let change = self.open_change()?;
        let outcome = self.link.ask(self.slot_call(ask(change)), Pace::Slow);
        self.state.lock().open.remove(&change.request.sequence);
        if let Ok(reply) = &outcome.reply {
            self.seen.fetch_max(reply.index.0, Ordering::Relaxed);
        }
        Ok(outcome)
    }

    /// The same about keys.
    pub fn change_about(
        &self,
        keys: &[&Object],
        ask: impl Fn(Change, Vec<KeyRef>) -> SlotRequest,
    ) -> Result<SlotAnswer> {
        naming(keys, |names| self.change(|change| ask(change, names.clone())))
    }

    /// What is known of the group; asked once.
    pub fn known(&self) -> Result<Arc<Known>> {
        if let Some(known) = self.state.lock().info.clone() {
            return Ok(known);
        }
        self.learn()
    }

    /// True if its token is there: a group's always is, a member's while that member answers.
    pub fn is_present(&self) -> bool {
        self.own.as_ref().is_none_or(|own| own.is_present(self.slot_call(SlotRequest::Info)))
    }

    /// Refuses what needs the token if that is not there.
    pub fn must_be_present(&self) -> Result<()> {
        if self.is_present() { Ok(()) } else { Err(Rv(CKR_TOKEN_NOT_PRESENT)) }
    }

    /// True if its token came or went since this was last asked.
    pub fn has_turned(&self) -> bool {
        self.own.as_ref().is_some_and(|own| own.has_turned(self.is_present()))
    }

    /// slotDescription
    pub fn description(&self) -> String {
        self.own.as_ref().map_or_else(|| "keyraft virtual slot".into(), Own::description)
    }

    /// Asks anew what the group is (the PINs' states change).
    pub fn learn(&self) -> Result<Arc<Known>> {
        match self.call(self.slot_call(SlotRequest::Info), Pace::Search)? {
            SlotAnswer::Info(info) => {
                let mechanisms = mechanism::offered(&info.mechanisms);
                let known = Arc::new(Known { info: *info, mechanisms });
                self.state.lock().info = Some(known.clone());
                Ok(known)
            }
            _ => Err(Rv(CKR_DEVICE_ERROR)),
        }
    }

    /// This application's identity towards the group.
    fn client(&self) -> Result<ClientId> {
        if let Some(client) = self.state.lock().client {
            return Ok(client);
        }
        let born = self.learn()?.info.applied;
        let mut nonce = [0; 8];
        getrandom::fill(&mut nonce).map_err(|_| Rv(CKR_RANDOM_NO_RNG))?;
        let client = ClientId { born, nonce: u64::from_ne_bytes(nonce) };
        Ok(*self.state.lock().client.get_or_insert(client))
    }

    fn open_change(&self) -> Result<Change> {
        let client = self.client()?;
        let mut state = self.state.lock();
        state.last += 1;
        let sequence = state.last;
        state.open.insert(sequence);
        let watermark = state.open.first().copied().unwrap_or(sequence);
        Ok(Change { request: RequestId { client, sequence }, watermark })
    }

    /// Who is logged in.
    pub fn role(&self) -> Option<Role> {
        self.state.lock().ticket.as_ref().map(|ticket| ticket.role)
    }

    /// C_Login.
    pub fn login(&self, role: Role, pin: &[u8]) -> Result<()> {
        match self.role() {
            Some(now) if now == role => return Err(Rv(CKR_USER_ALREADY_LOGGED_IN)),
            Some(_) => return Err(Rv(CKR_USER_ANOTHER_ALREADY_LOGGED_IN)),
            None => {}
        }
        let ticket = self.prove(role, pin)?;
        self.state.lock().ticket = Some(ticket);
        Ok(())
    }

    /// Proves a PIN without changing who is logged in.
    pub fn prove(&self, role: Role, pin: &[u8]) -> Result<Ticket> {
        let answer = self.change(|change| SlotRequest::Login {
            role,
            pin: SecretBytes(pin.to_vec().into()),
            attempt: change.request,
        })?;
        match answer {
            SlotAnswer::Ticket(ticket) => Ok(ticket),
            _ => Err(Rv(CKR_GENERAL_ERROR)),
        }
    }

    /// C_Logout. Private session objects end.
    pub fn logout(&self) -> Result<()> {
        if self.role().is_none() {
            return Err(Rv(CKR_USER_NOT_LOGGED_IN));
        }
        self.forget_login();
        Ok(())
    }

    /// Ends the login, if there is one.
    pub fn forget_login(&self) {
        self.state.lock().ticket = None;
        self.records.lock().clear();
        self.objects.end_login();
    }

    /// Goes on under another ticket: the PIN was changed.
    pub fn go_on(&self, ticket: Ticket) {
        self.state.lock().ticket = Some(ticket);
    }

    /// Takes a new ticket before the old one ends, asked for once in a while. A failure is no harm: the old one is good
    /// for half its life yet.
    fn renew(&self) {
        let now = Clock.now();
        let half = u64::try_from(limits::TICKET_LIFE.as_millis() / 2).unwrap_or(0);
        {
            let mut state = self.state.lock();
            let expires = state.ticket.as_ref().map(|ticket| ticket.expires.0.saturating_sub(Clock.unix().0));
            let rested = state.renewed.is_none_or(|last| now.saturating_duration_since(last) >= RENEW_PAUSE);
            if expires.is_none_or(|left| left >= half) || !rested {
                return;
            }
            state.renewed = Some(now);
        }
        let call = self.slot_call(SlotRequest::Renew);
        let under = call.ticket.clone();
        if let Ok(SlotAnswer::Ticket(ticket)) = self.call(call, Pace::Quick) {
            let mut state = self.state.lock();
            if state.ticket == under {
                state.ticket = Some(ticket);
            }
        }
    }

    /// An agreed object's record, asked anew.
    pub fn read(&self, object: ObjectId) -> Result<Arc<AttributeRecord>> {
        match self.ask(SlotRequest::Read(object), Pace::Search) {
            Ok(SlotAnswer::Record(record)) => {
                let record = Arc::new(*record);
                let mut records = self.records.lock();
                if records.len() >= RECORDS_MAX {
                    records.clear();
                }
                records.insert(object, record.clone());
                Ok(record)
            }
            Ok(_) => Err(Rv(CKR_DEVICE_ERROR)),
            Err(rv) => {
                self.records.lock().remove(&object);
                Err(rv)
            }
        }
    }

    /// A record that was read before, which may have changed since; members check again at the use.
    pub fn remembered(&self, object: ObjectId) -> Option<Arc<AttributeRecord>> {
        self.records.lock().get(&object).cloned()
    }

    /// Forgets what was read of an object.
    pub fn forget(&self, object: ObjectId) {
        self.records.lock().remove(&object);
    }

    /// The record behind a handle, as it is now.
    pub fn record(&self, object: &Object) -> Result<Arc<AttributeRecord>> {
        match object {
            Object::Agreed(id) => self.read(*id),
            Object::Session(object) => Ok(object.body().record),
        }
    }
}

/// Makes a call that names keys. Session keys go by name first, and whole if the member does not know them.
fn naming(keys: &[&Object], call: impl Fn(Vec<KeyRef>) -> Result<SlotAnswer>) -> Result<SlotAnswer> {
    let named = |whole| keys.iter().map(|key| key.key_ref(whole)).collect::<Option<Vec<_>>>();
    let missing = Rv(CKR_KEY_HANDLE_INVALID);
    match call(named(false).ok_or(missing)?)? {
        SlotAnswer::SendSealed(_) => call(named(true).ok_or(missing)?),
        answer => Ok(answer),
    }
}
