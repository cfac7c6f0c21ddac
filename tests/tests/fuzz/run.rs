//! One run of one target: valid bytes, changed at a few places, until the time is over.

use crate::meter::most_taken;
use data_encoding::HEXLOWER;
use keyraft_engine::clock::Clock;
use keyraft_engine::limits::FRAME_UNPROVEN_MAX_BYTES;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};
use std::cell::Cell;
use std::fmt;
use std::time::Duration;

/// The longest that one input may take, on a busy machine and without optimisation.
pub const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Inputs are no longer than what a stranger may send: up to there the codec lets a value claim 1 MiB at most.
const INPUT_MAX_BYTES: usize = FRAME_UNPROVEN_MAX_BYTES;
/// Inputs between two looks at the clock.
const ROUND_COUNT: u32 = 64;
/// Changes of one input.
const EDITS_MAX: usize = 6;

/// The memory that decoding so many bytes may take at once. A map of one entry is the dearest for its bytes: 6 of them
/// become a node with room for 11 entries.
pub fn memory_max_bytes(input: usize) -> usize {
    4 * 1024 * 1024 + 128 * input
}

/// How long a target runs.
pub fn time() -> Duration {
    match std::env::var("KEYRAFT_FUZZ_SECONDS") {
        Ok(text) => Duration::from_secs(text.parse().expect("KEYRAFT_FUZZ_SECONDS is a number of seconds")),
        Err(_) => Duration::from_secs(1),
    }
}

#[derive(Clone, Debug)]
enum Edit {
    Set(Index, u8),
    Flip(Index, u8),
    Insert(Index, Vec<u8>),
    /// A length or a number as the codec writes it: a mark for its width, then its bytes.
    Number(Index, u8, u64),
    Remove(Index, usize),
    Cut(Index),
    Repeat(Index, usize, usize),
    /// A piece of another valid input.
    Graft(Index, Index, Index, usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = any::<Index>;
    let byte = any::<u8>;
    let small = prop_oneof![0u64..300, any::<u64>(), any::<u32>().prop_map(u64::from), Just(u64::MAX)];
    prop_oneof![
        (at(), byte()).prop_map(|(at, byte)| Edit::Set(at, byte)),
        (at(), 0u8..8).prop_map(|(at, bit)| Edit::Flip(at, 1 << bit)),
        (at(), proptest::collection::vec(byte(), 1..16)).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        (at(), 251u8..=254, small).prop_map(|(at, width, number)| Edit::Number(at, width, number)),
        (at(), 1usize..32).prop_map(|(at, length)| Edit::Remove(at, length)),
        at().prop_map(Edit::Cut),
        (at(), 1usize..64, 1usize..1000).prop_map(|(at, length, times)| Edit::Repeat(at, length, times)),
        (at(), at(), at(), 1usize..256)
            .prop_map(|(at, seed, from, length)| Edit::Graft(at, seed, from, length)),
    ]
}

fn apply(bytes: &mut Vec<u8>, edit: &Edit, seeds: &[Vec<u8>]) {
    let place = |at: &Index| at.index(bytes.len() + 1);
    let piece = |from: &[u8], at: usize, length: usize| from[at..from.len().min(at + length)].to_vec();
    match edit {
        Edit::Set(at, byte) => {
            let at = place(at);
            bytes.get_mut(at).into_iter().for_each(|found| *found = *byte);
        }
        Edit::Flip(at, mask) => {
            let at = place(at);
            bytes.get_mut(at).into_iter().for_each(|found| *found ^= mask);
        }
        Edit::Insert(at, more) => drop(bytes.splice(place(at)..place(at), more.iter().copied())),
        Edit::Number(at, width, number) => {
            let kept = 2usize << (width - 251);
            let number = u128::from(*number).to_le_bytes();
            let written = std::iter::once(*width).chain(number.into_iter().take(kept));
            let at = place(at);
            let end = bytes.len().min(at + 1);
            drop(bytes.splice(at..end, written));
        }
        Edit::Remove(at, length) => {
            let at = place(at);
            let end = bytes.len().min(at + length);
            bytes.drain(at..end);
        }
        Edit::Cut(at) => bytes.truncate(place(at)),
        Edit::Repeat(at, length, times) => {
            let at = place(at);
            let again = piece(bytes, at, *length).repeat(*times);
            bytes.splice(at..at, again);
        }
        Edit::Graft(at, seed, from, length) => {
            let seed = seed.get(seeds);
            let graft = piece(seed, from.index(seed.len() + 1), *length);
            bytes.splice(place(at)..place(at), graft);
        }
    }
    bytes.truncate(INPUT_MAX_BYTES);
}

/// Bytes for a target, shown as hexadecimal.
struct Input(Vec<u8>);

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes {}", self.0.len(), HEXLOWER.encode(&self.0))
    }
}

/// Runs a target, which says whether it accepted the bytes. It must accept each of `seeds`: a target that refuses
/// everything at the door tests nothing.
pub fn fuzz(seeds: Vec<Vec<u8>>, target: impl Fn(&[u8]) -> bool) {
    assert!(!seeds.is_empty(), "there is something to begin with");
    for seed in &seeds {
        assert!(target(seed), "a valid input is refused: {}", HEXLOWER.encode(seed));
    }
    let edits = proptest::collection::vec(edit(), 0..=EDITS_MAX);
    let inputs = (any::<Index>(), edits).prop_map(|(seed, edits)| {
        let mut bytes = seed.get(&seeds).clone();
        edits.iter().for_each(|edit| apply(&mut bytes, edit, &seeds));
        Input(bytes)
    });
    let config = Config {
        cases: ROUND_COUNT,
        failure_persistence: None,
        max_shrink_iters: 2_000,
        max_shrink_time: 10_000,
        ..Config::default()
    };
    let end = Clock.now() + time();
    let (mut done, accepted) = (0u64, Cell::new(0u64));
    while Clock.now() < end {
        // A runner counts what it has done and then does no more: each round has its own, with its own random numbers.
        let judged = TestRunner::new(config.clone()).run(&inputs, |Input(bytes)| {
            let begun = Clock.now();
            let (good, taken) = most_taken(|| target(&bytes));
            accepted.set(accepted.get() + u64::from(good));
            let bound = memory_max_bytes(bytes.len());
            prop_assert!(taken <= bound, "{taken} bytes of memory are taken; {bound} are allowed");
            let passed = Clock.now() - begun;
            prop_assert!(passed <= ANSWER_MAX, "it takes {passed:?}");
            Ok(())
        });
        judged.unwrap_or_else(|failure| panic!("{failure}"));
        done += u64::from(ROUND_COUNT);
    }
    println!("{done} inputs, {} of them accepted", accepted.get());
}

#[test]
fn faults_are_found() {
    let complaint = |target: fn(&[u8]) -> bool| {
        let failed = std::panic::catch_unwind(|| fuzz(vec![b"a good beginning".to_vec()], target));
        *failed.expect_err("a fault is found").downcast::<String>().expect("a text")
    };
    let fault = complaint(|bytes| {
        if bytes.len() > 16 {
            // A panic that is not printed: making the input small repeats it a hundred times.
            std::panic::resume_unwind(Box::new("too long"));
        }
        true
    });
    assert!(fault.contains("too long"), "{fault}");
    let greed = complaint(|bytes| {
        let claimed = if bytes.len() > 16 { memory_max_bytes(bytes.len()) + 1 } else { 0 };
        Vec::<u8>::with_capacity(claimed).is_empty()
    });
    assert!(greed.contains("bytes of memory are taken"), "{greed}");
}
