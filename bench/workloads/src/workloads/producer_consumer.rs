//! **producer-consumer**: random sizes, tables of blocks, and batches that travel between threads.
//!
//! *Definition.* Each thread has a table of `slots` slots, empty at first. Each of its `loops` loops
//! frees what it finds in a quarter of the slots, stepping by a prime; frees the batches that other
//! threads sent; allocates into a quarter of the slots, stepping by another prime, a block of random
//! size each, and writes to each of its pages (what the slot held is freed before). In every second
//! loop it also builds a batch of a quarter as many blocks and pushes it to the next thread's lock-free
//! stack; the receiver frees the blocks and the batch. Where `backlog` batches wait already, the sender
//! frees what it was sent until there is room. `exchange=0`: no batches. At its end, a thread frees its
//! table, and what it is sent until its sender has ended. A thread that runs alone sends to itself. One
//! operation is one block allocated and freed.
//!
//! Sizes (`distribution`): 0 even, 16 to 1000 B; 1 linear, 16 to 8000 B; 2 linear, 16 to 16 000 B;
//! 3 exponential, 128 to 64 000 B. Linear: the density falls in a straight line to nothing at the upper
//! end. Exponential: it falls to 1/e in each tenth of the range.
//!
//! *Source.* Jansson's rpmalloc-benchmark, through the "elfmalloc Performance Evaluation" (2017).
//!
//! *Deviations.* The exact form of the distributions and the counts are ours. The original's batches wait
//! without a bound: a thread that does not run for ten milliseconds is sent more than all tables hold, and
//! what memory a run needs says little of the allocator. Sizes are drawn before the measured part into a
//! table of 10 007. A thread's live bytes count as if each batch were freed in the loop after it was sent.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::definition::{Definition, Figures, Knob, Settings, Stop};
use crate::harness::crew::Crew;
use crate::harness::failure::Failure;
use crate::harness::heap::Heap;
use crate::harness::inbox::Inbox;
use crate::harness::random::Random;
use crate::harness::slots::Slots;
use crate::harness::tally::Tally;

/// producer-consumer.
pub const DEFINITION: Definition = Definition {
    name: "producer-consumer",
    tells: "How well blocks of random sizes are served that one thread allocates and another frees, in \
            batches, beside a live set of each thread's own.",
    source: "rpmalloc-benchmark (Jansson), through the elfmalloc evaluation 2017",
    operation: "a block: a malloc, a byte written to each page, and a free",
    knobs: &[
        Knob {
            name: "distribution",
            meaning: "Sizes: 0 even 16-1000 B, 1 linear 16-8000 B, 2 linear 16-16000 B, 3 exponential \
                      128-64000 B.",
            unit: "choice",
            default: 0,
            test: 0,
            range: 0..=3,
        },
        Knob {
            name: "exchange",
            meaning: "1: threads send each other batches of blocks.",
            unit: "switch",
            default: 1,
            test: 1,
            range: 0..=1,
        },
        Knob {
            name: "backlog",
            meaning: "Batches that wait for a thread at most.",
            unit: "count",
            default: 4,
            test: 1,
            range: 1..=1 << 32,
        },
        Knob {
            name: "slots",
            meaning: "Slots of each thread's table.",
            unit: "count",
            default: 10_000,
            test: 1_000,
            range: 16..=1 << 32,
        },
        Knob {
            name: "loops",
            meaning: "Loops that each thread does.",
            unit: "count",
            default: 1_000,
            test: 10,
            range: 1..=1 << 32,
        },
    ],
    max_threads: None,
    check: |settings| {
        let slots = settings.size("slots");
        match [FREE_STEP, ALLOCATE_STEP].into_iter().find(|&step| slots.is_multiple_of(step)) {
            Some(step) => Err(format!("slots must not be a multiple of {step}")),
            None => Ok(()),
        }
    },
    run: on_heap!(run),
};

/// Slots between two frees; a prime.
const FREE_STEP: usize = 509;
/// Slots between two allocations; a prime.
const ALLOCATE_STEP: usize = 1031;
/// Sizes drawn beforehand; a prime.
const SIZES: usize = 10_007;

/// How sizes are distributed.
#[derive(Debug, Clone, Copy)]
struct Distribution {
    min: usize,
    max: usize,
    shape: Shape,
}

#[derive(Debug, Clone, Copy)]
enum Shape {
    Even,
    Linear,
    Exponential,
}

const DISTRIBUTIONS: [Distribution; 4] = [
    Distribution { min: 16, max: 1_000, shape: Shape::Even },
    Distribution { min: 16, max: 8_000, shape: Shape::Linear },
    Distribution { min: 16, max: 16_000, shape: Shape::Linear },
    Distribution { min: 128, max: 64_000, shape: Shape::Exponential },
];

impl Distribution {
    /// A size: the inverse of the distribution function at a random point.
    fn size(self, random: &mut Random) -> usize {
        let point = random.unit();
        let share = match self.shape {
            Shape::Even => point,
            Shape::Linear => 1.0 - (1.0 - point).sqrt(),
            Shape::Exponential => -(1.0 - point * (1.0 - (-10f64).exp())).ln() / 10.0,
        };
        (self.min + (share * (self.max - self.min + 1) as f64) as usize).min(self.max)
    }

    fn sizes(self) -> Vec<usize> {
        let mut random = Random::stream(0);
        (0..SIZES).map(|_| self.size(&mut random)).collect()
    }
}

/// Where a thread's batches arrive.
struct Mailbox<H: Heap> {
    batches: Inbox<Vec<H::Block>>,
    /// Batches that its thread has not freed.
    waiting: AtomicU64,
    backlog: u64,
    /// Whether it gets no more, or is no longer looked into.
    closed: AtomicBool,
}

impl<H: Heap> Mailbox<H> {
    fn new(backlog: u64) -> Self {
        Self {
            batches: Inbox::default(),
            waiting: AtomicU64::new(0),
            backlog,
            closed: AtomicBool::new(false),
        }
    }

    fn has_room(&self) -> bool {
        // Relaxed: only the sender adds to it, and the batches themselves are passed on by the inbox.
        self.waiting.load(Ordering::Relaxed) < self.backlog || self.is_closed()
    }

    fn put(&self, batch: Vec<H::Block>) {
        // Relaxed: as above.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.batches.push(batch);
    }

    fn close(&self) {
        // Release: pairs with the Acquire in `is_closed`: what was put in before is found after.
        self.closed.store(true, Ordering::Release);
    }

    fn is_closed(&self) -> bool {
        // Acquire: pairs with the Release in `close`.
        self.closed.load(Ordering::Acquire)
    }
}

struct Worker<'run, H: Heap> {
    heap: H,
    sizes: &'run [usize],
    next_size: usize,
    table: Slots<Option<H::Block>>,
    inbox: &'run Mailbox<H>,
    outbox: Option<&'run Mailbox<H>>,
}

fn run<H: Heap>(settings: &Settings) -> Result<Figures, Stop> {
    let threads = settings.threads as usize;
    let (slots, loops) = (settings.size("slots"), settings.count("loops"));
    let exchange = settings.switch("exchange");
    let sizes = DISTRIBUTIONS[settings.size("distribution")].sizes();
    let mut peak_live_bytes = 0;
    for owner in 0..threads {
        peak_live_bytes += foreseen_peak(owner, slots, loops, exchange, &sizes)?;
    }
    let backlog = settings.count("backlog");
    let inboxes: Vec<Mailbox<H>> = (0..threads).map(|_| Mailbox::new(backlog)).collect();
    let worker = |owner| {
        let outbox = exchange.then_some(&inboxes[(owner + 1) % threads]);
        Worker::<H>::new(owner, slots, &sizes, &inboxes[owner], outbox)
    };
    let workers = (0..threads).map(worker).collect::<Result<Vec<_>, _>>()?;
    let (reading, _) = Crew::default().run(workers, |worker| worker.all(loops))?;
    Ok(Figures {
        reading,
        expected_operations: threads as u64 * blocks_of_a_thread(slots, loops, exchange),
        peak_live_bytes: Some(peak_live_bytes),
        extra: BTreeMap::from([(
            "mean_size_bytes".into(),
            sizes.iter().sum::<usize>() as f64 / sizes.len() as f64,
        )]),
    })
}

fn blocks_of_a_thread(slots: usize, loops: u64, exchange: bool) -> u64 {
    let share = slots as u64 / 4;
    loops * share + if exchange { loops / 2 * (share / 4) } else { 0 }
}

/// The most bytes that a thread holds that sends to itself.
fn foreseen_peak(
    owner: usize,
    slots: usize,
    loops: u64,
    exchange: bool,
    sizes: &[usize],
) -> Result<u64, Failure> {
    let inbox = Mailbox::new(1);
    let mut tally = Worker::<Tally>::new(owner, slots, sizes, &inbox, exchange.then_some(&inbox))?;
    tally.all(loops)?;
    Ok(tally.heap.peak_live_bytes)
}

impl<'run, H: Heap> Worker<'run, H> {
    fn new(
        owner: usize,
        slots: usize,
        sizes: &'run [usize],
        inbox: &'run Mailbox<H>,
        outbox: Option<&'run Mailbox<H>>,
    ) -> Result<Self, Failure> {
        let (heap, table) = (H::of(owner as u32), Slots::filled(slots, None)?);
        Ok(Self { heap, sizes, next_size: owner * 1_009 % sizes.len(), table, inbox, outbox })
    }

    /// All that a thread does, and the blocks that it allocated.
    fn all(&mut self, loops: u64) -> Result<u64, Failure> {
        let done = self.all_loops(loops);
        self.outbox.into_iter().for_each(Mailbox::close);
        let done = done.and_then(|done| self.free_what_comes().map(|()| done));
        // Also after a failure: nobody waits for this thread any more, in either direction.
        self.inbox.close();
        done
    }

    /// Frees what it is sent until its sender has ended.
    fn free_what_comes(&mut self) -> Result<(), Failure> {
        while self.outbox.is_some() && !self.inbox.is_closed() {
            self.free_batches()?;
            std::thread::yield_now();
        }
        self.free_batches()
    }

    fn all_loops(&mut self, loops: u64) -> Result<u64, Failure> {
        let mut done = 0;
        let share = self.table.len() / 4;
        let (mut to_free, mut to_fill) = (0, 0);
        for turn in 0..loops {
            for _ in 0..share {
                self.empty(to_free)?;
                to_free = (to_free + FREE_STEP) % self.table.len();
            }
            self.free_batches()?;
            for _ in 0..share {
                self.empty(to_fill)?;
                self.table[to_fill] = Some(self.block()?);
                done += 1;
                to_fill = (to_fill + ALLOCATE_STEP) % self.table.len();
            }
            if let Some(outbox) = self.outbox.filter(|_| turn % 2 == 1) {
                let mut batch = Vec::with_capacity(share / 4);
                for _ in 0..share / 4 {
                    batch.push(self.block()?);
                    done += 1;
                }
                while !outbox.has_room() {
                    self.free_batches()?;
                    std::thread::yield_now();
                }
                outbox.put(batch);
            }
        }
        for slot in 0..self.table.len() {
            self.empty(slot)?;
        }
        Ok(done)
    }

    fn block(&mut self) -> Result<H::Block, Failure> {
        let size = self.sizes[self.next_size];
        self.next_size = (self.next_size + 1) % self.sizes.len();
        let block = self.heap.allocate(size)?;
        // SAFETY: fresh, of this size, and this worker's alone.
        unsafe { self.heap.touch(block, size)? };
        Ok(block)
    }

    fn empty(&mut self, slot: usize) -> Result<(), Failure> {
        match self.table[slot].take() {
            // SAFETY: the table holds live blocks, each once, and this one no longer.
            Some(block) => unsafe { self.heap.free(block) },
            None => Ok(()),
        }
    }

    fn free_batches(&mut self) -> Result<(), Failure> {
        for batch in self.inbox.batches.drain() {
            for &block in &batch {
                // SAFETY: whoever sent the block gave it away, and it comes out of the inbox once.
                unsafe { self.heap.free(block)? };
            }
            drop(batch);
            // Relaxed: see `has_room`.
            self.inbox.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::heap::Plain;
    use crate::harness::heap::recording::Recording;

    #[test]
    fn sizes_have_the_means_and_bounds_of_their_distributions() {
        // Means: middle; a third of the range; a tenth of it, less what is cut off.
        let expected = [508.0, 16.0 + 7984.0 / 3.0, 16.0 + 15_984.0 / 3.0, 128.0 + 63_872.0 * 0.099_95];
        for (distribution, expected) in DISTRIBUTIONS.into_iter().zip(expected) {
            let mut random = Random::stream(1);
            let sizes: Vec<_> = (0..100_000).map(|_| distribution.size(&mut random)).collect();
            assert!(sizes.iter().all(|size| (distribution.min..=distribution.max).contains(size)));
            let mean = sizes.iter().sum::<usize>() as f64 / sizes.len() as f64;
            // Standard errors are at most 0.3 % of the mean: five of them.
            assert!((mean / expected - 1.0).abs() < 0.016, "{distribution:?}: {mean}");
        }
    }

    #[test]
    fn a_quarter_turns_over_in_each_loop_and_every_second_sends_a_batch() {
        let sizes = DISTRIBUTIONS[0].sizes();
        for exchange in [false, true] {
            let inbox = Mailbox::new(1);
            let outbox = exchange.then_some(&inbox);
            let mut worker = Worker::<Recording>::new(0, 1000, &sizes, &inbox, outbox).expect("mapped");
            let blocks = 12 * 250 + if exchange { 6 * 62 } else { 0 };
            assert_eq!(worker.all_loops(12), Ok(blocks));
            assert_eq!(blocks_of_a_thread(1000, 12, exchange), blocks);
            let waiting = worker.heap.sizes.len() - worker.heap.freed.len();
            assert_eq!(waiting, if exchange { 62 } else { 0 });
            worker.free_batches().expect("freed");
            assert_eq!(worker.heap.live_bytes, 0);
            let foreseen = foreseen_peak(0, 1000, 12, exchange, &sizes).expect("known");
            assert_eq!(worker.heap.peak_live_bytes as u64, foreseen);
        }
    }

    #[test]
    fn a_mailbox_has_room_for_its_backlog_and_for_all_once_it_is_closed() {
        let mailbox = Mailbox::<Recording>::new(2);
        for room in [true, true, false] {
            assert_eq!(mailbox.has_room(), room);
            mailbox.put(Vec::new());
        }
        mailbox.close();
        assert!(mailbox.has_room());
    }

    #[test]
    fn threads_that_send_to_each_other_free_all_that_they_are_sent() {
        let sizes = DISTRIBUTIONS[0].sizes();
        let mailboxes = [Mailbox::<Plain>::new(1), Mailbox::new(1)];
        let counts: Vec<_> = std::thread::scope(|scope| {
            let workers = [0, 1].map(|owner| {
                let (sizes, mailboxes) = (&sizes, &mailboxes);
                scope.spawn(move || {
                    let (inbox, outbox) = (&mailboxes[owner], &mailboxes[1 - owner]);
                    // One has more to do than the other, which goes on freeing.
                    let mut worker = Worker::new(owner, 1000, sizes, inbox, Some(outbox)).expect("mapped");
                    worker.all(12 + 20 * owner as u64).expect("freed")
                })
            });
            workers.into_iter().map(|worker| worker.join().expect("ended")).collect()
        });
        assert_eq!(counts, [12 * 250 + 6 * 62, 32 * 250 + 16 * 62]);
        // Relaxed: nobody else is there any more.
        assert!(mailboxes.iter().all(|mailbox| mailbox.waiting.load(Ordering::Relaxed) == 0));
        assert!(mailboxes.iter().all(|mailbox| mailbox.batches.drain().next().is_none()));
    }

    #[test]
    fn a_thread_whose_malloc_fails_keeps_no_other_waiting() {
        let sizes = DISTRIBUTIONS[0].sizes();
        let more_than_there_is = isize::MAX as usize;
        // The first fails in its third turn, after its first batch and before it frees the second one's.
        let of_first: Vec<usize> = sizes.iter().copied().take(700).chain([more_than_there_is]).collect();
        let mailboxes = [Mailbox::<Plain>::new(1), Mailbox::new(1)];
        let results = std::thread::scope(|scope| {
            let mailboxes = &mailboxes;
            let worker = |owner: usize, sizes| {
                let (inbox, outbox) = (&mailboxes[owner], &mailboxes[1 - owner]);
                scope.spawn(move || {
                    let mut worker = Worker::new(0, 1000, sizes, inbox, Some(outbox)).expect("mapped");
                    worker.all(40)
                })
            };
            [worker(0, &of_first), worker(1, &sizes)].map(|thread| thread.join().expect("ended"))
        });
        assert_eq!(results, [Err(Failure::Null { size: more_than_there_is }), Ok(40 * 250 + 20 * 62)]);
    }
}
