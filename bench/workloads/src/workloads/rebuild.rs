//! **rebuild**: a structure of many blocks that is built, read, taken down in another order, and built again.
//!
//! *Definition.* In each of `rounds` rounds each thread allocates `objects` blocks of `size` bytes and fills each; reads all of them `reads` times in the order of
//! allocation, comparing the content; and frees them, each at most `distance` - 1 places later than its own in that order, and some much earlier: at a `distance` of 1 in the order
//! of allocation, at one of `objects` in no order at all. Where `early` is not 0, the order begins with one block of so many, and the others follow. One operation is one block: a malloc, a memset, its reads and a free. Each thread's live set is the same for any
//! number of threads.
//!
//! *Source.* Ours. Trees, tables and queues are built in one order and taken down in another (the binary-trees programs of H. Boehm's GCBench and of the Computer
//! Language Benchmarks Game). How an allocator hands those blocks out again decides what the program pays to read its structures: in the order of their addresses,
//! several come with each page and cache line, and processors fetch the next before it is asked for.
//!
//! *Deviations.* Blocks are reached through a table outside the heap, not through each other, so that misses overlap: a list that is followed pays more. The order of
//! freeing is drawn once for all rounds, outside of the measured part.

use std::collections::BTreeMap;

use crate::definition::{Definition, Figures, Knob, MAX_COUNT, Settings, Stop};
use crate::harness::crew::Crew;
use crate::harness::failure::Failure;
use crate::harness::heap::Heap;
use crate::harness::random::Random;
use crate::harness::slots::Slots;

/// rebuild.
pub const DEFINITION: Definition = Definition {
    name: "rebuild",
    tells: "What a program pays to read its structures, once it has built and freed them a few times.",
    source: "ours; trees that are built, walked and freed, after GCBench (Boehm)",
    operation: "a block: a malloc, a memset, its reads and a free",
    knobs: &[
        Knob {
            name: "size",
            meaning: "Bytes of a block.",
            unit: "bytes",
            default: 64,
            test: 48,
            range: 1..=1 << 20,
        },
        Knob {
            name: "objects",
            meaning: "Blocks that each thread holds.",
            unit: "blocks",
            default: 100_000,
            test: 500,
            range: 1..=1 << 28,
        },
        Knob {
            name: "reads",
            meaning: "How often all blocks are read in each round.",
            unit: "count",
            default: 4,
            test: 2,
            range: 0..=1_000_000,
        },
        Knob {
            name: "distance",
            meaning: "Within how many places after its own in the order of allocation a block is freed; 1: in that order.",
            unit: "blocks",
            default: 1 << 28,
            test: 50,
            range: 1..=1 << 28,
        },
        Knob {
            name: "early",
            meaning: "Of so many blocks one is freed before all others; 0: none is.",
            unit: "blocks",
            default: 0,
            test: 7,
            range: 0..=1 << 28,
        },
        Knob {
            name: "rounds",
            meaning: "How often each thread builds and frees.",
            unit: "count",
            default: 50,
            test: 3,
            range: 1..=MAX_COUNT,
        },
    ],
    max_threads: None,
    check: |_| Ok(()),
    run: on_heap!(run),
};

struct Worker<H: Heap> {
    heap: H,
    objects: Slots<H::Block>,
    /// In which order they are freed.
    order: Slots<u32>,
}

fn run<H: Heap>(settings: &Settings) -> Result<Figures, Stop> {
    let (size, objects) = (settings.size("size"), settings.size("objects"));
    let (rounds, reads) = (settings.count("rounds"), settings.count("reads"));
    let (distance, early) = (settings.size("distance"), settings.size("early"));
    let worker = |owner| Worker::<H>::new(owner, objects, distance, early);
    let workers = (0..settings.threads).map(worker).collect::<Result<Vec<_>, Failure>>()?;
    let (reading, _) = Crew::default().run(workers, |worker| worker.all_rounds(rounds, reads, size))?;
    let held = u64::from(settings.threads) * objects as u64;
    Ok(Figures {
        reading,
        expected_operations: rounds * held,
        peak_live_bytes: Some(held * size as u64),
        extra: BTreeMap::new(),
    })
}

impl<H: Heap> Worker<H> {
    fn new(owner: u32, objects: usize, distance: usize, early: usize) -> Result<Self, Failure> {
        let mut order = Slots::with_capacity(objects)?;
        let is_early = |object: &usize| early > 0 && object % early == early - 1;
        (0..objects).filter(is_early).for_each(|object| order.push(object as u32));
        (0..objects).filter(|object| !is_early(object)).for_each(|object| order.push(object as u32));
        let mut random = Random::stream(u64::from(owner));
        for place in (1..objects).rev() {
            order.swap(place, place - random.below(distance.min(place + 1)));
        }
        Ok(Self { heap: H::of(owner), objects: Slots::with_capacity(objects)?, order })
    }

    fn all_rounds(&mut self, rounds: u64, reads: u64, size: usize) -> Result<u64, Failure> {
        let mut done = 0;
        for _ in 0..rounds {
            for _ in 0..self.objects.capacity() {
                let object = self.heap.allocate(size)?;
                // SAFETY: fresh, of that size, and this worker's alone.
                unsafe { self.heap.fill(object, size)? };
                self.objects.push(object);
            }
            for _ in 0..reads {
                for &object in self.objects.iter() {
                    // SAFETY: filled above, and freed only below.
                    unsafe { self.heap.read_back(object, size)? };
                }
            }
            for &object in self.order.iter() {
                // SAFETY: the order names each object of this round once, and they are not read again.
                unsafe { self.heap.free(self.objects[object as usize])? };
                done += 1;
            }
            self.objects.clear();
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::heap::recording::Recording;

    /// What one thread frees, in that order, of two rounds of a hundred blocks.
    fn freed(distance: usize, early: usize) -> Vec<usize> {
        let mut worker = Worker::<Recording>::new(0, 100, distance, early).expect("mapped");
        assert_eq!(worker.all_rounds(2, 3, 64), Ok(200));
        let Recording { sizes, freed, live_bytes, peak_live_bytes } = worker.heap;
        assert_eq!(sizes, [64; 200]);
        assert_eq!((peak_live_bytes, live_bytes), (6400, 0));
        freed
    }

    #[test]
    fn each_block_is_freed_once_in_each_round() {
        for (distance, early) in [(1, 0), (10, 0), (1 << 28, 0), (1, 1), (1, 7), (10, 1000)] {
            let mut freed = freed(distance, early);
            freed.sort_unstable();
            assert_eq!(freed, (0..200).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_distance_of_one_is_the_order_of_allocation_and_a_large_one_is_none() {
        assert_eq!(freed(1, 0), (0..200).collect::<Vec<_>>());
        let neighbours = |distance| {
            let freed = freed(distance, 0);
            freed.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) == 1).count()
        };
        assert!(neighbours(1 << 28) < 20, "{}", neighbours(1 << 28));
        let far = freed(10, 0).iter().enumerate().filter(|&(place, &object)| object + 10 < place).count();
        assert_eq!(far, 0, "no block is freed more than nine places late");
    }

    #[test]
    fn early_ones_come_first() {
        let freed = freed(1, 40);
        assert_eq!(freed[..5], [39, 79, 0, 1, 2]);
        assert_eq!(freed[97..103], [97, 98, 99, 139, 179, 100]);
    }
}
