//! **fragmentation**: a heap of constant live bytes whose blocks grow from phase to phase.
//!
//! *Definition.* Each thread holds up to `live_kib` KiB. In each of `phases` phases it allocates as many
//! bytes as that, in blocks of one size, and writes all of each; before a block that would exceed the
//! limit it frees randomly chosen ones until there is room. The size is 64 B in the first phase, which
//! fills the heap, and grows by 40 per cent with each phase, rounded down to multiples of 16 B: the holes
//! that a phase leaves are too small for the next. At the end of each phase all threads meet, and
//! resident memory is read at known live bytes (`rss_phase_NN_bytes`, `live_phase_NN_bytes`). One
//! operation is one block: a malloc, a memset and a free. Each thread's live set is the same for any
//! number of threads.
//!
//! *Source.* The lower bounds of Robson (1974) come from programs of this kind, with phases of growing
//! size; here victims are chosen at random, as the field's tests of "RSS over time" do.
//!
//! *Deviations.* The numbers are ours. The pointers are kept in pages outside the heap, which are part of
//! the resident memory, the same for every allocator; `rss_before_bytes` is what was resident before the
//! first phase, and `most_rss_per_live` leaves it out.

use crate::definition::{Definition, Figures, Knob, Settings, Stop};
use crate::harness::crew::Crew;
use crate::harness::failure::Failure;
use crate::harness::heap::Heap;
use crate::harness::random::Random;
use crate::harness::rendezvous::Rendezvous;
use crate::harness::slots::Slots;
use crate::harness::usage::Memory;

/// fragmentation.
pub const DEFINITION: Definition = Definition {
    name: "fragmentation",
    tells: "How much memory beyond what is live an allocator needs when the sizes in demand change.",
    source: "phases of growing size over a constant live set, after Robson 1974",
    operation: "a block: a malloc, a memset and a free",
    knobs: &[
        Knob {
            name: "live_kib",
            meaning: "Bytes that each thread holds, and that it allocates in each phase.",
            unit: "KiB",
            default: 16 << 10,
            test: 512,
            range: 64..=1 << 32,
        },
        Knob {
            name: "phases",
            meaning: "Phases, each with a size of its own.",
            unit: "count",
            default: 16,
            test: 6,
            range: 1..=20,
        },
    ],
    max_threads: None,
    // 64 KiB hold a block of the twentieth phase.
    check: |_| Ok(()),
    run: on_heap!(run),
};

/// Size in the first phase, in bytes.
const FIRST_SIZE: usize = 64;

/// The size in each phase, in bytes.
fn sizes(phases: usize) -> impl Iterator<Item = usize> {
    (0..phases as i32).map(|phase| (FIRST_SIZE as f64 * 1.4f64.powi(phase)) as usize / 16 * 16)
}

struct Worker<H: Heap> {
    heap: H,
    random: Random,
    blocks: Slots<(H::Block, usize)>,
    limit: usize,
    live: usize,
}

fn run<H: Heap>(settings: &Settings) -> Result<Figures, Stop> {
    let threads = settings.threads;
    let (limit, phases) = (settings.size("live_kib") << 10, settings.size("phases"));
    let rendezvous = Rendezvous::new(threads as usize, phases);
    let workers = (0..threads).map(|owner| Worker::<H>::new(owner, limit)).collect::<Result<Vec<_>, _>>()?;
    let mut before = Ok(Memory::default());
    let (reading, workers) = Crew::default()
        .gate(|| before = Memory::now())
        .run(workers, |worker| rendezvous.attend(|| worker.all_phases(phases, &rendezvous)))?;
    for mut worker in workers {
        worker.free_down_to(0)?;
    }
    let before = before?.rss_bytes;
    let ratios = rendezvous
        .samples()
        .into_iter()
        .map(|sample| sample.rss_bytes.saturating_sub(before) as f64 / sample.live_bytes as f64);
    let mut extra = rendezvous.figures("phase");
    extra.insert("most_rss_per_live".into(), ratios.fold(0.0, f64::max));
    extra.insert("rss_before_bytes".into(), before as f64);
    let blocks = sizes(phases).map(|size| (limit / size) as u64).sum::<u64>();
    Ok(Figures {
        reading,
        expected_operations: u64::from(threads) * blocks,
        peak_live_bytes: rendezvous.samples().iter().map(|sample| sample.live_bytes).max(),
        extra,
    })
}

impl<H: Heap> Worker<H> {
    fn new(owner: u32, limit: usize) -> Result<Self, Failure> {
        let blocks = Slots::with_capacity(limit / FIRST_SIZE)?;
        Ok(Self { heap: H::of(owner), random: Random::stream(owner.into()), blocks, limit, live: 0 })
    }

    fn all_phases(&mut self, phases: usize, rendezvous: &Rendezvous) -> Result<u64, Failure> {
        let mut done = 0;
        for size in sizes(phases) {
            for _ in 0..self.limit / size {
                self.free_down_to(self.limit - size)?;
                let block = self.heap.allocate(size)?;
                // SAFETY: fresh, of this size, and this worker's alone.
                unsafe { self.heap.fill(block, size)? };
                self.blocks.push((block, size));
                self.live += size;
                done += 1;
            }
            rendezvous.sample(self.live as u64)?;
        }
        Ok(done)
    }

    /// Frees randomly chosen blocks until no more than `bytes` are live.
    fn free_down_to(&mut self, bytes: usize) -> Result<(), Failure> {
        while self.live > bytes {
            let victim = self.random.below(self.blocks.len());
            let (block, size) = self.blocks.swap_remove(victim);
            // SAFETY: the slots hold live blocks, each once, and this one no longer.
            unsafe { self.heap.free(block)? };
            self.live -= size;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::heap::recording::Recording;

    #[test]
    fn sizes_grow_by_two_fifths() {
        assert_eq!(sizes(6).collect::<Vec<_>>(), [64, 80, 112, 160, 240, 336]);
        assert!(sizes(16).last().is_some_and(|last| (9_000..10_000).contains(&last)));
        // The least heap holds the largest block.
        assert!(sizes(20).last().is_some_and(|last| last <= 64 << 10));
    }

    #[test]
    fn every_phase_turns_the_heap_over_within_its_limit() {
        let (limit, phases) = (64 << 10, 6);
        let rendezvous = Rendezvous::new(1, phases);
        let mut worker = Worker::<Recording>::new(0, limit).expect("mapped");
        let blocks = sizes(phases).map(|size| limit / size).sum::<usize>();
        assert_eq!(worker.all_phases(phases, &rendezvous), Ok(blocks as u64));
        assert_eq!(worker.heap.sizes.len(), blocks);
        assert_eq!(worker.heap.peak_live_bytes, limit);
        let samples = rendezvous.samples();
        assert_eq!((samples.len(), samples[0].live_bytes as usize), (phases, limit));
        // What is live is below the limit by less than the blocks of the phase that is to come.
        assert!(samples.iter().all(|sample| limit - sample.live_bytes as usize <= 2 * 336));
        // Some blocks of the first phase outlive it, and the heap is a mixture.
        assert!(worker.blocks.iter().any(|&(_, size)| size == 64));
        worker.free_down_to(0).expect("freed");
        assert_eq!(worker.heap.live_bytes, 0);
    }
}
