//! malloc's family under the further names that glibc's own has. Programs and libraries that call these must meet the same heap,
//! or blocks of one would be given to the other. In a static program these names keep the C library's malloc from being linked.

use core::ffi::{c_int, c_void};

use crate::c;

/// As `malloc`.
#[unsafe(no_mangle)]
pub extern "C" fn __libc_malloc(size: usize) -> *mut c_void {
    c::malloc(size)
}

/// As `free`.
///
/// # Safety
/// As for `free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __libc_free(block: *mut c_void) {
    // SAFETY: the caller's contract.
    unsafe { c::free(block) };
}

/// As `calloc`.
#[unsafe(no_mangle)]
pub extern "C" fn __libc_calloc(count: usize, size: usize) -> *mut c_void {
    c::calloc(count, size)
}

/// As `realloc`.
///
/// # Safety
/// As for `realloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __libc_realloc(block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe { c::realloc(block, size) }
}

/// As `memalign`.
#[unsafe(no_mangle)]
pub extern "C" fn __libc_memalign(align: usize, size: usize) -> *mut c_void {
    c::memalign(align, size)
}

/// As `valloc`.
#[unsafe(no_mangle)]
pub extern "C" fn __libc_valloc(size: usize) -> *mut c_void {
    c::valloc(size)
}

/// As `pvalloc`.
#[unsafe(no_mangle)]
pub extern "C" fn __libc_pvalloc(size: usize) -> *mut c_void {
    c::pvalloc(size)
}

/// As `free`.
///
/// # Safety
/// As for `free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __libc_cfree(block: *mut c_void) {
    // SAFETY: the caller's contract.
    unsafe { c::free(block) };
}

/// As `posix_memalign`.
///
/// # Safety
/// As for `posix_memalign`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __posix_memalign(result: *mut *mut c_void, align: usize, size: usize) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { c::posix_memalign(result, align, size) }
}
