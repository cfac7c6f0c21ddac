//! `synchronize`: every member compares agreed with held now, and tells object by object what it did, what it could
//! not do and why. What fails at one object or member keeps nobody else from going on.

use super::{Core, settler};
use crate::domain::{LogIndex, MemberId};
use crate::limits;
use crate::telemetry::Event;
use crate::wire::{
    Answer, Compared, Comparison, ComparisonRow, ComparisonTotals, Failure, FailureKind, MemberAnswer,
    MemberRequest,
};
use tokio::sync::oneshot;
use tracing::info;

impl Core {
    pub(super) async fn synchronize(&self) -> Result<Answer, Failure> {
        let barrier = tokio::time::timeout(limits::ATTEMPT, self.patient_barrier()).await;
        // Without a quorum each member compares with what it knows.
        let (index, doubt) = match barrier {
            Ok(Ok(index)) => (index, None),
            Ok(Err(failure)) => (LogIndex(0), Some(failure.message)),
            Err(_) => (LogIndex(0), Some("no quorum of members answers".to_string())),
        };
        // What was changed on members' own slots ends first: the comparison then sees the group's keys alone.
        let direct = self.end_direct_everywhere().await;
        let members: Vec<MemberId> = self.agreed.read(|state| state.members().map(|(id, _)| id).collect());
        let asked = members.iter().map(|member| self.comparison_of(*member, index));
        let answers = futures::future::join_all(asked).await;
        let mut all = Vec::new();
        let mut totals = Vec::new();
        let mut more = false;
        if let Some(why) = doubt {
            let why = format!("newer changes of the group could not be looked for: {why}");
            all.push(whole_member(self.me, why));
        }
        all.extend(direct.into_iter().map(|(member, why)| whole_member(member, why)));
        for (member, answer) in members.into_iter().zip(answers) {
            match answer {
                Ok(comparison) => {
                    more |= comparison.more;
                    let row = |(object, action)| ComparisonRow {
                        member,
                        object: Some(object),
                        label: self
                            .catalogue
                            .entry(object)
                            .map(|e| settler::short(&e.label))
                            .unwrap_or_default(),
                        action,
                    };
                    totals.push((member, comparison.totals));
                    all.extend(comparison.rows.into_iter().map(row));
                }
                Err(failure) => {
                    totals.push((member, ComparisonTotals { cannot: 1, ..ComparisonTotals::default() }));
                    all.push(whole_member(member, failure.message));
                }
            }
        }
        all.sort_by_key(|row| row.action.urgency());
        let mut bytes = 0;
        let count = all.iter().take(limits::ROWS_MAX).take_while(|row| fits(&mut bytes, row)).count();
        more |= all.len() > count;
        let cannot = all.iter().filter(|row| matches!(row.action, Compared::Cannot { .. })).count();
        info!(code = Event::SynchronizeDone.code(), index = index.0, cannot, "agreed and held were compared");
        all.truncate(count);
        Ok(Answer::Synchronized { rows: all, totals, more })
    }

    async fn comparison_of(&self, member: MemberId, index: LogIndex) -> Result<Comparison, Failure> {
        if member == self.me {
            return self.compare_here(index).await;
        }
        match self.call_member(member, MemberRequest::Compare(index), limits::COMPARISON).await? {
            MemberAnswer::Compared(comparison) => Ok(comparison),
            _ => {
                let text = format!("{} answered another question", self.named(member));
                Err(Failure::new(FailureKind::Internal, text))
            }
        }
    }

    /// Has this member compare everything anew; nobody waits for what comes of it. One that others have asked for, and
    /// that has not begun, does as well.
    pub(super) fn compare_soon(&self) {
        let _ = self.comparisons.try_send(oneshot::channel().0);
    }

    /// Compares everything at this member, with a state that has reached an index at least.
    pub(super) async fn compare_here(&self, index: LogIndex) -> Result<Comparison, Failure> {
        self.wait_applied(index, limits::ATTEMPT).await?;
        let (sender, answer) = oneshot::channel();
        self.comparisons.try_send(sender).map_err(|_| {
            let text = format!("{} compares already, for others: try again", self.named(self.me));
            Failure::new(FailureKind::Busy, text)
        })?;
        match tokio::time::timeout(limits::COMPARISON, answer).await {
            Ok(Ok(comparison)) => Ok(comparison),
            Ok(Err(_)) => Err(Failure::new(FailureKind::Stopping, "the member is stopping")),
            Err(_) => {
                let text = format!("{} is still importing keys: see 'keyraft coverage'", self.named(self.me));
                Err(Failure::new(FailureKind::Deadline, text))
            }
        }
    }
}

fn whole_member(member: MemberId, why: String) -> ComparisonRow {
    let action = Compared::Cannot { why: settler::short(&why) };
    ComparisonRow { member, object: None, label: String::new(), action }
}

/// Counts a row's bytes; false once they are too many for one answer.
fn fits(bytes: &mut usize, row: &ComparisonRow) -> bool {
    *bytes += row.label.len() + row.action.bytes();
    *bytes <= limits::COMPARISON_MAX_BYTES
}
