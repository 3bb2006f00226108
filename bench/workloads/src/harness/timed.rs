//! The latency pass: a heap that times every call in the measured part.
//!
//! Each heap keeps histograms of its own, which exist before the measured part begins; when it is dropped,
//! they go to those of the process. Recording takes no lock and no memory.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::failure::Failure;
use super::heap::{Address, Heap, Plain};
use super::latency::{Latencies, timer_cost_ns};
use super::phase::{self, Phase};

/// Latencies by function.
#[derive(Debug, Default)]
struct Calls {
    malloc: Latencies,
    free: Latencies,
    realloc: Latencies,
}

/// What all heaps of the process recorded that no longer exist.
static RECORDED: Mutex<Option<Calls>> = Mutex::new(None);

impl Calls {
    fn merge(&mut self, other: &Self) {
        self.malloc.merge(&other.malloc);
        self.free.merge(&other.free);
        self.realloc.merge(&other.realloc);
    }

    /// For each function that was called `NAME_p50_ns` to `NAME_max_ns` and `NAME_calls`.
    fn figures(&self) -> BTreeMap<String, f64> {
        let functions = [("malloc", &self.malloc), ("free", &self.free), ("realloc", &self.realloc)];
        let called = functions.into_iter().filter(|(_, latencies)| latencies.count() > 0);
        called
            .flat_map(|(name, latencies)| {
                let calls = (format!("{name}_calls"), latencies.count() as f64);
                latencies.figures(name).into_iter().chain([calls])
            })
            .collect()
    }
}

/// The percentiles of all calls of the malloc family in the measured part, `aligned_alloc` as a
/// `malloc`, with `timer_cost_ns`. None where there was no such call.
pub fn figures() -> Option<BTreeMap<String, f64>> {
    let recorded = RECORDED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut figures = recorded.as_ref()?.figures();
    if figures.is_empty() {
        return None;
    }
    figures.insert("timer_cost_ns".into(), timer_cost_ns());
    Some(figures)
}

/// [`Plain`], with a clock around each call.
#[derive(Debug)]
pub struct Timed {
    calls: Box<Calls>,
}

/// Makes a call, timed if this is the measured part.
#[inline]
fn time<T>(latencies: &mut Latencies, call: impl FnOnce() -> T) -> T {
    if phase::now() == Phase::Measured { latencies.time(call) } else { call() }
}

impl Heap for Timed {
    type Block = Address;

    fn of(_owner: u32) -> Self {
        Self { calls: Box::default() }
    }

    #[inline]
    fn allocate(&mut self, size: usize) -> Result<Address, Failure> {
        time(&mut self.calls.malloc, || Plain.allocate(size))
    }

    #[inline]
    fn allocate_aligned(&mut self, alignment: usize, size: usize) -> Result<Address, Failure> {
        time(&mut self.calls.malloc, || Plain.allocate_aligned(alignment, size))
    }

    #[inline]
    unsafe fn write(&self, block: Address, offset: usize) -> Result<(), Failure> {
        // SAFETY: the caller vouches for it.
        unsafe { Plain.write(block, offset) }
    }

    #[inline]
    unsafe fn fill(&self, block: Address, size: usize) -> Result<(), Failure> {
        // SAFETY: the caller vouches for it.
        unsafe { Plain.fill(block, size) }
    }

    #[inline]
    unsafe fn read_back(&self, block: Address, size: usize) -> Result<(), Failure> {
        // SAFETY: the caller vouches for it.
        unsafe { Plain.read_back(block, size) }
    }

    #[inline]
    unsafe fn resize(
        &mut self,
        block: Address,
        old_size: usize,
        new_size: usize,
    ) -> Result<Address, Failure> {
        // SAFETY: the caller vouches for it.
        time(&mut self.calls.realloc, || unsafe { Plain.resize(block, old_size, new_size) })
    }

    #[inline]
    unsafe fn free(&mut self, block: Address) -> Result<(), Failure> {
        // SAFETY: the caller vouches for it.
        time(&mut self.calls.free, || unsafe { Plain.free(block) })
    }

    fn address(block: Address) -> usize {
        Plain::address(block)
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        let mut recorded = RECORDED.lock().unwrap_or_else(PoisonError::into_inner);
        recorded.get_or_insert_default().merge(&self.calls);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_told_apart_and_those_not_called_are_left_out() {
        let (mut calls, mut others) = (Calls::default(), Calls::default());
        calls.malloc.time(|| ());
        others.malloc.time(|| ());
        others.free.time(|| ());
        calls.merge(&others);
        let figures = calls.figures();
        assert_eq!((figures["malloc_calls"], figures["free_calls"]), (2.0, 1.0));
        assert!(figures["malloc_p50_ns"] <= figures["malloc_max_ns"]);
        assert!(figures.keys().all(|name| !name.starts_with("realloc")), "{figures:?}");
        assert!(Calls::default().figures().is_empty());
    }
}
