//! When a run ends: fixed before it begins.

use std::time::Duration;

/// Blocks at most, unless the user says otherwise.
const MOST_BLOCKS: usize = 10;
/// Blocks at least, however long they take.
const LEAST_BLOCKS: usize = 3;

/// When no further block is begun. Results have no say in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopping {
    /// After this many blocks.
    Blocks(usize),
    /// When the next block would end later than this after the start, but after three at the
    /// earliest and after ten at the latest.
    Budget(Duration),
}

impl Stopping {
    /// Whether to begin another block after `done` ones, the last of which took `last`.
    pub fn goes_on(self, done: usize, elapsed: Duration, last: Duration) -> bool {
        match self {
            Self::Blocks(blocks) => done < blocks,
            Self::Budget(_) if done < LEAST_BLOCKS => true,
            Self::Budget(budget) => done < MOST_BLOCKS && elapsed + last <= budget,
        }
    }

    /// The time that is left when `share` of block `block`, begun at `began`, is done at `elapsed`;
    /// none before anything can be told.
    pub fn left(self, block: usize, began: Duration, elapsed: Duration, share: f64) -> Option<Duration> {
        if share < 0.05 {
            return None;
        }
        let one = elapsed.saturating_sub(began).as_secs_f64() / share;
        let rest = |blocks: usize| Duration::from_secs_f64(one * ((blocks - block) as f64 - share).max(0.0));
        Some(match self {
            Self::Blocks(blocks) => rest(blocks),
            Self::Budget(budget) => {
                rest(MOST_BLOCKS).min(budget.saturating_sub(elapsed)).max(rest(LEAST_BLOCKS.max(block + 1)))
            }
        })
    }
}

impl std::fmt::Display for Stopping {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Blocks(blocks) => write!(out, "{blocks} blocks"),
            Self::Budget(budget) => {
                write!(out, "{LEAST_BLOCKS} to {MOST_BLOCKS} blocks within {} s", budget.as_secs())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_decides_between_the_least_and_the_most_blocks() {
        let seconds = Duration::from_secs;
        let budget = Stopping::Budget(seconds(100));
        assert!(budget.goes_on(2, seconds(1000), seconds(400)));
        assert!(!budget.goes_on(3, seconds(90), seconds(11)));
        assert!(budget.goes_on(3, seconds(90), seconds(10)));
        assert!(!budget.goes_on(10, seconds(1), seconds(0)));
        assert!(Stopping::Blocks(12).goes_on(11, seconds(1000), seconds(100)));
        assert!(!Stopping::Blocks(12).goes_on(12, seconds(1), seconds(0)));
    }

    #[test]
    fn the_time_left_follows_the_rule() {
        let seconds = Duration::from_secs;
        let blocks = Stopping::Blocks(4);
        assert_eq!(blocks.left(0, seconds(0), seconds(0), 0.0), None);
        // Half of the second of four blocks took five seconds: 2.5 blocks of ten seconds are left.
        assert_eq!(blocks.left(1, seconds(10), seconds(15), 0.5), Some(seconds(25)));
        // Ten blocks would take longer than the budget has.
        let budget = Stopping::Budget(seconds(60));
        assert_eq!(budget.left(2, seconds(20), seconds(25), 0.5), Some(seconds(35)));
        // The third block is finished even where it exceeds the budget.
        assert_eq!(budget.left(2, seconds(60), seconds(75), 0.5), Some(seconds(15)));
    }
}
