//! The tool in a terminal's foreground.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use crate::common::{library, program, tool};
use crate::observe::observer;

const CTRL_C: &[u8] = b"\x03";

/// A process in the foreground of a terminal of its own.
struct Shown {
    child: Child,
    terminal: File,
    said: String,
}

impl Shown {
    fn start(mut command: Command) -> Self {
        // Closed at an exec: what other tests start meanwhile must not hold the terminal open.
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
        // SAFETY: no pointers.
        let terminal = unsafe { libc::posix_openpt(flags) };
        assert!(terminal >= 0, "a terminal");
        // SAFETY: system calls about that descriptor.
        let own = unsafe {
            assert_eq!(libc::unlockpt(terminal), 0, "a terminal");
            libc::ioctl(terminal, libc::TIOCGPTPEER, flags)
        };
        assert!(own >= 0, "a terminal");
        // SAFETY: both were opened just now, and nothing else owns them.
        let (terminal, own) = unsafe { (File::from_raw_fd(terminal), OwnedFd::from_raw_fd(own)) };
        let take = || {
            // SAFETY: two system calls, about this process and its standard input.
            let taken = unsafe { libc::setsid() >= 0 && libc::ioctl(0, libc::TIOCSCTTY, 0) == 0 };
            if taken { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        };
        let copy = || own.try_clone().expect("a descriptor");
        command.stdin(copy()).stdout(copy()).stderr(copy());
        // SAFETY: between fork and exec the closure makes two system calls.
        let child = unsafe { command.pre_exec(take) }.spawn().expect("runs");
        // With them the last descriptors of the terminal's other end, but for the child's.
        drop((command, own));
        Self { child, terminal, said: String::new() }
    }

    /// Reads on until this was said.
    fn until(&mut self, text: &str) {
        while !self.said.contains(text) {
            assert!(self.read(), "no {text:?}: {}", self.said);
        }
        self.said.clear();
    }

    /// Reads what there is; false at the end, where nobody has the terminal any more.
    fn read(&mut self) -> bool {
        let mut buffer = [0; 4096];
        let count = self.terminal.read(&mut buffer).unwrap_or(0);
        self.said += &String::from_utf8_lossy(&buffer[..count]);
        count > 0
    }

    fn press(&mut self, keys: &[u8]) {
        self.terminal.write_all(keys).expect("written");
    }

    /// Waits until the process itself has taken the Ctrl-C: of two that wait for it, it would see one.
    fn until_taken(&self) {
        let status = format!("/proc/{}/status", self.child.id());
        let waits = || {
            let text = std::fs::read_to_string(&status).expect("it runs");
            let signals =
                text.lines().find_map(|line| line.strip_prefix("ShdPnd:")).expect("pending signals");
            u64::from_str_radix(signals.trim(), 16).expect("a set of signals") >> (libc::SIGINT - 1) & 1 != 0
        };
        while waits() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// How it ended, and what was said since the last wait.
    fn end(mut self) -> (ExitStatus, String) {
        while self.read() {}
        (self.child.wait().expect("ends"), self.said)
    }
}

#[test]
fn the_first_ctrl_c_is_the_programs_own_and_the_second_ends_it() {
    let folder = tempfile::tempdir().expect("a folder");
    library(folder.path(), "good", include_str!("serving.c"), &[]);
    let stopped = program(folder.path(), "stopped", include_str!("stopped.c"), &["-Wall", "-Werror"]);
    let start = |words: &[&str], manner: &str| {
        let mut command = tool(folder.path());
        command.env("AMPLE_OBSERVER", observer()).args(words).arg("--").arg(&stopped).arg(manner);
        let mut shown = Shown::start(command);
        shown.until("ready");
        shown.press(CTRL_C);
        shown
    };
    for (words, code) in [(&["observe"][..], 5), (&["run", "-a", "./libgood.so", "--check"], 0)] {
        let (status, said) = start(words, "graceful").end();
        assert!(said.contains("^Cin peace\r\n"), "{words:?}: {said}");
        assert_eq!(status.code(), Some(code), "{words:?}: {said}");
        assert!(code == 5 || said.contains("; exit code 5"), "{said}");
    }
    let mut shown = start(&["observe"], "stubborn");
    shown.until("no\r\n");
    shown.until_taken();
    shown.press(CTRL_C);
    let (status, said) = shown.end();
    assert!(said.contains("cut off") && status.code() == Some(6), "{said}");
}

#[test]
fn a_first_look_that_lasts_is_seen_and_can_be_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = tool(folder.path());
    command.args(["compare", "-a", "glibc", "--", "sleep", "1000"]);
    let mut shown = Shown::start(command);
    shown.until("first look, without any allocator: 1s");
    shown.press(CTRL_C);
    let (status, said) = shown.end();
    assert!(said.contains("ample: ended by you before anything was measured"), "{said}");
    assert_eq!(status.code(), Some(130));
    assert!(!folder.path().join("ample-out").exists());
}
