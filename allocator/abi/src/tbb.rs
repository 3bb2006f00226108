//! The C interface of TBB's scalable allocator, declared in `include/ample_tbb.h`: code that was written for it links and runs, on
//! Ample's heap. Its blocks are blocks like any other: `free` takes them too.

use core::ffi::{c_int, c_void};
use core::ptr;

use crate::c;

/// The results of `ScalableAllocationResult`.
const OK: c_int = 0;
const INVALID_PARAM: c_int = 1;
const UNSUPPORTED: c_int = 2;
const NO_EFFECT: c_int = 4;

/// As `malloc`.
#[unsafe(no_mangle)]
pub extern "C" fn scalable_malloc(size: usize) -> *mut c_void {
    c::malloc(size)
}

/// As `free`.
///
/// # Safety
/// As for `free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scalable_free(block: *mut c_void) {
    // SAFETY: the caller's contract.
    unsafe { c::free(block) };
}

/// As `calloc`.
#[unsafe(no_mangle)]
pub extern "C" fn scalable_calloc(count: usize, size: usize) -> *mut c_void {
    c::calloc(count, size)
}

/// As `realloc`.
///
/// # Safety
/// As for `realloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scalable_realloc(block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe { c::realloc(block, size) }
}

/// As `posix_memalign`.
///
/// # Safety
/// As for `posix_memalign`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scalable_posix_memalign(
    result: *mut *mut c_void,
    align: usize,
    size: usize,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { c::posix_memalign(result, align, size) }
}

/// A block of at least `size` bytes at a multiple of `align`. NULL and EINVAL: `align` is not a power of two, or `size` is 0; NULL and
/// ENOMEM: no memory.
#[unsafe(no_mangle)]
pub extern "C" fn scalable_aligned_malloc(size: usize, align: usize) -> *mut c_void {
    if size == 0 || !align.is_power_of_two() {
        return c::fail(libc::EINVAL);
    }
    c::memalign(align, size)
}

/// `realloc` to a block at a multiple of `align`. NULL stands for a fresh block; size 0 frees. NULL and EINVAL: `align` is not a
/// power of two; NULL and ENOMEM: no memory. In both cases the block is as it was.
///
/// # Safety
/// As for `realloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scalable_aligned_realloc(
    block: *mut c_void,
    size: usize,
    align: usize,
) -> *mut c_void {
    if !align.is_power_of_two() {
        return c::fail(libc::EINVAL);
    }
    if block.is_null() {
        return scalable_aligned_malloc(size, align);
    }
    if size == 0 {
        // SAFETY: the caller's contract.
        unsafe { c::free(block) };
        return ptr::null_mut();
    }
    let new = c::memalign(align, size);
    if !new.is_null() {
        // SAFETY: the caller's contract.
        let old_size = unsafe { c::malloc_usable_size(block) };
        // SAFETY: both blocks are live and distinct, and at least that long.
        unsafe { ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast(), old_size.min(size)) };
        // SAFETY: the caller gives the block up.
        unsafe { c::free(block) };
    }
    new
}

/// As `free`.
///
/// # Safety
/// As for `free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scalable_aligned_free(block: *mut c_void) {
    // SAFETY: the caller's contract.
    unsafe { c::free(block) };
}

/// As `malloc_usable_size`; 0 and EINVAL for NULL.
///
/// # Safety
/// As for `malloc_usable_size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scalable_msize(block: *mut c_void) -> usize {
    if block.is_null() {
        c::fail(libc::EINVAL);
        return 0;
    }
    // SAFETY: the caller's contract.
    unsafe { c::malloc_usable_size(block) }
}

/// Huge pages (parameter 0, value 0 or 1) and a soft limit (1): both are `TBBMALLOC_UNSUPPORTED`, since Ample sees to the one by
/// itself and has no other; `TBBMALLOC_INVALID_PARAM` for anything else.
#[unsafe(no_mangle)]
pub extern "C" fn scalable_allocation_mode(parameter: c_int, value: isize) -> c_int {
    match (parameter, value) {
        (0, 0 | 1) | (1, _) => UNSUPPORTED,
        _ => INVALID_PARAM,
    }
}

/// Gives memory back: commands 0 (all buffers) and 1 (this thread's) do the same. `TBBMALLOC_OK`: something went back;
/// `TBBMALLOC_NO_EFFECT`: there was nothing; `TBBMALLOC_INVALID_PARAM`: an unknown command, or a parameter.
#[unsafe(no_mangle)]
pub extern "C" fn scalable_allocation_command(command: c_int, parameter: *mut c_void) -> c_int {
    match command {
        0 | 1 if parameter.is_null() => {
            if ample_core::trim() {
                OK
            } else {
                NO_EFFECT
            }
        }
        _ => INVALID_PARAM,
    }
}
