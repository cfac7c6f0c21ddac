//! Agreed minus held: what this member's token must do. Pure.

use crate::domain::{ContentKey, MemberId, ObjectId, Version};
use crate::mutant::{self, Mutant};
use crate::state::State;
use std::collections::BTreeSet;

/// One thing to do with one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make this content held.
    Import(ContentKey),
    /// Make every copy of this object go.
    Drop(ObjectId),
}

/// What `me` must do with the objects in `scope` so that what it holds is what is agreed, less what was deleted on
/// this member alone. Copies are dropped only if
/// `confirmed`: a quorum has confirmed, since this start, a state that lacks them. A lost or foreign data folder
/// never empties a token.
pub fn plan(
    agreed: &State,
    me: MemberId,
    held: impl Fn(ObjectId) -> Option<Version>,
    deleted_here: impl Fn(ObjectId) -> bool,
    scope: &BTreeSet<ObjectId>,
    confirmed: bool,
) -> Vec<Step> {
    let step = |&id: &ObjectId| {
        let held = held(id);
        match agreed.object(id).filter(|object| object.is_held_by(me) && !deleted_here(id)) {
            Some(object) if held == Some(object.content.version) => None,
            Some(object) => Some(Step::Import(object.content)),
            None if held.is_some() && confirmed && mutant::is_on(Mutant::KeepStaleCopy) => None,
            None if held.is_some() && (confirmed || mutant::is_on(Mutant::DestroyOnUnconfirmedState)) => {
                Some(Step::Drop(id))
            }
            None => None,
        }
    };
    scope.iter().filter_map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_agreed_goes_only_once_a_quorum_confirmed() {
        let agreed = State::default();
        let held = |id: ObjectId| (id == ObjectId(7)).then_some(Version(1));
        let scope = BTreeSet::from([ObjectId(7), ObjectId(8)]);
        assert_eq!(plan(&agreed, MemberId(1), held, |_| false, &scope, false), []);
        assert_eq!(plan(&agreed, MemberId(1), held, |_| false, &scope, true), [Step::Drop(ObjectId(7))]);
    }

    #[cfg(feature = "test-hooks")]
    #[test]
    fn known_mistakes_destroy_too_early_or_never() {
        let agreed = State::default();
        let scope = BTreeSet::from([ObjectId(7)]);
        let planned =
            |confirmed| plan(&agreed, MemberId(1), |_| Some(Version(1)), |_| false, &scope, confirmed);
        let tried = crate::mutant::Tried::begin(Mutant::DestroyOnUnconfirmedState);
        assert_eq!(planned(false), [Step::Drop(ObjectId(7))]);
        drop(tried);
        let _tried = crate::mutant::Tried::begin(Mutant::KeepStaleCopy);
        assert_eq!(planned(true), []);
    }
}
