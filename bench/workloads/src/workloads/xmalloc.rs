//! **xmalloc**: some threads only allocate, and as many others only free.
//!
//! *Definition.* With `--threads W`, W producers and W consumers: twice as many threads as the number
//! says, which is xmalloc-test's `-w`. Each producer does `batches` times { allocate 4096 blocks of
//! `size` bytes, write all of each, and put them as one batch into a bounded queue }; the consumers take
//! batches out as soon as the queue was full once, free the blocks and the batch, until the producers are done
//! and the queue is empty. One operation is one block freed; a consumer that finds the queue empty waits, and
//! that counts for nothing.
//!
//! *Source.* xmalloc-test by Lever & Boreham and Eder, as changed by Kuszmaul for SuperMalloc and run by
//! mimalloc-bench (`-w N -s 64 -t 5`, N being the number of CPUs): blocks that cross threads in one
//! direction only.
//!
//! *Deviations.* The original runs for a given time; ours does a given amount of work. It counts a batch for
//! a consumer that finds none when the time is up, ours counts blocks. Its consumers take the newest
//! batch of at most 100 that wait, ours the oldest of at most `capacity`; it writes at most 128 bytes of a
//! block. Its consumers begin at once: then how many bytes are live at the peak depends on who runs when,
//! and what memory a run needs says little of the allocator.

use std::collections::BTreeMap;

use crate::definition::{Definition, Figures, Knob, MAX_SIZE, MAX_THREADS, Settings, Stop};
use crate::harness::crew::Crew;
use crate::harness::failure::Failure;
use crate::harness::heap::Heap;
use crate::harness::queue::Queue;

/// xmalloc.
pub const DEFINITION: Definition = Definition {
    name: "xmalloc",
    tells: "What it costs when all blocks are allocated by one thread and freed by another: W threads are W \
            producers and W consumers.",
    source: "xmalloc-test -w W, as in mimalloc-bench, with a fixed total of work",
    operation: "a block freed by another thread than allocated it",
    knobs: &[
        Knob {
            name: "size",
            meaning: "Size of each block.",
            unit: "bytes",
            default: 64,
            test: 64,
            range: 1..=MAX_SIZE,
        },
        Knob {
            name: "batches",
            meaning: "Batches of 4096 blocks that each producer makes.",
            unit: "count",
            default: 1_000,
            test: 5,
            range: 1..=1 << 32,
        },
        Knob {
            name: "capacity",
            meaning: "Batches that the queue holds.",
            unit: "count",
            default: 16,
            test: 4,
            range: 1..=1 << 16,
        },
    ],
    // Each stands for two workers.
    max_threads: Some(MAX_THREADS / 2),
    check: |_| Ok(()),
    run: on_heap!(run),
};

/// Blocks of a batch.
const BATCH: usize = 4096;

type Batches<H> = Queue<Vec<<H as Heap>::Block>>;

struct Worker<H> {
    heap: H,
    produces: bool,
}

fn run<H: Heap>(settings: &Settings) -> Result<Figures, Stop> {
    let producers = settings.threads;
    let threads = 2 * producers;
    let (size, batches) = (settings.size("size"), settings.count("batches"));
    let queue = Batches::<H>::new(settings.size("capacity"), producers as usize);
    let workers = (0..threads).map(|owner| Worker { heap: H::of(owner), produces: owner < producers });
    let (reading, _) = Crew::default().run(workers.collect(), |worker| {
        let work = match worker.produces {
            true => worker.produce(&queue, batches, size),
            false => worker.consume(&queue),
        };
        work.inspect_err(|_| queue.break_off())
    })?;
    let held = queue.most() as u64 + u64::from(threads);
    Ok(Figures {
        reading,
        expected_operations: u64::from(producers) * batches * BATCH as u64,
        peak_live_bytes: Some(held * (BATCH * size) as u64),
        extra: BTreeMap::from([("most_batches_queued".into(), queue.most() as f64)]),
    })
}

impl<H: Heap> Worker<H> {
    fn produce(&mut self, queue: &Batches<H>, batches: u64, size: usize) -> Result<u64, Failure> {
        for _ in 0..batches {
            let mut batch = Vec::with_capacity(BATCH);
            for _ in 0..BATCH {
                let block = self.heap.allocate(size)?;
                // SAFETY: fresh, of this size, and this worker's alone.
                unsafe { self.heap.fill(block, size)? };
                batch.push(block);
            }
            if queue.push(batch).is_err() {
                // Another worker failed, and its failure is the run's.
                return Ok(0);
            }
        }
        queue.writer_done();
        Ok(0)
    }

    fn consume(&mut self, queue: &Batches<H>) -> Result<u64, Failure> {
        let mut freed = 0;
        while let Some(batch) = queue.pop() {
            for block in batch {
                // SAFETY: the producer gave the block away, and it comes out of the queue once.
                unsafe { self.heap.free(block)? };
                freed += 1;
            }
        }
        Ok(freed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::heap::recording::Recording;

    #[test]
    fn all_blocks_of_a_producer_are_freed_by_the_consumer() {
        let queue = Batches::<Recording>::new(3, 1);
        let mut producer = Worker { heap: Recording::of(0), produces: true };
        assert_eq!(producer.produce(&queue, 3, 64), Ok(0));
        assert_eq!(producer.heap.sizes, [64; 3 * 4096]);
        assert!(producer.heap.freed.is_empty());
        // The record is the producer's, and so the same worker frees here.
        assert_eq!(producer.consume(&queue), Ok(3 * 4096));
        assert_eq!((queue.most(), producer.heap.live_bytes), (3, 0));
    }

    #[test]
    fn a_failure_on_one_side_ends_the_other() {
        let settings =
            DEFINITION.settings(2, true, crate::pass::Pass::Timed, &["size=1000000000000000".into()]);
        let stop = (DEFINITION.run)(&settings.expect("valid")).err().expect("stopped");
        assert!(matches!(stop, Stop::Failed(Failure::Null { .. })), "{stop:?}");
    }
}
