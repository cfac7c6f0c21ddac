//! What a member tells of itself: events with stable codes for the log, numbers for a monitor, and a bounded memory of
//! what was done lately. Names no key: no label, no secret, nothing that grows with the number of objects.

pub mod events;
#[cfg(feature = "member")]
mod latency;
#[cfg(feature = "member")]
pub mod metrics;
#[cfg(feature = "member")]
mod rate;
#[cfg(feature = "member")]
mod ring;

pub use events::Event;
#[cfg(feature = "member")]
pub use metrics::{Kind, Metrics, Moment, Verdict};
#[cfg(feature = "member")]
pub use rate::Rate;
#[cfg(feature = "member")]
pub use ring::Ring;
