//! **mstress**: waves of threads that allocate, swap blocks with each other, and check their content.
//!
//! *Definition.* As many chains as threads, each of `waves` threads, one after the other. A thread has a
//! table of `slots` slots, empty at first. In each of its `steps` steps it allocates a block and fills
//! it; in half of them, chosen at random, it swaps the block against what a random one of `shared` slots
//! holds that all threads have in common; what it has now goes into a random slot of its table, and what
//! was there is read, compared with what was written, and freed. At its end it frees its table the same
//! way. Of a thousand blocks, 949 are small (8 to 512 B), 50 medium (1 to 32 KiB) and one is huge (64 KiB
//! to 1 MiB). One operation is one step.
//!
//! *Source.* mimalloc's stress test by Leijen (mstress in mimalloc-bench: `mstress N 50 25`): waves of
//! threads, blocks exchanged through 1000 shared slots, some of which outlive a wave, content verified.
//!
//! *Deviations.* The numbers are ours. The original's blocks are powers of two from 8 B, to 128 B for most
//! and to 512 B for those that it keeps to a thread's end, a fiftieth of them a hundred times larger and
//! more; a quarter of its steps exchange a block; some threads do up to eight times the work of others;
//! after each wave all threads are waited for, and half of the shared slots emptied. Ours do equal work,
//! the waves of different chains follow each other without waiting, and shared slots are emptied at
//! the end. A shared slot is behind a lock of its own, where the original exchanges a pointer. How many bytes
//! are live at once depends on who swaps what when, and is not reported.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::definition::{Definition, Figures, Knob, Settings, Stop};
use crate::harness::crew::Crew;
use crate::harness::failure::Failure;
use crate::harness::heap::Heap;
use crate::harness::random::Random;
use crate::harness::slots::Slots;

/// mstress.
pub const DEFINITION: Definition = Definition {
    name: "mstress",
    tells: "Whether blocks of all sizes survive threads that come and go and swap what they hold, and how \
            fast that is.",
    source: "mimalloc's stress test (Leijen), as in mimalloc-bench, with a fixed total of work",
    operation: "a step: a block allocated, filled, perhaps swapped; another read and freed",
    knobs: &[
        Knob {
            name: "slots",
            meaning: "Slots of each thread's table.",
            unit: "count",
            default: 1_000,
            test: 200,
            range: 1..=1 << 32,
        },
        Knob {
            name: "shared",
            meaning: "Slots that all threads share.",
            unit: "count",
            default: 1_000,
            test: 100,
            range: 1..=1 << 24,
        },
        Knob {
            name: "waves",
            meaning: "Threads of each chain, one after the other.",
            unit: "count",
            default: 20,
            test: 3,
            range: 1..=1 << 20,
        },
        Knob {
            name: "steps",
            meaning: "Steps of each thread.",
            unit: "operations",
            default: 20_000,
            test: 1_000,
            range: 1..=1 << 40,
        },
    ],
    max_threads: None,
    check: |_| Ok(()),
    run: on_heap!(run),
};

/// A block and its size.
type Item<H> = (<H as Heap>::Block, usize);

/// The slots that all threads share.
type Shared<H> = [Mutex<Option<Item<H>>>];

struct Chain<H: Heap> {
    heap: H,
    random: Random,
    table: Slots<Option<Item<H>>>,
}

fn run<H: Heap>(settings: &Settings) -> Result<Figures, Stop> {
    let threads = settings.threads;
    let (waves, steps) = (settings.count("waves"), settings.count("steps"));
    let shared: Vec<_> = (0..settings.size("shared")).map(|_| Mutex::new(None)).collect();
    let chain = |owner| Chain::<H>::new(owner, settings.size("slots"));
    let chains = (0..threads).map(chain).collect::<Result<Vec<_>, _>>()?;
    let (reading, chains) =
        Crew::default().generations(waves).run(chains, |chain| chain.wave(&shared, steps))?;
    if let Some(mut chain) = chains.into_iter().next() {
        for slot in shared {
            chain.check_and_free(slot.into_inner().unwrap_or_else(PoisonError::into_inner))?;
        }
    }
    Ok(Figures {
        reading,
        expected_operations: u64::from(threads) * waves * steps,
        peak_live_bytes: None,
        extra: BTreeMap::new(),
    })
}

fn size(random: &mut Random) -> usize {
    match random.below(1000) {
        0 => random.between(64 << 10, 1 << 20),
        1..=50 => random.between(1 << 10, 32 << 10),
        _ => random.between(8, 512),
    }
}

impl<H: Heap> Chain<H> {
    fn new(owner: u32, slots: usize) -> Result<Self, Failure> {
        let table = Slots::filled(slots, None)?;
        Ok(Self { heap: H::of(owner), random: Random::stream(owner.into()), table })
    }

    /// One thread's part.
    fn wave(&mut self, shared: &Shared<H>, steps: u64) -> Result<u64, Failure> {
        let mut done = 0;
        while done < steps {
            let size = size(&mut self.random);
            let block = self.heap.allocate(size)?;
            // SAFETY: fresh, of this size, and this worker's alone.
            unsafe { self.heap.fill(block, size)? };
            let mut item = Some((block, size));
            if self.random.below(2) == 0 {
                let slot = &shared[self.random.below(shared.len())];
                std::mem::swap(&mut item, &mut slot.lock().unwrap_or_else(PoisonError::into_inner));
            }
            if let Some(item) = item {
                let slot = self.random.below(self.table.len());
                let replaced = self.table[slot].replace(item);
                self.check_and_free(replaced)?;
            }
            done += 1;
        }
        for slot in 0..self.table.len() {
            let item = self.table[slot].take();
            self.check_and_free(item)?;
        }
        Ok(done)
    }

    fn check_and_free(&mut self, item: Option<Item<H>>) -> Result<(), Failure> {
        let Some((block, size)) = item else { return Ok(()) };
        // SAFETY: the block is live, was filled with `size` bytes, and is this worker's alone.
        unsafe { self.heap.read_back(block, size)? };
        // SAFETY: as above; it was taken out of the only place that knew it.
        unsafe { self.heap.free(block) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::heap::recording::Recording;

    #[test]
    fn one_block_in_a_thousand_is_huge_and_fifty_are_medium() {
        let mut random = Random::stream(0);
        let sizes: Vec<_> = (0..1_000_000).map(|_| size(&mut random)).collect();
        let share = |low, high| sizes.iter().filter(|size| (low..=high).contains(*size)).count() as f64 / 1e6;
        // Five standard errors.
        assert!((share(8, 512) - 0.949).abs() < 0.0012);
        assert!((share(1 << 10, 32 << 10) - 0.05).abs() < 0.0011);
        assert!((share(64 << 10, 1 << 20) - 0.001).abs() < 0.000_16);
    }

    #[test]
    fn a_wave_leaves_only_what_the_shared_slots_hold() {
        let shared: Vec<_> = (0..50).map(|_| Mutex::new(None)).collect();
        let mut chain = Chain::<Recording>::new(0, 100).expect("mapped");
        assert_eq!(chain.wave(&shared, 2_000), Ok(2_000));
        assert_eq!(chain.heap.sizes.len(), 2_000);
        assert_eq!(chain.heap.sizes.len() - chain.heap.freed.len(), 50);
        for slot in shared {
            chain.check_and_free(slot.into_inner().expect("no panic")).expect("intact");
        }
        assert_eq!(chain.heap.live_bytes, 0);
    }
}
