//! A program that runs already: what its malloc costs it and what its memory is, from outside, without its help.

mod accounts;
mod contents;
mod descendants;
mod figures;
mod findings;
mod heaps;
mod samples;
mod server;
mod waits;

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use object::elf::ELFCLASS64;
use procfs::Current as _;
use procfs::process::{LimitValue, MemoryMap, Process};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, getrlimit, pidfd_open, setrlimit};
use serde::Serialize;

use crate::error::UsageError;
use crate::observation::{Known, Parts, in_memory, parts};
use crate::run::Interrupt;

pub use accounts::Account;
pub use descendants::Descendant;
pub use figures::Figures;
pub use findings::{Finding, Kind};
pub use heaps::Heaps;
pub use samples::Looks;
pub use waits::Waits;

use accounts::Accounts;
use descendants::{Times, descendants};
use figures::Record;
use heaps::{Survey, survey};
use samples::Samples;
use server::{Server, data};
use waits::Looker;

/// How often new threads are looked for, and accounts and notes taken.
const REFRESH: Duration = Duration::from_millis(200);

/// A stack's length where nothing tells it.
const STACK: u64 = 8 << 20;

/// Where an ELF file says whether it is for 32 or 64 bits.
const CLASS: u64 = 4;

/// What was seen of a process in a while.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Running {
    /// Its number.
    pub pid: i32,
    /// The program's name, its first 15 bytes.
    pub name: String,
    /// The program and its arguments; nothing where it says something else in their place, as some servers do.
    pub command: Vec<String>,
    /// The processes that it has started, and those that they have, which are in none of the other figures; the largest first.
    pub descendants: Vec<Descendant>,
    /// Seconds since it was started, when the look began.
    pub age_s: f64,
    /// How long it was looked at, in seconds.
    pub seconds: f64,
    /// Whether it ended meanwhile.
    pub ended: bool,
    /// Whether it was stopped when the look began, and did nothing.
    pub stopped: bool,
    /// Processors that it may use.
    pub processors: usize,
    /// Who serves its malloc; none where that was not found out.
    pub allocator: Option<String>,
    /// That one's file.
    pub allocator_file: Option<PathBuf>,
    /// What it had in that time.
    pub account: Account,
    /// Processor time of its threads in that time, most first, in nanoseconds.
    pub times_of_threads: Vec<u64>,
    /// Looks at the code that it executes; none where malloc's is not known, or the system lets nobody look.
    pub code: Option<Looks>,
    /// What its threads waited for; none where the system does not tell.
    pub waits: Option<Waits>,
    /// Its memory when the look began.
    pub before: Memory,
    /// And when it ended, or before the process did.
    pub after: Memory,
    /// What follows from it.
    pub findings: Vec<Finding>,
}

/// The memory of a process at a moment.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Memory {
    /// Bytes that are resident and its own, mapped files left out.
    pub resident_bytes: u64,
    /// Of these, what no other process has as well: after a fork both have all of it, until one of them writes to it or ends. None where that is not known.
    pub unshared_bytes: Option<u64>,
    /// What they are; where `heaps` are not known, malloc's are among the others.
    pub parts: Parts,
    /// What glibc's malloc has; none under other allocators, or where the system lets nobody look.
    pub heaps: Option<Heaps>,
    /// What Ample's heap is made of; likewise.
    pub figures: Option<Figures>,
}

impl Memory {
    /// Bytes in blocks at most; none where that is not known.
    pub fn live_bytes(&self) -> Option<u64> {
        self.heaps.map(|heaps| heaps.live_bytes()).or(self.figures.map(|figures| figures.live_bytes()))
    }

    /// Bytes that the allocator has free, in memory or not; likewise.
    pub fn free_bytes(&self) -> Option<u64> {
        let of_ample = self.figures.map(|figures| figures.room_bytes + figures.kept_bytes);
        self.heaps.map(|heaps| heaps.free_bytes).or(of_ample)
    }
}

/// Looks at a process for so long, or until it ends or the user wants to stop.
///
/// # Errors
/// There is no such process, or it cannot be looked at.
pub fn look_at(pid: i32, duration: Duration) -> Result<Running> {
    let process = Process::new(pid).map_err(|_| UsageError(format!("there is no process {pid}")))?;
    let stat = process.stat().with_context(|| format!("cannot look at process {pid}"))?;
    let (maps, age_s) = (mappings(&process, &stat.comm)?, age(stat.starttime));
    // As many files as threads are open at a time.
    let files = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: files.maximum, maximum: files.maximum });
    let handle = pidfd_open(Pid::from_raw(pid).context("no number of a process")?, PidfdFlags::empty())
        .with_context(|| format!("cannot watch process {pid}"))?;
    let interrupt = Interrupt::install().context("cannot catch signals")?;
    let server = Server::of(&process, &maps);
    let look = Look::new(&process, &server, &maps);
    let (first, times) = (look.see(&maps), Times::of(&process));
    let (mut samples, mut looker) = (Samples::default(), Looker::default());
    looker.find(&process);
    samples.look(&process, &server);
    let first_accounts = Accounts::of(&process).with_context(|| format!("process {pid} has ended"))?;
    let mut accounts = first_accounts.clone();
    let (began, mut refreshed, mut ended) = (Instant::now(), Instant::now(), false);
    while let Some(left) = duration.checked_sub(began.elapsed()) {
        let pause = Timespec::try_from(looker.look().min(left)).unwrap_or_default();
        let mut set = [PollFd::new(&handle, PollFlags::IN), PollFd::new(&interrupt, PollFlags::IN)];
        let _ = poll(&mut set, Some(&pause));
        ended = !set[0].revents().is_empty();
        if ended || interrupt.is_raised() {
            break;
        }
        if refreshed.elapsed() >= REFRESH {
            refreshed = Instant::now();
            looker.find(&process);
            samples.look(&process, &server);
            accounts = Accounts::of(&process).unwrap_or(accounts);
        }
    }
    accounts = Accounts::of(&process).unwrap_or(accounts);
    let seconds = began.elapsed().as_secs_f64();
    let stacks: Vec<u64> = looker.stacks().collect();
    let before = look.memory(&maps, &first, &stacks, age_s);
    let last = process.smaps().ok().map(|maps| maps.0).filter(|maps| !maps.is_empty());
    let last = last.map(|maps| (look.see(&maps), maps));
    let after =
        last.as_ref().map_or(before, |(seen, maps)| look.memory(maps, seen, &stacks, age_s + seconds));
    let locks = &last.as_ref().map_or(&first, |(seen, _)| seen).survey.locks;
    let mut running = Running {
        pid,
        name: stat.comm,
        command: command(&process),
        descendants: descendants(&process, &times),
        age_s,
        seconds,
        ended,
        stopped: matches!(stat.state, 'T' | 't'),
        processors: processors(&process),
        allocator: server.name(),
        allocator_file: server.file.clone(),
        account: accounts.since(&first_accounts),
        times_of_threads: accounts.of_threads_since(&first_accounts),
        waits: looker.waits(locks),
        code: samples.end(&server).filter(|_| !server.code.is_empty()),
        before,
        after,
        findings: Vec::new(),
    };
    running.findings = findings::of(&running);
    Ok(running)
}

/// What is asked of a process again and again.
struct Look<'a> {
    process: &'a Process,
    server: &'a Server,
    /// Its memory; none where the system lets nobody read it.
    memory: Option<File>,
    /// Where Ample's figures lie, if it is Ample.
    record: Option<Record>,
    /// How long the stacks of threads are that ask for no other length.
    stack: u64,
}

impl<'a> Look<'a> {
    fn new(process: &'a Process, server: &'a Server, maps: &[MemoryMap]) -> Self {
        let memory = process.mem().ok();
        // Whoever serves malloc: a program in Rust may have Ample for itself.
        let record = memory.as_ref().and_then(|memory| Record::find(&data(maps), memory));
        Self { process, server, memory, record, stack: stack_limit(process) }
    }

    fn see(&self, maps: &[MemoryMap]) -> Seen {
        let Some(memory) = &self.memory else { return Seen::default() };
        let walked = self.server.is_glibc.then(|| survey(maps, &self.server.data, memory));
        let figures = self.record.and_then(|record| record.read(memory));
        Seen { survey: walked.unwrap_or_default(), figures }
    }

    /// Where a stack ends that begins with a mapping, and in which this address is in use: the system makes one mapping of a stack and of what lies directly behind it.
    fn stack_end(&self, address: u64, mapping: Range<u64>) -> u64 {
        mapping.end.min((mapping.start + self.stack).max((address + 1).next_multiple_of(procfs::page_size())))
    }

    fn memory(&self, maps: &[MemoryMap], seen: &Seen, stacks: &[u64], age_s: f64) -> Memory {
        let survey = &seen.survey;
        let stack_of = |address: &u64| {
            let map = maps.iter().find(|map| (map.address.0..map.address.1).contains(address))?;
            Some(map.address.0..self.stack_end(*address, map.address.0..map.address.1))
        };
        let known =
            Known { places: survey.places.clone(), stacks: stacks.iter().filter_map(stack_of).collect() };
        let of = |map: &MemoryMap, name| map.extension.map.get(name).copied().unwrap_or(0);
        let resident = |map: &MemoryMap| of(map, "Anonymous");
        let unshared =
            |map: &MemoryMap| (of(map, "Private_Dirty") + of(map, "Private_Clean")).min(resident(map));
        let parts = parts(maps, &known, |range| in_memory(self.process, range).unwrap_or(0));
        Memory {
            resident_bytes: maps.iter().map(resident).sum(),
            unshared_bytes: Some(maps.iter().map(unshared).sum()),
            parts: Parts { at_ms: (age_s * 1e3) as u64, live_bytes: survey.heaps.live_bytes(), ..parts },
            heaps: (self.memory.is_some() && self.server.is_glibc).then_some(survey.heaps),
            figures: seen.figures,
        }
    }
}

/// The length of a thread's stack in a process, where nothing else is asked for (glibc's, where it is not limited).
fn stack_limit(process: &Process) -> u64 {
    match process.limits().map(|limits| limits.max_stack_size.soft_limit) {
        Ok(LimitValue::Value(bytes)) => bytes,
        Ok(LimitValue::Unlimited) | Err(_) => STACK,
    }
}

/// What is known of malloc's memory at a moment.
#[derive(Debug, Default)]
struct Seen {
    /// What a walk over glibc's heaps found.
    survey: Survey,
    /// What Ample tells.
    figures: Option<Figures>,
}

/// The mappings of a process that can be looked at.
fn mappings(process: &Process, name: &str) -> Result<Vec<MemoryMap>> {
    let pid = process.pid();
    let maps = process.smaps().with_context(|| {
        format!("cannot look into process {pid} ({name}): it belongs to another user, or is protected: ask as that user, or as root (sudo)")
    })?;
    if maps.0.is_empty() {
        return Err(UsageError(format!(
            "process {pid} ({name}) is the kernel's own, or has ended: it has no memory"
        ))
        .into());
    }
    let mut class = [ELFCLASS64.0];
    if let Ok(program) = File::open(format!("/proc/{pid}/exe")) {
        let _ = program.read_exact_at(&mut class, CLASS);
    }
    if class != [ELFCLASS64.0] {
        return Err(UsageError(format!(
            "process {pid} ({name}) is a program of 32 bits, which this tool does not know"
        ))
        .into());
    }
    Ok(maps.0)
}

/// How the process was started. A server that puts its state there makes one word of it.
fn command(process: &Process) -> Vec<String> {
    let words = process.cmdline().unwrap_or_default();
    if words.first().is_some_and(|word| word.contains(' ')) { Vec::new() } else { words }
}

/// Seconds since a moment that is told in ticks since the system's start.
fn age(ticks: u64) -> f64 {
    let up = procfs::Uptime::current().map_or(0.0, |up| up.uptime);
    (up - ticks as f64 / procfs::ticks_per_second() as f64).max(0.0)
}

/// Processors that a process may use.
fn processors(process: &Process) -> usize {
    let allowed = process.status().ok().and_then(|status| status.cpus_allowed);
    allowed.map_or(1, |masks| masks.iter().map(|mask| mask.count_ones() as usize).sum::<usize>().max(1))
}
