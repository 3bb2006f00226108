//! The samples of a run, by the cells of its table.

use std::collections::BTreeMap;

use ample_protocol::Measurement;

use crate::record::{Judgement, Pass, Sample};

/// The value of each block, or the reason why there is none.
pub enum Series<'a> {
    /// One measurement a block.
    Values(Vec<&'a Measurement>),
    /// No number.
    Bad {
        /// Whether something went wrong; otherwise this machine cannot give a number.
        failed: bool,
        /// Why.
        reason: &'a str,
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
        for sample in probe.into_iter().chain(canaries).chain(timed.iter().copied()) {
            match &sample.result {
                Judgement::Failed { reason } => return Series::Bad { failed: true, reason },
                Judgement::NotMeasurable { reason } if sample.threads == threads => {
                    return Series::Bad { failed: false, reason };
                }
                Judgement::NotMeasurable { .. } => {}
                Judgement::Measured(measurement) => {
                    if sample.block.is_some_and(|block| block < self.blocks) {
                        values.push(&**measurement);
                    }
                }
            }
        }
        if values.len() == self.blocks { Series::Values(values) } else { Series::Missing }
    }
}
