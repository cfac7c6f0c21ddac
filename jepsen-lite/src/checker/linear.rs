//! Linearizability, key by key. `unknown` is no pass.

use super::Finding;
use crate::history::{History, HistoryError};
use crate::judge::{Judgement, judge, told};
use crate::wgl::Verdict;

/// The verdict, and the finding that follows.
///
/// # Errors
/// The history contradicts itself.
pub(super) fn look(history: &History, budget: u64) -> Result<(Judgement, Finding), HistoryError> {
    let judgement = judge(history, budget)?;
    let mut complaints = Vec::new();
    match judgement.verdict {
        Verdict::Linearizable => {}
        Verdict::Unknown => complaints.push(format!("unknown: more than {budget} steps")),
        Verdict::NotLinearizable => complaints.extend(judgement.window.as_ref().map(|window| {
            let key = window.key.as_deref().unwrap_or("the register");
            let end = history.events.get(window.to).map(told).unwrap_or_default();
            format!("'{key}': no order explains event {}: {end}", window.to)
        })),
    }
    let what = format!("judged of {} operations", judgement.operations);
    let mut finding = Finding::of_some("linearizable", judgement.judged, &what, complaints);
    finding.numbers = vec![
        ("keys", i64::try_from(judgement.keys).unwrap_or(i64::MAX)),
        ("steps", i64::try_from(judgement.steps).unwrap_or(i64::MAX)),
    ];
    Ok((judgement, finding))
}

#[cfg(test)]
mod tests {
    use super::super::story::{Story, complains, good};
    use super::*;
    use crate::edn::Value;
    use crate::history::Function;

    #[test]
    fn a_search_that_misses_an_answered_key_fails() {
        let mut story = Story::new("serve");
        story.create(1);
        story.find(&[]);
        let (judgement, finding) = look(&story.history(), 1000).expect("is judged");
        assert_eq!(judgement.verdict, Verdict::NotLinearizable);
        complains(&finding, "ok find a []");
    }

    #[test]
    fn unknown_is_no_pass() {
        let mut story = Story::new("serve");
        let calls: Vec<(u64, i64)> =
            (0..12).map(|id| (story.call(Function::Create, Value::Text(format!("t{id}"))), id)).collect();
        for (process, id) in calls {
            story.end(process, crate::history::Kind::Ok, Function::Create, Value::Int(id));
        }
        story.find(&[99]);
        let history = story.history();
        let (judgement, finding) = look(&history, 100).expect("is judged");
        assert_eq!(judgement.verdict, Verdict::Unknown);
        complains(&finding, "unknown");
    }

    #[test]
    fn an_unanswered_key_may_be_there_and_may_not() {
        for found in [&[][..], &[7]] {
            let mut story = Story::new("serve");
            story.lost(Function::Create, Value::Text("t7".into()));
            story.find(found);
            let (_, finding) = look(&story.history(), 1000).expect("is judged");
            assert!(finding.passes(), "{finding:?}");
        }
        let (_, finding) = look(&good().history(), 1000).expect("is judged");
        assert!(finding.passes(), "{finding:?}");
    }

    #[test]
    fn in_fence_mode_nobody_uses_a_key_that_a_search_missed() {
        for (found, passes) in [(&[1, 2][..], true), (&[2], false)] {
            let mut story = Story::new("fence");
            story.create(1);
            story.create(2);
            let delete = story.call(Function::Delete, Value::Int(1));
            story.find(found);
            story.used(1);
            story.end(delete, crate::history::Kind::Ok, Function::Delete, Value::Int(1));
            let (_, finding) = look(&story.history(), 1000).expect("is judged");
            assert_eq!(finding.passes(), passes, "{found:?}: {finding:?}");
        }
    }

    #[test]
    fn each_key_is_judged_as_what_it_is() {
        for (read, used, verdict) in [
            (2, false, Verdict::Linearizable),
            (1, false, Verdict::NotLinearizable),
            (2, true, Verdict::NotLinearizable),
        ] {
            let mut story = good();
            story.about("register-9");
            story.ok(Function::Write, Value::Int(1), Value::Int(1));
            story.ok(Function::Cas, Value::numbers([1, 2]), Value::numbers([1, 2]));
            let differs = story.call(Function::Cas, Value::numbers([1, 3]));
            story.end(differs, crate::history::Kind::Fail, Function::Cas, Value::numbers([1, 3]));
            story.ok(Function::Read, Value::Nil, Value::Int(read));
            story.about("session-any-0");
            story.ok(Function::SessionMake, Value::Text("1.1".into()), Value::Int(7));
            story.ok(Function::SessionUse, Value::Int(7), Value::Int(7));
            story.ok(Function::SessionEnd, Value::Int(7), Value::Int(7));
            if used {
                story.ok(Function::SessionUse, Value::Int(7), Value::Int(7));
            }
            let (judgement, _) = look(&story.history(), 1000).expect("is judged");
            assert_eq!(judgement.verdict, verdict, "{read} {used}");
        }
    }

    #[test]
    fn what_a_cut_off_member_reads_is_excused_in_serve_mode_alone() {
        for (mode, passes) in [("serve", true), ("fence", false)] {
            let mut story = Story::new(mode);
            story.create(1);
            story.fault("partition", true, &[1]);
            story.find(&[]);
            story.heal("partition", true);
            let (_, finding) = look(&story.history(), 1000).expect("is judged");
            assert_eq!(finding.passes(), passes, "{mode}: {finding:?}");
        }
    }
}
