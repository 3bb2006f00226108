//! What is on record of a run: what is known before the first sample, and what is added after the last.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::Path;
use std::time::Duration;

use crate::allocators::{Allocator, file_sha256, unread};
use crate::record::{Machine, Noise, Pass, Run, SCHEMA_VERSION, Workload, timestamp};
use crate::run::{Conclusion, NOISE_RULE, Plan, Stopping, inherited_environment};

/// A run that is about to begin.
pub struct Opening<'a> {
    /// What is to be run.
    pub plan: &'a Plan,
    /// Under what.
    pub allocators: &'a [Allocator],
    /// The machine.
    pub machine: Machine,
    /// Seed of the order of execution and of the bootstrap.
    pub seed: u64,
    /// Name of the preset, or of what takes its place.
    pub preset: &'a str,
    /// When it ends.
    pub stopping: Stopping,
    /// What is measured after the blocks.
    pub measures: &'a [Pass],
    /// Longest life of one process.
    pub timeout: Duration,
    /// The program that is run.
    pub program: &'a Path,
}

impl Opening<'_> {
    /// The record of a run that begins now.
    pub fn record(self) -> Run {
        let workloads = self.plan.entries.iter().map(|entry| Workload {
            name: entry.label.clone(),
            workload: entry.description.name.clone(),
            tells: entry.description.tells.clone(),
            source: entry.description.source.clone(),
            operation: entry.description.operation.clone(),
            settings: entry.settings.clone(),
            threads: entry.threads.clone(),
            task: entry.task.clone(),
        });
        let inherited_environment = inherited_environment();
        Run {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION").into(),
            id: Some(random()),
            command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
            shard: self.plan.shard,
            merged: Vec::new(),
            damage: None,
            resumed: Vec::new(),
            started: timestamp(),
            ended: None,
            interrupted: false,
            blocks: 0,
            measures: self.measures.to_vec(),
            seed: self.seed,
            preset: self.preset.into(),
            stopping: self.stopping.to_string(),
            noise_rule: NOISE_RULE.into(),
            block_log: Vec::new(),
            fault_predictions: Vec::new(),
            timeout_seconds: self.timeout.as_secs_f64(),
            machine: self.machine,
            noise_at_start: Noise::read(),
            noise_at_end: None,
            unread_environment: unread(&inherited_environment),
            inherited_environment,
            workload_program: self.program.display().to_string(),
            workload_program_sha256: file_sha256(self.program).ok(),
            allocators: self.allocators.to_vec(),
            workloads: workloads.collect(),
        }
    }
}

/// Adds to the record of a run how it ended, which is now.
pub fn close(record: &mut Run, conclusion: &Conclusion) {
    record.ended = Some(timestamp());
    record.noise_at_end = Some(Noise::read());
    record.interrupted = conclusion.interrupted;
    record.blocks = conclusion.blocks;
    record.block_log.clone_from(&conclusion.block_log);
}

/// A number that no other run has: the keys of the standard library's hashes are the system's random bytes.
fn random() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}
