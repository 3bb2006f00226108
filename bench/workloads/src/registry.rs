//! The table of all workloads.

use crate::definition::Definition;
use crate::workloads::{
    buffers, cache_scratch, cache_thrash, false_sharing, fragmentation, giant, heap_leak, hot_slots,
    idle_return, large_block, larson, malloc_test, many_threads, migration, mstress, os_primitives, prefork,
    producer_consumer, realloc_growth, rebuild, server_uptime, shbench, shbench_mixed, size_curve, startup,
    synthetic, threadtest, transaction_pool, xmalloc,
};

/// Every workload, in the order of the suite.
pub const WORKLOADS: [&Definition; 29] = [
    &malloc_test::DEFINITION,
    &heap_leak::DEFINITION,
    &false_sharing::DEFINITION,
    &threadtest::DEFINITION,
    &large_block::DEFINITION,
    &larson::DEFINITION,
    &shbench::DEFINITION,
    &shbench_mixed::DEFINITION,
    &producer_consumer::DEFINITION,
    &xmalloc::DEFINITION,
    &mstress::DEFINITION,
    &cache_scratch::DEFINITION,
    &cache_thrash::DEFINITION,
    &migration::DEFINITION,
    &transaction_pool::DEFINITION,
    &size_curve::DEFINITION,
    &rebuild::DEFINITION,
    &giant::DEFINITION,
    &buffers::DEFINITION,
    &hot_slots::DEFINITION,
    &realloc_growth::DEFINITION,
    &fragmentation::DEFINITION,
    &idle_return::DEFINITION,
    &synthetic::DEFINITION,
    &many_threads::DEFINITION,
    &server_uptime::DEFINITION,
    &prefork::DEFINITION,
    &startup::DEFINITION,
    &os_primitives::DEFINITION,
];

/// The workload of this name.
///
/// # Errors
/// One line for the user that names the valid ones.
pub fn find(name: &str) -> Result<&'static Definition, String> {
    WORKLOADS.into_iter().find(|workload| workload.name == name).ok_or_else(|| {
        let valid: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
        format!("no workload \"{name}\": valid are {}", valid.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_complete_and_their_values_within_range() {
        for (index, workload) in WORKLOADS.iter().enumerate() {
            for text in [workload.name, workload.tells, workload.source, workload.operation] {
                assert!(!text.is_empty(), "{}", workload.name);
            }
            assert!(WORKLOADS[..index].iter().all(|other| other.name != workload.name));
            for knob in workload.knobs {
                assert!(!knob.meaning.is_empty() && !knob.unit.is_empty(), "{}", knob.name);
                assert!(
                    knob.range.contains(&knob.default) && knob.range.contains(&knob.test),
                    "{}",
                    knob.name
                );
            }
        }
    }
}
