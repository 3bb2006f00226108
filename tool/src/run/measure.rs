//! What can be measured in runs of its own.

use clap::ValueEnum;

use crate::record::Pass;

/// What may be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Measure {
    /// Percentiles of the latency of every malloc, free and realloc, in three runs
    Latency,
    /// Resident memory beside live bytes, at fixed numbers of operations
    Memory,
    /// What the processor counts, cycles and misses, or else what the kernel does
    Counters,
    /// The system calls by name, in a run under trace
    SystemCalls,
    /// All of these
    All,
    /// None of these
    None,
}

/// The passes that these measures need, each once, in order.
pub fn passes(measures: &[Measure]) -> Vec<Pass> {
    let pairs = [
        (Measure::Latency, Pass::Latency),
        (Measure::Memory, Pass::Memory),
        (Measure::Counters, Pass::Counters),
        (Measure::SystemCalls, Pass::SystemCalls),
    ];
    let wanted = |measure: &Measure| measures.contains(measure) || measures.contains(&Measure::All);
    pairs.into_iter().filter(|(measure, _)| wanted(measure)).map(|(_, pass)| pass).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_each_once_and_none_is_none() {
        assert_eq!(
            passes(&[Measure::Memory, Measure::All, Measure::Memory]),
            [Pass::Latency, Pass::Memory, Pass::Counters, Pass::SystemCalls]
        );
        assert_eq!(passes(&[Measure::SystemCalls, Measure::Latency]), [Pass::Latency, Pass::SystemCalls]);
        assert_eq!(passes(&[Measure::None]), []);
    }
}
