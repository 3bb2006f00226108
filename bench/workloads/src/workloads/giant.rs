//! **giant**: a few very large blocks, each replaced by another before it is freed.
//!
//! *Definition.* Each thread has 20 slots, empty at first. It does `replacements` times { allocate a
//! block of `min_kib` to `max_kib` KiB (5 to 25 MiB), drawn evenly; touch the first `touched` per cent of
//! its pages; free the block of a random slot; put the new one there }. At its end it frees all. One
//! operation is one replacement. Each thread's live set is the same for any number of threads.
//!
//! *Source.* malloc-large of mimalloc-bench: 20 slots, 2000 replacements.
//!
//! *Deviations.* The original writes all bytes of each block, which takes so much longer than the
//! allocator does that nothing else is seen (`--set touched=100` does so with the pages).

use std::collections::BTreeMap;

use crate::definition::{Definition, Figures, Knob, MAX_COUNT, Settings, Stop};
use crate::harness::crew::Crew;
use crate::harness::failure::Failure;
use crate::harness::heap::Heap;
use crate::harness::random::Random;
use crate::harness::slots::Slots;
use crate::harness::tally::Tally;

/// giant.
pub const DEFINITION: Definition = Definition {
    name: "giant",
    tells: "What blocks of many megabytes cost, in time and in memory beyond what is live.",
    source: "malloc-large of mimalloc-bench",
    operation: "the replacement of a block: a malloc, some pages touched and a free",
    knobs: &[
        Knob {
            name: "replacements",
            meaning: "Replacements that each thread does.",
            unit: "operations",
            default: 2_000,
            test: 60,
            range: 1..=MAX_COUNT,
        },
        Knob {
            name: "min_kib",
            meaning: "Least size of a block.",
            unit: "KiB",
            default: 5 << 10,
            test: 256,
            range: 1..=1 << 30,
        },
        Knob {
            name: "max_kib",
            meaning: "Largest size of a block.",
            unit: "KiB",
            default: 25 << 10,
            test: 512,
            range: 1..=1 << 30,
        },
        Knob {
            name: "touched",
            meaning: "Share of each block's pages that is written to.",
            unit: "per cent",
            default: 5,
            test: 1,
            range: 0..=100,
        },
    ],
    max_threads: None,
    check: |settings| match settings.count("min_kib") <= settings.count("max_kib") {
        true => Ok(()),
        false => Err("min_kib must not be more than max_kib".into()),
    },
    run: on_heap!(run),
};

/// Slots of each thread.
const SLOTS: usize = 20;

/// The numbers that define a run.
#[derive(Debug, Clone, Copy)]
struct Plan {
    min: usize,
    max: usize,
    replacements: u64,
    touched: usize,
}

struct Worker<H: Heap> {
    heap: H,
    random: Random,
    slots: Slots<Option<H::Block>>,
}

fn run<H: Heap>(settings: &Settings) -> Result<Figures, Stop> {
    let threads = settings.threads;
    let plan = Plan {
        min: settings.size("min_kib") << 10,
        max: settings.size("max_kib") << 10,
        replacements: settings.count("replacements"),
        touched: settings.size("touched"),
    };
    let mut peak_live_bytes = 0;
    for owner in 0..threads {
        let mut tally = Worker::<Tally>::new(owner)?;
        tally.work(plan)?;
        peak_live_bytes += tally.heap.peak_live_bytes;
    }
    let workers = (0..threads).map(Worker::<H>::new).collect::<Result<Vec<_>, _>>()?;
    let (reading, _) = Crew::default().run(workers, |worker| worker.work(plan))?;
    Ok(Figures {
        expected_operations: u64::from(threads) * plan.replacements,
        peak_live_bytes: Some(peak_live_bytes),
        extra: BTreeMap::from([("kernel_share".into(), reading.kernel_share())]),
        reading,
    })
}

impl<H: Heap> Worker<H> {
    fn new(owner: u32) -> Result<Self, Failure> {
        let slots = Slots::filled(SLOTS, None)?;
        Ok(Self { heap: H::of(owner), random: Random::stream(owner.into()), slots })
    }

    fn work(&mut self, plan: Plan) -> Result<u64, Failure> {
        let mut done = 0;
        while done < plan.replacements {
            let size = self.random.between(plan.min, plan.max);
            let block = self.heap.allocate(size)?;
            // SAFETY: fresh, of at least this size, and this worker's alone.
            unsafe { self.heap.touch(block, size / 100 * plan.touched)? };
            let slot = self.random.below(SLOTS);
            if let Some(old) = self.slots[slot].replace(block) {
                // SAFETY: the slots hold live blocks, each once, and this one no longer.
                unsafe { self.heap.free(old)? };
            }
            done += 1;
        }
        for slot in self.slots.iter_mut() {
            if let Some(block) = slot.take() {
                // SAFETY: as above.
                unsafe { self.heap.free(block)? };
            }
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::heap::recording::Recording;

    const PLAN: Plan = Plan { min: 5 << 20, max: 25 << 20, replacements: 1_000, touched: 0 };

    #[test]
    fn sizes_are_even_from_5_to_25_mib_and_the_new_block_comes_before_the_old_one_goes() {
        let mut worker = Worker::<Recording>::new(0).expect("mapped");
        assert_eq!(worker.work(PLAN), Ok(1_000));
        let heap = worker.heap;
        assert!(heap.sizes.iter().all(|size| (5 << 20..=25 << 20).contains(size)));
        let mean = heap.sizes.iter().sum::<usize>() as f64 / 1000.0 / f64::from(1 << 20);
        // The standard error is 0.18 MiB: five of them.
        assert!((mean - 15.0).abs() < 0.9, "{mean}");
        assert_eq!(heap.live_bytes, 0);
        let mut tally = Worker::<Tally>::new(0).expect("mapped");
        tally.work(PLAN).expect("counted");
        assert_eq!(heap.peak_live_bytes as u64, tally.heap.peak_live_bytes);
        // At most 21 blocks at once: the slots' and the new one.
        assert!(heap.peak_live_bytes <= 21 * (25 << 20));
    }
}
