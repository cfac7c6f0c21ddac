//! Every bound of the harness by name, unit last.

use std::time::Duration;

/// A history file longer than this is refused, bytes.
pub const FILE_MAX_BYTES: u64 = 256 * 1024 * 1024;
/// Events of one history.
pub const EVENTS_MAX: usize = 2_000_000;
/// Brackets within brackets of one value.
pub const DEPTH_MAX: usize = 32;
/// Steps that one verdict may take, over all keys of a history; past it the verdict is `unknown`.
pub const STEPS_MAX: u64 = 50_000_000;
/// What the cache of one key's search may take; past it the verdict is `unknown`, bytes.
pub const CACHE_MAX_BYTES: usize = 1024 * 1024 * 1024;

/// Members of a group under test.
pub const MEMBERS_MAX: usize = 9;
/// Clients of a run.
pub const CLIENTS_MAX: usize = 64;
/// How long one command of a member may take: it generates keys, joins, starts.
pub const COMMAND: Duration = Duration::from_secs(60);
/// After the last heal of a round every member must be in sync again within this time.
pub const WHOLE: Duration = Duration::from_secs(60);
/// Within this time of the end of a run every client must have its last answer.
pub const LAST_ANSWER: Duration = Duration::from_secs(30);
/// A call of the module fails after this, milliseconds: shorter than its default, so that a run sees many outcomes.
pub const CALL_MS: u64 = 5_000;
/// Packets that wait in the switch because links are slow; more are lost.
pub const LATE_PACKETS_MAX: usize = 20_000;
/// Connections that are listened to at one time for keys in clear.
pub const FLOWS_MAX: usize = 4_096;
/// Leaks that are told one by one.
pub const LEAKS_MAX: usize = 20;
/// Seconds that papers name or count by; a longer history has its times from elsewhere.
pub const DRAWN_SECONDS_MAX: usize = 86_400;
/// Between two looks at every member.
pub const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long a look at one member may take.
pub const LOOK: Duration = Duration::from_secs(1);
/// How long the last look at one key at one member may take, with its repetitions.
pub const LAST_LOOK: Duration = Duration::from_secs(30);
/// After the last call's end the group comes to rest within this: a member carries what a client gave up for as long as
/// [`keyraft_engine::limits::OVERALL`].
pub const REST: Duration = Duration::from_secs(30);
