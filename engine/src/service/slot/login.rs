//! Logins: who the caller of the virtual slot is.

use super::super::Core;
use crate::wire::{ClientName, Failure, FailureKind, PinState, Role, SlotAnswer, SlotCall};

impl Core {
    /// Login, Renew, SetPin, InitPin and InitToken.
    #[expect(clippy::unused_async, reason = "a login counts its tries in the log")]
    pub(super) async fn slot_login(&self, _call: &SlotCall) -> Result<SlotAnswer, Failure> {
        Err(Failure::new(FailureKind::Refused, "this member knows no PINs"))
    }

    /// As what the caller is logged in.
    pub(super) fn ticket_role(&self, _call: &SlotCall) -> Result<Option<Role>, Failure> {
        Ok(None)
    }

    /// The user's PIN and the security officer's, as this client sees them.
    pub(super) fn pin_states(&self, _who: &ClientName) -> (PinState, PinState) {
        let unset = PinState { set: false, tries: 0, tries_max: crate::limits::PIN_TRIES_MAX };
        (unset, unset)
    }
}
