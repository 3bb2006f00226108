//! Ratios to the baseline, and what may be said of them: over a whole table at once.

use ample_protocol::Measurement;
use serde::Serialize;

use crate::record::operations_per_second;
use crate::stats::{
    ALPHA, Bootstrap, Estimate, MARGIN, Metric, Resamples, Verdict, floor, holm, judge, log_ratio,
};

/// A ratio to the baseline, and what may be said of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Comparison {
    /// The ratio. All intervals of a table together leave out a truth with a probability of 5 % at most
    /// where there is no difference at all (Holm): each is wider than one that stands alone.
    #[serde(flatten)]
    pub ratio: Estimate,
    /// The share that a direction must exceed: 2 %, or the noise floor where that is higher.
    pub margin: f64,
    /// The verdict.
    pub verdict: Verdict,
}

/// How far glibc differs from itself, as a share.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Floor {
    /// In throughput.
    pub throughput: f64,
    /// In peak RSS.
    pub peak_rss: f64,
}

impl Floor {
    /// In this metric.
    pub fn of(self, metric: Metric) -> f64 {
        match metric {
            Metric::Throughput => self.throughput,
            Metric::PeakRss => self.peak_rss,
        }
    }
}

/// Resampled logarithms of two ratios.
#[derive(Debug)]
pub struct Ratios {
    throughput: Bootstrap,
    peak_rss: Bootstrap,
}

impl Ratios {
    /// Of these measurements to the baseline's, one a block. None where one of them is no number.
    pub fn of(values: &[&Measurement], reference: &[&Measurement], resamples: &Resamples) -> Option<Self> {
        let paired = |figure: fn(&Measurement) -> f64| {
            let pairs = values.iter().zip(reference);
            let logs: Option<Vec<f64>> =
                pairs.map(|(value, base)| log_ratio(figure(value), figure(base))).collect();
            Bootstrap::of(&logs?, resamples)
        };
        Some(Self { throughput: paired(operations_per_second)?, peak_rss: paired(peak_rss)? })
    }

    /// Geometric means over rows. None for no row.
    pub fn mean_of(rows: &[&Self]) -> Option<Self> {
        let mean =
            |metric| Bootstrap::mean_of(&rows.iter().map(|row| row.in_metric(metric)).collect::<Vec<_>>());
        Some(Self { throughput: mean(Metric::Throughput)?, peak_rss: mean(Metric::PeakRss)? })
    }

    /// The noise floor, where these are the ratios of the baseline to itself.
    pub fn floor(&self) -> Floor {
        let floor = |metric| floor(self.in_metric(metric).estimate());
        Floor { throughput: floor(Metric::Throughput), peak_rss: floor(Metric::PeakRss) }
    }

    pub(super) fn in_metric(&self, metric: Metric) -> &Bootstrap {
        match metric {
            Metric::Throughput => &self.throughput,
            Metric::PeakRss => &self.peak_rss,
        }
    }
}

/// Peak RSS of a measurement, in bytes.
pub fn peak_rss(measurement: &Measurement) -> f64 {
    measurement.peak_rss_bytes as f64
}

/// Judges all comparisons of a table in one metric together, each with the noise floor of its row.
/// Without a noise floor nothing can be told.
pub fn compare(family: &[(&Ratios, Option<Floor>)], metric: Metric, blocks: usize) -> Vec<Comparison> {
    let p_values: Vec<f64> = family.iter().map(|(ratios, _)| ratios.in_metric(metric).p_value()).collect();
    let levels = holm(&p_values, ALPHA);
    let judged = family.iter().zip(levels).map(|((ratios, floor), level)| {
        let estimate = ratios.in_metric(metric).interval(level);
        let margin = floor.map_or(MARGIN, |floor| floor.of(metric).max(MARGIN));
        let verdict = floor.map_or(Verdict::CannotTell, |_| judge(estimate, metric, blocks, margin));
        Comparison { ratio: estimate.exp(), margin, verdict }
    });
    judged.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocators::Allocator;
    use crate::run::testing::measurement;

    /// Throughput of `shares` times the reference's, with peak RSS unchanged.
    fn ratios(shares: &[f64]) -> Ratios {
        let allocator = Allocator::fake("x");
        let reference: Vec<_> = shares.iter().map(|_| measurement(&allocator, "larson", 1, 1000)).collect();
        let mut values = reference.clone();
        for (value, share) in values.iter_mut().zip(shares) {
            value.wall_ns = (value.wall_ns as f64 / share) as u64;
        }
        let refer = |list: &'static [Measurement]| list.iter().collect::<Vec<_>>();
        let (values, reference) = (refer(values.leak()), refer(reference.leak()));
        Ratios::of(&values, &reference, &Resamples::new(shares.len(), 1)).expect("numbers")
    }

    const QUIET: Option<Floor> = Some(Floor { throughput: 0.01, peak_rss: 0.01 });
    /// Slower by 5 % with a spread that one comparison can stand, but hardly a hundred.
    const SLOWER: [f64; 10] = [0.94, 0.97, 0.92, 0.98, 0.95, 0.93, 0.96, 0.99, 0.91, 0.95];

    #[test]
    fn one_among_many_needs_more_than_one_alone() {
        let slower = ratios(&SLOWER);
        let alone = compare(&[(&slower, QUIET)], Metric::Throughput, 10);
        assert_eq!(alone[0].verdict, Verdict::Slower);
        let same = ratios(&[1.01, 0.99, 1.02, 0.98, 1.0, 1.01, 0.99, 1.02, 0.98, 1.0]);
        let mut family = vec![(&same, QUIET); 2000];
        family.push((&slower, QUIET));
        let among = compare(&family, Metric::Throughput, 10);
        let last = among.last().expect("one");
        assert_eq!(last.verdict, Verdict::CannotTell);
        assert!(last.ratio.low < alone[0].ratio.low && last.ratio.high > alone[0].ratio.high);
    }

    #[test]
    fn the_noise_floor_of_the_row_hides_directions_and_makes_nothing_equivalent() {
        let slower = ratios(&SLOWER);
        let noisy = Some(Floor { throughput: 0.08, peak_rss: 0.0 });
        let found = compare(&[(&slower, noisy)], Metric::Throughput, 10);
        assert_eq!((found[0].margin, found[0].verdict), (0.08, Verdict::CannotTell));
        let found = compare(&[(&slower, noisy)], Metric::PeakRss, 10);
        assert_eq!((found[0].margin, found[0].verdict), (MARGIN, Verdict::Equivalent));
        let unknown = compare(&[(&slower, None)], Metric::Throughput, 10);
        assert_eq!(unknown[0].verdict, Verdict::CannotTell);
        assert!((slower.floor().throughput - 0.07).abs() < 0.02, "{:?}", slower.floor());
    }
}
