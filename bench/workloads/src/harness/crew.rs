//! A crew of workers: they start together, count what they do, and are measured together.
//!
//! ```text
//! run ─ spawn workers ─ all ready ─ gate ─ go ┬ worker 0: generation 1 → 2 → … ┬ all finished ─ leave
//!                                             ├ worker 1: generation 1 → 2 → … ┤
//!                                             measured part ──────────────────────┘
//! ```
//!
//! A worker is a chain of one or more threads, each of which inherits the state of the one before:
//! a *generation*. The last thread of each worker stays until all were measured, so that what it
//! holds in caches of its own counts as resident.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope, scope};

use serde::{Deserialize, Serialize};

use super::counters::Counters;
use super::failure::Failure;
use super::phase;
use super::topology;
use super::usage::{Memory, Usage, now_ns};

/// A point in time, and what the process had used until then.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    clock_ns: u64,
    usage: Usage,
}

impl Mark {
    /// Now.
    pub fn now() -> Self {
        Self { clock_ns: now_ns(), usage: Usage::so_far() }
    }
}

/// What a crew did and used in its measured part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Operations done by all workers.
    pub operations: u64,
    /// Start of the measured part, in nanoseconds of the monotonic clock.
    pub started_ns: u64,
    /// The moment when the last worker finished, on the same clock.
    pub ended_ns: u64,
    /// Time of each worker, in nanoseconds.
    pub worker_ns: Vec<u64>,
    /// What the process used during the measured part.
    pub usage: Usage,
    /// What the process had used since it started, at the end of the measured part.
    pub process_usage: Usage,
    /// Resident memory at the end of the measured part.
    pub memory: Memory,
    /// What the machine counted meanwhile.
    pub counters: BTreeMap<String, f64>,
}

impl Reading {
    /// Wall time of the measured part, in nanoseconds.
    pub fn wall_ns(&self) -> u64 {
        self.ended_ns - self.started_ns
    }

    /// Of all CPUs, how many were busy for this process on average.
    pub fn busy_cores(&self) -> f64 {
        (self.usage.user_ns + self.usage.kernel_ns) as f64 / self.wall_ns().max(1) as f64
    }

    /// Share of the CPU time that was spent in the kernel.
    pub fn kernel_share(&self) -> f64 {
        self.usage.kernel_ns as f64 / (self.usage.user_ns + self.usage.kernel_ns).max(1) as f64
    }

    /// The crews of several processes that ran at once, as one: from the first start to the last
    /// finisher; everything else is summed up.
    pub fn together(self, other: Self) -> Self {
        Self {
            operations: self.operations + other.operations,
            started_ns: self.started_ns.min(other.started_ns),
            ended_ns: self.ended_ns.max(other.ended_ns),
            worker_ns: [self.worker_ns, other.worker_ns].concat(),
            usage: self.usage.plus(other.usage),
            process_usage: self.process_usage.plus(other.process_usage),
            memory: self.memory.plus(other.memory),
            counters: sum(self.counters, other.counters),
        }
    }
}

/// What was counted in both processes, added up.
fn sum(counters: BTreeMap<String, f64>, other: BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let both =
        counters.into_iter().filter_map(|(name, count)| other.get(&name).map(|more| (name, count + more)));
    both.collect()
}

/// The work of the calling thread, in a process that has no other, measured as a crew's would be: `work` returns the operations that it has done.
///
/// # Errors
/// The work's own failure; the system does not tell how much memory is resident.
pub fn alone(work: impl FnOnce() -> Result<u64, Failure>) -> Result<Reading, Failure> {
    let mut counters = Counters::open_if_on();
    counters.start();
    let start = Mark::now();
    phase::begin();
    let operations = work()?;
    let ended_ns = now_ns();
    phase::end();
    let process_usage = Usage::so_far();
    Ok(Reading {
        operations,
        started_ns: start.clock_ns,
        ended_ns,
        worker_ns: vec![ended_ns - start.clock_ns],
        usage: process_usage.since(start.usage),
        process_usage,
        memory: Memory::now()?,
        counters: counters.stop(),
    })
}

/// How a crew runs; [`Crew::run`] starts it.
pub struct Crew<'gate> {
    generations: u64,
    cores: Option<Vec<usize>>,
    measured_from: Option<Mark>,
    control: bool,
    gate: Box<dyn FnMut() + 'gate>,
    afterwards: Box<dyn FnMut() + 'gate>,
}

impl Default for Crew<'_> {
    /// One generation, threads that run where the system likes, measured from the common start.
    fn default() -> Self {
        Self {
            generations: 1,
            cores: None,
            measured_from: None,
            control: false,
            gate: Box::new(|| ()),
            afterwards: Box::new(|| ()),
        }
    }
}

impl<'gate> Crew<'gate> {
    /// Each worker is a chain of this many threads, at least 1.
    pub fn generations(self, generations: u64) -> Self {
        assert!(generations > 0);
        Self { generations, ..self }
    }

    /// Worker `i` runs on the CPU `cores[i]` only.
    pub fn pinned_to(self, cores: Vec<usize>) -> Self {
        Self { cores: Some(cores), ..self }
    }

    /// The measured part began here already, before the workers existed.
    pub fn measured_from(self, mark: Mark) -> Self {
        Self { measured_from: Some(mark), ..self }
    }

    /// What this crew does is only compared with the workload's work: what calls and memory are measured
    /// for are not these.
    pub fn control(self) -> Self {
        Self { control: true, ..self }
    }

    /// Called when all workers are ready, before they start.
    pub fn gate(self, gate: impl FnMut() + 'gate) -> Self {
        Self { gate: Box::new(gate), ..self }
    }

    /// Called when all workers have finished and were measured, while their threads still exist.
    pub fn afterwards(self, afterwards: impl FnMut() + 'gate) -> Self {
        Self { afterwards: Box::new(afterwards), ..self }
    }

    /// Runs one worker for each element of `states`. `work` is called once a generation, and returns
    /// the operations that it has done. Returns the measured figures and the states as they are now.
    ///
    /// # Errors
    /// The first failure of a worker; or the system refuses a thread.
    pub fn run<S, F>(mut self, states: Vec<S>, work: F) -> Result<(Reading, Vec<S>), Failure>
    where
        S: Send,
        F: Fn(&mut S) -> Result<u64, Failure> + Sync,
    {
        let mut counters = if self.control { Counters::default() } else { Counters::open_if_on() };
        let stage = Stage::new(states.len());
        let (stage, work) = (&stage, &work);
        scope(|scope| {
            for (index, state) in states.into_iter().enumerate() {
                let core = self.cores.as_ref().map(|cores| cores[index]);
                let generations = self.generations;
                let first = move || {
                    let pinned = core.map_or(Ok(()), topology::pin_to);
                    if !stage.arrive() {
                        return;
                    }
                    let started_ns = now_ns();
                    match pinned {
                        Ok(()) => Link { index, generations, started_ns, operations: 0, state }
                            .go(scope, stage, work),
                        Err(failure) => stage.finish(index, Err(failure)),
                    }
                };
                if let Err(error) = Builder::new().spawn_scoped(scope, first) {
                    stage.dismiss();
                    return Err(Failure::system("no thread for a worker", &error));
                }
            }
            stage.wait_until_ready();
            (self.gate)();
            counters.start();
            let start = self.measured_from.unwrap_or_else(Mark::now);
            if !self.control {
                phase::begin();
            }
            stage.begin();
            let finished = stage.wait_until_finished();
            if !self.control {
                phase::end();
            }
            let process_usage = Usage::so_far();
            let memory = Memory::now();
            let counters = counters.stop();
            (self.afterwards)();
            stage.dismiss();
            let finished = finished.into_iter().collect::<Result<Vec<_>, _>>()?;

            let first_start = finished.iter().map(|worker| worker.started_ns).min();
            let started_ns = match self.measured_from {
                Some(mark) => mark.clock_ns,
                None => first_start.unwrap_or(start.clock_ns),
            };
            let reading = Reading {
                operations: finished.iter().map(|worker| worker.operations).sum(),
                started_ns,
                ended_ns: finished.iter().map(|worker| worker.ended_ns).max().unwrap_or(started_ns),
                worker_ns: finished.iter().map(|worker| worker.ended_ns - worker.started_ns).collect(),
                usage: process_usage.since(start.usage),
                process_usage,
                memory: memory?,
                counters,
            };
            Ok((reading, finished.into_iter().map(|worker| worker.state).collect()))
        })
    }
}

/// One worker between two generations.
struct Link<S> {
    index: usize,
    generations: u64,
    started_ns: u64,
    operations: u64,
    state: S,
}

impl<S: Send> Link<S> {
    /// Does one generation's work, then hands over to a fresh thread, or finishes.
    fn go<'scope, 'env, F>(mut self, scope: &'scope Scope<'scope, 'env>, stage: &'env Stage<S>, work: &'env F)
    where
        S: 'scope,
        F: Fn(&mut S) -> Result<u64, Failure> + Sync,
    {
        let index = self.index;
        match work(&mut self.state) {
            Ok(operations) => self.operations += operations,
            Err(failure) => return stage.finish(index, Err(failure)),
        }
        self.generations -= 1;
        if self.generations == 0 {
            let Self { started_ns, operations, state, .. } = self;
            return stage.finish(index, Ok(Finished { started_ns, ended_ns: now_ns(), operations, state }));
        }
        if let Err(error) = Builder::new().spawn_scoped(scope, move || self.go(scope, stage, work)) {
            stage.finish(index, Err(Failure::system("no thread for a worker's successor", &error)));
        }
    }
}

/// What a worker has done.
struct Finished<S> {
    started_ns: u64,
    ended_ns: u64,
    operations: u64,
    state: S,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Assembling,
    Working,
    Leaving,
}

/// Where the workers and the thread that measures them meet.
struct Stage<S> {
    progress: Mutex<Progress<S>>,
    phase_changed: Condvar,
    worker_arrived: Condvar,
}

struct Progress<S> {
    phase: Phase,
    ready: usize,
    finished: usize,
    results: Vec<Option<Result<Finished<S>, Failure>>>,
}

impl<S> Stage<S> {
    fn new(workers: usize) -> Self {
        let results = (0..workers).map(|_| None).collect();
        Self {
            progress: Mutex::new(Progress { phase: Phase::Assembling, ready: 0, finished: 0, results }),
            phase_changed: Condvar::new(),
            worker_arrived: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Progress<S>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker is ready and waits for the start: whether there is one.
    fn arrive(&self) -> bool {
        let mut progress = self.lock();
        progress.ready += 1;
        self.worker_arrived.notify_one();
        let waited = self.phase_changed.wait_while(progress, |progress| progress.phase == Phase::Assembling);
        waited.unwrap_or_else(PoisonError::into_inner).phase == Phase::Working
    }

    /// A worker has finished; it stays until it is dismissed.
    fn finish(&self, index: usize, result: Result<Finished<S>, Failure>) {
        let mut progress = self.lock();
        progress.results[index] = Some(result);
        progress.finished += 1;
        self.worker_arrived.notify_one();
        let waited = self.phase_changed.wait_while(progress, |progress| progress.phase != Phase::Leaving);
        drop(waited);
    }

    fn wait_until_ready(&self) {
        drop(self.worker_arrived.wait_while(self.lock(), |progress| progress.ready < progress.results.len()));
    }

    fn wait_until_finished(&self) -> Vec<Result<Finished<S>, Failure>> {
        let all = |progress: &mut Progress<S>| progress.finished < progress.results.len();
        let waited = self.worker_arrived.wait_while(self.lock(), all);
        let mut progress = waited.unwrap_or_else(PoisonError::into_inner);
        progress.results.iter_mut().filter_map(Option::take).collect()
    }

    fn begin(&self) {
        self.enter(Phase::Working);
    }

    fn dismiss(&self) {
        self.enter(Phase::Leaving);
    }

    fn enter(&self, phase: Phase) {
        self.lock().phase = phase;
        self.phase_changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn generations_inherit_the_state_in_fresh_threads() {
        let states = vec![Vec::new(), Vec::new()];
        let (reading, states) = Crew::default()
            .generations(3)
            .run(states, |threads| {
                threads.push(std::thread::current().id());
                Ok(10)
            })
            .expect("ran");
        assert_eq!(reading.operations, 60);
        assert_eq!(reading.worker_ns.len(), 2);
        for threads in states {
            assert_eq!(threads.len(), 3);
            assert!(threads[0] != threads[1] && threads[1] != threads[2]);
        }
    }

    fn reading(started_ns: u64, ended_ns: u64, user_ns: u64) -> Reading {
        Reading {
            operations: 5,
            started_ns,
            ended_ns,
            worker_ns: vec![ended_ns - started_ns],
            usage: Usage { user_ns, minor_faults: 3, ..Usage::default() },
            process_usage: Usage::default(),
            memory: Memory { peak_rss_bytes: 20, rss_bytes: 10 },
            counters: BTreeMap::from([("cycles".to_owned(), 8.0)]),
        }
    }

    #[test]
    fn readings_of_several_processes_span_from_the_first_start_to_the_last_end() {
        let both = reading(100, 200, 7).together(reading(90, 180, 8));
        assert_eq!((both.wall_ns(), both.operations, both.usage.user_ns), (110, 10, 15));
        assert_eq!(both.worker_ns, [100, 90]);
        assert_eq!(both.memory, Memory { peak_rss_bytes: 40, rss_bytes: 20 });
        assert_eq!(both.counters["cycles"], 16.0);
    }

    #[test]
    fn nobody_starts_before_the_gate_opens() {
        let started = AtomicUsize::new(0);
        let seen_at_gate = AtomicUsize::new(usize::MAX);
        Crew::default()
            // Relaxed: the stage's mutex orders these.
            .gate(|| seen_at_gate.store(started.load(Ordering::Relaxed), Ordering::Relaxed))
            .run(vec![(); 4], |()| {
                // Relaxed: only the sum counts.
                started.fetch_add(1, Ordering::Relaxed);
                Ok(1)
            })
            .expect("ran");
        assert_eq!((seen_at_gate.into_inner(), started.into_inner()), (0, 4));
    }

    #[test]
    fn what_comes_afterwards_finds_all_finished() {
        let finished = AtomicUsize::new(0);
        let seen = AtomicUsize::new(0);
        Crew::default()
            // Relaxed: the stage's mutex orders these.
            .afterwards(|| seen.store(finished.load(Ordering::Relaxed), Ordering::Relaxed))
            .run(vec![(); 4], |()| {
                // Relaxed: only the sum counts.
                finished.fetch_add(1, Ordering::Relaxed);
                Ok(1)
            })
            .expect("ran");
        assert_eq!(seen.into_inner(), 4);
    }

    #[test]
    fn one_failing_worker_fails_the_crew_and_the_others_still_end() {
        let failure = Failure::Null { size: 1 };
        let result = Crew::default().generations(2).run(vec![0, 1, 2], |state| match *state {
            1 => Err(failure.clone()),
            _ => Ok(1),
        });
        assert_eq!(result.map(|_| ()), Err(failure));
    }
}
