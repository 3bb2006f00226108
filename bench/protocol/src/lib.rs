//! What a workload process says to the tool.
//!
//! A workload runs in a process of its own (`ample-workload run NAME …`) and prints one
//! [`Outcome`] as one JSON line on its standard output. `ample-workload list` prints one
//! [`Description`] a line. Readers ignore unknown fields, so that fields may be added.

pub mod observation;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version of the JSON below; raised when a field changes its meaning.
pub const SCHEMA_VERSION: u32 = 1;

/// First argument of a `prctl` that the system refuses, and that tells a tracer where the measured part of
/// a process begins and ends: the second argument is [`MARK_BEGIN`] or [`MARK_END`].
pub const MARK: i32 = 0x616D_706C;
/// The measured part begins.
pub const MARK_BEGIN: u64 = 1;
/// The measured part has ended.
pub const MARK_END: u64 = 0;

/// The last line of a workload process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// All work was done and counted.
    Measured(Box<Measurement>),
    /// This machine cannot give a true number for this workload: the reason.
    NotMeasurable {
        /// Why, in one sentence for the reader of the table.
        reason: String,
    },
    /// The allocator, or the workload, did something wrong: never a number.
    Failed {
        /// What went wrong, in one sentence.
        reason: String,
    },
}

/// The figures of one run of one workload in one process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// Name of the workload, as in [`Description::name`].
    pub workload: String,
    /// Worker threads that ran at the same time; where the workload says so, pairs of them.
    pub threads: u32,
    /// The parameters in force, defaults included, by name.
    pub parameters: BTreeMap<String, f64>,
    /// Operations done (what one operation is: [`Description::operation`]), counted while working.
    pub operations: u64,
    /// Operations that the definition demands; differs from `operations` only when something is wrong.
    pub expected_operations: u64,
    /// Wall time of the measured part, barrier to last finisher, in nanoseconds.
    pub wall_ns: u64,
    /// Time of each worker's measured part, in nanoseconds.
    pub worker_ns: Vec<u64>,
    /// User CPU time of the process during the measured part, in nanoseconds.
    pub user_ns: u64,
    /// Kernel CPU time of the process during the measured part, in nanoseconds.
    pub kernel_ns: u64,
    /// Minor page faults during the measured part.
    pub minor_faults: u64,
    /// Major page faults during the measured part.
    pub major_faults: u64,
    /// Voluntary context switches during the measured part.
    pub voluntary_switches: u64,
    /// Involuntary context switches during the measured part.
    pub involuntary_switches: u64,
    /// Peak resident set of the process at the end of the measured part (VmHWM), in bytes.
    pub peak_rss_bytes: u64,
    /// Resident set at the end of the measured part (VmRSS), in bytes.
    pub final_rss_bytes: u64,
    /// Bytes that the workload itself asked for and held at its peak (its live set), where it knows.
    pub peak_live_bytes: Option<u64>,
    /// Which library answers each function of the malloc family, found from inside the process.
    pub served_by: Vec<ServedBy>,
    /// Further figures of this workload by name (units in the name: `efficiency`, `shared_line_pairs`, …).
    pub extra: BTreeMap<String, f64>,
    /// What the machine counted during the measured part, by name; empty where nothing may be counted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, f64>,
    /// Memory at fixed numbers of operations, in their order; empty but in the memory pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<CurvePoint>,
}

/// What is live and what is resident after so many calls of the malloc family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Blocks allocated, resized and freed so far, by all threads.
    pub operations: u64,
    /// Bytes that the workload has asked for and not freed.
    pub live_bytes: u64,
    /// Resident anonymous and shared memory of the process, in bytes, without what the harness maps for
    /// itself, and without the pages of files.
    pub rss_bytes: u64,
}

/// The library behind one function of the malloc family, as the dynamic linker bound it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedBy {
    /// The function: `malloc`, `free`, `calloc`, …
    pub symbol: String,
    /// File of the library that defines it, as the process sees it (resolved path).
    pub path: String,
    /// GNU build id of that library in hexadecimal, where it has one.
    pub build_id: Option<String>,
}

/// What `ample-workload list` says of a workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Name on the command line and in tables.
    pub name: String,
    /// One sentence: what a reader learns from it.
    pub tells: String,
    /// Where it comes from (paper, project), and in which meaning.
    pub source: String,
    /// What one operation is.
    pub operation: String,
    /// The parameters.
    pub parameters: Vec<Parameter>,
    /// Most threads that the workload's definition allows, if it has a bound.
    pub max_threads: Option<u32>,
}

/// One parameter of a workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// Name, as in `--set name=value`.
    pub name: String,
    /// One sentence.
    pub meaning: String,
    /// Unit: `bytes`, `operations`, `count`, …
    pub unit: String,
    /// The value when nothing is said.
    pub default: f64,
    /// The value under `--test`.
    pub test: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_survives_the_trip_and_unknown_fields_are_ignored() {
        let line = r#"{"outcome":"not-measurable","reason":"one core only","later":1}"#;
        let outcome: Outcome = serde_json::from_str(line).expect("readable");
        assert_eq!(outcome, Outcome::NotMeasurable { reason: "one core only".into() });
        let again = serde_json::to_string(&outcome).expect("writable");
        assert_eq!(serde_json::from_str::<Outcome>(&again).expect("readable"), outcome);
    }
}
