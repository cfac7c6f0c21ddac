//! What a drill found.

use super::load::Tally;
use crate::exit::{Exit, Problem};
use crate::output::View;
use keyraft_engine::domain::MemberId;
use serde_json::{Value, json};
use std::time::Duration;

/// What a drill found.
pub(super) struct Report {
    pub seconds: u64,
    pub signs: Tally,
    pub changes: Tally,
    /// From asking for the hand-over to its answer.
    pub handed_over: Duration,
    /// How long no primary was known; None if no other member has become it.
    pub without_primary: Option<Duration>,
    pub before: Option<MemberId>,
    pub after: Option<MemberId>,
    /// Keys that a lost operation left behind; they are gone now.
    pub left_over: usize,
}

fn name(member: Option<MemberId>) -> String {
    member.map_or("none".into(), |m| m.to_string())
}

fn line(what: &str, tally: &Tally) -> String {
    format!(
        "  {what:<22} {:>6} done, {} late, {} lost; the longest pause {} ms",
        tally.done,
        tally.late,
        tally.lost,
        tally.longest_pause.as_millis()
    )
}

fn tally(tally: &Tally) -> Value {
    json!({
        "done": tally.done,
        "late": tally.late,
        "lost": tally.lost,
        "longest_pause_ms": millis(tally.longest_pause),
        "first_loss": tally.first_loss,
    })
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Report {
    fn lost(&self) -> u64 {
        self.signs.lost + self.changes.lost
    }

    /// For people and programs.
    pub fn view(&self) -> View {
        let head = match (self.problem(), self.without_primary) {
            (None, Some(without)) => format!(
                "the primary moved from {} to {}: nothing was lost, {} late; {} ms without a primary",
                name(self.before),
                name(self.after),
                self.signs.late + self.changes.late,
                without.as_millis()
            ),
            (problem, _) => problem.map(|problem| problem.what).unwrap_or_default(),
        };
        let hand =
            format!("  {:<22} {:>6} ms until it was answered", "the hand-over", self.handed_over.as_millis());
        let lines =
            [head, line("signatures", &self.signs), line("keys made and deleted", &self.changes), hand];
        View {
            text: lines.join("\n"),
            json: json!({
                "seconds": self.seconds,
                "primary_before": self.before.map(|m| m.to_string()),
                "primary": self.after.map(|m| m.to_string()),
                "moved": self.without_primary.is_some(),
                "lost": self.lost(),
                "late": self.signs.late + self.changes.late,
                "signatures": tally(&self.signs),
                "changes": tally(&self.changes),
                "handed_over_ms": millis(self.handed_over),
                "without_primary_ms": self.without_primary.map(millis),
                "left_over": self.left_over,
            }),
        }
    }

    /// Why the drill is not passed; None if it is.
    pub fn problem(&self) -> Option<Problem> {
        if self.lost() > 0 {
            let why = self.signs.first_loss.as_ref().or(self.changes.first_loss.as_ref());
            let why = why.map_or(String::new(), |why| format!(": the first said '{why}'"));
            let what = format!("{} operations were lost in the drill{why}", self.lost());
            return Some(Problem::new(
                Exit::CheckFailed,
                what,
                "see 'keyraft explain' and the members' logs",
            ));
        }
        if self.without_primary.is_none() {
            let what = format!("the primary did not move: it was {} all the time", name(self.before));
            return Some(Problem::new(Exit::CheckFailed, what, "see 'keyraft status' and the members' logs"));
        }
        if self.signs.done == 0 || self.changes.done == 0 {
            return Some(Problem::new(
                Exit::CheckFailed,
                "the drill's load never ran",
                "give it more --seconds",
            ));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyraft_engine::clock::Clock;

    #[test]
    fn a_loss_is_no_pass() {
        let mut done = Tally::begun(Clock.now());
        done.done = 9;
        let mut report = Report {
            seconds: 3,
            signs: done.clone(),
            changes: done.clone(),
            handed_over: Duration::from_millis(30),
            without_primary: Some(Duration::from_millis(12)),
            before: Some(MemberId(1)),
            after: Some(MemberId(2)),
            left_over: 0,
        };
        assert_eq!(report.problem(), None);
        let first = report.view().text.lines().next().unwrap_or_default().to_string();
        assert_eq!(
            first,
            "the primary moved from m1 to m2: nothing was lost, 0 late; 12 ms without a primary"
        );
        report.changes.lost = 1;
        report.changes.first_loss = Some("no quorum".into());
        let problem = report.problem().expect("something was lost");
        assert_eq!(problem.exit, Exit::CheckFailed);
        assert!(problem.what.contains("'no quorum'"), "{problem}");
        report.changes = done;
        report.without_primary = None;
        assert!(report.problem().is_some(), "a drill without a hand-over is none");
    }
}
