//! Work with keys. The log is not touched.

use super::super::{Core, token_failure};
use super::{Answered, Halt};
use crate::domain::{Mechanism, ObjectClass, ObjectId};
use crate::limits;
use crate::virtual_slot::policy::{Asker, Need, may_use, may_wrap};
use crate::virtual_slot::{ckr, policy};
use crate::wire::{Failure, FailureKind, KeyRef, SecretBytes, SlotAnswer, UseKind};
use zeroize::Zeroizing;

impl Core {
    pub(super) async fn slot_use(
        &self,
        key: &KeyRef,
        kind: &UseKind,
        mechanism: &Mechanism,
        data: &[u8],
        asker: Asker,
    ) -> Result<SlotAnswer, Halt> {
        if data.len() > limits::OPERATION_DATA_MAX_BYTES {
            let text = format!("more than {} bytes for one operation", limits::OPERATION_DATA_MAX_BYTES);
            return Err(Failure::pkcs11(ckr::DATA_LEN_RANGE, text).into());
        }
        self.may_serve()?;
        let need = Need::from(kind);
        let used = self.used_key(key, need, mechanism, asker).await?;
        let done = self.in_time(self.token.operate(used, kind, mechanism, data)).await?;
        if let KeyRef::Object(object) = key {
            self.still_there(*object, need)?;
        }
        Ok(SlotAnswer::Output(SecretBytes(done)))
    }
}
