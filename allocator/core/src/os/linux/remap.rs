//! Moving pages, where the system does it correctly.

use core::ptr;

use super::{READ_WRITE, keeping_errno, mmap, unmap};
use crate::sync::{AtomicU8, Ordering};

const UNKNOWN: u8 = 0;
const RIGHT: u8 = 1;
const WRONG: u8 = 2;

/// Bytes of each half of what [`is_right`] tries: whole pages, of whatever size.
const HALF: usize = 64 << 10;

/// Since Linux 5.7.
const MREMAP_DONTUNMAP: libc::c_int = 4;

/// # Safety
/// As for [`crate::os::remap`].
pub(crate) unsafe fn remap(from: usize, to: usize, len: usize) -> bool {
    static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
    // Relaxed: a value that stands for itself; whoever does not see it finds out the same.
    let mut known = KNOWN.load(Ordering::Relaxed);
    if known == UNKNOWN {
        known = if is_right() { RIGHT } else { WRONG };
        // Relaxed: as above.
        KNOWN.store(known, Ordering::Relaxed);
    }
    // SAFETY: the caller's contract.
    known == RIGHT && unsafe { moved(from, to, len) }
}

/// # Safety
/// As for [`remap`].
unsafe fn moved(from: usize, to: usize, len: usize) -> bool {
    let (from, to) =
        (ptr::with_exposed_provenance_mut(from), ptr::with_exposed_provenance_mut::<libc::c_void>(to));
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | MREMAP_DONTUNMAP;
    // SAFETY: the caller's contract.
    keeping_errno(|| unsafe { libc::mremap(from, len, len, flags, to) == to })
}

/// Whether memory from which pages were moved is still like any other, tried on a mapping of its own. (QEMU 7.2 takes it for unmapped when it emulates
/// another processor: it says that it gives such memory back, and does not.)
fn is_right() -> bool {
    let Some(start) = mmap(0, 2 * HALF, READ_WRITE, 0) else { return false };
    start.expose_provenance();
    let from = start.addr().get();
    let to = from + HALF;
    let at = |address: usize| ptr::with_exposed_provenance_mut::<u8>(address);
    // SAFETY: both halves are this function's alone, readable and writable whatever becomes of their pages.
    let right = unsafe {
        at(from).write_volatile(1);
        let moved = moved(from, to, HALF) && at(from).read_volatile() == 0 && at(to).read_volatile() == 1;
        at(from).write_volatile(1);
        let back = keeping_errno(|| libc::madvise(at(from).cast(), HALF, libc::MADV_DONTNEED)) == 0;
        moved && back && at(from).read_volatile() == 0
    };
    // SAFETY: mapped above, and nobody else knows it.
    unsafe { unmap(from, 2 * HALF) };
    right
}
