//! **cache-thrash**: objects of different threads on one cache line, put there by the allocator.
//!
//! *Definition.* Each thread, bound to a core of its own, does `iterations` times { allocate an object
//! of `size` bytes; write all its bytes `writes` times, one by one; free it }. One operation is one
//! pass over an object. The work of each thread is fixed: the ideal is the time of a single one.
//! `shared_line_pairs` counts the pairs of threads whose last objects lay on a common cache line.
//!
//! *Source.* Berger et al., Hoard (2000): active false sharing, induced by an allocator that serves
//! two threads from one line. mimalloc-bench runs it with objects of 1 byte, 1000 iterations and
//! 2 000 000 writes.
//!
//! *Deviations.* The original divides the writes among the threads, and lets threads run where the system
//! likes. Ours are bound to physical cores, as in false-sharing, and more threads than cores are not
//! measurable.

use std::collections::BTreeMap;

use crate::definition::{Definition, Figures, Knob, MAX_COUNT, Settings, Stop};
use crate::harness::crew::Crew;
use crate::harness::failure::Failure;
use crate::harness::heap::Heap;
use crate::harness::topology::{cache_line_bytes, cores, not_measurable, shared_line_pairs};

/// cache-thrash.
pub const DEFINITION: Definition = Definition {
    name: "cache-thrash",
    tells: "Whether the allocator gives objects on one cache line to threads that run at the same time.",
    source: "Berger et al. 2000 (Hoard), active false sharing",
    operation: "a pass over an object: each of its bytes written once",
    knobs: KNOBS,
    max_threads: None,
    check: |_| Ok(()),
    run: on_heap!(run, false),
};

/// The parameters, which cache-scratch has as well.
pub(super) const KNOBS: &[Knob] = &[
    Knob {
        name: "size",
        meaning: "Size of each object.",
        unit: "bytes",
        default: 1,
        test: 1,
        range: 1..=1 << 20,
    },
    Knob {
        name: "iterations",
        meaning: "Objects that each thread allocates, one after the other.",
        unit: "count",
        default: 1_000,
        test: 20,
        range: 1..=1 << 40,
    },
    Knob {
        name: "writes",
        meaning: "Passes over each object.",
        unit: "operations",
        default: 400_000,
        test: 1_000,
        range: 1..=MAX_COUNT,
    },
];

struct Worker<H: Heap> {
    heap: H,
    inherited: Option<H::Block>,
    last_address: usize,
}

/// Both workloads: with `inherited`, the main thread allocates each worker's first object.
pub(super) fn run<H: Heap>(settings: &Settings, inherited: bool) -> Result<Figures, Stop> {
    let threads = settings.threads;
    let (size, writes) = (settings.size("size"), settings.count("writes"));
    let iterations = settings.count("iterations");
    let cores = cores()?;
    if let Some(reason) = not_measurable(threads as usize, cores.len()) {
        return Err(Stop::NotMeasurable(reason));
    }
    let mut main = H::of(threads);
    let mut worker = |owner| {
        let inherited = if inherited { Some(main.allocate(size)?) } else { None };
        Ok(Worker { heap: H::of(owner), inherited, last_address: 0 })
    };
    let workers = (0..threads).map(&mut worker).collect::<Result<Vec<_>, Failure>>()?;
    let (reading, workers) =
        Crew::default().pinned_to(cores).run(workers, |worker| worker.work(iterations, size, writes))?;
    let addresses: Vec<_> = workers.iter().map(|worker| worker.last_address).collect();
    let pairs = shared_line_pairs(&addresses, size, cache_line_bytes());
    Ok(Figures {
        reading,
        expected_operations: u64::from(threads) * iterations * writes,
        peak_live_bytes: Some(u64::from(threads) * size as u64),
        extra: BTreeMap::from([("shared_line_pairs".into(), pairs as f64)]),
    })
}

impl<H: Heap> Worker<H> {
    fn work(&mut self, iterations: u64, size: usize, writes: u64) -> Result<u64, Failure> {
        if let Some(block) = self.inherited.take() {
            // SAFETY: the main thread gave the object to this worker alone.
            unsafe { self.heap.free(block)? };
        }
        let mut done = 0;
        for _ in 0..iterations {
            let block = self.heap.allocate(size)?;
            for _ in 0..writes {
                for offset in 0..size {
                    // SAFETY: the object is live, has `size` bytes, and belongs to this worker alone.
                    unsafe { self.heap.write(block, offset)? };
                }
                done += 1;
            }
            self.last_address = H::address(block);
            // SAFETY: the object is live and no longer used.
            unsafe { self.heap.free(block)? };
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::heap::recording::Recording;

    #[test]
    fn one_object_is_live_at_a_time_and_an_inherited_one_goes_first() {
        for inherited in [false, true] {
            let mut heap = Recording::of(0);
            let inherited = inherited.then(|| heap.allocate(3).expect("allocated"));
            let objects = 10 + usize::from(inherited.is_some());
            let mut worker = Worker { heap, inherited, last_address: 0 };
            assert_eq!(worker.work(10, 3, 7), Ok(70));
            assert_eq!(worker.heap.sizes, vec![3; objects]);
            assert_eq!(worker.heap.freed, (0..objects).collect::<Vec<_>>());
            assert_eq!((worker.heap.peak_live_bytes, worker.heap.live_bytes), (3, 0));
            assert_ne!(worker.last_address, 0);
        }
    }
}
