use super::group::{Disk, Group, M1, M2, M3, PATIENCE, UNHURRIED};
use super::samples;
use super::stand_ins::MemoryLog;
use crate::consensus::ConsensusError;
use crate::consensus::types::Entry;
use crate::domain::{MemberId, ObjectId};
use crate::state::Outcome;
use openraft::EntryPayload;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn voters_come_and_go() {
    let mut group = Group::of_three(UNHURRIED).await;
    let m4 = MemberId(4);
    let leader = group.members[&M1].clone();
    assert!(matches!(leader.promote(m4).await, Err(ConsensusError::NotAMember(id)) if id == m4));
    group.start(m4).await;
    leader.add_learner(m4).await.expect("follows");
    leader.add_learner(m4).await.expect("again");
    assert_eq!(leader.learners(), BTreeSet::from([m4]));
    group.promote(M1, m4).await;
    leader.demote(M3).await.expect("loses its vote");
    leader.demote(M3).await.expect("again");
    assert_eq!(leader.voters(), BTreeSet::from([M1, M2, m4]));
    assert_eq!(leader.learners(), BTreeSet::from([M3]));
    group.assert_equal().await;
    leader.remove(M3).await.expect("goes");
    leader.remove(m4).await.expect("goes with its vote");
    leader.remove(m4).await.expect("again");
    assert_eq!((leader.voters(), leader.learners()), (BTreeSet::from([M1, M2]), BTreeSet::new()));
    group.stop(M3).await;
    group.stop(m4).await;
    group.assert_equal().await;
    let refused = group.members[&M2].demote(M1).await;
    assert!(matches!(refused, Err(ConsensusError::NotLeader { leader: Some(M1) })), "{refused:?}");
    leader.remove(M2).await.expect("goes");
    assert!(matches!(leader.demote(M1).await, Err(ConsensusError::LastVoter(M1))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_removes_itself_hands_over() {
    let mut group = Group::of_three(UNHURRIED).await;
    group.members[&M1].remove(M1).await.expect("agreed");
    let next = group.leader(Some(M1)).await;
    assert_eq!(group.members[&next].voters(), BTreeSet::from([M2, M3]));
    group.stop(M1).await;
    group.assert_equal().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_needs_a_voter_that_keeps_up() {
    let mut group = Group::of_three(UNHURRIED).await;
    let leader = group.members[&M1].clone();
    leader.step_down(M1).await.expect("it leads already");
    let m9 = MemberId(9);
    assert!(matches!(leader.step_down(m9).await, Err(ConsensusError::NotAVoter(id)) if id == m9));
    group.stop(M3).await;
    group.propose(samples::draw()).await;
    // A starved machine may have elected meanwhile.
    let leads = group.leader(None).await;
    let (leader, other) = (group.members[&leads].clone(), if leads == M1 { M2 } else { M1 });
    let refused = leader.step_down(M3).await;
    assert!(matches!(refused, Err(ConsensusError::Behind { member: M3, .. })), "{refused:?}");
    assert!(leader.leadership().borrow().ready, "it leads on");
    leader.step_down(other).await.expect("handed over");
    assert_eq!(group.leader(Some(leads)).await, other);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_does_not_wait_for_a_change_without_end() {
    let group = Group::of_three(UNHURRIED).await;
    let leads = group.leader(None).await;
    let leader = group.members[&leads].clone();
    let change = leader.inner.changing.lock().await;
    let other = if leads == M1 { M2 } else { M1 };
    let refused = tokio::time::timeout(PATIENCE, leader.step_down(other)).await.expect("ends");
    assert!(matches!(refused, Err(ConsensusError::ChangeUnderWay)), "{refused:?}");
    drop(change);
    leader.step_down(other).await.expect("handed over");
}

/// Every answered draw is a number of its own: one that was lost would be drawn again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_under_load_loses_nothing() {
    let group = Arc::new(Group::of_three(UNHURRIED).await);
    let end = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let (group, end) = (group.clone(), end.clone());
            tokio::spawn(async move {
                let mut drawn: Vec<ObjectId> = Vec::new();
                while !end.load(Ordering::Relaxed) {
                    let leader = group.leader(None).await;
                    match group.members[&leader].propose(samples::draw()).await {
                        Ok((_, Outcome::Reserved { first, .. })) => drawn.push(first),
                        Ok(other) => panic!("{other:?}"),
                        Err(ConsensusError::NotLeader { .. } | ConsensusError::Unknown) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                drawn
            })
        })
        .collect();
    let mut times = Vec::new();
    for round in 0..6 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let from = group.leader(None).await;
        let to = [M1, M2, M3].into_iter().filter(|id| *id != from).nth(round % 2).expect("two others");
        let began = Instant::now();
        group.members[&from].step_down(to).await.expect("hands over");
        assert_eq!(group.leader(Some(from)).await, to);
        times.push(began.elapsed());
    }
    end.store(true, Ordering::Relaxed);
    let mut drawn = Vec::new();
    for caller in callers {
        drawn.extend(caller.await.expect("draws"));
    }
    let answered = drawn.len();
    drawn.sort();
    drawn.dedup();
    assert_eq!(drawn.len(), answered, "a number was drawn twice");
    times.sort();
    println!("{answered} draws over 6 hand-overs: median {:?}, worst {:?}", times[3], times[5]);
    group.assert_equal().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_place_of_a_leader_that_is_gone_goes_to_who_stands_first() {
    let mut group = Group::of_three(UNHURRIED).await;
    let term = group.members[&M3].leadership().borrow().term;
    // Before they look when it was last heard.
    group.stop(M1).await;
    let gone = Instant::now();
    // The best candidate, and one that stands much later.
    let patience = [(M3, Duration::ZERO), (M2, PATIENCE)];
    for (member, patience) in patience {
        let member = group.members[&member].clone();
        tokio::spawn(async move { member.succeed(M1, patience).await });
    }
    assert_eq!(group.leader(Some(M1)).await, M3);
    println!("from the end of a leader to its successor: {:?}", gone.elapsed());
    assert_eq!(group.members[&M3].leadership().borrow().term, term + 1, "nobody stood in its way");
    group.assert_equal().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_heard_is_not_succeeded() {
    let group = Group::of_three(UNHURRIED).await;
    let before = *group.members[&M1].leadership().borrow();
    for member in [M2, M3] {
        tokio::time::timeout(PATIENCE, group.members[&member].succeed(M1, Duration::ZERO))
            .await
            .expect("ends");
    }
    assert_eq!(*group.members[&M1].leadership().borrow(), before);
    assert_eq!(*group.members[&M2].leadership().borrow(), group.members[&M3].leadership().borrow().clone());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_change_is_resumed() {
    let joint = vec![BTreeSet::from([1, 2]), BTreeSet::from([1, 2, 3])];
    let entry = |index, configs, nodes: &[u64]| {
        let membership = samples::membership(None, configs, nodes.iter().copied());
        Entry {
            log_id: samples::log_id(u64::from(index > 0), index),
            payload: EntryPayload::Membership(membership.membership().clone()),
        }
    };
    let log = vec![
        entry(0, vec![BTreeSet::from([1, 2])], &[1, 2]),
        entry(1, vec![BTreeSet::from([1, 2])], &[1, 2, 3]),
        entry(2, joint, &[1, 2, 3]),
    ];
    let mut group = Group::new(UNHURRIED);
    for member in [M1, M2, M3] {
        let log = MemoryLog::holding(log.clone());
        group.disks.insert(member, Disk { log, ..Disk::default() });
        group.start(member).await;
    }
    let leader = group.members[&group.leader(None).await].clone();
    assert!(leader.is_change_unfinished());
    tokio::time::timeout(PATIENCE, leader.resume_change()).await.expect("in time").expect("resumes");
    assert!(!leader.is_change_unfinished());
    assert_eq!(leader.voters(), BTreeSet::from([M1, M2, M3]));
    leader.resume_change().await.expect("nothing to do");
}
