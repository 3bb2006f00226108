//! What all workloads share: how they allocate, start together, count, measure and prove.
//!
//! Bottom-up, each module using only those before it:
//! [`failure`] → [`random`], [`heap`], [`slots`] → [`canary`], [`tally`] → [`usage`], [`topology`] →
//! [`inbox`], [`queue`], [`rendezvous`], [`latency`], [`phase`], [`curve`], [`counters`] → [`timed`],
//! [`counted`], [`crew`] → [`processes`], [`served_by`].

pub mod canary;
pub mod counted;
pub mod counters;
pub mod crew;
pub mod curve;
pub mod failure;
pub mod heap;
pub mod inbox;
pub mod latency;
pub mod phase;
pub mod processes;
pub mod queue;
pub mod random;
pub mod rendezvous;
pub mod served_by;
pub mod slots;
pub mod tally;
pub mod timed;
pub mod topology;
pub mod usage;
