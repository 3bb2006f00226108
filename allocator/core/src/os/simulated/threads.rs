//! The process's threads.

use core::cell::Cell;

use super::{Call, refused};
use crate::os::Body;

thread_local! {
    static IDENTITY: Cell<u8> = const { Cell::new(0) };
    static THREADS: Cell<Option<usize>> = const { Cell::new(Some(2)) };
}

pub(crate) fn threads() -> Option<usize> {
    THREADS.get()
}

/// How many threads the calling thread's process has, as far as it is known.
#[cfg(test)]
pub(crate) fn set_threads(threads: Option<usize>) {
    THREADS.set(threads);
}

pub(crate) fn never_had_threads() -> bool {
    false
}

/// No thread is started: tests do the work themselves that it would do.
pub(crate) fn start_thread(_: Body) -> bool {
    !refused(Call::StartThread)
}

pub(crate) fn thread_id() -> usize {
    IDENTITY.with(|place| core::ptr::from_ref(place).addr())
}
