//! The statistics: pure functions over numbers, without a word about processes or files.
//!
//! The unit of observation is one *block*: every allocator ran every row once, in shuffled order.
//! Per block and row the log ratio to the baseline is taken ([`log_ratio`]); [`Bootstrap`] estimates
//! its location and interval; [`holm`] widens the intervals of a whole table so that all of them
//! together keep their promise; [`judge`] turns the interval into a [`Verdict`], given the margin
//! below which a difference counts as none; and [`Bootstrap::mean_of`] gives the geometric mean over
//! rows, with the blocks resampled jointly. [`Modes`] tells where a mean would hide two modes.
//! Two runs are compared by their ratios to the baseline, each estimated from its own blocks ([`Location::above`]).
//! Apart from all this, [`FaultModel`] is the prediction that heap-leak's faults are held against.

mod bootstrap;
mod difference;
mod faults;
mod holm;
mod location;
mod modes;
mod power;
mod verdict;

pub use bootstrap::{ALPHA, Bootstrap, Estimate, Resamples};
pub use difference::Location;
pub use faults::{FaultModel, FaultPoints};
pub use holm::holm;
pub use location::{hodges_lehmann, median};
pub use modes::{Mode, Modes};
pub use power::least_found;
pub use verdict::{EQUIVALENT_AT_MOST, MARGIN, MIN_BLOCKS, Metric, Verdict, floor, judge};

/// Natural logarithm of `value / baseline`; none unless both are positive and finite.
pub fn log_ratio(value: f64, baseline: f64) -> Option<f64> {
    let valid = |x: f64| x.is_finite() && x > 0.0;
    (valid(value) && valid(baseline)).then(|| value.ln() - baseline.ln())
}
