use super::*;
use crate::clock::UnixMillis;
use crate::domain::{
    ClientId, ContentKey, Envelope, Fingerprint, Generation, GroupId, Lineage, MemberCard, Profile,
    Residency, TokenIdentity, Version,
};
use crate::state::AutoRecovery;
use crate::state::command::RequestContext;
use crate::state::{
    Authority, Bootstrap, GroupOption, InviteId, NewObject, Options, Outcome, RequestState, Smk,
};
use crate::wire::ObjectReport;
use std::time::Duration;

/// A group of three, the first two in sync, as a primary sees it.
struct Story {
    state: State,
    watch: Watch,
    now: Instant,
}

pub(in crate::service) fn card(name: &str) -> MemberCard {
    MemberCard {
        name: name.into(),
        address: format!("{name}:1"),
        tls: Fingerprint([name.len() as u8; 32]),
        transport_key: vec![1],
        profile: Profile {
            identity: TokenIdentity::default(),
            wraps: [crate::domain::WrapAlgorithm::Rfc5649].into(),
            carries: [].into(),
            carries_in_memory: [].into(),
            exact_lengths: true,
            unwrap_template: true,
            residency: Residency::Session,
            mechanisms: Vec::new(),
        },
    }
}

fn envelope() -> Envelope {
    Envelope { nonce: [0; 12], sealed: vec![0; 32] }
}

fn request(sequence: u64) -> RequestId {
    RequestId { client: ClientId { born: LogIndex(0), nonce: 1 }, sequence }
}

impl Story {
    fn begin() -> Self {
        #[expect(clippy::disallowed_methods, reason = "a test's beginning of time")]
        let now = Instant::now();
        let mut story =
            Self { state: State::default(), watch: Watch { since: Some(now), ..Watch::default() }, now };
        story.watch.voters = (1..=3).map(MemberId).collect();
        story.apply(Command::Bootstrap(Box::new(Bootstrap {
            group: GroupId([1; 8]),
            lineage: Lineage(1),
            label: "g".into(),
            card: card("a"),
            smk: Smk { generation: Generation(1), self_blob: vec![0; 40], recovery: None },
            authority: Authority { certificate: vec![1], sealed_key: envelope() },
            options: Options::default(),
        })));
        for (id, name) in [(1, "bb"), (2, "ccc")] {
            let (invite, at) = (InviteId([id; 8]), UnixMillis(1));
            story.apply(Command::Invite {
                duty: crate::state::Duty::Active,
                id: invite,
                secret_hash: [0; 32],
                at,
                expires: UnixMillis(9),
            });
            story.apply(Command::Admit { invite, at, card: Box::new(card(name)) });
        }
        story.enter(2);
        story.apply(Command::ReserveIds { member: MemberId(1), count: 100 });
        story
    }

    fn apply(&mut self, command: Command) -> Outcome {
        let index = LogIndex(self.state.applied().0 + 1);
        self.state.apply(index, command).outcome
    }

    /// Takes a member through the two steps into the in-sync set.
    fn enter(&mut self, member: u64) {
        self.hear(member, &[], TokenHealth::Healthy);
        let enter = Command::EnterInSync { member: MemberId(member) };
        assert!(self.decide().contains(&enter));
        self.apply(enter);
        self.hear(member, &[], TokenHealth::Healthy);
        let reached = self.state.applied();
        let reach = Command::ReachInSync { member: MemberId(member), reached };
        assert!(self.decide().contains(&reach));
        self.apply(reach);
        assert!(self.state.in_sync().contains(&MemberId(member)));
    }

    fn put(&mut self, sequence: u64, object: u64) {
        let request = RequestContext { id: request(sequence), watermark: 0, parameters: [0; 16] };
        let content = ContentKey { object: ObjectId(object), version: Version(1), generation: Generation(1) };
        let new = NewObject {
            content,
            class: crate::domain::ObjectClass::SecretKey,
            envelope: envelope(),
            excluded: BTreeMap::new(),
        };
        let outcome = self.apply(Command::Put { request, objects: vec![new] });
        assert!(matches!(outcome, Outcome::Request(RequestState::Creating(_))), "{outcome:?}");
        self.watch.note_waiting(&self.state, self.now);
    }

    fn hear(&mut self, member: u64, objects: &[(u64, ObjectStatus)], token: TokenHealth) {
        let objects = objects
            .iter()
            .map(|(id, status)| ObjectReport {
                object: ObjectId(*id),
                version: Version(1),
                status: status.clone(),
            })
            .collect();
        let fitness = crate::wire::Fitness::default();
        let report = Report { reached: self.state.applied(), objects, token, fitness, stuck: false };
        self.watch.heard.insert(MemberId(member), Heard::new(report, self.now));
    }

    fn held(&mut self, member: u64, object: u64) {
        self.hear(member, &[(object, ObjectStatus::Held)], TokenHealth::Healthy);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// What a round of the primary notes before it decides.
    fn look(&mut self) {
        self.watch.note_waiting(&self.state, self.now);
    }

    fn decide(&self) -> Vec<Command> {
        decide(&self.state, &self.watch, self.now)
    }

    fn verdicts(&self) -> Vec<Verdict> {
        self.decide()
            .into_iter()
            .filter_map(|command| match command {
                Command::Settle { settlements } => Some(settlements.into_iter().map(|s| s.verdict)),
                _ => None,
            })
            .flatten()
            .collect()
    }
}

#[test]
fn a_create_is_done_when_every_in_sync_member_holds_it() {
    let mut story = Story::begin();
    story.put(1, 1);
    story.held(1, 1);
    assert_eq!(story.verdicts(), []);
    story.held(2, 1);
    let holders = [MemberId(1), MemberId(2)].into();
    assert_eq!(story.verdicts(), [Verdict::Done { holders, excluded: BTreeMap::new() }]);
}

#[test]
fn a_healthy_tokens_refusal_aborts_unless_partial_keys_are_allowed() {
    let mut story = Story::begin();
    story.put(1, 1);
    story.held(1, 1);
    story.hear(2, &[(1, ObjectStatus::Refused("full".into()))], TokenHealth::Healthy);
    let refusal = Refusal { member: MemberId(2), reason: "full".into() };
    assert_eq!(story.verdicts(), [Verdict::Aborted(refusal.clone())]);
    story.apply(Command::SetOption(GroupOption::PartialKeys(PartialKeys::Allow)));
    let (holders, excluded) = ([MemberId(1)].into(), [(MemberId(2), refusal)].into());
    assert_eq!(story.verdicts(), [Verdict::Done { holders, excluded }]);
}

#[test]
fn a_silent_member_leaves_and_the_create_goes_on() {
    let mut story = Story::begin();
    story.put(1, 1);
    story.pass(limits::MEMBER_DEAD);
    story.held(1, 1);
    let leave = Command::LeaveInSync { member: MemberId(2), reason: LeaveReason::Unreachable };
    assert_eq!(story.decide(), std::slice::from_ref(&leave));
    story.apply(leave);
    assert_eq!(story.verdicts().len(), 1);
}

#[test]
fn a_member_whose_process_is_gone_leaves_at_once_and_enters_when_it_is_back() {
    let mut story = Story::begin();
    story.put(1, 1);
    story.held(1, 1);
    story.watch.absent = [MemberId(2), MemberId(3)].into();
    story.hear(3, &[], TokenHealth::Healthy);
    let leave = Command::LeaveInSync { member: MemberId(2), reason: LeaveReason::Unreachable };
    assert_eq!(story.decide(), std::slice::from_ref(&leave));
    story.apply(leave);
    assert_eq!(story.verdicts().len(), 1);
    story.watch.absent.clear();
    story.hear(2, &[], TokenHealth::Healthy);
    assert!(story.decide().contains(&Command::EnterInSync { member: MemberId(2) }));
}

fn set_recovery(story: &mut Story, retries: i32) {
    let recovery = AutoRecovery { retries, interval_seconds: 60 };
    story.apply(Command::SetOption(GroupOption::AutoRecovery(recovery)));
}

/// Member 2 leaves, its process gone; member 3 is kept out of this.
fn lose_second(story: &mut Story) {
    story.watch.absent = [MemberId(2)].into();
    let leave = Command::LeaveInSync { member: MemberId(2), reason: LeaveReason::Unreachable };
    story.apply(leave);
    story.look();
}

fn second_is_back(story: &mut Story) {
    story.watch.absent.clear();
    story.hear(2, &[], TokenHealth::Healthy);
}

const ENTER: Command = Command::EnterInSync { member: MemberId(2) };
const RETRY: Command = Command::CountRetry { member: MemberId(2) };

#[test]
fn without_retries_a_member_waits_for_an_operator() {
    let mut story = Story::begin();
    set_recovery(&mut story, 0);
    lose_second(&mut story);
    story.pass(Duration::from_secs(3600));
    assert_eq!(story.decide(), []);
    second_is_back(&mut story);
    assert_eq!(story.decide(), []);
    story.apply(Command::Recover { member: MemberId(2) });
    assert_eq!(story.decide(), [ENTER]);
    // The wish holds until it comes true.
    story.apply(ENTER);
    story.apply(Command::LeaveInSync { member: MemberId(2), reason: LeaveReason::Unreachable });
    story.look();
    assert_eq!(story.decide(), [ENTER]);
    let reached = story.state.applied();
    story.apply(ENTER);
    story.apply(Command::ReachInSync { member: MemberId(2), reached: LogIndex(reached.0 + 1) });
    lose_second(&mut story);
    second_is_back(&mut story);
    assert_eq!(story.decide(), [], "the next loss waits anew");
}

#[test]
fn a_member_whose_token_takes_nothing_does_not_come_back() {
    let mut story = Story::begin();
    set_recovery(&mut story, -1);
    lose_second(&mut story);
    story.apply(Command::Recover { member: MemberId(2) });
    second_is_back(&mut story);
    let stuck = |story: &mut Story, stuck| {
        story.watch.heard.get_mut(&MemberId(2)).expect("was heard").stuck = stuck;
        story.decide()
    };
    assert_eq!(stuck(&mut story, true), []);
    assert_eq!(stuck(&mut story, false), [ENTER]);
}

#[test]
fn a_member_that_stays_away_uses_its_retries_up() {
    let mut story = Story::begin();
    set_recovery(&mut story, 2);
    lose_second(&mut story);
    assert_eq!(story.decide(), [], "a try an interval");
    for _ in 0..2 {
        story.pass(Duration::from_secs(60));
        story.hear(1, &[], TokenHealth::Healthy);
        assert_eq!(story.decide(), [RETRY]);
        story.apply(RETRY);
        story.look();
        assert_eq!(story.decide(), []);
    }
    story.pass(Duration::from_secs(60));
    second_is_back(&mut story);
    assert_eq!(story.decide(), [], "too late: an operator has to ask");
    set_recovery(&mut story, 3);
    assert_eq!(story.decide(), [ENTER], "or allow more");
}

#[test]
fn a_member_in_time_is_taken_back_at_once() {
    let mut story = Story::begin();
    set_recovery(&mut story, 2);
    lose_second(&mut story);
    second_is_back(&mut story);
    assert_eq!(story.decide(), [ENTER]);
}

#[test]
fn tries_that_fail_are_an_interval_apart() {
    let mut story = Story::begin();
    set_recovery(&mut story, -1);
    lose_second(&mut story);
    story.pass(Duration::from_secs(600));
    story.hear(1, &[], TokenHealth::Healthy);
    assert_eq!(story.decide(), [], "without end nothing is counted");
    second_is_back(&mut story);
    assert_eq!(story.decide(), [ENTER]);
    story.apply(ENTER);
    lose_second(&mut story);
    second_is_back(&mut story);
    assert_eq!(story.decide(), []);
    story.pass(Duration::from_secs(60));
    second_is_back(&mut story);
    story.hear(1, &[], TokenHealth::Healthy);
    assert_eq!(story.decide(), [ENTER]);
}

#[test]
fn a_member_gets_its_vote_before_it_is_counted_on() {
    let mut story = Story::begin();
    story.hear(3, &[], TokenHealth::Healthy);
    story.watch.voters = [MemberId(1), MemberId(2)].into();
    assert_eq!(story.decide(), []);
    // All votes are given: further members follow without one.
    story.watch.voters = (10..10 + limits::VOTERS_MAX as u64).map(MemberId).collect();
    assert_eq!(story.decide(), [Command::EnterInSync { member: MemberId(3) }]);
}

#[test]
fn a_failed_token_leaves_but_never_the_last() {
    let mut story = Story::begin();
    story.hear(1, &[], TokenHealth::Failed("gone".into()));
    story.hear(2, &[], TokenHealth::Failed("gone".into()));
    for command in story.decide() {
        story.apply(command);
    }
    assert_eq!(story.state.in_sync().len(), 1);
    assert_eq!(story.decide(), []);
}

#[test]
fn silence_before_this_primary_does_not_count() {
    let mut story = Story::begin();
    story.watch.heard.clear();
    story.pass(limits::MEMBER_DEAD * 10);
    story.watch.since = Some(story.now);
    assert_eq!(story.decide(), []);
}

/// A group that fences, with a key that members 1 and 2 were told to drop.
fn deleting_behind_a_fence() -> Story {
    let mut story = Story::begin();
    let fence = GroupOption::IsolatedService(crate::state::IsolatedService::Fence);
    story.apply(Command::SetOption(fence));
    story.put(1, 1);
    story.held(1, 1);
    story.held(2, 1);
    for command in story.decide() {
        story.apply(command);
    }
    let request = RequestContext { id: request(2), watermark: 0, parameters: [1; 16] };
    story.apply(Command::Remove { request, objects: vec![ObjectId(1)] });
    story
}

fn confirm(story: &mut Story, member: u64) {
    let since = story.state.fence().expect("fences").since;
    story.watch.grants.kept.insert(MemberId(member), since);
    let confirm = Command::ConfirmFence { member: MemberId(member), since };
    assert!(story.decide().contains(&confirm));
    story.apply(confirm);
}

fn drop_at(story: &mut Story, members: &[u64]) {
    for member in members {
        story.hear(*member, &[(1, ObjectStatus::Dropped)], TokenHealth::Healthy);
    }
}

#[test]
fn a_deletion_waits_for_whoever_may_hold_a_lease() {
    let mut story = deleting_behind_a_fence();
    (1..=3).for_each(|member| confirm(&mut story, member));
    drop_at(&mut story, &[1, 2]);
    assert_eq!(story.verdicts(), [], "an earlier primary may have given leases");
    story.pass(limits::LEASE_WAIT);
    drop_at(&mut story, &[1, 2]);
    assert_eq!(story.verdicts().len(), 1);
    // Member 3 is out of sync, and had a lease a moment ago.
    story.watch.grants.note(MemberId(3), story.now);
    story.watch.grants.note(MemberId(2), story.now);
    story.pass(limits::LEASE_WAIT - Duration::from_millis(1));
    drop_at(&mut story, &[1, 2]);
    assert_eq!(story.verdicts(), []);
    story.pass(Duration::from_millis(1));
    drop_at(&mut story, &[1, 2]);
    assert_eq!(story.verdicts().len(), 1, "who dropped it is not waited for");
}

#[test]
fn a_deletion_waits_for_whoever_has_not_confirmed_the_fence() {
    let mut story = deleting_behind_a_fence();
    story.pass(limits::LEASE_WAIT);
    drop_at(&mut story, &[1, 2]);
    assert_eq!(story.verdicts(), [], "member 3 may serve without a lease");
    story.apply(Command::RemoveMember { member: MemberId(3) });
    assert_eq!(story.verdicts().len(), 1);
    // Back to serving, nobody is waited for.
    let mut story = deleting_behind_a_fence();
    let serve = GroupOption::IsolatedService(crate::state::IsolatedService::Serve);
    story.apply(Command::SetOption(serve));
    drop_at(&mut story, &[1, 2]);
    assert_eq!(story.verdicts().len(), 1);
}

#[test]
fn a_deletion_is_done_when_every_in_sync_member_dropped_it() {
    let mut story = Story::begin();
    story.put(1, 1);
    story.held(1, 1);
    story.held(2, 1);
    for command in story.decide() {
        story.apply(command);
    }
    let request = RequestContext { id: request(2), watermark: 0, parameters: [1; 16] };
    story.apply(Command::Remove { request, objects: vec![ObjectId(1)] });
    story.hear(1, &[(1, ObjectStatus::Dropped)], TokenHealth::Healthy);
    story.hear(2, &[], TokenHealth::Healthy);
    assert_eq!(story.verdicts(), []);
    story.hear(2, &[(1, ObjectStatus::Dropped)], TokenHealth::Healthy);
    assert_eq!(story.verdicts().len(), 1);
    for command in story.decide() {
        story.apply(command);
    }
    assert!(story.state.object(ObjectId(1)).is_none());
}

#[cfg(feature = "test-hooks")]
mod mistakes {
    use super::*;
    use crate::mutant::Tried;

    #[test]
    fn one_holder_is_enough() {
        let mut story = Story::begin();
        story.put(1, 1);
        story.held(1, 1);
        let _tried = Tried::begin(Mutant::AnswerBeforeInSyncHolds);
        let holders = [MemberId(1), MemberId(2)].into();
        assert_eq!(story.verdicts(), [Verdict::Done { holders, excluded: BTreeMap::new() }]);
    }

    #[test]
    fn a_member_on_its_way_is_in_sync() {
        let mut story = Story::begin();
        story.hear(3, &[], TokenHealth::Healthy);
        story.apply(Command::EnterInSync { member: MemberId(3) });
        assert_eq!(story.decide(), []);
        let _tried = Tried::begin(Mutant::CountALearner);
        for command in story.decide() {
            story.apply(command);
        }
        assert!(story.state.in_sync().contains(&MemberId(3)));
    }

    #[test]
    fn what_was_pending_is_left_alone() {
        let mut story = Story::begin();
        story.put(1, 1);
        (1..=2).for_each(|member| story.held(member, 1));
        assert_eq!(story.verdicts().len(), 1);
        let _tried = Tried::begin(Mutant::ResumeNothing);
        assert_eq!(story.verdicts(), []);
        story.pass(Duration::from_millis(1));
        story.put(2, 2);
        let both = [(1, ObjectStatus::Held), (2, ObjectStatus::Held)];
        (1..=2).for_each(|member| story.hear(member, &both, TokenHealth::Healthy));
        assert_eq!(story.verdicts().len(), 1, "what comes later is settled");
    }
}
