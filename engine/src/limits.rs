//! Every bound of the system, in one place: each queue, retry, buffer, wait and count has its name here.
//! The unit is the last word of a name.

use std::time::Duration;

/// Members in a group.
pub const MEMBERS_MAX: usize = 32;
/// Voters among them; further members are learners.
pub const VOTERS_MAX: usize = 7;
/// Object ids reserved by one log entry.
pub const ID_BLOCK_COUNT: u64 = 256;
/// Reserved and unused object ids kept for one primary; older ones lapse.
pub const RESERVED_IDS_MAX: usize = 1024;
/// Kinds of keys that a card may list.
pub const CARD_KINDS_MAX: usize = 64;
/// Mechanisms that a card may list.
pub const CARD_MECHANISMS_MAX: usize = 1024;
/// Objects that one request may create (a key pair is two).
pub const OBJECTS_PER_REQUEST_MAX: usize = 2;
/// Settlements that one log entry may carry.
pub const SETTLEMENTS_PER_ENTRY_MAX: usize = 256;
/// Clients whose outcomes the request table remembers.
pub const CLIENTS_MAX: usize = 4096;
/// Outcomes remembered for one client above its watermark.
pub const OUTCOMES_PER_CLIENT_MAX: usize = 1024;
/// Applications that may have a certificate.
pub const APPLICATIONS_MAX: usize = 1024;
/// The name of one of them, bytes.
pub const APPLICATION_NAME_MAX_BYTES: usize = 64;
/// Invitations that may be open at once.
pub const INVITES_MAX: usize = 64;
/// Life of an invitation unless `invite` says otherwise, seconds.
pub const INVITE_LIFE_SECONDS: u64 = 3600;

/// A cloning domain's secret, fewest bytes.
pub const DOMAIN_SECRET_MIN_BYTES: usize = 16;
/// A cloning domain's secret, most bytes.
pub const DOMAIN_SECRET_MAX_BYTES: usize = 4096;
/// One of the first three messages of the cloning handshake, bytes.
pub const HANDSHAKE_MESSAGE_MAX_BYTES: usize = 4096;
/// A token key's SubjectPublicKeyInfo (RSA-3072 takes 422), bytes.
pub const PUBLIC_KEY_MAX_BYTES: usize = 1024;
/// SMK generations that live at once.
pub const GENERATIONS_MAX: usize = 16;
/// The sealed delivery of the cloning handshake, bytes.
pub const DELIVERY_MAX_BYTES: usize = 32 * 1024;
/// Addresses that an invitation names.
pub const INVITATION_ADDRESSES_MAX: usize = 8;
/// An invitation as text, bytes.
pub const INVITATION_MAX_BYTES: usize = 4096;

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

/// Random bytes of one call.
pub const RANDOM_MAX_BYTES: usize = 64 * 1024;
/// Wrong PINs of one client until the PIN is locked for it.
pub const PIN_TRIES_MAX: u32 = 10;
/// Clients whose wrong PINs are counted at once; a further one takes the place of the longest idle that is not locked.
pub const PIN_CLIENTS_MAX: usize = 4096;
/// Wrong PINs of one client that a member without a quorum answers, until that client's right one.
pub const PIN_TRIES_ISOLATED_MAX: u32 = 3;
/// What the answer to a first wrong PIN waits; doubled by each further one.
pub const PIN_DELAY_MIN: Duration = Duration::from_millis(100);
/// The longest wait of the answer to a wrong PIN.
pub const PIN_DELAY_MAX: Duration = Duration::from_secs(3);
/// PINs that a member hashes at once, each in its own memory.
pub const PIN_HASHES_MAX: usize = 4;
/// How long a login looks for a quorum before a cut-off member answers it by itself.
pub const LOGIN_QUORUM_WAIT: Duration = Duration::from_secs(3);
/// Deletions under way at once while the virtual token is emptied.
pub const EMPTYING_MAX: usize = 32;
/// Life of a login ticket.
pub const TICKET_LIFE: Duration = Duration::from_secs(24 * 3600);
/// A PIN, fewest bytes.
pub const PIN_MIN_BYTES: usize = 4;
/// A PIN, most bytes.
pub const PIN_MAX_BYTES: usize = 255;
/// How long a search waits for a quorum before a member that may serve alone answers with what it has.
pub const FIND_PATIENCE: Duration = Duration::from_secs(1);
/// Handles of one answer to a search.
pub const FOUND_MAX: usize = 10_000;
/// Session objects of applications that a member keeps unwrapped in its token, the longest unused going first.
pub const SESSION_OBJECTS_MAX: usize = 1024;

/// One frame on a connection, header included, bytes.
pub const FRAME_MAX_BYTES: usize = 4 * 1024 * 1024;
/// One frame of a caller that has not proved who it is, bytes.
pub const FRAME_UNPROVEN_MAX_BYTES: usize = 64 * 1024;
/// Requests in flight on one connection.
pub const IN_FLIGHT_MAX: usize = 1024;
/// Connections accepted at once on each listener.
pub const CONNECTIONS_MAX: usize = 1024;
/// Connections at once on a listener whose callers have not proved who they are.
pub const CONNECTIONS_UNPROVEN_MAX: usize = 128;
/// Connections at once of applications that proved themselves by a certificate; they take nobody else's places.
pub const CONNECTIONS_APPLICATIONS_MAX: usize = 1024;
/// Frames that wait to be written on one connection.
pub const FRAME_QUEUE_MAX: usize = 64;
/// Frames are gathered up to this size before one write, bytes.
pub const WRITE_BATCH_BYTES: usize = 64 * 1024;
/// One chunk of a streamed snapshot, bytes.
pub const SNAPSHOT_CHUNK_MAX_BYTES: usize = 512 * 1024;
/// The index part of a snapshot (everything but envelopes), bytes.
pub const SNAPSHOT_STATE_MAX_BYTES: usize = 1024 * 1024 * 1024;
/// Rows answered by one list or coverage call.
pub const ROWS_MAX: usize = 10_000;

/// Entries of one AppendEntries.
pub const APPEND_ENTRIES_MAX: u64 = 128;
/// Entries of one AppendEntries, encoded, bytes; also the most that one entry may take.
pub const APPEND_MAX_BYTES: usize = 3 * 1024 * 1024;
/// One AppendEntries with entries, until the follower has them on its disk.
pub const APPEND: Duration = Duration::from_secs(1);
/// One chunk of a snapshot, until the receiver has taken it.
pub const SNAPSHOT_CHUNK: Duration = Duration::from_secs(5);
/// The end of a snapshot, until the receiver has it on its disk.
pub const SNAPSHOT_INSTALL: Duration = Duration::from_secs(60);
/// A half-received snapshot is dropped when its next chunk does not come for this long.
pub const SNAPSHOT_IDLE: Duration = Duration::from_secs(30);
/// Log entries that are applied and published in one step.
pub const APPLY_ENTRIES_MAX: usize = 1024;
/// Contents that are kept in one step while applying, bytes.
pub const APPLY_CONTENTS_MAX_BYTES: usize = 4 * 1024 * 1024;
/// Changed objects noted for the reconciler one by one; past this it compares everything.
pub const DIRTY_MAX: usize = 65_536;
/// Entries that a learner may be behind when it is made a voter.
pub const PROMOTE_LAG_MAX_ENTRIES: u64 = 256;
/// A planned hand-over of leadership.
pub const HAND_OVER: Duration = Duration::from_secs(2);
/// Calls that wait for Raft's core.
pub const RAFT_QUEUE_MAX: u64 = 4096;

/// Applied entries between two snapshots.
pub const SNAPSHOT_EVERY_ENTRIES: u64 = 20_000;
/// Applied entries kept in the log behind a snapshot, for members that are a little late.
pub const LOG_KEPT_ENTRIES: u64 = 5_000;

/// Jobs that wait for a token's threads.
pub const TOKEN_QUEUE_MAX: usize = 1024;
/// Threads (each owning a session) of one token.
pub const TOKEN_THREADS: usize = 4;

/// The longest pause after an import in which a token's keys are used undisturbed. Such a pause is made only while
/// keys are in use, and is no longer than the import was.
pub const IMPORT_PAUSE_MAX: Duration = Duration::from_millis(20);

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
/// How often a quiet connection is pinged, and a member's right to it looked at again.
pub const PING_EVERY: Duration = Duration::from_millis(500);
/// A TCP connection that stays silent for this long counts as dead: the peer's process hangs.
pub const SILENCE_MAX: Duration = Duration::from_secs(5);
/// A TCP connection whose peer acknowledges nothing for this long is dead: the peer's machine or the way is gone.
pub const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(2);
/// One write of a batch of frames; a peer that reads slower loses its connection.
pub const WRITE_MAX: Duration = Duration::from_secs(10);
/// Pause after a first failed try to connect; doubled by each further one.
pub const RECONNECT_MIN: Duration = Duration::from_millis(50);
/// The longest pause between two tries to connect.
pub const RECONNECT_MAX: Duration = Duration::from_millis(500);
/// Life of a connection whose caller has not proved who it is: long enough to join, too short to sit there.
pub const UNPROVEN_LIFE: Duration = Duration::from_secs(60);
/// What a stopping listener leaves to answers under way.
pub const CLOSE_GRACE: Duration = Duration::from_secs(1);
/// Pause of a listener that cannot accept (no file descriptors left).
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
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
/// How often members tell the primary how they are.
pub const MEMBER_HEARTBEAT: Duration = Duration::from_millis(300);
/// Silence after which a member counts as unreachable: three heartbeats.
pub const MEMBER_DEAD: Duration = Duration::from_millis(900);
/// Objects imported by one job of the token's threads.
pub const IMPORT_BATCH: usize = 64;
/// Entries that a member may lag behind and still be asked to enter the in-sync set.
pub const ENTER_LAG_ENTRIES: u64 = 1_000;
/// The pause between two tries of a change that may be tried again.
pub const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Joins under way at once.
pub const JOINS_MAX: usize = 16;
/// How often a changed object's way to the in-sync members is looked at.
pub const REPLACED_PAUSE: Duration = Duration::from_millis(5);
/// Times that a change is tried anew because another one came first.
pub const SUPERSEDED_TRIES: u32 = 8;
/// Times that a create is originated anew because the SMK's generation changed meanwhile.
pub const STALE_GENERATION_TRIES: u32 = 3;

// What a member tells of itself.

/// Operations of clients that a member remembers, for `explain`.
pub const EXPLAIN_MAX: usize = 4096;
/// Operations of one answer to `explain`.
pub const EXPLAIN_ROWS_MAX: u32 = 1_000;
/// How long a member is waited for when all are asked how they are.
pub const PULSE: Duration = Duration::from_millis(500);
/// How often a member looks at its own numbers, and at who is in sync.
pub const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Connections of monitors at once.
pub const MONITORS_MAX: usize = 16;
/// Life of a monitor's connection: the next scrape makes a new one.
pub const MONITOR_LIFE: Duration = Duration::from_secs(30);
