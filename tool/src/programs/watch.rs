//! Looks from outside whether the library is in a process that this one is about to become.
//!
//! `ample run` replaces itself by the program, so that signals, process number and exit code are the
//! program's own. What looks on must therefore be another process, and no child of the program, which may
//! wait for its children: a grandchild, whose parent ends at once.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{PidfdFlags, WaitOptions, getpid, pidfd_open, waitpid};

use crate::error::say;

/// How long the program has run when it is looked at: until then it may load libraries, or have others
/// start what it is a mere wrapper of.
const PATIENCE: Duration = Duration::from_secs(1);

/// The end of a pipe that closes when this process becomes the program, or ends.
#[derive(Debug)]
pub struct Watcher {
    _until_executed: OwnedFd,
}

impl Watcher {
    /// Starts it. It says `warning` on standard error if the library is not in this process a second after it
    /// has become the program, and is silent in all other cases; a program that ends sooner is not judged.
    ///
    /// To be called from a process with one thread, shortly before it becomes the program.
    pub fn start(library: &Path, warning: &str) -> io::Result<Self> {
        let (executed, until_executed) = pipe_with(PipeFlags::CLOEXEC)?;
        let process = pidfd_open(getpid(), PidfdFlags::empty())?;
        let maps = format!("/proc/{}/maps", getpid());
        // SAFETY: this process has one thread, so that the child may do whatever this process may.
        let child = unsafe { libc::fork() };
        match child {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                drop(until_executed);
                // SAFETY: as above, one thread.
                if unsafe { libc::fork() } == 0 {
                    watch(&executed, &process, &maps, library, warning);
                }
                // SAFETY: ends this process at once; nothing of the parent's is flushed twice.
                unsafe { libc::_exit(0) };
            }
            _ => {}
        }
        // Fails only if the child is already gone, which is all that is waited for.
        let _ = waitpid(rustix::process::Pid::from_raw(child), WaitOptions::empty());
        Ok(Self { _until_executed: until_executed })
    }
}

fn watch(executed: &OwnedFd, process: &OwnedFd, maps: &str, library: &Path, warning: &str) {
    // A reader of the program's output must not wait for this process.
    // SAFETY: both are plain descriptors of this process, and nothing here uses them.
    unsafe {
        libc::close(libc::STDIN_FILENO);
        libc::close(libc::STDOUT_FILENO);
    }
    if !ready(executed, PATIENCE) {
        return;
    }
    if ready(process, PATIENCE) {
        return;
    }
    // What cannot be read is a process with other rights, which the library does not serve either.
    let text = fs::read_to_string(maps).unwrap_or_default();
    if !text.contains(&*library.to_string_lossy()) && !ready(process, Duration::ZERO) {
        say(warning);
    }
}

/// Waits until the descriptor is readable or closed at its other end; false after so long.
fn ready(descriptor: &OwnedFd, limit: Duration) -> bool {
    let mut set = [PollFd::from_borrowed_fd(descriptor.as_fd(), PollFlags::IN)];
    let limit = Timespec::try_from(limit).unwrap_or_default();
    poll(&mut set, Some(&limit)).is_ok_and(|count| count > 0)
}
