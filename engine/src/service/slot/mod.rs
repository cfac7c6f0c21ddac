//! The virtual slot's requests: what applications ask through the PKCS#11 module.

mod login;
mod pins;

pub use login::Logins;

use super::Core;
use crate::wire::{Answer, Failure, FailureKind, SlotCall, SlotReply, SlotRequest};

/// True for what only the primary does.
pub(super) fn is_change(ask: &SlotRequest) -> bool {
    matches!(
        ask,
        SlotRequest::Login { .. }
            | SlotRequest::SetPin { .. }
            | SlotRequest::InitPin { .. }
            | SlotRequest::InitToken { .. }
    )
}

impl Core {
    /// Carries out a call on the virtual slot at this member, or says who can.
    pub(super) async fn slot_here(&self, call: &SlotCall) -> Result<Answer, Failure> {
        let answer = match &call.ask {
            SlotRequest::Login { .. }
            | SlotRequest::Renew
            | SlotRequest::SetPin { .. }
            | SlotRequest::InitPin { .. }
            | SlotRequest::InitToken { .. } => self.slot_login(call).await?,
            _ => return Err(Failure::new(FailureKind::Internal, "the virtual slot is not there yet")),
        };
        let index = self.agreed.read(|state| state.applied());
        Ok(Answer::Slot(Box::new(SlotReply { index, answer })))
    }
}
