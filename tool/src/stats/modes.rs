//! Two modes are reported as two modes: a sample that falls into two clusters.
//!
//! The test is that of Engelman & Hartigan ("Percentage points of a test for clusters", 1969). Of all
//! cuts of the ordered sample into two parts it takes the one that leaves least variance within the parts. There are two
//! clusters if less is left than a single normal population would leave in all but one of a thousand
//! samples of that size. The percentage points are simulated. The level is so strict because every cell of
//! a table is tested; and each part must hold a fifth of the sample, so that one wild value is an
//! outlier and no mode.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::MARGIN;

/// Values below which nothing is tested.
const LEAST: usize = 10;
/// Share of the sample that each mode must hold.
const SHARE: f64 = 0.2;
/// How often a single population is taken for two.
const LEVEL: f64 = 0.001;
/// Samples of a single population that the percentage point comes from.
const SIMULATED: usize = 10_000;
/// Seed of these samples.
const SEED: u64 = 1969;

/// One cluster of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Mode {
    /// Geometric mean of its values.
    pub value: f64,
    /// How many values it holds.
    pub runs: usize,
}

/// A sample in two clusters.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Modes {
    /// The lower one.
    pub low: Mode,
    /// The higher one.
    pub high: Mode,
}

impl Modes {
    /// The two modes of positive values; none where one is enough to explain them, where they lie
    /// closer together than [`MARGIN`], or for fewer than ten values.
    pub fn find(values: &[f64]) -> Option<Self> {
        if values.len() < LEAST {
            return None;
        }
        let mut logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
        logs.sort_by(f64::total_cmp);
        let (cut, left) = best_cut(&logs);
        if left >= percentage_point(logs.len()) {
            return None;
        }
        let mode = |logs: &[f64]| Mode { value: mean(logs).exp(), runs: logs.len() };
        let modes = Self { low: mode(&logs[..cut]), high: mode(&logs[cut..]) };
        (modes.high.value > modes.low.value * (1.0 + MARGIN)).then_some(modes)
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn scatter(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum()
}

/// How many of the ordered values lie before the best cut, and the share of their scatter that it
/// leaves within the two parts; 1 for a sample without scatter.
fn best_cut(sorted: &[f64]) -> (usize, f64) {
    let least = ((sorted.len() as f64 * SHARE).ceil() as usize).max(2);
    let whole = scatter(sorted);
    let cuts = (least..=sorted.len() - least).map(|cut| {
        let (low, high) = sorted.split_at(cut);
        (cut, if whole > 0.0 { (scatter(low) + scatter(high)) / whole } else { 1.0 })
    });
    cuts.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((least, 1.0))
}

/// The share below which one normal sample in a thousand of this size falls. Simulated once a size.
fn percentage_point(size: usize) -> f64 {
    static POINTS: Mutex<BTreeMap<usize, f64>> = Mutex::new(BTreeMap::new());
    let mut points = POINTS.lock().unwrap_or_else(PoisonError::into_inner);
    *points.entry(size).or_insert_with(|| {
        let mut random = ChaCha8Rng::seed_from_u64(SEED);
        let mut left: Vec<f64> = (0..SIMULATED)
            .map(|_| {
                let mut values: Vec<f64> = (0..size).map(|_| normal(&mut random)).collect();
                values.sort_by(f64::total_cmp);
                best_cut(&values).1
            })
            .collect();
        left.sort_by(f64::total_cmp);
        left[(LEVEL * SIMULATED as f64) as usize]
    })
}

/// A standard normal number (Box & Muller 1958).
fn normal(random: &mut ChaCha8Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.random::<f64>()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_modes_are_found_and_counted() {
        // The seconds of a published table that its authors could not explain by one mean.
        let seconds = [12.6, 12.7, 14.8, 12.5, 14.9, 12.6, 14.7, 14.8, 12.6, 14.8];
        let modes = Modes::find(&seconds).expect("two modes");
        assert_eq!((modes.low.runs, modes.high.runs), (5, 5));
        assert!((modes.low.value - 12.6).abs() < 0.05 && (modes.high.value - 14.8).abs() < 0.05);
    }

    #[test]
    fn one_wild_value_few_values_and_close_ones_are_no_modes() {
        assert_eq!(Modes::find(&[1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 1.01, 0.99, 5.0]), None);
        assert_eq!(Modes::find(&[1.0, 2.0, 1.0, 2.0, 1.0, 2.0]), None);
        assert_eq!(Modes::find(&[1.0; 12]), None);
        assert_eq!(Modes::find(&[1.0, 1.01, 1.0, 1.01, 1.0, 1.01, 1.0, 1.01, 1.0, 1.01]), None);
    }

    #[test]
    fn a_single_population_is_seldom_taken_for_two() {
        let mut random = ChaCha8Rng::seed_from_u64(5);
        let sample = |random: &mut ChaCha8Rng| (0..10).map(|_| normal(random).exp()).collect::<Vec<_>>();
        let alarms = (0..1000).filter(|_| Modes::find(&sample(&mut random)).is_some()).count();
        assert!(alarms <= 5, "{alarms} of 1000");
    }
}
