//! **large-block**: large blocks, allocated, written and freed.
//!
//! *Definition.* Each thread: `iterations` times { malloc(`size`); memset all of it; free }. One
//! operation is one such cycle. The number of cycles is fixed for each thread, and so is its live
//! set, one block: while cores last, the ideal is a constant wall time.
//!
//! *Source.* Dementiev, "Is your memory management multi-core ready?" (2009): 200 KiB, 300 000
//! iterations (`--set iterations=300000`), 1, 2, 4 and 8 threads.
//!
//! *Controls.* `compute=1` computes on a local variable instead of writing to the block, as the
//! author did to tell the limit of the memory's bandwidth from that of the allocator. `prealloc=1`
//! allocates and writes one block for each thread beforehand, and the measured part only writes to it:
//! the limit that no allocator can pass. The control with glibc's threshold fixed at 128 KiB is a matter of the environment.
//!
//! *Deviations.* The seed of 2009 says "expensive computation" and no more; ours makes one dependent
//! multiplication for every 128 bytes of the block, about as long as memset takes in the cache.

use std::collections::BTreeMap;
use std::hint::black_box;

use crate::definition::{Definition, Figures, Knob, MAX_COUNT, MAX_SIZE, Settings, Stop};
use crate::harness::crew::Crew;
use crate::harness::failure::Failure;
use crate::harness::heap::Heap;

/// large-block.
pub const DEFINITION: Definition = Definition {
    name: "large-block",
    tells: "Whether large blocks scale with threads, or page faults and system calls eat up the cores.",
    source: "Dementiev 2009, \"Is your memory management multi-core ready?\"",
    operation: "a malloc, a memset of the block and a free",
    knobs: &[
        Knob {
            name: "size",
            meaning: "Size of each block.",
            unit: "bytes",
            default: 200 << 10,
            test: 200 << 10,
            range: 1..=MAX_SIZE,
        },
        Knob {
            name: "iterations",
            meaning: "Cycles that each thread does.",
            unit: "operations",
            default: 50_000,
            test: 200,
            range: 1..=MAX_COUNT,
        },
        Knob {
            name: "compute",
            meaning: "1: a computation on a local variable replaces memset.",
            unit: "switch",
            default: 0,
            test: 0,
            range: 0..=1,
        },
        Knob {
            name: "prealloc",
            meaning: "1: one block a thread, allocated beforehand, replaces malloc and free.",
            unit: "switch",
            default: 0,
            test: 0,
            range: 0..=1,
        },
    ],
    max_threads: None,
    check: |_| Ok(()),
    run: on_heap!(run),
};

/// A worker's heap, and its block where one is allocated beforehand.
struct Worker<H: Heap> {
    heap: H,
    kept: Option<H::Block>,
}

#[derive(Clone, Copy)]
struct Cycle {
    size: usize,
    compute: bool,
}

fn run<H: Heap>(settings: &Settings) -> Result<Figures, Stop> {
    let threads = settings.threads;
    let cycle = Cycle { size: settings.size("size"), compute: settings.switch("compute") };
    let iterations = settings.count("iterations");
    let prealloc = settings.switch("prealloc");
    let worker = |owner| {
        let mut heap = H::of(owner);
        let mut kept = None;
        if prealloc {
            let block = heap.allocate(cycle.size)?;
            // SAFETY: the block is live, has `size` bytes, and nobody else knows it.
            unsafe { heap.fill(block, cycle.size)? };
            kept = Some(block);
        }
        Ok(Worker { heap, kept })
    };
    let workers = (0..threads).map(worker).collect::<Result<Vec<_>, Failure>>()?;
    let (reading, workers) = Crew::default().run(workers, |worker| worker.all_cycles(cycle, iterations))?;
    for Worker { mut heap, kept } in workers {
        if let Some(block) = kept {
            // SAFETY: the block was allocated beforehand, and its worker has ended.
            unsafe { heap.free(block)? };
        }
    }
    Ok(Figures {
        expected_operations: u64::from(threads) * iterations,
        peak_live_bytes: Some(u64::from(threads) * cycle.size as u64),
        extra: BTreeMap::from([
            ("busy_cores".into(), reading.busy_cores()),
            ("kernel_share".into(), reading.kernel_share()),
        ]),
        reading,
    })
}

impl<H: Heap> Worker<H> {
    fn all_cycles(&mut self, cycle: Cycle, iterations: u64) -> Result<u64, Failure> {
        let mut done = 0;
        while done < iterations {
            match self.kept {
                Some(block) => cycle.work(&self.heap, block)?,
                None => {
                    let block = self.heap.allocate(cycle.size)?;
                    cycle.work(&self.heap, block)?;
                    // SAFETY: the block is live and nobody else knows it.
                    unsafe { self.heap.free(block)? };
                }
            }
            done += 1;
        }
        Ok(done)
    }
}

impl Cycle {
    fn work<H: Heap>(self, heap: &H, block: H::Block) -> Result<(), Failure> {
        if self.compute {
            compute(self.size / 128);
            return Ok(());
        }
        // SAFETY: the block is live, has `size` bytes, and belongs to this worker alone.
        unsafe { heap.fill(block, self.size) }
    }
}

pub(super) fn compute(steps: usize) {
    let mut value = black_box(1u64);
    for _ in 0..steps {
        value = value.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (value >> 29);
    }
    black_box(value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::heap::recording::Recording;

    fn cycles(kept: bool, compute: bool) -> (u64, Recording) {
        let mut heap = Recording::of(0);
        let kept = kept.then(|| heap.allocate(1 << 16).expect("allocated"));
        let mut worker = Worker { heap, kept };
        let done = worker.all_cycles(Cycle { size: 1 << 16, compute }, 10).expect("done");
        (done, worker.heap)
    }

    #[test]
    fn one_block_is_live_at_a_time_and_every_cycle_has_its_own() {
        for compute in [false, true] {
            let (done, heap) = cycles(false, compute);
            assert_eq!(done, 10);
            assert_eq!(heap.sizes, [1 << 16; 10]);
            assert_eq!((heap.peak_live_bytes, heap.live_bytes), (1 << 16, 0));
        }
    }

    #[test]
    fn a_block_allocated_beforehand_is_the_only_one() {
        let (done, heap) = cycles(true, false);
        assert_eq!((done, heap.sizes.len(), heap.freed.len()), (10, 1, 0));
    }
}
