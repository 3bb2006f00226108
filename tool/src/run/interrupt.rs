//! Notices that the user wants to stop (SIGINT, SIGTERM, and SIGHUP of a closed terminal).

use std::fs::File;
use std::io::{self, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Exit code after an interruption, as shells have it for SIGINT.
pub const EXIT_CODE: u8 = 130;

/// A descriptor that becomes readable when the first signal arrives, and stays so until the signals are taken.
#[derive(Debug)]
pub struct Interrupt {
    wake: UnixStream,
    /// Whether a SIGTERM was among them, which no key sends.
    terminated: Arc<AtomicBool>,
}

impl Interrupt {
    /// Catches these signals from now on, SIGHUP only where nobody asked to ignore it, as nohup(1) does. Further ones change nothing: some senders, such as
    /// timeout(1), signal a process and then its group, and the tool ends soon enough after the first.
    pub fn install() -> io::Result<Self> {
        let (wake, signalled) = UnixStream::pair()?;
        let terminated = Arc::default();
        // Before the descriptor becomes readable.
        signal_hook::flag::register(SIGTERM, Arc::clone(&terminated))?;
        let terminal = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(terminal) {
            signal_hook::low_level::pipe::register(signal, signalled.try_clone()?)?;
        }
        Ok(Self { wake, terminated })
    }

    /// Takes the signals that have arrived, at least one, so that the next one can be waited for: how many.
    pub fn take(&self) -> io::Result<usize> {
        (&self.wake).read(&mut [0; 64])
    }

    /// Whether what has arrived can have come from the keyboard, or from the end of the terminal, whose foreground this process
    /// belongs to: all processes of its group have got the same then.
    pub fn is_from_terminal(&self) -> bool {
        // SeqCst, with the store of the handler: it comes before the byte that woke this process.
        let foreground = || Some(tcgetpgrp(File::open("/dev/tty").ok()?).ok()? == getpgrp());
        !self.terminated.load(Ordering::SeqCst) && foreground() == Some(true)
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
