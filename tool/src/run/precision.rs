//! How far the intervals of a run reach while it goes on.

use std::collections::BTreeMap;

use crate::allocators::BASELINE;
use crate::record::{Judgement, Sample, operations_per_second};
use crate::stats::{Bootstrap, Resamples, log_ratio};

/// Seed of the resamples; the report draws its own.
const SEED: u64 = 1;

/// How far the widest 95 % interval of a throughput ratio reaches to either side after so many complete
/// blocks, as a share; none where there is no ratio.
///
/// Each interval as it stands alone: a correction for the whole table depends on what is significant,
/// and the end of a run must not.
pub fn reach(samples: &[Sample], blocks: usize) -> Option<f64> {
    let mut rates: BTreeMap<(&str, u32), BTreeMap<&str, Vec<f64>>> = BTreeMap::new();
    for sample in samples {
        let Judgement::Measured(measurement) = &sample.result else { continue };
        if sample.block.is_some_and(|block| block < blocks) {
            let row = rates.entry((&sample.workload, sample.threads)).or_default();
            row.entry(&sample.allocator).or_default().push(operations_per_second(measurement));
        }
    }
    let resamples = Resamples::new(blocks, SEED);
    let mut widest: Option<f64> = None;
    for row in rates.values() {
        let Some(baseline) = row.get(BASELINE).filter(|rates| rates.len() == blocks) else { continue };
        for (_, rates) in row.iter().filter(|(name, rates)| **name != BASELINE && rates.len() == blocks) {
            let logs: Option<Vec<f64>> =
                rates.iter().zip(baseline).map(|(rate, base)| log_ratio(*rate, *base)).collect();
            let estimate = Bootstrap::of(&logs?, &resamples)?.estimate();
            let reach = (estimate.high - estimate.value).exp_m1();
            widest = Some(widest.map_or(reach, |widest| widest.max(reach)));
        }
    }
    widest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocators::Allocator;
    use crate::run::testing::conclude;

    #[test]
    fn the_widest_interval_counts_and_nothing_is_nothing() {
        let allocators = [Allocator::fake("glibc"), Allocator::fake("x")];
        let mut run = 0;
        let (_, conclusion) = conclude(&allocators, 10, usize::MAX, |asked, measurement| {
            run += 1;
            if asked.allocator == "x" && asked.threads == 2 {
                measurement.wall_ns += run % 3 * 100_000_000;
            }
            None
        });
        let reach_now = reach(&conclusion.samples, 10).expect("ratios");
        assert!((0.01..0.3).contains(&reach_now), "{reach_now}");
        assert_eq!(reach(&[], 0), None);
    }
}
