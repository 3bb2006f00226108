//! Runs the samples: what is to be run, how one process runs, what its result is worth.
//!
//! [`Plan`] says what; [`executor::Executor`] runs one process; [`verify`] judges it; [`Campaign`] goes
//! through the blocks and hands every [`crate::record::Sample`] to its caller as soon as it exists.

mod calibration;
mod campaign;
mod costs;
mod disturbance;
mod executor;
mod family;
mod interrupt;
mod measure;
mod measures;
mod past;
mod plan;
mod planted;
mod precision;
mod presets;
mod process;
mod program;
mod progress;
mod recorded;
mod resumed;
mod seed_arguments;
mod shot;
mod stopping;
#[cfg(test)]
pub mod testing;
mod trace;
mod verify;
mod wait;

pub use calibration::{FAULTS, Shape, predictions};
pub use campaign::{Campaign, Conclusion};
pub use costs::{Cost, costs};
pub use disturbance::RULE as NOISE_RULE;
pub use executor::{End, Ended, Executor, Invocation};
pub use family::{adopt_orphans, children, end_orphans, tie};
pub use interrupt::{EXIT_CODE as INTERRUPTED, Interrupt};
pub use measure::{Measure, passes};
pub use past::Past;
pub use plan::{Entry, Plan, Request};
pub use planted::{MARK as PLANTED_MARK, Planted};
pub use presets::{
    DEFAULT as DEFAULT_PRESET, Preset, QUICK as QUICK_PRESET, TIMEOUT, find as preset, help as preset_help,
};
pub use process::{ProcessExecutor, decode, inherited_environment, reap};
pub use program::Program;
pub use progress::{Progress, clock};
pub use recorded::{complete_blocks, in_force, lost, recorded};
pub use seed_arguments::SeedArguments;
pub use shot::probe;
pub use stopping::Stopping;
pub use verify::{DOES_NOT_LOAD, OPERATORS, refusal};
pub use wait::wait_for;
