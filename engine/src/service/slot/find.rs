//! What the slot is, searches, and reads.

use super::super::Core;
use super::Answered;
use crate::domain::{Attributes, ObjectId};
use crate::limits;
use crate::state::{IsolatedService, Phase};
use crate::virtual_slot::policy::{Asker, may_see};
use crate::virtual_slot::{Traits, ckr, mechanisms, visible};
use crate::wire::{Failure, FailureKind, Remedy, Role, SlotAnswer, SlotCall, SlotInfo};

impl Core {
    pub(super) fn slot_info(&self, call: &SlotCall) -> Answered {
        let (user_pin, so_pin) = self.pin_states(&call.who);
        let info = self.agreed.read(|state| {
            let group = state.group()?;
            let cards = state.members().map(|(_, row)| &row.card.profile.mechanisms[..]);
            Some(SlotInfo {
                group: group.id,
                label: group.label.clone(),
                applied: state.applied(),
                mechanisms: mechanisms::shared(cards),
                user_pin,
                so_pin,
                member: None,
            })
        });
        let info = info.ok_or_else(|| {
            Failure::new(FailureKind::NotInSync, format!("{} does not know its group yet", self.me))
        })?;
        Ok(SlotAnswer::Info(Box::new(info)))
    }

    /// Searches behind a barrier: what was answered before is found. Where no quorum answers and isolated members
    /// serve, they answer with what they have.
    pub(super) async fn slot_find(
        &self,
        template: &Attributes,
        after: Option<ObjectId>,
        asker: Asker,
    ) -> Answered {
        match tokio::time::timeout(limits::FIND_PATIENCE, self.patient_barrier()).await {
            Ok(Ok(_)) => {}
            Ok(Err(failure)) if failure.remedy() == Remedy::GiveUp => return Err(failure),
            Ok(Err(_)) | Err(_) => {
                self.may_answer()?;
                if self.agreed.read(|state| state.options().isolated_service) == IsolatedService::Fence {
                    return Err(Failure::new(FailureKind::NoQuorum, "no quorum of members answers"));
                }
            }
        }
        let private = asker.role == Some(Role::User);
        let page = self.agreed.read(|state| {
            let settled = |id| state.object(id).is_some_and(|row| row.phase == Phase::Settled);
            self.catalogue.search(template, private, after, limits::FOUND_MAX, settled)
        });
        self.deletions_over().await?;
        Ok(SlotAnswer::Found { objects: page.objects, more: page.more })
    }

    pub(super) async fn slot_read(&self, object: ObjectId, asker: Asker) -> Answered {
        self.fenced_barrier().await?;
        let name = self.settled_surely(object, ckr::OBJECT_HANDLE_INVALID).await?;
        let record = self.record(name)?;
        self.fenced()?;
        may_see(&Traits::of(&record), asker.role)?;
        Ok(SlotAnswer::Record(Box::new(visible(&record))))
    }
}
