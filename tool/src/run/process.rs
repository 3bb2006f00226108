//! Runs one process in a process group of its own, with a time limit, and without a thread beside it;
//! under trace, with one that follows it.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

use super::executor::{End, Ended, Executor, Invocation, Traced};
use super::family::{end_orphans, tie};
use super::{Interrupt, trace};
use crate::allocators::OWN_VARIABLES;
use crate::record::{Noise, Usage};

/// Bytes kept of each output stream; what comes after is read and dropped.
const OUTPUT_BOUND: usize = 1 << 20;
/// How long the streams of a process that has ended may stay open.
const DRAIN: Duration = Duration::from_secs(1);
/// Variables that processes inherit by name.
const INHERITED: &[&str] = &["PATH", "LD_LIBRARY_PATH", "GLIBC_TUNABLES"];
/// Beginnings of the names of variables that configure allocators; processes inherit them.
const INHERITED_PREFIXES: &[&str] = &[
    "MALLOC_",
    "AMPLE_",
    "_RJEM_MALLOC_",
    "MIMALLOC_",
    "TCMALLOC_",
    "TBB_MALLOC_",
    "SCUDO_",
    "SNMALLOC_",
    "RPMALLOC_",
];
/// The variables that reach measured processes from outside; a clean environment otherwise, so
/// that a run does not depend on who starts it.
pub fn inherited_environment() -> BTreeMap<String, String> {
    inherited().map(|(name, value)| (name, value.to_string_lossy().into_owned())).collect()
}

/// The same as processes get it: a value may be no text.
fn inherited() -> impl Iterator<Item = (String, OsString)> {
    let named = env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    named.filter(|(name, _)| {
        let configures = INHERITED_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        INHERITED.contains(&name.as_str()) || configures && !OWN_VARIABLES.contains(&name.as_str())
    })
}

/// Runs real processes.
#[derive(Debug)]
pub struct ProcessExecutor {
    interrupt: Interrupt,
    inherited: BTreeMap<String, OsString>,
}

impl ProcessExecutor {
    /// An executor that stops when `interrupt` is raised.
    pub fn new(interrupt: Interrupt) -> Self {
        Self { interrupt, inherited: inherited().collect() }
    }

    fn command(&self, invocation: &Invocation) -> Command {
        let mut command = Command::new(&invocation.program);
        command
            .args(&invocation.arguments)
            .env_clear()
            .envs(&self.inherited)
            .env("LC_ALL", "C")
            .envs(&invocation.environment)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        tie(&mut command);
        command
    }

    fn run(&self, invocation: &Invocation, started: Instant) -> io::Result<Ended> {
        let mut child = self.command(invocation).spawn()?;
        let pid = Pid::from_child(&child);
        let mut stdout = Stream::new(child.stdout.take().map(OwnedFd::from));
        let mut stderr = Stream::new(child.stderr.take().map(OwnedFd::from));
        let watched = pidfd_open(pid, PidfdFlags::empty())
            .map_err(io::Error::from)
            .and_then(|process| self.watch(&process, started + invocation.timeout, &mut stdout, &mut stderr));
        // The leader is a zombie or about to be one, so its number still names this very group.
        // An error here means that the group is already gone.
        let _ = kill_process_group(pid, Signal::KILL);
        let (status, usage) = reap(child)?;
        end_orphans();
        let elapsed = started.elapsed();
        drain(&mut stdout, &mut stderr)?;
        let end = watched?.unwrap_or_else(|| decode(status));
        Ok(Ended { end, stdout: stdout.text(), stderr: stderr.text(), elapsed, usage: Some(usage) })
    }

    /// A thread of its own starts the process and follows it, as the system demands it of a tracer; this
    /// one reads and watches the time.
    fn run_traced(&self, invocation: &Invocation, started: Instant) -> io::Result<Traced> {
        let mut command = self.command(invocation);
        let (send, started_child) = mpsc::sync_channel(1);
        thread::scope(|scope| {
            let tracer = scope.spawn(move || {
                let mut child = trace::start(&mut command)?;
                let process = match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
                    Ok(process) => process,
                    Err(error) => {
                        child.kill()?;
                        child.wait()?;
                        return Err(error.into());
                    }
                };
                let streams =
                    [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
                // The other thread waits for nothing else.
                drop(send.send((process, streams)));
                trace::follow(child)
            });
            let watched = started_child.recv().ok().map(|(process, streams)| {
                let [mut stdout, mut stderr] = streams.map(Stream::new);
                let deadline = started + invocation.timeout;
                let watched = self.watch(&process, deadline, &mut stdout, &mut stderr);
                // An error here means that it is already gone; its end takes all its descendants with it.
                let _ = pidfd_send_signal(&process, Signal::KILL);
                (watched, stdout, stderr)
            });
            let trace = tracer.join().map_err(|_| io::Error::other("the tracer panicked"))??;
            let elapsed = started.elapsed();
            let Some((watched, mut stdout, mut stderr)) = watched else {
                return Err(io::Error::other("the tracer did not say what it started"));
            };
            drain(&mut stdout, &mut stderr)?;
            let end = watched?.unwrap_or_else(|| decode(trace.status));
            let (stdout, stderr) = (stdout.text(), stderr.text());
            let ended = Ended { end, stdout, stderr, elapsed, usage: Some(account(&trace.usage)) };
            Ok(Traced { ended, system_calls: Ok(trace.calls) })
        })
    }

    /// Reads both streams until the process ends (none), the time is over, or the tool must stop.
    fn watch(
        &self,
        process: &OwnedFd,
        deadline: Instant,
        stdout: &mut Stream,
        stderr: &mut Stream,
    ) -> io::Result<Option<End>> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Some(End::TimedOut));
            }
            let fixed = [process.as_fd(), self.interrupt.as_fd()];
            let [ended, interrupted] = wait(fixed, stdout, stderr, left)?;
            if interrupted {
                return Ok(Some(End::Interrupted));
            }
            if ended {
                return Ok(None);
            }
        }
    }
}

impl Executor for ProcessExecutor {
    fn execute(&mut self, invocation: &Invocation) -> Ended {
        let started = Instant::now();
        self.run(invocation, started).unwrap_or_else(|error| not_started(invocation, started, &error))
    }

    fn trace(&mut self, invocation: &Invocation) -> Traced {
        let started = Instant::now();
        self.run_traced(invocation, started).unwrap_or_else(|error| Traced {
            ended: not_started(invocation, started, &error),
            system_calls: untraceable(&error).map_or(Ok(None), Err),
        })
    }

    fn is_interrupted(&self) -> bool {
        self.interrupt.is_raised()
    }

    fn noise(&self) -> Noise {
        Noise::read()
    }
}

fn not_started(invocation: &Invocation, started: Instant, error: &io::Error) -> Ended {
    Ended {
        end: End::NotStarted(format!("cannot run {}: {error}", invocation.program.display())),
        stdout: String::new(),
        stderr: String::new(),
        elapsed: started.elapsed(),
        usage: None,
    }
}

/// The reason why this machine lets no process be traced, if that is what the error means. A program that
/// may not be executed would have failed before.
fn untraceable(error: &io::Error) -> Option<String> {
    let refused = [libc::EPERM, libc::EACCES, libc::ENOSYS, libc::EIO];
    let code = error.raw_os_error().filter(|code| refused.contains(code));
    code.map(|_| format!("processes may not be traced here (ptrace: {error})"))
}

/// One output stream of a process.
struct Stream {
    pipe: Option<File>,
    content: Vec<u8>,
}

impl Stream {
    fn new(pipe: Option<OwnedFd>) -> Self {
        Self { pipe: pipe.map(File::from), content: Vec::new() }
    }

    /// Reads once; to be called when the pipe is ready, and closes it at its end.
    fn read(&mut self) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        let mut buffer = [0; 16 * 1024];
        match pipe.read(&mut buffer) {
            Ok(0) => self.pipe = None,
            Ok(count) => {
                let room = OUTPUT_BOUND - self.content.len();
                self.content.extend_from_slice(&buffer[..count.min(room)]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.content).into_owned()
    }
}

/// Waits for any of `fixed` or either stream, reads the streams that are ready, and tells which of
/// `fixed` are.
fn wait<const N: usize>(
    fixed: [BorrowedFd<'_>; N],
    stdout: &mut Stream,
    stderr: &mut Stream,
    limit: Duration,
) -> io::Result<[bool; N]> {
    let mut set: Vec<PollFd<'_>> = fixed.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let streams = [&*stdout, &*stderr].map(|stream| stream.pipe.as_ref());
    set.extend(streams.iter().flatten().map(|pipe| PollFd::new(*pipe, PollFlags::IN)));
    let limit = Timespec::try_from(limit).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
    match poll(&mut set, Some(&limit)) {
        Ok(_) => {}
        Err(rustix::io::Errno::INTR) => return Ok([false; N]),
        Err(error) => return Err(error.into()),
    }
    let mut ready = set.iter().map(|fd| !fd.revents().is_empty());
    let answer = std::array::from_fn(|_| ready.next().unwrap_or(false));
    let open = streams.map(|pipe| pipe.is_some());
    let readable: Vec<bool> = open.into_iter().map(|open| open && ready.next().unwrap_or(false)).collect();
    for (stream, readable) in [stdout, stderr].into_iter().zip(readable) {
        if readable {
            stream.read()?;
        }
    }
    Ok(answer)
}

/// Reads what is left in the streams of a process that has ended. A descendant that left the
/// process group may hold them open: it is not waited for beyond [`DRAIN`].
fn drain(stdout: &mut Stream, stderr: &mut Stream) -> io::Result<()> {
    let deadline = Instant::now() + DRAIN;
    while stdout.pipe.is_some() || stderr.pipe.is_some() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let [] = wait([], stdout, stderr, left)?;
    }
    Ok(())
}

/// Waits for this very child, and takes the kernel's account of it and it alone.
pub fn reap(child: Child) -> io::Result<(i32, Usage)> {
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: both pointers are valid for writes of their types for the length of the call.
        let reaped = unsafe { libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()) };
        if reaped == pid {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: zeroed is a valid rusage, a plain struct of integers; the call has filled it in.
    let usage = unsafe { usage.assume_init() };
    Ok((status, account(&usage)))
}

fn account(usage: &libc::rusage) -> Usage {
    let count = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
    let nanoseconds = |time: libc::timeval| count(time.tv_sec) * 1_000_000_000 + count(time.tv_usec) * 1000;
    Usage {
        user_ns: nanoseconds(usage.ru_utime),
        kernel_ns: nanoseconds(usage.ru_stime),
        max_rss_bytes: count(usage.ru_maxrss) * 1024,
        minor_faults: count(usage.ru_minflt),
        major_faults: count(usage.ru_majflt),
        voluntary_switches: count(usage.ru_nvcsw),
        involuntary_switches: count(usage.ru_nivcsw),
    }
}

/// How a process with this status ended.
pub fn decode(status: i32) -> End {
    if libc::WIFSIGNALED(status) {
        End::Killed(libc::WTERMSIG(status))
    } else {
        End::Exited(libc::WEXITSTATUS(status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, timeout: Duration) -> Ended {
        let mut executor = ProcessExecutor::new(Interrupt::install().expect("signals"));
        executor.execute(&Invocation {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: BTreeMap::from([("GREETING".into(), "hello".into())]),
            timeout,
        })
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn output_and_code_come_back_and_the_environment_is_clean() {
        let ended = shell("echo $GREETING $HOME; echo wrong >&2; exit 3", LONG);
        assert_eq!(ended.end, End::Exited(3));
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("hello\n", "wrong\n"));
        assert!(ended.usage.expect("an account").max_rss_bytes > 0);
    }

    fn traced(script: &str, timeout: Duration) -> Traced {
        let mut executor = ProcessExecutor::new(Interrupt::install().expect("signals"));
        executor.trace(&Invocation {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: BTreeMap::new(),
            timeout,
        })
    }

    #[test]
    fn a_traced_process_ends_as_others_do() {
        let Traced { ended, system_calls } = traced("echo out; echo wrong >&2; exit 3", LONG);
        assert_eq!((ended.end, system_calls), (End::Exited(3), Ok(None)));
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("out\n", "wrong\n"));
        let hung = traced("sleep 1000 & sleep 1000", Duration::from_millis(50)).ended;
        assert_eq!(hung.end, End::TimedOut);
        assert!(hung.elapsed < Duration::from_secs(10));
        let left_behind = traced("sleep 1000 & echo done", LONG).ended;
        assert_eq!((left_behind.end, left_behind.stdout.as_str()), (End::Exited(0), "done\n"));
        assert!(left_behind.elapsed < Duration::from_secs(10));
    }

    #[test]
    fn a_machine_that_forbids_tracing_is_told_from_a_program_that_is_missing() {
        let refused = untraceable(&io::Error::from_raw_os_error(libc::EPERM));
        let expected = "processes may not be traced here (ptrace: Operation not permitted (os error 1))";
        assert_eq!(refused.as_deref(), Some(expected));
        assert_eq!(untraceable(&io::Error::from_raw_os_error(libc::ENOENT)), None);
    }

    #[test]
    fn a_signal_is_told_from_a_code() {
        assert_eq!(shell("kill -SEGV $$", LONG).end, End::Killed(libc::SIGSEGV));
    }

    #[test]
    fn a_process_that_hangs_is_killed_with_its_children() {
        let ended = shell("sleep 1000 & sleep 1000", Duration::from_millis(50));
        assert_eq!(ended.end, End::TimedOut);
        assert!(ended.elapsed < Duration::from_secs(10));
    }

    #[test]
    fn children_left_behind_do_not_hold_the_tool_up() {
        let ended = shell("sleep 1000 & echo done", LONG);
        assert_eq!((ended.end, ended.stdout.as_str()), (End::Exited(0), "done\n"));
        assert!(ended.elapsed < Duration::from_secs(10));
    }

    #[test]
    fn endless_output_is_cut() {
        let ended = shell("head -c 3000000 /dev/zero", LONG);
        assert_eq!((ended.end, ended.stdout.len()), (End::Exited(0), OUTPUT_BOUND));
    }

    #[test]
    fn a_program_that_does_not_exist_is_a_reason() {
        let mut executor = ProcessExecutor::new(Interrupt::install().expect("signals"));
        let ended = executor.execute(&Invocation {
            program: "/nonexistent/program".into(),
            arguments: Vec::new(),
            environment: BTreeMap::new(),
            timeout: LONG,
        });
        assert!(
            matches!(ended.end, End::NotStarted(reason) if reason.starts_with("cannot run /nonexistent"))
        );
    }
}
