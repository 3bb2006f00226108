//! malloc and its family, as glibc 2.36 defines them. These functions only translate: the work is in `ample-core`.
//!
//! Every function is safe to call at any time: before and after the calling thread's heap exists, in constructors, in
//! destructors of thread-local values, in handlers of `atexit`. None of them may be called from a signal handler.
//! On success `errno` stays as it was.

use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use core::ptr;

use ample_core::{Fast, Unusual};

use crate::caller;
use crate::foreign;

const PAGE: usize = 4096;
const POINTER: usize = size_of::<*const c_void>();

#[cold]
#[inline(never)]
pub(crate) fn fail(code: c_int) -> *mut c_void {
    // SAFETY: glibc gives every thread an errno.
    unsafe { *libc::__errno_location() = code };
    ptr::null_mut()
}

/// `block`, or NULL and ENOMEM.
#[inline(always)]
pub(crate) fn or_enomem(block: *mut u8) -> *mut c_void {
    if block.is_null() { fail(libc::ENOMEM) } else { block.cast() }
}

// The functions that are called most are not inlined into those that do the same under another name: the compiler would make one function
// of all, and profilers, which take the longest name, would show `scalable_malloc` for `malloc`.

/// A block of at least `size` bytes, aligned to 16. `malloc(0)` gives a block of its own. NULL and ENOMEM: no memory.
#[unsafe(no_mangle)]
#[inline(never)]
#[unsafe(link_section = ".text.ample.malloc")]
pub extern "C" fn malloc(size: usize) -> *mut c_void {
    let block = ample_core::malloc_near(size);
    if block.is_null() { malloc_far(size) } else { block.cast() }
}

#[inline(never)]
#[unsafe(link_section = ".text.ample.malloc_far")]
extern "C" fn malloc_far(size: usize) -> *mut c_void {
    let block = ample_core::malloc_far(size);
    if block.is_null() { malloc_kept(size) } else { block.cast() }
}

#[inline(never)]
#[unsafe(link_section = ".text.ample.malloc_kept")]
extern "C" fn malloc_kept(size: usize) -> *mut c_void {
    let block = ample_core::malloc_kept(size);
    if block.is_null() { malloc_slow(size) } else { block.cast() }
}

#[cold]
#[inline(never)]
extern "C" fn malloc_slow(size: usize) -> *mut c_void {
    or_enomem(ample_core::malloc_slow(size))
}

/// Takes a block back; NULL is ignored.
///
/// # Safety
/// `block` is NULL or a live block of the malloc family that nobody uses any more.
#[unsafe(no_mangle)]
#[inline(never)]
#[unsafe(link_section = ".text.ample.free")]
pub unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: the caller's contract.
    unsafe { release(block) };
}

/// [`free`], to be inlined.
///
/// # Safety
/// As for [`free`].
#[inline(always)]
pub(crate) unsafe fn release(block: *mut c_void) {
    // SAFETY: the caller's contract.
    match unsafe { ample_core::free_fast(block.cast()) } {
        Fast::Taken => {}
        // SAFETY: the caller's contract.
        Fast::Remote => unsafe { free_remote(block) },
        // SAFETY: the caller's contract.
        Fast::Full => unsafe { free_full(block) },
    }
}

/// # Safety
/// As for [`free`]; the fast path says that it is [`Fast::Remote`].
#[cold]
#[inline(never)]
#[unsafe(link_section = ".text.ample.free_remote")]
unsafe extern "C" fn free_remote(block: *mut c_void) {
    // SAFETY: the caller's contract.
    if let Err(unusual) = unsafe { ample_core::free_remote(block.cast()) } {
        // SAFETY: the caller's contract.
        unsafe { free_slow(block, unusual) };
    }
}

/// # Safety
/// As for [`free`]; the fast path says that it is [`Fast::Full`].
#[cold]
#[inline(never)]
#[unsafe(link_section = ".text.ample.free_full")]
unsafe extern "C" fn free_full(block: *mut c_void) {
    // SAFETY: the caller's contract.
    if let Err(unusual) = unsafe { ample_core::free_full(block.cast()) } {
        // SAFETY: the caller's contract.
        unsafe { free_slow(block, unusual) };
    }
}

/// As [`free_slow_for`], whose `caller` is where this function would return to: every one on the way from `free` to here makes the next its last act, by
/// a jump.
///
/// # Safety
/// As for [`free`].
#[cold]
#[unsafe(naked)]
unsafe extern "C" fn free_slow(block: *mut c_void, unusual: Unusual) {
    #[cfg(target_arch = "x86_64")]
    naked_asm!("mov rdx, [rsp]", "jmp {onwards}", onwards = sym free_slow_for);
    #[cfg(target_arch = "aarch64")]
    naked_asm!("mov x2, x30", "b {onwards}", onwards = sym free_slow_for);
}

/// # Safety
/// As for [`free`].
#[cold]
#[inline(never)]
unsafe extern "C" fn free_slow_for(block: *mut c_void, unusual: Unusual, caller: usize) {
    // SAFETY: the caller's contract.
    if unsafe { ample_core::free_slow(block.cast(), unusual, || caller::is_apart(caller)) }.is_err() {
        // SAFETY: the caller's contract; the block is not ours.
        unsafe { foreign::free(block) };
    }
}

/// A block for `count` elements of `size` bytes, all zero. NULL and ENOMEM: no memory, or the product overflows.
#[unsafe(no_mangle)]
#[inline(never)]
#[unsafe(link_section = ".text.ample.calloc")]
pub extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else { return fail(libc::ENOMEM) };
    let block = ample_core::malloc_near(bytes);
    if block.is_null() {
        return calloc_far(bytes);
    }
    // SAFETY: a fresh block of at least that many bytes.
    unsafe { libc::memset(block.cast(), 0, bytes) }
}

#[inline(never)]
extern "C" fn calloc_far(bytes: usize) -> *mut c_void {
    or_enomem(ample_core::malloc_zeroed(bytes, 1))
}

/// Makes a block `size` bytes long, moving it where needed. NULL stands for a fresh block; size 0 frees (and
/// gives NULL). NULL and ENOMEM: no memory, and the block is as it was.
///
/// # Safety
/// `block` is NULL or a live block of the malloc family; the caller uses only the result from now on.
#[unsafe(no_mangle)]
#[inline(never)]
#[unsafe(link_section = ".text.ample.realloc")]
pub unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's contract.
    let Some(old_size) = (unsafe { ample_core::usable_size_small(block.cast()) }) else {
        // SAFETY: the caller's contract.
        return unsafe { realloc_far(block, size) };
    };
    if ample_core::keeps_place(old_size, size) {
        return block;
    }
    // SAFETY: the caller's contract.
    unsafe { realloc_near(block, size, old_size) }
}

/// A block that moves.
///
/// # Safety
/// As for [`realloc`]; `block` is a live one of `old_size` bytes.
#[inline(never)]
unsafe extern "C" fn realloc_near(block: *mut c_void, size: usize, old_size: usize) -> *mut c_void {
    let (size, count) = ample_core::to_resize(old_size, size);
    let mut new = ample_core::malloc_near(size);
    if new.is_null() {
        new = ample_core::malloc_far(size);
    }
    if new.is_null() {
        // SAFETY: the caller's contract.
        return unsafe { realloc_far(block, size) };
    }
    // SAFETY: the caller gives the block up.
    if unsafe { ample_core::free_fast(block.cast()) } == Fast::Taken {
        // The last act, so that no stack frame is needed.
        // SAFETY: distinct blocks of at least that many bytes; one that was taken back so is as it was until this thread's next call.
        return unsafe { libc::memcpy(new.cast(), block, count) };
    }
    // SAFETY: the caller's contract; `new` is a fresh block.
    unsafe { realloc_foreign(block, new.cast(), count) }
}

/// A block that moves to `new`, with `count` bytes, and that [`ample_core::free_fast`] does not take back.
///
/// # Safety
/// Both blocks are live and distinct, and at least that long; the caller gives the first one up.
#[inline(never)]
unsafe extern "C" fn realloc_foreign(block: *mut c_void, new: *mut c_void, count: usize) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe {
        ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast(), count);
        free(block);
    }
    new
}

/// # Safety
/// As for [`realloc`].
#[inline(never)]
unsafe extern "C" fn realloc_far(block: *mut c_void, size: usize) -> *mut c_void {
    if block.is_null() {
        return malloc(size);
    }
    if size == 0 {
        // SAFETY: the caller's contract.
        unsafe { free(block) };
        return ptr::null_mut();
    }
    // SAFETY: the caller's contract.
    match unsafe { ample_core::realloc_slow(block.cast(), size, 1) } {
        Ok(new) => or_enomem(new),
        // SAFETY: the caller's contract; the block is not ours.
        Err(_) => unsafe { foreign::realloc(block, size) },
    }
}

/// `realloc` to `count` elements of `size` bytes. NULL and ENOMEM: no memory, or the product overflows.
///
/// # Safety
/// As for [`realloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: the caller's contract.
        Some(bytes) => unsafe { realloc(block, bytes) },
        None => fail(libc::ENOMEM),
    }
}

/// Stores a block of at least `size` bytes at a multiple of `align` in `*result`. EINVAL: `align` is not a power of
/// two, or no multiple of a pointer's size. ENOMEM: no memory. In both cases `*result` and `errno` stay as they were.
///
/// # Safety
/// `result` is writable.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn posix_memalign(result: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if align < POINTER {
        return libc::EINVAL;
    }
    let block = ample_core::malloc_aligned_near(size, align);
    if block.is_null() {
        // SAFETY: the caller's contract.
        return unsafe { posix_memalign_far(result, align, size) };
    }
    // SAFETY: the caller's contract.
    unsafe { result.write(block.cast()) };
    0
}

/// # Safety
/// As for [`posix_memalign`].
#[inline(never)]
unsafe extern "C" fn posix_memalign_far(result: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if !align.is_power_of_two() {
        return libc::EINVAL;
    }
    let block = ample_core::malloc_aligned_far(size, align);
    if block.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's contract.
    unsafe { result.write(block.cast()) };
    0
}

/// A block of at least `size` bytes at a multiple of `align`, which is rounded up to a power of two. NULL and EINVAL: it
/// cannot be rounded up; NULL and ENOMEM: no memory.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    let block = ample_core::malloc_aligned_near(size, align);
    if block.is_null() { memalign_far(align, size) } else { block.cast() }
}

#[inline(never)]
extern "C" fn memalign_far(align: usize, size: usize) -> *mut c_void {
    match align.checked_next_power_of_two() {
        Some(align) => or_enomem(ample_core::malloc_aligned_far(size, align)),
        None => fail(libc::EINVAL),
    }
}

/// The same as [`memalign`], as in glibc 2.36: `size` need not be a multiple of `align`.
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    memalign(align, size)
}

/// A block of at least `size` bytes at a multiple of the page size.
#[unsafe(no_mangle)]
pub extern "C" fn valloc(size: usize) -> *mut c_void {
    memalign(page_size(), size)
}

/// A block of whole pages, at least `size` bytes.
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(size: usize) -> *mut c_void {
    match size.checked_next_multiple_of(page_size()) {
        Some(bytes) => valloc(bytes),
        None => fail(libc::ENOMEM),
    }
}

fn page_size() -> usize {
    // SAFETY: asks for a constant of the system.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(PAGE)
}

/// Bytes of a block that the program may use, at least those that it asked for; 0 for NULL.
///
/// # Safety
/// `block` is NULL or a live block of the malloc family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    // SAFETY: the caller's contract.
    match unsafe { ample_core::usable_size_small(block.cast()) } {
        Some(size) => size,
        // SAFETY: the caller's contract.
        None => unsafe { usable_size_far(block) },
    }
}

/// # Safety
/// As for [`malloc_usable_size`].
#[inline(never)]
unsafe extern "C" fn usable_size_far(block: *mut c_void) -> usize {
    if block.is_null() {
        return 0;
    }
    // SAFETY: the caller's contract.
    match unsafe { ample_core::usable_size(block.cast()) } {
        Ok(size) => size,
        // SAFETY: the caller's contract; the block is not ours.
        Err(_) => unsafe { foreign::usable_size(block) },
    }
}

/// `free`, under the name that glibc dropped in 2017.
///
/// # Safety
/// As for [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cfree(block: *mut c_void) {
    // SAFETY: the caller's contract.
    unsafe { free(block) };
}

/// `free` for a block from malloc, calloc or realloc of `size` bytes (C23).
///
/// # Safety
/// As for [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_sized(block: *mut c_void, _size: usize) {
    // SAFETY: the caller's contract.
    unsafe { release(block) };
}

/// `free` for a block from aligned_alloc of `size` bytes at `align` (C23).
///
/// # Safety
/// As for [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_aligned_sized(block: *mut c_void, _align: usize, _size: usize) {
    // SAFETY: the caller's contract.
    unsafe { release(block) };
}
