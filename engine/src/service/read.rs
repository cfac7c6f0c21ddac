//! Lists and looks up objects. Absence is answered only behind a read barrier.

use super::{Core, consensus_failure, not_found};
use crate::domain::{
    AttributeRecord, AttributeType, AttributeValue, ContentKey, EnvelopeContent, LogIndex, ObjectId,
};
use crate::envelope;
use crate::limits;
use crate::mutant::{self, Mutant};
use crate::state::{Object, Phase};
use crate::wire::{Answer, Failure, FailureKind, MemberAnswer, MemberRequest, ObjectRow};

impl Core {
    /// True if there is a primary that this member hears, or it is one that the others hear.
    pub(super) fn hears_a_primary(&self) -> bool {
        self.consensus.hears_a_leader(limits::MEMBER_DEAD)
    }

    /// Waits until this member shows everything that was answered before now.
    pub(super) async fn barrier(&self) -> Result<LogIndex, Failure> {
        let leadership = *self.consensus.leadership().borrow();
        let index = match leadership.leader {
            Some(leader) if leader == self.me => {
                self.consensus.barrier().await.map_err(|e| consensus_failure(&e))?
            }
            Some(leader) => {
                match self.call_primary(leader, MemberRequest::ReadIndex, limits::ATTEMPT).await? {
                    MemberAnswer::ReadIndex(index) => index,
                    _ => {
                        return Err(Failure::new(
                            FailureKind::Internal,
                            "the primary answered another question",
                        ));
                    }
                }
            }
            None => return Err(Failure::new(FailureKind::NoQuorum, "the group has no primary now")),
        };
        self.wait_applied(index, limits::ATTEMPT).await?;
        let mut scanned = self.progress.scanned();
        let shown = tokio::time::timeout(limits::OVERALL, scanned.wait_for(|at| *at >= index)).await;
        match shown {
            Ok(Ok(_)) => Ok(index),
            _ => Err(Failure::new(
                FailureKind::Busy,
                format!("{} is still catching up: try again", self.named(self.me)),
            )),
        }
    }

    /// The barrier, tried again while the primary moves.
    pub(super) async fn patient_barrier(&self) -> Result<LogIndex, Failure> {
        if mutant::is_on(Mutant::SkipReadBarrier) {
            return Ok(self.agreed.read(|state| state.applied()));
        }
        let deadline = self.clock.now() + limits::OVERALL;
        loop {
            match self.barrier().await {
                Err(failure)
                    if failure.remedy() != crate::wire::Remedy::GiveUp && self.clock.now() < deadline =>
                {
                    tokio::time::sleep(limits::RETRY_PAUSE).await;
                }
                other => return other,
            }
        }
    }

    /// In a group that fences, waits until every deletion that this member shows is over. While one is under way another
    /// member may still use the key, and nobody who was told that it has gone may meet it again. While some member has not
    /// confirmed the fence no deletion ends, and nothing of this is promised.
    pub(super) async fn deletions_over(&self) -> Result<(), Failure> {
        let removing = |row: &Object| matches!(row.phase, Phase::Removing(_));
        let mut applied = self.agreed.applied();
        let mut waits: Vec<ObjectId> = self.agreed.read(|state| {
            state.unsettled_objects().filter(|(_, row)| removing(row)).map(|(id, _)| id).collect()
        });
        let over = async {
            loop {
                // Marked before the look: what is applied after it wakes this again.
                applied.borrow_and_update();
                let promised = self.agreed.read(|state| {
                    waits.retain(|id| state.object(*id).is_some_and(removing));
                    state.fence().is_some_and(|fence| fence.unconfirmed.is_empty())
                });
                if waits.is_empty() || !promised {
                    return true;
                }
                if applied.changed().await.is_err() {
                    return false;
                }
            }
        };
        match tokio::time::timeout(limits::DELETION_PATIENCE, over).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Failure::new(FailureKind::Stopping, "this member is stopping")),
            Err(_) => {
                let text =
                    "a deletion is under way, and not every member has carried it out in time: try again";
                Err(Failure::new(FailureKind::Busy, text))
            }
        }
    }

    /// What became of a request. In a group that fences, that an object has gone is said once nobody uses it any more.
    pub(super) async fn gone_for_all(&self, done: Result<Answer, Failure>) -> Result<Answer, Failure> {
        if done.as_ref().is_err_and(Failure::tells_absence) {
            self.deletions_over().await?;
        }
        done
    }

    /// In a group that fences, the barrier: what an object was changed to is then read in one order with all else. Who has
    /// no lease refuses at once.
    pub(super) async fn fenced_barrier(&self) -> Result<(), Failure> {
        if !self.fences() {
            return Ok(());
        }
        self.fenced()?;
        let Ok(done) = tokio::time::timeout(limits::FIND_PATIENCE, self.patient_barrier()).await else {
            self.fenced()?;
            return Err(Failure::new(FailureKind::NoQuorum, "no quorum of members answers"));
        };
        done.map(drop)
    }

    pub(super) async fn list(
        &self,
        label: Option<String>,
        after: Option<ObjectId>,
    ) -> Result<Answer, Failure> {
        let confirmed = match tokio::time::timeout(limits::FIND_PATIENCE, self.patient_barrier()).await {
            Ok(confirmed) => confirmed,
            Err(_) if label.is_some() && !self.hears_a_primary() => {
                Err(Failure::new(FailureKind::NoQuorum, "the group has no primary now"))
            }
            Err(_) => self.patient_barrier().await,
        };
        let found = self.catalogue.find(label.as_deref(), after, limits::ROWS_MAX + 1);
        match confirmed {
            Ok(_) => {}
            // What is there by name is found without a quorum; that nothing is there is not believed.
            Err(failure)
                if failure.kind == FailureKind::NoQuorum
                    && label.is_some()
                    && !found.is_empty()
                    && !self.fences() => {}
            Err(failure) => return Err(failure),
        }
        let more = found.len() > limits::ROWS_MAX;
        let rows = self.agreed.read(|state| {
            found
                .into_iter()
                .take(limits::ROWS_MAX)
                .filter(|(id, _)| state.object(*id).is_some_and(|o| o.phase == Phase::Settled))
                .map(|(object, entry)| ObjectRow {
                    object,
                    class: entry.class,
                    algorithm: entry.algorithm,
                    attributes: [
                        (AttributeType::LABEL, AttributeValue::Bytes(entry.label.clone().into_bytes())),
                        (AttributeType::ID, AttributeValue::Bytes(entry.id.clone())),
                    ]
                    .into(),
                })
                .collect()
        });
        self.deletions_over().await?;
        Ok(Answer::Objects { rows, more })
    }

    pub(super) async fn show(&self, object: ObjectId) -> Result<Answer, Failure> {
        self.fenced_barrier().await?;
        if self.settled(object).is_none() {
            self.patient_barrier().await?;
        }
        let row = self.row(object)?;
        self.fenced()?;
        Ok(Answer::Objects { rows: vec![row], more: false })
    }

    /// A settled object's content name.
    pub(super) fn settled(&self, object: ObjectId) -> Option<ContentKey> {
        self.agreed.read(|state| {
            state.object(object).filter(|row| row.phase == Phase::Settled).map(|row| row.content)
        })
    }

    /// A settled object with every attribute that may be read.
    pub(super) fn row(&self, object: ObjectId) -> Result<ObjectRow, Failure> {
        let name = self.settled(object).ok_or_else(|| not_found(object))?;
        let record = self.record(name)?;
        let mut attributes = record.attributes.clone();
        if record.flag(AttributeType::SENSITIVE) {
            attributes.remove(&AttributeType::VALUE);
        }
        Ok(ObjectRow { object, class: record.class, algorithm: record.algorithm, attributes })
    }

    /// Opens an object's record.
    pub(super) fn record(&self, name: ContentKey) -> Result<AttributeRecord, Failure> {
        Ok(self.content(name)?.record)
    }

    /// Opens an object's content.
    pub(super) fn content(&self, name: ContentKey) -> Result<EnvelopeContent, Failure> {
        let internal = |e: String| Failure::new(FailureKind::Internal, e);
        let envelope = self
            .agreed
            .content(name)
            .map_err(|e| internal(format!("the store cannot read object {name}: {e}")))?
            .ok_or_else(|| internal(format!("the store lacks the content of object {name}")))?;
        let key = self
            .keys
            .get(name.generation)
            .ok_or_else(|| internal(format!("{} has no envelope key of {}", self.me, name.generation)))?;
        envelope::open(key, self.group, name, &envelope).map_err(|e| internal(e.to_string()))
    }
}
