//! An estimate with its standard error, and the difference of two that have nothing in common.

use statrs::distribution::{ContinuousCDF as _, StudentsT};

use super::Estimate;

/// An estimate, how far it may be off, and how well that is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Location {
    /// The estimate.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
    /// Degrees of freedom of the error; none where there is but one block, which has no error.
    pub freedom: Option<f64>,
}

impl Location {
    /// By how much this estimate is above one of another sample, none of whose blocks was run together with
    /// one of this: errors add up as squares, with the degrees of freedom of Welch (1947).
    pub fn above(self, other: Self) -> Self {
        let (own, others) = (self.error.powi(2), other.error.powi(2));
        let freedom = self.freedom.zip(other.freedom).map(|(of_own, of_others)| {
            let shares = own.powi(2) / of_own + others.powi(2) / of_others;
            if shares > 0.0 { (own + others).powi(2) / shares } else { of_own.min(of_others) }
        });
        Self { value: self.value - other.value, error: (own + others).sqrt(), freedom }
    }

    /// The estimate with the interval that misses the truth with probability `alpha`; without end where the error is
    /// not known at all.
    pub fn interval(self, alpha: f64) -> Estimate {
        let reach = |student: StudentsT| student.inverse_cdf(1.0 - alpha / 2.0) * self.error;
        let reach = self.student().map_or(f64::INFINITY, reach);
        Estimate { value: self.value, low: self.value - reach, high: self.value + reach }
    }

    /// Probability of an estimate at least as far from 0 on either side, if 0 were the truth: the
    /// `alpha` at which the interval reaches 0.
    pub fn p_value(self) -> f64 {
        let Some(student) = self.student() else { return 1.0 };
        match (self.value == 0.0, self.error == 0.0) {
            (true, _) => 1.0,
            (false, true) => 0.0,
            (false, false) => 2.0 * student.cdf(-(self.value / self.error).abs()),
        }
    }

    /// The distribution of estimate over error.
    fn student(self) -> Option<StudentsT> {
        StudentsT::new(0.0, 1.0, self.freedom?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Bootstrap, Resamples};
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn freedom_is_between_that_of_the_worse_and_that_of_both() {
        let of = |error, freedom| Location { value: 1.0, error, freedom: Some(freedom) };
        let equal = of(0.1, 9.0).above(of(0.1, 9.0));
        assert!((equal.freedom.expect("some") - 18.0).abs() < 1e-9, "{equal:?}");
        assert!((equal.error - 0.02_f64.sqrt()).abs() < 1e-12 && equal.value == 0.0);
        let one_alone = of(0.1, 9.0).above(of(0.0, 4.0));
        assert!((one_alone.freedom.expect("some") - 9.0).abs() < 1e-9, "{one_alone:?}");
        assert_eq!(of(0.0, 9.0).above(of(0.0, 4.0)).freedom, Some(4.0));
        let single = Location { freedom: None, ..of(0.0, 1.0) };
        assert_eq!((single.above(of(0.1, 9.0)).p_value(), of(0.1, 9.0).above(single).freedom), (1.0, None));
    }

    #[test]
    fn two_samples_of_one_thing_differ_about_as_often_as_is_said() {
        let mut random = ChaCha8Rng::seed_from_u64(11);
        let resamples = [Resamples::draw(10, 400, 1), Resamples::draw(14, 400, 2)];
        let trials = 300;
        let mut alarms = 0;
        for _ in 0..trials {
            let [first, second] = [(10, 0.01), (14, 0.03)].map(|(blocks, spread)| {
                // Sum of twelve uniforms minus six: close to a standard normal.
                let normal =
                    |random: &mut ChaCha8Rng| (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
                (0..blocks).map(|_| spread * normal(&mut random)).collect::<Vec<f64>>()
            });
            let first = Bootstrap::of(&first, &resamples[0]).expect("complete").location();
            let second = Bootstrap::of(&second, &resamples[1]).expect("complete").location();
            alarms += usize::from(second.above(first).p_value() < 0.05);
        }
        assert!((4..=30).contains(&alarms), "{alarms} of {trials}");
    }
}
