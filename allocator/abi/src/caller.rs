//! Who calls free: the C library itself, or anybody else.
//!
//! The C library calls free while it holds locks of its own. glibc gives up the stacks of ended threads under the lock under which it looks for a new thread's
//! stack (`__nptl_free_stacks`, of `pthread_join` and of ending threads), and with a stack go the blocks that held its thread-local variables. Who
//! starts a thread in such a free waits for itself, for ever. So the helper thread is not started by a free of the C library's, nor of the
//! dynamic linker's.
//!
//! In a static program the C library's code cannot be told from the program's: there the helper is started by malloc, which glibc calls under no lock that
//! `pthread_create` takes.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Nobody has looked yet.
const UNKNOWN: u32 = 0;
/// The C library lies in [`RANGES`].
const APART: u32 = 1;
/// The C library, this library and the program are one file.
const TOGETHER: u32 = 2;

static STATE: AtomicU32 = AtomicU32::new(UNKNOWN);

/// Addresses of one of the C library's files.
struct Range {
    start: AtomicUsize,
    end: AtomicUsize,
}

impl Range {
    const fn new() -> Self {
        Self { start: AtomicUsize::new(0), end: AtomicUsize::new(0) }
    }
}

/// Where the C library lies: the file with the functions that do not depend on threads, the one with those that do (another one before glibc 2.34), and the
/// dynamic linker.
static RANGES: [Range; 3] = [Range::new(), Range::new(), Range::new()];

weak_address!("ample_tls_get_addr", "__tls_get_addr");
unsafe extern "C" {
    safe fn ample_tls_get_addr() -> *const ();
}

/// An address in each of them; null: there is no such file. (Programs call these functions, but do not take their addresses, which could be the program's
/// own then.)
fn marks() -> [usize; 3] {
    [libc::__errno_location as *const (), libc::pthread_setspecific as *const (), ample_tls_get_addr()]
        .map(|mark| mark.addr())
}

/// Finds the C library. Runs when this library is loaded.
pub(crate) fn learn() {
    // SAFETY: the callback keeps to what it is given.
    unsafe { libc::dl_iterate_phdr(Some(note), ptr::null_mut()) };
    // Release: with Acquire in `is_apart`, for the ranges. `note` may have found more.
    let _ = STATE.compare_exchange(UNKNOWN, APART, Ordering::Release, Ordering::Relaxed);
}

/// Looks at one of the process's files.
unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: the C library's description of a file, and of as many segments.
    let (base, segments) = unsafe {
        let info = &*info;
        (info.dlpi_addr as usize, core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()))
    };
    let (mut start, mut end) = (usize::MAX, 0);
    for segment in segments {
        if segment.p_type == libc::PT_LOAD {
            let first = base.wrapping_add(segment.p_vaddr as usize);
            start = start.min(first);
            end = end.max(first.wrapping_add(segment.p_memsz as usize));
        }
    }
    let holds = |address| (start..end).contains(&address);
    for (range, mark) in RANGES.iter().zip(marks()) {
        if holds(mark) {
            // Relaxed, twice: published by `learn`.
            range.start.store(start, Ordering::Relaxed);
            range.end.store(end, Ordering::Relaxed);
            if holds(learn as *const () as usize) {
                // Relaxed: it stands for itself.
                STATE.store(TOGETHER, Ordering::Relaxed);
            }
        }
    }
    0
}

/// Whether the code at `address` is not the C library's.
#[cold]
pub(crate) fn is_apart(address: usize) -> bool {
    // Acquire: with Release in `learn`.
    STATE.load(Ordering::Acquire) == APART
        && !RANGES.iter().any(|range| {
            // Relaxed, twice: published by `learn`.
            (range.start.load(Ordering::Relaxed)..range.end.load(Ordering::Relaxed)).contains(&address)
        })
}

/// A slow malloc has ended.
#[inline(always)]
pub(crate) fn of_malloc() {
    // Relaxed: it stands for itself.
    if STATE.load(Ordering::Relaxed) == TOGETHER {
        ample_core::answer_calls(|| true);
    }
}
