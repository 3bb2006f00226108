//! **larson**: a server's connections: random sizes, random lifetimes, threads that come and go.
//!
//! *Definition.* P·c slots (c = `slots`), filled by the main thread with blocks of random sizes, the first two
//! bytes of each written; each thread owns c of them. A thread does c·`rounds` times { free a random slot's block; malloc a random
//! size in [`min`, `max`) into it; write the block's first two bytes }, then starts a successor that
//! inherits the slots, and exits. A chain is `generations` threads long: the total is fixed, c·rounds·
//! generations for each of the P chains. One operation is one replacement. Each chain's live set is the
//! same for any number of chains.
//!
//! *Source.* Larson & Krishnan, "Memory Allocation for Long-Running Server Applications" (1998), with
//! the parameters that mimalloc-bench runs: 8 to 1000 B, c = 5000, rounds = 100; and 7 to 8 B, c = 1000,
//! rounds = 10 000.
//!
//! *Deviations.* The original runs for a given time and counts what it got done; ours does a given
//! amount of work. The original's main thread shuffles the slots before it starts and replaces four times
//! as many blocks as there are; ours draws the sizes at random to begin with. The original's main thread
//! writes to no block: the first use of its page would be paid before the clock runs where an allocator
//! links free blocks through themselves, and while it runs where it does not.

use std::collections::BTreeMap;

use crate::definition::{Definition, Figures, Knob, Settings, Stop};
use crate::harness::crew::Crew;
use crate::harness::failure::Failure;
use crate::harness::heap::Heap;
use crate::harness::random::Random;
use crate::harness::slots::Slots;

/// larson.
pub const DEFINITION: Definition = Definition {
    name: "larson",
    tells: "How well a server's pattern is served: blocks of many sizes and lifetimes, freed by other threads \
            than allocated them, in threads that come and go.",
    source: "Larson & Krishnan 1998, with the parameters of mimalloc-bench and a fixed total of work",
    operation: "the replacement of a block: a free, a malloc and two bytes written",
    knobs: &[
        Knob {
            name: "min",
            meaning: "Least size of a block.",
            unit: "bytes",
            default: 8,
            test: 8,
            range: 2..=1 << 30,
        },
        Knob {
            name: "max",
            meaning: "Sizes are below this.",
            unit: "bytes",
            default: 1000,
            test: 1000,
            range: 3..=1 << 30,
        },
        Knob {
            name: "slots",
            meaning: "Blocks that each thread owns.",
            unit: "count",
            default: 5000,
            test: 500,
            range: 1..=1 << 32,
        },
        Knob {
            name: "rounds",
            meaning: "Replacements that each thread does before it exits, as a multiple of its slots.",
            unit: "count",
            default: 100,
            test: 5,
            range: 1..=1 << 20,
        },
        Knob {
            name: "generations",
            meaning: "Threads of each chain, one after the other.",
            unit: "count",
            default: 10,
            test: 3,
            range: 1..=1 << 20,
        },
    ],
    max_threads: None,
    check: |settings| match settings.count("min") < settings.count("max") {
        true => Ok(()),
        false => Err("min must be less than max".into()),
    },
    run: on_heap!(run),
};

/// The numbers that define a run.
#[derive(Debug, Clone, Copy)]
struct Plan {
    min: usize,
    max: usize,
    slots: usize,
    rounds: usize,
    generations: u64,
}

impl Plan {
    fn size(&self, random: &mut Random) -> usize {
        self.min + random.below(self.max - self.min)
    }

    fn replacements_per_thread(&self) -> u64 {
        self.slots as u64 * self.rounds as u64
    }
}

/// What the threads of a chain hand on.
struct Chain<H: Heap> {
    heap: H,
    random: Random,
    slots: Slots<H::Block>,
}

fn run<H: Heap>(settings: &Settings) -> Result<Figures, Stop> {
    let threads = settings.threads;
    let plan = Plan {
        min: settings.size("min"),
        max: settings.size("max"),
        slots: settings.size("slots"),
        rounds: settings.size("rounds"),
        generations: settings.count("generations"),
    };
    let chains = (0..threads).map(|owner| Chain::<H>::new(plan, owner)).collect::<Result<Vec<_>, _>>()?;
    let (reading, chains) =
        Crew::default().generations(plan.generations).run(chains, |chain| chain.generation(plan))?;
    for Chain { mut heap, slots, .. } in chains {
        for &block in slots.iter() {
            // SAFETY: the slots hold live blocks, each once, and their chain has ended.
            unsafe { heap.free(block)? };
        }
    }
    Ok(Figures {
        reading,
        expected_operations: u64::from(threads) * plan.generations * plan.replacements_per_thread(),
        peak_live_bytes: Some((0..threads).map(|owner| peak_live_bytes(plan, owner)).sum()),
        extra: BTreeMap::new(),
    })
}

impl<H: Heap> Chain<H> {
    fn new(plan: Plan, owner: u32) -> Result<Self, Failure> {
        let (mut heap, mut random) = (H::of(owner), Random::stream(owner.into()));
        let mut slots = Slots::with_capacity(plan.slots)?;
        for _ in 0..plan.slots {
            slots.push(Self::filled(&mut heap, plan.size(&mut random))?);
        }
        Ok(Self { heap, random, slots })
    }

    /// One thread's part.
    fn generation(&mut self, plan: Plan) -> Result<u64, Failure> {
        let mut done = 0;
        while done < plan.replacements_per_thread() {
            let slot = &mut self.slots[self.random.below(plan.slots)];
            // SAFETY: the slots hold live blocks, each once; this one is replaced at once.
            unsafe { self.heap.free(*slot)? };
            *slot = Self::filled(&mut self.heap, plan.size(&mut self.random))?;
            done += 1;
        }
        Ok(done)
    }

    /// A block whose first two bytes are written.
    fn filled(heap: &mut H, size: usize) -> Result<H::Block, Failure> {
        let block = heap.allocate(size)?;
        // SAFETY: the block is the caller's alone, and `min` is at least 2.
        unsafe { heap.write(block, 0)? };
        // SAFETY: as above.
        unsafe { heap.write(block, 1)? };
        Ok(block)
    }
}

/// The most bytes that a chain holds at any time, found by repeating its random choices without a
/// heap. The sum over the chains is what the process holds if all have their peaks at once.
fn peak_live_bytes(plan: Plan, owner: u32) -> u64 {
    let mut random = Random::stream(owner.into());
    let mut sizes: Vec<u32> = (0..plan.slots).map(|_| plan.size(&mut random) as u32).collect();
    let mut live = sizes.iter().map(|&size| u64::from(size)).sum::<u64>();
    let mut peak = live;
    for _ in 0..plan.generations * plan.replacements_per_thread() {
        let slot = &mut sizes[random.below(plan.slots)];
        let size = plan.size(&mut random) as u32;
        live = live - u64::from(*slot) + u64::from(size);
        *slot = size;
        peak = peak.max(live);
    }
    peak
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::heap::recording::Recording;

    const PLAN: Plan = Plan { min: 8, max: 1000, slots: 500, rounds: 20, generations: 2 };

    fn played(plan: Plan, owner: u32) -> Recording {
        let mut chain = Chain::<Recording>::new(plan, owner).expect("filled");
        for _ in 0..plan.generations {
            assert_eq!(chain.generation(plan), Ok(plan.replacements_per_thread()));
        }
        chain.heap
    }

    #[test]
    fn sizes_are_even_from_min_to_just_below_max() {
        let sizes = played(PLAN, 0).sizes;
        assert_eq!(sizes.len(), 500 + 2 * 20 * 500);
        assert_eq!((sizes.iter().min(), sizes.iter().max()), (Some(&8), Some(&999)));
        let mean = sizes.iter().sum::<usize>() as f64 / sizes.len() as f64;
        // The mean of 20 500 even draws has a standard error of 2: five of them.
        assert!((mean - 503.5).abs() < 10.0, "{mean}");
        assert_eq!(played(Plan { min: 7, max: 8, ..PLAN }, 0).sizes, [7; 20_500]);
    }

    #[test]
    fn the_live_set_is_one_block_a_slot_and_its_peak_is_foreseen() {
        for owner in 0..3 {
            let heap = played(PLAN, owner);
            assert_eq!(heap.sizes.len() - heap.freed.len(), PLAN.slots);
            assert_eq!(heap.peak_live_bytes as u64, peak_live_bytes(PLAN, owner));
        }
    }
}
