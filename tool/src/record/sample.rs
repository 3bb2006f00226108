//! One line of `samples.jsonl`: one process, and what came of it.

use std::collections::BTreeMap;

use ample_protocol::Measurement;
use serde::{Deserialize, Serialize};

/// Version of the files in an output folder; raised when a field changes its meaning.
pub const SCHEMA_VERSION: u32 = 1;

/// Why a process was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pass {
    /// A first run at test size: does the library load and serve?
    Probe,
    /// An untimed run that checks the content of blocks.
    Canary,
    /// A run that heap-leak's prediction is measured with.
    Calibration,
    /// A run whose figures count.
    Timed,
    /// A run at full work that times every call of the malloc family.
    Latency,
    /// A run at full work that reads memory at fixed numbers of operations.
    Memory,
    /// A run at full work that reads the processor's counters.
    Counters,
    /// A run at full work, under trace: its system calls are counted.
    SystemCalls,
}

impl Pass {
    /// Its name, on the command line of the workloads too, where it has one there.
    pub fn name(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Canary => "canary",
            Self::Calibration => "calibration",
            Self::Timed => "timed",
            Self::Latency => "latency",
            Self::Memory => "memory",
            Self::Counters => "counters",
            Self::SystemCalls => "system-calls",
        }
    }

    /// Whether the workload does all its work; otherwise, as little as its tests do.
    pub fn is_at_full_work(self) -> bool {
        !matches!(self, Self::Probe | Self::Canary)
    }
}

/// What may be said of one process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "kebab-case")]
pub enum Judgement {
    /// All checks passed: the figures.
    Measured(Box<Measurement>),
    /// This machine cannot give a true number.
    NotMeasurable {
        /// Why, in one sentence.
        reason: String,
    },
    /// Something is wrong: never a number.
    Failed {
        /// What, in one sentence.
        reason: String,
    },
}

impl Judgement {
    /// Why there is no number; none where there is one.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Measured(_) => None,
            Self::NotMeasurable { reason } | Self::Failed { reason } => Some(reason),
        }
    }
}

/// Name of the further figure of a [`Measurement`] that is its throughput, where that is not operations in
/// wall time: what a program of the user's tells of itself.
pub const RATE: &str = "rate";

/// Throughput of a measurement.
pub fn operations_per_second(measurement: &Measurement) -> f64 {
    if let Some(&rate) = measurement.extra.get(RATE) {
        return rate;
    }
    measurement.operations as f64 * 1e9 / measurement.wall_ns as f64
}

/// What the kernel says of a finished process and its waited-for children (wait4).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// User CPU time, in nanoseconds.
    pub user_ns: u64,
    /// Kernel CPU time, in nanoseconds.
    pub kernel_ns: u64,
    /// Largest resident set over the life of the process, in bytes.
    pub max_rss_bytes: u64,
    /// Minor page faults.
    pub minor_faults: u64,
    /// Major page faults.
    pub major_faults: u64,
    /// Voluntary context switches.
    pub voluntary_switches: u64,
    /// Involuntary context switches.
    pub involuntary_switches: u64,
}

/// One process: what was asked, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// Why the process was started.
    pub pass: Pass,
    /// Block, from 0; none outside the timed pass.
    pub block: Option<usize>,
    /// How often this block had been run before. Of a block that was run again, the last attempt counts.
    #[serde(default)]
    pub attempt: usize,
    /// Position within the block, from 0, in the order of execution.
    pub position: usize,
    /// Name of the allocator. The baseline takes part twice: the second time as `glibc (A/A)`.
    pub allocator: String,
    /// Name of the workload as in tables: with its variant, where it has several.
    pub workload: String,
    /// Threads asked for.
    pub threads: u32,
    /// Parameters set by the tool; the others keep the workload's defaults.
    pub settings: BTreeMap<String, f64>,
    /// Bytes of padding in the environment.
    pub padding_bytes: usize,
    /// Start, in UTC.
    pub started: String,
    /// Life of the process as seen from outside, in nanoseconds.
    pub elapsed_ns: u64,
    /// The kernel's account of the process; none if it did not start.
    pub usage: Option<Usage>,
    /// System calls in the measured part, by name; only in their pass.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub system_calls: BTreeMap<String, u64>,
    /// What may be said of it.
    pub result: Judgement,
}
