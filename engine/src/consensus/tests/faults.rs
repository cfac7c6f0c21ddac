use super::group::{Group, M1, M2, M3, PATIENCE, UNHURRIED};
use super::samples;
use crate::consensus::{ConsensusError, Timings};
use crate::state::{Outcome, State};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deposed_leader_commits_nothing() {
    let group = Group::of_three(UNHURRIED).await;
    group.propose(samples::reserve(4)).await;
    group.wires.isolate(M1);
    let old = group.members[&M1].clone();
    // Within its lease it takes a proposal that it cannot finish.
    let pending = tokio::spawn(async move { old.propose(samples::put(1, 100)).await });
    let new = group.leader(Some(M1)).await;
    let (_, outcome) = group.members[&new].propose(samples::draw()).await.expect("the others go on");
    assert!(matches!(outcome, Outcome::Reserved { .. }));

    let old = &group.members[&M1];
    tokio::time::sleep(UNHURRIED.election_max).await;
    assert!(matches!(old.propose(samples::draw()).await, Err(ConsensusError::NoQuorum)));
    assert!(matches!(old.barrier().await, Err(ConsensusError::NoQuorum)));
    assert!(!pending.is_finished());

    group.wires.heal();
    let lost = tokio::time::timeout(PATIENCE, pending).await.expect("it is told").expect("runs");
    assert!(matches!(lost, Err(ConsensusError::Unknown)), "{lost:?}");
    let state = group.assert_equal().await;
    assert_eq!(state.objects().count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_member_knows_that_it_has_no_quorum() {
    let mut group = Group::of_three(UNHURRIED).await;
    group.stop(M2).await;
    group.stop(M3).await;
    tokio::time::sleep(UNHURRIED.election_max * 2).await;
    assert!(matches!(group.members[&M1].propose(samples::draw()).await, Err(ConsensusError::NoQuorum)));
    group.start(M2).await;
    group.start(M3).await;
    group.assert_equal().await;
}

/// A lost leader stays the last one known for ever, and a cut-off one knows itself as such.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_member_knows_that_it_hears_no_leader() {
    let group = Group::of_three(UNHURRIED).await;
    let within = UNHURRIED.election_max;
    let hears = |member| group.members[&member].hears_a_leader(within);
    let wait = async |wanted: [bool; 3]| {
        let end = Instant::now() + PATIENCE;
        while [M1, M2, M3].map(hears) != wanted {
            assert!(Instant::now() < end, "{:?} hear a leader, not {wanted:?}", [M1, M2, M3].map(hears));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    group.leader(None).await;
    wait([true; 3]).await;
    for member in [M1, M2, M3] {
        group.wires.isolate(member);
    }
    wait([false; 3]).await;
    let knows = |member| group.members[&member].leadership().borrow().leader.is_some();
    assert!([M1, M2, M3].into_iter().any(knows), "otherwise nothing is shown here");
    group.wires.heal();
    wait([true; 3]).await;
}

/// With the real timings: cuts the leader off ten times and prints how long nobody led.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_leader_is_replaced_soon() {
    let group = Group::of_three(Timings::default()).await;
    let mut gaps = Vec::new();
    for _ in 0..10 {
        let old = group.leader(None).await;
        group.wires.isolate(old);
        let cut = Instant::now();
        let new = group.leader(Some(old)).await;
        group.members[&new].propose(samples::draw()).await.expect("applies");
        gaps.push(cut.elapsed());
        group.wires.heal();
        group.assert_equal().await;
    }
    gaps.sort();
    println!("from a cut leader to the next applied command: median {:?}, worst {:?}", gaps[5], gaps[9]);
    assert!(gaps[5] < Duration::from_secs(2), "{gaps:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_was_cut_off_disturbs_nobody() {
    let group = Group::of_three(UNHURRIED).await;
    let before = *group.members[&M1].leadership().borrow();
    group.wires.isolate(M3);
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        group.propose(samples::draw()).await;
    }
    group.wires.heal();
    group.assert_equal().await;
    tokio::time::sleep(UNHURRIED.election_max * 2).await;
    assert_eq!(*group.members[&M1].leadership().borrow(), before);
    assert_eq!(group.members[&M3].leadership().borrow().term, before.term);
}

#[cfg(feature = "test-hooks")]
#[tokio::test]
async fn a_member_that_takes_pre_votes_for_given_pushes_the_term_up() {
    let _tried = crate::mutant::Tried::begin(crate::mutant::Mutant::PreVoteGrants);
    let group = Group::of_three(UNHURRIED).await;
    let term = |member| group.members[&member].leadership().borrow().term;
    let before = term(M1);
    group.wires.isolate(M3);
    let end = Instant::now() + PATIENCE;
    while term(M3) < before + 2 {
        assert!(Instant::now() < end, "its term stays at {}", term(M3));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_entries_are_sent_in_parts() {
    let group = Group::of_three(UNHURRIED).await;
    group.propose(samples::reserve(40)).await;
    group.wires.isolate(M3);
    for object in 1..=40 {
        group.propose(samples::put(object, 250 * 1024)).await;
    }
    group.wires.longest.store(0, Ordering::Relaxed);
    group.wires.heal();
    group.assert_equal().await;
    let longest = group.wires.longest.load(Ordering::Relaxed);
    assert!(longest > 2 * 1024 * 1024, "{longest} bytes: nothing was batched");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_restart_from_checkpoint_and_log() {
    let mut group = Group::of_three(UNHURRIED).await;
    group.propose(samples::reserve(30)).await;
    for object in 1..=10 {
        group.propose(samples::put(object, 500)).await;
    }
    for member in group.members.values() {
        member.inner.raft.trigger().snapshot().await.expect("runs");
    }
    for object in 11..=20 {
        group.propose(samples::put(object, 500)).await;
    }
    let before = group.assert_equal().await;
    let term = group.members[&M1].leadership().borrow().term;
    for member in [M1, M2, M3] {
        group.stop(member).await;
    }
    assert!(group.disks.values().all(|disk| disk.store.checkpoints.load(Ordering::Relaxed) > 0));
    for member in [M1, M2, M3] {
        let consensus = group.start(member).await;
        // The checkpoint and what the log is known to have committed are there before anyone leads.
        let objects = consensus.agreed().read(|state| state.objects().count());
        assert!(objects >= 10, "{member} begins with {objects}");
    }
    let after = group.assert_equal().await;
    let leader = group.leader(None).await;
    assert!(group.members[&leader].leadership().borrow().term > term, "a restarted leader is elected anew");
    assert_eq!(before.objects().collect::<Vec<_>>(), after.objects().collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_member_restarts_while_the_others_go_on() {
    let mut group = Group::of_three(UNHURRIED).await;
    group.propose(samples::reserve(200)).await;
    for round in 0..3 {
        let leader = group.leader(None).await;
        group.stop(leader).await;
        for object in 1..=20 {
            group.propose(samples::put(round * 20 + object, 300)).await;
        }
        group.start(leader).await;
        group.assert_equal().await;
    }
    assert_eq!(group.members[&M1].agreed().read(|state: &State| state.objects().count()), 60);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_member_says_so() {
    let mut group = Group::of_three(UNHURRIED).await;
    let gone = group.members[&M2].clone();
    let fatal = gone.fatal();
    group.stop(M2).await;
    assert!(matches!(gone.propose(samples::draw()).await, Err(ConsensusError::Stopped(_))));
    assert_eq!(*fatal.borrow(), None, "an end that was asked for is no fault");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_whose_store_fails_ends_and_another_leads() {
    let group = Group::of_three(UNHURRIED).await;
    group.propose(samples::reserve(2)).await;
    group.disks[&M1].store.broken.store(true, Ordering::Relaxed);
    let failed = group.members[&M1].propose(samples::put(1, 10)).await;
    assert!(matches!(failed, Err(ConsensusError::Stopped(_))), "{failed:?}");
    let mut fatal = group.members[&M1].fatal();
    let reason = tokio::time::timeout(PATIENCE, fatal.wait_for(Option::is_some)).await.expect("it says so");
    let reason = reason.expect("it says why").clone();
    assert!(reason.is_some_and(|reason| reason.contains("the disk is broken")));
    let next = group.leader(Some(M1)).await;
    group.members[&next].propose(samples::draw()).await.expect("the others go on");
    assert_eq!(group.members[&next].agreed().read(|state| state.objects().count()), 1);
    assert!(!group.members[&M1].leadership().borrow().is_me);
}
