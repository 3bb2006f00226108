//! How much of a range is in memory.

use core::ptr;

use super::{File, errno, keeping_errno, open, page_size};
use crate::atomics::{AtomicU8, Ordering};

/// Who can tell, as far as is known.
static TELLS: AtomicU8 = AtomicU8::new(CALL);
/// `mincore`.
const CALL: u8 = 0;
/// The process's table of pages: there is a filter of system calls.
const TABLE: u8 = 1;
/// Nobody: the table cannot be read, and to try again could fill the system's log.
const NOBODY: u8 = 2;

pub(crate) fn resident(start: usize, len: usize, most: usize) -> Option<usize> {
    // Relaxed, in all of this file: whoever sees an older value finds out the same.
    match TELLS.load(Ordering::Relaxed) {
        NOBODY => None,
        CALL if !is_filtered() => sum(start, len, most, ANSWERS, count_by_call),
        _ => {
            let table = open_table()?;
            sum(start, len, most, ENTRIES, |at, pages| count_in_table(&table, at, pages))
        }
    }
}

/// Whether the thread's system calls go through a filter, which may end the program for one that it does not know. `mincore` is such a call (systemd's
/// `@system-service`, which services are told to confine themselves to, has all others that this library makes).
fn is_filtered() -> bool {
    keeping_errno(|| {
        // SAFETY: the call takes no pointer.
        match unsafe { libc::prctl(libc::PR_GET_SECCOMP) } {
            0 => return false,
            // This system has no filters.
            -1 if errno() == libc::EINVAL => return false,
            _ => {}
        }
        // Relaxed: as above.
        TELLS.store(TABLE, Ordering::Relaxed);
        true
    })
}

/// The table, unless this process may not see it.
fn open_table() -> Option<File> {
    match open(c"/proc/self/pagemap") {
        Ok(table) => Some(table),
        // The program has too many files open at the moment.
        Err(libc::EMFILE | libc::ENFILE) => None,
        Err(_) => {
            // Relaxed: as above.
            TELLS.store(NOBODY, Ordering::Relaxed);
            None
        }
    }
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
