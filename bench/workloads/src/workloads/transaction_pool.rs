//! **transaction-pool**: pooled workers that each take a job, allocate a large block for it, and free it.
//!
//! *Definition.* All threads take jobs from one queue of `transactions`, all present from the start. For
//! each, a worker allocates a block of a size drawn evenly from `min_kib` to `max_kib` KiB, touches the
//! first `touched` per cent of its pages, computes `compute` steps on a local variable, and frees it. One
//! operation is one transaction; their number is fixed for the process. `long_lived` such blocks, all
//! touched, are allocated first and freed last. When the work is done the threads stay idle for `idle`
//! milliseconds, and resident memory is read again.
//!
//! *Source.* "Make the mmap/brk threshold in malloc dynamic to improve performance", a patch on glibc's
//! mailing list (2006): a pool of workers whose transactions use 1 to 8 MiB each. Its other arms: the
//! threshold fixed at its value of 2001 is a matter of the environment
//! (`MALLOC_MMAP_THRESHOLD_=131072`); sizes above the cap of the sliding threshold are `--set
//! min_kib=33000 --set max_kib=40000`; its argument on fragmentation is `--set long_lived=20`.
//!
//! *Deviations.* How much a transaction touches and computes, and how many there are, is ours. The live
//! bytes reported are those of the largest jobs, one for each thread, at once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use super::large_block::compute;
use crate::definition::{Definition, Figures, Knob, Settings, Stop};
use crate::harness::crew::Crew;
use crate::harness::failure::Failure;
use crate::harness::heap::Heap;
use crate::harness::random::Random;
use crate::harness::slots::Slots;
use crate::harness::usage::Memory;

/// transaction-pool.
pub const DEFINITION: Definition = Definition {
    name: "transaction-pool",
    tells: "What large short-lived blocks cost in page faults and kernel time, and whether their memory is \
            given back when the work is done.",
    source: "the patch that made glibc's mmap threshold dynamic, 2006",
    operation: "a transaction: a large block allocated, touched and freed",
    knobs: &[
        Knob {
            name: "transactions",
            meaning: "Jobs in the queue, for all threads together.",
            unit: "operations",
            default: 5_000,
            test: 8,
            range: 1..=1 << 32,
        },
        Knob {
            name: "min_kib",
            meaning: "Least size of a block.",
            unit: "KiB",
            default: 1 << 10,
            test: 256,
            range: 1..=1 << 30,
        },
        Knob {
            name: "max_kib",
            meaning: "Largest size of a block.",
            unit: "KiB",
            default: 8 << 10,
            test: 1 << 10,
            range: 1..=1 << 30,
        },
        Knob {
            name: "touched",
            meaning: "Share of each block's pages that is written to.",
            unit: "per cent",
            default: 100,
            test: 100,
            range: 0..=100,
        },
        Knob {
            name: "compute",
            meaning: "Dependent multiplications in each transaction.",
            unit: "count",
            default: 0,
            test: 100,
            range: 0..=1 << 40,
        },
        Knob {
            name: "long_lived",
            meaning: "Blocks that are allocated before all others and stay.",
            unit: "count",
            default: 0,
            test: 2,
            range: 0..=1 << 20,
        },
        Knob {
            name: "idle",
            meaning: "Time between the end of the work and the second reading of resident memory.",
            unit: "ms",
            default: 1_000,
            test: 5,
            range: 0..=600_000,
        },
    ],
    max_threads: None,
    check: |settings| match settings.count("min_kib") <= settings.count("max_kib") {
        true => Ok(()),
        false => Err("min_kib must not be more than max_kib".into()),
    },
    run: on_heap!(run),
};

/// What a transaction does with its block.
#[derive(Clone, Copy)]
struct Transaction {
    touched: usize,
    compute: usize,
}

/// The jobs, by the sizes of their blocks, and the next one to take.
struct Queue {
    sizes: Slots<usize>,
    next: AtomicUsize,
}

fn run<H: Heap>(settings: &Settings) -> Result<Figures, Stop> {
    let threads = settings.threads;
    let (min, max) = (settings.size("min_kib") << 10, settings.size("max_kib") << 10);
    let transactions = settings.size("transactions");
    let transaction = Transaction { touched: settings.size("touched"), compute: settings.size("compute") };
    let mut random = Random::stream(0);
    let mut main = H::of(threads);
    let (mut long_lived, mut live) = (Vec::new(), 0);
    for _ in 0..settings.count("long_lived") {
        let size = random.between(min, max);
        let block = main.allocate(size)?;
        // SAFETY: fresh, of this size, and known to nobody else.
        unsafe { main.touch(block, size)? };
        long_lived.push(block);
        live += size as u64;
    }
    let mut queue = Queue { sizes: Slots::with_capacity(transactions)?, next: AtomicUsize::new(0) };
    for _ in 0..transactions {
        queue.sizes.push(random.between(min, max));
    }
    let mut largest = queue.sizes.to_vec();
    largest.sort_unstable_by(|a, b| b.cmp(a));
    live += largest.iter().take(threads as usize).map(|&size| size as u64).sum::<u64>();
    drop(largest);

    let idle = Duration::from_millis(settings.count("idle"));
    let mut at_rest = Ok(Memory::default());
    let rest = || {
        sleep(idle);
        at_rest = Memory::now();
    };
    let (reading, _) = Crew::default()
        .afterwards(rest)
        .run((0..threads).map(H::of).collect(), |heap| queue.work_off(heap, transaction))?;
    for block in long_lived {
        // SAFETY: the block is live, and nobody uses it any more.
        unsafe { main.free(block)? };
    }
    let count = transactions as f64;
    Ok(Figures {
        expected_operations: transactions as u64,
        peak_live_bytes: Some(live),
        extra: BTreeMap::from([
            ("transactions_per_s".into(), count * 1e9 / reading.wall_ns().max(1) as f64),
            ("faults_per_transaction".into(), reading.usage.minor_faults as f64 / count),
            ("kernel_share".into(), reading.kernel_share()),
            ("rss_after_idle_bytes".into(), at_rest?.rss_bytes as f64),
        ]),
        reading,
    })
}

impl Queue {
    fn work_off<H: Heap>(&self, heap: &mut H, transaction: Transaction) -> Result<u64, Failure> {
        let mut done = 0;
        // Relaxed: the counter only gives each job out once; the sizes were there before the threads.
        while let Some(&size) = self.sizes.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let block = heap.allocate(size)?;
            // SAFETY: fresh, of at least this size, and this worker's alone.
            unsafe { heap.touch(block, size / 100 * transaction.touched)? };
            compute(transaction.compute);
            // SAFETY: the block is live and no longer used.
            unsafe { heap.free(block)? };
            done += 1;
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::heap::recording::Recording;

    #[test]
    fn each_job_is_done_once_with_one_block_live_at_a_time() {
        let mut queue = Queue { sizes: Slots::with_capacity(3).expect("mapped"), next: AtomicUsize::new(0) };
        [1000, 3000, 2000].into_iter().for_each(|size| queue.sizes.push(size));
        let mut heap = Recording::of(0);
        let transaction = Transaction { touched: 100, compute: 3 };
        assert_eq!(queue.work_off(&mut heap, transaction), Ok(3));
        assert_eq!(queue.work_off(&mut heap, transaction), Ok(0));
        assert_eq!(heap.sizes, [1000, 3000, 2000]);
        assert_eq!((heap.peak_live_bytes, heap.live_bytes), (3000, 0));
    }
}
