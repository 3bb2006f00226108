//! When a run ends: fixed before it begins.

use std::time::Duration;

use crate::stats::MIN_BLOCKS;

/// Blocks at most within a budget, unless an interval width is asked for.
const MOST_BLOCKS: usize = 10;
/// Blocks at most on the way to an interval width.
const MOST_PRECISE_BLOCKS: usize = 200;
/// Blocks at least, however long they take.
const LEAST_BLOCKS: usize = 3;

/// When no further block is begun. Verdicts have no say in it: a run that ends as soon as a difference
/// is significant finds differences where there are none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stopping {
    limit: Limit,
    precision: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Limit {
    Blocks(usize),
    Budget { time: Duration, most: usize },
}

impl Stopping {
    /// After this many blocks.
    pub fn blocks(blocks: usize) -> Self {
        Self { limit: Limit::Blocks(blocks), precision: None }
    }

    /// When the next block would end later than this after the start, but after three at the
    /// earliest and after `most` (ten, unless it says otherwise) at the latest.
    pub fn budget(time: Duration, most: Option<usize>) -> Self {
        Self { limit: Limit::Budget { time, most: most.unwrap_or(MOST_BLOCKS) }, precision: None }
    }

    /// Earlier, as soon as every interval of a ratio reaches no further than this share to either side;
    /// but not before verdicts can be given. Within a budget, up to 200 blocks are run for that.
    pub fn or_precision(self, share: f64) -> Self {
        let limit = match self.limit {
            Limit::Budget { time, .. } => Limit::Budget { time, most: MOST_PRECISE_BLOCKS },
            blocks @ Limit::Blocks(_) => blocks,
        };
        Self { limit, precision: Some(share) }
    }

    /// Whether to begin another block after `done` ones, the last of which took `last`. `reach` tells
    /// how far the widest interval reaches now, as a share.
    pub fn goes_on(
        self,
        done: usize,
        elapsed: Duration,
        last: Duration,
        reach: impl FnOnce() -> Option<f64>,
    ) -> bool {
        let within = match self.limit {
            Limit::Blocks(blocks) => done < blocks,
            Limit::Budget { .. } if done < LEAST_BLOCKS => true,
            Limit::Budget { time, most } => done < most && elapsed + last <= time,
        };
        let precise = |wanted: f64| done >= MIN_BLOCKS && reach().is_some_and(|reach| reach <= wanted);
        within && !self.precision.is_some_and(precise)
    }

    /// The time that is left, at most, when `share` of block `block`, begun at `began`, is done at
    /// `elapsed`; none before anything can be told.
    pub fn left(self, block: usize, began: Duration, elapsed: Duration, share: f64) -> Option<Duration> {
        if share < 0.05 {
            return None;
        }
        let one = elapsed.saturating_sub(began).as_secs_f64() / share;
        let rest = |blocks: usize| Duration::from_secs_f64(one * ((blocks - block) as f64 - share).max(0.0));
        Some(match self.limit {
            Limit::Blocks(blocks) => rest(blocks),
            Limit::Budget { time, most } => {
                rest(most).min(time.saturating_sub(elapsed)).max(rest(LEAST_BLOCKS.max(block + 1)))
            }
        })
    }
}

impl std::fmt::Display for Stopping {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.limit {
            Limit::Blocks(blocks) => write!(out, "{blocks} blocks")?,
            Limit::Budget { time, most } => {
                write!(out, "{LEAST_BLOCKS} to {most} blocks within {} s", time.as_secs())?;
            }
        }
        self.precision.map_or(Ok(()), |share| {
            let percent = share * 100.0;
            write!(out, ", or once every interval is within ±{percent} %")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn goes_on(rule: Stopping, done: usize, elapsed: u64, last: u64) -> bool {
        rule.goes_on(done, seconds(elapsed), seconds(last), || panic!("nobody asked for precision"))
    }

    #[test]
    fn the_budget_decides_between_the_least_and_the_most_blocks() {
        let budget = Stopping::budget(seconds(100), None);
        assert!(goes_on(budget, 2, 1000, 400));
        assert!(!goes_on(budget, 3, 90, 11));
        assert!(goes_on(budget, 3, 90, 10));
        assert!(!goes_on(budget, 10, 1, 0));
        assert!(goes_on(Stopping::budget(seconds(100), Some(20)), 10, 1, 0));
        assert!(goes_on(Stopping::blocks(12), 11, 1000, 100));
        assert!(!goes_on(Stopping::blocks(12), 12, 1, 0));
    }

    #[test]
    fn the_width_of_the_intervals_decides_where_it_is_asked_for() {
        let rule = Stopping::budget(seconds(100), None).or_precision(0.01);
        let goes_on = |done, reach| rule.goes_on(done, seconds(1), seconds(1), || reach);
        assert!(goes_on(9, Some(0.001)), "no verdict yet");
        assert!(!goes_on(10, Some(0.01)));
        assert!(goes_on(10, Some(0.011)) && goes_on(199, Some(0.011)) && goes_on(10, None));
        assert!(!goes_on(200, Some(0.011)));
        assert!(!rule.goes_on(10, seconds(100), seconds(1), || Some(1.0)), "the budget still holds");
        assert_eq!(rule.to_string(), "3 to 200 blocks within 100 s, or once every interval is within ±1 %");
    }

    #[test]
    fn the_time_left_follows_the_rule() {
        let blocks = Stopping::blocks(4);
        assert_eq!(blocks.left(0, seconds(0), seconds(0), 0.0), None);
        // Half of the second of four blocks took five seconds: 2.5 blocks of ten seconds are left.
        assert_eq!(blocks.left(1, seconds(10), seconds(15), 0.5), Some(seconds(25)));
        // Ten blocks would take longer than the budget has.
        let budget = Stopping::budget(seconds(60), None);
        assert_eq!(budget.left(2, seconds(20), seconds(25), 0.5), Some(seconds(35)));
        // The third block is finished even where it exceeds the budget.
        assert_eq!(budget.left(2, seconds(60), seconds(75), 0.5), Some(seconds(15)));
    }
}
