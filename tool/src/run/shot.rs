//! One sample: a process is put together, run, and judged.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::Program;
use super::executor::{Ended, Executor, Invocation, Traced};
use super::plan::Entry;
use super::verify::{self, Expected};
use crate::allocators::{Allocator, Limit};
use crate::record::{Judgement, Pass, SCHEMA_VERSION, Sample, timestamp};

/// The parameter that says how large the blocks of a workload are that knows but one size, in bytes.
const SIZE: &str = "size";
/// The environment variable by which a limit for blocks of one size is told which.
const LIMIT_SIZE: &str = "AMPLE_FLOOR_SIZE";

/// One process to run and to judge.
pub struct Shot<'a> {
    /// Path of the workloads' program.
    pub program: &'a Path,
    /// The workload.
    pub entry: &'a Entry,
    /// The allocator.
    pub allocator: &'a Allocator,
    /// Threads.
    pub threads: u32,
    /// What it is for.
    pub pass: Pass,
    /// Block; none outside the timed pass.
    pub block: Option<usize>,
    /// How often this block had been run before.
    pub attempt: usize,
    /// Position in the order of execution.
    pub position: usize,
    /// Bytes of padding in the environment.
    pub padding: usize,
    /// The longest that it may run.
    pub timeout: Duration,
}

impl Shot<'_> {
    /// Runs and judges it. None if interrupted. A row that the allocator cannot serve is not run.
    pub fn take(&self, executor: &mut dyn Executor) -> Option<Sample> {
        if self.allocator.limit == Some(Limit::OneSize) && self.block_size().is_none() {
            let reason = format!("{} serves blocks of one size", self.allocator.name);
            return Some(self.sample(timestamp(), None, Judgement::NotMeasurable { reason }));
        }
        let started = timestamp();
        let invocation = self.invocation();
        let Traced { ended, system_calls } = match self.pass {
            Pass::SystemCalls => executor.trace(&invocation),
            _ => Traced { ended: executor.execute(&invocation), system_calls: Ok(None) },
        };
        let expected = Expected {
            allocator: self.allocator,
            workload: &self.entry.description.name,
            threads: self.threads,
            pass: self.pass,
            timeout: self.timeout,
        };
        let judged = verify::judge(&ended, &expected)?;
        let (result, system_calls) = match (judged, system_calls) {
            (Judgement::Measured(_), Ok(None)) if self.pass == Pass::SystemCalls => {
                let reason = "the workload did not mark its measured part".to_owned();
                (Judgement::Failed { reason }, BTreeMap::new())
            }
            (judged @ Judgement::Measured(_), Ok(system_calls)) => (judged, system_calls.unwrap_or_default()),
            (_, Err(reason)) => (Judgement::NotMeasurable { reason }, BTreeMap::new()),
            (judged, Ok(_)) => (judged, BTreeMap::new()),
        };
        Some(Sample { system_calls, ..self.sample(started, Some(&ended), result) })
    }

    /// The record of it; without a process, none was started.
    fn sample(&self, started: String, ended: Option<&Ended>, result: Judgement) -> Sample {
        let elapsed = ended.map_or(Duration::ZERO, |ended| ended.elapsed);
        Sample {
            schema_version: SCHEMA_VERSION,
            pass: self.pass,
            block: self.block,
            attempt: self.attempt,
            position: self.position,
            allocator: self.allocator.name.clone(),
            workload: self.entry.label.clone(),
            threads: self.threads,
            settings: self.settings().clone(),
            padding_bytes: self.padding,
            started,
            elapsed_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
            usage: ended.and_then(|ended| ended.usage),
            system_calls: BTreeMap::new(),
            result,
        }
    }

    /// Bytes of each block, where the workload has a parameter for it.
    fn block_size(&self) -> Option<f64> {
        let parameter = self.entry.description.parameters.iter().find(|parameter| parameter.name == SIZE)?;
        let unset = if self.pass.is_at_full_work() { parameter.default } else { parameter.test };
        Some(self.settings().get(SIZE).copied().unwrap_or(unset))
    }

    fn settings(&self) -> &BTreeMap<String, f64> {
        if self.pass.is_at_full_work() { &self.entry.settings } else { &self.entry.fixed }
    }

    fn invocation(&self) -> Invocation {
        let mut arguments = vec!["run".to_owned(), self.entry.description.name.clone()];
        arguments.extend(["--threads".to_owned(), self.threads.to_string()]);
        if !self.pass.is_at_full_work() {
            arguments.push("--test".into());
        }
        if !matches!(self.pass, Pass::Probe | Pass::Calibration | Pass::Timed) {
            arguments.extend(["--pass".to_owned(), self.pass.name().to_owned()]);
        }
        for (key, value) in self.settings() {
            arguments.extend(["--set".to_owned(), format!("{key}={value}")]);
        }
        let mut environment = self.allocator.environment.clone();
        environment.insert("LD_PRELOAD".into(), self.allocator.library.display().to_string());
        environment.insert("PADDING".into(), "x".repeat(self.padding));
        if let (Some(Limit::OneSize), Some(size)) = (self.allocator.limit, self.block_size()) {
            environment.entry(LIMIT_SIZE.into()).or_insert_with(|| size.to_string());
        }
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
        attempt: 0,
        position: 0,
        padding: 0,
        timeout,
    };
    shot.take(executor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Noise;
    use crate::run::executor::End;
    use crate::run::testing::{descriptions, ended};

    /// Remembers what it was asked, and runs nothing.
    #[derive(Default)]
    struct Remembering {
        asked: Vec<Invocation>,
    }

    impl Executor for Remembering {
        fn execute(&mut self, invocation: &Invocation) -> Ended {
            self.asked.push(invocation.clone());
            ended(End::Exited(0), "")
        }

        fn is_interrupted(&self) -> bool {
            false
        }

        fn noise(&self) -> Noise {
            Noise::default()
        }
    }

    /// What threadtest and larson come to under the allocator, and the sizes that its processes were told.
    fn take(allocator: &Allocator, pass: Pass, size: Option<f64>) -> (Vec<Judgement>, Vec<Option<String>>) {
        let mut executor = Remembering::default();
        let results = descriptions().into_iter().take(2).map(|description| {
            let mut entry = Entry::plain(&description);
            if let Some(size) = size.filter(|_| description.name == "threadtest") {
                entry.settings.insert(SIZE.into(), size);
                entry.fixed.insert(SIZE.into(), size);
            }
            let shot = Shot {
                program: "/fake/program".as_ref(),
                entry: &entry,
                allocator,
                threads: 1,
                pass,
                block: None,
                attempt: 0,
                position: 0,
                padding: 0,
                timeout: Duration::from_secs(1),
            };
            shot.take(&mut executor).expect("not interrupted").result
        });
        let results = results.collect();
        let told = |invocation: &Invocation| invocation.environment.get(LIMIT_SIZE).cloned();
        (results, executor.asked.iter().map(told).collect())
    }

    #[test]
    fn a_limit_of_one_size_is_told_which_and_runs_nothing_else() {
        let floor = Allocator::fake_limit("floor", Limit::OneSize);
        let (results, told) = take(&floor, Pass::Timed, Some(4096.0));
        assert_eq!(told, [Some("4096".to_owned())]);
        let reason = "floor serves blocks of one size".to_owned();
        assert_eq!(results[1], Judgement::NotMeasurable { reason });
        assert_eq!(take(&floor, Pass::Timed, None).1, [Some("1".to_owned())], "the workload's own default");
        let mut own = floor;
        own.environment.insert(LIMIT_SIZE.into(), "128".into());
        assert_eq!(take(&own, Pass::Canary, Some(64.0)).1, [Some("128".to_owned())], "the user's own");
    }

    #[test]
    fn others_run_everything_and_are_told_nothing() {
        for other in [Allocator::fake("x"), Allocator::fake_limit("single-lock", Limit::AnySize)] {
            assert_eq!(take(&other, Pass::Timed, Some(64.0)).1, [None, None]);
        }
    }
}
