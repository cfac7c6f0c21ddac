//! The virtual slot's requests: what applications ask through the PKCS#11 module.

use super::Core;
use crate::wire::{Answer, Failure, FailureKind, SlotCall};

impl Core {
    /// Carries out a call on the virtual slot, here or wherever it can be.
    pub(super) async fn slot(&self, call: SlotCall) -> Result<Answer, Failure> {
        drop(call);
        Err(Failure::new(FailureKind::Internal, "the virtual slot is not there yet"))
    }
}
