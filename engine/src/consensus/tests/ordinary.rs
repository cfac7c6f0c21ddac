use super::group::{Group, M1, M2, M3, PATIENCE, UNHURRIED};
use super::samples;
use crate::consensus::message::{Ballot, BallotAnswer, decode, encode};
use crate::consensus::types::Vote;
use crate::consensus::{ConsensusError, Dirty};
use crate::domain::{GroupId, MemberId, ObjectId};
use crate::limits::APPEND_MAX_BYTES;
use crate::state::{Outcome, State};
use crate::wire::RaftCall;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_forms_and_agrees() {
    let group = Group::of_three(UNHURRIED).await;
    let leader = &group.members[&M1];
    assert_eq!(leader.voters(), BTreeSet::from([M1, M2, M3]));
    let (index, outcome) = leader.propose(samples::reserve(8)).await.expect("applies");
    assert_eq!(outcome, Outcome::Reserved { first: ObjectId(1), count: 8 });
    assert!(leader.agreed().read(State::applied) >= index);
    leader.propose(samples::put(1, 1000)).await.expect("applies");
    group.assert_equal().await;

    let follower = &group.members[&M2];
    assert_eq!(follower.leadership().borrow().leader, Some(M1));
    let refused = follower.propose(samples::draw()).await;
    assert!(matches!(refused, Err(ConsensusError::NotLeader { leader: Some(M1) })), "{refused:?}");
    let refused = follower.barrier().await;
    assert!(matches!(refused, Err(ConsensusError::NotLeader { leader: Some(M1) })), "{refused:?}");
    assert!(leader.last_contact(M3).expect("it answered") < PATIENCE);
    assert!(follower.last_contact(M1).expect("it was heard") < PATIENCE);
    assert_eq!(follower.last_contact(M3), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_barrier_covers_everything_answered_before() {
    let group = Group::of_three(UNHURRIED).await;
    for _ in 0..20 {
        let (answered, _) = group.propose(samples::draw()).await;
        let barrier = group.members[&M1].barrier().await.expect("confirmed");
        assert!(barrier >= answered, "{barrier} {answered}");
        group.members[&M3].wait_applied(barrier, PATIENCE).await.expect("applies");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bootstrapping_again_finishes_what_was_begun() {
    let group = Group::of_one(UNHURRIED).await;
    group.members[&M1].bootstrap(samples::bootstrap()).await.expect("the same group");
    let mut other = samples::bootstrap();
    other.group = GroupId([8; 8]);
    assert!(matches!(group.members[&M1].bootstrap(other).await, Err(ConsensusError::OtherGroup)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_noted_once() {
    let group = Group::of_one(UNHURRIED).await;
    let agreed = group.members[&M1].agreed();
    agreed.changed().await;
    assert_eq!(agreed.take_dirty(), Dirty { all: true, objects: BTreeSet::new(), roster: true });
    assert!(agreed.take_dirty().is_empty());
    group.propose(samples::reserve(2)).await;
    group.propose(samples::put(1, 10)).await;
    group.propose(samples::put(2, 10)).await;
    agreed.changed().await;
    let objects = BTreeSet::from([ObjectId(1), ObjectId(2)]);
    assert_eq!(agreed.take_dirty(), Dirty { all: false, objects, roster: false });
    group.propose(samples::invite(1)).await;
    assert_eq!(agreed.take_dirty(), Dirty { all: false, objects: BTreeSet::new(), roster: true });
    let quiet = tokio::time::timeout(Duration::from_millis(50), agreed.changed()).await;
    assert!(quiet.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_fits_no_entry_is_refused() {
    let group = Group::of_one(UNHURRIED).await;
    let refused = group.members[&M1].propose(samples::put(1, APPEND_MAX_BYTES)).await;
    assert!(matches!(refused, Err(ConsensusError::TooLarge { .. })), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_and_false_speakers_are_refused() {
    let group = Group::of_three(UNHURRIED).await;
    let follower = &group.members[&M2];
    let calls = [RaftCall::Append, RaftCall::Vote, RaftCall::PreVote, RaftCall::Transfer, RaftCall::Snapshot];
    for call in calls {
        for body in [vec![], vec![1], vec![2, 0, 0], vec![0xff; 100]] {
            let refused = follower.handle(M3, call, body).await;
            assert!(matches!(refused, Err(ConsensusError::BadMessage { from: M3, .. })), "{refused:?}");
        }
    }
    let vote = super::format::append().vote;
    let body = super::format::encoded_ballot(vote);
    let refused = follower.handle(M3, RaftCall::Vote, body).await;
    assert!(matches!(refused, Err(ConsensusError::BadMessage { from: M3, .. })), "{refused:?}");
    group.assert_equal().await;
}

/// openraft's own leader ids would let the later one outbid the earlier: two leaders in one term.
#[tokio::test]
async fn a_member_gives_one_vote_a_term() {
    let group = Group::of_three(UNHURRIED).await;
    for member in [M1, M2, M3] {
        group.wires.isolate(member);
    }
    let ballot = async |candidate: MemberId, term| {
        let last = Some(samples::log_id(term - 1, 1000));
        let ballot = Ballot { vote: Vote::new(term, candidate.0), last, transfer: true };
        let body = encode(&ballot).expect("encodes");
        let answer = group.members[&M2].handle(candidate, RaftCall::Vote, body).await.expect("answers");
        decode::<BallotAnswer>(&answer).expect("decodes").granted
    };
    assert!(ballot(M1, 100).await);
    assert!(!ballot(M3, 100).await, "a second vote in one term");
    assert!(ballot(M3, 101).await);
    assert!(!ballot(M1, 101).await, "a second vote in one term");
}

/// Followers learn a new commit index from a message of its own, not from the next heartbeat.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_apply_promptly() {
    let group = Group::of_three(UNHURRIED).await;
    let mut lags = Vec::new();
    for _ in 0..200 {
        let (index, _) = group.propose(samples::draw()).await;
        let answered = Instant::now();
        for follower in [M2, M3] {
            group.members[&follower].wait_applied(index, PATIENCE).await.expect("applies");
        }
        lags.push(answered.elapsed());
        // Off the beat of the heartbeats.
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    lags.sort();
    println!("both followers applied after the answer: median {:?}, 99% {:?}", lags[100], lags[198]);
    assert!(lags[100] < UNHURRIED.heartbeat / 5, "{:?}", lags[100]);
}
