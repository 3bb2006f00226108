//! **many-threads**: a thousand threads with a few blocks each, and the memory that each one costs.
//!
//! *Definition.* The workers start `population` threads between them, all alive at the same time. Each
//! allocates `blocks` blocks of 16, 64, 256 and 1024 B in turn (or, with `sizes=N`, of 32, 64, … 32·N B in
//! turn) and writes all of each; when all have done so, resident memory is read; then they free their
//! blocks and end. `rss_per_thread_bytes` is what became resident since the workers were ready, divided by
//! the population. One operation is the life of one thread; their number is the same for any number of
//! workers.
//!
//! *Source.* The field's complaint that caches and arenas of each thread multiply.
//!
//! *Control.* With `blocks=0` the threads allocate nothing: what they cost the system and the C library,
//! stacks above all, and what the allocator does for a thread without being asked for a block.

use std::collections::BTreeMap;
use std::thread::{Builder, scope};

use crate::definition::{Definition, Figures, Knob, Settings, Stop};
use crate::harness::crew::Crew;
use crate::harness::failure::Failure;
use crate::harness::heap::Heap;
use crate::harness::rendezvous::Rendezvous;
use crate::harness::usage::Memory;

/// many-threads.
pub const DEFINITION: Definition = Definition {
    name: "many-threads",
    tells: "What each further thread costs in memory, and how long one lives that does little.",
    source: "the field's complaint about caches and arenas of each thread, as a test",
    operation: "the life of a thread that allocates and frees a few blocks",
    knobs: &[
        Knob {
            name: "population",
            meaning: "Threads that are alive at the same time, besides the workers.",
            unit: "count",
            default: 1_000,
            test: 20,
            range: 1..=1 << 17,
        },
        Knob {
            name: "blocks",
            meaning: "Blocks of each of them.",
            unit: "count",
            default: 8,
            test: 8,
            range: 0..=1 << 20,
        },
        Knob {
            name: "sizes",
            meaning: "Different sizes of the blocks, multiples of 32 B; 0: 16, 64, 256 and 1024 B.",
            unit: "count",
            default: 0,
            test: 0,
            range: 0..=1 << 10,
        },
    ],
    max_threads: None,
    check: |settings| match settings.count("population") >= u64::from(settings.threads) {
        true => Ok(()),
        false => Err(format!("population must be at least the number of threads, {}", settings.threads)),
    },
    run: on_heap!(run),
};

/// Sizes of a thread's blocks, in turn, in bytes.
const SIZES: [usize; 4] = [16, 64, 256, 1024];

/// What each thread allocates.
#[derive(Clone, Copy)]
struct Blocks {
    count: usize,
    sizes: usize,
}

impl Blocks {
    fn sizes(self) -> impl Iterator<Item = usize> {
        let size = move |index| match self.sizes {
            0 => SIZES[index % SIZES.len()],
            different => (index % different + 1) * 32,
        };
        (0..self.count).map(size)
    }
}

fn run<H: Heap>(settings: &Settings) -> Result<Figures, Stop> {
    let (workers, population) = (settings.threads as usize, settings.size("population"));
    let blocks = Blocks { count: settings.size("blocks"), sizes: settings.size("sizes") };
    let rendezvous = Rendezvous::new(population, 1);
    // Before the measured part: a heap that measures has tables of its own.
    let heaps = |count| (0..count).map(H::of).collect::<Vec<_>>();
    let share = |worker| (population / workers + usize::from(worker < population % workers)) as u32;
    let shares = (0..workers).map(|worker| heaps(share(worker)));
    let mut before = Ok(Memory::default());
    let (reading, _) = Crew::default()
        .gate(|| before = Memory::now())
        .run(shares.collect(), |heaps| live_together(heaps, blocks, &rendezvous))?;
    let before = before?.rss_bytes;
    let sample = rendezvous.samples()[0];
    let grown = sample.rss_bytes.saturating_sub(before) as f64;
    Ok(Figures {
        reading,
        expected_operations: population as u64,
        peak_live_bytes: Some(sample.live_bytes),
        extra: BTreeMap::from([
            ("rss_per_thread_bytes".into(), grown / population as f64),
            ("live_per_thread_bytes".into(), sample.live_bytes as f64 / population as f64),
            ("rss_all_alive_bytes".into(), sample.rss_bytes as f64),
        ]),
    })
}

/// Starts a thread for each heap and waits for their end.
fn live_together<H: Heap>(heaps: &mut [H], blocks: Blocks, rendezvous: &Rendezvous) -> Result<u64, Failure> {
    let one = |heap: &mut H| rendezvous.attend(|| life(heap, blocks, rendezvous));
    let one = &one;
    rendezvous.attend(|| {
        scope(|scope| {
            let mut threads = Vec::with_capacity(heaps.len());
            for heap in heaps {
                match Builder::new().spawn_scoped(scope, move || one(heap)) {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        let failure = Failure::system("no further thread", &error);
                        // Those that wait already go home with it.
                        return rendezvous.attend(|| Err(failure));
                    }
                }
            }
            let mut done = 0;
            for thread in threads {
                thread.join().expect("a panic ends the process")?;
                done += 1;
            }
            Ok(done)
        })
    })
}

/// What one of the threads does.
fn life<H: Heap>(heap: &mut H, blocks: Blocks, rendezvous: &Rendezvous) -> Result<(), Failure> {
    let mut held = Vec::with_capacity(blocks.count);
    for size in blocks.sizes() {
        let block = heap.allocate(size)?;
        // SAFETY: fresh, of this size, and this thread's alone.
        unsafe { heap.fill(block, size)? };
        held.push(block);
    }
    rendezvous.sample(blocks.sizes().sum::<usize>() as u64)?;
    for block in held {
        // SAFETY: the block is live, and held only here.
        unsafe { heap.free(block)? };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::heap::Plain;
    use crate::harness::heap::recording::Recording;

    #[test]
    fn a_thread_holds_its_blocks_while_memory_is_read() {
        let rendezvous = Rendezvous::new(1, 1);
        let mut heap = Recording::of(0);
        life(&mut heap, Blocks { count: 6, sizes: 0 }, &rendezvous).expect("lived");
        assert_eq!(heap.sizes, [16, 64, 256, 1024, 16, 64]);
        assert_eq!(heap.live_bytes, 0);
        assert_eq!(rendezvous.samples()[0].live_bytes, 1440);
    }

    #[test]
    fn so_many_sizes_are_multiples_of_32() {
        let of = |count, sizes| Blocks { count, sizes }.sizes().collect::<Vec<_>>();
        assert_eq!(of(5, 3), [32, 64, 96, 32, 64]);
        assert_eq!(of(64, 64).into_iter().sum::<usize>(), 66_560);
        assert!(of(0, 64).is_empty());
    }

    #[test]
    fn all_threads_are_alive_at_the_same_time() {
        let rendezvous = Rendezvous::new(10, 1);
        assert_eq!(
            live_together(&mut [const { Plain }; 10], Blocks { count: 4, sizes: 0 }, &rendezvous),
            Ok(10)
        );
        assert_eq!(rendezvous.samples()[0].live_bytes, 10 * 1360);
    }
}
