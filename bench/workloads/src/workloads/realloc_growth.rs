//! **realloc-growth**: vectors and strings that grow by realloc, several at once.
//!
//! *Definition.* Each thread grows `vectors` vectors and `strings` strings, one step of each in turn, until
//! all have reached their size, and then frees them; all of that `repeats` times. A vector starts with
//! 64 B and grows by half of its size up to `vector_max`; a string starts with 4 KiB and grows by 4 KiB
//! up to `string_max`. After each step the thread writes to each new page. One operation is one realloc. The
//! work and the live set of each thread are the same for any number of threads.
//!
//! *Source.* The usual growth policies of vectors and of buffers that are read to their end;
//! mremap can move pages where others copy.
//!
//! *Deviations.* By default, vectors grow to 64 MiB and strings to 4 MiB: a string of 256 MiB takes 65 536
//! steps, in each of which an allocator without mremap copies all of it. `--set vector_max=268435456` is
//! the full size. Live bytes count a block once while realloc moves it.

use std::collections::BTreeMap;

use crate::definition::{Definition, Figures, Knob, Settings, Stop};
use crate::harness::crew::Crew;
use crate::harness::failure::Failure;
use crate::harness::heap::Heap;
use crate::harness::tally::Tally;

/// realloc-growth.
pub const DEFINITION: Definition = Definition {
    name: "realloc-growth",
    tells: "Whether blocks that grow step by step are extended or moved, or copied each time.",
    source: "growth by 1.5 (vectors) and by 4 KiB (strings), as in common standard libraries",
    operation: "a realloc that makes a block larger, and a byte written to each new page",
    knobs: &[
        Knob {
            name: "vectors",
            meaning: "Vectors of each thread.",
            unit: "count",
            default: 2,
            test: 2,
            range: 0..=1 << 16,
        },
        Knob {
            name: "strings",
            meaning: "Strings of each thread.",
            unit: "count",
            default: 2,
            test: 2,
            range: 0..=1 << 16,
        },
        Knob {
            name: "vector_max",
            meaning: "Size up to which vectors grow.",
            unit: "bytes",
            default: 64 << 20,
            test: 256 << 10,
            range: 128..=1 << 40,
        },
        Knob {
            name: "string_max",
            meaning: "Size up to which strings grow.",
            unit: "bytes",
            default: 4 << 20,
            test: 64 << 10,
            range: 8192..=1 << 40,
        },
        Knob {
            name: "repeats",
            meaning: "Times that each thread does it all.",
            unit: "count",
            default: 2,
            test: 2,
            range: 1..=1 << 32,
        },
    ],
    max_threads: None,
    check: |settings| match settings.count("vectors") + settings.count("strings") {
        0 => Err("vectors or strings must be at least 1".into()),
        _ => Ok(()),
    },
    run: on_heap!(run),
};

/// How a container grows.
#[derive(Debug, Clone, Copy)]
enum Growth {
    ByHalf { max: usize },
    ByPage { max: usize },
}

impl Growth {
    fn first(self) -> usize {
        match self {
            Self::ByHalf { .. } => 64,
            Self::ByPage { .. } => 4096,
        }
    }

    /// The size after the next step, if there is one.
    fn next(self, size: usize) -> Option<usize> {
        let (next, max) = match self {
            Self::ByHalf { max } => (size + size / 2, max),
            Self::ByPage { max } => (size + 4096, max),
        };
        Some(next).filter(|&next| next <= max)
    }

    fn steps(self) -> u64 {
        std::iter::successors(Some(self.first()), |&size| self.next(size)).count() as u64 - 1
    }
}

struct Container<H: Heap> {
    growth: Growth,
    block: H::Block,
    size: usize,
}

fn run<H: Heap>(settings: &Settings) -> Result<Figures, Stop> {
    let (threads, repeats) = (settings.threads, settings.count("repeats"));
    let vector = Growth::ByHalf { max: settings.size("vector_max") };
    let string = Growth::ByPage { max: settings.size("string_max") };
    let mut growths = vec![vector; settings.size("vectors")];
    growths.resize(growths.len() + settings.size("strings"), string);
    let mut tally = Tally::default();
    grow_all(&mut tally, &growths, 1)?;
    let workers = (0..threads).map(H::of).collect();
    let (reading, _) = Crew::default().run(workers, |heap: &mut H| grow_all(heap, &growths, repeats))?;
    let steps = growths.iter().map(|growth| growth.steps()).sum::<u64>();
    Ok(Figures {
        expected_operations: u64::from(threads) * repeats * steps,
        peak_live_bytes: Some(u64::from(threads) * tally.peak_live_bytes),
        extra: BTreeMap::from([("kernel_share".into(), reading.kernel_share())]),
        reading,
    })
}

fn grow_all<H: Heap>(heap: &mut H, growths: &[Growth], repeats: u64) -> Result<u64, Failure> {
    let mut done = 0;
    let mut containers = Vec::with_capacity(growths.len());
    for _ in 0..repeats {
        for &growth in growths {
            let size = growth.first();
            containers.push(Container::<H> { growth, block: heap.allocate(size)?, size });
        }
        loop {
            let before = done;
            for container in &mut containers {
                done += u64::from(container.grow(heap)?);
            }
            if done == before {
                break;
            }
        }
        for container in containers.drain(..) {
            // SAFETY: the container's block is live and known to nobody else.
            unsafe { heap.free(container.block)? };
        }
    }
    Ok(done)
}

impl<H: Heap> Container<H> {
    /// Grows by a step: whether there was one to do.
    fn grow(&mut self, heap: &mut H) -> Result<bool, Failure> {
        let Some(next) = self.growth.next(self.size) else { return Ok(false) };
        // SAFETY: the block is live, has `size` bytes, and is replaced at once.
        self.block = unsafe { heap.resize(self.block, self.size, next)? };
        for offset in (self.size..next).step_by(4096) {
            // SAFETY: the block is live, has `next` bytes now, and is this worker's alone.
            unsafe { heap.write(self.block, offset)? };
        }
        self.size = next;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::heap::recording::Recording;

    #[test]
    fn vectors_grow_by_half_and_strings_by_a_page_side_by_side() {
        let growths = [Growth::ByHalf { max: 220 }, Growth::ByPage { max: 13_000 }];
        let mut heap = Recording::of(0);
        assert_eq!(grow_all(&mut heap, &growths, 1), Ok(5));
        assert_eq!(heap.sizes, [64, 4096, 96, 8192, 144, 12_288, 216]);
        assert_eq!(growths.map(Growth::steps), [3, 2]);
        assert_eq!((heap.peak_live_bytes, heap.live_bytes), (216 + 12_288, 0));
        let mut tally = Tally::default();
        assert_eq!(grow_all(&mut tally, &growths, 2), Ok(10));
        assert_eq!(tally.peak_live_bytes, 216 + 12_288);
    }

    #[test]
    fn the_full_size_is_reached_within_a_step() {
        let growth = Growth::ByHalf { max: 256 << 20 };
        let last = std::iter::successors(Some(growth.first()), |&size| growth.next(size)).last();
        assert!(last.is_some_and(|last| last > (256 << 20) / 3 * 2));
    }
}
