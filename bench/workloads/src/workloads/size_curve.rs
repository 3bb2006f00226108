//! **size-curve**: many small blocks and few large ones, replaced at random.
//!
//! *Definition.* Each thread fills 1024 slots and then does `replacements` times { free the block of a
//! random slot; allocate another into it; write its first byte }. A size s from 4 to 32 768 B has a
//! density proportional to s⁻²: half of the blocks are below 8 B, and each octave holds as many bytes as any
//! other. The mean is 36 B. One operation is one replacement. The work and the live set of each thread
//! are the same for any number of threads.
//!
//! *Source.* glibc's bench-malloc-thread, after its idea: an inverse square of sizes over a working
//! set that each thread has for itself.
//!
//! *Deviations.* Sizes are drawn before the measured part into a table of 8191, through which each thread
//! steps from a place of its own. glibc's runs for a given time; ours does a given amount of work.

use std::collections::BTreeMap;

use crate::definition::{Definition, Figures, Knob, MAX_COUNT, Settings, Stop};
use crate::harness::crew::Crew;
use crate::harness::failure::Failure;
use crate::harness::heap::Heap;
use crate::harness::random::Random;
use crate::harness::slots::Slots;
use crate::harness::tally::Tally;

/// size-curve.
pub const DEFINITION: Definition = Definition {
    name: "size-curve",
    tells: "How fast blocks are replaced whose sizes are spread as programs' are: very many small, a few \
            large.",
    source: "glibc's bench-malloc-thread, after its idea",
    operation: "the replacement of a block: a free, a malloc and a byte written",
    knobs: &[Knob {
        name: "replacements",
        meaning: "Replacements that each thread does.",
        unit: "operations",
        default: 8_000_000,
        test: 20_000,
        range: 1..=MAX_COUNT,
    }],
    max_threads: None,
    check: |_| Ok(()),
    run: on_heap!(run),
};

/// Slots of each thread.
const SLOTS: usize = 1024;
/// Sizes drawn beforehand; a prime.
const SIZES: usize = 8191;
/// Least and largest size, in bytes.
const BOUNDS: (f64, f64) = (4.0, 32_768.0);

/// A size: the inverse of the distribution function at a random point.
fn size(random: &mut Random) -> u32 {
    let (least, largest) = BOUNDS;
    let inverse = least.recip() - random.unit() * (least.recip() - largest.recip());
    inverse.recip().round() as u32
}

struct Worker<'run, H: Heap> {
    heap: H,
    random: Random,
    sizes: &'run [u32],
    next_size: usize,
    slots: Slots<H::Block>,
}

fn run<H: Heap>(settings: &Settings) -> Result<Figures, Stop> {
    let (threads, replacements) = (settings.threads, settings.count("replacements"));
    let mut random = Random::stream(0);
    let sizes: Vec<u32> = (0..SIZES).map(|_| size(&mut random)).collect();
    let mut peak_live_bytes = 0;
    for owner in 0..threads {
        peak_live_bytes += foreseen_peak(owner, &sizes)?;
    }
    let workers = (0..threads).map(|owner| Worker::<H>::new(owner, &sizes)).collect::<Result<Vec<_>, _>>()?;
    let (reading, _) = Crew::default().run(workers, |worker| worker.work(replacements))?;
    Ok(Figures {
        reading,
        expected_operations: u64::from(threads) * replacements,
        peak_live_bytes: Some(peak_live_bytes),
        extra: BTreeMap::new(),
    })
}

/// The most bytes that a thread holds in its first hundred thousand replacements: the set turns over a
/// hundred times meanwhile, and a longer run hardly ever holds more.
fn foreseen_peak(owner: u32, sizes: &[u32]) -> Result<u64, Failure> {
    let mut tally = Worker::<Tally>::new(owner, sizes)?;
    tally.work(100_000)?;
    Ok(tally.heap.peak_live_bytes)
}

impl<'run, H: Heap> Worker<'run, H> {
    fn new(owner: u32, sizes: &'run [u32]) -> Result<Self, Failure> {
        let slots = Slots::with_capacity(SLOTS)?;
        let next_size = owner as usize * 1009 % sizes.len();
        // Stream 0 has drawn the sizes.
        Ok(Self { heap: H::of(owner), random: Random::stream(1 + u64::from(owner)), sizes, next_size, slots })
    }

    fn work(&mut self, replacements: u64) -> Result<u64, Failure> {
        for _ in 0..SLOTS {
            let block = self.block()?;
            self.slots.push(block);
        }
        let mut done = 0;
        while done < replacements {
            let slot = self.random.below(SLOTS);
            // SAFETY: the slots hold live blocks, each once; this one is replaced at once.
            unsafe { self.heap.free(self.slots[slot])? };
            self.slots[slot] = self.block()?;
            done += 1;
        }
        for &block in self.slots.iter() {
            // SAFETY: as above, and the slots are not read again.
            unsafe { self.heap.free(block)? };
        }
        self.slots.clear();
        Ok(done)
    }

    #[inline]
    fn block(&mut self) -> Result<H::Block, Failure> {
        let block = self.heap.allocate(self.sizes[self.next_size] as usize)?;
        self.next_size = if self.next_size + 1 == self.sizes.len() { 0 } else { self.next_size + 1 };
        // SAFETY: fresh, at least four bytes long, and this worker's alone.
        unsafe { self.heap.write(block, 0)? };
        Ok(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::heap::recording::Recording;

    #[test]
    fn the_curve_has_its_mean_and_halves_with_each_octave() {
        let mut random = Random::stream(9);
        let sizes: Vec<_> = (0..4_000_000).map(|_| size(&mut random)).collect();
        assert!(sizes.iter().all(|size| (4..=32_768).contains(size)));
        let mean = sizes.iter().map(|&size| f64::from(size)).sum::<f64>() / sizes.len() as f64;
        // ln(max/min) / (1/min - 1/max); the standard error is 0.18: five of them.
        assert!((mean - 36.05).abs() < 0.9, "{mean}");
        let below = |limit| sizes.iter().filter(|&&size| size < limit).count() as f64 / sizes.len() as f64;
        // A size is rounded: below s means less than s - 1/2.
        assert!((below(8) - (0.25 - 1.0 / 7.5) / 0.25).abs() < 0.002);
        assert!((below(64) - (0.25 - 1.0 / 63.5) / 0.25).abs() < 0.002);
    }

    #[test]
    fn the_table_in_use_has_the_mean_of_the_curve() {
        let mut random = Random::stream(0);
        let mean = (0..SIZES).map(|_| f64::from(size(&mut random))).sum::<f64>() / SIZES as f64;
        // The standard error of 8191 draws is 4; those in use are closer than that.
        assert!((mean - 36.05).abs() < 2.0, "{mean}");
    }

    #[test]
    fn a_thread_holds_1024_blocks_and_its_peak_is_foreseen() {
        let mut random = Random::stream(0);
        let sizes: Vec<u32> = (0..SIZES).map(|_| size(&mut random)).collect();
        let mut worker = Worker::<Recording>::new(3, &sizes).expect("mapped");
        assert_eq!(worker.work(100_000), Ok(100_000));
        assert_eq!(worker.heap.sizes.len(), 1024 + 100_000);
        assert_eq!(worker.heap.live_bytes, 0);
        assert_eq!(worker.heap.peak_live_bytes as u64, foreseen_peak(3, &sizes).expect("known"));
    }
}
