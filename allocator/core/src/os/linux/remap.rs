//! Moving pages, where the system does it correctly.

use core::ptr;

use super::{READ_WRITE, address_limit, advise, each_mapping, keeping_errno, map_at, mmap, unmap, unmix};
use crate::atomics::{AtomicU8, Ordering};
use crate::os::Moved;

const UNKNOWN: u8 = 0;
const RIGHT: u8 = 1;
/// It moves the pages of one mapping at a time, as Linux does before 6.17.
const SINGLE: u8 = 2;
const WRONG: u8 = 3;

/// What is known of the system.
static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Bytes of each half of what [`is_right`] tries: whole pages, of whatever size.
const HALF: usize = 64 << 10;

/// Since Linux 5.7.
const MREMAP_DONTUNMAP: libc::c_int = 4;

/// Mappings whose pages are moved one after the other, at most; how many bytes one has in the mean at least, and all together: to look for their ends takes some hundred
/// microseconds, as copying a megabyte does.
const PIECES_MAX: usize = 64;
const PIECE_MEAN: usize = 512 << 10;
const PIECES_FROM: usize = 4 << 20;

/// # Safety
/// As for [`crate::os::remap`].
pub(crate) unsafe fn remap(from: usize, to: usize, len: usize, remapped: bool) -> Moved {
    // Relaxed: a value that stands for itself; whoever does not see it finds out the same.
    let mut known = KNOWN.load(Ordering::Relaxed);
    if known == UNKNOWN {
        known = if is_right() { RIGHT } else { WRONG };
        // Relaxed: as above.
        KNOWN.store(known, Ordering::Relaxed);
    }
    // Where addresses are limited the system may refuse before it has unmapped anything, which cannot be told from what follows.
    if known == WRONG || address_limit().is_some() {
        return Moved::No;
    }
    let in_pieces = len >= PIECES_FROM;
    if known == RIGHT || !in_pieces && !remapped {
        // SAFETY: the caller's contract.
        match unsafe { moved(from, to, len) } {
            Moved::PlaceLost => {}
            done => return done,
        }
        if refused(to, len) == Moved::PlaceLost {
            return Moved::PlaceLost;
        }
        // Relaxed: as above.
        KNOWN.store(SINGLE, Ordering::Relaxed);
    }
    // SAFETY: the caller's contract.
    if in_pieces { unsafe { moved_in_pieces(from, to, len) } } else { Moved::No }
}

/// What is left where the system has refused to move pages there: it unmaps what lies there before it looks whether it can, and before Linux 6.17 it cannot where the pages lie in
/// several mappings, as they do where a part was marked for huge pages once, or came from elsewhere. So that place is free, unless another thread's mapping came there meanwhile.
fn refused(to: usize, len: usize) -> Moved {
    if map_at(to, len).is_some() {
        // SAFETY: mapped just now. What was there had no huge pages that were not asked for.
        let _ = unsafe { advise(to, len, libc::MADV_NOHUGEPAGE) };
        return Moved::No;
    }
    // Relaxed: as in `remap`. Once is enough.
    KNOWN.store(WRONG, Ordering::Relaxed);
    Moved::PlaceLost
}

/// Moves pages one mapping after the other, if these are not many.
///
/// # Safety
/// As for [`remap`].
unsafe fn moved_in_pieces(from: usize, to: usize, len: usize) -> Moved {
    let (mut ends, mut count, mut covered) = ([0; PIECES_MAX], 0, from);
    each_mapping(&mut |mapping| {
        // What is told of the process without a look at its mappings lies elsewhere.
        if mapping.contains(&covered) && covered < from + len {
            covered = mapping.end.min(from + len);
            if let Some(end) = ends.get_mut(count) {
                *end = covered;
            }
            count += 1;
        }
    });
    if covered != from + len || count > PIECES_MAX.min(len / PIECE_MEAN) {
        return Moved::No;
    }
    let mut start = from;
    for &end in &ends[..count] {
        let place = to + (start - from);
        // SAFETY: a part of both.
        match unsafe { moved(start, place, end - start) } {
            Moved::Yes => start = end,
            Moved::PlaceLost => {
                let left = refused(place, end - start);
                // SAFETY: what was moved before is the caller's, in either place.
                return unsafe { moved_back(from, to, start - from, left) };
            }
            torn => return torn,
        }
    }
    Moved::Yes
}

/// Copies the first `len` bytes back that were moved before the next were refused, and makes their place like any other again.
///
/// # Safety
/// As for [`remap`].
unsafe fn moved_back(from: usize, to: usize, len: usize, left: Moved) -> Moved {
    let at = |address: usize| ptr::with_exposed_provenance_mut::<u8>(address);
    // SAFETY: both are mapped, do not overlap, and are the caller's.
    unsafe { at(from).copy_from_nonoverlapping(at(to), len) };
    // SAFETY: nobody needs what lies there.
    if left == Moved::No && (len == 0 || unsafe { unmix(to, len) }) {
        return Moved::No;
    }
    // SAFETY: as above; what is moved is mapped there, and nobody will use the place.
    unsafe { unmap(to, len) };
    Moved::PlaceLost
}

/// Moves the pages, or loses their place. Since Linux 6.17 pages in several mappings move, one mapping after the other: where that ends halfway, which would
/// need the last mapping that a process may have, they are torn.
///
/// # Safety
/// As for [`remap`].
unsafe fn moved(from: usize, to: usize, len: usize) -> Moved {
    let at = |address: usize| ptr::with_exposed_provenance_mut::<usize>(address);
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | MREMAP_DONTUNMAP;
    // SAFETY: the caller's contract. The first page is the first to move, and reads as zero from then on: its first word tells, which is made not to be zero.
    unsafe {
        let is_zero = at(from).read_volatile() == 0;
        if is_zero {
            at(from).write_volatile(1);
        }
        let moved = keeping_errno(|| libc::mremap(at(from).cast(), len, len, flags, at(to)) == at(to).cast());
        if !moved && at(from).read_volatile() == 0 {
            return Moved::Torn;
        }
        if is_zero {
            at(if moved { to } else { from }).write_volatile(0);
        }
        if moved { Moved::Yes } else { Moved::PlaceLost }
    }
}

/// Whether memory from which pages were moved is still like any other, tried on a mapping of its own. (QEMU 7.2 takes it for unmapped when it emulates
/// another processor: it says that it gives such memory back, and does not.)
fn is_right() -> bool {
    let Some(start) = mmap(0, 2 * HALF, READ_WRITE, 0) else { return false };
    start.expose_provenance();
    let from = start.addr().get();
    let to = from + HALF;
    let at = |address: usize| ptr::with_exposed_provenance_mut::<u8>(address);
    // SAFETY: both halves are this function's alone, readable and writable, but for the second where nothing was moved.
    let (moved, right) = unsafe {
        at(from).write_volatile(1);
        let moved = moved(from, to, HALF) == Moved::Yes;
        let there = moved && at(from).read_volatile() == 0 && at(to).read_volatile() == 1;
        at(from).write_volatile(1);
        let back = keeping_errno(|| libc::madvise(at(from).cast(), HALF, libc::MADV_DONTNEED)) == 0;
        (moved, there && back && at(from).read_volatile() == 0)
    };
    // SAFETY: mapped above, and nobody else knows it. (Where nothing was moved, the second half may be anybody's: see `remap`.)
    unsafe { unmap(from, if moved { 2 * HALF } else { HALF }) };
    right
}
