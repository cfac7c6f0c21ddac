//! Stub.
use super::RequestState;
use crate::domain::RequestId;
use serde::{Deserialize, Serialize};
/// Stub.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestTable {}
impl RequestTable {
    /// Stub.
    pub fn get(&self, _id: RequestId) -> Option<RequestState> {
        None
    }
}
