//! Waits for a child, looks at it meanwhile, and notices that the user wants to stop.

use std::io;
use std::process::Child;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::Interrupt;
use super::executor::End;
use super::process::{decode, reap};
use crate::record::Usage;

/// Waits until the child ends. `look` is called again and again, and says after how long the next time; the last
/// time is when it has ended and nobody has waited for it yet.
///
/// What the child and those that it waited for have used comes with its end. `stop` is called once, with the child's number, when the user wants to stop.
pub fn wait_for(
    child: Child,
    interrupt: &Interrupt,
    mut look: impl FnMut() -> Duration,
    mut stop: impl FnMut(Pid),
) -> io::Result<(End, Usage)> {
    let pid = Pid::from_child(&child);
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let mut stopped = false;
    loop {
        let pause = Timespec::try_from(look()).unwrap_or_default();
        let mut set = [PollFd::new(&process, PollFlags::IN), PollFd::new(interrupt, PollFlags::IN)];
        // The interrupt stays ready for good: it is waited for once.
        let watched = if stopped { 1 } else { 2 };
        match poll(&mut set[..watched], Some(&pause)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !stopped && !set[1].revents().is_empty() {
            stopped = true;
            stop(pid);
        }
        if !set[0].revents().is_empty() {
            look();
            let (status, usage) = reap(child)?;
            return Ok((decode(status), usage));
        }
    }
}
