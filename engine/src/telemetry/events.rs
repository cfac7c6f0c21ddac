//! The events that a person may meet in the log. Each has a code that never changes its meaning and is never given to
//! another event; the log shows it in the field `code`. docs/EVENTS.md lists them for the person with the pager.

macro_rules! events {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)*) => {
        /// Something that happened and that the log tells. What it means and what to do stands in docs/EVENTS.md.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Event { $($(#[$doc])* $name,)* }

        impl Event {
            /// Every event, by rising code.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its code, such as `KR1001`.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => concat!("KR", $number),)* }
            }

            /// Its name, as docs/EVENTS.md has it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }
    };
}

// A code that was given out stays; add behind the last of its hundred.
events! {
    // 10: the primary and the log
    /// This member has become the primary.
    PrimaryHere = "1001";
    /// Another member has become the primary.
    PrimaryChanged = "1002";
    /// This member knows of no primary.
    PrimaryUnknown = "1003";
    /// A member's disk went back in time.
    DiskWentBack = "1004";
    /// Such a member was removed.
    MemberExpelled = "1005";
    /// A loop of the member ended by a fault.
    LoopEnded = "1006";
    /// Consensus did not end cleanly.
    ConsensusEndedBadly = "1007";
    /// Contents that nothing names stay on the disk for now.
    ContentsNotDropped = "1008";
    /// This group's history was begun by keyraft force-quorum on this member.
    HistoryForced = "1009";
    /// This primary has handed over to another member.
    HandedOver = "1010";

    // 11: members and the in-sync set
    /// A member is on its way into the in-sync set.
    EnteringInSync = "1101";
    /// A member has entered the in-sync set.
    EnteredInSync = "1102";
    /// A member has left the in-sync set.
    LeftInSync = "1103";
    /// A member takes part in the log.
    LogMemberAdded = "1104";
    /// A member takes part in the log no more.
    LogMemberRemoved = "1105";
    /// A member has a vote.
    VoterPromoted = "1106";
    /// The group has confirmed this member's state.
    StateConfirmed = "1107";
    /// This member imports many keys.
    CatchingUp = "1108";
    /// It has imported them.
    CaughtUp = "1109";
    /// One object could not be imported or dropped.
    ObjectNotReconciled = "1110";
    /// A full comparison that somebody asked for is done.
    SynchronizeDone = "1111";
    /// A change of the voters that an earlier primary began is finished.
    VotersFinished = "1112";
    /// A lost voter's vote goes to another member.
    VoterDemoted = "1113";
    /// No active member serves: this standby does.
    StandbyServes = "1114";
    /// An active member serves: this standby no longer does.
    StandbyWaits = "1115";
    /// What was changed on this member's own slot was undone or adopted.
    DirectChangesEnded = "1116";
    /// The group fences: keys are used under a lease alone.
    FenceBegan = "1117";
    /// That the group fences is not on this member's disk yet.
    FenceNotKept = "1118";

    // 12: tokens
    /// This member's token failed.
    TokenFailed = "1201";
    /// A member's token works again.
    TokenHealed = "1202";
    /// A member has a new token.
    TokenReplaced = "1203";
    /// Half-written objects were removed.
    HalfWrittenRemoved = "1204";
    /// A token that was never finished is removed.
    UnfinishedTokenRemoved = "1205";
    /// It could not be removed.
    UnfinishedTokenStays = "1206";
    /// A passing session object stays in the token.
    SessionObjectStays = "1207";
    /// The token hangs while it is closed.
    TokenLeftBehind = "1208";
    /// A copy of a deleted object stays in the token until the member ends.
    DirectCopyStays = "1209";

    // 13: who is let in
    /// A member was admitted.
    MemberAdmitted = "1301";
    /// A join was refused for its invitation.
    InvitationRefused = "1302";
    /// A join was refused in its handshake.
    HandshakeRefused = "1303";
    /// An application has a certificate.
    ClientCertified = "1304";
    /// A connection was refused for what it said of itself.
    ConnectionRefused = "1305";
    /// A connection was refused for its certificate.
    CertificateRefused = "1306";
    /// A connection was refused for its group's history.
    LineageRefused = "1307";

    // 14: logins
    /// A client's PIN is locked for it.
    LoginLocked = "1401";

    // 15: the disk
    /// The disk is full.
    DiskFull = "1501";
    /// The store stops.
    StoreStopped = "1502";
    /// The log's writer ended by a fault.
    LogWriterEnded = "1503";
    /// The marks were not written on closing.
    MarksNotWritten = "1504";
    /// The end of the log was cut off at a start.
    LogTailCut = "1505";
    /// The data folder has no room, is read-only or hangs: another member had better lead.
    DiskUnfit = "1506";

    // 16: connections
    /// Members and joiners cannot be served.
    ListenerFailed = "1601";
    /// Other users cannot use the socket.
    SocketUsersNotLetIn = "1602";
    /// Connections cannot be accepted for now.
    CannotAccept = "1603";
    /// A member cannot be reached.
    CannotConnect = "1604";
    /// A request's handler ended by a fault.
    HandlerEnded = "1605";
    /// An answer could not be put into a frame.
    AnswerNotSent = "1606";
    /// An application was turned away for want of a thread.
    NoThread = "1607";

    // 17: the process
    /// The member runs.
    MemberRunning = "1701";
    /// The member is ready.
    MemberReady = "1702";
    /// The member begins to stop.
    MemberStopping = "1703";
    /// The member has stopped.
    MemberStopped = "1704";
    /// A task of the member does not end.
    TaskLeftBehind = "1705";
    /// The check at the start notes something.
    CheckNoted = "1706";
    /// The check at the start found something wrong.
    CheckFailed = "1707";
    /// systemd could not be told.
    SystemdNotTold = "1708";
    /// Signals cannot be heard.
    SignalsNotHeard = "1709";
    /// The monitor's port is open.
    MonitorOpen = "1710";
    /// The monitor's port ended.
    MonitorEnded = "1711";
    /// The system starts no thread: a process that must end may not.
    NoEndThread = "1712";
    /// The member's process ended badly and is started again.
    MemberRestarted = "1713";
    /// A known mistake is switched on.
    MutantOn = "1714";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_rise_and_are_given_once() {
        let codes: Vec<&str> = Event::ALL.iter().map(|event| event.code()).collect();
        assert!(codes.windows(2).all(|pair| pair[0] < pair[1]), "{codes:?}");
        assert!(codes.iter().all(|code| code.len() == 6), "{codes:?}");
    }

    /// docs/EVENTS.md and the enum agree: code, name, and a line for each of what it means and what to do.
    #[test]
    fn the_table_is_the_enum() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/EVENTS.md");
        let text = std::fs::read_to_string(&path).expect("reads docs/EVENTS.md");
        let rows: Vec<Vec<&str>> = text
            .lines()
            .filter(|line| line.starts_with("| KR"))
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        let listed: Vec<(&str, &str)> = rows.iter().map(|row| (row[0], row[1])).collect();
        let known: Vec<(&str, &str)> = Event::ALL.iter().map(|e| (e.code(), e.name())).collect();
        assert_eq!(listed, known, "left: docs/EVENTS.md; right: the enum");
        for row in rows {
            assert_eq!(row.len(), 4, "{row:?} has code, name, meaning and remedy");
            assert!(row.iter().all(|cell| !cell.is_empty()), "{row:?}");
        }
    }
}
