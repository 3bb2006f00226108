//! Latencies of single calls, in high dynamic range histograms (Tene's HdrHistogram).

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::usage::now_ns;

/// Percentiles that are reported: the share of calls, and its name.
const PERCENTILES: [(f64, &str); 5] =
    [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99_9"), (0.9999, "p99_99")];

/// Longest latency told apart, in nanoseconds: a longer one counts as this long.
const LONGEST_NS: u64 = 10_000_000_000;

/// Latencies in nanoseconds, exact to two significant digits. Recording does not allocate.
#[derive(Debug, Clone)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST_NS, 2).expect("the bounds are valid"))
    }
}

impl Latencies {
    /// Runs a call and records how long it took, the timer's own cost included.
    #[inline]
    pub fn time<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let start = now_ns();
        let result = call();
        self.0.saturating_record(now_ns() - start);
        result
    }

    /// Adds another's records.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all have the same bounds");
    }

    /// How many were recorded.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The percentiles and the maximum, each under the name `PREFIX_p50_ns` and so on.
    pub fn figures(&self, prefix: &str) -> BTreeMap<String, f64> {
        let percentiles =
            PERCENTILES.into_iter().map(|(share, name)| (name, self.0.value_at_quantile(share)));
        percentiles
            .chain([("max", self.0.max())])
            .map(|(name, value)| (format!("{prefix}_{name}_ns"), value as f64))
            .collect()
    }
}

/// What the timer itself adds to each latency, in nanoseconds: the median of 10 000 empty calls.
pub fn timer_cost_ns() -> f64 {
    let mut empty = Latencies::default();
    for _ in 0..10_000 {
        empty.time(|| ());
    }
    empty.0.value_at_quantile(0.5) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_records() {
        let mut latencies = Latencies::default();
        for value in 1..=100 {
            latencies.0.record(value).expect("within bounds");
        }
        let mut other = Latencies::default();
        other.0.record(1000).expect("within bounds");
        latencies.merge(&other);
        let figures = latencies.figures("round_01");
        assert_eq!(latencies.count(), 101);
        assert_eq!(figures["round_01_p50_ns"], 51.0);
        assert!((1000.0..1010.0).contains(&figures["round_01_max_ns"]));
        assert_eq!(figures.len(), 6);
    }

    #[test]
    fn a_call_takes_at_least_as_long_as_it_sleeps() {
        let mut latencies = Latencies::default();
        latencies.time(|| std::thread::sleep(std::time::Duration::from_millis(2)));
        assert!(latencies.figures("x")["x_max_ns"] >= 2e6);
        assert!(timer_cost_ns() >= 1.0);
    }
}
