//! Known mistakes, one of which a test can switch on when a member starts: a fault test that does not notice it proves
//! nothing. Compiled out unless the feature `test-hooks` is on.

macro_rules! mutants {
    ($(#[doc = $what:literal] $name:ident = $word:literal;)*) => {
        /// A known mistake. Each stands at one place of the code, which asks [`is_on`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutant { $(#[doc = $what] $name,)* }

        impl Mutant {
            /// Every one.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its name, as $KEYRAFT_MUTANT has it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// What it does wrong, for people.
            pub const fn mistake(self) -> &'static str {
                match self { $(Self::$name => $what.trim_ascii(),)* }
            }
        }
    };
}

mutants! {
    /// A write is acknowledged before the disk has it: a power cut takes back what was answered.
    AcknowledgeBeforeFsync = "acknowledge-before-fsync";
    /// The log forgets which entries it has purged: after a restart it does not know where it begins.
    ForgetLastPurged = "forget-last-purged";
    /// A vote that was given is not kept: after a restart a member votes a second time in one term.
    ForgetTheVote = "forget-the-vote";
    /// Votes before an election are taken for given without asking: a member that is cut off pushes the term up.
    PreVoteGrants = "pre-vote-grants";
    /// A search does not wait for what was answered before it: it shows a state of the past.
    SkipReadBarrier = "skip-read-barrier";
    /// The table of requests is ignored: a repeated request happens again.
    ApplyTwice = "apply-twice";
    /// A member that is still on its way counts as in sync: keys that were answered before are not on it.
    CountALearner = "count-a-learner";
    /// Reserving ids does not use them up: the next primary gives new keys the ids of old ones.
    ReuseAnId = "reuse-an-id";
    /// A new primary goes on with the block of ids that the last one reserved, from its beginning.
    ReuseAReservedBlock = "reuse-a-reserved-block";
    /// A creation is settled once one member holds the key: the others may not be able to use it yet.
    AnswerBeforeInSyncHolds = "answer-before-in-sync-holds";
    /// A creation is answered once it is in the log: a token may still refuse it, and nobody finds it yet.
    AnswerBeforeSettle = "answer-before-settle";
    /// Objects that the state does not name are destroyed before the group has confirmed that state.
    DestroyOnUnconfirmedState = "destroy-on-unconfirmed-state";
    /// A deletion counts as carried out while the token still holds the key.
    KeepStaleCopy = "keep-stale-copy";
    /// In a group that fences keys are used without a lease.
    ServeWithoutALease = "serve-without-a-lease";
    /// A new primary leaves alone what was pending when it came.
    ResumeNothing = "resume-nothing";
}

/// True if this mistake is switched on.
#[cfg(not(feature = "test-hooks"))]
#[inline(always)]
pub const fn is_on(_mutant: Mutant) -> bool {
    false
}

#[cfg(feature = "test-hooks")]
pub use chosen::{Tried, is_on};

#[cfg(feature = "test-hooks")]
mod chosen {
    use super::Mutant;
    use crate::telemetry::Event;
    use std::cell::Cell;
    use std::io::Write;
    use std::sync::OnceLock;

    /// Names the mistake, one of [`Mutant::name`].
    const CHOICE: &str = "KEYRAFT_MUTANT";

    thread_local! {
        static TRIED: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Switches a mistake on for the thread that made this, until it is dropped.
    #[derive(Debug)]
    pub struct Tried(());

    impl Tried {
        /// From now on.
        pub fn begin(mutant: Mutant) -> Self {
            TRIED.set(Some(mutant));
            Self(())
        }
    }

    impl Drop for Tried {
        fn drop(&mut self) {
            TRIED.set(None);
        }
    }

    /// True if this mistake is switched on: for this process by $KEYRAFT_MUTANT, which is read once, or for this thread
    /// by [`Tried`]. A name that nobody knows ends the process.
    pub fn is_on(mutant: Mutant) -> bool {
        static CHOSEN: OnceLock<Option<Mutant>> = OnceLock::new();
        *CHOSEN.get_or_init(chosen) == Some(mutant) || TRIED.get() == Some(mutant)
    }

    fn chosen() -> Option<Mutant> {
        let wanted = std::env::var_os(CHOICE)?;
        let Some(mutant) = Mutant::ALL.iter().copied().find(|mutant| wanted == mutant.name()) else {
            let names: Vec<&str> = Mutant::ALL.iter().map(|mutant| mutant.name()).collect();
            let text = format!("{CHOICE} is {wanted:?}, which is none of: {}\n", names.join(", "));
            // Whoever starts this process wants to be told, whether it logs or not; it ends either way.
            let _ = std::io::stderr().write_all(text.as_bytes());
            std::process::abort();
        };
        let (name, mistake) = (mutant.name(), mutant.mistake());
        tracing::error!(
            code = Event::MutantOn.code(),
            name,
            mistake,
            "a mistake is switched on: never use this group's keys"
        );
        Some(mutant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_given_once() {
        let names: std::collections::BTreeSet<&str> =
            Mutant::ALL.iter().map(|mutant| mutant.name()).collect();
        assert_eq!(names.len(), Mutant::ALL.len());
        for mutant in Mutant::ALL {
            assert!(!is_on(*mutant), "{}", mutant.name());
            let mistake = mutant.mistake();
            assert!(mistake.ends_with('.') && !mistake.starts_with(' '), "'{mistake}'");
        }
    }

    #[cfg(feature = "test-hooks")]
    #[test]
    fn one_is_tried_by_one_thread_and_for_a_while() {
        let tried = Tried::begin(Mutant::ApplyTwice);
        assert!(is_on(Mutant::ApplyTwice) && !is_on(Mutant::ResumeNothing));
        std::thread::spawn(|| assert!(!is_on(Mutant::ApplyTwice))).join().expect("the thread ends well");
        drop(tried);
        assert!(!is_on(Mutant::ApplyTwice));
    }
}
