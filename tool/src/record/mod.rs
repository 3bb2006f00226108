//! What is written down: the machine, every sample, the options in force.

mod folder;
mod likeness;
mod machine;
mod run;
mod sample;
mod shard;
mod stored;
mod task;

pub use folder::{Folder, timestamp};
pub use machine::{Machine, Noise};
pub use run::{BlockLog, FaultPrediction, Part, Run, Workload};
pub use sample::{Judgement, Pass, RATE, SCHEMA_VERSION, Sample, Usage, operations_per_second};
pub use shard::Shard;
pub use stored::Stored;
pub use task::Task;
