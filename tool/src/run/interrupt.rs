//! Notices that the user wants to stop (SIGINT, SIGTERM, and SIGHUP of a closed terminal).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Exit code after an interruption, as shells have it for SIGINT.
pub const EXIT_CODE: u8 = 130;

/// A descriptor that becomes readable, for good, when the first signal arrives.
#[derive(Debug)]
pub struct Interrupt {
    wake: UnixStream,
}

impl Interrupt {
    /// Catches these signals from now on, SIGHUP only where nobody asked to ignore it, as nohup(1) does. Further ones change nothing: some senders, such as
    /// timeout(1), signal a process and then its group, and the tool ends soon enough after the first.
    pub fn install() -> io::Result<Self> {
        let (wake, signalled) = UnixStream::pair()?;
        let terminal = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(terminal) {
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

/// Whether this process was started with this signal ignored.
fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no action is set, and the pointer is valid for a write of the old one.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeroed is a valid action, plain integers and pointers; the call has filled it in.
    asked == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

impl AsFd for Interrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
