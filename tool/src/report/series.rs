//! The samples of a run, by the cells of its table.

use std::collections::BTreeMap;

use ample_protocol::Measurement;

use crate::record::{Judgement, Pass, Sample, operations_per_second};

/// Name of the throughput among the figures of a row.
pub const OPERATIONS_PER_S: &str = "operations_per_s";

/// Figures of a row by name, one value a block, in the order of blocks.
pub type Values = BTreeMap<String, Vec<f64>>;

/// Every figure of these measurements: those of the process, and the workload's own. A name that not all of them
/// have is left out.
pub fn figures_by_name(measurements: &[&Measurement]) -> Values {
    let mut values = Values::new();
    for measurement in measurements {
        let cpu_ns = (measurement.user_ns + measurement.kernel_ns) as f64;
        let of_process = [
            (OPERATIONS_PER_S, operations_per_second(measurement)),
            ("wall_s", measurement.wall_ns as f64 / 1e9),
            ("peak_rss_bytes", measurement.peak_rss_bytes as f64),
            ("minor_faults", measurement.minor_faults as f64),
            ("voluntary_switches", measurement.voluntary_switches as f64),
            ("kernel_share", if cpu_ns > 0.0 { measurement.kernel_ns as f64 / cpu_ns } else { 0.0 }),
            ("busy_cores", cpu_ns / measurement.wall_ns as f64),
        ];
        let mut figures: BTreeMap<&str, f64> = of_process.into();
        figures.extend(measurement.extra.iter().map(|(name, value)| (name.as_str(), *value)));
        for (name, value) in figures {
            values.entry(name.to_owned()).or_default().push(value);
        }
    }
    values.retain(|_, values| values.len() == measurements.len());
    values
}

/// The value of each block, or the reason why there is none.
pub enum Series<'a> {
    /// One measurement a block.
    Values(Vec<&'a Measurement>),
    /// No number.
    Bad {
        /// Whether something went wrong; otherwise this machine cannot give a number.
        failed: bool,
        /// Why.
        reason: String,
    },
    /// The run ended before every block had one.
    Missing,
}

/// Samples by allocator, workload and threads.
pub struct Samples<'a> {
    by_row: BTreeMap<(&'a str, &'a str, u32), Vec<&'a Sample>>,
    canaries: BTreeMap<(&'a str, &'a str), Vec<&'a Sample>>,
    probes: BTreeMap<&'a str, &'a Sample>,
    blocks: usize,
}

impl<'a> Samples<'a> {
    /// Sorts the samples; so many blocks count.
    pub fn index(samples: &'a [Sample], blocks: usize) -> Self {
        let mut by_row: BTreeMap<_, Vec<&Sample>> = BTreeMap::new();
        let mut canaries: BTreeMap<_, Vec<&Sample>> = BTreeMap::new();
        let mut probes = BTreeMap::new();
        for sample in samples {
            let (allocator, workload) = (sample.allocator.as_str(), sample.workload.as_str());
            match sample.pass {
                // Each shard probes: where one fails, that is what counts.
                Pass::Probe if sample.result.reason().is_some() => drop(probes.insert(allocator, sample)),
                Pass::Probe => drop(probes.entry(allocator).or_insert(sample)),
                Pass::Canary => canaries.entry((allocator, workload)).or_default().push(sample),
                // No part of the comparison: see `super::leak`.
                Pass::Calibration => {}
                // They have tables of their own.
                Pass::Latency | Pass::Memory | Pass::Counters | Pass::SystemCalls => {}
                Pass::Timed => by_row.entry((allocator, workload, sample.threads)).or_default().push(sample),
            }
        }
        Self { by_row, canaries, probes, blocks }
    }

    /// One value a block in the order of blocks, if every sample of the row ever taken is good.
    pub fn series(&self, allocator: &'a str, workload: &'a str, threads: u32) -> Series<'a> {
        let key = (allocator, workload);
        let probe = self.probes.get(key.0).copied();
        let canaries = self.canaries.get(&key).into_iter().flatten().copied();
        let timed = self.by_row.get(&(key.0, key.1, threads)).map_or(&[][..], Vec::as_slice);
        let mut values = Vec::with_capacity(timed.len());
        let mut good = 0;
        for sample in probe.into_iter().chain(canaries).chain(timed.iter().copied()) {
            match &sample.result {
                Judgement::Failed { reason } => {
                    return Series::Bad { failed: true, reason: format!("{reason}{}", only_once(good)) };
                }
                Judgement::NotMeasurable { reason } if sample.threads == threads => {
                    return Series::Bad { failed: false, reason: reason.clone() };
                }
                Judgement::NotMeasurable { .. } => {}
                Judgement::Measured(measurement) => {
                    good += usize::from(sample.pass == Pass::Timed);
                    if sample.block.is_some_and(|block| block < self.blocks) {
                        values.push(&**measurement);
                    }
                }
            }
        }
        if values.len() == self.blocks { Series::Values(values) } else { Series::Missing }
    }
}

/// That so many runs succeeded before the one that failed, after which there was none. A reader would take it for what always happens.
fn only_once(good: usize) -> String {
    match good {
        0 => String::new(),
        1 => " (after 1 run that succeeded)".into(),
        several => format!(" (after {several} runs that succeeded)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocators::Allocator;
    use crate::run::testing::measurement;

    #[test]
    fn the_workloads_own_figures_come_first_and_a_name_needs_all_blocks() {
        let mut first = measurement(&Allocator::fake("x"), "larson", 1, 1000);
        let mut second = first.clone();
        first.extra = [("kernel_share".to_owned(), 0.75), ("once".to_owned(), 1.0)].into();
        second.extra = [("kernel_share".to_owned(), 0.25)].into();
        let values = figures_by_name(&[&first, &second]);
        assert_eq!(values["kernel_share"], [0.75, 0.25]);
        assert_eq!(values[OPERATIONS_PER_S], [1000.0, 1000.0]);
        assert!(!values.contains_key("once"));
    }
}
