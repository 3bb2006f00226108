//! What is written down: the machine, every sample, the options in force.

mod folder;
mod machine;
mod run;
mod sample;

pub use folder::{Folder, timestamp};
pub use machine::{Machine, Noise};
pub use run::{BlockLog, FaultPrediction, Run, Workload};
pub use sample::{Judgement, Pass, RATE, SCHEMA_VERSION, Sample, Usage, operations_per_second};
