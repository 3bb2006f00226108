//! The atomics that the core uses: `loom`'s where that is checking.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU32};

pub(crate) use core::sync::atomic::Ordering;
