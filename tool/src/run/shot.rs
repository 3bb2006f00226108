//! One sample: a process is put together, run, and judged.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::Program;
use super::executor::{Executor, Invocation, Traced};
use super::plan::Entry;
use super::verify::{self, Expected};
use crate::allocators::Allocator;
use crate::record::{Judgement, Pass, SCHEMA_VERSION, Sample, timestamp};

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
    /// Runs and judges it. None if interrupted.
    pub fn take(&self, executor: &mut dyn Executor) -> Option<Sample> {
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
        Some(Sample {
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
            elapsed_ns: u64::try_from(ended.elapsed.as_nanos()).unwrap_or(u64::MAX),
            usage: ended.usage,
            system_calls,
            result,
        })
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
        if !matches!(self.pass, Pass::Probe | Pass::Timed) {
            arguments.extend(["--pass".to_owned(), self.pass.name().to_owned()]);
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
        attempt: 0,
        position: 0,
        padding: 0,
        timeout,
    };
    shot.take(executor)
}
