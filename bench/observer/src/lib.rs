//! `libample_observer.so`, preloaded: counts what a program asks of malloc, whichever malloc serves it.
//!
//! Each function of the malloc family calls the next one of its name, that of the C library or of an allocator that the
//! program brings with it, and notes what was asked for, how long the call took, which thread had allocated what is freed,
//! and whose blocks lie on one cache line. What the program maps itself is told from what malloc maps. The numbers stand in a file (`ample_protocol::observation`) in the folder that
//! `OBSERVE_MALLOC_INTO` names, one for each process; without that variable nothing is counted.
//!
//! What is not seen: blocks of an `operator new` that does not call `malloc`, as some allocators bring one; and a malloc
//! inside the program itself, which no preloaded library reaches.

mod blocks;
mod call;
mod file;
mod memory;
mod next;
mod table;

use std::ffi::{c_int, c_void};

use call::Call;

/// Defines functions that allocate a block of so many bytes.
macro_rules! allocating {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*), bytes $size:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// That of the C library's function.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> *mut c_void {
            let Some(mut call) = Call::begin() else {
                // SAFETY: the caller's contract is that of the next function.
                return unsafe { next::$name($($argument),*) };
            };
            // SAFETY: as above.
            let block = call.of(|| unsafe { next::$name($($argument),*) });
            call.allocated(block, $size);
            block
        }
    )*};
}

allocating! {
    /// malloc.
    malloc(size: usize), bytes size;
    /// calloc.
    calloc(count: usize, size: usize), bytes count.saturating_mul(size);
    /// memalign.
    memalign(alignment: usize, size: usize), bytes size;
    /// aligned_alloc.
    aligned_alloc(alignment: usize, size: usize), bytes size;
    /// valloc.
    valloc(size: usize), bytes size;
    /// pvalloc.
    pvalloc(size: usize), bytes size;
}

/// posix_memalign.
///
/// # Safety
/// That of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn posix_memalign(block: *mut *mut c_void, alignment: usize, size: usize) -> c_int {
    let Some(mut call) = Call::begin() else {
        // SAFETY: the caller's contract is that of the next function.
        return unsafe { next::posix_memalign(block, alignment, size) };
    };
    // SAFETY: as above.
    let result = call.of(|| unsafe { next::posix_memalign(block, alignment, size) });
    // SAFETY: the caller's pointer, where the block was written if there is one.
    call.allocated(if result == 0 { unsafe { *block } } else { std::ptr::null_mut() }, size);
    result
}

/// free.
///
/// # Safety
/// That of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn free(block: *mut c_void) {
    if next::early_bytes(block).is_some() {
        return;
    }
    let Some(mut call) = Call::begin() else {
        // SAFETY: the caller's contract is that of the next function.
        return unsafe { next::free(block) };
    };
    call.freed(block);
    // SAFETY: as above.
    call.of(|| unsafe { next::free(block) });
}

/// realloc.
///
/// # Safety
/// That of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    if let Some(bytes) = next::early_bytes(block) {
        // SAFETY: malloc has no contract. The new block holds what it is given; the old one's bytes end where they are said to.
        return unsafe {
            let new = malloc(size);
            if !new.is_null() {
                block.copy_to_nonoverlapping(new, bytes.min(size));
            }
            new
        };
    }
    let Some(mut call) = Call::begin() else {
        // SAFETY: the caller's contract is that of the next function.
        return unsafe { next::realloc(block, size) };
    };
    if block.is_null() {
        // SAFETY: as above.
        let new = call.of(|| unsafe { next::realloc(block, size) });
        call.allocated(new, size);
        return new;
    }
    let was = call.resizing(block);
    // SAFETY: as above.
    let new = call.of(|| unsafe { next::realloc(block, size) });
    call.resized(block, was, new, size);
    new
}

/// reallocarray.
///
/// # Safety
/// That of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: the caller's contract is that of realloc.
        Some(bytes) => unsafe { realloc(block, bytes) },
        None => {
            // SAFETY: errno is this thread's own.
            unsafe { *libc::__errno_location() = libc::ENOMEM };
            std::ptr::null_mut()
        }
    }
}

/// malloc_trim.
///
/// # Safety
/// That of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn malloc_trim(pad: usize) -> c_int {
    // SAFETY: the caller's contract is that of the next function.
    let trim = || unsafe { next::malloc_trim(pad) };
    match Call::begin() {
        Some(call) => call.trims(trim),
        None => trim(),
    }
}

/// Defines functions that map memory: the program's own is told from malloc's.
macro_rules! mapping {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// That of the C library's function.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(
            address: *mut c_void,
            length: usize,
            access: c_int,
            kind: c_int,
            file: c_int,
            offset: libc::off_t,
        ) -> *mut c_void {
            // SAFETY: the caller's contract is that of the next function.
            let start = unsafe { next::$name(address, length, access, kind, file, offset) };
            if start != libc::MAP_FAILED && kind & libc::MAP_ANONYMOUS != 0 && call::is_beside() {
                memory::set_apart(start, length);
            }
            start
        }
    )*};
}

mapping! {
    /// mmap.
    mmap
    /// mmap64.
    mmap64
}
