//! The process's forks: every lock is taken before, and given back afterwards in parent and child.
//!
//! glibc takes its own malloc's locks last, after those of its streams, since a thread that reads a line holds its stream's lock
//! while it reallocates the buffer. Our handlers run before glibc takes any lock, so they take the lock of the list of streams first
//! themselves; otherwise a fork, a `fflush(NULL)` and a `getline` in three threads could wait for each other for ever.
//!
//! In a process that never had a second thread no locks are kept, as with glibc: there a signal handler may fork, in the midst of a malloc that holds some.
//!
//! Before a fork what is free goes back to the system ([`Allocator::give_back_before_fork`](crate::allocator::Allocator)). Servers that load, fork and then wait keep it otherwise, in all of their
//! processes.

use crate::os;
use crate::process::{HELPER, PROCESS};
use crate::sync::{AtomicU32, Ordering};
use crate::thread_local;

/// Not 0: the fork under way takes no locks.
static ALONE: AtomicU32 = AtomicU32::new(0);

/// Whether the handlers are registered.
static WATCHED: AtomicU32 = AtomicU32::new(0);

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    // The lock is recursive; glibc exports it for libraries that fork.
    safe fn _IO_list_lock();
    safe fn _IO_list_unlock();
    safe fn _IO_list_resetlock();
}

fn is_alone() -> bool {
    // Relaxed: the thread that forks wrote it, which holds the locks or is the only one.
    ALONE.load(Ordering::Relaxed) != 0
}

extern "C" fn before() {
    if os::never_had_threads() {
        PROCESS.give_back_before_fork(true);
        // Relaxed: as in `is_alone`.
        ALONE.store(1, Ordering::Relaxed);
        return;
    }
    HELPER.make_way(&PROCESS);
    PROCESS.give_back_before_fork(false);
    #[cfg(target_env = "gnu")]
    _IO_list_lock();
    PROCESS.before_fork();
    // Relaxed: as in `is_alone`.
    ALONE.store(0, Ordering::Relaxed);
}

extern "C" fn in_parent() {
    if is_alone() {
        return;
    }
    PROCESS.after_fork_in_parent();
    #[cfg(target_env = "gnu")]
    _IO_list_unlock();
}

extern "C" fn in_child() {
    if is_alone() {
        return HELPER.lost(&PROCESS);
    }
    PROCESS.after_fork_in_child(Some(thread_local::heap()));
    HELPER.lost(&PROCESS);
    #[cfg(target_env = "gnu")]
    _IO_list_resetlock();
}

/// Registers the handlers, once. Runs when the library is loaded, or at the process's first allocation, if that is earlier: handlers that others register later, which
/// may allocate, run before ours take the locks and after ours give them back.
#[inline(never)]
pub(crate) fn watch() {
    // Relaxed: whoever is first registers; nothing is published with it.
    if WATCHED.swap(1, Ordering::Relaxed) == 0 {
        // SAFETY: the handlers are functions of this library. A failure means that there is no memory this early;
        // then forks of multithreaded programs are not safe.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    }
}
