//! How a running member is, for whoever watches it. It holds nothing up: a member that has stopped says so.

use crate::domain::MemberId;
use crate::service::Core;
use std::sync::{Arc, Weak};

/// A handle on a member's numbers; it does not keep the member alive.
#[derive(Clone)]
pub struct Monitor(Weak<Core>);

/// How a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The member; None once it has stopped.
    pub member: Option<MemberId>,
    /// The primary as the member knows it.
    pub primary: Option<MemberId>,
    /// Why it does not serve keys; None if it does.
    pub refuses: Option<String>,
}

impl Monitor {
    pub(super) fn new(core: &Arc<Core>) -> Self {
        Self(Arc::downgrade(core))
    }

    /// How the member is now.
    pub fn health(&self) -> Health {
        match self.0.upgrade() {
            Some(core) => Health {
                member: Some(core.me),
                primary: core.consensus.leadership().borrow().leader,
                refuses: core.refuses(),
            },
            None => {
                Health { member: None, primary: None, refuses: Some("the member has stopped".to_string()) }
            }
        }
    }

    /// The member's numbers in Prometheus' text format; None once it has stopped.
    pub fn metrics(&self) -> Option<String> {
        let core = self.0.upgrade()?;
        Some(core.telemetry.metrics.text(&core.moment()))
    }
}
