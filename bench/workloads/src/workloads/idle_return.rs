//! **idle-return**: load, then quiet: what memory comes back, and when.
//!
//! *Definition.* Each thread allocates `blocks` blocks of random sizes from `min` to `max` bytes (16 B to
//! 64 KiB), the logarithm of the size being even, writes all of each, and frees them in the order of
//! allocation; `cycles` times. Of the last cycle's blocks `live` per cent stay, spread evenly. One operation
//! is one block. Then all threads are idle, and resident memory is read after 0, 100, 1000 and 10 000 ms, as
//! far as `quiet` milliseconds go (`rss_after_NNNNN_ms_bytes`). The measured part ends before the quiet.
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
            name: "min",
            meaning: "Least size of a block.",
            unit: "bytes",
            default: 16,
            test: 16,
            range: 1..=1 << 30,
        },
        Knob {
            name: "max",
            meaning: "Largest size of a block.",
            unit: "bytes",
            default: 1 << 16,
            test: 1 << 16,
            range: 1..=1 << 30,
        },
        Knob {
            name: "live",
            meaning: "Share of the last cycle's blocks that stay, spread evenly.",
            unit: "per cent",
            default: 0,
            test: 3,
            range: 0..=100,
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
    check: |settings| match settings.count("min") <= settings.count("max") {
        true => Ok(()),
        false => Err("min must not be more than max".into()),
    },
    run: on_heap!(run),
};

/// When resident memory is read, in milliseconds after the work.
const MOMENTS_MS: [u64; 4] = [0, 100, 1_000, 10_000];

/// The numbers that define a run.
#[derive(Debug, Clone, Copy)]
struct Plan {
    blocks: usize,
    cycles: u64,
    min: usize,
    max: usize,
    live: usize,
}

struct Worker<H: Heap> {
    heap: H,
    random: Random,
    plan: Plan,
    blocks: Slots<H::Block>,
}

fn run<H: Heap>(settings: &Settings) -> Result<Figures, Stop> {
    let threads = settings.threads;
    let plan = Plan {
        blocks: settings.size("blocks"),
        cycles: settings.count("cycles"),
        min: settings.size("min"),
        max: settings.size("max"),
        live: settings.size("live"),
    };
    let quiet = settings.count("quiet");
    let mut peak_live_bytes = 0;
    for owner in 0..threads {
        let mut tally = Worker::<Tally>::new(owner, plan)?;
        tally.load()?;
        peak_live_bytes += tally.heap.peak_live_bytes;
    }
    let mut watched = Ok(BTreeMap::new());
    let workers = (0..threads).map(|owner| Worker::<H>::new(owner, plan)).collect::<Result<Vec<_>, _>>()?;
    let (reading, workers) =
        Crew::default().afterwards(|| watched = watch(quiet)).run(workers, Worker::load)?;
    for mut worker in workers {
        worker.free(|_| false)?;
    }
    Ok(Figures {
        reading,
        expected_operations: u64::from(threads) * plan.cycles * plan.blocks as u64,
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

/// Whether a block is one of the `live` per cent that stay.
fn stays(index: usize, live: usize) -> bool {
    index * live / 100 != (index + 1) * live / 100
}

impl<H: Heap> Worker<H> {
    fn new(owner: u32, plan: Plan) -> Result<Self, Failure> {
        let blocks = Slots::with_capacity(plan.blocks)?;
        Ok(Self { heap: H::of(owner), random: Random::stream(owner.into()), plan, blocks })
    }

    fn load(&mut self) -> Result<u64, Failure> {
        let Plan { blocks, cycles, min, max, live } = self.plan;
        let mut done = 0;
        for cycle in 1..=cycles {
            for _ in 0..blocks {
                let size = self.random.even_in_logarithm(min, max);
                let block = self.heap.allocate(size)?;
                // SAFETY: fresh, of this size, and this worker's alone.
                unsafe { self.heap.fill(block, size)? };
                self.blocks.push(block);
                done += 1;
            }
            self.free(|index| cycle == cycles && stays(index, live))?;
        }
        Ok(done)
    }

    /// Frees all blocks but those that are `kept`.
    fn free(&mut self, kept: impl Fn(usize) -> bool) -> Result<(), Failure> {
        let mut left = 0;
        for index in 0..self.blocks.len() {
            let block = self.blocks[index];
            if kept(index) {
                self.blocks[left] = block;
                left += 1;
            } else {
                // SAFETY: the slots hold live blocks, each once; those of freed ones are given up below.
                unsafe { self.heap.free(block)? };
            }
        }
        self.blocks.truncate(left);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::heap::recording::Recording;

    #[test]
    fn as_much_as_asked_for_is_live_after_the_load_and_its_peak_is_foreseen() {
        for (live, left) in [(0, 0), (4, 4), (100, 100)] {
            let plan = Plan { blocks: 100, cycles: 3, min: 512, max: 512, live };
            let mut worker = Worker::<Recording>::new(0, plan).expect("mapped");
            assert_eq!(worker.load(), Ok(300));
            assert_eq!(worker.heap.live_bytes, left * 512);
            let mut tally = Worker::<Tally>::new(0, plan).expect("mapped");
            assert_eq!(tally.load(), Ok(300));
            assert_eq!(worker.heap.peak_live_bytes as u64, tally.heap.peak_live_bytes);
            worker.free(|_| false).expect("live blocks");
            assert_eq!(worker.heap.live_bytes, 0);
        }
    }

    #[test]
    fn what_stays_is_spread_evenly() {
        let kept: Vec<_> = (0..400).filter(|&index| stays(index, 1)).collect();
        assert_eq!(kept, [99, 199, 299, 399]);
    }

    #[test]
    fn memory_is_read_at_each_moment_within_the_quiet() {
        let names = |quiet| watch(quiet).expect("readable").into_keys().collect::<Vec<_>>();
        assert_eq!(names(0), ["rss_after_00000_ms_bytes"]);
        assert_eq!(names(100), ["rss_after_00000_ms_bytes", "rss_after_00100_ms_bytes"]);
    }
}
