//! Where the run is: before its measured part, in it, or past it.
//!
//! The crew says so; heaps that measure ask. In the pass that is traced, each change is also told to
//! the tracer, by a system call that does nothing else.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use ample_protocol::{MARK, MARK_BEGIN, MARK_END};

/// A part of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// What comes before: blocks that the workload starts with.
    Before,
    /// The measured part.
    Measured,
    /// What comes after: clearing away.
    After,
}

static PHASE: AtomicU8 = AtomicU8::new(Phase::Before as u8);
static MARKED: AtomicBool = AtomicBool::new(false);

/// The part that the run is in.
#[inline]
pub fn now() -> Phase {
    // Relaxed: the crew's locks order the change before the workers' first call, and after their last.
    match PHASE.load(Ordering::Relaxed) {
        before if before == Phase::Before as u8 => Phase::Before,
        measured if measured == Phase::Measured as u8 => Phase::Measured,
        _ => Phase::After,
    }
}

/// The measured part begins.
pub fn begin() {
    // Relaxed: as in `now`.
    PHASE.store(Phase::Measured as u8, Ordering::Relaxed);
    mark(MARK_BEGIN);
}

/// The measured part has ended.
pub fn end() {
    mark(MARK_END);
    // Relaxed: as in `now`.
    PHASE.store(Phase::After as u8, Ordering::Relaxed);
}

/// From now on, a tracer is told.
pub fn tell_tracer() {
    // Relaxed: this very thread reads it.
    MARKED.store(true, Ordering::Relaxed);
}

fn mark(what: u64) {
    // Relaxed: as in `tell_tracer`; a forked process has a copy.
    if MARKED.load(Ordering::Relaxed) {
        // SAFETY: the system knows no such option, and refuses it without an effect. The answer is that refusal.
        unsafe { libc::prctl(MARK, what, 0, 0, 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_refuses_the_mark() {
        // SAFETY: as in `mark`.
        let answer = unsafe { libc::prctl(MARK, MARK_BEGIN, 0, 0, 0) };
        assert_eq!((answer, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EINVAL)));
    }
}
