//! Runs the user's program where the campaign expects a workload's, and answers as a workload would.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ample_protocol::{Measurement, Outcome, ServedBy};
use anyhow::{Result, bail};
use tempfile::TempDir;

use super::life::{Event, Running, watch};
use super::once::Trial;
use super::plan::{AS_IS, MARK};
use super::server::shown;
use super::{Kind, Subject, Tree};
use crate::allocators::Allocator;
use crate::programs::{Operators, Record, Sightings, Unserved, preloaded_by_user, put_as_is, put_on};
use crate::record::{Noise, Pass, RATE};
use crate::run::{End, Ended, Executor, Interrupt, Invocation, OPERATORS, refusal};
use crate::scratch;

/// The functions whose library a measurement names.
const FAMILY: &[&str] =
    &["malloc", "free", "calloc", "realloc", "posix_memalign", "aligned_alloc", "malloc_usable_size"];

/// A program that ends sooner cannot be compared: its memory is hardly seen, and most of its time is its start.
const SHORTEST: Duration = Duration::from_millis(5);
/// How much longer it may take while the dynamic linker writes its record.
const WITH_RECORD: u32 = 20;
/// How many runs must be long enough: on a busy machine three short ones may all take long.
const RUNS_TO_TELL: usize = 10;
/// The processors that a server's load kept busy while it ran, among a measurement's further figures.
pub const LOAD_PROCESSORS: &str = "load_processors";
/// What is seen of processor time may exceed the system's account by so much, and a tenth: nanoseconds.
const ACCOUNTS_DIFFER: u64 = 50_000_000;
/// What is said where it exceeds that by more.
const UNACCOUNTED: &str = "Nobody waits for some of its processes, and the system keeps no account of those: their processor time, page \
                           faults and switches are missing in the table";
/// How often a run is repeated that ended before anybody could look at it.
const MORE_TRIES: usize = 5;

/// Who serves the program when it is started as the user starts it.
#[derive(Debug)]
pub struct FirstLook {
    /// The file that serves it; none where the dynamic linker has no record of it.
    pub library: Option<PathBuf>,
    /// All files that serve some process of it.
    pub libraries: BTreeSet<PathBuf>,
    /// The programs that were seen in its tree.
    pub programs: BTreeSet<PathBuf>,
}

/// Runs a [`Subject`].
pub struct TrialExecutor<'a> {
    subject: &'a Subject,
    allocators: Vec<Allocator>,
    interrupt: Interrupt,
    /// Where the output of failed runs is kept; none before there is a folder.
    kept: Option<PathBuf>,
    failures: usize,
    served: BTreeMap<String, Vec<ServedBy>>,
    /// The most pages of files that one process had so far, in bytes.
    files: u64,
    remarks: BTreeSet<String>,
    /// What the program produces without a preload, where that is looked at.
    reference: Option<String>,
    /// The words of a crash that it uses without a preload; none before the first look.
    deaths: Option<BTreeSet<&'static str>>,
}

impl<'a> TrialExecutor<'a> {
    /// An executor that stops when `interrupt` is raised.
    pub fn new(subject: &'a Subject, interrupt: Interrupt) -> Self {
        Self {
            subject,
            allocators: Vec::new(),
            interrupt,
            kept: None,
            failures: 0,
            served: BTreeMap::new(),
            files: 0,
            remarks: BTreeSet::new(),
            reference: None,
            deaths: None,
        }
    }

    /// Names the entries, and the folder that the output of failed runs is put into.
    pub fn prepare(&mut self, allocators: &[Allocator], folder: &Path) {
        self.allocators = allocators.to_vec();
        self.kept = Some(folder.join("failed"));
    }

    /// What was noticed about processes that an allocator does not serve.
    pub fn remarks(&self) -> Vec<String> {
        self.remarks.iter().cloned().collect()
    }

    /// Runs the program once as the user would. None if interrupted. Fails where it does not succeed.
    pub fn first_look(&mut self) -> Result<Option<FirstLook>> {
        let record = scratch::folder()?;
        let trial = self.run(self.most_threads(), None, None, Some(record.path()))?;
        if trial.end == End::Interrupted {
            return Ok(None);
        }
        let refused = [&trial.stderr, &trial.server_output].into_iter().find_map(|text| refusal(text));
        if let (Some(reason), Some(libraries)) = (refused, preloaded_by_user()) {
            bail!("LD_PRELOAD={} of your environment does not load: {reason}", libraries.display());
        }
        if let Some(reason) = self.reason(&trial) {
            let what = match self.subject.kind {
                Kind::Command(_) => "the program fails by itself, without any allocator preloaded",
                Kind::Server(_) => "it fails without any allocator preloaded",
            };
            bail!("{what}: {reason}{}", self.other_success(&trial));
        }
        self.metrics(&trial).map_err(anyhow::Error::msg)?;
        self.is_long_enough(trial.wall)?;
        self.files = trial.files;
        self.deaths = Some(trial.deaths().map(|(word, _)| word).collect());
        self.reference = trial.product;
        let recorded = Record::read(record.path())?;
        Ok(Some(FirstLook {
            library: recorded.library(trial.pid),
            libraries: recorded.libraries(),
            programs: trial.sightings.programs(),
        }))
    }

    /// How to say that the exit code of this run is that of success; nothing for an app, which has its own.
    fn other_success(&self, trial: &Trial) -> String {
        match trial.end {
            End::Exited(code)
                if trial.failure.is_none()
                    && code != self.subject.exit_code
                    && self.subject.care.is_none() =>
            {
                format!("; where that is success: --exit-code {code}")
            }
            _ => String::new(),
        }
    }

    /// Fails for a program that ends too soon, where the run with the record took so long.
    fn is_long_enough(&self, with_record: Duration) -> Result<()> {
        if with_record > SHORTEST * WITH_RECORD || matches!(self.subject.kind, Kind::Server(_)) {
            return Ok(());
        }
        // Where others are at work a run may take long for their sake.
        for _ in 0..RUNS_TO_TELL {
            let wall = self.run(self.most_threads(), None, None, None)?.wall;
            if wall < SHORTEST {
                bail!(
                    "the program ends after {:.1} ms, too soon to be compared; give it more to do, or run it often, as in: \
                     sh -c 'for i in $(seq 100); do CMD; done'",
                    wall.as_secs_f64() * 1000.0
                );
            }
        }
        Ok(())
    }

    fn most_threads(&self) -> u32 {
        self.subject.thread_counts.iter().copied().max().unwrap_or(1)
    }

    /// Runs the subject on so many threads, on an allocator, or as it is; with a folder for the dynamic linker's record.
    fn run(
        &self,
        threads: u32,
        allocator: Option<&Allocator>,
        padding: Option<&str>,
        record: Option<&Path>,
    ) -> io::Result<Trial> {
        if let Some(care) = &self.subject.care {
            care.prepare()?;
        }
        let kind = self.subject.on(threads);
        let mut command = plain(kind.words());
        command.envs(self.subject.environment.iter().map(|(name, value)| (name, value)));
        if let Some(allocator) = allocator {
            put_on(&mut command, allocator);
        }
        command.envs(padding.map(|padding| ("PADDING", padding)));
        if let Some(folder) = record {
            Record::write_to(folder, &mut command)?;
        }
        let library = allocator.map(|allocator| allocator.library.as_path());
        let sightings = record.map(|_| Sightings::of(library));
        let mut trial = match &kind {
            Kind::Command(_) => self.command(command, sightings)?,
            Kind::Server(server) => {
                server.run(command, plain, &self.interrupt, self.subject.timeout, (sightings, self.files))?
            }
        };
        self.look_after(&mut trial);
        Ok(trial)
    }

    /// Holds what a run that succeeded has produced against what it should have.
    fn look_after(&self, trial: &mut Trial) {
        let Some(care) = self.subject.care.as_ref().filter(|_| self.reason(trial).is_none()) else { return };
        match care.product(&trial.stdout, self.reference.as_deref()) {
            Ok(product) => trial.product = Some(product),
            Err(reason) => trial.failure = Some(reason),
        }
    }

    fn command(&self, command: Command, sightings: Option<Sightings>) -> io::Result<Trial> {
        let mut running = Running::start(command, true)?;
        running.known_files = self.files;
        running.note(sightings);
        let pid = running.pid();
        let event = watch(&mut [&mut running], &self.interrupt, Instant::now() + self.subject.timeout)?;
        let wall = running.age();
        let finished = running.finish()?;
        let last = finished.tree.as_ref().map_or(0, Tree::now);
        let trial = Trial {
            pid,
            end: match event {
                Event::Ended(_) => finished.end,
                Event::Interrupted => End::Interrupted,
                Event::TimedOut => End::TimedOut,
            },
            failure: None,
            wall,
            usage: Some(finished.usage),
            last,
            stdout: finished.stdout,
            stderr: finished.stderr,
            ..Trial::failed(String::new())
        };
        Ok(trial.with_memory(finished.tree))
    }

    /// Why this run does not count; none where it does.
    fn reason(&self, trial: &Trial) -> Option<String> {
        if let Some(failure) = &trial.failure {
            return Some(format!("{failure}{}", last_words(&[&trial.server_output])));
        }
        let words = last_words(&[&trial.stderr, &trial.stdout]);
        let end = match trial.end {
            End::Exited(code) if code == self.subject.exit_code => return self.crash(trial),
            End::Exited(code) => format!("exit code {code} instead of {}{words}", self.subject.exit_code),
            End::TimedOut => {
                let limit = self.subject.timeout.as_secs_f64();
                format!("it ran longer than {limit} s; --timeout allows more")
            }
            ref end => format!("{end}{words}"),
        };
        Some(match &self.subject.kind {
            Kind::Command(_) => end,
            Kind::Server(server) => format!("the load ({}) fails: {end}", shown(&server.load)),
        })
    }

    /// What a run that succeeded tells of a crash, where the program tells of no such without a preload.
    fn crash(&self, trial: &Trial) -> Option<String> {
        let usual = self.deaths.as_ref()?;
        let (_, line) = trial.deaths().find(|(word, _)| !usual.contains(word))?;
        Some(format!(
            "one of its processes crashed, as its output tells and its exit code does not: {}",
            line.trim()
        ))
    }

    /// The metrics by name, and the rate that stands for them: the first metric, or none.
    fn metrics(&self, trial: &Trial) -> Result<BTreeMap<String, f64>, String> {
        // A progress line is rewritten in its place.
        let output = format!("{}\n{}", trial.stderr, trial.stdout).replace('\r', "\n");
        let mut figures = BTreeMap::new();
        for metric in &self.subject.metrics {
            let value = metric.read(&output)?;
            if figures.is_empty() {
                figures.insert(RATE.into(), if metric.lower_is_better { 1.0 / value } else { value });
            }
            figures.insert(metric.key(), value);
        }
        Ok(figures)
    }

    fn sample(&mut self, invocation: &Invocation) -> io::Result<Ended> {
        let Some(name) = invocation.environment.get(MARK) else {
            return Err(io::Error::other("an entry without a mark"));
        };
        let Some(allocator) = self.allocators.iter().find(|allocator| allocator.name == *name).cloned()
        else {
            return Err(io::Error::other(format!("no entry '{name}'")));
        };
        let warm_up =
            invocation.arguments.windows(2).any(|pair| pair[0] == "--pass" && pair[1] == Pass::Canary.name());
        let record = warm_up.then(scratch::folder).transpose()?;
        let padding = invocation.environment.get("PADDING").map(String::as_str);
        let preloaded = (allocator.name != AS_IS).then_some(&allocator);
        let record_path = record.as_ref().map(TempDir::path);
        let threads = threads(invocation);
        let mut trial = self.run(threads, preloaded, padding, record_path)?;
        for _ in 0..MORE_TRIES {
            if trial.peak > 0 || self.reason(&trial).is_some() {
                break;
            }
            trial = self.run(threads, preloaded, padding, record_path)?;
        }
        self.files = self.files.max(trial.files);
        if let Some(record) = &record {
            let recorded = Record::read(record.path())?;
            self.note(&allocator, &recorded, &trial);
        }
        Ok(self.answer(invocation, name, trial))
    }

    /// Keeps which library serves the program under this entry.
    fn note(&mut self, allocator: &Allocator, record: &Record, trial: &Trial) {
        let accounted = trial.usage.map_or(0, |usage| usage.user_ns + usage.kernel_ns);
        if trial.seen_cpu_ns > accounted + accounted / 10 + ACCOUNTS_DIFFER {
            self.remarks.insert(UNACCOUNTED.into());
        }
        let unserved = trial.sightings.unserved(record, trial.pid);
        let functions = record.functions(&allocator.library);
        // No other process stands for the program itself.
        let own = unserved
            .iter()
            .find(|unserved| unserved.pid == trial.pid)
            .map(|Unserved { name, reason, .. }| format!("another one: {name} {reason}"));
        let file = |symbol: &str| match (&own, functions.get(symbol)) {
            // Nothing is asked of a program that starts as it is.
            _ if allocator.name == AS_IS => allocator.library.clone(),
            (Some(other), _) => PathBuf::from(other),
            (None, Some(file)) => file.clone(),
            // Not called: the first library that defines it would serve it.
            (None, None) if allocator.defines.contains(symbol) => allocator.library.clone(),
            (None, None) => PathBuf::from("the C library"),
        };
        let served = FAMILY.iter().map(|&symbol| ServedBy {
            symbol: symbol.into(),
            path: file(symbol).display().to_string(),
            build_id: None,
        });
        let mut served: Vec<ServedBy> = served.collect();
        if allocator.name == AS_IS {
            self.served.insert(allocator.name.clone(), served);
            return;
        }
        let found = record.served(&allocator.library, trial.pid);
        for Operators { pid, program, library } in found.operators {
            let path = library.display().to_string();
            if pid == trial.pid {
                served.push(ServedBy { symbol: OPERATORS.into(), path, build_id: None });
            } else {
                self.remarks.insert(format!(
                    "{program} among its processes stays on another allocator with {OPERATORS} and delete: {path}"
                ));
            }
        }
        self.served.insert(allocator.name.clone(), served);
        for Unserved { name, reason, .. } in unserved {
            self.remarks.insert(format!("{name} among its processes {reason}"));
        }
        if found.count > 0 {
            for (program, library) in found.by_others {
                self.remarks.insert(format!(
                    "{program} among its processes stays on another malloc: {}",
                    library.display()
                ));
            }
        }
    }

    /// The run in a workload's words.
    fn answer(&mut self, invocation: &Invocation, name: &str, trial: Trial) -> Ended {
        let reason = self.reason(&trial).map_or_else(|| self.metrics(&trial).err(), Some);
        if reason.is_some() && trial.end != End::Interrupted {
            self.keep(name, &trial);
        }
        let ended = |end: End, outcome: Option<Outcome>| Ended {
            end,
            stdout: outcome.and_then(|outcome| serde_json::to_string(&outcome).ok()).unwrap_or_default(),
            stderr: trial.stderr.clone(),
            elapsed: trial.wall,
            usage: trial.usage,
        };
        match (&trial.end, reason) {
            (End::Exited(_), None) if trial.peak == 0 => {
                let reason = "it ended before its memory could be looked at: too short to be compared".into();
                ended(End::Exited(0), Some(Outcome::NotMeasurable { reason }))
            }
            (End::Exited(_), None) => {
                let measurement = self.measurement(invocation, name, &trial);
                ended(End::Exited(0), Some(Outcome::Measured(Box::new(measurement))))
            }
            (End::Exited(_), Some(reason)) => ended(End::Exited(1), Some(Outcome::Failed { reason })),
            (End::TimedOut, _) => Ended { elapsed: self.subject.timeout, ..ended(End::TimedOut, None) },
            (end, _) => ended(end.clone(), None),
        }
    }

    fn measurement(&self, invocation: &Invocation, name: &str, trial: &Trial) -> Measurement {
        let usage = trial.usage.unwrap_or_default();
        let mut extra = self.metrics(trial).unwrap_or_default();
        if let Some(load) = trial.load.filter(|_| !trial.wall.is_zero()) {
            let busy_s = (load.user_ns + load.kernel_ns) as f64 / 1e9;
            extra.insert(LOAD_PROCESSORS.into(), busy_s / trial.wall.as_secs_f64());
        }
        Measurement {
            schema_version: ample_protocol::SCHEMA_VERSION,
            workload: invocation.arguments.get(1).cloned().unwrap_or_default(),
            threads: threads(invocation),
            parameters: BTreeMap::new(),
            operations: 1,
            expected_operations: 1,
            wall_ns: u64::try_from(trial.wall.as_nanos()).unwrap_or(u64::MAX),
            worker_ns: Vec::new(),
            user_ns: usage.user_ns,
            kernel_ns: usage.kernel_ns,
            minor_faults: usage.minor_faults,
            major_faults: usage.major_faults,
            voluntary_switches: usage.voluntary_switches,
            involuntary_switches: usage.involuntary_switches,
            peak_rss_bytes: trial.peak,
            final_rss_bytes: trial.last,
            peak_live_bytes: None,
            served_by: self.served.get(name).cloned().unwrap_or_default(),
            extra,
            curve: Vec::new(),
            counters: BTreeMap::new(),
        }
    }

    /// Writes down what a failed run printed. That it cannot be written is no further failure.
    fn keep(&mut self, name: &str, trial: &Trial) {
        let Some(folder) = &self.kept else { return };
        self.failures += 1;
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
        let name: String = name.chars().map(plain).collect();
        let outputs =
            [("stdout", &trial.stdout), ("stderr", &trial.stderr), ("server", &trial.server_output)];
        if fs::create_dir_all(folder).is_ok() {
            for (stream, text) in outputs.iter().filter(|(_, text)| !text.is_empty()) {
                let _ = fs::write(folder.join(format!("{}-{name}.{stream}", self.failures)), text);
            }
        }
    }
}

impl Executor for TrialExecutor<'_> {
    fn execute(&mut self, invocation: &Invocation) -> Ended {
        let started = Instant::now();
        self.sample(invocation).unwrap_or_else(|error| Ended {
            end: End::NotStarted(error.to_string()),
            stdout: String::new(),
            stderr: String::new(),
            elapsed: started.elapsed(),
            usage: None,
        })
    }

    fn is_interrupted(&self) -> bool {
        self.interrupt.is_raised()
    }

    fn noise(&self) -> Noise {
        Noise::read()
    }
}

/// The number of threads that the campaign asks for.
fn threads(invocation: &Invocation) -> u32 {
    let mut pairs = invocation.arguments.windows(2);
    pairs.find_map(|pair| if pair[0] == "--threads" { pair[1].parse().ok() } else { None }).unwrap_or(1)
}

/// A start without an allocator.
fn plain(words: &[OsString]) -> Command {
    let (program, arguments) =
        words.split_first().map_or((OsString::new(), &[][..]), |(p, a)| (p.clone(), a));
    let mut command = Command::new(program);
    command.args(arguments);
    put_as_is(&mut command);
    command
}

/// The last line of the first of these texts that has one.
fn last_words(texts: &[&String]) -> String {
    const QUOTE: usize = 160;
    let mut lines = texts.iter().filter_map(|text| text.lines().rev().find(|line| !line.trim().is_empty()));
    lines
        .next()
        .map_or(String::new(), |line| format!(": {}", line.trim().chars().take(QUOTE).collect::<String>()))
}
