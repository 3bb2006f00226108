//! **synthetic**: a program with the traits that its parameters give it.
//!
//! *Definition.* As many chains as threads, each of `generations` threads, one after the other, which have a
//! table of `slots` slots in common, empty at first. A thread takes `steps` steps, in each of which it allocates
//! a block for a slot and frees what was there, in one of five `order`s:
//!
//! | `order` | slots |
//! |--:|---|
//! | 0 | at random |
//! | 1 | in their order, again and again |
//! | 2 | bursts: up to a quarter of the slots in their order, drawn evenly, then freed in the other direction |
//! | 3 | nine of ten blocks live in no slot: up to eight are allocated and then freed; each tenth takes a slot at random |
//! | 4 | all in their order, after which nine of ten are freed, in another order |
//!
//! Of `resized` per cent of the steps of order 0 the block in the slot gets another size by `realloc` instead. Sizes
//! are drawn evenly in their logarithm from `min` to `max`; each of the `phases` parts of a thread's steps has
//! sizes of its own: as drawn, five eighths, three halves, and so on by turns. `touched` bytes are written: 0 the first, 1
//! the first and the last, 2 all; of a block that got another size the last. Of `given` per cent of the blocks that are to be freed
//! the thread frees another one: it swaps them with what a random one of 4096 places holds that all threads have in
//! common. At the end everything is freed. One operation is one step.
//!
//! *Source.* Ours: random programs, as compilers and allocators are tested with, to find what no benchmark shows.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::definition::{Definition, Figures, Knob, MAX_SIZE, Settings, Stop};
use crate::harness::crew::Crew;
use crate::harness::failure::Failure;
use crate::harness::heap::Heap;
use crate::harness::random::Random;
use crate::harness::slots::Slots;
use crate::harness::tally::Tally;

/// synthetic.
pub const DEFINITION: Definition = Definition {
    name: "synthetic",
    tells: "How a program with given traits is served: sizes, lifetimes, who frees, what is touched.",
    source: "ours; random programs, to find what no benchmark shows",
    operation: "a step: a block allocated, or given another size, and another freed",
    knobs: &[
        knob("min", "Least size of a block.", "bytes", [16, 16], MAX_SIZE),
        knob("max", "Largest size of a block.", "bytes", [16_384, 4096], MAX_SIZE),
        knob("slots", "Slots of each chain's table.", "count", [2000, 100], 1 << 32),
        knob("steps", "Steps of each thread.", "operations", [1_000_000, 2000], 1 << 40),
        trait_of(
            "order",
            "Which slots: 0 random, 1 in order, 2 bursts, 3 mostly none, 4 up and down.",
            "choice",
            [0, 0],
            4,
        ),
        trait_of("given", "Blocks that other threads free.", "per cent", [0, 20], 100),
        trait_of("resized", "Steps that are a realloc, if the order is random.", "per cent", [0, 10], 100),
        trait_of(
            "touched",
            "What is written: 0 the first byte, 1 that and the last, 2 all.",
            "choice",
            [1, 1],
            2,
        ),
        knob("phases", "Parts of a thread's steps, with sizes of their own.", "count", [1, 2], 1 << 20),
        knob("generations", "Threads of each chain, one after the other.", "count", [1, 2], 1 << 20),
    ],
    max_threads: None,
    check: |settings| {
        if settings.count("min") > settings.count("max") {
            return Err("min must not be more than max".into());
        }
        match settings.count("order") > 0 && settings.count("resized") > 0 {
            true => Err("blocks get another size in the random order only: set order or resized to 0".into()),
            false => Ok(()),
        }
    },
    run: on_heap!(run),
};

/// A parameter that is at least 1.
const fn knob(
    name: &'static str,
    meaning: &'static str,
    unit: &'static str,
    [default, test]: [u64; 2],
    most: u64,
) -> Knob {
    Knob { name, meaning, unit, default, test, range: 1..=most }
}

/// One that may be 0.
const fn trait_of(
    name: &'static str,
    meaning: &'static str,
    unit: &'static str,
    [default, test]: [u64; 2],
    most: u64,
) -> Knob {
    Knob { name, meaning, unit, default, test, range: 0..=most }
}

/// Places that all threads have in common.
const PLACES: usize = 4096;
/// Sizes that are drawn from.
const SIZES: usize = 4096;
/// Blocks that live in no slot at the same time, at most.
const SHORT_LIVED: usize = 8;

/// The numbers that define a run.
#[derive(Debug, Clone, Copy)]
struct Plan {
    steps: usize,
    order: u64,
    given: usize,
    resized: usize,
    touched: u64,
    phases: usize,
}

/// A block and its size.
type Item<H> = (<H as Heap>::Block, usize);

/// The places that all threads have in common.
type Places<H> = [Mutex<Option<Item<H>>>];

struct Chain<H: Heap> {
    heap: H,
    random: Random,
    sizes: Slots<usize>,
    table: Slots<Option<Item<H>>>,
    /// Steps of the thread so far, and where it is in its table.
    done: usize,
    at: usize,
}

fn run<H: Heap>(settings: &Settings) -> Result<Figures, Stop> {
    let (threads, generations) = (settings.threads, settings.count("generations"));
    let plan = Plan {
        steps: settings.size("steps"),
        order: settings.count("order"),
        given: settings.size("given"),
        resized: settings.size("resized"),
        touched: settings.count("touched"),
        phases: settings.size("phases"),
    };
    let (sizes, slots) = ((settings.size("min"), settings.size("max")), settings.size("slots"));
    let mut peak_live_bytes = (plan.given == 0).then_some(0);
    if let Some(peak) = &mut peak_live_bytes {
        for owner in 0..threads {
            let mut tally = Chain::<Tally>::new(owner, sizes, slots)?;
            for _ in 0..generations {
                tally.thread(plan, &[])?;
            }
            *peak += tally.heap.peak_live_bytes;
        }
    }
    let places: Vec<_> = (0..PLACES).map(|_| Mutex::new(None)).collect();
    let chain = |owner| Chain::<H>::new(owner, sizes, slots);
    let chains = (0..threads).map(chain).collect::<Result<Vec<_>, _>>()?;
    let (reading, chains) =
        Crew::default().generations(generations).run(chains, |chain| chain.thread(plan, &places))?;
    let mut places =
        places.into_iter().map(|place| place.into_inner().unwrap_or_else(PoisonError::into_inner));
    for mut chain in chains {
        for slot in 0..slots {
            let item = chain.table[slot].take();
            chain.free(item)?;
        }
        places.try_for_each(|item| chain.free(item))?;
    }
    Ok(Figures {
        reading,
        expected_operations: u64::from(threads) * generations * plan.steps as u64,
        peak_live_bytes,
        extra: BTreeMap::new(),
    })
}

impl<H: Heap> Chain<H> {
    fn new(owner: u32, (min, max): (usize, usize), slots: usize) -> Result<Self, Failure> {
        let mut random = Random::stream(owner.into());
        let mut sizes = Slots::filled(SIZES, 0)?;
        for size in sizes.iter_mut() {
            let drawn = min as f64 * (max as f64 / min as f64).powf(random.unit());
            *size = (drawn as usize).clamp(min, max);
        }
        Ok(Self { heap: H::of(owner), random, sizes, table: Slots::filled(slots, None)?, done: 0, at: 0 })
    }

    /// One thread's part.
    fn thread(&mut self, plan: Plan, places: &Places<H>) -> Result<u64, Failure> {
        self.done = 0;
        while self.done < plan.steps {
            match plan.order {
                0 => {
                    let slot = self.random.below(self.table.len());
                    self.replace_or_resize(slot, plan, places)?;
                }
                1 => self.replace_next(plan, places)?,
                2 => self.burst(plan, places)?,
                3 => self.short_lived(plan, places)?,
                _ => self.up_and_down(plan, places)?,
            }
        }
        Ok(self.done as u64)
    }

    fn replace_or_resize(&mut self, slot: usize, plan: Plan, places: &Places<H>) -> Result<(), Failure> {
        if plan.resized > 0
            && self.random.below(100) < plan.resized
            && let Some((block, old)) = self.table[slot].take()
        {
            let size = self.size(plan);
            self.done += 1;
            // SAFETY: the slots hold live blocks of the sizes beside them, each once, and this one no longer.
            let block = unsafe { self.heap.resize(block, old, size)? };
            // SAFETY: the block is this worker's alone, and has so many bytes.
            unsafe { self.heap.write(block, size - 1)? };
            self.table[slot] = Some((block, size));
            return Ok(());
        }
        self.replace(slot, plan, places)
    }

    fn replace_next(&mut self, plan: Plan, places: &Places<H>) -> Result<(), Failure> {
        let slot = self.at % self.table.len();
        self.at = slot + 1;
        self.replace(slot, plan, places)
    }

    fn burst(&mut self, plan: Plan, places: &Places<H>) -> Result<(), Failure> {
        let blocks = 1 + self.random.below(self.table.len() / 4 + 1);
        let blocks = blocks.min(self.table.len()).min(plan.steps - self.done);
        for slot in 0..blocks {
            self.replace(slot, plan, places)?;
        }
        for slot in (0..blocks).rev() {
            self.discard(slot, plan, places)?;
        }
        Ok(())
    }

    fn short_lived(&mut self, plan: Plan, places: &Places<H>) -> Result<(), Failure> {
        if self.random.below(10) == 0 {
            let slot = self.random.below(self.table.len());
            return self.replace(slot, plan, places);
        }
        let mut blocks = [None; SHORT_LIVED];
        let count = (1 + self.random.below(SHORT_LIVED)).min(plan.steps - self.done);
        for place in &mut blocks[..count] {
            *place = Some(self.allocate(plan)?);
        }
        for place in &mut blocks[..count] {
            self.give_or_free(place.take(), plan, places)?;
        }
        Ok(())
    }

    fn up_and_down(&mut self, plan: Plan, places: &Places<H>) -> Result<(), Failure> {
        let slots = self.table.len();
        for slot in 0..slots.min(plan.steps - self.done) {
            self.replace(slot, plan, places)?;
        }
        // Any odd number far from simple fractions of the count would do: neighbours are freed far apart.
        for index in 0..slots {
            if self.random.below(10) > 0 {
                self.discard((index * 7919 + 13) % slots, plan, places)?;
            }
        }
        Ok(())
    }

    /// A new block in a slot; what was there is freed first.
    fn replace(&mut self, slot: usize, plan: Plan, places: &Places<H>) -> Result<(), Failure> {
        self.discard(slot, plan, places)?;
        self.table[slot] = Some(self.allocate(plan)?);
        Ok(())
    }

    fn discard(&mut self, slot: usize, plan: Plan, places: &Places<H>) -> Result<(), Failure> {
        let item = self.table[slot].take();
        self.give_or_free(item, plan, places)
    }

    fn size(&mut self, plan: Plan) -> usize {
        let size = self.sizes[self.random.below(SIZES)];
        let phase = self.done * plan.phases / plan.steps;
        let size = if phase & 1 > 0 { size * 5 / 8 + 1 } else { size };
        if phase & 2 > 0 { size * 3 / 2 } else { size }
    }

    fn allocate(&mut self, plan: Plan) -> Result<Item<H>, Failure> {
        let size = self.size(plan);
        self.done += 1;
        let block = self.heap.allocate(size)?;
        // SAFETY: fresh, of this size, and this worker's alone.
        unsafe {
            match plan.touched {
                0 => self.heap.write(block, 0)?,
                1 => {
                    self.heap.write(block, 0)?;
                    self.heap.write(block, size - 1)?;
                }
                _ => self.heap.fill(block, size)?,
            }
        }
        Ok((block, size))
    }

    fn give_or_free(
        &mut self,
        mut item: Option<Item<H>>,
        plan: Plan,
        places: &Places<H>,
    ) -> Result<(), Failure> {
        if plan.given > 0 && item.is_some() && self.random.below(100) < plan.given {
            let place = &places[self.random.below(places.len())];
            std::mem::swap(&mut item, &mut place.lock().unwrap_or_else(PoisonError::into_inner));
        }
        self.free(item)
    }

    fn free(&mut self, item: Option<Item<H>>) -> Result<(), Failure> {
        // SAFETY: a live block that was taken out of the only place that knew it.
        item.map_or(Ok(()), |(block, _)| unsafe { self.heap.free(block) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::heap::recording::Recording;

    const PLAN: Plan = Plan { steps: 10_000, order: 0, given: 0, resized: 0, touched: 1, phases: 1 };

    fn chain() -> Chain<Recording> {
        Chain::new(0, (16, 16_384), 100).expect("mapped")
    }

    #[test]
    fn sizes_are_even_in_their_logarithm_and_differ_by_phase() {
        let mut chain = chain();
        assert_eq!(chain.thread(PLAN, &[]), Ok(10_000));
        let sizes = &chain.heap.sizes;
        assert!(sizes.iter().all(|size| (16..=16_384).contains(size)));
        let below = sizes.iter().filter(|&&size| size < 512).count() as f64 / sizes.len() as f64;
        // Ten doublings, five of them below: five standard errors, of the 4096 sizes that are drawn from and of the draws.
        assert!((below - 0.5).abs() < 0.05, "{below}");
        let mut other = self::chain();
        assert_eq!(other.thread(Plan { phases: 4, ..PLAN }, &[]), Ok(10_000));
        let expected = [(0, 1.0), (1, 0.625), (2, 1.5), (3, 0.9375)];
        for (phase, factor) in expected {
            let part = 2500 * phase..2500 * (phase + 1);
            let sum = |sizes: &[usize]| sizes.iter().sum::<usize>() as f64;
            let ratio = sum(&other.heap.sizes[part.clone()]) / sum(&sizes[part]);
            assert!((ratio / factor - 1.0).abs() < 0.01, "{phase}: {ratio}");
        }
    }

    #[test]
    fn each_order_takes_all_steps_and_holds_no_more_than_the_slots() {
        for (order, most, left) in
            [(0, 100, 90..=100), (1, 100, 100..=100), (2, 26, 0..=0), (3, 108, 90..=100), (4, 100, 1..=30)]
        {
            let mut chain = chain();
            assert_eq!(chain.thread(Plan { order, ..PLAN }, &[]), Ok(10_000));
            let heap = &chain.heap;
            assert_eq!(heap.sizes.len(), 10_000);
            let live = heap.sizes.len() - heap.freed.len();
            assert!(left.contains(&live), "{order}: {live}");
            assert!(heap.peak_live_bytes <= most * 16_384, "{order}");
            let mut tally = Chain::<Tally>::new(0, (16, 16_384), 100).expect("mapped");
            tally.thread(Plan { order, ..PLAN }, &[]).expect("counted");
            assert_eq!(heap.peak_live_bytes as u64, tally.heap.peak_live_bytes);
        }
    }

    #[test]
    fn in_the_random_order_blocks_get_another_size_as_often_as_is_said() {
        let mut chain = chain();
        let plan = Plan { resized: 40, touched: 2, ..PLAN };
        assert_eq!(chain.thread(plan, &[]), Ok(10_000));
        // Each is a new block to the recording heap; of all that were there before only replacements leave the table.
        assert_eq!(chain.heap.sizes.len(), 10_000);
        assert_eq!(chain.table.iter().flatten().count(), chain.heap.sizes.len() - chain.heap.freed.len());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for given in [["order=1", "resized=1"], ["min=20", "max=10"]] {
            let given = given.map(String::from);
            assert!(DEFINITION.settings(1, false, crate::pass::Pass::Timed, &given).is_err(), "{given:?}");
        }
    }

    #[test]
    fn what_is_given_away_is_freed_by_who_swaps_it_out() {
        let places: Vec<_> = (0..50).map(|_| Mutex::new(None)).collect();
        let mut chain = chain();
        assert_eq!(chain.thread(Plan { given: 100, ..PLAN }, &places), Ok(10_000));
        let held = places.iter().filter(|place| place.lock().expect("no panic").is_some()).count();
        let slots = chain.table.iter().flatten().count();
        assert_eq!((held, chain.heap.sizes.len() - chain.heap.freed.len()), (50, 50 + slots));
    }
}
