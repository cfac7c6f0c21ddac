//! The search for an order against a judge that tries them all.

use keyraft_jepsen_lite::model::{LifeOp, Lives, Model, Register, RegisterOp, Step};
use keyraft_jepsen_lite::wgl::{Timed, Verdict, check};
use proptest::prelude::*;

/// More steps than any of these histories can take.
const BUDGET: u64 = 10_000_000;

/// True if some order of some of the operations, with all that ended, explains every answer. Tries each.
fn any_order<M: Model>(model: &M, ops: &[Timed<M::Op>], state: &M::State, taken: u32) -> bool {
    let is_left = |op: usize| taken >> op & 1 == 0;
    if (0..ops.len()).all(|op| !is_left(op) || ops[op].returned.is_none()) {
        return true;
    }
    (0..ops.len()).filter(|op| is_left(*op)).any(|op| {
        // Nothing that is left may have ended before this one began.
        let next = (0..ops.len())
            .filter(|other| *other != op && is_left(*other))
            .all(|other| ops[other].returned.is_none_or(|end| end > ops[op].called));
        next && match model.step(state, &ops[op].op) {
            Step::Impossible => false,
            Step::Same => any_order(model, ops, state, taken | 1 << op),
            Step::To(after) => any_order(model, ops, &after, taken | 1 << op),
        }
    })
}

fn compare<M: Model>(model: &M, ops: &[Timed<M::Op>]) -> Result<Verdict, TestCaseError> {
    let found = check(model, ops, BUDGET).verdict;
    let truth = any_order(model, ops, &model.begin(), 0);
    let expected = if truth { Verdict::Linearizable } else { Verdict::NotLinearizable };
    prop_assert_eq!(found, expected, "{:?}", ops);
    Ok(found)
}

/// Up to seven operations of a few processes: each begins some time after its process's last one ended. An operation
/// without an end stays open.
fn timed<O: Clone + std::fmt::Debug>(op: impl Strategy<Value = O>) -> impl Strategy<Value = Vec<Timed<O>>> {
    let one = (op, 0_usize..3, 1_usize..12, 1_usize..20, prop::bool::weighted(0.2));
    prop::collection::vec(one, 1..8).prop_map(|all| {
        let mut free = [0; 3];
        let mut ops: Vec<Timed<O>> = Vec::new();
        for (index, (op, process, pause, lasts, lost)) in all.into_iter().enumerate() {
            // Places are made distinct by the index.
            let called = (free[process] + pause) * 32 + index;
            let end = free[process] + pause + lasts;
            // A process that lost an answer goes on as another one: it is free at once.
            free[process] = if lost { free[process] + pause } else { end };
            ops.push(Timed { op, called, returned: (!lost).then_some(end * 32 + 16 + index) });
        }
        ops
    })
}

fn register() -> impl Strategy<Value = RegisterOp> {
    let value = || prop_oneof![Just(None), (0_i64..3).prop_map(Some)];
    prop_oneof![
        3 => value().prop_map(RegisterOp::Read),
        2 => value().prop_map(RegisterOp::Write),
        2 => (value(), value()).prop_map(|(from, to)| RegisterOp::Cas(from, to)),
        1 => value().prop_map(RegisterOp::Differs),
    ]
}

fn lives() -> impl Strategy<Value = LifeOp> {
    let id = || 1_i64..4;
    let text = || "[xy]";
    prop_oneof![
        3 => id().prop_map(|id| LifeOp::Create(id, String::new())),
        3 => prop::collection::btree_set(1_i64..4, 0..3).prop_map(|ids| LifeOp::Find(ids.into_iter().collect())),
        1 => id().prop_map(LifeOp::Present),
        1 => id().prop_map(LifeOp::Absent),
        2 => (id(), text()).prop_map(|(id, text)| LifeOp::Set(id, text)),
        1 => (id(), text()).prop_map(|(id, text)| LifeOp::Look(id, text)),
        2 => id().prop_map(LifeOp::Delete),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn registers_are_judged_as_all_orders_say(ops in timed(register())) {
        compare(&Register, &ops)?;
    }

    #[test]
    fn lives_are_judged_as_all_orders_say(ops in timed(lives())) {
        compare(&Lives, &ops)?;
    }
}

/// A history whose answers a real register gave is linearizable, so not all that is compared is bad: operations take
/// effect in the order of their instants.
fn answered() -> impl Strategy<Value = Vec<Timed<RegisterOp>>> {
    let one = (0_u8..3, 0_i64..3, 0_i64..3, 0_usize..12, 0_usize..12, prop::bool::weighted(0.2));
    prop::collection::vec(one, 1..8).prop_map(|all| {
        let mut state = None;
        let mut ops = Vec::new();
        for (index, (kind, from, to, before, after, lost)) in all.into_iter().enumerate() {
            let instant = (index + 13) * 64;
            let op = match kind {
                0 => RegisterOp::Read(state),
                1 => RegisterOp::Write(Some(to)),
                _ if state == Some(from) => RegisterOp::Cas(Some(from), Some(to)),
                _ => RegisterOp::Differs(Some(from)),
            };
            if let Step::To(next) = Register.step(&state, &op) {
                state = next;
            }
            let called = instant - before * 64 - 20 + index;
            let returned = (!lost).then_some(instant + after * 64 + 20 + index);
            ops.push(Timed { op, called, returned });
        }
        ops
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_a_register_answered_is_linearizable(ops in answered()) {
        prop_assert_eq!(compare(&Register, &ops)?, Verdict::Linearizable);
    }
}

/// Both verdicts come up among the generated histories, each in a good share: a judge that always says one would be seen.
#[test]
fn both_verdicts_come_up() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let strategy = timed(register());
    let mut good = 0;
    for _ in 0..2_000 {
        let ops = strategy.new_tree(&mut runner).expect("generates").current();
        good += usize::from(check(&Register, &ops, BUDGET).verdict == Verdict::Linearizable);
    }
    assert!((200..1_800).contains(&good), "{good} of 2000 are linearizable");
}
