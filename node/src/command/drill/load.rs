//! The drill's load: a throw-away key signs, others are made and deleted.

use super::{create, delete};
use crate::caller::{Ask, Caller};
use crate::command::uses::Job;
use crate::exit::{Exit, Problem};
use crate::mechanism::Named;
use crate::text::public_key_of;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use keyraft_engine::clock::Clock;
use keyraft_engine::domain::{AttributeType, AttributeValue, KeyAlgorithm, ObjectClass, ObjectId};
use keyraft_engine::wire::{GroupStatus, ObjectRow, UseKind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// Between two operations of one caller.
const PAUSE: Duration = Duration::from_millis(5);
/// An operation that takes longer was late: it was lost once and done again.
const LATE: Duration = Duration::from_secs(1);
/// What is signed.
const DATA: &[u8] = b"what keyraft drill signs";

/// What one caller, or several, saw of their operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tally {
    pub done: u64,
    pub late: u64,
    pub lost: u64,
    /// The longest time from one success to the next of the same caller.
    pub longest_pause: Duration,
    /// What the first lost one was told.
    pub first_loss: Option<String>,
    last: Instant,
}

impl Tally {
    pub fn begun(at: Instant) -> Self {
        Self { done: 0, late: 0, lost: 0, longest_pause: Duration::ZERO, first_loss: None, last: at }
    }

    fn note(&mut self, began: Instant, now: Instant, done: Result<(), String>) {
        match done {
            Ok(()) => {
                self.done += 1;
                self.late += u64::from(now.saturating_duration_since(began) > LATE);
                self.longest_pause = self.longest_pause.max(now.saturating_duration_since(self.last));
                self.last = now;
            }
            Err(why) => {
                self.lost += 1;
                self.first_loss.get_or_insert(why);
            }
        }
    }

    /// Both together.
    pub fn with(self, other: Self) -> Self {
        Self {
            done: self.done + other.done,
            late: self.late + other.late,
            lost: self.lost + other.lost,
            longest_pause: self.longest_pause.max(other.longest_pause),
            first_loss: self.first_loss.or(other.first_loss),
            last: self.last.max(other.last),
        }
    }
}

/// What runs until the end, or until it is stopped.
pub(super) struct Load<'a> {
    ask: &'a dyn Ask,
    limit: Duration,
    end: Instant,
    key: ObjectId,
    public: Vec<u8>,
    stopped: AtomicBool,
    signed: AtomicU64,
    changed: AtomicU64,
}

impl<'a> Load<'a> {
    pub fn new(ask: &'a dyn Ask, limit: Duration, end: Instant, pair: &[ObjectRow]) -> Result<Self, Problem> {
        let half = |class| pair.iter().find(|row| row.class == class);
        let public = half(ObjectClass::PublicKey).and_then(|row| {
            match row.attributes.get(&AttributeType::PUBLIC_KEY_INFO) {
                Some(AttributeValue::Bytes(spki)) => public_key_of(spki).map(<[u8]>::to_vec),
                _ => None,
            }
        });
        let (Some(private), Some(public)) = (half(ObjectClass::PrivateKey), public) else {
            return Err(Problem::new(Exit::Unexpected, "the drill's key came without its halves", ""));
        };
        Ok(Self {
            ask,
            limit,
            end,
            key: private.object,
            public,
            stopped: AtomicBool::new(false),
            signed: AtomicU64::new(0),
            changed: AtomicU64::new(0),
        })
    }

    /// Ends it early.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub fn goes_on(&self) -> bool {
        Clock.now() < self.end && !self.stopped.load(Ordering::Relaxed)
    }

    /// How far it is, for people.
    pub fn words(&self) -> String {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        format!("{} signatures, {} keys made and deleted", of(&self.signed), of(&self.changed))
    }

    /// Signs on and on; every signature is verified outside the group.
    pub async fn sign(&self) -> Tally {
        let mut tally = Tally::begun(Clock.now());
        while self.goes_on() {
            let began = Clock.now();
            let done = self.sign_once().await;
            tally.note(began, Clock.now(), done);
            self.signed.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(PAUSE).await;
        }
        tally
    }

    async fn sign_once(&self) -> Result<(), String> {
        let job = Job {
            object: self.key,
            kind: UseKind::Sign,
            mechanism: Named::EcdsaSha256.mechanism(&[], &[]),
            data: Zeroizing::new(Named::EcdsaSha256.prepare(DATA.to_vec())),
            at: None,
        };
        let (signature, by) = job.run(self.ask, self.limit).await.map_err(|problem| problem.what)?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &self.public)
            .verify(DATA, &signature)
            .map_err(|_| format!("a signature of {by} is wrong"))
    }

    /// Makes a key and deletes it, on and on.
    pub async fn change(&self, label: &str, before: &GroupStatus) -> Result<Tally, Problem> {
        let mut caller = Caller::born(self.ask, self.limit, before.applied)?;
        let mut tally = Tally::begun(Clock.now());
        while self.goes_on() {
            let began = Clock.now();
            let made = create(&mut caller, KeyAlgorithm::Aes { bits: 256 }, label).await;
            let objects = made.as_ref().map(|rows| rows.iter().map(|row| row.object).collect::<Vec<_>>());
            tally.note(began, Clock.now(), made.as_ref().map(|_| ()).map_err(|problem| problem.what.clone()));
            if let Ok(objects) = objects {
                let began = Clock.now();
                let gone = delete(&mut caller, &objects).await;
                tally.note(began, Clock.now(), gone.map_err(|problem| problem.what));
            }
            self.changed.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(PAUSE).await;
        }
        Ok(tally)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_run_from_success_to_success() {
        let start = Clock.now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut one = Tally::begun(start);
        one.note(at(0), at(100), Ok(()));
        one.note(at(100), at(900), Err("no quorum".into()));
        one.note(at(900), at(2_000), Ok(()));
        let both = one.with(Tally::begun(start));
        assert_eq!((both.done, both.late, both.lost), (2, 1, 1));
        assert_eq!(both.longest_pause, Duration::from_millis(1_900));
        assert_eq!(both.first_loss.as_deref(), Some("no quorum"));
    }
}
