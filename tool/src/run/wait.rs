//! Waits for a child, and notices that the user wants to stop meanwhile.

use std::io;
use std::os::fd::AsFd as _;
use std::process::Child;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::Interrupt;
use super::executor::End;
use super::process::{decode, reap};
use crate::record::Usage;

/// Waits until the child ends. `stop` is called with its number once, when the user wants to stop.
pub fn wait_for(child: Child, interrupt: &Interrupt, mut stop: impl FnMut(Pid)) -> io::Result<(End, Usage)> {
    let pid = Pid::from_child(&child);
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let mut stopped = false;
    loop {
        let ready = ready([process.as_fd(), interrupt.as_fd()], None, !stopped)?;
        if ready[1] && !stopped {
            stopped = true;
            stop(pid);
        }
        if ready[0] {
            let (status, usage) = reap(child)?;
            return Ok((decode(status), usage));
        }
    }
}

/// Which of a process and an interrupt are ready, after this time at the latest. The interrupt, which
/// stays ready for good, is looked at only if `both`.
pub fn ready(
    descriptors: [std::os::fd::BorrowedFd<'_>; 2],
    limit: Option<&Timespec>,
    both: bool,
) -> io::Result<[bool; 2]> {
    let mut set = descriptors.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
    let set = if both { &mut set[..] } else { &mut set[..1] };
    match poll(set, limit) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let ready = |index: usize| set.get(index).is_some_and(|fd| !fd.revents().is_empty());
    Ok([ready(0), ready(1)])
}
