//! How every member is, and what clients asked of it lately: each is asked, and what does not answer is named.

use super::Core;
use crate::domain::MemberId;
use crate::limits;
use crate::state::{Phase, Standing};
use crate::telemetry::Moment;
use crate::wire::{
    Answer, FailureKind, MemberAnswer, MemberPulse, MemberRequest, Operation, Pulse, TokenHealth,
};

impl Core {
    /// Why this member does not serve keys now; None if it does.
    pub fn refuses(&self) -> Option<String> {
        // A standby that waits is well.
        let why = self.may_serve().err().filter(|failure| failure.kind != FailureKind::Standby);
        why.map(|failure| failure.message)
    }

    /// What is true at this moment, for a monitor.
    pub fn moment(&self) -> Moment {
        let leadership = *self.consensus.leadership().borrow();
        let (waiting, calls) = self.token.load();
        self.agreed.read(|state| {
            let all = state.objects().count();
            let settled = state.objects().filter(|(_, row)| row.phase == Phase::Settled).count();
            Moment {
                members: state.members().count() as u64,
                in_sync: state.in_sync().len() as u64,
                is_primary: leadership.is_me,
                serves: self.may_serve().is_ok(),
                token_healthy: self.progress.token() == TokenHealth::Healthy,
                term: leadership.term,
                applied: state.applied().0,
                objects: settled as u64,
                unsettled: (all - settled) as u64,
                token_queue: waiting as u64,
                token_calls: calls,
            }
        })
    }

    /// How this member is.
    pub(super) fn pulse(&self) -> Pulse {
        let now = self.clock.now();
        let leads = self.consensus.leadership().borrow().is_me;
        let heard = if leads {
            let watch = self.watch.lock();
            let ago = |at| now.saturating_duration_since(at).as_millis();
            let millis = |at| u64::try_from(ago(at)).unwrap_or(u64::MAX);
            watch.heard.iter().map(|(member, heard)| (*member, millis(heard.at))).collect()
        } else {
            Vec::new()
        };
        Pulse {
            refuses: self.refuses(),
            token: self.progress.token(),
            reached: self.progress.reached(),
            troubles: self.progress.troubles().len() as u64,
            rate: *self.telemetry.rate.lock(),
            pending: self.telemetry.metrics.pending(),
            started: self.telemetry.started,
            heard,
        }
    }

    /// How every member is, as each says itself.
    pub(super) async fn pulses(&self) -> Answer {
        self.note_standings();
        let members: Vec<MemberId> = self.agreed.read(|state| state.members().map(|(id, _)| id).collect());
        let asked = members.iter().map(|member| self.pulse_of(*member));
        let pulses = futures::future::join_all(asked).await;
        let since = self.telemetry.since.lock();
        let row = |(member, pulse): (&MemberId, Option<Pulse>)| MemberPulse {
            member: *member,
            pulse,
            since: since.get(member).map_or(self.telemetry.started, |(_, since)| *since),
        };
        Answer::Pulses(members.iter().zip(pulses).map(row).collect())
    }

    async fn pulse_of(&self, member: MemberId) -> Option<Pulse> {
        if member == self.me {
            return Some(self.pulse());
        }
        match self.call_member(member, MemberRequest::Pulse, limits::PULSE).await {
            Ok(MemberAnswer::Pulse(pulse)) => Some(*pulse),
            _ => None,
        }
    }

    /// Notes who is in sync, and since when.
    pub(super) fn note_standings(&self) {
        let now = self.clock.unix();
        let standings: Vec<(MemberId, bool)> = self.agreed.read(|state| {
            state.members().map(|(member, row)| (member, row.standing == Standing::InSync)).collect()
        });
        let mut since = self.telemetry.since.lock();
        since.retain(|member, _| standings.iter().any(|(known, _)| known == member));
        for (member, in_sync) in standings {
            let row = since.entry(member).or_insert((in_sync, now));
            if row.0 != in_sync {
                *row = (in_sync, now);
            }
        }
    }

    /// The last operations of clients at every member, in the order of time.
    pub(super) async fn explain(&self, client: Option<String>, last: u32) -> Answer {
        let last = last.min(limits::EXPLAIN_ROWS_MAX);
        let members: Vec<MemberId> = self.agreed.read(|state| state.members().map(|(id, _)| id).collect());
        let asked = members.iter().map(|member| self.operations_of(*member, client.clone(), last));
        let found = futures::future::join_all(asked).await;
        let silent = members
            .iter()
            .zip(&found)
            .filter(|(_, rows)| rows.is_none())
            .map(|(member, _)| *member)
            .collect();
        Answer::Operations { rows: merged(found.into_iter().flatten(), last), silent }
    }

    async fn operations_of(
        &self,
        member: MemberId,
        client: Option<String>,
        last: u32,
    ) -> Option<Vec<Operation>> {
        if member == self.me {
            return Some(self.operations(client.as_deref(), last));
        }
        let request = MemberRequest::Operations { client, last };
        match self.call_member(member, request, limits::PULSE).await {
            Ok(MemberAnswer::Operations(rows)) => Some(rows),
            _ => None,
        }
    }
}

/// The last of several members' operations, oldest first.
fn merged(lists: impl IntoIterator<Item = Vec<Operation>>, last: u32) -> Vec<Operation> {
    let mut all: Vec<Operation> = lists.into_iter().flatten().collect();
    all.sort_by_key(|row| row.at);
    let last = usize::try_from(last).unwrap_or(usize::MAX);
    all.drain(..all.len().saturating_sub(last));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::UnixMillis;

    #[test]
    fn lists_are_merged_by_time() {
        let row = |at, asked| Operation {
            at: UnixMillis(at),
            client: "uid:0".into(),
            kind: "sign".into(),
            mechanism: None,
            object: None,
            asked: MemberId(asked),
            by: MemberId(asked),
            tries: 1,
            micros: 1,
            code: 0,
            reason: String::new(),
        };
        let rows = merged([vec![row(1, 1), row(5, 1)], vec![row(3, 2)]], 2);
        assert_eq!(rows.iter().map(|row| row.at.0).collect::<Vec<_>>(), [3, 5]);
    }
}
