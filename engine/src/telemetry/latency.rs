//! A histogram of times that costs two atomic additions an observation: no lock on the path of a key's use.

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets, microseconds; past the last there is one more.
const BOUNDS_MICROS: [u64; 14] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 500_000, 1_000_000, 2_000_000,
    10_000_000,
];

/// A clone is a handle of the same histogram.
#[derive(Clone, Debug, Default)]
pub struct Latency(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    counts: [AtomicU64; BOUNDS_MICROS.len() + 1],
    micros: AtomicU64,
}

impl Latency {
    /// Notes one time.
    pub fn observe(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_MICROS.partition_point(|bound| *bound < micros);
        self.0.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.0.micros.fetch_add(micros, Ordering::Relaxed);
    }
}

impl TypedMetric for Latency {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Latency {
    #[expect(clippy::cast_precision_loss, reason = "a monitor reads floating point")]
    fn encode(&self, mut encoder: MetricEncoder) -> fmt::Result {
        let counts: Vec<u64> = self.0.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let bounds = BOUNDS_MICROS.iter().map(|micros| *micros as f64 / 1e6).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(counts.iter().copied()).collect();
        let sum = self.0.micros.load(Ordering::Relaxed) as f64 / 1e6;
        encoder.encode_histogram::<NoLabelSet>(sum, counts.iter().sum(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}
