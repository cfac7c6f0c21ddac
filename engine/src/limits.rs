//! Every bound of the system, in one place: each queue, retry, buffer, wait and count has its name here.
//! The unit is the last word of a name.

use std::time::Duration;

/// Members in a group (DESIGN: 1 to 32).
pub const MEMBERS_MAX: usize = 32;
/// Voters among them; further members are learners.
pub const VOTERS_MAX: usize = 7;
/// Object ids reserved by one log entry.
pub const ID_BLOCK_COUNT: u64 = 256;
/// Objects that one request may create (a key pair is two).
pub const OBJECTS_PER_REQUEST_MAX: usize = 2;
/// Settlements that one log entry may carry.
pub const SETTLEMENTS_PER_ENTRY_MAX: usize = 256;
/// Clients whose outcomes the request table remembers.
pub const CLIENTS_MAX: usize = 4096;
/// Outcomes remembered for one client above its watermark.
pub const OUTCOMES_PER_CLIENT_MAX: usize = 1024;
/// Invitations that may be open at once.
pub const INVITES_MAX: usize = 64;
/// Life of an invitation unless `invite` says otherwise, seconds.
pub const INVITE_LIFE_SECONDS: u64 = 3600;

/// One label, name or reason, bytes.
pub const TEXT_MAX_BYTES: usize = 256;
/// One attribute value, bytes.
pub const ATTRIBUTE_MAX_BYTES: usize = 64 * 1024;
/// Attributes of one object.
pub const ATTRIBUTES_MAX: usize = 128;
/// One wrapped key, bytes (an RSA-4096 private key takes 2,384).
pub const WRAPPED_KEY_MAX_BYTES: usize = 16 * 1024;
/// One sealed envelope, bytes.
pub const ENVELOPE_MAX_BYTES: usize = 256 * 1024;
/// Length of a generic secret, bytes.
pub const SECRET_MAX_BYTES: usize = 1024;
/// Data handed to one single-part operation, bytes.
pub const OPERATION_DATA_MAX_BYTES: usize = 1024 * 1024;

/// One frame on a connection, header included, bytes.
pub const FRAME_MAX_BYTES: usize = 4 * 1024 * 1024;
/// One frame of a caller that has not proved who it is, bytes.
pub const FRAME_UNPROVEN_MAX_BYTES: usize = 64 * 1024;
/// Requests in flight on one connection.
pub const IN_FLIGHT_MAX: usize = 1024;
/// Connections accepted at once on each listener.
pub const CONNECTIONS_MAX: usize = 1024;
/// One chunk of a streamed snapshot, bytes.
pub const SNAPSHOT_CHUNK_MAX_BYTES: usize = 512 * 1024;
/// The index part of a snapshot (everything but envelopes), bytes.
pub const SNAPSHOT_STATE_MAX_BYTES: usize = 1024 * 1024 * 1024;
/// Rows answered by one list or coverage call.
pub const ROWS_MAX: usize = 10_000;

/// Applied entries between two snapshots.
pub const SNAPSHOT_EVERY_ENTRIES: u64 = 20_000;
/// Applied entries kept in the log behind a snapshot, for members that are a little late.
pub const LOG_KEPT_ENTRIES: u64 = 5_000;

/// Jobs that wait for a token's threads.
pub const TOKEN_QUEUE_MAX: usize = 1024;
/// Threads (each owning a session) of one token.
pub const TOKEN_THREADS: usize = 4;

/// One attempt of an operation on one member.
pub const ATTEMPT: Duration = Duration::from_secs(2);
/// One attempt at generating a key.
pub const GENERATE_ATTEMPT: Duration = Duration::from_secs(15);
/// A member's time to import one object before it counts as unreachable or its token as failed.
pub const IMPORT: Duration = Duration::from_secs(5);
/// The overall deadline of a caller's operation.
pub const OVERALL: Duration = Duration::from_secs(20);
/// Establishing a connection, handshake included.
pub const CONNECT: Duration = Duration::from_secs(2);
/// Raft's heartbeat.
pub const RAFT_HEARTBEAT: Duration = Duration::from_millis(50);
/// Raft's election timeout, lower bound.
pub const ELECTION_MIN: Duration = Duration::from_millis(150);
/// Raft's election timeout, upper bound.
pub const ELECTION_MAX: Duration = Duration::from_millis(300);
/// How often a token's canary key is used.
pub const CANARY_EVERY: Duration = Duration::from_secs(1);
/// How long a canary may take before its token counts as failed.
pub const CANARY_LIMIT: Duration = Duration::from_secs(5);
/// After a start a member without a leader serves its local keys only after this grace.
pub const ISOLATION_GRACE: Duration = Duration::from_secs(3);
