//! kill -9 of a member at any instant, under load. What was answered holds, what was not is found out by repeating it.

use keyraft_engine::domain::{Curve, KeyAlgorithm, ObjectId};
use keyraft_engine::wire::{FailureKind, UseKind};
use keyraft_node::caller::Caller;
use keyraft_node::mechanism::{Named, Purpose};
use keyraft_tests::TokenKind::{Embedded, Protected, Shim, SoftHsm};
use keyraft_tests::keys::{AnyMember, DATA, Made, create, delete, everywhere, label, list, prove, use_key};
use keyraft_tests::token::{in_embedded, in_softhsm};
use keyraft_tests::{Dice, Group, STEP_LIMIT, TokenKind, turn};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

/// The embedded token keeps keys in sessions, SoftHSM in files that a kill can tear.
const KINDS: [TokenKind; 3] = [Embedded, SoftHsm, Embedded];
const MEMBERS: usize = KINDS.len();
const CLIENTS: u64 = 4;
/// The kill comes so long after the clients begin, at most.
const KILL_MAX_MS: u64 = 700;
/// The return comes so long after the kill, at most: before, during and after the others have elected a primary.
const AWAY_MAX_MS: u64 = 900;

/// What clients were told.
#[derive(Default)]
struct Told {
    created: Vec<Made>,
    deleted: Vec<Made>,
}

fn runs() -> u64 {
    match std::env::var("KEYRAFT_CRASH_RUNS") {
        Ok(text) => text.parse().expect("KEYRAFT_CRASH_RUNS is a number"),
        Err(_) => 20,
    }
}

fn seed() -> u64 {
    match std::env::var("KEYRAFT_CRASH_SEED") {
        Ok(text) => text.parse().expect("KEYRAFT_CRASH_SEED is a number"),
        Err(_) => 1,
    }
}

#[tokio::test]
async fn nothing_answered_is_lost_or_undone() {
    let _turn = turn().await;
    let mut group = Group::form(&KINDS).await;
    let mut live: BTreeMap<ObjectId, Made> = BTreeMap::new();
    let mut gone: Vec<Made> = Vec::new();
    let mut total = 0;
    for run in 0..runs() {
        let seed = seed().wrapping_mul(1_000_003).wrapping_add(run);
        let (victim, told) = one_run(&mut group, run, seed, &live).await;
        eprintln!(
            "run {run} (seed {seed}): member {} killed; {} created, {} deleted",
            group.members[victim].name,
            told.created.len(),
            told.deleted.len()
        );
        total += told.created.len();
        let fresh: Vec<ObjectId> = told.created.iter().map(Made::inner).collect();
        live.extend(told.created.into_iter().map(|key| (key.inner(), key)));
        for key in &told.deleted {
            assert!(live.remove(&key.inner()).is_some(), "'{}' was known", key.label);
        }
        gone.extend(told.deleted);
        group.wait_in_sync().await;
        agrees(&group, &live, &gone).await;
        works(&group, &live, &fresh, victim).await;
    }
    assert!(total > 0, "the clients did something");
    tokens_hold_nothing_else(&mut group, &live).await;
}

/// Clients at work, a kill in the midst of it, a return; ends when every client has its last answer.
async fn one_run(group: &mut Group, run: u64, seed: u64, live: &BTreeMap<ObjectId, Made>) -> (usize, Told) {
    let mut dice = Dice::new(seed);
    let victim = dice.below(MEMBERS as u64) as usize;
    let kill_after = Duration::from_millis(dice.below(KILL_MAX_MS));
    let away = Duration::from_millis(dice.below(AWAY_MAX_MS));
    let paths: Vec<_> = group.members.iter().map(|m| m.folder.join("sock")).collect();
    let stop = Cell::new(false);
    // Older keys are shared out among the clients, so that no two delete the same one.
    let older: Vec<&Made> = live.values().collect();
    let clients = (0..CLIENTS).map(|client| {
        let mine: Vec<Made> =
            older.iter().skip(client as usize).step_by(CLIENTS as usize).map(|k| (*k).clone()).collect();
        let ask = AnyMember::new(paths.clone(), dice.below(MEMBERS as u64) as usize);
        let dice = Dice::new(seed ^ (client + 1) << 32);
        let stop = &stop;
        async move { work(ask, dice, format!("{run}-{client}"), mine, stop).await }
    });
    let clients: Vec<_> = clients.collect();
    let (told, ()) = tokio::join!(futures::future::join_all(clients), async {
        tokio::time::sleep(kill_after).await;
        group.kill(victim);
        tokio::time::sleep(away).await;
        group.start(victim).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        stop.set(true);
    });
    let mut all = Told::default();
    for told in told {
        all.created.extend(told.created);
        all.deleted.extend(told.deleted);
    }
    (victim, all)
}

/// One client: creates and deletes in turn until it is told to stop.
async fn work(ask: AnyMember, mut dice: Dice, name: String, mut mine: Vec<Made>, stop: &Cell<bool>) -> Told {
    let mut told = Told::default();
    let mut caller = Caller::begin(&ask, STEP_LIMIT).await.expect("makes contact");
    let mut number = 0;
    while !stop.get() {
        if !mine.is_empty() && (dice.below(2) == 0 || mine.len() > 8) {
            let key = mine.swap_remove(dice.below(mine.len() as u64) as usize);
            let done = delete(&mut caller, &key).await;
            done.unwrap_or_else(|e| panic!("deleting '{}': {:?} {e}", key.label, e.kind));
            told.deleted.push(key);
        } else {
            number += 1;
            let algorithm = match dice.below(3) {
                0 => KeyAlgorithm::Aes { bits: 256 },
                1 => KeyAlgorithm::GenericSecret { bytes: 32 },
                _ => KeyAlgorithm::Ec(Curve::P256),
            };
            let made = create(&mut caller, &format!("{name}-{number}"), algorithm).await;
            let made = made.unwrap_or_else(|e| panic!("creating {name}-{number}: {:?} {e}", e.kind));
            told.created.push(made.clone());
            mine.push(made);
        }
        tokio::time::sleep(Duration::from_millis(dice.below(15))).await;
    }
    told
}

/// Every member has exactly what was answered, each once, and no more.
async fn agrees(group: &Group, live: &BTreeMap<ObjectId, Made>, gone: &[Made]) {
    let mut expected: Vec<(ObjectId, String)> =
        live.values().flat_map(|key| key.ids().into_iter().map(|id| (id, key.label.clone()))).collect();
    expected.sort();
    for (index, member) in group.members.iter().enumerate() {
        let mut found: Vec<(ObjectId, String)> =
            list(&member.socket).await.iter().map(|row| (row.object, label(row))).collect();
        found.sort();
        assert_eq!(found, expected, "member {} lists what was answered", member.name);
        let now = group.status(index).await;
        assert_eq!((now.objects, now.unsettled), (expected.len() as u64, 0), "member {}", member.name);
        assert_eq!(everywhere(&member.socket, MEMBERS).await, expected.len(), "member {}", member.name);
    }
    // The youngest deletions, at every member.
    for key in gone.iter().rev().take(5) {
        let named = Named::default_for(Some(key.algorithm), Purpose::Sign).unwrap_or(Named::AesGcm);
        let kind = if named == Named::AesGcm { UseKind::Encrypt } else { UseKind::Sign };
        let data = named.prepare(DATA.to_vec());
        for member in &group.members {
            let used =
                use_key(&member.socket, key.inner(), kind.clone(), named, &data, Some(member.id)).await;
            let failure = used.expect_err("a deleted key cannot be used");
            assert_eq!(failure.kind, FailureKind::NotFound, "'{}' at {}", key.label, member.name);
        }
    }
}

/// This run's keys work on every member, the older ones on the member that was killed.
async fn works(group: &Group, live: &BTreeMap<ObjectId, Made>, fresh: &[ObjectId], victim: usize) {
    let ids: Vec<_> = group.members.iter().map(|m| m.id).collect();
    for (inner, key) in live {
        let places = if fresh.contains(inner) { ids.as_slice() } else { &ids[victim..=victim] };
        for at in places {
            prove(&group.members[victim].socket, key, *at, places).await;
        }
    }
}

/// The stopped members' tokens, as others see them: every key once, tagged and sealed off, and nothing besides.
async fn tokens_hold_nothing_else(group: &mut Group, live: &BTreeMap<ObjectId, Made>) {
    let id = group.status(0).await.group;
    for index in 0..MEMBERS {
        group.stop(index).await;
    }
    let own = ["transport".into(), "unlock".into(), "canary".into(), format!("{id}:smk.1")];
    let keys = live.keys().map(|object| format!("{id}:{}.1.1", object.0));
    let mut expected: Vec<String> = own.into_iter().chain(keys).map(|tag| format!("kr1:{tag}")).collect();
    expected.sort();
    for (member, kind) in group.members.iter().zip(KINDS) {
        match kind {
            SoftHsm | Shim | Protected => {
                let lying = in_softhsm(member);
                let mut tags: Vec<String> = lying.iter().map(|object| object.id.clone()).collect();
                tags.sort();
                assert_eq!(tags, expected, "what lies in the token of {}", member.name);
                for object in &lying {
                    assert_eq!(object.label, object.id, "{object:?}");
                    assert!(object.access.starts_with("sensitive"), "{object:?}");
                    assert!(object.access.split(", ").all(|word| word != "extractable"), "{object:?}");
                }
            }
            Embedded => {
                let found = in_embedded(member, id).await;
                let whole = (found.ours.len(), found.smks.len(), found.other_groups.len());
                assert_eq!(whole, (0, 1, 0), "keys live in sessions: {found:?}");
                assert_eq!((found.foreign, found.half_written), (0, 0), "{found:?}");
            }
        }
    }
    for index in 0..MEMBERS {
        let found = group.json(index, &["check"]).await;
        assert_eq!(found["errors"].as_array().map(Vec::len), Some(0), "{found}");
        assert!(!found.to_string().contains("lie in the token"), "{found}");
    }
}
