//! Counts the system calls of a process and all its descendants, in the part that it marks as measured.
//!
//! ```text
//! the calling thread: start ─ stopped at its exec ─ follow: wait for any thread of the tree ─ count ─ let it go on
//! ```
//!
//! A thread stops twice for each call, which makes calls slow: how often threads wait for each other is
//! not quite what it is without a tracer.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use ample_protocol::{MARK, MARK_BEGIN};
use nix::sys::ptrace::{self, Options};
use nix::unistd::Pid;
use syscalls::Sysno;

/// What a process left behind that was followed to its end.
#[derive(Debug)]
pub struct Trace {
    /// Its status, as `wait4` gives it.
    pub status: i32,
    /// The kernel's account of it.
    pub usage: libc::rusage,
    /// Its system calls by name; none where no part was marked.
    pub calls: Option<BTreeMap<String, u64>>,
}

/// Starts a program that stops at its first instruction, for [`follow`] in the same thread.
///
/// # Errors
/// As `spawn`; permission is denied where processes may not be traced.
pub fn start(command: &mut Command) -> io::Result<Child> {
    let traced = || ptrace::traceme().map_err(io::Error::from);
    // SAFETY: between fork and exec the closure makes one system call, takes no lock and no memory.
    unsafe { command.pre_exec(traced) };
    command.spawn()
}

/// Follows a program that [`start`] has started in this thread, and all that descends from it, to their ends.
/// Whatever is left when the program itself ends is killed.
///
/// # Errors
/// The system refuses to wait, or does not tell which call it is: Linux before 5.3.
pub fn follow(leader: Child) -> io::Result<Trace> {
    let leader = i32::try_from(leader.id()).map_err(io::Error::other)?;
    let (_, status, usage) = wait_for(leader)?;
    if !libc::WIFSTOPPED(status) {
        return Ok(Trace { status, usage, calls: None });
    }
    let options = Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_EXITKILL;
    ptrace::setoptions(Pid::from_raw(leader), options)?;
    let mut tree = Tree { leader, alive: BTreeSet::from([leader]), ended: None, counts: Counts::default() };
    go_on(leader, 0);
    loop {
        match wait_for(-1) {
            Ok((thread, status, usage)) => tree.advance(thread, status, usage)?,
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => break,
            Err(error) => return Err(error),
        }
    }
    let (status, usage) =
        tree.ended.ok_or_else(|| io::Error::other("the process is gone without a trace"))?;
    Ok(Trace { status, usage, calls: tree.counts.by_name() })
}

/// The threads of a process and of all that descends from it.
struct Tree {
    leader: i32,
    alive: BTreeSet<i32>,
    /// How the process ended; none while it lives.
    ended: Option<(i32, libc::rusage)>,
    counts: Counts,
}

impl Tree {
    /// Deals with a thread that has stopped or ended.
    fn advance(&mut self, thread: i32, status: i32, usage: libc::rusage) -> io::Result<()> {
        const CALL: i32 = libc::SIGTRAP | 0x80;
        if !libc::WIFSTOPPED(status) {
            self.alive.remove(&thread);
            if thread == self.leader {
                self.ended = Some((status, usage));
                self.alive.iter().for_each(|&thread| kill(thread));
            }
            return Ok(());
        }
        let first = self.alive.insert(thread);
        if self.ended.is_some() {
            kill(thread);
        }
        let is_event = status >> 16 != 0;
        match libc::WSTOPSIG(status) {
            CALL => {
                self.counts.note(thread)?;
                go_on(thread, 0);
            }
            _ if is_event => go_on(thread, 0),
            // How a new thread or process presents itself.
            libc::SIGSTOP if first => go_on(thread, 0),
            signal => go_on(thread, signal),
        }
        Ok(())
    }
}

/// System calls by number.
#[derive(Debug, Default)]
struct Counts {
    by_number: BTreeMap<u64, u64>,
    /// Processes that are in their measured parts.
    measured: u64,
    marked: bool,
}

impl Counts {
    /// Notes the call that the thread is about to make, if it has stopped for that and not for its return.
    fn note(&mut self, thread: i32) -> io::Result<()> {
        let call = match ptrace::syscall_info(Pid::from_raw(thread)) {
            Ok(call) => call,
            // Killed meanwhile.
            Err(nix::Error::ESRCH) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if call.op == libc::PTRACE_SYSCALL_INFO_ENTRY {
            // SAFETY: at an entry, this is the part of the union that the kernel has filled.
            let entry = unsafe { call.u.entry };
            self.enter(entry.nr, &entry.args);
        }
        Ok(())
    }

    fn enter(&mut self, number: u64, arguments: &[u64]) {
        let is_mark = number == Sysno::prctl as u64 && arguments[0] == MARK as u64;
        if is_mark && arguments[1] == MARK_BEGIN {
            self.measured += 1;
            self.marked = true;
        } else if is_mark {
            self.measured = self.measured.saturating_sub(1);
        } else if self.measured > 0 {
            *self.by_number.entry(number).or_default() += 1;
        }
    }

    fn by_name(self) -> Option<BTreeMap<String, u64>> {
        let name = |number: u64| {
            let known = usize::try_from(number).ok().and_then(Sysno::new);
            known.map_or_else(|| format!("call {number}"), |call| call.name().to_owned())
        };
        let named = self.by_number.into_iter().map(|(number, count)| (name(number), count));
        self.marked.then(|| named.collect())
    }
}

/// Waits for this child of the calling thread, or any (-1), to stop or to end.
fn wait_for(child: i32) -> io::Result<(i32, i32, libc::rusage)> {
    let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
    let flags = libc::__WALL | libc::__WNOTHREAD;
    loop {
        // SAFETY: both pointers are valid for writes of their types for the length of the call.
        let thread = unsafe { libc::wait4(child, &raw mut status, flags, usage.as_mut_ptr()) };
        if thread > 0 {
            // SAFETY: zeroed is a valid rusage, a plain struct of integers; the call has filled it in.
            return Ok((thread, status, unsafe { usage.assume_init() }));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Lets a stopped thread run to its next call, and hands it a signal, if it is not 0.
fn go_on(thread: i32, signal: i32) {
    let nowhere = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: the thread is this one's tracee, and the request reads and writes no memory of ours. It fails
    // only for a thread that was killed meanwhile, whose end is waited for.
    unsafe { libc::ptrace(libc::PTRACE_SYSCALL, thread, nowhere, libc::c_long::from(signal)) };
}

/// Kills the process of a thread.
fn kill(thread: i32) {
    // SAFETY: a signal to a tracee, whose number nobody else can have before it is waited for.
    unsafe { libc::kill(thread, libc::SIGKILL) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_count_between_the_marks_and_the_marks_do_not() {
        let mut counts = Counts::default();
        let (mmap, prctl) = (Sysno::mmap as u64, Sysno::prctl as u64);
        let mark = |what| [MARK as u64, what, 0, 0, 0, 0];
        counts.enter(mmap, &[0; 6]);
        counts.enter(prctl, &mark(MARK_BEGIN));
        counts.enter(mmap, &[0; 6]);
        counts.enter(prctl, &[0; 6]);
        // A second process, whose part ends first.
        counts.enter(prctl, &mark(MARK_BEGIN));
        counts.enter(prctl, &mark(0));
        counts.enter(mmap, &[0; 6]);
        counts.enter(1 << 40, &[0; 6]);
        counts.enter(prctl, &mark(0));
        counts.enter(mmap, &[0; 6]);
        let expected = [("call 1099511627776", 1), ("mmap", 2), ("prctl", 1)];
        let expected: BTreeMap<String, u64> = expected.map(|(name, count)| (name.to_owned(), count)).into();
        assert_eq!(counts.by_name(), Some(expected));
        assert_eq!(Counts::default().by_name(), None, "no part was marked");
    }

    #[test]
    fn a_tree_is_followed_to_the_end_of_its_root_and_signals_arrive() {
        let shell = |script: &str| {
            let child = start(Command::new("/bin/sh").args(["-c", script])).expect("may be traced");
            follow(child).expect("followed")
        };
        let trace = shell("sleep 1000 & sh -c 'exit 3'");
        assert_eq!((libc::WEXITSTATUS(trace.status), trace.calls), (3, None));
        assert!(trace.usage.ru_maxrss > 0);
        let trace = shell("trap 'exit 4' USR1; kill -USR1 $$; exit 5");
        assert_eq!(libc::WEXITSTATUS(trace.status), 4);
        let trace = shell("kill -SEGV $$");
        assert_eq!((libc::WIFSIGNALED(trace.status), libc::WTERMSIG(trace.status)), (true, libc::SIGSEGV));
    }

    #[test]
    fn a_program_that_does_not_exist_is_no_matter_of_tracing() {
        let error = start(&mut Command::new("/nonexistent/program")).expect_err("refused");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
