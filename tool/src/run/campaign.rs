//! Goes through the samples: a canary pass, then randomised complete blocks.
//!
//! ```text
//! probe:  every allocator once (see `probe`); one that fails is out, with the reason
//! canary: every allocator × workload once, untimed; an allocator that fails is out of that workload
//! calibration: where heap-leak takes part, the runs that predict its faults (see `calibration`)
//! block:  every allocator runs every row once, in shuffled order; one that fails is out of that row
//! block:  …until the stopping rule says that it is enough, or the user does
//! ```
//!
//! In the blocks the baseline takes part twice: how far it differs from itself is the noise floor. A block
//! that was disturbed from outside is run again as a whole, by the rule of [`disturbance`].

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use ample_protocol::Measurement;
use anyhow::Result;

use super::disturbance::{self, Watch};
use super::executor::Executor;
use super::past::{Past, Recall};
use super::plan::{Entry, PADDING_BOUND, Plan, Row, Step};
use super::shot::Shot;
use super::{Progress, Stopping, calibration, precision};
use crate::allocators::Allocator;
use crate::record::{BlockLog, Judgement, Pass, Sample};

/// What a campaign came to.
#[derive(Debug)]
pub struct Conclusion {
    /// All samples that count, in the order of execution: of a block that was run again, those of the
    /// last attempt, and whatever failed in an earlier one.
    pub samples: Vec<Sample>,
    /// Complete blocks.
    pub blocks: usize,
    /// Every attempt at a block that was run to its end.
    pub block_log: Vec<BlockLog>,
    /// Whether the user ended it early.
    pub interrupted: bool,
    /// Pairs of allocator, by index, and row that yielded no number.
    pub(super) out: BTreeSet<(usize, Row)>,
    /// What was measured before, and is not part of the blocks.
    pub(super) past: Past,
}

impl Conclusion {
    /// The timed run of one block, on so many threads; none where there is no number.
    pub fn measured(&self, block: usize, allocator: &str, threads: u32) -> Option<&Measurement> {
        let this = |sample: &&Sample| {
            (sample.pass, sample.block, sample.threads) == (Pass::Timed, Some(block), threads)
                && sample.allocator == allocator
        };
        match &self.samples.iter().find(this)?.result {
            Judgement::Measured(measurement) => Some(measurement),
            _ => None,
        }
    }
}

/// A run of all rows under all allocators.
pub struct Campaign<'a> {
    /// What to run.
    pub plan: &'a Plan,
    /// The allocators.
    pub allocators: &'a [Allocator],
    /// Path of the workloads' program.
    pub program: &'a Path,
    /// When to stop.
    pub stopping: Stopping,
    /// Longest life of one process.
    pub timeout: Duration,
    /// Tells how far it is.
    pub progress: &'a Progress,
}

/// The state of a run.
pub(super) struct Session<'a> {
    pub(super) campaign: &'a Campaign<'a>,
    pub(super) executor: &'a mut dyn Executor,
    pub(super) keep: &'a mut dyn FnMut(&Sample) -> Result<()>,
    pub(super) samples: Vec<Sample>,
    pub(super) block_log: Vec<BlockLog>,
    /// The allocators, and the baseline's twin behind them.
    pub(super) participants: Vec<Allocator>,
    /// Pairs of allocator and row that yielded no number: they are not run again.
    pub(super) out: BTreeSet<(usize, Row)>,
    /// What need not be measured any more.
    pub(super) past: Past,
}

impl Campaign<'_> {
    /// Runs it, without the allocators that failed their probe, from where it stands: with no more than its
    /// probes, at the beginning. Every further sample is handed to `keep` as soon as it exists; if that fails,
    /// so does this.
    pub fn run(
        &self,
        past: impl Into<Past>,
        executor: &mut dyn Executor,
        keep: &mut dyn FnMut(&Sample) -> Result<()>,
    ) -> Result<Conclusion> {
        let twin = self.allocators.iter().find(|allocator| allocator.is_baseline()).map(Allocator::twin);
        let participants = self.allocators.iter().cloned().chain(twin).collect();
        let mut past = past.into();
        let probes = std::mem::take(&mut past.probes);
        let failed: Vec<String> = probes
            .iter()
            .filter(|probe| probe.result.reason().is_some())
            .map(|probe| probe.allocator.clone())
            .collect();
        let (block_log, out) = (Vec::new(), BTreeSet::new());
        let mut session =
            Session { campaign: self, executor, keep, samples: probes, block_log, participants, out, past };
        for (index, allocator) in self.allocators.iter().enumerate() {
            if failed.contains(&allocator.name) {
                session.drop_out(index, &self.plan.rows);
            }
        }
        let blocks = session.run();
        self.progress.finish();
        let (blocks, interrupted) = blocks?;
        let Session { samples, block_log, out, past, .. } = session;
        Ok(Conclusion { samples, blocks, block_log, interrupted, out, past })
    }
}

impl Session<'_> {
    /// Complete blocks, and whether the user ended the run early.
    fn run(&mut self) -> Result<(usize, bool)> {
        if !self.canaries()? || !self.calibrate()? {
            return Ok((0, true));
        }
        let Campaign { stopping, progress, .. } = *self.campaign;
        let mut last = Duration::ZERO;
        let (mut done, mut attempt) = (0, 0);
        while stopping.goes_on(done, progress.elapsed(), last, || precision::reach(&self.samples, done)) {
            let recall = self.recall(done, attempt);
            if matches!(recall, Recall::Unfinished) {
                self.pass_over(done, attempt);
                attempt += 1;
                continue;
            }
            let began = progress.elapsed();
            let watch = Watch::start(self.executor);
            if !self.block(done, attempt, began)? {
                return Ok((done, true));
            }
            let log = match recall {
                Recall::Whole(log) => log,
                _ => {
                    last = progress.elapsed().saturating_sub(began);
                    let counts = self.switches(done, attempt);
                    let mut log = watch.end(self.executor, (done, attempt), last, counts);
                    log.run_again = disturbance::verdict(&log, &self.block_log);
                    log
                }
            };
            if log.run_again.is_some() {
                let measured = |sample: &Sample| matches!(sample.result, Judgement::Measured(_));
                self.samples.retain(|sample| sample.block != Some(done) || !measured(sample));
                attempt += 1;
            } else {
                done += 1;
                attempt = 0;
            }
            self.block_log.push(log);
        }
        Ok((done, false))
    }

    /// Processes of this attempt at a block, and their involuntary switches.
    fn switches(&self, block: usize, attempt: usize) -> (usize, u64) {
        let of_block = |sample: &&Sample| sample.block == Some(block) && sample.attempt == attempt;
        let samples = self.samples.iter().filter(of_block);
        let switches = |sample: &Sample| sample.usage.map_or(0, |usage| usage.involuntary_switches);
        samples.fold((0, 0), |(count, sum), sample| (count + 1, sum + switches(sample)))
    }

    /// Takes an allocator out of these rows, and the twin with the baseline.
    pub(super) fn drop_out(&mut self, allocator: usize, rows: &[Row]) {
        let twin = self.campaign.allocators.len();
        let twin = self.participants[allocator].is_baseline().then_some(twin);
        for participant in std::iter::once(allocator).chain(twin) {
            self.out.extend(rows.iter().map(|&row| (participant, row)));
        }
    }

    /// False if interrupted.
    fn canaries(&mut self) -> Result<bool> {
        let Campaign { plan, allocators, progress, .. } = self.campaign;
        let total = plan.entries.len() * allocators.len();
        let mut position = 0;
        for (allocator, candidate) in allocators.iter().enumerate() {
            for (index, entry) in plan.entries.iter().enumerate() {
                progress.check(position, total, &format!("{} under {}", entry.label, candidate.name));
                if !self.canary(allocator, index, position)? {
                    return Ok(false);
                }
                position += 1;
            }
        }
        Ok(true)
    }

    /// Checks one workload under one allocator on the most threads that can be measured here: where
    /// blocks could most easily be mixed up. False if interrupted.
    fn canary(&mut self, allocator: usize, entry: usize, position: usize) -> Result<bool> {
        let plan = self.campaign.plan;
        let rows: Vec<Row> = plan.rows.iter().filter(|row| row.entry == entry).copied().collect();
        for &row in rows.iter().rev() {
            if self.out.contains(&(allocator, row)) {
                continue;
            }
            let step = Step { allocator, row, padding: 0 };
            match self.sample(&plan.entries[entry], Pass::Canary, None, position, step)? {
                None => return Ok(false),
                Some(Judgement::Measured(_)) => break,
                Some(Judgement::NotMeasurable { .. }) => self.drop_out(allocator, &[row]),
                Some(Judgement::Failed { .. }) => {
                    self.drop_out(allocator, &rows);
                    break;
                }
            }
        }
        Ok(true)
    }

    /// Takes the samples that heap-leak's faults are predicted from. An allocator that fails one of them
    /// has no prediction, but goes on. False if interrupted.
    fn calibrate(&mut self) -> Result<bool> {
        let Campaign { plan, allocators, progress, .. } = self.campaign;
        let runs = calibration::runs(plan);
        let total = runs.len() * allocators.len();
        let mut failed = BTreeSet::new();
        for (position, (index, entry)) in runs.iter().enumerate() {
            for (allocator, candidate) in allocators.iter().enumerate() {
                let takes_part = |row: &&Row| !self.out.contains(&(allocator, **row));
                let rows = plan.rows.iter().filter(|row| row.entry == *index);
                if rows.filter(takes_part).count() == 0 || failed.contains(&allocator) {
                    continue;
                }
                let done = position * allocators.len() + allocator;
                progress.calibration(done, total, &candidate.name);
                let padding = position * PADDING_BOUND / runs.len();
                let step = Step { allocator, row: Row { entry: *index, threads: 1 }, padding };
                match self.sample(entry, Pass::Calibration, None, position, step)? {
                    None => return Ok(false),
                    Some(Judgement::Measured(_)) => {}
                    Some(_) => drop(failed.insert(allocator)),
                }
            }
        }
        Ok(true)
    }

    /// False if interrupted.
    fn block(&mut self, block: usize, attempt: usize, began: Duration) -> Result<bool> {
        let Campaign { plan, progress, .. } = self.campaign;
        let steps = plan.block(block, self.participants.len());
        for (position, &step) in steps.iter().enumerate() {
            if self.out.contains(&(step.allocator, step.row)) {
                continue;
            }
            let entry = &plan.entries[step.row.entry];
            let name = &self.participants[step.allocator].name;
            let what = format!("{} × {} under {name}", entry.label, step.row.threads);
            progress.sample(block, began, position, steps.len(), &what);
            match self.sample(entry, Pass::Timed, Some((block, attempt)), position, step)? {
                None => return Ok(false),
                Some(Judgement::Measured(_)) => {}
                Some(_) => self.drop_out(step.allocator, &[step.row]),
            }
        }
        Ok(true)
    }

    /// Takes one sample and keeps it. None if interrupted.
    pub(super) fn sample(
        &mut self,
        entry: &Entry,
        pass: Pass,
        block: Option<(usize, usize)>,
        position: usize,
        step: Step,
    ) -> Result<Option<Judgement>> {
        if let Some(sample) = self.known(entry, pass, block, step) {
            let result = sample.result.clone();
            self.samples.push(sample);
            return Ok(Some(result));
        }
        if self.executor.is_interrupted() {
            return Ok(None);
        }
        let Campaign { program, timeout, .. } = *self.campaign;
        let shot = Shot {
            program,
            entry,
            allocator: &self.participants[step.allocator],
            threads: step.row.threads,
            pass,
            block: block.map(|(block, _)| block),
            attempt: block.map_or(0, |(_, attempt)| attempt),
            position,
            padding: step.padding,
            timeout,
        };
        let Some(sample) = shot.take(self.executor) else { return Ok(None) };
        (self.keep)(&sample)?;
        let result = sample.result.clone();
        self.samples.push(sample);
        Ok(Some(result))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocators::{BASELINE, TWIN};
    use crate::run::Program;
    use crate::run::executor::{End, Ended};
    use crate::run::plan::Request;
    use crate::run::presets::{DEFAULT, find};
    use crate::run::shot::probe;
    use crate::run::testing::{Asked, MockExecutor, descriptions, ended};
    use std::ops::Range;

    fn plan() -> Plan {
        let workloads = ["threadtest".to_owned(), "larson".to_owned()];
        let request = Request {
            workloads: &workloads,
            threads: Some(&[1, 2]),
            settings: &[],
            preset: find(DEFAULT).expect("known"),
            cpus: 2,
        };
        Plan::new(&request, &descriptions(), 1).expect("a plan")
    }

    fn conclude(
        interrupt_after: usize,
        deviate: impl FnMut(&Asked<'_>, &mut Measurement) -> Option<Ended>,
    ) -> (Conclusion, usize) {
        conclude_disturbed(0..0, interrupt_after, deviate)
    }

    fn conclude_disturbed(
        stolen: Range<usize>,
        interrupt_after: usize,
        deviate: impl FnMut(&Asked<'_>, &mut Measurement) -> Option<Ended>,
    ) -> (Conclusion, usize) {
        let allocators = [Allocator::fake("glibc"), Allocator::fake("x")];
        let (plan, stopping) = (plan(), Stopping::blocks(3));
        let campaign = Campaign {
            plan: &plan,
            allocators: &allocators,
            program: Path::new("/fake/program"),
            stopping,
            timeout: Duration::from_secs(1),
            progress: &Progress::start(stopping),
        };
        let mut executor = MockExecutor::new(&allocators, deviate);
        executor.interrupt_after = interrupt_after;
        executor.stolen = stolen;
        let mut kept = 0;
        let conclusion = campaign
            .run(Vec::new(), &mut executor, &mut |_| {
                kept += 1;
                Ok(())
            })
            .expect("concluded");
        (conclusion, kept)
    }

    #[test]
    fn canaries_come_first_and_every_block_is_complete() {
        let (conclusion, kept) = conclude(usize::MAX, |_, _| None);
        // Three entries × two allocators, then three blocks of six rows × two allocators and the twin.
        assert_eq!((conclusion.samples.len(), kept), (6 + 3 * 18, 6 + 3 * 18));
        assert_eq!((conclusion.blocks, conclusion.interrupted), (3, false));
        assert!(conclusion.samples[..6].iter().all(|sample| sample.pass == Pass::Canary));
        assert!(conclusion.samples[6..].iter().all(|sample| sample.pass == Pass::Timed));
    }

    #[test]
    fn a_failed_row_is_not_run_again_and_the_rest_goes_on() {
        let (conclusion, _) = conclude(usize::MAX, |asked, _| {
            let bad = asked.allocator == "x" && asked.workload == "larson" && asked.threads == 2;
            (bad && !asked.canary).then(|| ended(End::Killed(11), ""))
        });
        let bad: Vec<&Sample> = conclusion
            .samples
            .iter()
            .filter(|sample| matches!(sample.result, Judgement::Failed { .. }))
            .collect();
        assert_eq!(bad.len(), 1);
        assert_eq!(conclusion.samples.len(), 6 + 18 + 2 * 17);
        assert_eq!(conclusion.blocks, 3);
    }

    #[test]
    fn a_failed_canary_takes_the_workload_out() {
        let (conclusion, _) = conclude(usize::MAX, |asked, _| {
            let bad = asked.allocator == "x" && asked.workload == "larson" && asked.canary;
            bad.then(|| ended(End::Exited(1), r#"{"outcome":"failed","reason":"blocks overlap"}"#))
        });
        let timed = conclusion.samples.iter().filter(|sample| sample.pass == Pass::Timed);
        assert!(
            timed
                .clone()
                .all(|sample| (sample.allocator.as_str(), sample.workload.as_str()) != ("x", "larson"))
        );
        assert_eq!(timed.count(), 3 * 16);
    }

    #[test]
    fn what_cannot_be_measured_on_many_threads_is_measured_on_few() {
        let (conclusion, _) = conclude(usize::MAX, |asked, _| {
            let bad = asked.workload == "larson" && asked.threads == 2;
            bad.then(|| ended(End::Exited(0), r#"{"outcome":"not-measurable","reason":"one core"}"#))
        });
        let larson = conclusion.samples.iter().filter(|sample| sample.workload == "larson");
        // Each allocator: the canary on two threads, then on one; three blocks on one thread, and the twin's.
        assert_eq!(larson.count(), 2 * (2 + 3) + 3);
    }

    #[test]
    fn a_failed_probe_takes_the_allocator_out() {
        let allocators = [Allocator::fake("glibc"), Allocator::fake("x")];
        let program = Program { path: "/fake/program".into(), descriptions: descriptions() };
        let mut executor = MockExecutor::new(&allocators, |asked, _| {
            (asked.allocator == "x").then(|| ended(End::Killed(11), ""))
        });
        let timeout = Duration::from_secs(1);
        let probes: Vec<Sample> = allocators
            .iter()
            .map(|allocator| probe(&mut executor, &program, allocator, timeout).expect("not interrupted"))
            .collect();
        assert_eq!(probes[1].result.reason(), Some("crashed with SIGSEGV (signal 11)"));
        let (plan, stopping) = (plan(), Stopping::blocks(1));
        let campaign = Campaign {
            plan: &plan,
            allocators: &allocators,
            program: &program.path,
            stopping,
            timeout,
            progress: &Progress::start(stopping),
        };
        let conclusion = campaign.run(probes, &mut executor, &mut |_| Ok(())).expect("concluded");
        let after = &conclusion.samples[2..];
        assert_eq!(after.len(), 3 + 12);
        assert!(after.iter().all(|sample| [BASELINE, TWIN].contains(&sample.allocator.as_str())));
    }

    #[test]
    fn an_interruption_keeps_what_is_done() {
        let (conclusion, kept) = conclude(6 + 18 + 5, |_, _| None);
        assert_eq!((conclusion.blocks, conclusion.interrupted, kept), (1, true, 6 + 18 + 5));
        let (conclusion, _) = conclude(2, |_, _| None);
        assert_eq!((conclusion.blocks, conclusion.samples.len()), (0, 2));
    }

    #[test]
    fn a_disturbed_block_is_run_again_as_a_whole_and_what_failed_in_it_stays_failed() {
        let mut crashes = 0;
        let (conclusion, kept) = conclude_disturbed(6 + 18 + 3..6 + 18 + 4, usize::MAX, |asked, _| {
            let bad = asked.allocator == "x" && asked.workload == "larson" && asked.threads == 2;
            crashes += u32::from(bad && !asked.canary);
            (bad && crashes == 2).then(|| ended(End::Killed(11), ""))
        });
        // The second block twice; from the crash on, one row is missing.
        assert_eq!(kept, 6 + 18 + 18 + 2 * 17);
        let again: Vec<Option<&str>> =
            conclusion.block_log.iter().map(|block| block.run_again.as_deref()).collect();
        assert!(matches!(again[..], [None, Some(_), None, None]), "{again:?}");
        let second = conclusion.samples.iter().filter(|sample| sample.block == Some(1));
        assert!(second.clone().filter(|sample| sample.attempt == 0).all(|s| s.result.reason().is_some()));
        assert_eq!((conclusion.blocks, second.count()), (3, 1 + 17));
    }

    #[test]
    fn a_full_disk_ends_the_run() {
        let allocators = [Allocator::fake("glibc")];
        let plan = plan();
        let stopping = Stopping::blocks(1);
        let campaign = Campaign {
            plan: &plan,
            allocators: &allocators,
            program: Path::new("/fake/program"),
            stopping,
            timeout: Duration::from_secs(1),
            progress: &Progress::start(stopping),
        };
        let mut executor = MockExecutor::new(&allocators, |_, _| None);
        let result = campaign.run(Vec::new(), &mut executor, &mut |_| anyhow::bail!("no space left"));
        assert_eq!(result.expect_err("ended").to_string(), "no space left");
    }
}
