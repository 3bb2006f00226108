//! The same work in several processes at once, each with a heap of its own.
//!
//! The processes are forked from this one, which only coordinates: it holds them at each
//! [`Gate::pass`] until all have come there, and collects what they return.

use std::io::{self, PipeReader, PipeWriter, Read, Write, pipe};

use serde::{Deserialize, Serialize};

use super::failure::Failure;

/// Where the processes wait for each other; in a run of one process, nothing waits.
pub struct Gate(Option<(PipeWriter, PipeReader)>);

impl Gate {
    /// The gate of a process that runs alone.
    pub fn alone() -> Self {
        Self(None)
    }

    /// Waits until every process of the run is here.
    pub fn pass(&mut self) {
        let Some((ready, go)) = &mut self.0 else { return };
        let passed = ready.write_all(&[0]).and_then(|()| go.read_exact(&mut [0]));
        if passed.is_err() {
            // The coordinator is gone, or gave up because another process failed.
            exit_now(1);
        }
    }
}

/// Runs `job` in `count` processes at once, each of which is told its number, from 0, and passes its gate `passes` times; returns
/// their results in order.
///
/// The calling process must have one thread only.
///
/// # Errors
/// A job's own failure; a process that ends without a result; the system refuses a process.
pub fn run_at_once<T>(
    count: usize,
    passes: usize,
    job: impl Fn(usize, &mut Gate) -> Result<T, Failure>,
) -> Result<Vec<T>, Failure>
where
    T: Serialize + for<'de> Deserialize<'de>,
{
    let mut children = Vec::with_capacity(count);
    for number in 0..count {
        children.push(Child::start(|gate| job(number, gate))?);
    }
    for _ in 0..passes {
        // A child that ended before it came here is found out when its result is collected.
        if children.iter_mut().all(|child| child.from.read_exact(&mut [0]).is_ok()) {
            for child in &mut children {
                // A failed write means a dead child: found out below, as above.
                drop(child.to.write_all(&[0]));
            }
        } else {
            break;
        }
    }
    let results: Vec<_> = children.into_iter().map(Child::result).collect();
    results.into_iter().enumerate().map(|(index, result)| explain(index, count, result)).collect()
}

fn explain<T>(index: usize, count: usize, result: Result<Result<T, Failure>, String>) -> Result<T, Failure> {
    result.unwrap_or_else(|end| {
        Err(Failure::Process { reason: format!("process {} of {count} {end}", index + 1) })
    })
}

struct Child {
    id: libc::pid_t,
    from: PipeReader,
    to: PipeWriter,
}

impl Child {
    fn start<T: Serialize>(job: impl Fn(&mut Gate) -> Result<T, Failure>) -> Result<Self, Failure> {
        let refused = |error: io::Error| Failure::system("no pipe to another process", &error);
        let (from, report) = pipe().map_err(refused)?;
        let (go, to) = pipe().map_err(refused)?;
        // SAFETY: this process has one thread only, as `run_at_once` demands, so the child may do
        // whatever its parent may.
        match unsafe { libc::fork() } {
            -1 => Err(Failure::system("no second process", &io::Error::last_os_error())),
            0 => {
                drop((from, to));
                let mut gate = Gate(Some((report, go)));
                let line = serde_json::to_vec(&job(&mut gate));
                let sent = match (gate.0, line) {
                    (Some((mut report, _)), Ok(line)) => report.write_all(&line).is_ok(),
                    _ => false,
                };
                exit_now(i32::from(!sent))
            }
            id => Ok(Self { id, from, to }),
        }
    }

    /// What the child returned, or how it ended.
    fn result<T: for<'de> Deserialize<'de>>(mut self) -> Result<Result<T, Failure>, String> {
        // Whoever still waits at a gate goes home.
        drop(self.to);
        let mut line = Vec::new();
        let read = self.from.read_to_end(&mut line);
        let mut status = 0;
        // SAFETY: the child is this process's own and was not waited for; `status` is writable.
        let waited = unsafe { libc::waitpid(self.id, &mut status, 0) };
        if waited != self.id {
            return Err(format!("cannot be waited for: {}", io::Error::last_os_error()));
        }
        if libc::WIFSIGNALED(status) {
            return Err(format!("was ended by signal {}", libc::WTERMSIG(status)));
        }
        read.map_err(|error| format!("cannot be read from: {error}"))?;
        serde_json::from_slice(&line)
            .map_err(|_| format!("ended with status {} and no result", libc::WEXITSTATUS(status)))
    }
}

/// Ends this process at once: a forked child must not run its parent's exit handlers.
fn exit_now(status: i32) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(status) }
}
