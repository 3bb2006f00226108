//! **server-uptime**: a server's latencies over its uptime.
//!
//! *Definition.* Each thread serves `connections` connections, each of which holds one block of 1 to 16 KiB.
//! In each of `rounds` rounds it serves `requests` requests on random connections. A request
//! allocates a key, a value and a response as large as the value, writes the first byte of each, and
//! frees key and value; responses go to the next thread in batches of 64, and it frees them. With every
//! twentieth request, its connection is closed and another opened: the block is freed and one of a new
//! size allocated. Each malloc and each free is timed; the percentiles of both together are reported
//! for each round (`round_NN_p99_ns`), and so is the resident memory at its end, when no response
//! is under way (`rss_round_NN_bytes`). A perfect curve is flat. One operation is one request.
//!
//! Sizes are those of Facebook's ETC pool, as its authors model them: keys follow a generalised extreme value
//! distribution (location 30.7984, scale 8.20449, shape 0.078688); of the values, 44 % are shorter than
//! 15 B and have a share of their own for each length, and the others follow a generalised Pareto
//! distribution from there (scale 214.476, shape 0.348238). Keys are cut at 250 B and values at 1 MiB,
//! which is what memcached takes. The mean value has 194 B, the median one 39 B.
//!
//! *Source.* Lever & Boreham (2000), future work: simulate long-running servers, with sizes from a real
//! one. The sizes: Atikoglu et al., "Workload Analysis of a Large-Scale Key-Value Store" (2012); the shares
//! of the short values, and that the others begin at 15 B, as in the load generator mutilate by Leverich.
//!
//! *Deviations.* Reading the clock costs as much as a malloc: `timer_cost_ns` is the median of an empty
//! call's latency and is part of each figure. Wall time includes it, and the histograms' work. Sizes are
//! drawn before the measured part into tables of 4093. Values of 0 B take 1 B. Live bytes are those of the connections.

use crate::definition::{Definition, Figures, Knob, Settings, Stop};
use crate::harness::crew::Crew;
use crate::harness::failure::Failure;
use crate::harness::heap::Heap;
use crate::harness::inbox::Inbox;
use crate::harness::latency::{Latencies, timer_cost_ns};
use crate::harness::random::Random;
use crate::harness::rendezvous::Rendezvous;
use crate::harness::slots::Slots;

/// server-uptime.
pub const DEFINITION: Definition = Definition {
    name: "server-uptime",
    tells: "Whether malloc and free stay as fast as they were, in the median and at the tail, the longer a \
            server runs.",
    source: "Lever & Boreham 2000, future work, with the sizes of Atikoglu et al. 2012",
    operation: "a request: three mallocs and three frees, each of them timed",
    knobs: &[
        Knob {
            name: "connections",
            meaning: "Connections of each thread.",
            unit: "count",
            default: 1_000,
            test: 50,
            range: 1..=1 << 32,
        },
        Knob {
            name: "rounds",
            meaning: "Rounds, for each of which latencies are reported.",
            unit: "count",
            default: 8,
            test: 3,
            range: 1..=99,
        },
        Knob {
            name: "requests",
            meaning: "Requests of each thread in each round.",
            unit: "operations",
            default: 50_000,
            test: 500,
            range: 1..=1 << 40,
        },
    ],
    max_threads: None,
    check: |_| Ok(()),
    run: on_heap!(run),
};

/// Responses that travel together.
const BATCH: usize = 64;
/// Sizes of each kind drawn beforehand; a prime.
const SIZES: usize = 4093;
/// Requests for each connection that is closed, and another opened.
const REQUESTS_PER_CONNECTION: u64 = 20;
/// Least and largest block of a connection, in bytes.
const CONNECTION: (usize, usize) = (1 << 10, 16 << 10);

/// Sizes of keys and values.
struct Sizes(Vec<(usize, usize)>);

impl Sizes {
    fn drawn() -> Self {
        let mut random = Random::stream(0);
        let mut pair = || (key_size(1.0 - random.unit()), value_size(1.0 - random.unit()));
        Self((0..SIZES).map(|_| pair()).collect())
    }
}

/// The key size at this point, in 0..=1 without 0, of the distribution function.
fn key_size(point: f64) -> usize {
    let (location, scale, shape) = (30.7984, 8.204_49, 0.078_688);
    // At 1 the distribution has no end: keys are at most 250 B long.
    let size: f64 = location + scale * ((-point.ln()).powf(-shape) - 1.0) / shape;
    size.clamp(1.0, 250.0) as usize
}

/// Shares of the values of 0 B, 1 B … 14 B.
const SHORT_VALUES: [f64; 15] = [
    0.005_36, 0.000_47, 0.178_20, 0.092_39, 0.000_18, 0.027_40, 0.000_65, 0.006_06, 0.000_23, 0.008_37,
    0.008_37, 0.089_89, 0.000_92, 0.003_26, 0.019_80,
];

/// The value size at this point, in 0..=1 without 0, counted from the upper end.
fn value_size(point: f64) -> usize {
    let (location, scale, shape) = (SHORT_VALUES.len() as f64, 214.476, 0.348_238);
    let mut from_below = 1.0 - point;
    for (size, share) in SHORT_VALUES.into_iter().enumerate() {
        if from_below < share {
            return size.max(1);
        }
        from_below -= share;
    }
    let long = 1.0 - SHORT_VALUES.iter().sum::<f64>();
    let size: f64 = location + scale * ((point / long).powf(-shape) - 1.0) / shape;
    size.clamp(location, f64::from(1 << 20)) as usize
}

/// Where a thread's responses to free arrive.
type Responses<H> = Inbox<Vec<<H as Heap>::Block>>;

struct Worker<'run, H: Heap> {
    heap: H,
    random: Random,
    sizes: &'run Sizes,
    connections: Slots<(H::Block, usize)>,
    live: u64,
    inbox: &'run Responses<H>,
    outbox: &'run Responses<H>,
    rounds: Vec<Latencies>,
}

fn run<H: Heap>(settings: &Settings) -> Result<Figures, Stop> {
    let threads = settings.threads as usize;
    let (rounds, requests) = (settings.size("rounds"), settings.count("requests"));
    let sizes = Sizes::drawn();
    let timer_cost = timer_cost_ns();
    let inboxes: Vec<Responses<H>> = (0..threads).map(|_| Inbox::default()).collect();
    let rendezvous = Rendezvous::new(threads, rounds);
    let worker = |owner: usize| {
        let (inbox, outbox) = (&inboxes[owner], &inboxes[(owner + 1) % threads]);
        Worker::<H>::new(owner, settings.size("connections"), &sizes, rounds, inbox, outbox)
    };
    let workers = (0..threads).map(worker).collect::<Result<Vec<_>, _>>()?;
    let (reading, workers) = Crew::default()
        .run(workers, |worker| rendezvous.attend(|| worker.all_rounds(requests, &rendezvous)))?;
    let mut extra = rendezvous.figures("round");
    extra.insert("timer_cost_ns".into(), timer_cost);
    let mut timed_calls = 0;
    for round in 0..rounds {
        let mut all = Latencies::default();
        workers.iter().for_each(|worker| all.merge(&worker.rounds[round]));
        timed_calls += all.count();
        extra.extend(all.figures(&format!("round_{:02}", round + 1)));
    }
    extra.insert("timed_calls".into(), timed_calls as f64);
    for mut worker in workers {
        for &(block, _) in worker.connections.iter() {
            // SAFETY: the connections hold live blocks, each once, and their worker has ended.
            unsafe { worker.heap.free(block)? };
        }
    }
    Ok(Figures {
        reading,
        expected_operations: threads as u64 * rounds as u64 * requests,
        peak_live_bytes: rendezvous.samples().iter().map(|sample| sample.live_bytes).max(),
        extra,
    })
}

impl<'run, H: Heap> Worker<'run, H> {
    fn new(
        owner: usize,
        connections: usize,
        sizes: &'run Sizes,
        rounds: usize,
        inbox: &'run Responses<H>,
        outbox: &'run Responses<H>,
    ) -> Result<Self, Failure> {
        // Stream 0 has drawn the sizes.
        let (heap, random) = (H::of(owner as u32), Random::stream(1 + owner as u64));
        let connections = Slots::with_capacity(connections)?;
        let rounds = vec![Latencies::default(); rounds];
        Ok(Self { heap, random, sizes, connections, live: 0, inbox, outbox, rounds })
    }

    fn all_rounds(&mut self, requests: u64, rendezvous: &Rendezvous) -> Result<u64, Failure> {
        let mut rounds = std::mem::take(&mut self.rounds);
        let mut done = 0;
        for latencies in &mut rounds {
            let mut responses = Vec::with_capacity(BATCH);
            for request in 1..=requests {
                responses.push(self.request(request, latencies)?);
                done += 1;
                if responses.len() == BATCH {
                    self.outbox.push(std::mem::replace(&mut responses, Vec::with_capacity(BATCH)));
                    self.free_responses(latencies)?;
                }
            }
            self.outbox.push(responses);
            // All have sent; then all have freed, and only connections are live.
            rendezvous.meet()?;
            self.free_responses(latencies)?;
            rendezvous.sample(self.live)?;
        }
        self.rounds = rounds;
        Ok(done)
    }

    /// Serves a request: its response.
    fn request(&mut self, number: u64, latencies: &mut Latencies) -> Result<H::Block, Failure> {
        if self.connections.len() < self.connections.capacity() {
            let connection = self.connect(latencies)?;
            self.connections.push(connection);
        } else if number.is_multiple_of(REQUESTS_PER_CONNECTION) {
            let connection = self.random.below(self.connections.len());
            let (block, size) = self.connections[connection];
            self.live -= size as u64;
            self.free(block, latencies)?;
            self.connections[connection] = self.connect(latencies)?;
        }
        let (key_size, value_size) = self.sizes.0[self.random.below(SIZES)];
        let key = self.allocate(key_size, latencies)?;
        let value = self.allocate(value_size, latencies)?;
        let response = self.allocate(value_size, latencies)?;
        self.free(key, latencies)?;
        self.free(value, latencies)?;
        Ok(response)
    }

    fn connect(&mut self, latencies: &mut Latencies) -> Result<(H::Block, usize), Failure> {
        let size = self.random.between(CONNECTION.0, CONNECTION.1);
        self.live += size as u64;
        Ok((self.allocate(size, latencies)?, size))
    }

    fn allocate(&mut self, size: usize, latencies: &mut Latencies) -> Result<H::Block, Failure> {
        let block = latencies.time(|| self.heap.allocate(size))?;
        // SAFETY: fresh, at least one byte long, and this worker's alone.
        unsafe { self.heap.write(block, 0)? };
        Ok(block)
    }

    /// Frees a block that was taken out of the only place that knew it.
    fn free(&mut self, block: H::Block, latencies: &mut Latencies) -> Result<(), Failure> {
        // SAFETY: every caller took the live block out of the only place that knew it.
        latencies.time(|| unsafe { self.heap.free(block) })
    }

    fn free_responses(&mut self, latencies: &mut Latencies) -> Result<(), Failure> {
        for block in self.inbox.drain().flatten() {
            self.free(block, latencies)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::heap::recording::Recording;

    #[test]
    fn sizes_have_the_published_means() {
        let points = || (0..100_000).map(|index| (f64::from(index) + 0.5) / 100_000.0);
        let mean = |size: fn(f64) -> usize| points().map(size).sum::<usize>() as f64 / 100_000.0;
        // Location + scale·(Γ(1 - shape) - 1)/shape = 36.0, less the half byte cut off.
        assert!((mean(key_size) - 35.5).abs() < 0.5, "{}", mean(key_size));
        // 2.3 from the short ones, 0.558·(15 + scale/(1 - shape)) = 192.1 from the others, less half a byte.
        assert!((mean(value_size) - 194.2).abs() < 2.0, "{}", mean(value_size));
        assert_eq!((key_size(1.0), value_size(1.0)), (250, 1));
    }

    #[test]
    fn short_values_have_the_published_shares() {
        let points = || (0..100_000).map(|index| (f64::from(index) + 0.5) / 100_000.0);
        let count = |wanted: fn(usize) -> bool| points().map(value_size).filter(|&size| wanted(size)).count();
        assert!(count(|size| size < 15).abs_diff(44_155) <= 1);
        assert!(count(|size| size == 2).abs_diff(17_820) <= 1);
        assert!(count(|size| size == 11).abs_diff(8_989) <= 1);
        // Of 0 and of 1 byte.
        assert!(count(|size| size == 1).abs_diff(583) <= 1);
        // From 15 B on a generalised Pareto distribution: half of those are below 15 + 214.476·(2^shape - 1)/shape.
        assert!(count(|size| (15..183).contains(&size)).abs_diff(27_922) <= 200);
    }

    #[test]
    fn every_call_is_timed_and_only_connections_stay() {
        let (sizes, inbox) = (Sizes::drawn(), Inbox::default());
        let rendezvous = Rendezvous::new(1, 2);
        let mut worker = Worker::<Recording>::new(0, 10, &sizes, 2, &inbox, &inbox).expect("mapped");
        assert_eq!(worker.all_rounds(100, &rendezvous), Ok(200));
        // Ten connections opened first, then one for another at requests 20, 40, 60, 80 and 100.
        assert_eq!(worker.rounds[0].count(), 6 * 100 + 10 + 2 * 5);
        assert_eq!(worker.rounds[1].count(), 6 * 100 + 2 * 5);
        assert_eq!(worker.heap.sizes.len() - worker.heap.freed.len(), 10);
        let live: Vec<_> = rendezvous.samples().iter().map(|sample| sample.live_bytes).collect();
        assert_eq!(live[1], worker.heap.live_bytes as u64);
        assert_eq!(live.len(), 2);
    }
}
