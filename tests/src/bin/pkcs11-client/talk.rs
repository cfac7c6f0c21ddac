//! Calls as lines on standard input say, one answer a line: `ok ...` with what came of it, or `error 0x.. FUNCTION`.

use crate::load::Load;
use crate::raw::{Answer, Module, in_child};
use cryptoki_sys::{CK_OBJECT_HANDLE, CK_SESSION_HANDLE, CK_SLOT_ID, CKU_SO, CKU_USER};
use keyraft_engine::clock::Clock;
use std::io::{BufRead, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Loads and initialises the module and answers until the input ends.
pub fn talk(module: &str, label: &str, pin: &str) -> Result<(), String> {
    let module = Module::load(module)?;
    module.initialize().map_err(|refused| format!("{refused:x?}"))?;
    let slot = slot_of(&module, label).map_err(|refused| format!("{refused:x?}"))?;
    let slot = slot.ok_or_else(|| format!("no token is called '{label}'"))?;
    let load = Mutex::default();
    let talk = Talk { module: Arc::new(module), slot, label: label.into(), pin: pin.into(), load };
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match talk.answer(&words) {
            Some(Ok(text)) => format!("ok {text}"),
            Some(Err(refused)) => format!("error {:#x} {}", refused.code, refused.by),
            None => format!("error 0 '{line}' is not understood"),
        };
        println!("{}", answer.trim_end());
        std::io::stdout().flush().map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The slot whose token has this label.
pub fn slot_of(module: &Module, label: &str) -> Answer<Option<CK_SLOT_ID>> {
    for slot in module.slots()? {
        if String::from_utf8_lossy(&module.token(slot)?.label).trim_end() == label {
            return Ok(Some(slot));
        }
    }
    Ok(None)
}

struct Talk {
    module: Arc<Module>,
    slot: CK_SLOT_ID,
    label: String,
    pin: String,
    /// What works in the background.
    load: Mutex<Option<Load>>,
}

fn shown<T: ToString>(answer: Answer<T>) -> Option<Answer<String>> {
    Some(answer.map(|value| value.to_string()))
}

fn done(answer: Answer<()>) -> Option<Answer<String>> {
    Some(answer.map(|()| String::new()))
}

impl Talk {
    /// None for words that mean nothing.
    fn answer(&self, words: &[&str]) -> Option<Answer<String>> {
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        let session = || number(1).map(|handle| handle as CK_SESSION_HANDLE);
        let object = || number(2).map(|handle| handle as CK_OBJECT_HANDLE);
        let stored = || words.get(2).map(|word| *word == "token");
        let module = &self.module;
        match *words.first()? {
            "slot" => shown(Ok(self.slot)),
            "slots" => shown(module.slots().map(|slots| format!("{slots:?}"))),
            "initpin" => done(module.init_pin(session()?, words.get(2)?)),
            "serial" => shown(
                module.token(self.slot).map(|info| String::from_utf8_lossy(&info.serialNumber).into_owned()),
            ),
            "open" => shown(module.open(self.slot, words.get(1) != Some(&"ro"))),
            "close" => done(module.close(session()?)),
            "state" => shown(module.state(session()?)),
            "login" => done(module.login(session()?, CKU_USER, words.get(2).unwrap_or(&self.pin.as_str()))),
            "so" => done(module.login(session()?, CKU_SO, words.get(2)?)),
            "logout" => done(module.logout(session()?)),
            "aes" => shown(module.aes(session()?, stored()?, words.get(3)?)),
            "ec" => shown(module.ec(session()?, stored()?, words.get(3)?)),
            "sign" => shown(module.sign(session()?, object()?)),
            "seal" => shown(module.seal(session()?, object()?).map(|sealed| format!("{sealed:02x?}"))),
            "find" => shown(module.find(session()?, words.get(2)?).map(|found| format!("{found:?}"))),
            "destroy" => done(module.destroy(session()?, object()?)),
            "many" => shown(self.many(number(1)?, number(2)? as CK_OBJECT_HANDLE)),
            "threads" => shown(self.threads(number(1)?, number(2)?, number(3)? as CK_OBJECT_HANDLE)),
            "cbc" => done(module.encrypt_init(session()?, object()?)),
            "part" => shown(module.encrypt_part(session()?).map(|sealed| format!("{sealed:02x?}"))),
            "last" => shown(module.encrypt_final(session()?).map(|sealed| format!("{sealed:02x?}"))),
            "pauses" => shown(self.pauses(number(1)?, number(2)?, number(3)? as CK_OBJECT_HANDLE)),
            "fork" => shown(self.fork(session()?, object()?)),
            "load" => done(self.load(number(1)?, number(2)? as CK_OBJECT_HANDLE)),
            "waited" => {
                let (uses, changes) = self.loaded().as_ref()?.pauses();
                shown(Ok(format!("{uses} {changes}")))
            }
            "unload" => shown(Ok(self.loaded().take()?.end())),
            _ => None,
        }
    }

    fn loaded(&self) -> MutexGuard<'_, Option<Load>> {
        self.load.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load(&self, threads: u64, key: CK_OBJECT_HANDLE) -> Answer<()> {
        let load = Load::start(&self.module, self.slot, threads, key)?;
        *self.loaded() = Some(load);
        Ok(())
    }

    /// Opens so many sessions, signs in the first, the last and every hundredth, and closes them all.
    fn many(&self, count: u64, key: CK_OBJECT_HANDLE) -> Answer<u64> {
        let sessions = (0..count).map(|_| self.module.open(self.slot, false)).collect::<Answer<Vec<_>>>()?;
        let mut signed = 0;
        for session in sessions.iter().step_by(100).chain(sessions.last()) {
            self.module.sign(*session, key)?;
            signed += 1;
        }
        sessions.into_iter().try_for_each(|session| self.module.close(session))?;
        Ok(signed)
    }

    /// So many threads, each with a session of its own, sign for so many milliseconds; gives how often, and the longest
    /// time of one signature in milliseconds.
    fn pauses(&self, count: u64, millis: u64, key: CK_OBJECT_HANDLE) -> Answer<String> {
        let end = Clock.now() + Duration::from_millis(millis);
        let work = || {
            let session = self.module.open(self.slot, false)?;
            let (mut signed, mut longest) = (0_u64, Duration::ZERO);
            let mut begun = Clock.now();
            while begun < end {
                self.module.sign(session, key)?;
                let now = Clock.now();
                longest = longest.max(now - begun);
                (signed, begun) = (signed + 1, now);
            }
            self.module.close(session)?;
            Ok((signed, longest))
        };
        let all = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..count).map(|_| scope.spawn(work)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no thread panics"))
                .collect::<Answer<Vec<_>>>()
        })?;
        let signed: u64 = all.iter().map(|(signed, _)| signed).sum();
        let longest = all.iter().map(|(_, longest)| *longest).max().unwrap_or_default();
        Ok(format!("{signed} {}", longest.as_millis()))
    }

    /// So many threads, each with a session of its own, sign and make and destroy keys so many times.
    fn threads(&self, count: u64, rounds: u64, key: CK_OBJECT_HANDLE) -> Answer<u64> {
        std::thread::scope(|scope| {
            let work = |thread: u64| {
                let session = self.module.open(self.slot, true)?;
                for _ in 0..rounds {
                    self.module.sign(session, key)?;
                    let label = format!("thread-{thread}");
                    let own = self.module.aes(session, false, &label)?;
                    self.module.seal(session, own)?;
                    let found = self.module.find(session, &label)?;
                    assert_eq!(found, [own], "a thread finds its key and no other");
                    self.module.destroy(session, own)?;
                }
                self.module.close(session)
            };
            let threads: Vec<_> = (0..count).map(|thread| scope.spawn(move || work(thread))).collect();
            let mut ended = 0;
            for thread in threads {
                thread.join().expect("no thread panics")?;
                ended += 1;
            }
            Ok(ended)
        })
    }

    /// What a forked child sees, as a number with a bit for each thing that is right: the parent's session is none of
    /// its business (1), it may initialise for itself (2) and is then not logged in (4), may log in and use a key that
    /// it finds (8), and may finalize (16); before and after, the parent goes on signing (32).
    fn fork(&self, session: CK_SESSION_HANDLE, key: CK_OBJECT_HANDLE) -> Answer<u8> {
        const NOT_INITIALIZED: u64 = cryptoki_sys::CKR_CRYPTOKI_NOT_INITIALIZED;
        self.module.sign(session, key)?;
        let child = in_child(|| {
            let mut right = 0;
            if self.module.state(session).is_err_and(|refused| refused.code == NOT_INITIALIZED) {
                right |= 1;
            }
            if self.module.initialize().is_ok() {
                right |= 2;
            }
            let Ok(Some(slot)) = slot_of(&self.module, &self.label) else { return right };
            let Ok(own) = self.module.open(slot, true) else { return right };
            // CKS_RW_PUBLIC_SESSION
            if self.module.state(own) == Ok(2) {
                right |= 4;
            }
            let used = self.module.login(own, CKU_USER, &self.pin).and_then(|()| self.module.sign(own, key));
            if used.is_ok() {
                right |= 8;
            }
            if self.module.finalize().is_ok() {
                right |= 16;
            }
            right
        });
        self.module.sign(session, key)?;
        Ok(child.unwrap_or(0) | 32)
    }
}
