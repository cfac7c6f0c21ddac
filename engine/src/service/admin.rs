//! What operators ask: status, coverage, invitations, members, options, hand-over.

use super::Core;
use crate::cloning::Invitation;
use crate::domain::{KeyAlgorithm, MemberId, ObjectId, Role};
use crate::limits;
use crate::state::{Command, Duty, GroupOption, InviteId, Phase, Standing};
use crate::transport::{pki, random_bytes};
use crate::wire::{
    Answer, CoverageCell, CoverageRow, CoverageState, Failure, FailureKind, GroupStatus, MemberAnswer,
    MemberRequest, MemberStatus, TokenHealth,
};
use std::collections::BTreeMap;
use zeroize::Zeroizing;

/// What one member said of its troubles: None if it did not answer.
type Troubles = Option<BTreeMap<ObjectId, (String, u32)>>;

impl Core {
    pub(super) fn status(&self) -> Answer {
        let leadership = *self.consensus.leadership().borrow();
        let voters = self.consensus.voters();
        let heard = self.watch.lock().heard.clone();
        Answer::Status(Box::new(self.agreed.read(|state| {
            let in_memory = state.options().allow_inmemory_import;
            let members = state
                .members()
                .map(|(member, row)| MemberStatus {
                    member,
                    name: row.card.name.clone(),
                    address: row.card.address.clone(),
                    voter: voters.contains(&member),
                    in_sync: row.standing == Standing::InSync,
                    reason: match &row.standing {
                        Standing::OutOfSync(reason) => reason.clone(),
                        _ => None,
                    },
                    reached: if member == self.me {
                        Some(self.progress.reached())
                    } else {
                        heard.get(&member).map(|h| h.reached)
                    },
                    token: {
                        let id = &row.card.profile.identity;
                        format!("{} {} ({})", id.manufacturer, id.model, id.label)
                    },
                    cannot: KeyAlgorithm::promised()
                        .into_iter()
                        .filter_map(|kind| Some((kind, row.card.profile.can_carry(kind, in_memory).err()?)))
                        .collect(),
                    duty: row.duty,
                    awaits_operator: row.awaits_operator(&state.options()),
                    priority: row.priority,
                })
                .collect();
            let settled = state.objects().filter(|(_, row)| row.phase == Phase::Settled).count();
            let all = state.objects().count();
            GroupStatus {
                answered_by: self.me,
                group: self.group,
                lineage: self.lineage,
                label: state.group().map(|g| g.label.clone()).unwrap_or_default(),
                primary: leadership.leader,
                term: leadership.term,
                applied: state.applied(),
                objects: settled as u64,
                unsettled: (all - settled) as u64,
                options: state.options(),
                members,
                user_pin: state.pins().pin(Role::User).hash.is_some(),
                so_pin: state.pins().pin(Role::SecurityOfficer).hash.is_some(),
                recovery: state
                    .smks()
                    .filter_map(|smk| smk.recovery.clone().map(|copy| (smk.generation, copy)))
                    .collect(),
            }
        })))
    }

    pub(super) async fn coverage(&self, after: Option<ObjectId>) -> Result<Answer, Failure> {
        self.patient_barrier().await?;
        let members: Vec<MemberId> = self.agreed.read(|state| state.members().map(|(id, _)| id).collect());
        let asked = members.iter().map(|member| self.troubles_of(*member));
        let troubles = futures::future::join_all(asked).await;
        let heard = self.reached_by().await;
        let found = self.catalogue.find(None, after, limits::ROWS_MAX + 1);
        let more = found.len() > limits::ROWS_MAX;
        let rows = self.agreed.read(|state| {
            let row = |(object, entry): (ObjectId, std::sync::Arc<crate::virtual_slot::Entry>)| {
                let agreed = state.object(object).filter(|o| !matches!(o.phase, Phase::Removing(_)))?;
                let cells = members.iter().zip(&troubles).map(|(member, troubles)| CoverageCell {
                    member: *member,
                    state: cell(agreed, object, *member, troubles, heard.get(member).copied()),
                });
                Some(CoverageRow {
                    object,
                    class: entry.class,
                    label: entry.label.clone(),
                    members: cells.collect(),
                })
            };
            found.into_iter().take(limits::ROWS_MAX).filter_map(row).collect()
        });
        Ok(Answer::Coverage { rows, more })
    }

    async fn troubles_of(&self, member: MemberId) -> Troubles {
        if member == self.me {
            return Some(self.own_troubles());
        }
        match self.call_member(member, MemberRequest::Failures, limits::ATTEMPT).await {
            Ok(MemberAnswer::Failures(rows)) => {
                Some(rows.into_iter().map(|(id, reason, tries)| (id, (reason, tries))).collect())
            }
            _ => None,
        }
    }

    /// What this member cannot import, and what was deleted on it alone.
    pub(super) fn own_troubles(&self) -> BTreeMap<ObjectId, (String, u32)> {
        let failed = self.progress.troubles().into_iter().map(|(id, t)| (id, (t.reason, t.tries)));
        let why = "deleted on this member's own slot; 'keyraft synchronize' ends that";
        let deleted = self.direct.list();
        deleted.deleted().map(|id| (id, (why.to_string(), 0))).chain(failed).collect()
    }

    /// What each member's reconciler has reached, as far as this member can know: its own, and (at the primary) what
    /// the others reported. In-sync members count as having reached everything settled.
    async fn reached_by(&self) -> BTreeMap<MemberId, u64> {
        let mut reached: BTreeMap<MemberId, u64> =
            self.watch.lock().heard.iter().map(|(member, heard)| (*member, heard.reached.0)).collect();
        reached.insert(self.me, self.progress.reached().0);
        for member in self.agreed.read(|state| state.in_sync()) {
            if member != self.me {
                reached.insert(member, u64::MAX);
            }
        }
        reached
    }

    pub(super) async fn invite(&self, life_seconds: u64, duty: Duty) -> Result<Answer, Failure> {
        let internal = |e: &dyn std::fmt::Display| Failure::new(FailureKind::Internal, e);
        let secret = Zeroizing::new(random_bytes::<32>().map_err(|e| internal(&e))?);
        let id = InviteId(random_bytes().map_err(|e| internal(&e))?);
        let at = self.clock.unix();
        let expires = crate::clock::UnixMillis(at.0.saturating_add(life_seconds.saturating_mul(1000)));
        let (authority, mut addresses) = self.agreed.read(|state| {
            let addresses: Vec<String> = state
                .members()
                .filter(|(id, _)| *id != self.me)
                .map(|(_, row)| row.card.address.clone())
                .collect();
            let own = state.member(self.me).map(|row| row.card.address.clone());
            let all: Vec<String> = own.into_iter().chain(addresses).collect();
            (state.group().map(|g| g.authority.certificate.clone()), all)
        });
        addresses.truncate(limits::INVITATION_ADDRESSES_MAX);
        let authority = authority.ok_or_else(|| internal(&"the group does not exist yet"))?;
        let authority = pki::fingerprint(&authority).map_err(|e| internal(&e))?;
        let invitation = Invitation { group: self.group, addresses, authority, id, secret };
        let command = Command::Invite { id, secret_hash: invitation.secret_hash(), at, expires, duty };
        self.settle_simple(command).await?;
        let text = invitation.to_text().map_err(|e| internal(&e))?;
        Ok(Answer::Invitation(text.to_string()))
    }

    pub(super) async fn remove_member(&self, member: MemberId) -> Result<Answer, Failure> {
        if member == self.me {
            let text = format!(
                "{} is the primary: hand over with 'keyraft step-down' before removing it",
                self.named(member)
            );
            return Err(Failure::new(FailureKind::Refused, text));
        }
        self.settle_simple(Command::RemoveMember { member }).await
    }

    /// Sets an option.
    pub(super) async fn set_option(&self, option: GroupOption) -> Result<Answer, Failure> {
        match option {
            GroupOption::IsolatedService(value) => self.set_isolated_service(value).await,
            GroupOption::AllowInmemoryImport(_)
            | GroupOption::AllowInitToken(_)
            | GroupOption::AutoRecovery(_)
            | GroupOption::PrimaryOverride(_)
            | GroupOption::UptimeMargin(_)
            | GroupOption::DirectChanges(_)
            | GroupOption::PartialKeys(_) => self.settle_simple(Command::SetOption(option)).await,
        }
    }

    pub(super) async fn step_down(&self, to: Option<MemberId>) -> Result<Answer, Failure> {
        let voters = self.consensus.voters();
        let in_sync = self.agreed.read(|state| state.in_sync());
        let fit = |m: &MemberId| *m != self.me && voters.contains(m) && in_sync.contains(m);
        let ranked = self.rank_candidates(self.clock.now()).into_iter();
        let running = voters.iter().copied().filter(|member| !self.links.is_absent(*member));
        let target = match to {
            Some(member) if member == self.me => return Ok(Answer::Done),
            Some(member) if fit(&member) => member,
            Some(member) => {
                let text = format!("{} is not a voter in sync: see 'keyraft status'", self.named(member));
                return Err(Failure::new(FailureKind::Refused, text));
            }
            // A primary of a moment has heard of nobody's fitness yet; then any voter whose process runs will do.
            None => ranked.chain(running).find(fit).ok_or_else(|| {
                Failure::new(
                    FailureKind::Refused,
                    "no other voter is in sync: there is nobody to hand over to",
                )
            })?,
        };
        self.hand_over(target, to.is_some()).await?;
        Ok(Answer::Done)
    }

    /// True if this member has left the in-sync set though its token works, or cannot find out now: an operator may ask
    /// the group to take it back. One that was away learns only by the barrier that it was left behind.
    pub(super) async fn is_left(&self) -> bool {
        if self.progress.token() != TokenHealth::Healthy {
            return false;
        }
        let barrier = tokio::time::timeout(limits::ATTEMPT, self.patient_barrier()).await;
        let left = self.agreed.read(|state| {
            state.member(self.me).is_some_and(|row| matches!(row.standing, Standing::OutOfSync(Some(_))))
        });
        left || !matches!(barrier, Ok(Ok(_)))
    }

    pub(super) fn recover(&self) -> Result<Answer, Failure> {
        match self.progress.token() {
            TokenHealth::Healthy => Ok(Answer::Findings(Vec::new())),
            TokenHealth::Failed(why) => {
                let text = format!(
                    "the token of {} failed: {why}. Stop this member, repair or replace its token, run \
                     'keyraft recover' with its configuration, and start it again",
                    self.named(self.me)
                );
                Ok(Answer::Findings(vec![text]))
            }
        }
    }

    /// What a running member can find out about itself.
    pub(super) async fn check(&self) -> Result<Answer, Failure> {
        let mut findings = Vec::new();
        if let TokenHealth::Failed(why) = self.progress.token() {
            findings.push(format!("the token failed: {why}"));
        } else if let Err(error) = self.token.canary().await {
            findings.push(format!("the token's canary key does not work: {error}"));
        }
        if let Err(failure) = self.barrier().await {
            findings.push(format!("the group does not confirm this member's state: {failure}"));
        }
        if let Err(failure) = self.may_answer() {
            findings.push(failure.message);
        }
        let unconfirmed = self.agreed.read(|s| s.fence().map(|f| f.unconfirmed.clone()).unwrap_or_default());
        if !unconfirmed.is_empty() {
            findings.push(self.unconfirmed_text(&unconfirmed));
        }
        if let Some(changes) = self.direct.list().summary() {
            findings.push(format!(
                "{changes}: 'keyraft synchronize' undoes or adopts that, as the option direct_changes says"
            ));
        }
        let returned = self.consensus.returned().borrow().clone();
        for member in returned.iter().filter(|m| self.agreed.read(|state| state.member(**m).is_some())) {
            findings.push(format!(
                "the disk of {} went back in time: its vote counts no more, and the primary removes it. If no quorum \
                 is left for that, as in a group of two, restart this member, which lacks nothing",
                self.named(*member)
            ));
        }
        for (id, trouble) in self.progress.troubles() {
            findings.push(format!("object {id}: {} (tried {} times)", trouble.reason, trouble.tries));
        }
        Ok(Answer::Findings(findings))
    }
}

fn cell(
    agreed: &crate::state::Object,
    object: ObjectId,
    member: MemberId,
    troubles: &Troubles,
    reached: Option<u64>,
) -> CoverageState {
    if let Some(refusal) = agreed.excluded.get(&member) {
        return CoverageState::Excluded { why: refusal.reason.clone() };
    }
    let Some(troubles) = troubles else { return CoverageState::Unknown };
    if let Some((why, tries)) = troubles.get(&object) {
        return CoverageState::Failed { why: why.clone(), tries: *tries };
    }
    match reached {
        Some(reached) if reached >= agreed.index.0 => CoverageState::Present,
        _ => CoverageState::Pending,
    }
}
