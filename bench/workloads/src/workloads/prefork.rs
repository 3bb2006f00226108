//! **prefork**: worker processes of a server whose master has loaded the application.
//!
//! *Definition.* The master allocates `blocks` blocks of random sizes from `min` to `max` bytes (16 B to 8 KiB), the logarithm of the size being even, writes
//! all of each, and frees `freed` per cent of them, chosen at random: what loading leaves behind. Then it forks a worker for each thread that is asked for, all of which begin
//! together. A worker serves `requests` requests, one after the other, in its one thread: 50 to 150 blocks of such sizes are allocated and written, then freed, and one of 100
//! blocks that the worker keeps is replaced; `replaced` of the master's blocks are, too. One operation is a request. Resident memory is that of the whole server: what the master has resident when it forks,
//! and what each worker has written to since and therefore has for itself (`Private_Dirty`), a page counting once however many processes share it. `private_bytes_of_a_worker` is the latter alone, the mean over the
//! workers.
//!
//! *Source.* Servers that load their application before they fork: Apache's prefork module, gunicorn with `--preload`, unicorn, PHP-FPM.
//!
//! *Deviations.* A worker's requests are all alike, and its master's blocks are read by nobody.

use std::cell::Cell;
use std::collections::BTreeMap;

use crate::definition::{Definition, Figures, Knob, Settings, Stop};
use crate::harness::crew::{Reading, alone};
use crate::harness::failure::Failure;
use crate::harness::heap::Heap;
use crate::harness::processes::{Gate, run_at_once};
use crate::harness::random::Random;
use crate::harness::slots::Slots;
use crate::harness::tally::Tally;
use crate::harness::usage::{Memory, private_bytes};
use crate::pass::Pass;

/// prefork.
pub const DEFINITION: Definition = Definition {
    name: "prefork",
    tells: "How much memory the workers of a server have each for themselves, of what their master had loaded before it forked them.",
    source: "servers that fork after they have loaded (Apache prefork, gunicorn, unicorn, PHP-FPM)",
    operation: "a request: its blocks allocated, written and freed",
    knobs: &[
        Knob {
            name: "blocks",
            meaning: "Blocks that the master allocates while it loads.",
            unit: "count",
            default: 100_000,
            test: 2_000,
            range: 1..=1 << 32,
        },
        Knob {
            name: "freed",
            meaning: "Share of them that it frees again, chosen at random.",
            unit: "per cent",
            default: 30,
            test: 30,
            range: 0..=99,
        },
        Knob {
            name: "requests",
            meaning: "Requests that each worker serves.",
            unit: "operations",
            default: 1_000,
            test: 20,
            range: 1..=1 << 32,
        },
        Knob {
            name: "replaced",
            meaning: "Blocks of the master's that a worker replaces in each request.",
            unit: "count",
            default: 0,
            test: 2,
            range: 0..=1 << 16,
        },
        Knob {
            name: "min",
            meaning: "Least size of a block.",
            unit: "bytes",
            default: 16,
            test: 16,
            range: 1..=1 << 30,
        },
        Knob {
            name: "max",
            meaning: "Largest size of a block.",
            unit: "bytes",
            default: 8_192,
            test: 8_192,
            range: 1..=1 << 30,
        },
    ],
    max_threads: Some(64),
    check: |settings| match settings.count("min") <= settings.count("max") {
        true => Ok(()),
        false => Err("min must not be more than max".into()),
    },
    run: on_heap!(run),
};

/// Blocks that a worker keeps, and those of a request, from the least to the most.
const KEPT: usize = 100;
const OF_A_REQUEST: (usize, usize) = (50, 150);
/// Each worker waits for the others before it begins, and when it was measured: what one that has ended had is nobody's.
const PASSES: usize = 2;

/// The numbers that define a run.
#[derive(Debug, Clone, Copy)]
struct Plan {
    blocks: usize,
    freed: usize,
    requests: u64,
    replaced: usize,
    sizes: (usize, usize),
}

/// The master, and each worker, which is a copy of it.
struct Process<H: Heap> {
    heap: H,
    random: Random,
    plan: Plan,
    loaded: Slots<H::Block>,
    kept: Slots<H::Block>,
    request: Slots<H::Block>,
}

fn run<H: Heap>(settings: &Settings) -> Result<Figures, Stop> {
    if settings.pass == Pass::Memory {
        return Err(Stop::NotMeasurable(
            "its memory is that of several processes: private_bytes_of_a_worker tells it".into(),
        ));
    }
    let workers = settings.threads;
    let plan = Plan {
        blocks: settings.size("blocks"),
        freed: settings.size("freed"),
        requests: settings.count("requests"),
        replaced: settings.size("replaced"),
        sizes: (settings.size("min"), settings.size("max")),
    };
    let mut tally = Process::<Tally>::new(plan)?;
    tally.load()?;
    let mut master = Process::<H>::new(plan)?;
    master.load()?;
    let loaded = Memory::now()?;
    // Each worker takes its own copy.
    let master = Cell::new(Some(master));
    let readings = run_at_once(workers as usize, PASSES, |worker, gate| {
        master.take().expect("a copy of the master's").be_worker(worker, gate)
    })?;
    let reading = readings.into_iter().reduce(Reading::together).expect("there is at least one worker");
    let private = reading.memory.rss_bytes as f64 / f64::from(workers);
    if let Some(mut master) = master.take() {
        master.free_loaded()?;
    }
    Ok(Figures {
        reading: Reading { memory: reading.memory.plus(loaded), ..reading },
        expected_operations: u64::from(workers) * plan.requests,
        peak_live_bytes: Some(tally.heap.peak_live_bytes),
        extra: BTreeMap::from([
            ("private_bytes_of_a_worker".into(), private),
            ("loaded_bytes".into(), loaded.rss_bytes as f64),
        ]),
    })
}

impl<H: Heap> Process<H> {
    fn new(plan: Plan) -> Result<Self, Failure> {
        let loaded = Slots::with_capacity(plan.blocks)?;
        let (kept, request) = (Slots::with_capacity(KEPT)?, Slots::with_capacity(OF_A_REQUEST.1)?);
        Ok(Self { heap: H::of(0), random: Random::stream(0), plan, loaded, kept, request })
    }

    fn load(&mut self) -> Result<(), Failure> {
        for _ in 0..self.plan.blocks {
            let block = self.allocate()?;
            self.loaded.push(block);
        }
        for _ in 0..self.plan.blocks * self.plan.freed / 100 {
            let block = self.loaded.swap_remove(self.random.below(self.loaded.len()));
            self.free(block)?;
        }
        Ok(())
    }

    /// What a worker does, from when it is forked until all were measured.
    fn be_worker(mut self, worker: usize, gate: &mut Gate) -> Result<Reading, Failure> {
        (self.heap, self.random) = (H::of(worker as u32 + 1), Random::stream(worker as u64 + 1));
        gate.pass();
        let mut reading = alone(|| self.serve_all())?;
        let private = private_bytes()?;
        reading.memory = Memory { peak_rss_bytes: private, rss_bytes: private };
        gate.pass();
        for index in 0..self.kept.len() {
            self.free(self.kept[index])?;
        }
        self.kept.clear();
        self.free_loaded()?;
        Ok(reading)
    }

    fn serve_all(&mut self) -> Result<u64, Failure> {
        let mut done = 0;
        while done < self.plan.requests {
            self.serve()?;
            done += 1;
        }
        Ok(done)
    }

    fn serve(&mut self) -> Result<(), Failure> {
        for _ in 0..self.random.between(OF_A_REQUEST.0, OF_A_REQUEST.1) {
            let block = self.allocate()?;
            self.request.push(block);
        }
        for index in 0..self.request.len() {
            self.free(self.request[index])?;
        }
        self.request.clear();
        if self.kept.len() == self.kept.capacity() {
            let block = self.kept.swap_remove(self.random.below(self.kept.len()));
            self.free(block)?;
        }
        let block = self.allocate()?;
        self.kept.push(block);
        for _ in 0..self.plan.replaced {
            let place = self.random.below(self.loaded.len());
            self.free(self.loaded[place])?;
            self.loaded[place] = self.allocate()?;
        }
        Ok(())
    }

    fn allocate(&mut self) -> Result<H::Block, Failure> {
        let size = self.random.even_in_logarithm(self.plan.sizes.0, self.plan.sizes.1);
        let block = self.heap.allocate(size)?;
        // SAFETY: fresh, of this size, and this process's alone.
        unsafe { self.heap.fill(block, size)? };
        Ok(block)
    }

    /// Frees a block that is in no slot any more, or in one that is overwritten or forgotten next.
    fn free(&mut self, block: H::Block) -> Result<(), Failure> {
        // SAFETY: every caller took the live block from the only slot that has it.
        unsafe { self.heap.free(block) }
    }

    fn free_loaded(&mut self) -> Result<(), Failure> {
        for index in 0..self.loaded.len() {
            self.free(self.loaded[index])?;
        }
        self.loaded.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::heap::recording::Recording;

    #[test]
    fn the_master_keeps_what_it_did_not_free_and_a_worker_what_its_definition_says() {
        let plan = Plan { blocks: 1000, freed: 30, requests: 300, replaced: 3, sizes: (16, 8192) };
        let mut process = Process::<Recording>::new(plan).expect("mapped");
        process.load().expect("loaded");
        assert_eq!(
            (process.loaded.len(), process.heap.sizes.len(), process.heap.freed.len()),
            (700, 1000, 300)
        );
        assert_eq!(process.serve_all(), Ok(300));
        assert_eq!((process.loaded.len(), process.kept.len(), process.request.len()), (700, KEPT, 0));
        let live = process.heap.sizes.len() - process.heap.freed.len();
        assert_eq!(live, 700 + KEPT);
        let requests = process.heap.sizes.len() - 1000 - 300 - 3 * 300;
        assert!((300 * 90..300 * 110).contains(&requests), "{requests} blocks of requests");
    }
}
