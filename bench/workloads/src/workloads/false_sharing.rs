//! **false-sharing**: objects of different threads on one cache line.
//!
//! *Definition.* The main thread allocates one object of `size` bytes for each of the threads, one
//! after the other. Each thread, bound to a core of its own, writes its object's first and last byte
//! `writes` times. One operation is one such pair of writes; their number is fixed for each thread.
//! `aligned=1` is the control: objects aligned to cache lines, each on lines of its own. The ideal is
//! the time of a single thread. `shared_line_pairs`, the number of pairs of objects that share a cache
//! line, is computed from the addresses: that figure has no noise.
//!
//! *Source.* Lever & Boreham (2000), benchmark 3: 3 to 52 bytes, 100 million writes
//! (`--set writes=100000000`), at most as many threads as CPUs.
//!
//! *Deviations.* Threads are bound to physical cores: two hardware threads of one core share their
//! first-level cache, and so no line would move. Not measurable, therefore, with more threads than
//! cores or on one core only.

use std::collections::BTreeMap;

use crate::definition::{Definition, Figures, Knob, MAX_COUNT, Settings, Stop};
use crate::harness::crew::Crew;
use crate::harness::failure::Failure;
use crate::harness::heap::Heap;
use crate::harness::topology::{cache_line_bytes, cores, not_measurable, shared_line_pairs};

/// false-sharing.
pub const DEFINITION: Definition = Definition {
    name: "false-sharing",
    tells: "Whether objects that one thread allocates for several others end up on the same cache line, and \
            what that costs those who write to them.",
    source: "Lever & Boreham 2000, benchmark 3",
    operation: "a write of an object's first byte and one of its last",
    knobs: &[
        Knob {
            name: "size",
            meaning: "Size of each object.",
            unit: "bytes",
            default: 8,
            test: 8,
            range: 1..=1 << 20,
        },
        Knob {
            name: "writes",
            meaning: "Pairs of writes that each thread does.",
            unit: "operations",
            default: 400_000_000,
            test: 100_000,
            range: 1..=MAX_COUNT,
        },
        Knob {
            name: "aligned",
            meaning: "1: each object on cache lines of its own.",
            unit: "switch",
            default: 0,
            test: 0,
            range: 0..=1,
        },
    ],
    max_threads: None,
    check: |_| Ok(()),
    run: on_heap!(run),
};

fn run<H: Heap>(settings: &Settings) -> Result<Figures, Stop> {
    let threads = settings.threads as usize;
    let (size, writes) = (settings.size("size"), settings.count("writes"));
    let cores = cores()?;
    if let Some(reason) = not_measurable(threads, cores.len()) {
        return Err(Stop::NotMeasurable(reason));
    }
    let line = cache_line_bytes();
    let mut main = H::of(settings.threads);
    let (mut objects, mut live) = (Vec::with_capacity(threads), 0);
    for _ in 0..threads {
        let (object, bytes) = if settings.switch("aligned") {
            let whole_lines = size.next_multiple_of(line);
            (main.allocate_aligned(line, whole_lines)?, whole_lines)
        } else {
            (main.allocate(size)?, size)
        };
        objects.push(object);
        live += bytes as u64;
    }
    let addresses: Vec<usize> = objects.iter().map(|&object| H::address(object)).collect();
    let workers = objects.into_iter().zip(0..).map(|(object, owner)| (H::of(owner), object)).collect();
    let (reading, workers) = Crew::default()
        .pinned_to(cores)
        .run(workers, |(heap, object): &mut (H, H::Block)| write_both_ends(heap, *object, size, writes))?;
    for (_, object) in workers {
        // SAFETY: the object was allocated above, and its worker has ended.
        unsafe { main.free(object)? };
    }
    Ok(Figures {
        reading,
        expected_operations: threads as u64 * writes,
        peak_live_bytes: Some(live),
        extra: BTreeMap::from([
            ("shared_line_pairs".into(), shared_line_pairs(&addresses, size, line) as f64),
            ("cache_line_bytes".into(), line as f64),
        ]),
    })
}

fn write_both_ends<H: Heap>(heap: &H, object: H::Block, size: usize, writes: u64) -> Result<u64, Failure> {
    let mut done = 0;
    while done < writes {
        // SAFETY: the object is live, has `size` ≥ 1 bytes, and belongs to this worker alone.
        unsafe { heap.write(object, 0)? };
        // SAFETY: as above.
        unsafe { heap.write(object, size - 1)? };
        done += 1;
    }
    Ok(done)
}
