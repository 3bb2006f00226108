//! The allocator: size classes, magazines, spans, page heap. It knows nothing of C; `ample-abi` and `ample-alloc` put the interfaces on
//! top. ARCHITECTURE.md walks through it.
//!
//! The modules are layers: ARCHITECTURE.md lists them bottom-up ("Layers, bottom-up"), and `cargo xtask tidy` checks that each uses only those above it
//! in that list. To read one malloc, begin with `heap`; with `span` and `page_heap` to see where blocks come from.
//!
//! `tests/loom.rs` checks the protocols of `sync` and `inbox` on their own: the rest rests on statics, which `loom` cannot model.
#![cfg(not(loom))]
#![cfg_attr(not(test), no_std)]

mod allocator;
mod arena;
mod atomics;
mod budget;
mod claim;
mod crowd;
mod depot;
mod eager;
#[cfg(not(any(test, miri)))]
mod fork;
#[cfg(not(any(test, miri)))]
mod global;
mod growing;
mod heap;
#[cfg_attr(any(test, miri), expect(dead_code, reason = "no thread runs in the tests"))]
mod helper;
mod inbox;
mod interface;
mod large;
mod large_cache;
#[cfg(not(any(test, miri)))]
mod limited;
mod magazine;
mod meta;
pub mod options;
mod os;
mod outside;
mod pace;
mod page_heap;
#[cfg(not(any(test, miri)))]
mod process;
mod registry;
mod report;
mod size_class;
mod span;
mod starter;
mod statistics;
mod sync;
mod tend;
pub mod text;
#[cfg(not(any(test, miri)))]
mod thread_local;
mod threads;
mod thresholds;
mod trim;
mod units;

pub use allocator::Allocator;
#[cfg(not(any(test, miri)))]
pub use global::{
    Fast, Unusual, finish, free_fast, free_full, free_remote, free_slow, keeps_deepbind, malloc_aligned,
    malloc_aligned_far, malloc_aligned_near, malloc_far, malloc_kept, malloc_near, malloc_shared,
    malloc_slow, malloc_zeroed, prepare, print_statistics, realloc, realloc_slow, set_parameter, statistics,
    trim, trim_at_pace, usable_size, usable_size_small,
};
pub use heap::Heap;
pub use interface::{keeps_place, to_resize};
pub use large::Foreign;
#[cfg(not(any(test, miri)))]
pub use limited::{after_limiting, before_locking};
pub use statistics::{ClassStatistics, Statistics};
pub use thresholds::Parameter;
