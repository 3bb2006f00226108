//! **heap-leak**: blocks that are handed from thread to thread, and the pages that get lost.
//!
//! *Definition.* As many chains as threads. Each chain owns an array of `blocks` pointers to blocks of
//! `size` bytes, which the main thread allocates. A fresh thread replaces as many randomly chosen
//! blocks, one at a time (free, then malloc), creates the next thread, hands it the array and exits:
//! one *round*. One operation is one replacement. The live set is constant, so that a perfect
//! allocator needs the same number of pages for any number of rounds.
//!
//! *Source.* Lever & Boreham (2000), benchmark 2, after Larson & Krishnan (1998): 10 000 blocks of 40
//! bytes, 1, 3 and 7 chains, 1 to 8 rounds and far beyond. Their lower bound for the minor page faults
//! of the whole process with t chains and r rounds on their machine: 14 + 1.1·t·r + 127.6·t. `ample
//! bench` measures it again in every run, under each allocator: the base by runs with (t, r, n) = (1, 1, 1),
//! then the slope in r and the slope in n. What is beyond it is the leak.
//!
//! *Deviations.* Transparent huge pages are switched off for the process: a fault is a page of the
//! base size. The measured part includes the allocation of arrays and blocks, and the threads. `faults`
//! counts from the start of the process, as the source's `time` did; the protocol's minor faults
//! are those of the measured part.

use std::collections::BTreeMap;

use crate::definition::{Definition, Figures, Knob, Settings, Stop};
use crate::harness::crew::{Crew, Mark};
use crate::harness::failure::Failure;
use crate::harness::heap::Heap;
use crate::harness::random::Random;
use crate::harness::topology::switch_huge_pages_off;

/// heap-leak.
pub const DEFINITION: Definition = Definition {
    name: "heap-leak",
    tells: "Whether memory gets lost when blocks outlive the thread that allocated them and others free them.",
    source: "Lever & Boreham 2000, benchmark 2, after Larson & Krishnan 1998",
    operation: "the replacement of a block: a free and a malloc",
    knobs: &[
        Knob {
            name: "rounds",
            meaning: "Threads of each chain, one after the other.",
            unit: "count",
            default: 500,
            test: 8,
            range: 1..=1 << 24,
        },
        Knob {
            name: "blocks",
            meaning: "Blocks of each chain, and replacements in each round.",
            unit: "count",
            default: 10_000,
            test: 1_000,
            range: 1..=1 << 32,
        },
        Knob {
            name: "size",
            meaning: "Size of each block.",
            unit: "bytes",
            default: 40,
            test: 40,
            range: 1..=1 << 30,
        },
    ],
    max_threads: None,
    check: |_| Ok(()),
    run: on_heap!(run),
};

/// What the threads of a chain hand on.
struct Chain<H: Heap> {
    heap: H,
    random: Random,
    blocks: Vec<H::Block>,
}

fn run<H: Heap>(settings: &Settings) -> Result<Figures, Stop> {
    let (threads, rounds) = (settings.threads, settings.count("rounds"));
    let (count, size) = (settings.size("blocks"), settings.size("size"));
    if let Err(error) = switch_huge_pages_off() {
        return Err(Stop::NotMeasurable(format!("transparent huge pages cannot be switched off: {error}")));
    }
    let start = Mark::now();
    let chain = |owner| {
        let mut heap = H::of(owner);
        let mut blocks = Vec::with_capacity(count);
        for _ in 0..count {
            blocks.push(heap.allocate(size)?);
        }
        Ok(Chain { heap, random: Random::stream(owner.into()), blocks })
    };
    let chains = (0..threads).map(chain).collect::<Result<Vec<_>, Failure>>()?;
    let (reading, chains) =
        Crew::default().generations(rounds).measured_from(start).run(chains, |chain| chain.round(size))?;
    for Chain { mut heap, blocks, .. } in chains {
        for block in blocks {
            // SAFETY: the array holds live blocks, each once, and its chain has ended.
            unsafe { heap.free(block)? };
        }
    }
    let chain_bytes = count * (size + size_of::<H::Block>());
    Ok(Figures {
        expected_operations: u64::from(threads) * rounds * count as u64,
        peak_live_bytes: Some(u64::from(threads) * chain_bytes as u64),
        extra: BTreeMap::from([("faults".into(), reading.process_usage.minor_faults as f64)]),
        reading,
    })
}

impl<H: Heap> Chain<H> {
    /// One thread's part: as many replacements as there are blocks.
    fn round(&mut self, size: usize) -> Result<u64, Failure> {
        let mut done = 0;
        for _ in 0..self.blocks.len() {
            let index = self.random.below(self.blocks.len());
            // SAFETY: the array holds live blocks, each once; this one is replaced at once.
            unsafe { self.heap.free(self.blocks[index])? };
            self.blocks[index] = self.heap.allocate(size)?;
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
    fn a_round_replaces_as_many_blocks_as_there_are_and_keeps_the_live_set() {
        let mut heap = Recording::of(0);
        let blocks = (0..100).map(|_| heap.allocate(40).expect("allocated")).collect();
        let mut chain = Chain { heap, random: Random::stream(0), blocks };
        assert_eq!(chain.round(40), Ok(100));
        assert_eq!(chain.round(40), Ok(100));
        let Recording { sizes, freed, live_bytes, peak_live_bytes } = chain.heap;
        assert_eq!(sizes, [40; 300]);
        assert_eq!(freed.len(), 200);
        assert_eq!((live_bytes, peak_live_bytes), (4000, 4000));
        // Chosen at random: some blocks outlive both rounds, and some are replaced more than once.
        let survivors = (0..100).filter(|index| !freed.contains(index)).count();
        assert!((1..100).contains(&survivors), "{survivors}");
    }
}
