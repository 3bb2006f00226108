//! **shbench**: a buffer of blocks of many sizes, of which a moving window outlives each cycle.
//!
//! *Definition.* Each thread has a buffer of `slots` slots. It fills them one after the other with
//! blocks whose sizes come in descending ramps: from a base by halves down to `min`, for bases that
//! grow from `min` to `max` by b → 3b/2 + 1 (from 1: 1, 2, 4, 7, 11 …). Each size of a ramp is allocated
//! 250 times if it is below 100 B, 50 times below 1000 B, 10 times below 10 000 B, else once. When
//! the buffer is full, a window of a fifth of it is kept: all before it is freed oldest first, all
//! after it newest first, and the next window starts where the last one ended, so that a block
//! outlives one cycle at most. All ramps together are done `repeats` times; what is left is freed at
//! the end. One operation is one block: a malloc, a byte written and a free. The work of each thread
//! and its live set are fixed, whatever the number of threads.
//!
//! *Source.* MicroQuill's shbench, known as sh6 (sh6bench.c, 2000: ramps, weights and windows), through
//! the "elfmalloc Performance Evaluation" (2017), which runs it with small blocks (here up to 64 B; the
//! original's up to 1000 B with `--set max=1000`) and medium ones (1 to 8 KiB: `--set min=1024 --set
//! max=8192`).
//!
//! *Deviations.* One number, the call count, is the original's slots as well as its repeats (1000;
//! mimalloc-bench runs 10 000), and is divided among its threads: with more threads each has fewer slots and
//! less work. Ours are two numbers, of each thread. The original begins its ramps at 1 B and descends to 1 B
//! whatever the minimum, stops before a base that equals the maximum, and leaves some blocks unfreed.
//! It does not touch its blocks, in mimalloc-bench it writes the first and the last byte. The histogram
//! of the sizes allocated is reported by octaves (`blocks_up_to_00064_bytes`).

use std::collections::BTreeMap;
use std::ops::Range;

use crate::definition::{Definition, Figures, Knob, Settings, Stop};
use crate::harness::crew::Crew;
use crate::harness::failure::Failure;
use crate::harness::heap::Heap;
use crate::harness::slots::Slots;
use crate::harness::tally::Tally;

/// shbench.
pub const DEFINITION: Definition = Definition {
    name: "shbench",
    tells: "How well blocks of many sizes are served that are freed in bulk, in both directions, with some \
            of them staying a while longer.",
    source: "MicroQuill's shbench (sh6), in the sizes of the elfmalloc evaluation 2017",
    operation: "a block: a malloc, a byte written and a free",
    knobs: &[
        Knob {
            name: "min",
            meaning: "Least size of a block.",
            unit: "bytes",
            default: 1,
            test: 1,
            range: 1..=1 << 30,
        },
        Knob {
            name: "max",
            meaning: "No block is larger.",
            unit: "bytes",
            default: 64,
            test: 64,
            range: 1..=1 << 30,
        },
        Knob {
            name: "slots",
            meaning: "Slots of each thread's buffer.",
            unit: "count",
            default: 10_000,
            test: 1_000,
            range: 5..=1 << 32,
        },
        Knob {
            name: "repeats",
            meaning: "Times that each thread goes through all ramps.",
            unit: "count",
            default: 1_000,
            test: 3,
            range: 1..=1 << 32,
        },
    ],
    max_threads: None,
    check: |settings| match settings.count("min") <= settings.count("max") {
        true => Ok(()),
        false => Err("min must not be more than max".into()),
    },
    run: on_heap!(run),
};

/// A size, and how many blocks of it are allocated one after the other.
pub(super) type Step = (usize, u64);

/// The ramps from `min` to `max`, one after the other.
fn ramps(min: usize, max: usize) -> Vec<Step> {
    let times = |size| match size {
        0..100 => 250,
        100..1000 => 50,
        1000..10_000 => 10,
        _ => 1,
    };
    let half = |size: &usize| Some(size / 2).filter(|&half| half >= min);
    let next_base = |base: &usize| Some(base * 3 / 2 + 1).filter(|&base| base <= max);
    std::iter::successors(Some(min), next_base)
        .flat_map(|base| std::iter::successors(Some(base), half))
        .map(|size| (size, times(size)))
        .collect()
}

/// How many blocks are allocated, by octaves of their sizes.
fn histogram(steps: &[Step], repeats: u64) -> BTreeMap<String, f64> {
    let mut blocks = BTreeMap::new();
    for &(size, times) in steps {
        let name = format!("blocks_up_to_{:05}_bytes", size.next_power_of_two());
        *blocks.entry(name).or_insert(0.0) += (times * repeats) as f64;
    }
    blocks
}

/// The buffer with its moving window.
pub(super) struct Buffer<H: Heap> {
    slots: Slots<Option<H::Block>>,
    next: usize,
    kept: Range<usize>,
}

impl<H: Heap> Buffer<H> {
    /// An empty buffer, none of which is kept when it is full for the first time but its first fifth.
    pub(super) fn new(slots: usize) -> Result<Self, Failure> {
        Ok(Self { slots: Slots::filled(slots, None)?, next: 0, kept: slots..slots })
    }

    /// Puts a block into the next slot; if it was the last one, frees all but the next window.
    #[inline]
    pub(super) fn put(&mut self, heap: &mut H, block: H::Block) -> Result<(), Failure> {
        debug_assert!(self.slots[self.next].is_none());
        self.slots[self.next] = Some(block);
        self.advance_to(self.next + 1);
        if self.next == self.slots.len() { self.turn(heap) } else { Ok(()) }
    }

    fn advance_to(&mut self, next: usize) {
        self.next = if next == self.kept.start { self.kept.end } else { next };
    }

    fn turn(&mut self, heap: &mut H) -> Result<(), Failure> {
        let length = self.slots.len();
        let start = if self.kept.end == length { 0 } else { self.kept.end };
        self.kept = start..(start + length / 5).min(length);
        free(heap, self.slots[..self.kept.start].iter_mut())?;
        free(heap, self.slots[self.kept.end..].iter_mut().rev())?;
        self.advance_to(0);
        Ok(())
    }

    /// Frees whatever is left.
    pub(super) fn empty(&mut self, heap: &mut H) -> Result<(), Failure> {
        free(heap, self.slots.iter_mut())
    }
}

fn free<'slot, H: Heap>(
    heap: &mut H,
    slots: impl Iterator<Item = &'slot mut Option<H::Block>>,
) -> Result<(), Failure>
where
    H::Block: 'slot,
{
    for slot in slots {
        if let Some(block) = slot.take() {
            // SAFETY: the slots hold live blocks, each once, and this one no longer.
            unsafe { heap.free(block)? };
        }
    }
    Ok(())
}

struct Worker<H: Heap> {
    heap: H,
    buffer: Buffer<H>,
}

fn run<H: Heap>(settings: &Settings) -> Result<Figures, Stop> {
    let threads = settings.threads;
    let (slots, repeats) = (settings.size("slots"), settings.count("repeats"));
    let steps = ramps(settings.size("min"), settings.size("max"));
    let mut tally = Worker::<Tally>::new(0, slots)?;
    tally.all_ramps(&steps, repeats)?;
    let peak_live_bytes = Some(u64::from(threads) * tally.heap.peak_live_bytes);
    drop(tally);
    let workers = (0..threads).map(|owner| Worker::<H>::new(owner, slots)).collect::<Result<Vec<_>, _>>()?;
    let (reading, _) = Crew::default().run(workers, |worker| worker.all_ramps(&steps, repeats))?;
    let blocks = steps.iter().map(|&(_, times)| times).sum::<u64>();
    Ok(Figures {
        reading,
        expected_operations: u64::from(threads) * repeats * blocks,
        peak_live_bytes,
        extra: histogram(&steps, u64::from(threads) * repeats),
    })
}

impl<H: Heap> Worker<H> {
    fn new(owner: u32, slots: usize) -> Result<Self, Failure> {
        Ok(Self { heap: H::of(owner), buffer: Buffer::new(slots)? })
    }

    fn all_ramps(&mut self, steps: &[Step], repeats: u64) -> Result<u64, Failure> {
        let mut done = 0;
        for _ in 0..repeats {
            for &(size, times) in steps {
                for _ in 0..times {
                    let block = self.heap.allocate(size)?;
                    // SAFETY: fresh, at least one byte long, and this worker's alone.
                    unsafe { self.heap.write(block, 0)? };
                    self.buffer.put(&mut self.heap, block)?;
                    done += 1;
                }
            }
        }
        self.buffer.empty(&mut self.heap)?;
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::heap::recording::Recording;

    #[test]
    fn ramps_descend_by_halves_from_growing_bases() {
        let sizes = |min, max| ramps(min, max).into_iter().map(|(size, _)| size).collect::<Vec<_>>();
        assert_eq!(sizes(1, 12), [1, 2, 1, 4, 2, 1, 7, 3, 1, 11, 5, 2, 1]);
        assert_eq!(sizes(1024, 4000), [1024, 1537, 2306, 1153, 3460, 1730]);
        assert_eq!(ramps(99, 20_000).first(), Some(&(99, 250)));
        assert_eq!(ramps(100, 100), [(100, 50)]);
        assert_eq!((ramps(999, 999), ramps(1000, 1000)), (vec![(999, 50)], vec![(1000, 10)]));
        assert_eq!((ramps(9999, 9999), ramps(10_000, 10_000)), (vec![(9999, 10)], vec![(10_000, 1)]));
        assert!(ramps(1, 20_000).contains(&(12_136, 1)));
    }

    #[test]
    fn the_histogram_is_that_of_the_blocks_allocated() {
        let steps = ramps(1, 1000);
        let mut worker = Worker::<Recording>::new(0, 500).expect("mapped");
        let done = worker.all_ramps(&steps, 2).expect("done");
        let sizes = worker.heap.sizes;
        assert_eq!(done, sizes.len() as u64);
        for (name, blocks) in histogram(&steps, 2) {
            let octave: usize = name["blocks_up_to_".len()..][..5].parse().expect("a number");
            let found = sizes.iter().filter(|size| size.next_power_of_two() == octave).count();
            assert_eq!(found as f64, blocks, "{name}");
        }
        // Small sizes many times, large ones few.
        let up_to = |limit| sizes.iter().filter(|&&size| size <= limit).count();
        assert!(up_to(64) > 2 * (sizes.len() - up_to(64)));
    }

    #[test]
    fn a_window_of_a_fifth_is_kept_and_moves_on_while_the_rest_is_freed_from_both_ends() {
        let mut worker = Worker::<Recording>::new(0, 10).expect("mapped");
        worker.all_ramps(&[(1, 26)], 1).expect("done");
        let freed = worker.heap.freed;
        // Blocks 0 to 9 fill the buffer: 0 and 1 are kept, the others freed newest first.
        assert_eq!(freed[..8], [9, 8, 7, 6, 5, 4, 3, 2]);
        // 10 to 17 fill slots 2 to 9: slots 2 and 3 are kept, before them the oldest go first.
        assert_eq!(freed[8..16], [0, 1, 17, 16, 15, 14, 13, 12]);
        // 18 and 19 fill slots 0 and 1, 20 to 25 slots 4 to 9: slots 4 and 5 are kept.
        assert_eq!(freed[16..24], [18, 19, 10, 11, 25, 24, 23, 22]);
        assert_eq!(freed[24..], [20, 21]);
    }

    #[test]
    fn the_peak_is_foreseen() {
        let steps = ramps(1024, 8192);
        let mut played = Worker::<Recording>::new(0, 100).expect("mapped");
        let mut foreseen = Worker::<Tally>::new(0, 100).expect("mapped");
        assert_eq!(played.all_ramps(&steps, 2), foreseen.all_ramps(&steps, 2));
        assert_eq!(played.heap.peak_live_bytes as u64, foreseen.heap.peak_live_bytes);
        assert_eq!(played.heap.live_bytes, 0);
        assert!(played.heap.sizes.iter().all(|size| (1024..=8192).contains(size)));
    }
}
