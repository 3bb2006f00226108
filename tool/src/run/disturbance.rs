//! Whether a block was disturbed from outside, by a rule that is fixed before the run.

use std::time::Duration;

use super::executor::Executor;
use crate::record::{BlockLog, Noise, timestamp};

/// Share of the CPUs' time that the hypervisor may give to others.
const MOST_STEAL: f64 = 0.05;
/// Involuntary switches, as a multiple of the median of the blocks kept so far.
const MOST_SWITCHES: f64 = 3.0;
/// Blocks that this median needs.
const LEAST_BLOCKS: usize = 3;
/// Blocks of a run that are run again at most: on a machine that is always busy, the run must end.
const MOST_REPEATS: usize = 3;

/// The rule in words.
pub const RULE: &str = "a block is run again as a whole if the hypervisor took more than 5 % of the CPUs' \
    time during it, or its processes were switched involuntarily more than three times as often as the \
    median of the blocks kept so far (three at least, and more than once a process); three blocks of a \
    run at most";

/// Counters at the start of a block.
pub struct Watch {
    started: String,
    noise: Noise,
}

impl Watch {
    /// Reads the counters.
    pub fn start(executor: &dyn Executor) -> Self {
        Self { started: timestamp(), noise: executor.noise() }
    }

    /// What happened since, in a block that took so long.
    pub fn end(
        self,
        executor: &dyn Executor,
        (block, attempt): (usize, usize),
        elapsed: Duration,
        (processes, involuntary_switches): (usize, u64),
    ) -> BlockLog {
        let now = executor.noise();
        let seconds = elapsed.as_secs_f64();
        let cpus = std::thread::available_parallelism().map_or(1.0, |cpus| cpus.get() as f64);
        let share = |now: Option<f64>, then: Option<f64>, whole: f64| {
            Some(((now? - then?) / whole).max(0.0)).filter(|_| whole > 0.0)
        };
        let pressure = |noise: &Noise| noise.cpu_pressure_us.map(|time| time as f64 / 1e6);
        BlockLog {
            block,
            attempt,
            started: self.started,
            seconds,
            processes,
            steal_share: share(now.steal_seconds, self.noise.steal_seconds, seconds * cpus),
            cpu_pressure_share: share(pressure(&now), pressure(&self.noise), seconds),
            involuntary_switches,
            run_again: None,
        }
    }
}

/// Why the block is to be run again under [`RULE`], given the log of those before it; none if it counts.
pub fn verdict(block: &BlockLog, before: &[BlockLog]) -> Option<String> {
    if before.iter().filter(|block| block.run_again.is_some()).count() >= MOST_REPEATS {
        return None;
    }
    if let Some(steal) = block.steal_share.filter(|share| *share > MOST_STEAL) {
        return Some(format!("the hypervisor took {:.0} % of the CPUs' time", steal * 100.0));
    }
    let mut kept: Vec<u64> = before
        .iter()
        .filter(|block| block.run_again.is_none())
        .map(|block| block.involuntary_switches)
        .collect();
    if kept.len() < LEAST_BLOCKS {
        return None;
    }
    kept.sort_unstable();
    let median = kept[kept.len() / 2];
    let most = (median as f64 * MOST_SWITCHES).max(block.processes as f64);
    (block.involuntary_switches as f64 > most)
        .then(|| format!("{} involuntary switches, where the median is {median}", block.involuntary_switches))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(steal: f64, switches: u64, run_again: bool) -> BlockLog {
        BlockLog {
            block: 0,
            attempt: 0,
            started: String::new(),
            seconds: 1.0,
            processes: 20,
            steal_share: Some(steal),
            cpu_pressure_share: None,
            involuntary_switches: switches,
            run_again: run_again.then(|| "noise".to_owned()),
        }
    }

    #[test]
    fn steal_counts_from_the_first_block_and_switches_from_the_fourth() {
        assert_eq!(verdict(&log(0.05, 1000, false), &[]), None);
        let stolen = verdict(&log(0.07, 0, false), &[]);
        assert_eq!(stolen.as_deref(), Some("the hypervisor took 7 % of the CPUs' time"));
        let quiet = [log(0.0, 9, false), log(0.0, 10, false), log(0.0, 500, true), log(0.0, 11, false)];
        let switched = verdict(&log(0.0, 31, false), &quiet);
        assert_eq!(switched.as_deref(), Some("31 involuntary switches, where the median is 10"));
        assert_eq!(verdict(&log(0.0, 30, false), &quiet), None);
        let silent = [log(0.0, 0, false), log(0.0, 0, false), log(0.0, 0, false)];
        assert_eq!(verdict(&log(0.0, 20, false), &silent), None, "once a process is nothing");
    }

    #[test]
    fn no_more_than_three_blocks_are_run_again() {
        let repeated = [log(0.5, 0, true), log(0.5, 0, true), log(0.5, 0, true)];
        assert!(verdict(&log(0.5, 0, false), &repeated[..2]).is_some());
        assert_eq!(verdict(&log(0.5, 0, false), &repeated), None);
    }
}
