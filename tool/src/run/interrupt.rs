//! Notices that the user wants to stop (SIGINT, SIGTERM).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGINT, SIGTERM};

/// Exit code after an interruption, as shells have it for SIGINT.
pub const EXIT_CODE: u8 = 130;

/// A descriptor that becomes readable, for good, when the first signal arrives.
#[derive(Debug)]
pub struct Interrupt {
    wake: UnixStream,
}

impl Interrupt {
    /// Catches both signals from now on. Further ones change nothing: some senders, such as
    /// timeout(1), signal a process and then its group, and the tool ends soon enough after the first.
    pub fn install() -> io::Result<Self> {
        let (wake, signalled) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM] {
            signal_hook::low_level::pipe::register(signal, signalled.try_clone()?)?;
        }
        Ok(Self { wake })
    }

    /// Whether a signal has arrived.
    pub fn is_raised(&self) -> bool {
        let mut set = [PollFd::new(&self.wake, PollFlags::IN)];
        // An interrupted poll means that a signal is arriving right now.
        poll(&mut set, Some(&Timespec::default())).map_or(true, |ready| ready > 0)
    }
}

impl AsFd for Interrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
