//! What part of its time a process that runs spends in malloc's code: its threads are looked at every so often of their processor time (`perf_event_open`).

use std::collections::BTreeMap;
use std::io;

use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};
use procfs::process::Process;
use serde::Serialize;

use super::server::Server;

/// A thread is looked at after so much of its processor time, in nanoseconds.
const PERIOD: u64 = 2_000_000;
/// Threads that are looked at, at most: those that had most processor time.
const MOST: usize = 128;
/// Bytes for what the system noted of a thread: enough for a second's.
const NOTES: usize = 16 << 10;

/// Looks at the code that threads execute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Looks {
    /// All of them; what the system does for the process is left out.
    pub all: u64,
    /// Of them, those at malloc's code.
    pub in_malloc: u64,
}

/// Looks at the threads of a process.
#[derive(Default)]
pub(super) struct Samples {
    threads: BTreeMap<i32, Sampler>,
    looks: Looks,
    /// Whether the system let us look, and lets nobody any more.
    allowed: bool,
    refused: bool,
}

impl Samples {
    /// Takes what was noted of all threads, forgets those that have ended, and takes in new ones, those with most processor time first.
    pub fn look(&mut self, process: &Process, server: &Server) {
        self.note(server);
        let Ok(tasks) = process.tasks() else { return };
        let tasks: Vec<_> = tasks.flatten().collect();
        self.threads.retain(|thread, _| tasks.iter().any(|task| task.tid == *thread));
        if self.refused {
            return;
        }
        let new = tasks.iter().filter(|task| !self.threads.contains_key(&task.tid));
        let mut new: Vec<_> =
            new.map(|task| (task.schedstat().map_or(0, |had| had.sum_exec_runtime), task.tid)).collect();
        new.sort_unstable_by(|a, b| b.cmp(a));
        for (_, thread) in new.into_iter().take(MOST - self.threads.len()) {
            match sampler(thread) {
                Ok(sampler) => {
                    self.allowed = true;
                    self.threads.insert(thread, sampler);
                }
                // It has ended meanwhile.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(_) => {
                    self.refused = true;
                    return;
                }
            }
        }
    }

    /// What was seen; none where the system did not let us look.
    pub fn end(mut self, server: &Server) -> Option<Looks> {
        self.note(server);
        self.allowed.then_some(self.looks)
    }

    fn note(&mut self, server: &Server) {
        for sampler in self.threads.values_mut() {
            while let Some(record) = sampler.next_record() {
                if let Ok(Record::Sample(sample)) = record.parse_record() {
                    self.looks.all += 1;
                    self.looks.in_malloc += u64::from(sample.ip().is_some_and(|address| server.has(address)));
                }
            }
        }
    }
}

/// Has the system note what code a thread executes. (The library's own defaults leave out the system's code, which not everybody may look at.)
fn sampler(thread: i32) -> io::Result<Sampler> {
    let mut counter = Builder::new(Software::CPU_CLOCK);
    counter.observe_pid(thread).any_cpu().sample_period(PERIOD).sample(SampleFlag::IP).enabled(true);
    counter.build()?.sampled(NOTES)
}
