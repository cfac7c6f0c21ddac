//! A token in memory, for simulations: at the level of C's functions, so that everything above them is the real thing.
//!
//! It keeps AES keys and generic secrets, and the member's own two RSA-3072 keys, which it takes from a file of keys
//! instead of looking for primes. Others cannot be generated here, so no member carries them. What is random comes
//! from the `getrandom` crate alone: with a seeded one every run makes the same bytes.
//!
//! It outlives the members that use it, and can be lost, fail, lie, forget its sessions, be slow and hang.

mod cipher;
mod copies;
pub(super) mod door;
mod hands;
mod oaep;
mod objects;
mod session;
#[cfg(test)]
mod tests;

pub(super) use hands::Hands;
pub(super) use oaep::encrypt as encrypt_rsa;

use crate::limits;
use crate::simulation::pace::Pace;
use door::Module;
use objects::Objects;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroizing;

/// What is wrong with a [`ModelToken`], until that is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFault {
    /// Every call answers CKR_DEVICE_REMOVED and does nothing. Sessions are there again afterwards, as with a token
    /// behind a network; [`ModelToken::wipe_sessions`] besides makes it one that was pulled out.
    Lost,
    /// Every call answers CKR_DEVICE_ERROR and does nothing.
    Fails,
    /// Every call that makes, changes or destroys an object does so, and says CKR_FUNCTION_FAILED. Uses and reads are
    /// as ever.
    Lies,
}

/// A token in memory. Two are equal if they are the same one.
pub struct ModelToken {
    number: u8,
    state: Mutex<State>,
    pace: Pace,
}

struct State {
    fault: Option<TokenFault>,
    /// Counts the processes that used it: what belongs to an earlier one is refused.
    life: u64,
    /// The door of this life. Leaked, as a loaded library is.
    module: Option<&'static Module>,
    label: Option<String>,
    so_pin: Zeroizing<String>,
    pin: Option<Zeroizing<String>>,
    objects: Objects,
}

impl ModelToken {
    /// A blank token: [`initialize`](super::initialize) makes it one with a label and a PIN. Its number chooses the two
    /// RSA keys that it will have; twelve numbers follow each other before they are the same again.
    pub fn new(number: u8) -> Arc<Self> {
        let state = State {
            fault: None,
            life: 0,
            module: None,
            label: None,
            so_pin: Zeroizing::default(),
            pin: None,
            objects: Objects::default(),
        };
        Arc::new(Self { number, state: Mutex::new(state), pace: Pace::default() })
    }

    /// Breaks it, or mends it with None. Holds from the next call on, also of jobs under way.
    pub fn set_fault(&self, fault: Option<TokenFault>) {
        self.state.lock().fault = fault;
    }

    /// Every job from now on takes so long, in virtual time.
    pub fn set_pause(&self, pause: Duration) {
        self.pace.set_time(pause);
    }

    /// While it hangs no job comes to its end, and it cannot be opened (CKR_DEVICE_ERROR, since opening cannot wait).
    /// Afterwards every job does what it came for, also those whose callers have given up.
    pub fn set_hung(&self, hung: bool) {
        self.pace.set_hung(hung);
    }

    /// Forgets its sessions, their objects and the login, as a reset token does: calls of the open handle answer
    /// CKR_SESSION_HANDLE_INVALID, until it is opened anew.
    pub fn wipe_sessions(&self) {
        self.state.lock().objects.end_sessions();
    }

    /// The process that used it has died: its sessions and their objects go, what is left of it reaches the token no
    /// more (CKR_CRYPTOKI_NOT_INITIALIZED), and the next one may open it. To be called whenever a member is killed.
    pub fn reboot(&self) {
        let mut state = self.state.lock();
        state.life += 1;
        state.module = None;
        state.objects.end_sessions();
    }

    /// The token's door, for the process that lives now.
    pub(super) fn module(self: &Arc<Self>) -> &'static Module {
        let mut state = self.state.lock();
        let life = state.life;
        state.module.get_or_insert_with(|| {
            Box::leak(Box::new(Module::Model(session::ModelModule::new(self.clone(), life))))
        })
    }

    /// The index in the file of keys of the first of its two.
    fn pairs(&self) -> usize {
        usize::from(self.number) * 2
    }
}

impl PartialEq for ModelToken {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for ModelToken {}

impl fmt::Debug for ModelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ModelToken({})", self.number)
    }
}

/// The longest secret that it makes.
const SECRET_MAX_BYTES: usize = limits::SECRET_MAX_BYTES;
