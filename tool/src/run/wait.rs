//! Waits for a child, looks at it meanwhile, and notices that the user wants to stop.

use std::io;
use std::process::Child;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::Interrupt;
use super::executor::End;
use super::process::{decode, reap};
use crate::record::Usage;

/// Waits until the child ends. `look` is called again and again, and says after how long the next time; the last
/// time is when it has ended and nobody has waited for it yet.
///
/// What the child and those that it waited for have used comes with its end. It gets SIGTERM when the user wants to stop; where it
/// has got the user's Ctrl-C itself, as part of the terminal's foreground, only when that comes once more: the first may be
/// answered in the child's own way.
pub fn wait_for(
    child: Child,
    interrupt: &Interrupt,
    mut look: impl FnMut() -> Duration,
) -> io::Result<(End, Usage)> {
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    let (mut signals, mut stopped) = (0, false);
    loop {
        let pause = Timespec::try_from(look()).unwrap_or_default();
        let mut set = [PollFd::new(&process, PollFlags::IN), PollFd::new(interrupt, PollFlags::IN)];
        // Once the child was told to end, nothing more is done.
        let watched = if stopped { 1 } else { 2 };
        match poll(&mut set[..watched], Some(&pause)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !stopped && !set[1].revents().is_empty() {
            signals += interrupt.take()?;
            if signals > 1 || !interrupt.is_from_terminal() {
                stopped = true;
                // An error means that it has ended meanwhile.
                let _ = pidfd_send_signal(&process, Signal::TERM);
            }
        }
        if !set[0].revents().is_empty() {
            look();
            let (status, usage) = reap(child)?;
            return Ok((decode(status), usage));
        }
    }
}
