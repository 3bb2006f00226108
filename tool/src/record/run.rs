//! `run.json`: the context of all samples of a run.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Machine, Noise};
use crate::allocators::Allocator;

/// Everything that a reader needs to know beside the samples.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// [`super::SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// Version of the tool.
    pub tool_version: String,
    /// The command line.
    pub command: Vec<String>,
    /// Start, in UTC.
    pub started: String,
    /// End, in UTC; none while the run goes on.
    pub ended: Option<String>,
    /// Whether a signal ended it early.
    pub interrupted: bool,
    /// Complete blocks.
    pub blocks: usize,
    /// Seed of the order of execution, of the padding, and of the bootstrap.
    pub seed: u64,
    /// Blocks at least and at most, and the seconds after which no further one is begun.
    pub stopping: String,
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
    /// The program that ran the workloads.
    pub workload_program: String,
    /// The allocators.
    pub allocators: Vec<Allocator>,
    /// The workloads.
    pub workloads: Vec<Workload>,
}

/// One workload of the run, with the rows that it gives.
#[derive(Debug, Clone, Serialize)]
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
}
