//! Goes through the samples: a canary pass, then randomised complete blocks.
//!
//! ```text
//! probe:  every allocator once (see `probe`); who fails is out, with the reason
//! canary: every allocator × workload once, untimed; who fails is out of that workload
//! block:  every allocator runs every row once, in shuffled order; who fails is out of that row
//! block:  …until the stopping rule says that it is enough, or the user does
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::executor::{Executor, Invocation};
use super::plan::{Entry, Plan, Row, Step};
use super::verify::{self, Expected};
use super::{Program, Progress};
use crate::allocators::Allocator;
use crate::record::{Judgement, Pass, SCHEMA_VERSION, Sample, timestamp};

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
    fn goes_on(self, done: usize, elapsed: Duration, last: Duration) -> bool {
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

/// What a campaign came to.
#[derive(Debug)]
pub struct Conclusion {
    /// All samples, in the order of execution.
    pub samples: Vec<Sample>,
    /// Complete blocks.
    pub blocks: usize,
    /// Whether the user ended it early.
    pub interrupted: bool,
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

/// One process to run and to judge.
struct Shot<'a> {
    program: &'a Path,
    entry: &'a Entry,
    allocator: &'a Allocator,
    threads: u32,
    pass: Pass,
    block: Option<usize>,
    position: usize,
    padding: usize,
    timeout: Duration,
}

/// The state of a run.
struct Session<'a> {
    campaign: &'a Campaign<'a>,
    executor: &'a mut dyn Executor,
    keep: &'a mut dyn FnMut(&Sample) -> Result<()>,
    samples: Vec<Sample>,
    /// Pairs of allocator and row that yielded no number: they are not run again.
    out: BTreeSet<(usize, Row)>,
}

impl Campaign<'_> {
    /// Runs it, without the allocators that failed their probe. Every further sample is handed to
    /// `keep` as soon as it exists; if that fails, so does this.
    pub fn run(
        &self,
        probes: Vec<Sample>,
        executor: &mut dyn Executor,
        keep: &mut dyn FnMut(&Sample) -> Result<()>,
    ) -> Result<Conclusion> {
        let failed = |index: &usize| {
            let name = &self.allocators[*index].name;
            probes.iter().any(|probe| probe.allocator == *name && probe.result.reason().is_some())
        };
        let out = (0..self.allocators.len())
            .filter(failed)
            .flat_map(|allocator| self.plan.rows.iter().map(move |&row| (allocator, row)))
            .collect();
        let mut session = Session { campaign: self, executor, keep, samples: probes, out };
        let blocks = session.run();
        self.progress.finish();
        let (blocks, interrupted) = blocks?;
        Ok(Conclusion { samples: session.samples, blocks, interrupted })
    }
}

impl Session<'_> {
    /// Complete blocks, and whether the user ended the run early.
    fn run(&mut self) -> Result<(usize, bool)> {
        if !self.canaries()? {
            return Ok((0, true));
        }
        let mut last = Duration::ZERO;
        let mut done = 0;
        while self.campaign.stopping.goes_on(done, self.campaign.progress.elapsed(), last) {
            let began = self.campaign.progress.elapsed();
            if !self.block(done, began)? {
                return Ok((done, true));
            }
            last = self.campaign.progress.elapsed().saturating_sub(began);
            done += 1;
        }
        Ok((done, false))
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
        let rows: Vec<Row> = self.campaign.plan.rows.iter().filter(|row| row.entry == entry).copied().collect();
        for &row in rows.iter().rev() {
            if self.out.contains(&(allocator, row)) {
                continue;
            }
            let step = Step { allocator, row, padding: 0 };
            match self.sample(Pass::Canary, None, position, step)? {
                None => return Ok(false),
                Some(Judgement::Measured(_)) => break,
                Some(Judgement::NotMeasurable { .. }) => drop(self.out.insert((allocator, row))),
                Some(Judgement::Failed { .. }) => {
                    self.out.extend(rows.iter().map(|&row| (allocator, row)));
                    break;
                }
            }
        }
        Ok(true)
    }

    /// False if interrupted.
    fn block(&mut self, block: usize, began: Duration) -> Result<bool> {
        let Campaign { plan, allocators, progress, .. } = self.campaign;
        let steps = plan.block(block, allocators.len());
        for (position, &step) in steps.iter().enumerate() {
            if self.out.contains(&(step.allocator, step.row)) {
                continue;
            }
            let what = format!(
                "{} × {} under {}",
                plan.entries[step.row.entry].label, step.row.threads, allocators[step.allocator].name
            );
            progress.sample(block, began, position, steps.len(), &what);
            match self.sample(Pass::Timed, Some(block), position, step)? {
                None => return Ok(false),
                Some(Judgement::Measured(_)) => {}
                Some(_) => drop(self.out.insert((step.allocator, step.row))),
            }
        }
        Ok(true)
    }

    /// Takes one sample and keeps it. None if interrupted.
    fn sample(
        &mut self,
        pass: Pass,
        block: Option<usize>,
        position: usize,
        step: Step,
    ) -> Result<Option<Judgement>> {
        if self.executor.is_interrupted() {
            return Ok(None);
        }
        let Campaign { plan, allocators, program, timeout, .. } = *self.campaign;
        let shot = Shot {
            program,
            entry: &plan.entries[step.row.entry],
            allocator: &allocators[step.allocator],
            threads: step.row.threads,
            pass,
            block,
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

impl Shot<'_> {
    /// Runs and judges it. None if interrupted.
    fn take(&self, executor: &mut dyn Executor) -> Option<Sample> {
        let started = timestamp();
        let ended = executor.execute(&self.invocation());
        let expected = Expected {
            allocator: self.allocator,
            workload: &self.entry.description.name,
            threads: self.threads,
            pass: self.pass,
        };
        let result = verify::judge(&ended, &expected)?;
        Some(Sample {
            schema_version: SCHEMA_VERSION,
            pass: self.pass,
            block: self.block,
            position: self.position,
            allocator: self.allocator.name.clone(),
            workload: self.entry.label.clone(),
            threads: self.threads,
            settings: self.settings().clone(),
            padding_bytes: self.padding,
            started,
            elapsed_ns: u64::try_from(ended.elapsed.as_nanos()).unwrap_or(u64::MAX),
            usage: ended.usage,
            result,
        })
    }

    fn settings(&self) -> &BTreeMap<String, f64> {
        if self.pass == Pass::Timed { &self.entry.settings } else { &self.entry.fixed }
    }

    fn invocation(&self) -> Invocation {
        let mut arguments = vec!["run".to_owned(), self.entry.description.name.clone()];
        arguments.extend(["--threads".to_owned(), self.threads.to_string()]);
        if self.pass != Pass::Timed {
            arguments.push("--test".into());
        }
        if self.pass == Pass::Canary {
            arguments.push("--canary".into());
        }
        for (key, value) in self.settings() {
            arguments.extend(["--set".to_owned(), format!("{key}={value}")]);
        }
        let mut environment = self.allocator.environment.clone();
        environment.insert("LD_PRELOAD".into(), self.allocator.library.display().to_string());
        environment.insert("PADDING".into(), "x".repeat(self.padding));
        Invocation { program: self.program.to_owned(), arguments, environment, timeout: self.timeout }
    }
}

/// Runs the first workload once at test size under the allocator: whether it loads and serves.
/// None if interrupted.
pub fn probe(
    executor: &mut dyn Executor,
    program: &Program,
    allocator: &Allocator,
    timeout: Duration,
) -> Option<Sample> {
    let entry = Entry::plain(program.descriptions.first()?);
    let shot = Shot {
        program: &program.path,
        entry: &entry,
        allocator,
        threads: 1,
        pass: Pass::Probe,
        block: None,
        position: 0,
        padding: 0,
        timeout,
    };
    shot.take(executor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::executor::{End, Ended};
    use crate::run::plan::Request;
    use crate::run::presets::Size;
    use crate::run::testing::{Asked, MockExecutor, descriptions, ended};
    use ample_protocol::Measurement;

    fn plan() -> Plan {
        let workloads = ["threadtest".to_owned(), "larson".to_owned()];
        let request = Request {
            workloads: &workloads,
            threads: Some(&[1, 2]),
            settings: &[],
            size: Size::Default,
            cpus: 2,
        };
        Plan::new(&request, &descriptions(), 1).expect("a plan")
    }

    fn conclude(
        interrupt_after: usize,
        deviate: impl FnMut(&Asked<'_>, &mut Measurement) -> Option<Ended>,
    ) -> (Conclusion, usize) {
        let allocators = [Allocator::fake("glibc"), Allocator::fake("x")];
        let (plan, stopping) = (plan(), Stopping::Blocks(3));
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
        // Three entries × two allocators, then three blocks of six rows × two allocators.
        assert_eq!((conclusion.samples.len(), kept), (6 + 3 * 12, 6 + 3 * 12));
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
        assert_eq!(conclusion.samples.len(), 6 + 12 + 2 * 11);
        assert_eq!(conclusion.blocks, 3);
    }

    #[test]
    fn a_failed_canary_takes_the_workload_out() {
        let (conclusion, _) = conclude(usize::MAX, |asked, _| {
            let bad = asked.allocator == "x" && asked.workload == "larson" && asked.canary;
            bad.then(|| ended(End::Exited(1), r#"{"outcome":"failed","reason":"blocks overlap"}"#))
        });
        let timed = conclusion.samples.iter().filter(|sample| sample.pass == Pass::Timed);
        assert!(timed.clone().all(|sample| (sample.allocator.as_str(), sample.workload.as_str()) != ("x", "larson")));
        assert_eq!(timed.count(), 3 * 10);
    }

    #[test]
    fn what_cannot_be_measured_on_many_threads_is_measured_on_few() {
        let (conclusion, _) = conclude(usize::MAX, |asked, _| {
            let bad = asked.workload == "larson" && asked.threads == 2;
            bad.then(|| ended(End::Exited(0), r#"{"outcome":"not-measurable","reason":"one core"}"#))
        });
        let larson = conclusion.samples.iter().filter(|sample| sample.workload == "larson");
        // Each allocator: the canary on two threads, then on one; three blocks on one thread.
        assert_eq!(larson.count(), 2 * (2 + 3));
    }

    #[test]
    fn a_failed_probe_takes_the_allocator_out() {
        let allocators = [Allocator::fake("glibc"), Allocator::fake("x")];
        let program = Program { path: "/fake/program".into(), descriptions: descriptions() };
        let mut executor =
            MockExecutor::new(&allocators, |asked, _| (asked.allocator == "x").then(|| ended(End::Killed(11), "")));
        let timeout = Duration::from_secs(1);
        let probes: Vec<Sample> = allocators
            .iter()
            .map(|allocator| probe(&mut executor, &program, allocator, timeout).expect("not interrupted"))
            .collect();
        assert_eq!(probes[1].result.reason(), Some("crashed with SIGSEGV (signal 11)"));
        let (plan, stopping) = (plan(), Stopping::Blocks(1));
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
        assert_eq!(after.len(), 3 + 6);
        assert!(after.iter().all(|sample| sample.allocator == "glibc"));
    }

    #[test]
    fn an_interruption_keeps_what_is_done() {
        let (conclusion, kept) = conclude(6 + 12 + 5, |_, _| None);
        assert_eq!((conclusion.blocks, conclusion.interrupted, kept), (1, true, 6 + 12 + 5));
        let (conclusion, _) = conclude(2, |_, _| None);
        assert_eq!((conclusion.blocks, conclusion.samples.len()), (0, 2));
    }

    #[test]
    fn a_full_disk_ends_the_run() {
        let allocators = [Allocator::fake("glibc")];
        let plan = plan();
        let stopping = Stopping::Blocks(1);
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
