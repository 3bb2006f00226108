//! The workloads: one file each, with its definition, source and deviations at its head.
//!
//! To add one: write its file with a `DEFINITION`, and list it in `registry.rs`.

pub mod false_sharing;
pub mod heap_leak;
pub mod large_block;
pub mod larson;
pub mod malloc_test;
pub mod threadtest;
