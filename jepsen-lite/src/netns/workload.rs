//! The clients' process: threads that do what [`Client`]s decide, through the PKCS#11 module as applications load it. It
//! writes one event a line to standard output, and ends when its standard input does.
//!
//! Slot 0 asks any member; each of the others one member alone.

use super::cluster::{LABEL, PIN};
use super::recorder::now;
use super::register::Registers;
use crate::history::{Event, History, write_jsonl};
use crate::workload::{Board, Call, Client, Outcome, Told, Work, joined, value_of};
use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error, RvError};
use cryptoki::mechanism::Mechanism;
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, UserType};
use cryptoki::slot::Slot;
use cryptoki::types::AuthPin;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What the clients' process is told.
#[derive(Clone, Debug)]
pub struct Job {
    /// The module.
    pub module: PathBuf,
    /// Where each member answers.
    pub sockets: Vec<PathBuf>,
    /// What clients do.
    pub work: Work,
    /// When the run began, by the machine's monotonic clock, nanoseconds.
    pub base: u64,
}

/// What is used is this block.
const BLOCK: [u8; 16] = [7; 16];
/// Session keys have numbers from here on: objects of the group have lower ones, and slots give handles of their own.
const SESSION_KEYS: i64 = 1 << 48;

struct Shared<'a> {
    job: &'a Job,
    library: &'a Pkcs11,
    board: Mutex<Board>,
    /// The module's handles by the keys' numbers. Those of agreed objects are their numbers.
    handles: Mutex<BTreeMap<i64, ObjectHandle>>,
    /// The number of the next session key.
    next: AtomicI64,
    out: Mutex<std::io::Stdout>,
    stop: AtomicBool,
}

impl Shared<'_> {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handles(&self) -> MutexGuard<'_, BTreeMap<i64, ObjectHandle>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, event: Event) {
        let event = Event { time: Some(now().saturating_sub(self.job.base)), ..event };
        let mut line = Vec::new();
        if write_jsonl(&History::new(vec![event]), &mut line).is_ok() {
            let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
            // Whoever started us is gone, or broken: nothing more is worth doing.
            if out.write_all(&line).and_then(|()| out.flush()).is_err() {
                self.stop.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// Works until standard input ends.
///
/// # Errors
/// The module cannot be loaded, or shows other slots than it should.
pub fn work(job: &Job) -> Result<(), String> {
    let library = Pkcs11::new(&job.module).map_err(|e| format!("{}: {e}", job.module.display()))?;
    let told = |error: Error| format!("{}: {error}", job.module.display());
    library.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)).map_err(told)?;
    let slots = library.get_slots_with_token().map_err(told)?;
    let shown = slots.first().map(|slot| library.get_token_info(*slot)).transpose().map_err(told)?;
    if slots.len() != job.work.members + 1 || shown.is_none_or(|info| info.label() != LABEL) {
        return Err(format!("the module shows {} slots, not {}", slots.len(), job.work.members + 1));
    }
    // The login is the application's, so one session's is enough; it ends with the last session.
    let logins: Result<Vec<Session>, Error> = slots.iter().map(|slot| login(&library, *slot)).collect();
    let _logins = logins.map_err(told)?;
    let shared = Shared {
        job,
        library: &library,
        board: Mutex::default(),
        handles: Mutex::default(),
        next: AtomicI64::new(SESSION_KEYS),
        out: Mutex::new(std::io::stdout()),
        stop: AtomicBool::new(false),
    };
    let all_well = std::thread::scope(|scope| {
        let mut all = Vec::new();
        for index in 0..job.work.clients {
            let client = Client::new(&job.work, index);
            let Some(slot) = slots.get(client.member().map_or(0, |member| member + 1)).copied() else {
                continue;
            };
            let shared = &shared;
            let sockets = match client.member() {
                Some(member) => job.sockets.get(member).cloned().into_iter().collect(),
                None => job.sockets.clone(),
            };
            // The run's beginning tells clients of two runs apart.
            let registers = Registers::new(sockets, job.base.wrapping_add(index as u64));
            let mut hands = Hands { shared, slot, session: None, own: BTreeMap::new(), registers };
            all.push(scope.spawn(move || {
                live(client, &mut hands);
                hands
            }));
        }
        let mut bytes = [0; 64];
        while std::io::stdin().read(&mut bytes).is_ok_and(|count| count > 0) {}
        shared.stop.store(true, Ordering::Relaxed);
        // Sessions stay open until nobody uses their keys any more.
        let open: Vec<_> = all.into_iter().map(|client| client.join().ok()).collect();
        open.iter().all(Option::is_some)
    });
    if all_well { Ok(()) } else { Err("a client panicked".into()) }
}

fn live(mut client: Client, hands: &mut Hands<'_>) {
    let shared = hands.shared;
    while !shared.stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(client.rest_ms()));
        let Some(session) = hands.session() else {
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        let call = client.next(&mut shared.board());
        shared.say(client.before(&call));
        let outcome = hands.act(&session, &call);
        let event = client.after(&call, &outcome, &mut shared.board());
        shared.say(event);
        if outcome.answered() {
            // A session that may have lost its login is opened anew.
            hands.session = Some(session);
        }
    }
}

fn login(library: &Pkcs11, slot: Slot) -> Result<Session, Error> {
    let session = library.open_rw_session(slot)?;
    match session.login(UserType::User, Some(&AuthPin::new(PIN.into()))) {
        Ok(()) | Err(Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => Ok(session),
        Err(error) => Err(error),
    }
}

/// What one client calls the module with.
struct Hands<'a> {
    shared: &'a Shared<'a>,
    slot: Slot,
    session: Option<Session>,
    /// Sessions of its own, by the key that was made in each.
    own: BTreeMap<i64, Session>,
    registers: Registers,
}

impl Hands<'_> {
    fn session(&mut self) -> Option<Session> {
        self.session.take().or_else(|| login(self.shared.library, self.slot).ok())
    }

    /// The number of an agreed key, whose handle is kept.
    fn agreed(&self, key: ObjectHandle) -> i64 {
        let number = i64::try_from(key.handle()).unwrap_or(i64::MAX);
        self.shared.handles().insert(number, key);
        number
    }

    fn act(&mut self, session: &Session, call: &Call) -> Outcome {
        let key = match call {
            Call::Create { label, tag } => {
                let made = self.create(session, label, tag, call.imports());
                return ended(made.map(|key| Told::Key(self.agreed(key))));
            }
            Call::Find { label } => {
                let template = [Attribute::Token(true), Attribute::Label(label.clone().into_bytes())];
                let found = session.find_objects(&template);
                return ended(
                    found.map(|keys| Told::Keys(keys.iter().map(|key| self.agreed(*key)).collect())),
                );
            }
            Call::Read { key } => return self.registers.read(*key),
            Call::Cas { key, tag, from, to } => return self.registers.cas(*key, tag, *from, *to),
            Call::SessionMake { .. } => return ended(self.session_make().map(Told::Key)),
            Call::SessionEnd { key, .. } => {
                let closed = self.own.remove(key).map_or(Ok(()), Session::close);
                return ended(closed.map(|()| Told::Done));
            }
            Call::Use { key, .. } | Call::SessionUse { key, .. } | Call::Look { key, .. } => key,
            Call::Set { key, .. } | Call::Write { key, .. } | Call::Delete { key, .. } => key,
        };
        let Some(key) = self.shared.handles().get(key).copied() else { return Outcome::Absent };
        let set = |tag: &str, value: &str| {
            ended(session.update_attributes(key, &[id(tag, value)]).map(|()| Told::Done))
        };
        match call {
            Call::Look { .. } => ended(session.get_attributes(key, &[AttributeType::Id]).map(|all| {
                let id =
                    all.into_iter().find_map(|one| if let Attribute::Id(id) = one { Some(id) } else { None });
                Told::Id(String::from_utf8_lossy(&id.unwrap_or_default()).into_owned())
            })),
            Call::Set { tag, value, .. } => set(tag, value),
            Call::Write { tag, value, .. } => set(tag, &value.to_string()),
            Call::Delete { .. } => ended(session.destroy_object(key).map(|()| Told::Done)),
            _ => ended(session.encrypt(&Mechanism::AesEcb, key, &BLOCK).map(|_| Told::Done)),
        }
    }

    fn create(
        &self,
        session: &Session,
        label: &str,
        tag: &str,
        imported: bool,
    ) -> Result<ObjectHandle, Error> {
        let mut template = vec![
            Attribute::Token(true),
            Attribute::Encrypt(true),
            Attribute::Decrypt(true),
            Attribute::Label(label.as_bytes().to_vec()),
            id(tag, ""),
        ];
        if !imported {
            template.push(Attribute::ValueLen(32.into()));
            return session.generate_key(&Mechanism::AesKeyGen, &template);
        }
        template.extend([
            Attribute::Class(ObjectClass::SECRET_KEY),
            Attribute::KeyType(KeyType::AES),
            Attribute::Sensitive(true),
            Attribute::Value(value_of(self.shared.job.work.seed, tag).to_vec()),
        ]);
        session.create_object(&template)
    }

    fn session_make(&mut self) -> Result<i64, Error> {
        let session = login(self.shared.library, self.slot)?;
        let template = [Attribute::Token(false), Attribute::ValueLen(32.into()), Attribute::Encrypt(true)];
        let key = session.generate_key(&Mechanism::AesKeyGen, &template)?;
        let number = self.shared.next.fetch_add(1, Ordering::Relaxed);
        self.shared.handles().insert(number, key);
        self.own.insert(number, session);
        Ok(number)
    }
}

fn id(tag: &str, value: &str) -> Attribute {
    Attribute::Id(joined(tag, value).into_bytes())
}

/// What a call's end says. A change that failed may have been made, unless the group said that it was not.
fn ended(outcome: Result<Told, Error>) -> Outcome {
    match outcome {
        Ok(told) => Outcome::Done(told),
        Err(Error::Pkcs11(RvError::KeyHandleInvalid | RvError::ObjectHandleInvalid, _)) => Outcome::Absent,
        Err(
            error @ Error::Pkcs11(
                RvError::FunctionRejected | RvError::UserNotLoggedIn | RvError::ActionProhibited,
                _,
            ),
        ) => Outcome::Refused(error.to_string()),
        Err(error) => Outcome::Silent(error.to_string()),
    }
}
