//! Axes with round numbers.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

/// A linear or logarithmic axis with ticks of its own.
#[derive(Debug, Clone)]
pub struct Axis {
    range: Range<f64>,
    ticks: Vec<f64>,
    logarithmic: bool,
}

impl Axis {
    /// Positions 0, 1 … `count - 1`, with a little room at both ends.
    pub fn positions(count: usize) -> Self {
        const ROOM: f64 = 0.3;
        let range = -ROOM..count as f64 - 1.0 + ROOM;
        Self { range, ticks: (0..count).map(|index| index as f64).collect(), logarithmic: false }
    }

    /// From 0 to `high`. Units are powers of `base`: 1000, or 1024 for bytes.
    pub fn linear(high: f64, base: f64) -> Self {
        Self { range: 0.0..high, ticks: linear(high, base), logarithmic: false }
    }

    /// From `low`, above 0, to `high`. Units as in [`Axis::linear`].
    pub fn logarithmic(low: f64, high: f64, base: f64) -> Self {
        Self { range: low..high, ticks: logarithmic(low, high, base), logarithmic: true }
    }

    /// Where the value lies between the ends of the axis, as a share.
    fn share(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.logarithmic { value.ln() } else { value };
        let (start, end) = (scale(self.range.start), scale(self.range.end));
        (scale(value) - start) / (end - start)
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        limit.0 + (self.share(*value) * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

/// Ticks of an axis from 0 to `high`: multiples of 1, 2 or 5 times a power of ten of the unit, where
/// units are powers of `base` (1000, or 1024 for bytes). Three to six of them above 0.
pub fn linear(high: f64, base: f64) -> Vec<f64> {
    /// At least so many steps.
    const LEAST: f64 = 3.0;
    let unit = unit(high, base);
    let coarse = high / unit / LEAST;
    let power = 10_f64.powf(coarse.log10().floor());
    let step = [5.0, 2.0, 1.0].into_iter().map(|factor| factor * power).find(|step| *step <= coarse);
    let step = step.unwrap_or(power) * unit;
    (0..).map(|index| f64::from(index) * step).take_while(|tick| *tick <= high).collect()
}

/// Ticks of a logarithmic axis: the densest of a few series of round numbers with no more than
/// eight of them between `low` and `high`, far enough from each other for their labels.
pub fn logarithmic(low: f64, high: f64, base: f64) -> Vec<f64> {
    const MOST: usize = 8;
    /// Part of the axis between two ticks.
    const LEAST_GAP: f64 = 0.1;
    const SERIES: [&[f64]; 4] = [
        &[1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
        &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0],
        &[1.0, 2.0, 5.0],
        &[1.0],
    ];
    let decades = |unit: f64| [unit, unit * 10.0, unit * 100.0];
    // Binary units hold 1024, not 1000: each unit brings its own round numbers.
    let units = (-2..6).map(|power| base.powi(power));
    let decades: Vec<f64> = units.flat_map(decades).collect();
    let ticks = |series: &[f64]| -> Vec<f64> {
        let all = decades.iter().flat_map(|decade| series.iter().map(move |factor| factor * decade));
        all.filter(|tick| (low..=high).contains(tick)).collect()
    };
    let least = (high / low).powf(LEAST_GAP);
    let fit =
        |ticks: &Vec<f64>| ticks.len() <= MOST && ticks.windows(2).all(|pair| pair[1] / pair[0] >= least);
    SERIES.into_iter().map(ticks).find(fit).unwrap_or_default()
}

/// The largest power of `base` that is no larger than the value.
fn unit(value: f64, base: f64) -> f64 {
    base.powf(value.log(base).floor().max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn steps_are_round_in_the_unit() {
        assert_eq!(linear(7.3, 1000.0), [0.0, 2.0, 4.0, 6.0]);
        let mib = 1024.0 * 1024.0;
        assert_eq!(linear(11.0 * mib, 1024.0), [0.0, 2.0 * mib, 4.0 * mib, 6.0 * mib, 8.0 * mib, 10.0 * mib]);
        assert_eq!(logarithmic(0.9, 40.0, 1000.0), [1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!(logarithmic(0.35, 4.5, 1000.0), [0.5, 1.0, 2.0], "0.4 and 0.5 would touch");
    }

    #[test]
    fn ends_and_equal_ratios_lie_where_they_should() {
        let axis = Axis::logarithmic(0.5, 2.0, 1000.0);
        assert_eq!([0.5, 1.0, 2.0].map(|value| axis.map(&value, (100, 300))), [100, 200, 300]);
        let axis = Axis::linear(10.0, 1000.0);
        assert_eq!([0.0, 2.5, 10.0].map(|value| axis.map(&value, (300, 100))), [300, 250, 100]);
    }

    proptest! {
        #[test]
        fn a_few_ticks_on_every_axis(exponent in 0.0..12.0f64, ratio in 12.0..1e4f64) {
            let high = 10_f64.powf(exponent);
            prop_assert!((3..=8).contains(&linear(high, 1000.0).len()));
            prop_assert!((2..=8).contains(&logarithmic(high, high * ratio, 1000.0).len()));
        }
    }
}
