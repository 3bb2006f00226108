//! **migration**: threads that share nothing, and how much of the memory that each gets another one used last.
//!
//! *Definition.* Each thread has `slots` slots, empty at first. In each of `rounds` rounds it fills the empty ones with blocks, whose sizes are drawn evenly in their logarithm
//! from `min` to `max` and of which it writes the first byte and the last, and then frees nine of ten, in another order; at its end all. One operation is one block: a malloc, two bytes written,
//! and a free. No thread ever sees a block of another.
//!
//! After the measured part the same is done again by new threads, which note for the first and the last cache line of each block who wrote to it last. `others_per_cent`: of so many of
//! the lines that had been noted before that was another thread, so that they lie in another processor's caches, or behind them. `noted_lines` is how many those are; that figure is of one run in which threads
//! meet as they happen to, and differs a little between runs.
//!
//! *Source.* Ours; the question is that of D. Dice & A. Garthwaite, "Mostly Lock-Free Malloc" (ISMM 2002), and of each allocator with caches for threads or processors: what does one thread's memory
//! have to do with the others'?
//!
//! *Deviations.* None. Notes are kept in a table by a hash of the line's address, in which a later one may take the place of an earlier one of another line: lines are missed for that, but hardly one
//! of sixteen million lines that share an entry is taken for another.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::definition::{Definition, Figures, Knob, MAX_SIZE, Settings, Stop};
use crate::harness::crew::Crew;
use crate::harness::failure::Failure;
use crate::harness::heap::Heap;
use crate::harness::random::Random;
use crate::harness::slots::Slots;
use crate::harness::tally::Tally;
use crate::harness::topology::cache_line_bytes;

/// migration.
pub const DEFINITION: Definition = Definition {
    name: "migration",
    tells: "How much of the memory that a thread gets another one used last, although the threads share nothing.",
    source: "ours",
    operation: "a block: a malloc, two bytes written and a free",
    knobs: &[
        Knob {
            name: "min",
            meaning: "Least size of a block.",
            unit: "bytes",
            default: 16,
            test: 16,
            range: 1..=MAX_SIZE,
        },
        Knob {
            name: "max",
            meaning: "Largest size of a block.",
            unit: "bytes",
            default: 8192,
            test: 1024,
            range: 1..=MAX_SIZE,
        },
        Knob {
            name: "slots",
            meaning: "Blocks that each thread has at a time.",
            unit: "count",
            default: 2000,
            test: 200,
            range: 1..=1 << 32,
        },
        Knob {
            name: "rounds",
            meaning: "How often each thread fills its slots.",
            unit: "count",
            default: 300,
            test: 5,
            range: 1..=1 << 40,
        },
    ],
    max_threads: Some(254),
    check: |settings| match settings.count("min") > settings.count("max") {
        true => Err("min must not be more than max".into()),
        false => Ok(()),
    },
    run: on_heap!(run),
};

/// Entries in the table of notes: 8 MiB.
const NOTES: usize = 1 << 21;
/// Lowest bits of a note that say who wrote; the others tell lines of one entry apart.
const WRITER_BITS: u32 = 8;

/// Who wrote last to lines of memory.
struct Notes {
    /// Outside the heap: what it took there of free memory the threads would get no more.
    table: Slots<u32>,
    line: usize,
}

impl Notes {
    fn new() -> Result<Self, Failure> {
        Ok(Self { table: Slots::filled(NOTES, 0)?, line: cache_line_bytes() })
    }

    /// Notes that `writer`, not 0, writes to the line of an address; who did so before, if that is known.
    fn write(&self, address: usize, writer: u8) -> Option<u8> {
        // Fibonacci hashing (Knuth): the upper bits of the product say where, the next ones which.
        let hash = ((address / self.line) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let (place, line) = ((hash >> 43) as usize, (hash >> 11) as u32 & !0 << WRITER_BITS);
        // SAFETY: an element of the table, which lives as long as this and is reached in this way only.
        let note = unsafe { AtomicU32::from_ptr(self.table.place(place)) };
        // Relaxed: each note stands for itself.
        let before = note.swap(line | u32::from(writer), Ordering::Relaxed);
        (before & !0 << WRITER_BITS == line && before as u8 != 0).then_some(before as u8)
    }
}

/// Lines that had been noted, and those of them that another thread had written to last.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Found {
    noted: u64,
    others: u64,
}

struct Worker<'notes, H: Heap> {
    heap: H,
    random: Random,
    slots: Slots<Option<H::Block>>,
    /// The least and the largest.
    sizes: (usize, usize),
    /// The notes, and its name there.
    notes: Option<(&'notes Notes, u8)>,
    found: Found,
}

fn run<H: Heap>(settings: &Settings) -> Result<Figures, Stop> {
    let (threads, rounds, slots) = (settings.threads, settings.count("rounds"), settings.size("slots"));
    let sizes = (settings.size("min"), settings.size("max"));
    let (mut peak_live_bytes, mut operations) = (0, 0);
    for owner in 0..threads {
        let mut tally = Worker::<Tally>::new(owner, slots, sizes, None)?;
        operations += tally.all_rounds(rounds)?;
        peak_live_bytes += tally.heap.peak_live_bytes;
    }
    let crew = |notes| -> Result<_, Failure> {
        let workers = (0..threads).map(|owner| Worker::<H>::new(owner, slots, sizes, notes));
        Crew::default().run(workers.collect::<Result<Vec<_>, _>>()?, |worker| worker.all_rounds(rounds))
    };
    let (reading, _) = crew(None)?;
    let notes = Notes::new()?;
    let (_, workers) = crew(Some(&notes))?;
    let sum = |of: fn(&Found) -> u64| workers.iter().map(|worker| of(&worker.found)).sum::<u64>() as f64;
    let (noted, others) = (sum(|found| found.noted), sum(|found| found.others));
    Ok(Figures {
        reading,
        expected_operations: operations,
        peak_live_bytes: Some(peak_live_bytes),
        extra: BTreeMap::from([
            ("noted_lines".into(), noted),
            ("others_per_cent".into(), 100.0 * others / noted.max(1.0)),
        ]),
    })
}

impl<'notes, H: Heap> Worker<'notes, H> {
    fn new(
        owner: u32,
        slots: usize,
        sizes: (usize, usize),
        notes: Option<&'notes Notes>,
    ) -> Result<Self, Failure> {
        let random = Random::stream(owner.into());
        let notes = notes.map(|notes| (notes, owner as u8 + 1));
        let slots = Slots::filled(slots, None)?;
        Ok(Self { heap: H::of(owner), random, slots, sizes, notes, found: Found::default() })
    }

    fn all_rounds(&mut self, rounds: u64) -> Result<u64, Failure> {
        let (mut done, count) = (0, self.slots.len());
        for round in 0..rounds {
            for slot in 0..count {
                if self.slots[slot].is_none() {
                    self.slots[slot] = Some(self.allocate()?);
                    done += 1;
                }
            }
            // Any odd number far from simple fractions of the count would do: neighbours are freed far apart.
            for index in 0..count {
                if !(index as u64 + round).is_multiple_of(10) {
                    self.discard((index * 7919 + 13) % count)?;
                }
            }
        }
        for slot in 0..count {
            self.discard(slot)?;
        }
        Ok(done)
    }

    fn allocate(&mut self) -> Result<H::Block, Failure> {
        let (min, max) = self.sizes;
        let drawn = min as f64 * (max as f64 / min as f64).powf(self.random.unit());
        let size = (drawn as usize).clamp(min, max);
        let block = self.heap.allocate(size)?;
        for offset in [0, size - 1] {
            // SAFETY: fresh, longer than that, and this worker's alone.
            unsafe { self.heap.write(block, offset)? };
            self.note(H::address(block) + offset);
        }
        Ok(block)
    }

    fn note(&mut self, address: usize) {
        if let Some((notes, writer)) = self.notes
            && let Some(before) = notes.write(address, writer)
        {
            self.found.noted += 1;
            self.found.others += u64::from(before != writer);
        }
    }

    fn discard(&mut self, slot: usize) -> Result<(), Failure> {
        match self.slots[slot].take() {
            // SAFETY: a live block, which its slot no longer holds.
            Some(block) => unsafe { self.heap.free(block) },
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::heap::recording::Recording;

    #[test]
    fn who_wrote_last_to_a_line_is_known() {
        let notes = Notes::new().expect("mapped");
        let line = notes.line;
        assert_eq!(notes.write(0x7F00_0000_0000, 3), None);
        assert_eq!(notes.write(0x7F00_0000_0000 + line - 1, 4), Some(3));
        assert_eq!(notes.write(0x7F00_0000_0000 + line, 4), None, "the next line");
        assert_eq!(notes.write(0x7F00_0000_0000, 4), Some(4));
        // Many lines: of none is anything known that was written to no line of that address.
        let fresh = |index: usize| notes.write(0x1000_0000 + index * line, 1);
        assert_eq!((0..100_000).filter_map(fresh).count(), 0);
        let known = (0..100_000).filter_map(fresh).count();
        assert!(known > 94_000, "{known}: few take the places of others");
    }

    #[test]
    fn a_thread_alone_finds_its_own_notes() {
        let notes = Notes::new().expect("mapped");
        let mut worker = Worker::<Recording>::new(0, 500, (16, 1024), Some(&notes)).expect("mapped");
        let done = worker.all_rounds(4).expect("done");
        assert_eq!(done, 500 + 3 * 450, "nine of ten are new");
        assert_eq!((worker.heap.live_bytes, worker.heap.freed.len() as u64), (0, done));
        assert!(worker.heap.sizes.iter().all(|size| (16..=1024).contains(size)));
        assert_eq!(worker.found.others, 0);
    }
}
