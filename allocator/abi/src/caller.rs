//! Who calls free: the C library itself, or anybody else.
//!
//! The C library calls free while it holds locks of its own. glibc gives up the stacks of ended threads under the same lock under which it looks for a new thread's
//! stack (`__nptl_free_stacks`, called by `pthread_join` and by ending threads), and with a stack it frees the blocks that held that thread's thread-local variables. Starting a
//! thread within such a free would wait for itself for ever. So the helper thread is not started by a free of the C library's, nor of the
//! dynamic linker's. (A free within a realloc is taken for the program's, whoever calls: glibc resizes nothing under that lock.) Nor does a thread get
//! its heap by such a free: where a thread gives up a stack at its own end, its destructors have already run.
//!
//! In a static program the C library's code cannot be told from the program's, except for the one function from which glibc gives such blocks up.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Not 0: [`RANGES`] are known.
static KNOWN: AtomicU32 = AtomicU32::new(0);

/// Addresses of code that may hold locks.
struct Range {
    start: AtomicUsize,
    end: AtomicUsize,
}

impl Range {
    const fn new() -> Self {
        Self { start: AtomicUsize::new(0), end: AtomicUsize::new(0) }
    }

    fn set(&self, start: usize, end: usize) {
        // Relaxed, twice: published by `learn`.
        self.start.store(start, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
    }
}

/// Where the C library lies: the file with the functions that do not depend on threads, the one with those that do (another one before glibc 2.34), and the
/// dynamic linker. And the function that gives up a thread's storage, wherever it is.
static RANGES: [Range; 4] = [Range::new(), Range::new(), Range::new(), Range::new()];

/// More than that function has bytes (119 on x86-64 and 160 on aarch64 in glibc 2.36: `nm -S libc.a`).
const FUNCTION: usize = 1024;

weak_address!("ample_r_debug", "_r_debug");
weak_address!("ample_dl_deallocate_tls", "_dl_deallocate_tls");
unsafe extern "C" {
    safe fn ample_r_debug() -> *const ();
    safe fn ample_dl_deallocate_tls() -> *const ();
}

/// An address in each of the first three; null: there is no such file. (Programs call these functions, but do not take their addresses, which could be the
/// program's own then. The last is what the dynamic linker shows debuggers: of its functions, a static C++ program must not name `__tls_get_addr`.)
fn marks() -> [usize; 3] {
    [libc::__errno_location as *const (), libc::pthread_setspecific as *const (), ample_r_debug()]
        .map(|mark| mark.addr())
}

/// Finds the C library. Runs when this library is loaded.
pub(crate) fn learn() {
    // SAFETY: the callback keeps to what it is given.
    unsafe { libc::dl_iterate_phdr(Some(note), ptr::null_mut()) };
    let function = ample_dl_deallocate_tls().addr();
    if function != 0 {
        RANGES[3].set(function, function + FUNCTION);
    }
    // Release: with Acquire in `is_apart`, for the ranges.
    KNOWN.store(1, Ordering::Release);
}

/// Looks at one of the process's files.
unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: the C library's description of a file.
    let info = unsafe { &*info };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: as many segments as the description says.
    let segments = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let base = info.dlpi_addr as usize;
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
        // Not in a static program, whose frees would all be the C library's.
        if holds(mark) && !holds(learn as *const () as usize) {
            range.set(start, end);
        }
    }
    0
}

/// Whether the code at `address` is not the C library's.
#[cold]
pub(crate) fn is_apart(address: usize) -> bool {
    // Acquire: with Release in `learn`.
    KNOWN.load(Ordering::Acquire) != 0
        && !RANGES.iter().any(|range| {
            // Relaxed, twice: published by `learn`.
            (range.start.load(Ordering::Relaxed)..range.end.load(Ordering::Relaxed)).contains(&address)
        })
}
