//! What all workloads share: how they allocate, start together, count, measure and prove.
//!
//! Bottom-up, each module using only those before it:
//! [`failure`] → [`random`], [`heap`], [`slots`] → [`canary`] → [`usage`], [`topology`] → [`crew`] →
//! [`processes`], [`served_by`].

pub mod canary;
pub mod crew;
pub mod failure;
pub mod heap;
pub mod processes;
pub mod random;
pub mod served_by;
pub mod slots;
pub mod topology;
pub mod usage;
