//! Goes through the samples: a canary pass, then randomised complete blocks.
//!
//! ```text
//! probe:  every allocator once (see `probe`); who fails is out, with the reason
//! canary: every allocator × workload once, untimed; who fails is out of that workload
//! block:  every allocator runs every row once, in shuffled order; who fails is out of that row
//! block:  …until the stopping rule says that it is enough, or the user does
//! ```

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::executor::Executor;
use super::plan::{Plan, Row, Step};
use super::shot::Shot;
use super::{Progress, Stopping};
use crate::allocators::Allocator;
use crate::record::{Judgement, Pass, Sample};

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
        let rows: Vec<Row> =
            self.campaign.plan.rows.iter().filter(|row| row.entry == entry).copied().collect();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Program;
    use crate::run::executor::{End, Ended};
    use crate::run::plan::Request;
    use crate::run::presets::Size;
    use crate::run::shot::probe;
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
        assert!(
            timed
                .clone()
                .all(|sample| (sample.allocator.as_str(), sample.workload.as_str()) != ("x", "larson"))
        );
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
        let mut executor = MockExecutor::new(&allocators, |asked, _| {
            (asked.allocator == "x").then(|| ended(End::Killed(11), ""))
        });
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
}
