//! The workloads: one file each, with its definition, source and deviations at its head.
//!
//! To add one: write its file with a `DEFINITION`, and list it in `registry.rs`. A variant of another workload
//! uses that one's file: cache-scratch that of cache-thrash, shbench-mixed that of shbench.

pub mod buffers;
pub mod cache_scratch;
pub mod cache_thrash;
pub mod false_sharing;
pub mod fragmentation;
pub mod giant;
pub mod heap_leak;
pub mod hot_slots;
pub mod idle_return;
pub mod large_block;
pub mod larson;
pub mod malloc_test;
pub mod many_threads;
pub mod migration;
pub mod mstress;
pub mod os_primitives;
pub mod prefork;
pub mod producer_consumer;
pub mod realloc_growth;
pub mod rebuild;
pub mod server_uptime;
pub mod shbench;
pub mod shbench_mixed;
pub mod size_curve;
pub mod startup;
pub mod synthetic;
pub mod threadtest;
pub mod transaction_pool;
pub mod xmalloc;
