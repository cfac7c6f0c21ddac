//! The rules.
use super::{Command, Effects, State};
use crate::domain::LogIndex;
pub(super) fn apply(_state: &mut State, _index: LogIndex, _command: Command) -> Effects {
    Effects::default()
}
