//! Bootstrap over blocks (Efron 1979), with one set of resamples for all rows.
//!
//! All rows are resampled with the *same* blocks, so that what disturbed one block as a whole
//! (another guest on the machine, a slow clock) stays together in the mean over rows.
//!
//! An interval is the estimate ± Student's quantile, with one degree of freedom fewer than blocks,
//! times the standard error that the bootstrap finds (Efron & Tibshirani 1993, chapter 12). Percentiles
//! of the replicates would be too narrow for ten blocks (they never leave the sample), and could not
//! serve the small error probabilities that a correction for many comparisons asks for: two thousand
//! replicates know nothing of a probability of 1 : 10 000.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::{Location, hodges_lehmann};

/// Resamples drawn for each interval.
const RESAMPLES: usize = 2000;
/// Probability of error of an interval that stands alone: 95 % inside.
pub const ALPHA: f64 = 0.05;

/// An estimate with its interval: of 95 %, unless it says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Estimate {
    /// The same on the scale of ratios, for an estimate of logarithms.
    pub fn exp(self) -> Self {
        Self { value: self.value.exp(), low: self.low.exp(), high: self.high.exp() }
    }

    /// Whether both ends lie within a factor of ten of the estimate, which is positive. Wider intervals come of one
    /// block, or of two or three that differ: of Student's quantile, not of what was measured.
    pub fn is_telling(self) -> bool {
        const FACTOR: f64 = 10.0;
        self.low * FACTOR >= self.value && self.high <= self.value * FACTOR
    }

    /// For a plot: the same, without an extent that tells nothing and would hide all others.
    pub fn drawn(self) -> Self {
        if self.is_telling() { self } else { Self { low: self.value, high: self.value, ..self } }
    }
}

/// Which blocks go into each resample, drawn once for a run.
#[derive(Debug)]
pub struct Resamples {
    blocks: usize,
    draws: Vec<Vec<usize>>,
}

impl Resamples {
    /// Draws with replacement from `blocks` blocks; the same seed draws the same.
    pub fn new(blocks: usize, seed: u64) -> Self {
        Self::draw(blocks, RESAMPLES, seed)
    }

    /// The same with so many resamples.
    pub fn draw(blocks: usize, count: usize, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let draws = if blocks == 0 {
            Vec::new()
        } else {
            (0..count).map(|_| (0..blocks).map(|_| random.random_range(0..blocks)).collect()).collect()
        };
        Self { blocks, draws }
    }
}

/// A location estimate and its replicates, in the order of the [`Resamples`] that they come from.
#[derive(Debug, Clone)]
pub struct Bootstrap {
    value: f64,
    blocks: usize,
    replicates: Vec<f64>,
}

impl Bootstrap {
    /// Hodges–Lehmann estimate of one value a block. None if a block has no value, or there is none.
    pub fn of(values: &[f64], resamples: &Resamples) -> Option<Self> {
        if values.len() != resamples.blocks {
            return None;
        }
        let value = hodges_lehmann(values)?;
        let mut drawn = Vec::with_capacity(values.len());
        let mut replicates = Vec::with_capacity(resamples.draws.len());
        for draw in &resamples.draws {
            drawn.clear();
            drawn.extend(draw.iter().map(|&block| values[block]));
            replicates.push(hodges_lehmann(&drawn)?);
        }
        Some(Self { value, blocks: values.len(), replicates })
    }

    /// Mean over rows: of logarithms, the logarithm of the geometric mean. None for no row.
    pub fn mean_of(rows: &[&Self]) -> Option<Self> {
        let first = rows.first()?;
        let count = rows.len() as f64;
        let mean = |at: &dyn Fn(&Self) -> f64| rows.iter().map(|row| at(row)).sum::<f64>() / count;
        let replicates = (0..first.replicates.len()).map(|i| mean(&|row: &Self| row.replicates[i])).collect();
        Some(Self { value: mean(&|row: &Self| row.value), blocks: first.blocks, replicates })
    }

    /// The estimate with its 95 % interval.
    pub fn estimate(&self) -> Estimate {
        self.interval(ALPHA)
    }

    /// The estimate with the interval that misses the truth with probability `alpha`. One block says nothing of
    /// the spread, and its interval has no end.
    pub fn interval(&self, alpha: f64) -> Estimate {
        self.location().interval(alpha)
    }

    /// Probability of an estimate at least as far from 0 on either side, if 0 were the truth: the
    /// `alpha` at which the interval reaches 0. One block proves nothing: 1.
    pub fn p_value(&self) -> f64 {
        self.location().p_value()
    }

    /// The estimate with its standard error.
    pub fn location(&self) -> Location {
        let freedom = self.blocks.checked_sub(1).filter(|freedom| *freedom > 0);
        Location { value: self.value, error: self.error(), freedom: freedom.map(|freedom| freedom as f64) }
    }

    /// Standard deviation of the replicates, without the bias of so few blocks.
    fn error(&self) -> f64 {
        let blocks = self.blocks as f64;
        let Some(&first) = self.replicates.first().filter(|_| self.blocks > 1) else { return 0.0 };
        let count = self.replicates.len() as f64;
        // Deviations from one of them, so that equal replicates have none at all.
        let deviations = || self.replicates.iter().map(|replicate| replicate - first);
        let mean = deviations().sum::<f64>() / count;
        let variance = deviations().map(|deviation| (deviation - mean).powi(2)).sum::<f64>() / count;
        (variance * blocks / (blocks - 1.0)).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn estimate(values: &[f64], seed: u64) -> Estimate {
        Bootstrap::of(values, &Resamples::new(values.len(), seed)).expect("complete blocks").estimate()
    }

    #[test]
    fn one_block_has_an_interval_without_end_and_no_block_no_estimate() {
        let one = estimate(&[0.3], 1);
        assert_eq!(one, Estimate { value: 0.3, low: f64::NEG_INFINITY, high: f64::INFINITY });
        let ratio = one.exp();
        assert!(
            !ratio.is_telling() && ratio.drawn() == Estimate { low: ratio.value, high: ratio.value, ..ratio }
        );
        assert_eq!(serde_json::to_value(ratio).expect("JSON")["high"], serde_json::Value::Null);
        assert!(Bootstrap::of(&[], &Resamples::new(0, 1)).is_none());
        assert!(Bootstrap::of(&[1.0, 2.0], &Resamples::new(3, 1)).is_none());
        assert!(Bootstrap::mean_of(&[]).is_none());
    }

    #[test]
    fn the_interval_covers_the_truth_about_as_often_as_it_says() {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let resamples = Resamples::draw(10, 400, 1);
        let trials = 200;
        let covered = (0..trials)
            .filter(|_| {
                // Sum of twelve uniforms minus six: close to a standard normal.
                let values: Vec<f64> =
                    (0..10).map(|_| (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0).collect();
                let found = Bootstrap::of(&values, &resamples).expect("complete blocks").estimate();
                found.low <= 0.0 && 0.0 <= found.high
            })
            .count();
        assert!((182..=198).contains(&covered), "{covered} of {trials}");
    }

    #[test]
    fn joint_resampling_keeps_a_disturbed_block_together() {
        let resamples = Resamples::new(4, 3);
        let up = Bootstrap::of(&[0.0, 0.0, 0.0, 1.0], &resamples).unwrap();
        let down = Bootstrap::of(&[0.0, 0.0, 0.0, -1.0], &resamples).unwrap();
        let mean = Bootstrap::mean_of(&[&up, &down]).unwrap().estimate();
        // Opposite disturbances of the same block cancel in every single resample.
        assert_eq!(mean, Estimate { value: 0.0, low: 0.0, high: 0.0 });
    }

    #[test]
    fn the_interval_reaches_zero_at_the_probability_that_is_told() {
        let values = [0.01, 0.03, 0.02, 0.05, -0.01, 0.02, 0.04, 0.00, 0.03, 0.02];
        let bootstrap = Bootstrap::of(&values, &Resamples::new(values.len(), 1)).expect("complete blocks");
        let p_value = bootstrap.p_value();
        assert!((0.0005..0.02).contains(&p_value), "{p_value}");
        assert!(bootstrap.interval(p_value).low.abs() < 1e-6);
        let of = |values: &[f64]| Bootstrap::of(values, &Resamples::new(values.len(), 1)).expect("complete");
        assert_eq!((of(&[0.0; 5]).p_value(), of(&[0.1; 5]).p_value(), of(&[0.1]).p_value()), (1.0, 0.0, 1.0));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn ordered_around_the_estimate_wider_with_less_error_and_repeatable(
            values in prop::collection::vec(-1.0..1.0f64, 1..11),
            seed in any::<u64>(),
        ) {
            let found = estimate(&values, seed);
            prop_assert!(found.low <= found.value && found.value <= found.high);
            prop_assert_eq!(found, estimate(&values, seed));
            let bootstrap = Bootstrap::of(&values, &Resamples::new(values.len(), seed)).unwrap();
            prop_assert!(bootstrap.interval(0.001).low <= found.low);
        }

        #[test]
        fn the_mean_of_equal_rows_is_that_row(values in prop::collection::vec(-1.0..1.0f64, 1..11)) {
            let row = Bootstrap::of(&values, &Resamples::new(values.len(), 5)).unwrap();
            let mean = Bootstrap::mean_of(&[&row, &row]).unwrap().estimate();
            prop_assert_eq!(mean, row.estimate());
        }
    }
}
