//! Goes on with a run that was interrupted: what it has measured is not measured again.
//!
//! The campaign goes through its plan as if nothing had been done, and takes every sample that is there
//! already instead of running a process. So allocators that failed are out, and blocks that were disturbed are
//! reported, as they were at first. A block that was not finished is run again as a whole: its halves would belong to two
//! different times.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::record::{BlockLog, Pass, Sample};

/// What a sample is of: pass, block, attempt, allocator, workload, threads.
pub(super) type Key = (Pass, Option<usize>, usize, String, String, u32);

/// Why an attempt was run again where nobody wrote it down.
const UNKNOWN: &str = "the run that found why was killed before it wrote that down";

/// What a run has measured before.
#[derive(Debug, Default)]
pub struct Past {
    pub(super) probes: Vec<Sample>,
    /// Those of one key in the order of execution.
    samples: BTreeMap<Key, VecDeque<Sample>>,
    log: Vec<BlockLog>,
}

/// What is known of an attempt at a block.
pub(super) enum Recall {
    /// It was never begun.
    Nothing,
    /// It was not run to its end.
    Unfinished,
    /// It was, and this disturbed it.
    Whole(BlockLog),
}

impl From<Vec<Sample>> for Past {
    /// A run that has only begun: its probes.
    fn from(probes: Vec<Sample>) -> Self {
        Self { probes, ..Self::default() }
    }
}

impl Past {
    /// All that a run has measured, with its log of blocks, which may lack the last ones.
    pub fn new(samples: Vec<Sample>, log: Vec<BlockLog>) -> Self {
        let mut past = Self { log, ..Self::default() };
        for sample in samples {
            match sample.pass {
                Pass::Probe => past.probes.push(sample),
                _ => past.samples.entry(key(&sample)).or_default().push_back(sample),
            }
        }
        past
    }

    /// For how long processes have run so far.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.samples.values().flatten().map(|sample| sample.elapsed_ns).sum())
    }

    /// The next sample like this one, which was not taken yet.
    pub(super) fn take(&mut self, key: &Key) -> Option<Sample> {
        self.samples.get_mut(key)?.pop_front()
    }

    /// Whether there is such a one.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.samples.get(key).is_some_and(|left| !left.is_empty())
    }

    fn of_attempt(&self, block: usize, attempt: usize) -> impl Iterator<Item = &Sample> {
        let samples = self.samples.values().flatten();
        samples.filter(move |sample| sample.block == Some(block) && sample.attempt == attempt)
    }

    /// Whether an attempt at a block was begun, and something is left of it.
    pub(super) fn is_begun(&self, block: usize, attempt: usize) -> bool {
        self.of_attempt(block, attempt).next().is_some()
    }

    /// The log of an attempt that ended.
    pub(super) fn log_of(&self, block: usize, attempt: usize) -> BlockLog {
        let logged = self.log.iter().find(|log| (log.block, log.attempt) == (block, attempt));
        logged.cloned().unwrap_or_else(|| self.reconstructed(block, attempt))
    }

    /// The log of an attempt that ended, where the run did not live to write it. (Only one that was disturbed is followed by another.)
    fn reconstructed(&self, block: usize, attempt: usize) -> BlockLog {
        let samples = || self.of_attempt(block, attempt);
        let switches = |sample: &Sample| sample.usage.map_or(0, |usage| usage.involuntary_switches);
        let of_block = |key: &&Key| key.1 == Some(block);
        let followed = self.samples.keys().filter(of_block).any(|key| key.2 > attempt);
        BlockLog {
            block,
            attempt,
            started: samples().map(|sample| sample.started.clone()).min().unwrap_or_default(),
            seconds: samples().map(|sample| sample.elapsed_ns as f64 / 1e9).sum(),
            processes: samples().count(),
            steal_share: None,
            cpu_pressure_share: None,
            involuntary_switches: samples().map(switches).sum(),
            run_again: followed.then(|| UNKNOWN.to_owned()),
        }
    }
}

fn key(sample: &Sample) -> Key {
    let Sample { pass, block, attempt, allocator, workload, threads, .. } = sample;
    (*pass, *block, *attempt, allocator.clone(), workload.clone(), *threads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocators::Allocator;
    use crate::record::Judgement;
    use crate::run::testing::{Asked, conclude_from};
    use crate::run::{Conclusion, Past};

    const ALL: [Pass; 2] = [Pass::Latency, Pass::Memory];

    /// A run of four blocks on two rows, from what was measured before; x fails on two threads. All samples
    /// that it left behind, in order, and what it came to.
    fn run(before: &[Sample], log: &[BlockLog], interrupt_after: usize) -> (Vec<Sample>, Conclusion, usize) {
        let allocators = [Allocator::fake("glibc"), Allocator::fake("x")];
        let mut asked = 0;
        let past = Past::new(before.to_vec(), log.to_vec());
        let deviate = |request: &Asked<'_>, _: &mut _| {
            asked += 1;
            let bad = request.allocator == "x" && request.threads == 2 && request.pass.is_empty();
            bad.then(|| r#"{"outcome":"failed","reason":"broken"}"#.to_owned())
        };
        let (kept, conclusion) = conclude_from(past, &ALL, &allocators, 4, interrupt_after, deviate);
        let all = before.iter().cloned().chain(kept).collect();
        (all, conclusion, asked)
    }

    fn kinds(conclusion: &Conclusion) -> Vec<Key> {
        let measured = |sample: &&Sample| matches!(sample.result, Judgement::Measured(_));
        let mut kinds: Vec<Key> = conclusion.samples.iter().filter(measured).map(key).collect();
        for kind in &mut kinds {
            kind.2 = 0;
        }
        kinds.sort();
        kinds
    }

    #[test]
    fn wherever_it_was_interrupted_it_comes_to_the_same_and_nothing_is_measured_twice() {
        let (_, whole, all) = run(&[], &[], usize::MAX);
        assert_eq!((whole.blocks, whole.interrupted), (4, false));
        for interrupt_after in 0..all {
            let (samples, interrupted, done) = run(&[], &[], interrupt_after);
            assert!(interrupted.interrupted && done == interrupt_after);
            for log in [&interrupted.block_log[..], &[]] {
                let (_, again, more) = run(&samples, log, usize::MAX);
                assert_eq!((again.blocks, again.interrupted), (4, false), "after {interrupt_after}");
                assert_eq!(kinds(&again), kinds(&whole), "after {interrupt_after}");
                // Only the unfinished block is measured again: six processes at most, before one fails.
                assert!((all..all + 6).contains(&(done + more)), "after {interrupt_after}: {more}");
                let failed = again.samples.iter().filter(|sample| sample.result.reason().is_some());
                assert_eq!(failed.count(), 1, "after {interrupt_after}");
            }
        }
    }

    #[test]
    fn it_may_be_interrupted_again_and_again() {
        let (mut samples, mut log) = (Vec::new(), Vec::new());
        let mut rounds = 0;
        loop {
            // As many as a block has, and the canaries.
            let (kept, conclusion, _) = run(&samples, &log, 7);
            (samples, log) = (kept, conclusion.block_log.clone());
            rounds += 1;
            assert!(rounds < 30, "no progress");
            if !conclusion.interrupted {
                assert_eq!(conclusion.blocks, 4);
                break;
            }
        }
        assert!(rounds > 3);
    }

    #[test]
    fn an_attempt_that_was_run_again_when_the_run_was_killed_does_not_count() {
        let (whole, _, _) = run(&[], &[], usize::MAX);
        let of = |sample: &&Sample, block: usize| sample.block == Some(block);
        let mut samples: Vec<Sample> =
            whole.iter().filter(|sample| !of(sample, 2) && !of(sample, 3)).cloned().collect();
        let first = whole.iter().find(|sample| of(sample, 1)).expect("a sample of the second block");
        samples.push(Sample { attempt: 1, ..first.clone() });
        let (all, again, _) = run(&samples, &[], usize::MAX);
        assert_eq!((again.blocks, again.interrupted), (4, false));
        let attempts = |block: usize| {
            let of_block = again.samples.iter().filter(move |sample| of(sample, block));
            of_block.map(|sample| sample.attempt).collect::<Vec<_>>()
        };
        assert!(attempts(3).iter().all(|attempt| *attempt == 0));
        assert_eq!(attempts(1), vec![2; attempts(3).len()], "a whole block, of one attempt");
        let log = again.block_log.iter().find(|log| (log.block, log.attempt) == (1, 0)).expect("logged");
        assert_eq!(log.run_again.as_deref(), Some(UNKNOWN));
        // Whoever reads the samples later comes to the same.
        assert_eq!(
            all.iter().filter(|sample| of(sample, 1) && sample.attempt == 2).count(),
            attempts(3).len()
        );
    }

    #[test]
    fn a_finished_run_is_only_read() {
        let (samples, whole, _) = run(&[], &[], usize::MAX);
        let (_, again, more) = run(&samples, &whole.block_log, usize::MAX);
        assert_eq!((more, kinds(&again), again.block_log), (0, kinds(&whole), whole.block_log));
    }
}
