//! Addresses: the tables', their limits, and what is mapped.

use core::ops::Range;
use core::ptr::{self, NonNull};

use super::{READ_WRITE, keeping_errno, mmap, unmap};
use crate::os::maps::Maps;

/// A mapping exactly there. The place is a hint: the system takes it where nothing is mapped. (ThreadSanitizer drops what it does not like of a hint, and would
/// map at address 0 what is to be nowhere else.)
fn map_there(address: usize, len: usize, protection: libc::c_int, flags: libc::c_int) -> Option<NonNull<u8>> {
    let start = mmap(address, len, protection, flags)?;
    if start.addr().get() == address {
        return Some(start);
    }
    // SAFETY: mapped just above, used by nobody.
    unsafe { unmap(start.addr().get(), len) };
    None
}

pub(crate) fn map_at(address: usize, len: usize) -> Option<NonNull<u8>> {
    map_there(address, len, READ_WRITE, 0)
}

pub(crate) fn reserve(place: Option<usize>, len: usize) -> Option<NonNull<u8>> {
    // Memory that cannot be written is charged to no limit of memory. It counts where addresses are limited, and where all memory is to be
    // locked: then each page of it gets the page of zeros, which takes page tables and time.
    let start = match place {
        Some(address) => map_there(address, len, libc::PROT_READ, libc::MAP_NORESERVE),
        None => mmap(0, len, libc::PROT_READ, libc::MAP_NORESERVE),
    }?;
    for advice in [libc::MADV_DONTDUMP, libc::MADV_NOHUGEPAGE] {
        keeping_errno(|| {
            // SAFETY: advice on the mapping made just above: a core dump has no use for a table that is mostly
            // holes, and it must not be filled with huge pages.
            unsafe { libc::madvise(start.as_ptr().cast(), len, advice) };
        });
    }
    Some(start)
}

/// # Safety
/// `[start, start + len)` lies in what [`reserve`] returned.
#[inline(never)]
pub(crate) unsafe fn make_writable(start: usize, len: usize) -> bool {
    keeping_errno(|| {
        // SAFETY: the caller's contract.
        unsafe { libc::mprotect(ptr::with_exposed_provenance_mut(start), len, READ_WRITE) == 0 }
    })
}

/// # Safety
/// `[start, start + len)` lies in what [`reserve`] returned, and nobody reads it from now on.
pub(crate) unsafe fn give_up(start: usize, len: usize) -> bool {
    // SAFETY: the caller's contract.
    keeping_errno(|| unsafe { libc::munmap(ptr::with_exposed_provenance_mut(start), len) == 0 })
}

pub(crate) fn address_limit() -> Option<usize> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is ours to write.
    let known = keeping_errno(|| unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) }) == 0;
    (known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur as usize)
}

#[cold]
#[inline(never)]
pub(crate) fn each_mapping(visit: &mut dyn FnMut(Range<usize>)) {
    keeping_errno(|| {
        // SAFETY: an impossible end, which changes nothing.
        let end_of_data = unsafe { libc::syscall(libc::SYS_brk, 0) } as usize;
        // The program's own heap may not be there yet; and a process that gave up rights may not read what follows.
        let libraries = map_there as *const () as usize;
        let stack = (&raw const end_of_data).addr();
        [end_of_data, libraries, stack].into_iter().for_each(|known| visit(known..known.saturating_add(1)));
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        // By raw calls, as all files are read here.
        // SAFETY: the path ends in a zero.
        let file =
            unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, c"/proc/self/maps".as_ptr(), flags) };
        if file < 0 {
            return;
        }
        let (mut maps, mut text) = (Maps::new(), [0u8; 1024]);
        loop {
            // SAFETY: the buffer is ours, and that long.
            let length = unsafe { libc::syscall(libc::SYS_read, file, text.as_mut_ptr(), text.len()) };
            let Some(piece) = usize::try_from(length).ok().and_then(|length| text.get(..length)) else {
                break;
            };
            if piece.is_empty() {
                break;
            }
            maps.read(piece, &mut *visit);
        }
        // SAFETY: opened above, and used no more.
        unsafe { libc::syscall(libc::SYS_close, file) };
    });
}
