//! **buffers**: many large blocks of which the first bytes are used most.
//!
//! *Definition.* Each thread holds `blocks` blocks of sizes drawn evenly from `min` to `max` bytes. In each of `rounds` rounds it replaces one of them, in turn, and writes the
//! first byte of all, in the order of their slots. One operation is one such write. The sizes, and with them each thread's live set, are the same for any number of threads
//! and every allocator.
//!
//! *Source.* Ours. Buffers of connections, pages of a database's pool and frames begin with a header that is looked at far more often than all else. Where blocks begin at
//! multiples of a power of two, their headers lie in the same few sets of the processor's caches: a dozen of them are more than a set of the first level holds. Allocators
//! have long moved the beginnings apart (J. Bonwick's colouring, "The Slab Allocator", 1994).
//!
//! *Deviations.* None.

use std::collections::BTreeMap;

use crate::definition::{Definition, Figures, Knob, MAX_COUNT, Settings, Stop};
use crate::harness::crew::Crew;
use crate::harness::failure::Failure;
use crate::harness::heap::Heap;
use crate::harness::random::Random;
use crate::harness::slots::Slots;
use crate::harness::tally::Tally;

/// buffers.
pub const DEFINITION: Definition = Definition {
    name: "buffers",
    tells: "Whether the first bytes of many large blocks get in each other's way in the processor's caches.",
    source: "ours, after Bonwick's cache colouring, 1994",
    operation: "a write of a block's first byte; now and then a block is replaced",
    knobs: &[
        Knob {
            name: "blocks",
            meaning: "Blocks that each thread holds.",
            unit: "count",
            default: 100,
            test: 20,
            range: 1..=1 << 24,
        },
        Knob {
            name: "min",
            meaning: "Least size of a block.",
            unit: "bytes",
            default: 40_000,
            test: 40_000,
            range: 1..=1 << 30,
        },
        Knob {
            name: "max",
            meaning: "Largest size of a block.",
            unit: "bytes",
            default: 80_000,
            test: 80_000,
            range: 1..=1 << 30,
        },
        Knob {
            name: "rounds",
            meaning: "Times that each thread replaces a block and writes to all.",
            unit: "count",
            default: 300_000,
            test: 50,
            range: 1..=MAX_COUNT,
        },
    ],
    max_threads: None,
    check: |settings| match settings.count("min") <= settings.count("max") {
        true => Ok(()),
        false => Err("min must not be more than max".into()),
    },
    run: on_heap!(run),
};

struct Worker<H: Heap> {
    heap: H,
    random: Random,
    /// Least and largest size.
    sizes: (usize, usize),
    blocks: Slots<H::Block>,
}

fn run<H: Heap>(settings: &Settings) -> Result<Figures, Stop> {
    let (blocks, rounds) = (settings.size("blocks"), settings.count("rounds"));
    let sizes = (settings.size("min"), settings.size("max"));
    let mut peak_live_bytes = 0;
    for owner in 0..settings.threads {
        let mut tally = Worker::<Tally>::new(owner, blocks, sizes)?;
        tally.work(rounds)?;
        peak_live_bytes += tally.heap.peak_live_bytes;
    }
    let worker = |owner| Worker::<H>::new(owner, blocks, sizes);
    let workers = (0..settings.threads).map(worker).collect::<Result<Vec<_>, Failure>>()?;
    let (reading, _) = Crew::default().run(workers, |worker| worker.work(rounds))?;
    Ok(Figures {
        reading,
        expected_operations: u64::from(settings.threads) * blocks as u64 * rounds,
        peak_live_bytes: Some(peak_live_bytes),
        extra: BTreeMap::new(),
    })
}

impl<H: Heap> Worker<H> {
    fn new(owner: u32, blocks: usize, sizes: (usize, usize)) -> Result<Self, Failure> {
        let blocks = Slots::with_capacity(blocks)?;
        Ok(Self { heap: H::of(owner), random: Random::stream(owner.into()), sizes, blocks })
    }

    fn allocate(&mut self) -> Result<H::Block, Failure> {
        let (min, max) = self.sizes;
        self.heap.allocate(self.random.between(min, max))
    }

    fn work(&mut self, rounds: u64) -> Result<u64, Failure> {
        for _ in 0..self.blocks.capacity() {
            let block = self.allocate()?;
            self.blocks.push(block);
        }
        let (mut done, mut next) = (0, 0);
        for _ in 0..rounds {
            let fresh = self.allocate()?;
            let old = std::mem::replace(&mut self.blocks[next], fresh);
            // SAFETY: the block is live, and no slot holds it any more.
            unsafe { self.heap.free(old)? };
            next = (next + 1) % self.blocks.len();
            for &block in self.blocks.iter() {
                // SAFETY: the block is live, has a byte at least, and is this worker's alone.
                unsafe { self.heap.write(block, 0)? };
                done += 1;
            }
        }
        for &block in self.blocks.iter() {
            // SAFETY: the block is live, and is not used any more.
            unsafe { self.heap.free(block)? };
        }
        self.blocks.clear();
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::heap::recording::Recording;

    #[test]
    fn every_round_replaces_one_block_in_turn_and_writes_to_all() {
        let mut worker = Worker::<Recording>::new(0, 3, (40_000, 50_000)).expect("mapped");
        assert_eq!(worker.work(4), Ok(12));
        let Recording { sizes, freed, live_bytes, .. } = worker.heap;
        assert!(sizes.len() == 7 && sizes.iter().all(|size| (40_000..=50_000).contains(size)));
        assert_eq!((freed, live_bytes), (vec![0, 1, 2, 3, 6, 4, 5], 0));
    }
}
