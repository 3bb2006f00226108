//! Random numbers: xoshiro256++ (Blackman & Vigna 2019), seeded by SplitMix64.
//!
//! The same stream on every machine and in every version: a workload's choices depend on its
//! parameters alone.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// All streams derive from this seed.
const SEED: u64 = 0x0A3B_1E5E_ED00_0001;

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// Stream number `stream`: each worker has one of its own.
    pub fn stream(stream: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(SEED.wrapping_add(stream)))
    }

    /// A number in `0..bound`; `bound` is not 0.
    ///
    /// The high half of a widening product (Lemire 2019, without the rejection step): for a bound
    /// below 2³² the bias is below 2⁻³², far from anything that a workload could show.
    #[inline]
    pub fn below(&mut self, bound: usize) -> usize {
        debug_assert!(bound > 0);
        ((u128::from(self.0.next_u64()) * bound as u128) >> 64) as usize
    }

    /// A number from `min` to `max`, both included.
    #[inline]
    pub fn between(&mut self, min: usize, max: usize) -> usize {
        min + self.below(max - min + 1)
    }

    /// A number from `min` to `max`, which is not 0, the logarithm being even.
    pub fn even_in_logarithm(&mut self, min: usize, max: usize) -> usize {
        let (least, most) = ((min as f64).log2(), (max as f64).log2());
        ((least + (most - least) * self.unit()).exp2() as usize).clamp(min, max)
    }

    /// A number in 0..1, in steps of 2⁻⁵³.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * (0.5f64).powi(53)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_xoshiro256_plus_plus() {
        // The authors' reference code, from the state 1, 2, 3, 4.
        let mut seed = [0; 32];
        for (word, value) in seed.chunks_exact_mut(8).zip(1u64..) {
            word.copy_from_slice(&value.to_le_bytes());
        }
        let mut random = Random(Xoshiro256PlusPlus::from_seed(seed));
        let first: Vec<u64> = (0..3).map(|_| random.0.next_u64()).collect();
        assert_eq!(first, [41_943_041, 58_720_359, 3_588_806_011_781_223]);
    }

    #[test]
    fn a_stream_repeats_itself_and_differs_from_the_next() {
        let take = |stream| {
            let mut random = Random::stream(stream);
            (0..100).map(|_| random.below(1_000_000)).collect::<Vec<_>>()
        };
        assert_eq!(take(0), take(0));
        assert_ne!(take(0), take(1));
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_both_ends() {
        let mut random = Random::stream(7);
        let drawn: Vec<usize> = (0..10_000).map(|_| random.below(10)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&0), Some(&9)));
    }

    #[test]
    fn fractions_are_even_from_zero_to_one() {
        let mut random = Random::stream(3);
        let drawn: Vec<f64> = (0..100_000).map(|_| random.unit()).collect();
        assert!(drawn.iter().all(|fraction| (0.0..1.0).contains(fraction)));
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        // Standard error 0.0009: five of them.
        assert!((mean - 0.5).abs() < 0.005, "{mean}");
    }

    #[test]
    fn each_octave_has_as_many_blocks() {
        let mut random = Random::stream(0);
        let sizes: Vec<_> = (0..120_000).map(|_| random.even_in_logarithm(16, 1 << 16)).collect();
        assert!(sizes.iter().all(|size| (16..1 << 16).contains(size)));
        for octave in 4..16 {
            let blocks = sizes.iter().filter(|size| size.ilog2() == octave).count();
            // Five standard errors of 96 each.
            assert!((9_500..10_500).contains(&blocks), "{octave}: {blocks}");
        }
    }
}
