//! `run.json`: the context of all samples of a run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Machine, Noise, Pass, Shard, Task};
use crate::allocators::Allocator;
use crate::stats::FaultModel;

/// Everything that a reader needs to know beside the samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`super::SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// Version of the tool.
    pub tool_version: String,
    /// What tells it from another run that began in the same second on the same host; none in records of older
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The command line.
    pub command: Vec<String>,
    /// The part of a whole run that this is; none for a whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
    /// The shards that this run was merged from; empty where it was measured in one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<Part>,
    /// What is missing of its samples, where it was written from a damaged folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
    /// When it was gone on with after an interruption, in UTC.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumed: Vec<String>,
    /// Start, in UTC.
    pub started: String,
    /// End, in UTC; none while the run goes on.
    pub ended: Option<String>,
    /// Whether a signal ended it early.
    pub interrupted: bool,
    /// Complete blocks.
    pub blocks: usize,
    /// What is measured after the blocks.
    #[serde(default)]
    pub measures: Vec<Pass>,
    /// Seed of the order of execution, of the padding, and of the bootstrap.
    pub seed: u64,
    /// The preset.
    pub preset: String,
    /// Blocks at least and at most, the seconds after which no further one is begun, and the width of
    /// the intervals that ends the run.
    pub stopping: String,
    /// Which blocks are run again.
    #[serde(default)]
    pub noise_rule: String,
    /// Every block that was run to its end, in order, with what disturbed it.
    #[serde(default)]
    pub block_log: Vec<BlockLog>,
    /// What heap-leak's faults were predicted from; empty where it did not take part.
    #[serde(default)]
    pub fault_predictions: Vec<FaultPrediction>,
    /// Longest life of one process, in seconds.
    pub timeout_seconds: f64,
    /// The machine.
    pub machine: Machine,
    /// Disturbance counters at the start.
    pub noise_at_start: Noise,
    /// Disturbance counters at the end.
    pub noise_at_end: Option<Noise>,
    /// Environment variables that reached the measured processes from outside.
    pub inherited_environment: BTreeMap<String, String>,
    /// Those of them that look like options of the project's own allocator, and which it does not take: by name, with the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unread_environment: BTreeMap<String, String>,
    /// The program that ran the workloads.
    pub workload_program: String,
    /// SHA-256 of that program, in hexadecimal; none in records of older versions.
    #[serde(default)]
    pub workload_program_sha256: Option<String>,
    /// The allocators.
    pub allocators: Vec<Allocator>,
    /// The workloads.
    pub workloads: Vec<Workload>,
}

/// A shard that went into a merged run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Which one.
    pub shard: Shard,
    /// The host that it ran on.
    pub host: String,
    /// Start, in UTC.
    pub started: String,
    /// Its complete blocks.
    pub blocks: usize,
}

/// One block, and what disturbed it from outside. Shares are none where the system does not tell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BlockLog {
    /// The block, from 0.
    pub block: usize,
    /// How often this block had been run before.
    pub attempt: usize,
    /// Start, in UTC.
    pub started: String,
    /// How long it took.
    pub seconds: f64,
    /// Processes of the block.
    pub processes: usize,
    /// CPU time that the hypervisor took for others, as a share of all CPUs' time.
    pub steal_share: Option<f64>,
    /// Share of the time in which some task of the machine, our own among them, waited for a CPU.
    pub cpu_pressure_share: Option<f64>,
    /// Involuntary switches of the block's processes.
    pub involuntary_switches: u64,
    /// Why it does not count and was run again; none for a block that counts.
    pub run_again: Option<String>,
}

/// How many page faults heap-leak causes under one allocator if nothing leaks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FaultPrediction {
    /// The allocator.
    pub allocator: String,
    /// Blocks of each chain.
    pub blocks: f64,
    /// Size of each block, in bytes.
    pub size: f64,
    /// The prediction; none where a run that it needs failed.
    pub model: Option<FaultModel>,
    /// Why there is none.
    pub reason: Option<String>,
}

/// One workload of the run, with the rows that it gives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Name in tables.
    pub name: String,
    /// Name of the workload itself.
    pub workload: String,
    /// What a reader learns from it.
    pub tells: String,
    /// Where it comes from.
    pub source: String,
    /// What one operation is.
    pub operation: String,
    /// Parameters set by the tool or the user.
    pub settings: BTreeMap<String, f64>,
    /// Thread counts.
    pub threads: Vec<u32>,
    /// What a program of the user's was asked to do; none for other workloads, and in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
}
