//! How a running member is, for whoever watches it. It holds nothing up: a member that has stopped says so.

use crate::domain::MemberId;
use crate::service::Core;
use crate::wire::FailureKind;
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
    /// True if it is a standby that waits: it is well and would serve.
    pub standby: bool,
    /// Why it does not serve keys; None if it does, or waits.
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
                standby: core.may_serve().is_err_and(|failure| failure.kind == FailureKind::Standby),
                refuses: core.refuses(),
            },
            None => {
                let refuses = Some("the member has stopped".to_string());
                Health { member: None, primary: None, standby: false, refuses }
            }
        }
    }

    /// The member's numbers in Prometheus' text format; None once it has stopped.
    pub fn metrics(&self) -> Option<Result<String, std::fmt::Error>> {
        let core = self.0.upgrade()?;
        Some(core.telemetry.metrics.text(&core.moment()))
    }
}
