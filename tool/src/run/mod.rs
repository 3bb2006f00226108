//! Runs the samples: what is to be run, how one process runs, what its result is worth.
//!
//! [`Plan`] says what; [`executor::Executor`] runs one process; [`verify`] judges it; [`Campaign`] goes
//! through the blocks and hands every [`crate::record::Sample`] to its caller as soon as it exists.

mod campaign;
mod executor;
mod interrupt;
mod plan;
mod presets;
mod process;
mod program;
mod progress;
mod shot;
mod stopping;
#[cfg(test)]
pub mod testing;
mod verify;

pub use campaign::{Campaign, Conclusion};
pub use interrupt::{EXIT_CODE as INTERRUPTED, Interrupt};
pub use plan::{Entry, Plan, Request};
pub use presets::Size;
pub use process::{ProcessExecutor, inherited_environment};
pub use program::Program;
pub use progress::Progress;
pub use shot::probe;
pub use stopping::Stopping;
pub use verify::DOES_NOT_LOAD;
