//! **threadtest**: many blocks of one size, all freed by the thread that allocated them.
//!
//! *Definition.* P threads; `rounds` rounds; in each, every thread allocates M/P objects of `size`
//! bytes (M = `objects`; M/P is rounded down) and writes each one's first byte, then frees them in the
//! order of allocation. One operation is one malloc or one free. Caches of a thread are overrun in every round. The work is
//! divided among the threads, so that each one's live set shrinks as threads are added while that of
//! the process stays: the definition wants it so.
//!
//! *Source.* Berger et al., Hoard (2000), through the "elfmalloc Performance Evaluation" (2017), which
//! runs it with small (64 B) and medium objects (here 4096 B, `--set size=4096`).
//!
//! *Deviations.* The original's constructor writes two integers; here it is one byte, enough to make the
//! page resident: an allocator's memory must not look small for never having been used. The pointers
//! are kept in pages outside the heap.

use std::collections::BTreeMap;

use crate::definition::{Definition, Figures, Knob, MAX_SIZE, Settings, Stop};
use crate::harness::crew::Crew;
use crate::harness::failure::Failure;
use crate::harness::heap::Heap;
use crate::harness::slots::Slots;

/// threadtest.
pub const DEFINITION: Definition = Definition {
    name: "threadtest",
    tells: "How fast bursts of blocks of one size are allocated and freed again by their own thread, beyond \
            what a thread's cache holds.",
    source: "Berger et al. 2000 (Hoard), in the sizes of the elfmalloc evaluation 2017",
    operation: "a malloc or a free",
    knobs: &[
        Knob {
            name: "size",
            meaning: "Size of each object.",
            unit: "bytes",
            default: 64,
            test: 64,
            range: 0..=MAX_SIZE,
        },
        Knob {
            name: "objects",
            meaning: "Objects that all threads together hold at the end of a round's first half.",
            unit: "count",
            default: 100_000,
            test: 5_000,
            range: 1..=1 << 32,
        },
        Knob {
            name: "rounds",
            meaning: "Rounds that each thread does.",
            unit: "count",
            default: 150,
            test: 4,
            range: 1..=1 << 20,
        },
    ],
    max_threads: None,
    check: |settings| match settings.count("objects") >= u64::from(settings.threads) {
        true => Ok(()),
        false => Err(format!("objects must be at least the number of threads, {}", settings.threads)),
    },
    run: on_heap!(run),
};

struct Worker<H: Heap> {
    heap: H,
    objects: Slots<H::Block>,
}

fn run<H: Heap>(settings: &Settings) -> Result<Figures, Stop> {
    let threads = settings.threads;
    let (size, rounds) = (settings.size("size"), settings.count("rounds"));
    let share = settings.size("objects") / threads as usize;
    let worker = |owner| Ok(Worker { heap: H::of(owner), objects: Slots::with_capacity(share)? });
    let workers = (0..threads).map(worker).collect::<Result<Vec<_>, Failure>>()?;
    let (reading, _) = Crew::default().run(workers, |worker| worker.all_rounds(rounds, share, size))?;
    let held = u64::from(threads) * share as u64;
    Ok(Figures {
        reading,
        expected_operations: 2 * rounds * held,
        peak_live_bytes: Some(held * size as u64),
        extra: BTreeMap::new(),
    })
}

impl<H: Heap> Worker<H> {
    fn all_rounds(&mut self, rounds: u64, share: usize, size: usize) -> Result<u64, Failure> {
        let mut done = 0;
        for _ in 0..rounds {
            for _ in 0..share {
                let object = self.heap.allocate(size)?;
                // SAFETY: fresh, at least one byte long, and this worker's alone.
                unsafe { self.heap.write(object, 0)? };
                self.objects.push(object);
                done += 1;
            }
            for &object in self.objects.iter() {
                // SAFETY: the object was allocated in this round, and is freed only here.
                unsafe { self.heap.free(object)? };
                done += 1;
            }
            self.objects.clear();
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::heap::recording::Recording;

    #[test]
    fn each_round_holds_the_whole_share_and_frees_it_in_the_order_of_allocation() {
        let objects = Slots::with_capacity(100).expect("mapped");
        let mut worker = Worker { heap: Recording::of(0), objects };
        assert_eq!(worker.all_rounds(3, 100, 64), Ok(2 * 3 * 100));
        let Recording { sizes, freed, live_bytes, peak_live_bytes } = worker.heap;
        assert_eq!(sizes, [64; 300]);
        assert_eq!(freed, (0..300).collect::<Vec<_>>());
        assert_eq!((peak_live_bytes, live_bytes), (6400, 0));
    }
}
