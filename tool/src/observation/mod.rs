//! What a program asks of malloc, as the observer counted it.

mod file;
mod findings;
mod memory;
mod parts;
#[cfg(test)]
pub mod testing;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use ample_protocol::observation::{BINS, least};
use anyhow::{Context as _, Result};
use serde::{Serialize, Serializer};

use crate::record::Usage;

pub use findings::{Finding, Kind, causes_are_known, share};
pub use memory::{Memory, Moment, Watch};
pub use parts::{Known, Part, Parts, in_memory, parts};

/// Bytes that a page fault brings.
const PAGE: u64 = 4096;
/// What processes tell of their processor time may exceed the system's account by so much, and a tenth: nanoseconds.
const ACCOUNTS_DIFFER: u64 = 20_000_000;

/// What was observed of a program, all its processes together.
#[derive(Debug, Clone, Serialize)]
pub struct Observation {
    /// Processes that called malloc, the one with most calls first.
    pub processes: Vec<Process>,
    /// From the program's start to its end, in nanoseconds.
    pub wall_ns: u64,
    /// The system's account of it and of the processes that were waited for, the observer's part included.
    pub usage: Usage,
    /// Whether the processes themselves have told of more processor time than there is in that account: nobody waited for some.
    pub unaccounted: bool,
    /// Processor time without the observer's, in nanoseconds: that of the account, or what the processes told of, if that is more.
    pub cpu_ns: u64,
    /// Processors that it could use.
    pub processors: usize,
    /// The sum over all processes.
    pub all: Totals,
    /// What follows from it.
    pub findings: Vec<Finding>,
}

/// One process.
#[derive(Debug, Clone, Serialize)]
pub struct Process {
    /// Its number.
    pub pid: u64,
    /// The program's name, its first 15 bytes.
    pub name: String,
    /// Bytes live at most.
    pub peak_live_bytes: u64,
    /// Blocks live at most.
    pub peak_live_blocks: u64,
    /// Memory of its own that was resident at most, the observer's left out, in bytes; 0 where it was not looked at.
    pub peak_resident_bytes: u64,
    /// Bytes live then.
    pub live_at_peak_resident: u64,
    /// Bytes live at its end.
    pub live_at_end_bytes: u64,
    /// Its own processor time as it told of it last, the observer's included, in nanoseconds.
    pub cpu_ns: u64,
    /// Its own page faults as of then, without those of the observer's memory.
    pub faults: u64,
    /// Blocks that were not noted, for want of memory.
    pub lost: u64,
    /// Its threads that called malloc or free, by their allocations and frees, the busiest first.
    pub calls_of_threads: Vec<u64>,
    /// What was seen of its memory from outside.
    pub memory: Memory,
    /// The observer's own memory, in bytes.
    #[serde(skip)]
    own_bytes: u64,
    /// The sum over its threads.
    #[serde(skip)]
    totals: Totals,
}

/// Counts and distributions.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Totals {
    /// Threads that called malloc or free.
    pub threads: u64,
    /// Blocks allocated.
    pub allocations: u64,
    /// Blocks freed.
    pub frees: u64,
    /// Blocks given another size.
    pub resizes: u64,
    /// Of them, those that moved.
    pub moves: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// Blocks freed, or given another size, that another thread had allocated.
    pub others_freed: u64,
    /// Blocks freed of which nothing is known.
    pub unknown_freed: u64,
    /// Blocks put on a cache line with a live block of another thread.
    pub shared_lines: u64,
    /// Blocks of 128 KiB and more.
    pub large_allocations: u64,
    /// Their bytes.
    pub large_bytes: u64,
    /// Of them, those that lived 10 ms at most.
    pub large_short: u64,
    /// Time in calls, the clock's cost left out, in nanoseconds.
    pub call_ns: u64,
    /// Calls of 10 µs and more.
    pub slow_calls: u64,
    /// Time in them, in nanoseconds.
    pub slow_ns: u64,
    /// Time in those of them that were looked at more closely, in nanoseconds.
    pub seen_ns: u64,
    /// Of that, in calls that waited for another thread.
    pub wait_ns: u64,
    /// In calls from which the system took the processor away.
    pub taken_ns: u64,
    /// In calls that faulted pages in.
    pub fault_ns: u64,
    /// Requests that got nothing.
    pub failures: u64,
    /// Calls of malloc_trim, which are none of the calls above.
    pub trims: u64,
    /// Time in them, in nanoseconds.
    pub trim_ns: u64,
    /// The observer's own time, in nanoseconds.
    #[serde(skip)]
    pub own_ns: u64,
    /// Sizes asked for, in bytes.
    pub sizes: Histogram,
    /// Times of calls, in nanoseconds, the clock's cost included.
    pub calls: Histogram,
    /// Lives of blocks that were freed, in microseconds.
    pub lives: Histogram,
}

/// How often values lay in each bin: two for each power of two.
#[derive(Debug, Clone, Default)]
pub struct Histogram(Vec<u64>);

/// As pairs of a bin's least value and its count, empty ones left out.
impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bins = self.0.iter().enumerate().filter(|(_, count)| **count > 0);
        serializer.collect_seq(bins.map(|(bin, count)| [least(bin), *count]))
    }
}

impl Histogram {
    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The bin that holds the value below which this share of all lies: its least value, and the least one that is beyond it.
    pub fn quantile(&self, share: f64) -> Option<(u64, u64)> {
        let wanted = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bin = self.0.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        // Of the first two bins the second is always empty.
        Some((least(bin), least(bin.max(1) + 1)))
    }

    fn add(&mut self, other: &Self) {
        self.0.resize(BINS, 0);
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            *own += other;
        }
    }
}

impl Observation {
    /// Reads what the observer wrote into this folder, beside what was seen of the processes by the names of their files.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn read(
        folder: &Path,
        mut seen: BTreeMap<OsString, Memory>,
        wall_ns: u64,
        usage: Usage,
    ) -> Result<Self> {
        let mut processes = Vec::new();
        for entry in fs::read_dir(folder).context("cannot read what was observed")? {
            let path = entry?.path();
            let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let memory = path.file_name().and_then(|name| seen.remove(name)).unwrap_or_default();
            processes.extend(file::process(&bytes, memory));
        }
        processes.sort_by_key(|process: &Process| std::cmp::Reverse(process.calls()));
        Ok(Self::new(processes, wall_ns, usage))
    }

    fn new(processes: Vec<Process>, wall_ns: u64, usage: Usage) -> Self {
        let mut all = Totals::default();
        for process in &processes {
            all.add(&process.totals);
        }
        let (accounted, told) = (usage.user_ns + usage.kernel_ns, told(&processes, Process::least_cpu_ns));
        let unaccounted = told > accounted + accounted / 10 + ACCOUNTS_DIFFER;
        let cpu_ns = accounted.max(told).saturating_sub(all.own_ns);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let findings = Vec::new();
        let mut observation =
            Self { processes, wall_ns, usage, unaccounted, cpu_ns, processors, all, findings };
        observation.findings = findings::of(&observation);
        observation
    }

    /// Share of the processor time that calls take which are not slow: what slow ones need of it is not known.
    pub fn quick_share(&self) -> f64 {
        share(self.all.call_ns.saturating_sub(self.all.slow_ns), self.cpu_ns)
    }

    /// How often in a second malloc_trim was called.
    pub fn trims_a_second(&self) -> f64 {
        self.all.trims as f64 * 1e9 / self.wall_ns.max(1) as f64
    }

    /// Page faults without those of the observer's own memory.
    pub fn program_faults(&self) -> u64 {
        let own: u64 = self.processes.iter().map(|process| process.own_bytes / PAGE).sum();
        let accounted = self.usage.minor_faults.saturating_sub(own);
        if self.unaccounted {
            accounted.max(told(&self.processes, |process| process.faults))
        } else {
            accounted
        }
    }

    /// The process with most calls; none where nobody called malloc.
    pub fn busiest(&self) -> Option<&Process> {
        self.processes.first()
    }
}

/// What processes told of themselves, all together. One that executed several programs told of the earlier ones again.
fn told(processes: &[Process], what: impl Fn(&Process) -> u64) -> u64 {
    let mut most = BTreeMap::new();
    for process in processes {
        let told: &mut u64 = most.entry(process.pid).or_default();
        *told = what(process).max(*told);
    }
    most.values().sum()
}

impl Process {
    /// Processor time that it has had at least.
    fn least_cpu_ns(&self) -> u64 {
        let quick = self.totals.call_ns.saturating_sub(self.totals.slow_ns);
        self.cpu_ns.max(self.totals.own_ns + quick)
    }

    /// The sum over its threads, to be changed.
    #[cfg(test)]
    pub fn totals_mut(&mut self) -> &mut Totals {
        &mut self.totals
    }

    /// Blocks allocated, freed or given another size.
    fn calls(&self) -> u64 {
        self.totals.allocations + self.totals.frees + self.totals.resizes
    }
}

impl Totals {
    /// Calls of the allocator.
    pub fn all_calls(&self) -> u64 {
        self.calls.count()
    }

    /// Of the blocks that ended, or got another size, those that another thread had allocated: a share.
    pub fn others(&self) -> f64 {
        share(self.others_freed, self.frees + self.resizes)
    }

    /// Of the blocks that were put somewhere, by `realloc` as well, those on a cache line with another thread's: a share.
    pub fn on_shared_lines(&self) -> f64 {
        share(self.shared_lines, self.allocations + self.resizes)
    }

    /// Of all bytes, those of large blocks: a share.
    pub fn large(&self) -> f64 {
        share(self.large_bytes, self.bytes)
    }

    /// Of the large blocks, those that are transient: a share.
    pub fn transient(&self) -> f64 {
        share(self.large_short, self.large_allocations)
    }

    fn add(&mut self, other: &Self) {
        let own = [
            (&mut self.threads, other.threads),
            (&mut self.allocations, other.allocations),
            (&mut self.frees, other.frees),
            (&mut self.resizes, other.resizes),
            (&mut self.moves, other.moves),
            (&mut self.bytes, other.bytes),
            (&mut self.others_freed, other.others_freed),
            (&mut self.unknown_freed, other.unknown_freed),
            (&mut self.shared_lines, other.shared_lines),
            (&mut self.large_allocations, other.large_allocations),
            (&mut self.large_bytes, other.large_bytes),
            (&mut self.large_short, other.large_short),
            (&mut self.call_ns, other.call_ns),
            (&mut self.slow_calls, other.slow_calls),
            (&mut self.slow_ns, other.slow_ns),
            (&mut self.seen_ns, other.seen_ns),
            (&mut self.wait_ns, other.wait_ns),
            (&mut self.taken_ns, other.taken_ns),
            (&mut self.fault_ns, other.fault_ns),
            (&mut self.failures, other.failures),
            (&mut self.trims, other.trims),
            (&mut self.trim_ns, other.trim_ns),
            (&mut self.own_ns, other.own_ns),
        ];
        for (own, other) in own {
            *own += other;
        }
        self.sizes.add(&other.sizes);
        self.calls.add(&other.calls);
        self.lives.add(&other.lives);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_waited_for_is_in_what_the_processes_told() {
        let observation = testing::in_three_processes(|_, _| ());
        assert_eq!((observation.unaccounted, observation.cpu_ns), (false, 6_000_000_000));
        let observation = testing::in_three_processes(|processes, usage| {
            (usage.user_ns, usage.minor_faults) = (1_000_000, 30);
            for process in processes.iter_mut() {
                (process.cpu_ns, process.faults) = (1_000_000_000, 700);
            }
            // It executed another program, and its account went on.
            (processes[2].pid, processes[2].cpu_ns) = (2, 1_500_000_000);
        });
        assert_eq!((observation.unaccounted, observation.cpu_ns), (true, 2_500_000_000));
        assert_eq!(observation.program_faults(), 1400);
        let found: Vec<Kind> = observation.findings.iter().map(|finding| finding.kind).collect();
        assert_eq!(found, [Kind::Dear], "300 ms of 2.5 s");
        let killed_early = testing::in_three_processes(|_, usage| usage.user_ns = 0);
        assert_eq!(killed_early.cpu_ns, 300_000_000, "their quick calls at least");
    }

    #[test]
    fn a_quantile_is_told_as_its_bin() {
        let mut histogram = Histogram(vec![0; BINS]);
        assert_eq!(histogram.quantile(0.5), None);
        (histogram.0[0], histogram.0[12], histogram.0[13]) = (50, 49, 1);
        assert_eq!(histogram.quantile(0.5), Some((1, 2)));
        assert_eq!(histogram.quantile(0.51), Some((64, 96)));
        assert_eq!(histogram.quantile(1.0), Some((96, 128)));
        assert_eq!(serde_json::to_string(&histogram).expect("JSON"), "[[1,50],[64,49],[96,1]]");
    }
}
