//! The prediction of page faults that heap-leak is held against (Lever & Boreham 2000).

use serde::{Deserialize, Serialize};

/// The faults of a process without a leak: `base + per_round·t·r + per_block·t·n`, with t chains of n
/// blocks and r rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FaultModel {
    /// Faults of the process itself.
    pub base: f64,
    /// Faults of each further thread.
    pub per_round: f64,
    /// Faults of each block.
    pub per_block: f64,
}

/// Faults measured on one chain; `rounds` and `blocks` tell where, and are above 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FaultPoints {
    /// Faults of one round on one block.
    pub smallest: f64,
    /// Rounds on one block, and their faults.
    pub rounds: (f64, f64),
    /// Blocks in one round, and their faults.
    pub blocks: (f64, f64),
}

impl FaultModel {
    /// The only model that meets all three points: the slope in rounds, the slope in blocks, and what
    /// is left of the smallest run without its round and its block.
    pub fn through(points: &FaultPoints) -> Self {
        let slope = |(at, faults): (f64, f64)| (faults - points.smallest) / (at - 1.0);
        let (per_round, per_block) = (slope(points.rounds), slope(points.blocks));
        Self { base: points.smallest - per_round - per_block, per_round, per_block }
    }

    /// Faults of `threads` chains.
    pub fn predict(&self, threads: f64, rounds: f64, blocks: f64) -> f64 {
        self.base + threads * (rounds * self.per_round + blocks * self.per_block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_sources_own_figures_give_its_own_prediction() {
        // 14 faults in the smallest run, 1.1 for each round, 127.6 for 10 000 blocks.
        let points = FaultPoints {
            smallest: 14.0,
            rounds: (8.0, 14.0 + 7.0 * 1.1),
            blocks: (10_000.0, 14.0 + 127.6 * 0.9999),
        };
        let model = FaultModel::through(&points);
        assert!((model.per_round - 1.1).abs() < 1e-9, "{model:?}");
        assert!((model.per_block * 10_000.0 - 127.6).abs() < 1e-9, "{model:?}");
        // It reads its base off the smallest run as it is, with the round and the block in it.
        let source = 14.0 + 1.1 * 3.0 * 8.0 + 127.6 * 3.0;
        let here = model.predict(3.0, 8.0, 10_000.0);
        assert!((source - here - 1.1 - 127.6 / 10_000.0).abs() < 1e-9, "{here}");
    }

    proptest! {
        #[test]
        fn what_follows_the_model_gives_it_back(
            base in 0.0..2000.0f64,
            per_round in 0.0..5.0f64,
            per_block in 0.0..2.0f64,
            rounds in 2..1000u32,
            blocks in 2..100_000u32,
            threads in 1..64u32,
        ) {
            let truth = FaultModel { base, per_round, per_block };
            let (rounds, blocks) = (f64::from(rounds), f64::from(blocks));
            let found = FaultModel::through(&FaultPoints {
                smallest: truth.predict(1.0, 1.0, 1.0),
                rounds: (rounds, truth.predict(1.0, rounds, 1.0)),
                blocks: (blocks, truth.predict(1.0, 1.0, blocks)),
            });
            let threads = f64::from(threads);
            let (expected, predicted) = (truth.predict(threads, 77.0, 10_000.0), found.predict(threads, 77.0, 10_000.0));
            prop_assert!((expected - predicted).abs() <= 1e-6 * expected.max(1.0), "{found:?}");
        }

        #[test]
        fn all_points_are_met_whatever_they_are(
            smallest in 1.0..2000.0f64,
            after_rounds in 1.0..5000.0f64,
            after_blocks in 1.0..5000.0f64,
            rounds in 2..1000u32,
            blocks in 2..100_000u32,
        ) {
            let (rounds, blocks) = (f64::from(rounds), f64::from(blocks));
            let points = FaultPoints { smallest, rounds: (rounds, after_rounds), blocks: (blocks, after_blocks) };
            let model = FaultModel::through(&points);
            prop_assert!((model.predict(1.0, 1.0, 1.0) - smallest).abs() < 1e-6);
            prop_assert!((model.predict(1.0, rounds, 1.0) - after_rounds).abs() < 1e-6);
            prop_assert!((model.predict(1.0, 1.0, blocks) - after_blocks).abs() < 1e-6);
        }
    }
}
