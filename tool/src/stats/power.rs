//! How small a slowdown is found, given how far the baseline strays from itself.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::{ALPHA, Bootstrap, MARGIN, Resamples, floor};

/// Comparisons that are simulated.
const SIMULATED: usize = 1000;
/// Resamples of each: its error need not be known better than to a few per cent.
const RESAMPLES: usize = 400;

/// The least extra work, as a share, that a comparison of so many blocks calls *slower* with at least this
/// probability; none without measurements.
///
/// `pairs` are measured log ratios of the baseline to itself, two from each block: the first stands for
/// what is compared, the second for the noise floor. Comparisons are put together from blocks drawn
/// with replacement; a slowdown shifts the first ratio of each by the same amount, and with it the
/// interval, so that the least shift which yields the verdict can be read off each of them.
pub fn least_found(pairs: &[(f64, f64)], blocks: usize, probability: f64, seed: u64) -> Option<f64> {
    simulate(SIMULATED, pairs, blocks, probability, seed)
}

fn simulate(count: usize, pairs: &[(f64, f64)], blocks: usize, probability: f64, seed: u64) -> Option<f64> {
    if pairs.is_empty() {
        return None;
    }
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let resamples = Resamples::draw(blocks, RESAMPLES, seed);
    let mut least: Vec<f64> = (0..count)
        .map(|_| {
            let drawn = (0..blocks).map(|_| pairs[random.random_range(0..pairs.len())]);
            let (compared, itself): (Vec<f64>, Vec<f64>) = drawn.unzip();
            shift(&compared, &itself, &resamples)
        })
        .collect::<Option<_>>()?;
    least.sort_by(f64::total_cmp);
    let index = (probability * count as f64).ceil() as usize - 1;
    Some(least[index.min(count - 1)].exp_m1())
}

/// How much further down the compared ratios must lie for the verdict *slower*: their interval below
/// equality, and their estimate below the margin.
fn shift(compared: &[f64], itself: &[f64], resamples: &Resamples) -> Option<f64> {
    let found = Bootstrap::of(compared, resamples)?.interval(ALPHA);
    let margin = floor(Bootstrap::of(itself, resamples)?.estimate()).max(MARGIN).ln_1p();
    Some(found.high.max(found.value + margin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Metric, Verdict, judge};

    #[test]
    fn the_shift_is_just_enough_for_the_verdict() {
        let compared = [0.01, -0.02, 0.03, 0.00, -0.01, 0.02, -0.03, 0.01, 0.00, 0.02];
        let itself = [0.00, 0.02, -0.02, 0.01, 0.03, -0.01, 0.00, -0.03, 0.02, -0.01];
        let resamples = Resamples::new(10, 1);
        let least = shift(&compared, &itself, &resamples).expect("numbers");
        let margin = floor(Bootstrap::of(&itself, &resamples).expect("numbers").estimate()).max(MARGIN);
        let verdict = |shift: f64| {
            let shifted = compared.map(|ratio| ratio - shift);
            let found = Bootstrap::of(&shifted, &resamples).expect("numbers").estimate();
            judge(found, Metric::Throughput, 10, margin)
        };
        assert_eq!(verdict(least + 1e-6), Verdict::Slower);
        assert_ne!(verdict(least - 1e-6), Verdict::Slower);
    }

    #[test]
    fn a_quiet_machine_finds_what_exceeds_the_margin_and_a_noisy_one_less() {
        let pairs = |spread: f64| -> Vec<(f64, f64)> {
            (0..20).map(|i| (spread * f64::from(i % 5 - 2), spread * f64::from(i % 3 - 1))).collect()
        };
        let least = |spread| simulate(40, &pairs(spread), 10, 0.95, 1).expect("measurements");
        assert!((MARGIN..0.025).contains(&least(0.001)), "{}", least(0.001));
        assert!(least(0.05) > 0.05, "{}", least(0.05));
        assert_eq!(least_found(&[], 10, 0.95, 1), None);
    }
}
