//! One process from its start to its end: watched from outside, its output kept in memory.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, setsid};

use super::Tree;
use super::tree::floor;
use crate::programs::Sightings;
use crate::record::Usage;
use crate::run::{End, Interrupt, decode, end_orphans, reap, tie};

/// Bytes of each output stream that are read: its end.
const OUTPUT_BOUND: u64 = 1 << 20;
/// What the kernel's account of a process may be above the memory that it was forked with: pages of files that it needs until its exec, and the
/// system may map 2 MiB of such a file at once.
const SLACK: u64 = 5 << 20;
/// Bytes of output that are held at most: what lies before the end is given back to the system.
const HELD: u64 = 64 << 20;

/// A process that runs.
pub struct Running {
    child: Child,
    process: OwnedFd,
    stdout: Output,
    stderr: Output,
    started: Instant,
    /// Its memory, where that is looked at.
    pub tree: Option<Tree>,
    /// The most pages of files that one process of it had in earlier runs, in bytes.
    pub known_files: u64,
    floor: u64,
}

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The process with this index has ended.
    Ended(usize),
    /// The user wants to stop.
    Interrupted,
    /// The time is over.
    TimedOut,
}

impl Running {
    /// Starts it in a session of its own, without a terminal. Standard input is the tool's own if that is a file, which
    /// every process then reads from its beginning, and empty otherwise.
    pub fn start(mut command: Command, look: bool) -> io::Result<Self> {
        let (stdout, stderr) = (Output::new()?, Output::new()?);
        command.stdin(input()?).stdout(stdout.writer()?).stderr(stderr.writer()?);
        // With what is done before the exec, the process is forked rather than started on this one's memory, whose
        // whole size would then be the floor of what the kernel reports as its largest resident set.
        tie(&mut command);
        // Without a terminal, which would stop it for good where it reads from it or sets it up in the background.
        let alone = || Ok(setsid().map(drop)?);
        // SAFETY: between fork and exec the closure makes one system call, takes no lock and no memory.
        unsafe { command.pre_exec(alone) };
        let before = floor();
        let started = Instant::now();
        let child = command.spawn().map_err(|error| {
            let program = command.get_program().display();
            io::Error::new(error.kind(), format!("cannot run {program}: {error}"))
        })?;
        let pid = Pid::from_child(&child);
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        // Other threads may allocate meanwhile: the fork lies between the two.
        let floor = before.max(floor()) + SLACK;
        let tree = look.then(|| Tree::of(pid.as_raw_pid()));
        Ok(Self { child, process, stdout, stderr, started, tree, known_files: 0, floor })
    }

    /// Looks at its programs as well, where it is looked at.
    pub fn note(&mut self, sightings: Option<Sightings>) {
        if let Some(sightings) = sightings {
            self.tree = self.tree.take().map(|tree| tree.noting(sightings));
        }
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How long it has been running.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Sends a signal to its process group. The number still names that very group, since nobody has
    /// waited for the process yet; an error means that the group is gone.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
    }

    /// Kills what is left of its group, and takes the kernel's account; of what is looked at, kills all that it
    /// has left behind.
    pub fn finish(self) -> io::Result<Finished> {
        self.signal(Signal::KILL);
        let mut tree = self.tree;
        if let Some(tree) = &mut tree {
            tree.look_at_end();
        }
        let (status, usage) = reap(self.child)?;
        if let Some(tree) = &mut tree {
            end_orphans();
            tree.settle(usage.max_rss_bytes, self.floor, self.known_files);
        }
        Ok(Finished {
            end: decode(status),
            usage,
            stdout: self.stdout.text()?,
            stderr: self.stderr.text()?,
            tree,
        })
    }

    /// Looks at its memory, and tells when to do so again.
    fn look(&mut self) -> Option<Duration> {
        self.tree.as_mut().map(Tree::look)
    }
}

/// What is left of a process.
pub struct Finished {
    /// How it ended.
    pub end: End,
    /// The kernel's account of it and the children that it waited for.
    pub usage: Usage,
    /// The end of its standard output.
    pub stdout: String,
    /// The end of its standard error.
    pub stderr: String,
    /// Its memory, where that was looked at.
    pub tree: Option<Tree>,
}

/// Waits until one of these processes ends, and looks at their memory meanwhile.
pub fn watch(running: &mut [&mut Running], interrupt: &Interrupt, deadline: Instant) -> io::Result<Event> {
    loop {
        let mut pause = deadline.saturating_duration_since(Instant::now());
        if pause.is_zero() {
            return Ok(Event::TimedOut);
        }
        for each in &mut *running {
            each.stdout.trim()?;
            each.stderr.trim()?;
            pause = each.look().map_or(pause, |next| pause.min(next));
        }
        let mut ready: Vec<BorrowedFd<'_>> = running.iter().map(|each| each.process.as_fd()).collect();
        ready.push(interrupt.as_fd());
        match wait(&ready, pause)? {
            Some(index) if index < running.len() => return Ok(Event::Ended(index)),
            Some(_) => return Ok(Event::Interrupted),
            None => {}
        }
    }
}

/// The first of these descriptors that is ready; none after so long.
fn wait(descriptors: &[BorrowedFd<'_>], limit: Duration) -> io::Result<Option<usize>> {
    let mut set: Vec<PollFd<'_>> =
        descriptors.iter().map(|&descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)).collect();
    let limit = Timespec::try_from(limit).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
    match poll(&mut set, Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(set.iter().position(|descriptor| !descriptor.revents().is_empty()))
}

/// A file in memory that takes a stream of output. Not `/dev/null`, with which some programs (grep, tar) do
/// less; not a pipe, whose reader would take part in what is measured.
struct Output {
    file: File,
    given_back: u64,
}

impl Output {
    fn new() -> io::Result<Self> {
        Ok(Self { file: memfd_create("output", MemfdFlags::CLOEXEC)?.into(), given_back: 0 })
    }

    fn writer(&self) -> io::Result<Stdio> {
        Ok(self.file.try_clone()?.into())
    }

    /// Gives memory back where there is much output. Its size stays.
    fn trim(&mut self) -> io::Result<()> {
        let size = self.file.metadata()?.size();
        if size.saturating_sub(self.given_back) > HELD {
            let end = size - OUTPUT_BOUND;
            fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, end)?;
            self.given_back = end;
        }
        Ok(())
    }

    /// Its end, as text.
    fn text(&self) -> io::Result<String> {
        let size = self.file.metadata()?.size();
        let begin = size.saturating_sub(OUTPUT_BOUND);
        let mut bytes = vec![0; usize::try_from(size - begin).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, begin)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Whether the tool has a standard input that its processes cannot read from the beginning: a pipe or a socket.
pub fn input_is_lost() -> bool {
    let own = io::stdin().as_fd().try_clone_to_owned().map(File::from);
    let kind = own.and_then(|own| own.metadata()).map(|data| data.file_type());
    kind.is_ok_and(|kind| kind.is_fifo() || kind.is_socket())
}

/// Standard input of the next process.
fn input() -> io::Result<Stdio> {
    let own = io::stdin().as_fd().try_clone_to_owned().map(File::from);
    match own.and_then(|own| own.metadata()) {
        // Opened anew, so that each process has a position of its own.
        Ok(data) if data.is_file() => Ok(File::open("/proc/self/fd/0")?.into()),
        _ => Ok(Stdio::null()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Running {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        Running::start(command, true).expect("started")
    }

    fn end(running: &mut Running, limit: Duration) -> Event {
        let interrupt = Interrupt::install().expect("signals");
        watch(&mut [running], &interrupt, Instant::now() + limit).expect("watched")
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn both_streams_and_the_code_come_back() {
        let mut running = shell("echo out; echo err >&2; exit 3");
        assert_eq!(end(&mut running, LONG), Event::Ended(0));
        let finished = running.finish().expect("an account");
        assert_eq!(finished.end, End::Exited(3));
        assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("out\n", "err\n"));
    }

    #[test]
    fn the_memory_of_a_child_counts_and_that_of_the_tool_does_not() {
        // A child holds 32 MiB in a variable for a while.
        let script = "sh -c 'a=$(head -c 33554432 /dev/zero | tr \"\\0\" a); sleep 0.3'; true";
        let mut running = shell(script);
        assert_eq!(end(&mut running, LONG), Event::Ended(0));
        let peak = running.finish().expect("an account").tree.expect("looked at").peak();
        assert!(peak > 32 << 20, "{peak}");
        let mut small = shell("sleep 0.05");
        assert_eq!(end(&mut small, LONG), Event::Ended(0));
        let peak = small.finish().expect("an account").tree.expect("looked at").peak();
        assert!((1..8 << 20).contains(&peak), "{peak}");
    }

    #[test]
    fn a_peak_at_the_very_end_is_not_missed() {
        // Its last growth and its end are much closer together than two looks.
        let mut running = shell("exec head -c 1 /dev/null");
        let mut large = shell("sleep 0.05; a=$(head -c 67108864 /dev/zero | tr '\\0' a)");
        assert_eq!((end(&mut running, LONG), end(&mut large, LONG)), (Event::Ended(0), Event::Ended(0)));
        let peak = |running: Running| running.finish().expect("an account").tree.expect("looked at").peak();
        assert!(peak(large) >= 64 << 20);
        assert!(peak(running) < 8 << 20);
    }

    #[test]
    fn what_runs_too_long_is_ended_with_its_group() {
        let mut running = shell("sleep 1000 & sleep 1000");
        assert_eq!(end(&mut running, Duration::from_millis(50)), Event::TimedOut);
        assert_eq!(running.finish().expect("an account").end, End::Killed(libc::SIGKILL));
    }

    #[test]
    fn much_output_is_given_back_and_its_end_is_kept() {
        let mut running = shell("head -c 200000000 /dev/zero; sleep 0.1; echo end");
        assert_eq!(end(&mut running, LONG), Event::Ended(0));
        assert!(running.stdout.given_back > 0);
        assert!(running.finish().expect("an account").stdout.ends_with("end\n"));
    }
}
