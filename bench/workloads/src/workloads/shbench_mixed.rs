//! **shbench-mixed**: shbench's life cycle over a wide mix of sizes, with one thread that gives.
//!
//! *Definition.* Each thread has a buffer of `slots` slots with shbench's life cycle: when it is full, a
//! window of a fifth is kept, which moves on. It goes `repeats` times through a fixed mix of sizes
//! from 168 KiB down to 8 B, small ones many times and large ones few. In each pass, the first
//! thread alone also allocates `gift` small blocks (8 to 64 B in turn) and pushes them to another
//! thread, one after the other in turn; each thread frees at the end of each pass what it was given.
//! A thread that runs alone gives to itself. One operation is one block: a malloc, a byte written and
//! a free. What was given and not taken when its receiver ended is freed after the measured part.
//!
//! *Source.* MicroQuill's shbench in its later form, known as sh8.
//!
//! *Deviations.* The idea is sh8's; mix, counts and batches are ours. A thread's live bytes count as
//! if each gift were freed in the pass after it was made.

use std::collections::BTreeMap;

use super::shbench::{Buffer, Step};
use crate::definition::{Definition, Figures, Knob, Settings, Stop};
use crate::harness::crew::Crew;
use crate::harness::failure::Failure;
use crate::harness::heap::Heap;
use crate::harness::inbox::Inbox;
use crate::harness::tally::Tally;

/// shbench-mixed.
pub const DEFINITION: Definition = Definition {
    name: "shbench-mixed",
    tells: "How well small and large blocks live side by side, while one thread allocates what all the \
            others free.",
    source: "MicroQuill's shbench in its later form (sh8), after its idea",
    operation: "a block: a malloc, a byte written and a free",
    knobs: &[
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
            meaning: "Times that each thread goes through the mix.",
            unit: "count",
            default: 1_500,
            test: 5,
            range: 1..=1 << 32,
        },
        Knob {
            name: "gift",
            meaning: "Small blocks that the first thread allocates for another in each pass.",
            unit: "count",
            default: 500,
            test: 100,
            range: 0..=1 << 24,
        },
    ],
    max_threads: None,
    check: |_| Ok(()),
    run: on_heap!(run),
};

/// The mix, as one descending ramp.
const MIX: [Step; 17] = [
    (168 << 10, 1),
    (64 << 10, 2),
    (32 << 10, 2),
    (16 << 10, 4),
    (8 << 10, 8),
    (4 << 10, 16),
    (2 << 10, 32),
    (1 << 10, 64),
    (512, 100),
    (256, 150),
    (128, 200),
    (64, 200),
    (48, 200),
    (32, 200),
    (24, 200),
    (16, 100),
    (8, 100),
];

/// Sizes of the blocks of a gift, in turn, in bytes.
const GIFT_SIZES: [usize; 4] = [8, 16, 32, 64];

/// Where a thread's gifts arrive.
type Gifts<H> = Inbox<Vec<<H as Heap>::Block>>;

struct Worker<'run, H: Heap> {
    heap: H,
    buffer: Buffer<H>,
    inbox: &'run Gifts<H>,
    /// Those to give to, in turn; none for all threads but the first.
    receivers: &'run [Gifts<H>],
}

fn run<H: Heap>(settings: &Settings) -> Result<Figures, Stop> {
    let threads = settings.threads as usize;
    let (slots, repeats) = (settings.size("slots"), settings.count("repeats"));
    let gift = settings.size("gift");
    let giving = foreseen_peak(slots, repeats, gift, true)?;
    let others = if threads > 1 { foreseen_peak(slots, repeats, gift, false)? } else { 0 };

    let inboxes: Vec<Gifts<H>> = (0..threads).map(|_| Inbox::default()).collect();
    let worker = |owner: usize| {
        let receivers = match owner {
            0 => &inboxes[usize::from(threads > 1)..],
            _ => &[],
        };
        Worker::<H>::new(owner as u32, slots, &inboxes[owner], receivers)
    };
    let workers = (0..threads).map(worker).collect::<Result<Vec<_>, _>>()?;
    let (reading, workers) = Crew::default().run(workers, |worker| worker.all_passes(repeats, gift))?;
    for mut worker in workers {
        worker.free_gifts()?;
    }
    let in_mix = MIX.iter().map(|&(_, times)| times).sum::<u64>();
    Ok(Figures {
        reading,
        expected_operations: repeats * (threads as u64 * in_mix + gift as u64),
        peak_live_bytes: Some(giving + (threads as u64 - 1) * others),
        extra: BTreeMap::new(),
    })
}

/// The most bytes that a thread holds: one that gives to itself, or one that neither gives nor takes.
fn foreseen_peak(slots: usize, repeats: u64, gift: usize, gives: bool) -> Result<u64, Failure> {
    let inboxes = [Inbox::default()];
    let receivers = if gives { &inboxes[..] } else { &[] };
    let mut tally = Worker::<Tally>::new(0, slots, &inboxes[0], receivers)?;
    tally.all_passes(repeats, gift)?;
    Ok(tally.heap.peak_live_bytes)
}

impl<'run, H: Heap> Worker<'run, H> {
    fn new(
        owner: u32,
        slots: usize,
        inbox: &'run Gifts<H>,
        receivers: &'run [Gifts<H>],
    ) -> Result<Self, Failure> {
        Ok(Self { heap: H::of(owner), buffer: Buffer::new(slots)?, inbox, receivers })
    }

    fn all_passes(&mut self, repeats: u64, gift: usize) -> Result<u64, Failure> {
        let mut done = 0;
        let mut receivers = self.receivers.iter().cycle();
        for _ in 0..repeats {
            for (size, times) in MIX {
                for _ in 0..times {
                    let block = self.block(size)?;
                    self.buffer.put(&mut self.heap, block)?;
                    done += 1;
                }
            }
            self.free_gifts()?;
            if let Some(receiver) = receivers.next() {
                let mut blocks = Vec::with_capacity(gift);
                for &size in GIFT_SIZES.iter().cycle().take(gift) {
                    blocks.push(self.block(size)?);
                    done += 1;
                }
                receiver.push(blocks);
            }
        }
        self.buffer.empty(&mut self.heap)?;
        Ok(done)
    }

    fn block(&mut self, size: usize) -> Result<H::Block, Failure> {
        let block = self.heap.allocate(size)?;
        // SAFETY: fresh, at least one byte long, and this worker's alone.
        unsafe { self.heap.write(block, 0)? };
        Ok(block)
    }

    fn free_gifts(&mut self) -> Result<(), Failure> {
        for block in self.inbox.drain().flatten() {
            // SAFETY: whoever pushed the block gave it away, and it comes out of the inbox once.
            unsafe { self.heap.free(block)? };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::heap::recording::Recording;

    #[test]
    fn the_mix_descends_from_168_kib_to_8_bytes_and_gifts_are_freed_by_their_receiver() {
        assert!(MIX.is_sorted_by(|larger, smaller| larger.0 > smaller.0));
        assert_eq!((MIX[0].0, MIX[16].0), (172_032, 8));
        let inboxes = [Inbox::default()];
        let mut worker = Worker::<Recording>::new(0, 500, &inboxes[0], &inboxes).expect("mapped");
        let in_mix = MIX.iter().map(|&(_, times)| times).sum::<u64>();
        assert_eq!(worker.all_passes(3, 100), Ok(3 * (in_mix + 100)));
        // The last gift still waits.
        assert_eq!(worker.heap.live_bytes, 25 * (8 + 16 + 32 + 64));
        worker.free_gifts().expect("freed");
        assert_eq!(worker.heap.live_bytes, 0);
        assert_eq!(worker.heap.peak_live_bytes as u64, foreseen_peak(500, 3, 100, true).expect("known"));
        assert!(worker.heap.sizes.iter().all(|&size| (8..=172_032).contains(&size)));
    }
}
