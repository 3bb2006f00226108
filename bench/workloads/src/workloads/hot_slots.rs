//! **hot-slots**: many slots, a few of which are used most, and all bytes read before they go.
//!
//! *Definition.* Each thread has `slots` slots, empty at first, and does `accesses` times { choose a slot:
//! four times in five one of the first fifth of them, else one of the rest; if it holds a block, read
//! all its bytes, compare them with what was written, and free it; else allocate one and write all of
//! it }. At its end it does the former with all that are left. The sizes go from 9 to 1024 B: each
//! octave is half as likely as the one below, and sizes within one are even. One operation is one access.
//! The work and the live set of each thread are the same for any number of threads.
//!
//! *Source.* alloc-test by No Bugs Hare and node-dcpp, after its idea: an allocator also decides how near
//! to each other a program's data are.
//!
//! *Deviations.* The original's accesses follow a Pareto distribution; ours have two levels.

use std::collections::BTreeMap;

use crate::definition::{Definition, Figures, Knob, MAX_COUNT, Settings, Stop};
use crate::harness::crew::Crew;
use crate::harness::failure::Failure;
use crate::harness::heap::Heap;
use crate::harness::random::Random;
use crate::harness::slots::Slots;
use crate::harness::tally::Tally;

/// hot-slots.
pub const DEFINITION: Definition = Definition {
    name: "hot-slots",
    tells: "How fast a large set of small blocks is allocated, used and freed, caches of the machine \
            included.",
    source: "alloc-test (node-dcpp), after its idea",
    operation: "an access: a block allocated and written, or read and freed",
    knobs: &[
        Knob {
            name: "slots",
            meaning: "Slots of each thread.",
            unit: "count",
            default: 1 << 18,
            test: 1 << 12,
            range: 5..=1 << 32,
        },
        Knob {
            name: "accesses",
            meaning: "Accesses of each thread.",
            unit: "operations",
            default: 2_500_000,
            test: 20_000,
            range: 1..=MAX_COUNT,
        },
    ],
    max_threads: None,
    check: |_| Ok(()),
    run: on_heap!(run),
};

/// Octaves of sizes, the first of which is 9 to 16 B.
const OCTAVES: u32 = 7;

struct Worker<H: Heap> {
    heap: H,
    random: Random,
    slots: Slots<Option<(H::Block, u32)>>,
}

fn run<H: Heap>(settings: &Settings) -> Result<Figures, Stop> {
    let (threads, accesses) = (settings.threads, settings.count("accesses"));
    let slots = settings.size("slots");
    let mut peak_live_bytes = 0;
    for owner in 0..threads {
        let mut tally = Worker::<Tally>::new(owner, slots)?;
        tally.work(accesses)?;
        peak_live_bytes += tally.heap.peak_live_bytes;
    }
    let workers = (0..threads).map(|owner| Worker::<H>::new(owner, slots)).collect::<Result<Vec<_>, _>>()?;
    let (reading, _) = Crew::default().run(workers, |worker| worker.work(accesses))?;
    Ok(Figures {
        reading,
        expected_operations: u64::from(threads) * accesses,
        peak_live_bytes: Some(peak_live_bytes),
        extra: BTreeMap::new(),
    })
}

fn size(random: &mut Random) -> u32 {
    // Half of the numbers end in 1, a quarter in 10, and so on; what is left joins the last octave.
    let octave = random.below(1 << OCTAVES).trailing_zeros().min(OCTAVES - 1);
    let least = 8 << octave;
    least + 1 + random.below(least as usize) as u32
}

impl<H: Heap> Worker<H> {
    fn new(owner: u32, slots: usize) -> Result<Self, Failure> {
        let slots = Slots::filled(slots, None)?;
        Ok(Self { heap: H::of(owner), random: Random::stream(owner.into()), slots })
    }

    fn work(&mut self, accesses: u64) -> Result<u64, Failure> {
        let mut done = 0;
        while done < accesses {
            let slot = self.choose();
            if !self.take(slot)? {
                let size = size(&mut self.random);
                let block = self.heap.allocate(size as usize)?;
                // SAFETY: fresh, of this size, and this worker's alone.
                unsafe { self.heap.fill(block, size as usize)? };
                self.slots[slot] = Some((block, size));
            }
            done += 1;
        }
        for slot in 0..self.slots.len() {
            self.take(slot)?;
        }
        Ok(done)
    }

    fn choose(&mut self) -> usize {
        let hot = self.slots.len() / 5;
        match self.random.below(5) {
            0 => hot + self.random.below(self.slots.len() - hot),
            _ => self.random.below(hot),
        }
    }

    /// Reads and frees what a slot holds: whether it held anything.
    fn take(&mut self, slot: usize) -> Result<bool, Failure> {
        let Some((block, size)) = self.slots[slot].take() else { return Ok(false) };
        // SAFETY: the block is live, was filled with `size` bytes, and is this worker's alone.
        unsafe { self.heap.read_back(block, size as usize)? };
        // SAFETY: as above, and its slot no longer holds it.
        unsafe { self.heap.free(block)? };
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::heap::recording::Recording;

    #[test]
    fn each_octave_is_half_as_likely_as_the_one_below() {
        let mut random = Random::stream(0);
        let sizes: Vec<_> = (0..1_000_000).map(|_| size(&mut random)).collect();
        assert!(sizes.iter().all(|size| (9..=1024).contains(size)));
        for octave in 0..6u32 {
            let (above, to) = (8 << octave, 16 << octave);
            let share = sizes.iter().filter(|&&size| above < size && size <= to).count() as f64 / 1e6;
            // Five standard errors are at most 0.0025.
            assert!((share - 0.5f64.powi(octave as i32 + 1)).abs() < 0.0025, "{octave}: {share}");
        }
    }

    #[test]
    fn four_accesses_in_five_go_to_a_fifth_of_the_slots() {
        let mut worker = Worker::<Recording>::new(0, 1000).expect("mapped");
        let hot = (0..100_000).filter(|_| worker.choose() < 200).count();
        assert!((79_300..80_700).contains(&hot), "{hot}");
    }

    #[test]
    fn every_block_is_freed_and_the_peak_is_foreseen() {
        let mut worker = Worker::<Recording>::new(1, 1000).expect("mapped");
        assert_eq!(worker.work(10_000), Ok(10_000));
        assert_eq!((worker.heap.live_bytes, worker.heap.freed.len()), (0, worker.heap.sizes.len()));
        let mut tally = Worker::<Tally>::new(1, 1000).expect("mapped");
        assert_eq!(tally.work(10_000), Ok(10_000));
        assert_eq!(worker.heap.peak_live_bytes as u64, tally.heap.peak_live_bytes);
    }
}
