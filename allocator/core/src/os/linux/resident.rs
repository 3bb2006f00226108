//! How much of a range is in memory.

use core::ptr;

use super::{File, keeping_errno, open, page_size};
use crate::sync::{AtomicU8, Ordering};

pub(crate) fn resident(start: usize, len: usize, most: usize) -> Option<usize> {
    if is_filtered() {
        let table = open(c"/proc/self/pagemap")?;
        sum(start, len, most, ENTRIES, |at, pages| count_in_table(&table, at, pages))
    } else {
        sum(start, len, most, ANSWERS, count_by_call)
    }
}

/// Whether the thread's system calls go through a filter, which may end the program for one that it does not know. `mincore` is such a call (systemd's
/// `@system-service`, which services are told to confine themselves to, has all others that this library makes).
fn is_filtered() -> bool {
    /// Not 0: it was so once, and stays so.
    static FILTERED: AtomicU8 = AtomicU8::new(0);
    // Relaxed: whoever does not see it asks again.
    if FILTERED.load(Ordering::Relaxed) != 0 {
        return true;
    }
    keeping_errno(|| {
        // SAFETY: the call takes no pointer.
        let filtered = match unsafe { libc::prctl(libc::PR_GET_SECCOMP) } {
            0 => false,
            // This system has no filters.
            // SAFETY: glibc gives every thread an errno.
            -1 => unsafe { *libc::__errno_location() != libc::EINVAL },
            _ => true,
        };
        if filtered {
            // Relaxed: as above.
            FILTERED.store(1, Ordering::Relaxed);
        }
        filtered
    })
}

/// The bytes of all pages that `count` finds in memory, of `piece` pages at a time, until they are more than `most`.
fn sum(
    start: usize,
    len: usize,
    most: usize,
    piece: usize,
    count: impl Fn(usize, usize) -> Option<usize>,
) -> Option<usize> {
    let page = page_size();
    let (mut at, mut found) = (start, 0);
    while at < start + len && found <= most {
        let pages = (start + len - at).div_ceil(page).min(piece);
        found += count(at, pages)? * page;
        at += pages * page;
    }
    Some(found)
}

/// How many pages one call tells of.
const ANSWERS: usize = 512;

/// How many of so many pages from `at` on are in memory.
fn count_by_call(at: usize, pages: usize) -> Option<usize> {
    let mut there = [0u8; ANSWERS];
    // SAFETY: the call writes a byte for each page.
    let told = keeping_errno(|| unsafe {
        libc::mincore(ptr::with_exposed_provenance_mut(at), pages * page_size(), there.as_mut_ptr()) == 0
    });
    told.then(|| there[..pages].iter().filter(|page| **page & 1 != 0).count())
}

/// How many pages are read of at once: a kilobyte on the stack.
const ENTRIES: usize = 128;

/// The same from the process's table of pages, which has eight bytes for each.
fn count_in_table(table: &File, at: usize, pages: usize) -> Option<usize> {
    const PRESENT: u64 = 1 << 63;
    let mut entries = [0u64; ENTRIES];
    let (bytes, place) = (pages * size_of::<u64>(), at / page_size() * size_of::<u64>());
    // SAFETY: the entries are ours, and that long.
    let read = keeping_errno(|| unsafe {
        libc::syscall(libc::SYS_pread64, table.0, entries.as_mut_ptr(), bytes, place)
    });
    (usize::try_from(read) == Ok(bytes))
        .then(|| entries[..pages].iter().filter(|entry| **entry & PRESENT != 0).count())
}
