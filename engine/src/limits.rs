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
/// How long an answer that something has gone waits for the end of its deletion, in a group that fences: the longest lease
/// and the time a token may take, with room.
pub const DELETION_PATIENCE: Duration = Duration::from_secs(8);
/// How long a call waits for a member that does not show yet what its application has seen, before another is asked.
pub const SEEN_PATIENCE: Duration = Duration::from_millis(200);
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
/// Times its limit that a job may be at a token from which others return meanwhile: as many as are there at once, since
/// some tokens do one thing at a time.
pub const TOKEN_TURNS_MAX: u32 = 8;
/// Jobs that may begin later than one that is past its limit, and return before it.
pub const TOKEN_OVERTAKEN_MAX: u32 = 64;

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
/// How long a use that names a member waits for a token that has just been opened: less than any caller's attempt.
pub const WARM_UP_WAIT: Duration = Duration::from_millis(600);
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

// Standbys and recovery.

/// How often a standby looks whether an active member serves.
pub const STANDBY_LOOK: Duration = Duration::from_millis(100);
/// Tries to take a member back, at most, before an operator has to ask for it.
pub const AUTO_RECOVERY_RETRIES_MAX: i32 = 500;
/// Pause between two tries to take a member back, unless the group says otherwise, seconds.
pub const AUTO_RECOVERY_INTERVAL_SECONDS: u32 = 1;
/// The longest of these pauses, seconds.
pub const AUTO_RECOVERY_INTERVAL_MAX_SECONDS: u32 = 86_400;
/// Comparisons of everything that wait for a member's reconciler.
pub const COMPARISONS_MAX: usize = 8;
/// How long `synchronize` waits for one member's comparison.
pub const COMPARISON: Duration = Duration::from_secs(15);
/// The rows of one comparison, bytes.
pub const COMPARISON_MAX_BYTES: usize = 2 * 1024 * 1024;
// Who leads, and who votes.
/// The priority of a member that nobody gave one; the lowest leads.
pub const PRIORITY_DEFAULT: u8 = 128;
/// The widest margin within which uptimes count as equal, seconds: a day.
pub const UPTIME_MARGIN_MAX_SECONDS: u32 = 86_400;
/// Network interfaces that a member may monitor.
pub const INTERFACES_MAX: usize = 32;
/// What a member's data folder must have free for it to be fit to lead, bytes.
pub const DISK_FREE_MIN_BYTES: u64 = 16 * 1024 * 1024;
/// How long a candidate must be better than the primary before that hands over to it.
pub const STEER_STEADY: Duration = Duration::from_secs(3);
/// By how much longer another candidate must have been up for the primary to hand over for that.
pub const STEER_BIAS: Duration = Duration::from_secs(1);
/// The pause between two hand-overs that a primary makes by itself.
pub const STEER_PAUSE: Duration = Duration::from_secs(30);
/// Silence after which a voter's vote goes to a learner, if there is one.
pub const VOTER_LOST: Duration = Duration::from_secs(30);
/// How much later each further candidate stands when the primary's process is gone.
pub const SUCCESSION_STEP: Duration = Duration::from_millis(30);
/// The pause between two candidacies of one member for the place of a primary whose process is gone.
pub const SUCCESSION_PAUSE: Duration = Duration::from_millis(25);
/// Candidacies of one member for such a place; then Raft's own timers go on.
pub const SUCCESSION_TRIES: u32 = 12;
/// Tries to find out whether a member whose connection broke still listens.
pub const LOST_PROBES: u32 = 4;

// A token that is sick, and the process that restarts a member whose token's library is.

/// Tries of an import that all end with a number that a broken device returns as well, until it counts as refused.
pub const REFUSALS_MIN: u32 = 3;
/// How often the jobs at a token are looked at for one that hangs.
pub const TOKEN_LOOK_EVERY: Duration = Duration::from_millis(200);
/// Looking at everything in a token.
pub const TOKEN_SEARCH: Duration = Duration::from_secs(120);
/// A token's job past its limit that has not returned for so long never will: the member's process is started anew.
pub const TOKEN_HANG_MAX: Duration = Duration::from_secs(20);
/// A token that answers, but has forgotten this process's login for so long, is opened anew by a new process.
pub const TOKEN_FORGETFUL_MAX: Duration = Duration::from_secs(5);
/// Pause before a member's process that crashed is started again; doubled by each further crash.
pub const RESTART_MIN: Duration = Duration::from_millis(100);
/// The longest pause between two starts of a member's process.
pub const RESTART_MAX: Duration = Duration::from_secs(30);
/// A member's process that has run for so long has not crashed at its start: pauses begin at their least again.
pub const RESTART_CALM: Duration = Duration::from_secs(60);
/// How long a starting member waits for the data folder that an ending one still holds.
pub const FOLDER_PATIENCE: Duration = Duration::from_secs(3);
/// A process that is to be started anew ends by force if it has not ended after this.
pub const END_GRACE: Duration = Duration::from_secs(2);

// Applications choosing among members, and noticing the loss of one.

/// Heartbeats that a member may miss before it counts as dead.
pub const HEARTBEATS_LOST: u32 = 3;
/// How often the calls under way are looked through for those whose callers must hear that the member lives.
pub const WORKING_LOOK: Duration = Duration::from_millis(100);
/// A member that owes answers and is quiet for this long is asked after others.
pub const SUSPECT_AFTER: Duration = Duration::from_millis(450);
/// How long a member whose connections broke is left alone; doubled each time.
pub const GONE_MIN: Duration = Duration::from_millis(100);
/// The most of that.
pub const GONE_MAX: Duration = Duration::from_secs(2);
/// How long a member that fell silent is left alone; doubled each time.
pub const SILENT_MIN: Duration = Duration::from_secs(1);
/// The most of that.
pub const SILENT_MAX: Duration = Duration::from_secs(10);
/// How long a member with errors or slow answers is left alone; doubled each time.
pub const JUDGED_MIN: Duration = Duration::from_secs(1);
/// The most of that.
pub const JUDGED_MAX: Duration = Duration::from_secs(5);
/// The same of every member while none is fit.
pub const ALONE_PAUSE: Duration = Duration::from_millis(100);
/// Whoever tries a member that was out, and has not told how it went for so long, has gone.
pub const TRY_LEASE: Duration = Duration::from_secs(5);
/// How long the first try of a member waits for its greeting once it must wait; each further one so much longer.
pub const TRY_STEP: Duration = Duration::from_millis(300);
/// How often somebody looks whether a member that is tried has answered.
pub const TRY_LOOK: Duration = Duration::from_millis(10);
/// How long a member that came back takes to get its whole share.
pub const SLOW_START: Duration = Duration::from_secs(5);
/// The share that it begins with, of 1.
pub const SLOW_START_SHARE: f64 = 0.1;
/// A member that stayed for so long after a return is left alone for the shortest time again.
pub const STAYED: Duration = Duration::from_secs(60);
/// How long a member is passed over that said it does not serve; doubled each time.
pub const REST_MIN: Duration = Duration::from_millis(100);
/// The most of that.
pub const REST_MAX: Duration = Duration::from_secs(1);
/// Failures in a row after which a member is put out; a late answer counts for half of them.
pub const FAILURES_MAX: u32 = 5;
/// Slow answers in a row after which a member is put out.
pub const SLOW_ANSWERS: u32 = 3;
/// So long they must go on.
pub const SLOW_SPAN: Duration = Duration::from_millis(250);
/// An answer is slow that takes so many times what is usual elsewhere,
pub const SLOW_FACTOR: f64 = 3.0;
/// and this besides.
pub const SLOW_MARGIN: Duration = Duration::from_millis(5);
/// How long a measured time is remembered: in this time it loses two thirds of its weight.
pub const ESTIMATE_DECAY: Duration = Duration::from_secs(10);
/// Second tries on living members that are always left, a second.
pub const SECOND_TRIES_PER_SECOND: f64 = 10.0;
/// And so many for each call.
pub const SECOND_TRIES_PER_CALL: f64 = 0.2;
/// Second tries that may be saved up.
pub const SECOND_TRIES_MAX: f64 = 100.0;
/// The highest weight of a member.
pub const WEIGHT_MAX: u32 = 1000;

// Isolation: the fence's leases, and histories begun by force.

/// How often a member of a group that fences asks the primary for a lease.
pub const LEASE_PING: Duration = Duration::from_millis(200);
/// How long a member may use keys after it sent a ping that was answered, by its own clock.
pub const LEASE: Duration = Duration::from_millis(1000);
/// How long a primary counts with a lease that it gave, by its own clock: a tenth more than it lasts, which is what the
/// rates of two machines' clocks may differ by.
pub const LEASE_WAIT: Duration = Duration::from_millis(1100);
/// One ping, until its answer.
pub const LEASE_ANSWER: Duration = Duration::from_millis(500);
/// How long `option set isolated_service fence` waits until every member has confirmed it.
pub const FENCE_CONFIRM: Duration = Duration::from_secs(5);
/// Log indexes and object ids that a history begun by force leaves out: the lost members may have used them.
pub const FORCED_GAP: u64 = 1 << 20;
/// Member ids that a history begun by force leaves out.
pub const FORCED_MEMBER_GAP: u64 = 1000;
/// Keys that `force-quorum` names as lacking.
pub const FORCED_NAMED_MAX: usize = 100;

// Changes on one member's own slot.

/// Objects that lie on one member alone, made on its own slot, until the next `synchronize`.
pub const DIRECT_OBJECTS_MAX: usize = 256;
/// Objects of the group that one member alone lacks, deleted on its own slot, until the next `synchronize`.
pub const DIRECT_DELETED_MAX: usize = 1024;
/// Deletions on a member's own slot that are remembered, so that a repeated one is answered like the first.
pub const DIRECT_ENDED_MAX: usize = 256;
/// The file that lists all of these, bytes.
pub const DIRECT_LIST_MAX_BYTES: usize = 16 * 1024 * 1024;

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

// The member's process.

/// Opening a token: its library's C_Initialize, the search for it, the login, the round trips of the probe.
pub const TOKEN_OPEN: Duration = Duration::from_secs(120);
