//! Key lives: many clients over few labels create, find, use, look at, change and delete keys, through the PKCS#11 module as
//! applications load it. Runs in a process of its own, which writes one event a line to standard output and ends when its
//! standard input does.
//!
//! Half of the clients use slot 0, which asks any member; each of the others uses a slot that asks one member alone.

use super::cluster::{LABEL, PIN};
use super::dice::Dice;
use super::recorder::now;
use crate::edn::Value;
use crate::history::{ABSENT, Event, Function, History, Kind, Process, write_jsonl};
use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error, RvError};
use cryptoki::mechanism::Mechanism;
use cryptoki::object::{Attribute, AttributeType, ObjectHandle};
use cryptoki::session::{Session, UserType};
use cryptoki::slot::Slot;
use cryptoki::types::AuthPin;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What the clients' process is told.
#[derive(Clone, Debug)]
pub struct Job {
    /// The module.
    pub module: PathBuf,
    /// Clients.
    pub clients: usize,
    /// Labels.
    pub labels: usize,
    /// Members of the group.
    pub members: usize,
    /// What they do follows from it.
    pub seed: u64,
    /// When the run began, by the machine's monotonic clock, nanoseconds.
    pub base: u64,
}

/// Keys of one label that clients leave alive, about.
const ALIVE: usize = 5;
/// A client rests so long between two operations, at most.
const REST_MS: u64 = 40;
/// What is used is this block.
const BLOCK: [u8; 16] = [7; 16];
/// Between the tag and the value in CKA_ID.
const PART: char = '|';

/// A tag and a value, as CKA_ID holds them.
pub fn parted(id: &str) -> (String, String) {
    id.split_once(PART).map_or_else(|| (id.into(), String::new()), |(tag, value)| (tag.into(), value.into()))
}

fn joined(tag: &str, value: &str) -> Attribute {
    Attribute::Id(format!("{tag}{PART}{value}").into_bytes())
}

/// Keys that some client knows of, by label: the tag is known once somebody made it or looked.
type Known = BTreeMap<usize, Vec<(ObjectHandle, Option<String>)>>;

struct Shared<'a> {
    job: &'a Job,
    board: Mutex<Known>,
    out: Mutex<std::io::Stdout>,
    stop: AtomicBool,
}

impl Shared<'_> {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, event: Event) {
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
    if slots.len() != job.members + 1 || shown.is_none_or(|info| info.label() != LABEL) {
        return Err(format!("the module shows {} slots, not {}", slots.len(), job.members + 1));
    }
    for slot in &slots {
        // The login is the application's, so one session's is enough; it ends with the last session.
        login(&library, *slot).map_err(told)?;
    }
    let shared = Shared {
        job,
        board: Mutex::default(),
        out: Mutex::new(std::io::stdout()),
        stop: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        for client in 0..job.clients {
            let (shared, library, slots) = (&shared, &library, &slots);
            scope.spawn(move || Client::new(shared, client, slots).live(library));
        }
        let mut bytes = [0; 64];
        while std::io::stdin().read(&mut bytes).is_ok_and(|count| count > 0) {}
        shared.stop.store(true, Ordering::Relaxed);
    });
    Ok(())
}

fn login(library: &Pkcs11, slot: Slot) -> Result<Session, Error> {
    let session = library.open_rw_session(slot)?;
    match session.login(UserType::User, Some(&AuthPin::new(PIN.into()))) {
        Ok(()) | Err(Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => Ok(session),
        Err(error) => Err(error),
    }
}

/// One client.
struct Client<'a> {
    shared: &'a Shared<'a>,
    dice: Dice,
    slot: Option<Slot>,
    member: Option<usize>,
    /// Counted up after every unknown outcome.
    process: u64,
    made: u64,
}

/// How a call ended.
enum End {
    Ok(Value),
    Fail(String),
    Absent,
    Info(String),
}

impl<'a> Client<'a> {
    fn new(shared: &'a Shared<'a>, client: usize, slots: &[Slot]) -> Self {
        let members = slots.len().saturating_sub(1);
        let member = (client % 2 == 1).then(|| (client / 2) % members.max(1));
        Self {
            dice: Dice::new(shared.job.seed.wrapping_mul(1_000_003).wrapping_add(client as u64)),
            slot: slots.get(member.map_or(0, |member| member + 1)).copied(),
            member,
            process: client as u64,
            made: 0,
            shared,
        }
    }

    fn live(mut self, library: &Pkcs11) {
        let Some(slot) = self.slot else { return };
        let mut session = None;
        while !self.shared.stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(self.dice.below(REST_MS)));
            match session.take().map_or_else(|| login(library, slot), Ok) {
                Ok(open) => {
                    let good = self.act(&open);
                    // A session that may have lost its login is opened anew.
                    session = good.then_some(open);
                }
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Does one thing. False after a failure.
    fn act(&mut self, session: &Session) -> bool {
        let label = usize::try_from(self.dice.below(self.shared.job.labels as u64)).unwrap_or(0);
        let known = self.shared.known().get(&label).cloned().unwrap_or_default();
        let one = self.dice.one_of(&known).cloned();
        let full = known.len() > ALIVE;
        match (self.dice.below(100), one) {
            (0..=24, _) | (_, None) if !full => self.create(session, label),
            (0..=24, Some((key, _))) | (85..=99, Some((key, _))) => self.delete(session, label, key),
            (25..=44, _) => self.find(session, label),
            (45..=64, Some((key, _))) => self.use_key(session, label, key),
            (65..=74, Some((key, Some(tag)))) => self.set(session, label, key, &tag),
            (_, Some((key, _))) => self.look(session, label, key),
            (_, None) => self.find(session, label),
        }
    }

    fn event(&self, kind: Kind, function: &Function, label: usize, value: Value) -> Event {
        Event {
            process: Process::Client(self.process),
            kind,
            function: function.clone(),
            key: Some(name(label)),
            value,
            error: None,
            member: self.member,
            time: Some(now().saturating_sub(self.shared.job.base)),
        }
    }

    /// Calls, and says so before and after. False after a failure.
    fn call(&mut self, function: &Function, label: usize, asked: &Value, call: impl FnOnce() -> End) -> bool {
        self.shared.say(self.event(Kind::Invoke, function, label, asked.clone()));
        let end = call();
        let good = matches!(end, End::Ok(_) | End::Absent);
        let (kind, value, error) = match end {
            End::Ok(value) => (Kind::Ok, value, None),
            End::Absent => (Kind::Fail, asked.clone(), Some(ABSENT.to_string())),
            End::Fail(why) => (Kind::Fail, asked.clone(), Some(why)),
            End::Info(why) => (Kind::Info, asked.clone(), Some(why)),
        };
        let event = self.event(kind, function, label, value);
        self.shared.say(Event { error, ..event });
        if kind == Kind::Info {
            self.process += self.shared.job.clients as u64;
        }
        good
    }

    fn create(&mut self, session: &Session, label: usize) -> bool {
        self.made += 1;
        let tag = format!("{}.{}", self.process, self.made);
        let template = [
            Attribute::Token(true),
            Attribute::ValueLen(32.into()),
            Attribute::Encrypt(true),
            Attribute::Decrypt(true),
            Attribute::Label(name(label).into_bytes()),
            joined(&tag, ""),
        ];
        let mut made = None;
        let good = self.call(&Function::Create, label, &Value::Text(tag.clone()), || {
            match session.generate_key(&Mechanism::AesKeyGen, &template) {
                Ok(key) => {
                    made = Some(key);
                    End::Ok(number(key))
                }
                // The key came, and somebody deleted it before the answer: others have met it.
                Err(error) if absent(&error) => End::Info(error.to_string()),
                Err(error) => change_failed(&error),
            }
        });
        if let Some(key) = made {
            self.shared.known().entry(label).or_default().push((key, Some(tag)));
        }
        good
    }

    fn find(&mut self, session: &Session, label: usize) -> bool {
        let template = [Attribute::Token(true), Attribute::Label(name(label).into_bytes())];
        let mut found = Vec::new();
        let good = self.call(&Function::Find, label, &Value::Nil, || match session.find_objects(&template) {
            Ok(keys) => {
                found = keys;
                End::Ok(Value::List(found.iter().map(|key| number(*key)).collect()))
            }
            Err(error) => End::Fail(error.to_string()),
        });
        let mut known = self.shared.known();
        let known = known.entry(label).or_default();
        for key in found {
            if !known.iter().any(|(one, _)| *one == key) {
                known.push((key, None));
            }
        }
        good
    }

    fn use_key(&mut self, session: &Session, label: usize, key: ObjectHandle) -> bool {
        let good = self.call(&Function::Use, label, &number(key), || {
            read(session.encrypt(&Mechanism::AesEcb, key, &BLOCK).map(|_| number(key)))
        });
        self.unless_gone(session, label, key);
        good
    }

    fn look(&mut self, session: &Session, label: usize, key: ObjectHandle) -> bool {
        let mut seen = None;
        let good = self.call(&Function::Look, label, &number(key), || {
            match session.get_attributes(key, &[AttributeType::Id]) {
                Ok(attributes) => match attributes.first() {
                    Some(Attribute::Id(id)) => {
                        let (tag, value) = parted(&String::from_utf8_lossy(id));
                        seen = Some(tag.clone());
                        End::Ok(Value::List(vec![number(key), Value::Text(tag), Value::Text(value)]))
                    }
                    _ => End::Fail("there is no CKA_ID".into()),
                },
                Err(error) => read(Err(error)),
            }
        });
        if let Some(tag) = seen {
            let mut known = self.shared.known();
            let known = known.entry(label).or_default().iter_mut().find(|(one, _)| *one == key);
            if let Some((_, known)) = known {
                *known = Some(tag);
            }
        }
        good
    }

    fn set(&mut self, session: &Session, label: usize, key: ObjectHandle, tag: &str) -> bool {
        self.made += 1;
        let value = format!("{}.{}", self.process, self.made);
        let asked = Value::List(vec![number(key), Value::Text(value.clone())]);
        let told = asked.clone();
        let good = self.call(&Function::Set, label, &asked, || {
            match session.update_attributes(key, &[joined(tag, &value)]) {
                Ok(()) => End::Ok(told),
                Err(error) => change_failed(&error),
            }
        });
        self.unless_gone(session, label, key);
        good
    }

    fn delete(&mut self, session: &Session, label: usize, key: ObjectHandle) -> bool {
        // Others may go on with it for a while: they find that it is gone.
        let good = self.call(&Function::Delete, label, &number(key), || match session.destroy_object(key) {
            Ok(()) => End::Ok(number(key)),
            Err(error) => change_failed(&error),
        });
        if self.dice.below(2) == 0 {
            self.forget(label, key);
        }
        good
    }

    /// Forgets a key now and then, so that the board does not fill with what is gone.
    fn unless_gone(&mut self, session: &Session, label: usize, key: ObjectHandle) {
        if self.dice.below(4) == 0 && session.get_attributes(key, &[AttributeType::Class]).is_err() {
            self.forget(label, key);
        }
    }

    fn forget(&self, label: usize, key: ObjectHandle) {
        if let Some(known) = self.shared.known().get_mut(&label) {
            known.retain(|(one, _)| *one != key);
        }
    }
}

fn name(label: usize) -> String {
    format!("life-{label}")
}

fn number(key: ObjectHandle) -> Value {
    Value::Int(i64::try_from(key.handle()).unwrap_or(i64::MAX))
}

fn absent(error: &Error) -> bool {
    matches!(error, Error::Pkcs11(RvError::KeyHandleInvalid | RvError::ObjectHandleInvalid, _))
}

/// A read that failed has changed nothing.
fn read(outcome: Result<Value, Error>) -> End {
    match outcome {
        Ok(value) => End::Ok(value),
        Err(error) if absent(&error) => End::Absent,
        Err(error) => End::Fail(error.to_string()),
    }
}

/// A change that failed may have been made, unless the group said that it was not.
fn change_failed(error: &Error) -> End {
    match error {
        error if absent(error) => End::Absent,
        Error::Pkcs11(
            RvError::FunctionRejected | RvError::UserNotLoggedIn | RvError::ActionProhibited,
            _,
        ) => End::Fail(error.to_string()),
        _ => End::Info(error.to_string()),
    }
}
