//! The simulated machine's addresses, and the tables' own, which are the real system's.

use core::cell::{Cell, RefCell};
use core::ops::Range;
use core::ptr::NonNull;

use super::{ALIGN, Call, REGION, Region, refused, take};
use crate::os::PAGE;

thread_local! {
    /// How far addresses are limited.
    static LIMIT: Cell<Option<usize>> = const { Cell::new(None) };
    /// Whether a table may be reserved where it wants to be; elsewhere it lies in the machine's memory, as those of most tests, of which there are more than
    /// places.
    static PLACED: Cell<bool> = const { Cell::new(false) };
    /// What was mapped for tables.
    static TABLES: RefCell<Vec<(usize, usize)>> = const { RefCell::new(Vec::new()) };
    /// Bytes that tables gave up.
    static GIVEN_UP: Cell<usize> = const { Cell::new(0) };
    static MAPPINGS: RefCell<Vec<Range<usize>>> = const { RefCell::new(Vec::new()) };
}

/// From now on the calling thread's memory comes from `len` bytes of its own: zeroed, all of them, at every call.
/// Whatever was got from them before is no more. With `limited` addresses nothing can be reserved.
#[cfg(all(test, not(miri)))]
pub(crate) fn use_region(len: usize, limited: bool) {
    LIMIT.set(limited.then_some(len));
    PLACED.set(true);
    let (start, used) = match REGION.take() {
        Some(region) => (region.start, region.used),
        None => (take(len, ALIGN).expect("the machine is large enough").as_ptr().expose_provenance(), 0),
    };
    // SAFETY: the machine's memory is an anonymous mapping, this part of it the caller's, and nobody uses it any more.
    unsafe {
        libc::madvise(core::ptr::with_exposed_provenance_mut(start), used, libc::MADV_DONTNEED);
    }
    for (start, len) in TABLES.take() {
        // SAFETY: mapped here, and nobody uses it any more.
        unsafe { libc::munmap(core::ptr::with_exposed_provenance_mut(start), len) };
    }
    REGION.set(Some(Region { start, used: 0, len }));
}

pub(crate) fn address_limit() -> Option<usize> {
    LIMIT.get()
}

/// From now on the calling thread's addresses are limited.
#[cfg(test)]
pub(crate) fn limit_addresses(bytes: Option<usize>) {
    LIMIT.set(bytes);
}

/// From now on the calling thread's tables are reserved where they want to be.
#[cfg(test)]
pub(crate) fn place_tables() {
    PLACED.set(true);
}

/// What is mapped besides, for the calling thread.
#[cfg(test)]
pub(crate) fn set_mappings(mappings: &[Range<usize>]) {
    MAPPINGS.set(mappings.to_vec());
}

pub(crate) fn each_mapping(visit: &mut dyn FnMut(Range<usize>)) {
    MAPPINGS.with_borrow(Clone::clone).into_iter().for_each(visit);
}

/// A real mapping.
#[cfg(miri)]
fn map_there(_: usize, _: usize) -> Option<NonNull<u8>> {
    None
}

#[cfg(not(miri))]
fn map_there(address: usize, len: usize) -> Option<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let place = core::ptr::without_provenance_mut(address);
    // SAFETY: a mapping where there is none.
    let start = unsafe { libc::mmap(place, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if start.addr() != address {
        return None;
    }
    start.expose_provenance();
    TABLES.with_borrow_mut(|tables| tables.push((address, len)));
    NonNull::new(start.cast())
}

pub(crate) fn map_at(address: usize, len: usize) -> Option<NonNull<u8>> {
    if refused(Call::MapAt) { None } else { map_there(address, len) }
}

pub(crate) fn reserve(place: Option<usize>, len: usize) -> Option<NonNull<u8>> {
    match place {
        Some(_) if !PLACED.get() => None,
        _ if refused(Call::Reserve) => None,
        Some(address) => map_there(address, len),
        None => take(len, PAGE),
    }
}

/// # Safety
/// `[start, start + len)` lies in what [`reserve`] returned.
pub(crate) unsafe fn make_writable(_: usize, _: usize) -> bool {
    !refused(Call::MakeWritable)
}

/// # Safety
/// `[start, start + len)` lies in what [`reserve`] returned, and nobody reads it from now on.
pub(crate) unsafe fn give_up(start: usize, len: usize) -> bool {
    if refused(Call::GiveUp) {
        return false;
    }
    GIVEN_UP.set(GIVEN_UP.get() + len);
    // SAFETY: the caller's contract.
    unsafe { libc::munmap(core::ptr::with_exposed_provenance_mut(start), len) == 0 }
}

/// Bytes that the calling thread's tables gave up.
#[cfg(test)]
pub(crate) fn given_up() -> usize {
    GIVEN_UP.get()
}
