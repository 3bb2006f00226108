//! The workloads.
fn main() {}
