//! What the processor counts, or else the kernel, during the measured part: `perf_event_open`.
//!
//! The counters belong to the process and are inherited by its threads. They are opened before the workers
//! exist, and read after the last has finished. What the machine or its settings do not permit is absent.
//! They cost nothing while a thread runs, but a tenth and more of what it costs to start one: they have a
//! pass of their own.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Event, Hardware, Software};
use perf_event::{Builder, Counter};

const DTLB_LOAD_MISSES: Cache =
    Cache { which: CacheId::DTLB, operation: CacheOp::READ, result: CacheResult::MISS };

static ON: AtomicBool = AtomicBool::new(false);

/// From now on, crews count.
pub fn switch_on() {
    // Relaxed: this very thread reads it; a forked process has a copy.
    ON.store(true, Ordering::Relaxed);
}

/// Open counters, with their names.
#[derive(Debug, Default)]
pub struct Counters(Vec<(String, Counter)>);

impl Counters {
    /// None unless they were switched on.
    pub fn open_if_on() -> Self {
        // Relaxed: as in `switch_on`.
        if ON.load(Ordering::Relaxed) { Self::open() } else { Self::default() }
    }

    /// Those of the processor; where there are none, those of the kernel. All stand still.
    fn open() -> Self {
        let mut counters = Self::default();
        counters.add("cycles", Hardware::CPU_CYCLES);
        counters.add("instructions", Hardware::INSTRUCTIONS);
        counters.add("cache_misses", Hardware::CACHE_MISSES);
        counters.add("dtlb_load_misses", DTLB_LOAD_MISSES);
        counters.add("branch_misses", Hardware::BRANCH_MISSES);
        if counters.0.is_empty() {
            counters.add("task_clock_ns", Software::TASK_CLOCK);
            counters.add("page_faults", Software::PAGE_FAULTS);
            counters.add("context_switches", Software::CONTEXT_SWITCHES);
            counters.add("cpu_migrations", Software::CPU_MIGRATIONS);
        }
        counters
    }

    /// Opens one that counts the kernel's part as well; where only the program's own part may be counted,
    /// its name says so.
    fn add(&mut self, name: &str, event: impl Event + Clone) {
        let mut builder = Builder::new(event);
        builder.inherit(true);
        let user = builder.clone().build();
        let all = builder.include_kernel().build();
        match (all, user) {
            (Ok(counter), _) => self.0.push((name.to_owned(), counter)),
            (Err(_), Ok(counter)) => self.0.push((format!("{name}_user"), counter)),
            (Err(_), Err(_)) => {}
        }
    }

    /// Sets them going.
    pub fn start(&mut self) {
        self.0.retain_mut(|(_, counter)| counter.enable().is_ok());
    }

    /// What they counted since; scaled up where the processor has too few counters to count all the time.
    pub fn stop(mut self) -> BTreeMap<String, f64> {
        for (_, counter) in &mut self.0 {
            // One that cannot be stopped is read a moment later.
            drop(counter.disable());
        }
        let read = |(name, mut counter): (String, Counter)| {
            let data = counter.read_full().ok()?;
            let (enabled, running) = (data.time_enabled()?, data.time_running()?);
            let share = running.as_secs_f64() / enabled.as_secs_f64();
            (share > 0.0).then(|| (name, data.count() as f64 / share))
        };
        self.0.into_iter().filter_map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_counted_with_the_process_that_starts_them() {
        let mut counters = Counters::open();
        let names: Vec<_> = counters.0.iter().map(|(name, _)| name.clone()).collect();
        let spin = || (0..10_000_000_u64).fold(0, |sum, number| std::hint::black_box(sum ^ number));
        counters.start();
        std::thread::spawn(spin).join().expect("no panic");
        let counted = counters.stop();
        assert!(counted.keys().all(|name| names.contains(name)), "{counted:?}");
        // A loop of ten million takes a millisecond at least, and as many instructions.
        for (name, least) in [("task_clock_ns", 1e6), ("instructions", 1e7), ("instructions_user", 1e7)] {
            assert!(counted.get(name).is_none_or(|count| *count >= least), "{counted:?}");
        }
    }

    #[test]
    fn what_cannot_be_opened_is_absent() {
        let mut counters = Counters::default();
        counters.add("nothing", perf_event::events::Raw::new(u64::MAX).config1(u64::MAX));
        assert!(counters.0.is_empty());
        counters.start();
        assert!(counters.stop().is_empty());
    }
}
