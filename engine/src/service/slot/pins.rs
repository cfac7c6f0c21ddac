//! Changing PINs, and emptying the virtual token.

use super::super::Core;
use crate::domain::{ClientId, ObjectId, RequestId, Role};
use crate::limits;
use crate::state::{Command, Phase};
use crate::virtual_slot::pin::{self, PinError};
use crate::wire::{Answer, Change, Deletion, Failure, FailureKind, SecretBytes, SlotAnswer, SlotCall};
use futures::{StreamExt, stream};

const PIN_INVALID: u64 = 0xA1;
const PIN_LEN_RANGE: u64 = 0xA2;
const USER_NOT_LOGGED_IN: u64 = 0x101;
const FUNCTION_REJECTED: u64 = 0x200;

/// A text that cannot be a PIN, as applications see it.
pub(super) fn refused(error: PinError) -> Failure {
    match error {
        PinError::Length => Failure::pkcs11(PIN_LEN_RANGE, error),
        PinError::Text => Failure::pkcs11(PIN_INVALID, error),
        PinError::Hash => Failure::new(FailureKind::Internal, error),
    }
}

impl Core {
    /// C_SetPIN: of whoever is logged in, or of the user.
    pub(super) async fn slot_set_pin(
        &self,
        call: &SlotCall,
        change: Change,
        old: &SecretBytes,
        new: &SecretBytes,
    ) -> Result<SlotAnswer, Failure> {
        pin::check_new(new).map_err(refused)?;
        let role = match &call.ticket {
            Some(ticket) => {
                self.ticket_made(call, ticket)?;
                ticket.role
            }
            None => Role::User,
        };
        if !self.was_set_by(role, change) {
            self.ticket_role(call)?;
            let version = self.prove_pin(&call.who, role, old, change.request).await?;
            self.put_pin(role, Some(new), version, Some(change.request)).await?;
        }
        // The old ticket ended with the old PIN; who was logged in stays so.
        let version = self.agreed.read(|state| state.pins().pin(role).version);
        match &call.ticket {
            Some(old) => {
                let ticket = self.ticket(old.client, &call.who, role, version)?;
                Ok(SlotAnswer::Ticket(ticket))
            }
            None => Ok(SlotAnswer::Done),
        }
    }

    /// True if this change was made already.
    fn was_set_by(&self, role: Role, change: Change) -> bool {
        self.agreed.read(|state| state.pins().pin(role).by == Some(change.request))
    }

    /// C_InitPIN: the security officer gives the user a PIN, and forgets every wrong try at the old one.
    pub(super) async fn slot_init_pin(
        &self,
        call: &SlotCall,
        change: Change,
        new: &SecretBytes,
    ) -> Result<SlotAnswer, Failure> {
        if self.ticket_role(call)? != Some(Role::SecurityOfficer) {
            let text = "only the security officer sets the user's PIN: log in as CKU_SO first";
            return Err(Failure::pkcs11(USER_NOT_LOGGED_IN, text));
        }
        if !self.was_set_by(Role::User, change) {
            let version = self.agreed.read(|state| state.pins().pin(Role::User).version);
            self.put_pin(Role::User, Some(new), version, Some(change.request)).await?;
        }
        Ok(SlotAnswer::Done)
    }

    async fn put_pin(
        &self,
        role: Role,
        new: Option<&SecretBytes>,
        follows: u32,
        by: Option<RequestId>,
    ) -> Result<(), Failure> {
        let hash = match new {
            Some(pin) => Some(self.hash_pin(pin).await?),
            None => None,
        };
        self.settle_simple(Command::SetPin { role, hash, follows, by }).await.map(|_| ())
    }

    /// An operator sets a PIN. Runs at the primary.
    pub(in crate::service) async fn set_pin(&self, role: Role, new: &SecretBytes) -> Result<Answer, Failure> {
        let version = self.agreed.read(|state| state.pins().pin(role).version);
        self.put_pin(role, Some(new), version, None).await?;
        Ok(Answer::Done)
    }

    /// C_InitToken: no object is left, and the user has no PIN.
    pub(super) async fn slot_init_token(
        &self,
        call: &SlotCall,
        change: Change,
        so_pin: &SecretBytes,
    ) -> Result<SlotAnswer, Failure> {
        if !self.agreed.read(|state| state.options().allow_init_token) {
            let text = "C_InitToken destroys every key of the group, which its option allow_init_token forbids: an \
                        operator allows it with 'keyraft option set allow_init_token true'";
            return Err(Failure::pkcs11(FUNCTION_REJECTED, text));
        }
        self.prove_pin(&call.who, Role::SecurityOfficer, so_pin, change.request).await?;
        if !self.was_set_by(Role::User, change) {
            self.delete_everything().await?;
            let version = self.agreed.read(|state| state.pins().pin(Role::User).version);
            self.put_pin(Role::User, None, version, Some(change.request)).await?;
        }
        Ok(SlotAnswer::Done)
    }

    /// Deletes every settled object. A repeat goes on with what is left.
    async fn delete_everything(&self) -> Result<(), Failure> {
        let nonce = crate::transport::random_bytes().map_err(|e| Failure::new(FailureKind::Internal, e))?;
        let (objects, client) = self.agreed.read(|state| {
            let settled = state.objects().filter(|(_, row)| row.phase == Phase::Settled);
            let objects: Vec<ObjectId> = settled.map(|(id, _)| id).collect();
            (objects, ClientId { born: state.applied(), nonce: u64::from_be_bytes(nonce) })
        });
        let deletions = objects.into_iter().zip(1u64..).map(|(object, sequence)| {
            // `buffered` ends them in order: when this one begins, the one a window before it is over.
            let watermark = sequence.saturating_sub(limits::EMPTYING_MAX as u64);
            let request = RequestId { client, sequence };
            self.delete(Deletion { request, watermark, objects: vec![object] })
        });
        let mut ends = stream::iter(deletions).buffered(limits::EMPTYING_MAX);
        while let Some(end) = ends.next().await {
            match end {
                Err(failure) if failure.kind != FailureKind::NotFound => return Err(failure),
                _ => {}
            }
        }
        Ok(())
    }
}
