//! Blocks that are not ours. The C library's own malloc handed them out, before this library was there, or to a library
//! that was linked or opened so that it sees that malloc first (`RTLD_DEEPBIND`). They go back where they came from.

use core::ffi::{CStr, c_void};
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

#[cfg(target_env = "gnu")]
use crate::opening::in_c_library;

type Free = unsafe extern "C" fn(*mut c_void);
type Realloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type UsableSize = unsafe extern "C" fn(*mut c_void) -> usize;

/// A function of the C library's own.
struct Own {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Own {
    const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Its address; null where there is none.
    fn address(&self) -> *mut c_void {
        // Relaxed: an address stands for itself, and is the same whoever looks it up.
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        let address = in_c_library(self.name);
        // Relaxed: as above.
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// The address of a function of the C library's own; null where there is none. (musl opens itself under any name that a C library has; a static program's
/// `dlopen` finds nothing.)
#[cfg(target_env = "musl")]
fn in_c_library(name: &CStr) -> *mut c_void {
    crate::runtime::in_library(c"libc.so", name)
}

static FREE: Own = Own::new(c"free");
static REALLOC: Own = Own::new(c"realloc");
static USABLE_SIZE: Own = Own::new(c"malloc_usable_size");

/// Takes a foreign block back; leaks it where the C library's free cannot be reached.
///
/// # Safety
/// `block` came from the C library's own malloc, and nobody uses it any more.
#[cold]
pub(crate) unsafe fn free(block: *mut c_void) {
    // SAFETY: null, or a function of this type.
    if let Some(free) = unsafe { transmute::<*mut c_void, Option<Free>>(FREE.address()) } {
        // SAFETY: the caller's contract.
        unsafe { free(block) };
    }
}

/// Resizes a foreign block; NULL where the C library's realloc cannot be reached.
///
/// # Safety
/// As for `realloc`, for a block from the C library's own malloc.
#[cold]
pub(crate) unsafe fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: null, or a function of this type.
    match unsafe { transmute::<*mut c_void, Option<Realloc>>(REALLOC.address()) } {
        // SAFETY: the caller's contract.
        Some(realloc) => unsafe { realloc(block, size) },
        None => ptr::null_mut(),
    }
}

/// Bytes of a foreign block that the program may use; 0 where nobody knows.
///
/// # Safety
/// As for `malloc_usable_size`, for a block from the C library's own malloc.
#[cold]
pub(crate) unsafe fn usable_size(block: *mut c_void) -> usize {
    // SAFETY: null, or a function of this type.
    match unsafe { transmute::<*mut c_void, Option<UsableSize>>(USABLE_SIZE.address()) } {
        // SAFETY: the caller's contract.
        Some(usable_size) => unsafe { usable_size(block) },
        None => 0,
    }
}
