//! What the system counts of a process: processor time, page faults, waits.

use std::collections::BTreeMap;

use procfs::process::Process;
use serde::Serialize;

/// Bytes that a page fault brings.
const PAGE: u64 = 4096;

/// What a process had, in all since it began or within a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Account {
    /// Processor time in the program, in nanoseconds.
    pub user_ns: u64,
    /// In the kernel.
    pub kernel_ns: u64,
    /// How long its threads could have run, but had no processor, in nanoseconds: those that were there at the end.
    pub without_processor_ns: u64,
    /// Page faults that needed no disk.
    pub faults: u64,
    /// Page faults that did.
    pub major_faults: u64,
    /// How often its threads waited for something: those that were there at the end.
    pub waits: u64,
}

impl Account {
    /// Processor time, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        self.user_ns + self.kernel_ns
    }

    /// What page faults brought, in bytes.
    pub fn fault_bytes(&self) -> u64 {
        self.faults * PAGE
    }
}

/// The account of a process, and of each of its threads.
#[derive(Debug, Clone, Default)]
pub(super) struct Accounts {
    /// Its own.
    pub process: Account,
    /// Processor time of threads in nanoseconds, time without a processor, waits.
    threads: BTreeMap<i32, [u64; 3]>,
}

impl Accounts {
    /// As of now; none where the process has ended.
    pub fn of(process: &Process) -> Option<Self> {
        let stat = process.stat().ok().filter(|stat| !matches!(stat.state, 'Z' | 'X'))?;
        let tick = 1_000_000_000 / procfs::ticks_per_second().max(1);
        let mut threads = BTreeMap::new();
        for task in process.tasks().ok()?.flatten() {
            let had = task.schedstat().map_or([0; 2], |had| [had.sum_exec_runtime, had.run_delay]);
            let waits = task.status().ok().and_then(|status| status.voluntary_ctxt_switches).unwrap_or(0);
            threads.insert(task.tid, [had[0], had[1], waits]);
        }
        let process = Account {
            user_ns: stat.utime * tick,
            kernel_ns: stat.stime * tick,
            without_processor_ns: threads.values().map(|thread| thread[1]).sum(),
            faults: stat.minflt,
            major_faults: stat.majflt,
            waits: threads.values().map(|thread| thread[2]).sum(),
        };
        Some(Self { process, threads })
    }

    /// What it had since then.
    pub fn since(&self, earlier: &Self) -> Account {
        let of_threads = |figure: usize| {
            let since = |(thread, now): (&i32, &[u64; 3])| {
                now[figure].saturating_sub(earlier.threads.get(thread).map_or(0, |then| then[figure]))
            };
            self.threads.iter().map(since).sum()
        };
        let (now, then) = (&self.process, &earlier.process);
        Account {
            user_ns: now.user_ns.saturating_sub(then.user_ns),
            kernel_ns: now.kernel_ns.saturating_sub(then.kernel_ns),
            without_processor_ns: of_threads(1),
            faults: now.faults.saturating_sub(then.faults),
            major_faults: now.major_faults.saturating_sub(then.major_faults),
            waits: of_threads(2),
        }
    }

    /// The processor time that each thread has had since then, most first, in nanoseconds.
    pub fn of_threads_since(&self, earlier: &Self) -> Vec<u64> {
        let since = |(thread, now): (&i32, &[u64; 3])| {
            now[0].saturating_sub(earlier.threads.get(thread).map_or(0, |then| then[0]))
        };
        let mut times: Vec<u64> = self.threads.iter().map(since).collect();
        times.sort_unstable_by(|a, b| b.cmp(a));
        times
    }
}
