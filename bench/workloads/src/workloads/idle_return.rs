//! **idle-return**: load, then quiet: what memory comes back, and when.
//!
//! *Definition.* Each thread allocates `blocks` blocks of random sizes from 16 B to 64 KiB, the logarithm
//! of the size being even, writes all of each, and frees them in the order of allocation; `cycles`
//! times. One operation is one block. Then all threads are idle, and resident memory is read after 0,
//! 100, 1000 and 10 000 ms, as far as `quiet` milliseconds go (`rss_after_NNNNN_ms_bytes`).
//! The measured part ends before the quiet.
//!
//! *Source.* The most frequent complaint about allocators, memory that does not come back, as a test.
//!
//! *Deviations.* By default the quiet lasts one second; ten are `--set quiet=10000`. The threads sleep
//! meanwhile: an allocator that gives memory back only in calls of the threads that hold it shows as
//! one that does not.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use crate::definition::{Definition, Figures, Knob, Settings, Stop};
use crate::harness::crew::Crew;
use crate::harness::failure::Failure;
use crate::harness::heap::Heap;
use crate::harness::random::Random;
use crate::harness::slots::Slots;
use crate::harness::tally::Tally;
use crate::harness::usage::Memory;

/// idle-return.
pub const DEFINITION: Definition = Definition {
    name: "idle-return",
    tells: "How much of the memory of a peak is given back to the system while a program is idle, and how \
            soon.",
    source: "the field's most frequent complaint, as a test",
    operation: "a block: a malloc, a memset and a free",
    knobs: &[
        Knob {
            name: "blocks",
            meaning: "Blocks of random sizes that each thread holds at its peak.",
            unit: "count",
            default: 5_000,
            test: 200,
            range: 1..=1 << 32,
        },
        Knob {
            name: "cycles",
            meaning: "Times that each thread builds up its peak and takes it down again.",
            unit: "count",
            default: 20,
            test: 2,
            range: 1..=1 << 32,
        },
        Knob {
            name: "quiet",
            meaning: "How long resident memory is watched afterwards.",
            unit: "ms",
            default: 1_000,
            test: 0,
            range: 0..=10_000,
        },
    ],
    max_threads: None,
    check: |_| Ok(()),
    run: on_heap!(run),
};

/// When resident memory is read, in milliseconds after the work.
const MOMENTS_MS: [u64; 4] = [0, 100, 1_000, 10_000];

struct Worker<H: Heap> {
    heap: H,
    random: Random,
    blocks: Slots<H::Block>,
}

fn run<H: Heap>(settings: &Settings) -> Result<Figures, Stop> {
    let threads = settings.threads;
    let (blocks, cycles) = (settings.size("blocks"), settings.count("cycles"));
    let quiet = settings.count("quiet");
    let mut peak_live_bytes = 0;
    for owner in 0..threads {
        let mut tally = Worker::<Tally>::new(owner, blocks)?;
        tally.load(blocks, cycles)?;
        peak_live_bytes += tally.heap.peak_live_bytes;
    }
    let mut watched = Ok(BTreeMap::new());
    let workers = (0..threads).map(|owner| Worker::<H>::new(owner, blocks)).collect::<Result<Vec<_>, _>>()?;
    let (reading, _) = Crew::default()
        .afterwards(|| watched = watch(quiet))
        .run(workers, |worker| worker.load(blocks, cycles))?;
    Ok(Figures {
        reading,
        expected_operations: u64::from(threads) * cycles * blocks as u64,
        peak_live_bytes: Some(peak_live_bytes),
        extra: watched?,
    })
}

/// Resident memory at each of the moments within `quiet` milliseconds.
fn watch(quiet: u64) -> Result<BTreeMap<String, f64>, Failure> {
    let mut figures = BTreeMap::new();
    let mut elapsed = 0;
    for moment in MOMENTS_MS.into_iter().filter(|&moment| moment <= quiet) {
        sleep(Duration::from_millis(moment - elapsed));
        elapsed = moment;
        figures.insert(format!("rss_after_{moment:05}_ms_bytes"), Memory::now()?.rss_bytes as f64);
    }
    Ok(figures)
}

/// A size of 2⁴ to 2¹⁶ B, the exponent being even.
fn size(random: &mut Random) -> usize {
    (4.0 + 12.0 * random.unit()).exp2() as usize
}

impl<H: Heap> Worker<H> {
    fn new(owner: u32, blocks: usize) -> Result<Self, Failure> {
        let blocks = Slots::with_capacity(blocks)?;
        Ok(Self { heap: H::of(owner), random: Random::stream(owner.into()), blocks })
    }

    fn load(&mut self, blocks: usize, cycles: u64) -> Result<u64, Failure> {
        let mut done = 0;
        for _ in 0..cycles {
            for _ in 0..blocks {
                let size = size(&mut self.random);
                let block = self.heap.allocate(size)?;
                // SAFETY: fresh, of this size, and this worker's alone.
                unsafe { self.heap.fill(block, size)? };
                self.blocks.push(block);
                done += 1;
            }
            for &block in self.blocks.iter() {
                // SAFETY: the slots hold live blocks, each once, and are cleared below.
                unsafe { self.heap.free(block)? };
            }
            self.blocks.clear();
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::heap::recording::Recording;

    #[test]
    fn each_octave_has_as_many_blocks() {
        let mut random = Random::stream(0);
        let sizes: Vec<_> = (0..120_000).map(|_| size(&mut random)).collect();
        assert!(sizes.iter().all(|size| (16..1 << 16).contains(size)));
        for octave in 4..16 {
            let blocks = sizes.iter().filter(|size| size.ilog2() == octave).count();
            // Five standard errors of 96 each.
            assert!((9_500..10_500).contains(&blocks), "{octave}: {blocks}");
        }
    }

    #[test]
    fn nothing_is_live_after_the_load_and_its_peak_is_foreseen() {
        let mut worker = Worker::<Recording>::new(0, 100).expect("mapped");
        assert_eq!(worker.load(100, 3), Ok(300));
        assert_eq!(worker.heap.live_bytes, 0);
        let mut tally = Worker::<Tally>::new(0, 100).expect("mapped");
        assert_eq!(tally.load(100, 3), Ok(300));
        assert_eq!(worker.heap.peak_live_bytes as u64, tally.heap.peak_live_bytes);
    }

    #[test]
    fn memory_is_read_at_each_moment_within_the_quiet() {
        let names = |quiet| watch(quiet).expect("readable").into_keys().collect::<Vec<_>>();
        assert_eq!(names(0), ["rss_after_00000_ms_bytes"]);
        assert_eq!(names(100), ["rss_after_00000_ms_bytes", "rss_after_00100_ms_bytes"]);
    }
}
