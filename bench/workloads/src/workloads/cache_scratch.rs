//! **cache-scratch**: objects of one cache line, handed to different threads and freed by them.
//!
//! *Definition.* The main thread allocates one object of `size` bytes for each thread, one after the
//! other. Each thread, bound to a core of its own, frees the object that it was given, and then does
//! as in cache-thrash: `iterations` times { allocate an object; write all its bytes `writes` times;
//! free it }. One operation is one pass over an object. The ideal is the time of a single thread.
//! `shared_line_pairs` counts the pairs of threads whose last objects lay on a common cache line.
//!
//! *Source.* Berger et al., Hoard (2000): passive false sharing, where an allocator gives each thread the
//! place again that it has just freed, on a line that other threads use.
//!
//! *Deviations.* As cache-thrash.

use super::cache_thrash::{KNOBS, run};
use crate::definition::Definition;

/// cache-scratch.
pub const DEFINITION: Definition = Definition {
    name: "cache-scratch",
    tells: "Whether threads that free objects of one cache line go on to share that line.",
    source: "Berger et al. 2000 (Hoard), passive false sharing",
    operation: "a pass over an object: each of its bytes written once",
    knobs: KNOBS,
    max_threads: None,
    check: |_| Ok(()),
    run: on_heap!(run, true),
};
