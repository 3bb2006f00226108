//! Ample's own functions, declared in `include/ample.h`.

use core::ffi::c_void;

use crate::c::or_enomem;

/// A block of at least `size` bytes that has its cache lines to itself, for objects that several threads write to. NULL and
/// ENOMEM: no memory.
#[unsafe(no_mangle)]
pub extern "C" fn ample_malloc_shared(size: usize) -> *mut c_void {
    or_enomem(ample_core::malloc_shared(size))
}
