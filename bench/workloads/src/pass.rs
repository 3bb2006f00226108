//! The passes: what a run of a workload is for, and on which heap it runs.

use clap::ValueEnum;

/// What a run is for. A workload is written once; the pass decides what its heap does beside serving it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Pass {
    /// Nothing is added to a call: only here do times mean what they say
    Timed,
    /// Every block's place and content are checked
    Canary,
    /// Every call of the malloc family in the measured part is timed
    Latency,
    /// Live and resident bytes are read at fixed numbers of operations
    Memory,
    /// What the processor counts is read: cycles, misses; a thread then costs more to start
    Counters,
    /// The measured part is marked for a tracer that counts system calls
    SystemCalls,
}

/// The function that runs a workload, from one that is generic over its heap: `on_heap!(run)`, or with further
/// arguments after the settings, `on_heap!(run, true)`.
macro_rules! on_heap {
    ($run:ident $(, $argument:expr)*) => {
        |settings| {
            use $crate::harness::{canary::Checked, counted::Counted, heap::Plain, timed::Timed};
            use $crate::pass::Pass;
            match settings.pass {
                Pass::Timed | Pass::Counters | Pass::SystemCalls => $run::<Plain>(settings $(, $argument)*),
                Pass::Canary => $run::<Checked>(settings $(, $argument)*),
                Pass::Latency => $run::<Timed>(settings $(, $argument)*),
                Pass::Memory => $run::<Counted>(settings $(, $argument)*),
            }
        }
    };
}
