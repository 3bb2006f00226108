//! From an interval to a word.

use serde::Serialize;

use super::Estimate;

/// Differences smaller than this share count as none, whatever the noise.
pub const MARGIN: f64 = 0.02;
/// The share up to which the noise floor widens what counts as equivalent. Where the baseline strays further from
/// itself, an interval as wide says that the machine is noisy, and nothing of the allocator: no reader means
/// more than this by "equivalent".
pub const EQUIVALENT_AT_MOST: f64 = 0.05;
/// Blocks below which no verdict is given: the interval alone speaks.
pub const MIN_BLOCKS: usize = 10;

/// What is compared, and which direction is the good one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Operations per second: higher is better.
    Throughput,
    /// Peak resident set: lower is better.
    PeakRss,
}

/// What may be said of an allocator against the baseline, in one row or over rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// More operations per second than the baseline.
    Faster,
    /// Fewer operations per second than the baseline.
    Slower,
    /// A smaller peak resident set than the baseline.
    Smaller,
    /// A larger peak resident set than the baseline.
    Larger,
    /// The whole interval lies within the margin around equality, and within [`EQUIVALENT_AT_MOST`].
    Equivalent,
    /// Too few blocks, or an interval that decides nothing.
    CannotTell,
}

/// The noise floor of a row, as a share: the largest difference between the baseline and itself that
/// the 95 % interval of their log ratio allows.
///
/// A difference that the instrument can show between two runs of one and the same thing says nothing
/// about two things. The far end of the interval, rather than its half width, so that an accidental
/// shift between the two counts as noise as well.
pub fn floor(log_ratio_to_itself: Estimate) -> f64 {
    log_ratio_to_itself.low.abs().max(log_ratio_to_itself.high.abs()).exp_m1()
}

/// The verdict on an estimated log ratio to the baseline.
///
/// A direction: the interval excludes equality, and the estimate lies beyond `margin` (a share: [`MARGIN`], or
/// the noise floor where that is higher). *Equivalent*: the interval lies within ±`margin`, and within
/// ±[`EQUIVALENT_AT_MOST`]. Otherwise, and with fewer than [`MIN_BLOCKS`] blocks: cannot tell.
pub fn judge(log_ratio: Estimate, metric: Metric, blocks: usize, margin: f64) -> Verdict {
    let same = margin.min(EQUIVALENT_AT_MOST).ln_1p();
    let margin = margin.ln_1p();
    if blocks < MIN_BLOCKS {
        Verdict::CannotTell
    } else if log_ratio.low >= -same && log_ratio.high <= same {
        Verdict::Equivalent
    } else if log_ratio.low > 0.0 && log_ratio.value > margin {
        match metric {
            Metric::Throughput => Verdict::Faster,
            Metric::PeakRss => Verdict::Larger,
        }
    } else if log_ratio.high < 0.0 && log_ratio.value < -margin {
        match metric {
            Metric::Throughput => Verdict::Slower,
            Metric::PeakRss => Verdict::Smaller,
        }
    } else {
        Verdict::CannotTell
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ratio(value: f64, low: f64, high: f64) -> Estimate {
        Estimate { value: f64::ln(value), low: f64::ln(low), high: f64::ln(high) }
    }

    #[test]
    fn words_follow_the_interval() {
        let judge = |estimate, metric| judge(estimate, metric, MIN_BLOCKS, MARGIN);
        assert_eq!(judge(ratio(1.05, 1.03, 1.07), Metric::Throughput), Verdict::Faster);
        assert_eq!(judge(ratio(0.95, 0.93, 0.97), Metric::Throughput), Verdict::Slower);
        assert_eq!(judge(ratio(1.05, 1.03, 1.07), Metric::PeakRss), Verdict::Larger);
        assert_eq!(judge(ratio(0.95, 0.93, 0.97), Metric::PeakRss), Verdict::Smaller);
        assert_eq!(judge(ratio(1.005, 0.99, 1.015), Metric::Throughput), Verdict::Equivalent);
        assert_eq!(judge(ratio(1.05, 0.98, 1.12), Metric::Throughput), Verdict::CannotTell);
        // Not equality, but no more than the margin either.
        assert_eq!(judge(ratio(1.015, 1.005, 1.03), Metric::Throughput), Verdict::CannotTell);
    }

    #[test]
    fn the_floor_is_the_far_end_of_the_interval() {
        assert!((floor(ratio(1.01, 0.99, 1.03)) - 0.03).abs() < 1e-12);
        assert!((floor(ratio(0.99, 0.97, 1.01)) - (1.0 / 0.97 - 1.0)).abs() < 1e-12);
        // What lies within it is no difference, however narrow its own interval.
        let within = judge(ratio(1.028, 1.026, 1.0299), Metric::Throughput, 10, 0.03);
        assert_eq!(within, Verdict::Equivalent);
    }

    #[test]
    fn noise_does_not_prove_that_nothing_differs() {
        let judge = |estimate, floor| judge(estimate, Metric::Throughput, MIN_BLOCKS, floor);
        assert_eq!(judge(ratio(1.287, 0.965, 1.716), 0.956), Verdict::CannotTell);
        assert_eq!(judge(ratio(1.02, 1.0, 1.049), 0.956), Verdict::Equivalent);
        assert_eq!(judge(ratio(1.02, 1.0, 1.051), 0.956), Verdict::CannotTell);
        // A direction still needs more than the floor.
        assert_eq!(judge(ratio(1.5, 1.4, 1.6), 0.956), Verdict::CannotTell);
        assert_eq!(judge(ratio(2.5, 2.4, 2.6), 0.956), Verdict::Faster);
    }

    #[test]
    fn few_blocks_tell_nothing() {
        let clear = ratio(2.0, 1.9, 2.1);
        assert_eq!(judge(clear, Metric::Throughput, MIN_BLOCKS - 1, MARGIN), Verdict::CannotTell);
        assert_eq!(judge(clear, Metric::Throughput, MIN_BLOCKS, MARGIN), Verdict::Faster);
    }

    proptest! {
        #[test]
        fn a_mirrored_interval_gets_the_opposite_word(
            value in -0.2..0.2f64, below in 0.0..0.1f64, above in 0.0..0.1f64,
        ) {
            let estimate = Estimate { value, low: value - below, high: value + above };
            let mirrored = Estimate { value: -value, low: -estimate.high, high: -estimate.low };
            let opposite = match judge(estimate, Metric::Throughput, 10, MARGIN) {
                Verdict::Faster => Verdict::Slower,
                Verdict::Slower => Verdict::Faster,
                same => same,
            };
            prop_assert_eq!(judge(mirrored, Metric::Throughput, 10, MARGIN), opposite);
        }
    }
}
