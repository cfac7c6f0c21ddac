//! The numbers of a member, as Prometheus reads them. Counters are atomic and made once, so that noting an operation
//! takes no lock and looks nothing up. Labels are bounded: the kinds and the verdicts of this file, nothing else.

use super::latency::Latency;
use prometheus_client::encoding::prometheus_text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::time::Duration;

/// What [`Metrics::text`] is, as HTTP names it.
pub const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

macro_rules! words {
    ($(#[$outer:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// In a word.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }
    };
}

words! {
    /// What an operation does.
    Kind {
        /// C_Sign and C_SignRecover.
        Sign = "sign",
        /// C_Verify and C_VerifyRecover.
        Verify = "verify",
        /// C_Encrypt.
        Encrypt = "encrypt",
        /// C_Decrypt.
        Decrypt = "decrypt",
        /// C_WrapKey.
        Wrap = "wrap",
        /// C_GenerateRandom.
        Random = "random",
        /// Makes a key by the token.
        Create = "create",
        /// Makes an object from what is there: by value, unwrapped, derived, copied.
        Import = "import",
        /// Changes an object's attributes.
        Change = "change",
        /// Deletes.
        Delete = "delete",
        /// Searches and lists.
        Find = "find",
        /// Reads one object.
        Read = "read",
        /// C_Login.
        Login = "login",
        /// PINs and tickets besides logins.
        Pin = "pin",
        /// What the slot and its token are.
        Info = "info",
        /// What operators change: members, options, invitations, clients, the primary.
        Admin = "admin",
    }
}

words! {
    /// How an operation ended.
    Verdict {
        /// Done.
        Ok = "ok",
        /// It would fail again, anywhere.
        Refused = "refused",
        /// The same again, later.
        TryAgain = "try_again",
        /// The same at another member.
        Elsewhere = "elsewhere",
    }
}

type Words = [(&'static str, &'static str); 1];
type TwoWords = [(&'static str, &'static str); 2];

/// What is true at this moment; whoever asks for the text gives it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Members on the roster.
    pub members: u64,
    /// In-sync ones among them.
    pub in_sync: u64,
    /// This member is the primary.
    pub is_primary: bool,
    /// This member may use keys.
    pub serves: bool,
    /// Its token works.
    pub token_healthy: bool,
    /// Raft's term.
    pub term: u64,
    /// The last applied entry.
    pub applied: u64,
    /// Settled objects.
    pub objects: u64,
    /// Pending and removing ones.
    pub unsettled: u64,
    /// Jobs that wait for the token's threads.
    pub token_queue: u64,
    /// Calls on the token since the start.
    pub token_calls: u64,
}

/// The numbers of one member.
pub struct Metrics {
    registry: Registry,
    operations: Vec<Vec<Counter>>,
    latency: Vec<Latency>,
    pending: Gauge,
    tries: Counter,
    logins_failed: Counter,
    failovers: Counter,
    imports: [Counter; 2],
    gauges: Gauges,
    token_calls: Counter,
}

#[derive(Default)]
struct Gauges {
    members: Gauge,
    in_sync: Gauge,
    is_primary: Gauge,
    serves: Gauge,
    token_healthy: Gauge,
    term: Gauge,
    applied: Gauge,
    objects: Gauge,
    unsettled: Gauge,
    token_queue: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Every number at zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("keyraft");
        let operations = Family::<TwoWords, Counter>::default();
        let latency = Family::<Words, Latency>::default();
        let imports = Family::<Words, Counter>::default();
        let result = |word| imports.get_or_create_owned(&[("result", word)]);
        let metrics = Self {
            operations: Kind::ALL
                .iter()
                .map(|kind| {
                    let of = |verdict: &Verdict| {
                        operations.get_or_create_owned(&[("kind", kind.word()), ("result", verdict.word())])
                    };
                    Verdict::ALL.iter().map(of).collect()
                })
                .collect(),
            latency: Kind::ALL
                .iter()
                .map(|kind| latency.get_or_create_owned(&[("kind", kind.word())]))
                .collect(),
            pending: Gauge::default(),
            tries: Counter::default(),
            logins_failed: Counter::default(),
            failovers: Counter::default(),
            imports: [result("ok"), result("failed")],
            gauges: Gauges::default(),
            token_calls: Counter::default(),
            registry: Registry::default(),
        };
        registry.register("operations", "Operations of clients that this member answered", operations);
        registry.register(
            "operation_seconds",
            "Time from an operation's arrival at this member to its answer",
            latency,
        );
        registry.register("imports", "Keys that this member's token imported, or did not", imports);
        metrics.register_single(&mut registry);
        Self { registry, ..metrics }
    }

    fn register_single(&self, registry: &mut Registry) {
        let counters = [
            ("tries", "Operations that were a second or later try of the same call", &self.tries),
            ("logins_failed", "Logins that were refused here", &self.logins_failed),
            ("failovers", "Changes of the primary that this member has seen", &self.failovers),
            ("token_calls", "Jobs that the token was given", &self.token_calls),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        let now = &self.gauges;
        let gauges = [
            ("operations_pending", "Operations under way at this member", &self.pending),
            ("members", "Members on the roster", &now.members),
            ("members_in_sync", "Members that are in sync", &now.in_sync),
            ("is_primary", "1 if this member is the primary", &now.is_primary),
            ("serving", "1 if this member may use keys", &now.serves),
            ("token_healthy", "1 if this member's token works", &now.token_healthy),
            ("term", "Raft's term", &now.term),
            ("applied_index", "The last log entry that is applied here", &now.applied),
            ("objects", "Objects that the group has settled", &now.objects),
            ("objects_unsettled", "Objects that are being created or deleted", &now.unsettled),
            ("token_queue", "Jobs that wait for the token's threads", &now.token_queue),
        ];
        for (name, help, gauge) in gauges {
            registry.register(name, help, gauge.clone());
        }
    }

    /// An operation begins; it counts as pending until the guard is dropped.
    pub fn begin(&self) -> Pending<'_> {
        self.pending.inc();
        Pending(&self.pending)
    }

    /// An operation has ended.
    pub fn ended(&self, kind: Kind, verdict: Verdict, took: Duration) {
        self.operations[kind as usize][verdict as usize].inc();
        self.latency[kind as usize].observe(took);
        if kind == Kind::Login && verdict == Verdict::Refused {
            self.logins_failed.inc();
        }
    }

    /// An operation is a second or later try.
    pub fn tried_again(&self) {
        self.tries.inc();
    }

    /// The primary has changed.
    pub fn failed_over(&self) {
        self.failovers.inc();
    }

    /// One key was imported, or could not be.
    pub fn imported(&self, done: bool) {
        self.imports[usize::from(!done)].inc();
    }

    /// Operations that have ended since the start.
    pub fn operations(&self) -> u64 {
        self.operations.iter().flatten().map(Counter::get).sum()
    }

    /// Operations under way.
    pub fn pending(&self) -> u64 {
        u64::try_from(self.pending.get()).unwrap_or(0)
    }

    /// Everything, in Prometheus' text format. An error, which no String should give, leaves half a page.
    pub fn text(&self, moment: &Moment) -> Result<String, std::fmt::Error> {
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let now = &self.gauges;
        now.members.set(number(moment.members));
        now.in_sync.set(number(moment.in_sync));
        now.is_primary.set(i64::from(moment.is_primary));
        now.serves.set(i64::from(moment.serves));
        now.token_healthy.set(i64::from(moment.token_healthy));
        now.term.set(number(moment.term));
        now.applied.set(number(moment.applied));
        now.objects.set(number(moment.objects));
        now.unsettled.set(number(moment.unsettled));
        now.token_queue.set(number(moment.token_queue));
        self.token_calls.inc_by(moment.token_calls.saturating_sub(self.token_calls.get()));
        let mut text = String::new();
        prometheus_text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// One operation under way.
pub struct Pending<'a>(&'a Gauge);

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_move_and_are_told() {
        let metrics = Metrics::new();
        let pending = metrics.begin();
        assert_eq!(metrics.pending(), 1);
        metrics.ended(Kind::Sign, Verdict::Ok, Duration::from_micros(300));
        metrics.ended(Kind::Login, Verdict::Refused, Duration::from_secs(60));
        metrics.imported(false);
        drop(pending);
        assert_eq!((metrics.operations(), metrics.pending()), (2, 0));
        let moment = Moment { in_sync: 3, is_primary: true, token_calls: 7, ..Moment::default() };
        metrics.text(&moment).expect("encodes");
        let text = metrics.text(&moment).expect("encodes");
        for line in [
            "keyraft_operations_total{kind=\"sign\",result=\"ok\"} 1",
            "keyraft_operations_total{kind=\"wrap\",result=\"elsewhere\"} 0",
            "keyraft_operation_seconds_bucket{kind=\"sign\",le=\"0.00025\"} 0",
            "keyraft_operation_seconds_bucket{kind=\"sign\",le=\"0.0005\"} 1",
            "keyraft_operation_seconds_bucket{kind=\"login\",le=\"10\"} 0",
            "keyraft_operation_seconds_bucket{kind=\"login\",le=\"+Inf\"} 1",
            "keyraft_operation_seconds_sum{kind=\"sign\"} 0.0003",
            "keyraft_logins_failed_total 1",
            "keyraft_imports_total{result=\"failed\"} 1",
            "keyraft_members_in_sync 3",
            "keyraft_is_primary 1",
            "keyraft_token_calls_total 7",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn words_stand_in_order() {
        assert!(Kind::ALL.iter().enumerate().all(|(at, kind)| *kind as usize == at));
        assert!(Verdict::ALL.iter().enumerate().all(|(at, verdict)| *verdict as usize == at));
    }
}
