//! A simulated operating system for the unit tests and Miri: a fixed piece of memory, handed out once, and calls
//! that fail on demand.

use core::cell::Cell;
use core::ops::Range;
use core::ptr::NonNull;
use std::sync::LazyLock;
use std::sync::atomic::AtomicUsize;

use crate::sync::{AtomicU32, Ordering};

/// Bytes of the simulated machine, shared by all tests of a process; touched only where they are used.
const MEMORY: usize = if cfg!(miri) { 256 << 20 } else { 8 << 30 };

/// Alignment of the simulated machine's memory: that of a chunk.
const ALIGN: usize = 2 << 20;

struct Machine {
    start: usize,
    /// Bytes handed out so far; what is handed out is never taken back.
    used: AtomicUsize,
}

static MACHINE: LazyLock<Machine> = LazyLock::new(|| {
    // Aligned by hand: a request for alignment would be zeroed by hand, all of it.
    let layout = std::alloc::Layout::from_size_align(MEMORY + ALIGN, 16).expect("a valid layout");
    // SAFETY: the layout is not empty.
    let start = unsafe { std::alloc::alloc_zeroed(layout) };
    assert!(!start.is_null(), "no memory for the simulated machine");
    Machine { start: start.expose_provenance().next_multiple_of(ALIGN), used: AtomicUsize::new(0) }
});

thread_local! {
    static CALLS_UNTIL_FAILURE: Cell<Option<u64>> = const { Cell::new(None) };
    static ENVIRONMENT: Cell<[(&'static str, &'static str); 2]> = const { Cell::new([("", ""); 2]) };
    static COLLAPSES: Cell<bool> = const { Cell::new(true) };
    static IDENTITY: Cell<u8> = const { Cell::new(0) };
}

/// From now on the calling thread's `n`-th request for memory fails (0: the next one), and all after it do;
/// `None`: none fails.
pub(crate) fn fail_from(n: Option<u64>) {
    CALLS_UNTIL_FAILURE.with(|left| left.set(n));
}

fn refused() -> bool {
    CALLS_UNTIL_FAILURE.with(|left| match left.get() {
        None => false,
        Some(0) => true,
        Some(n) => {
            left.set(Some(n - 1));
            false
        }
    })
}

/// All addresses of the simulated machine.
pub(crate) fn window() -> Range<usize> {
    MACHINE.start..MACHINE.start + MEMORY
}

pub(crate) fn map(len: usize, align: usize) -> Option<NonNull<u8>> {
    if refused() {
        return None;
    }
    let machine = &*MACHINE;
    // Relaxed: the counter hands out disjoint ranges; nothing else is published by it.
    let mut used = machine.used.load(Ordering::Relaxed);
    loop {
        let start = (machine.start + used).next_multiple_of(align);
        let end = start.checked_add(len)?;
        if end > machine.start + MEMORY {
            return None;
        }
        let next = end - machine.start;
        // Relaxed: as above.
        match machine.used.compare_exchange(used, next, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return NonNull::new(core::ptr::with_exposed_provenance_mut(start)),
            Err(now) => used = now,
        }
    }
}

pub(crate) fn map_at(_: usize, _: usize) -> Option<NonNull<u8>> {
    None
}

/// # Safety
/// `[start, start + len)` lies in what [`reserve`] returned.
pub(crate) unsafe fn make_writable(_: usize, _: usize) -> bool {
    !refused()
}

pub(crate) fn reserve(len: usize) -> Option<NonNull<u8>> {
    map(len, super::PAGE)
}

/// # Safety
/// `[start, start + len)` was returned by [`map`], and nobody needs its content any more.
pub(crate) unsafe fn purge(start: usize, len: usize) -> bool {
    // SAFETY: the caller's contract.
    unsafe { core::ptr::with_exposed_provenance_mut::<u8>(start).write_bytes(0, len) };
    true
}

pub(crate) fn huge_pages() -> bool {
    true
}

/// # Safety
/// `[start, start + len)` was returned by [`map`].
pub(crate) unsafe fn collapse(_: usize, _: usize) -> bool {
    COLLAPSES.with(Cell::get)
}

/// Whether the calling thread's requests for huge pages are granted.
#[cfg(test)]
pub(crate) fn grant_huge_pages(granted: bool) {
    COLLAPSES.with(|place| place.set(granted));
}

/// # Safety
/// Both ranges were returned by [`map`]; nobody uses the one at `from` but its owner, who calls, and nobody the one at `to`.
pub(crate) unsafe fn remap(from: usize, to: usize, len: usize) -> bool {
    if refused() {
        return false;
    }
    let (from, to) =
        (core::ptr::with_exposed_provenance_mut::<u8>(from), core::ptr::with_exposed_provenance_mut(to));
    // SAFETY: the caller's contract; distinct runs do not overlap.
    unsafe {
        core::ptr::copy_nonoverlapping(from, to, len);
        from.write_bytes(0, len);
    }
    true
}

/// # Safety
/// `[start, start + len)` was returned by [`map`], and nobody needs its content any more.
pub(crate) unsafe fn unmix(start: usize, len: usize) -> bool {
    // SAFETY: the caller's contract.
    !refused() && unsafe { purge(start, len) }
}

pub(crate) fn wait(_: &AtomicU32, _: u32) {
    std::thread::yield_now();
}

pub(crate) fn wake(_: &AtomicU32, _: u32) {}

pub(crate) fn barrier_everywhere() -> bool {
    // Tests that rely on it have one thread at a time.
    !refused()
}

pub(crate) fn thread_id() -> usize {
    IDENTITY.with(|place| core::ptr::from_ref(place).addr())
}

pub(crate) fn now_ms() -> u64 {
    static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
    START.elapsed().as_millis() as u64
}

pub(crate) fn has_environment() -> bool {
    true
}

pub(crate) fn environment(name: &'static str) -> Option<&'static [u8]> {
    ENVIRONMENT
        .with(|place| place.get().into_iter().find(|entry| entry.0 == name).map(|entry| entry.1.as_bytes()))
}

/// The calling thread's environment: names that end in a zero, and values.
#[cfg(test)]
pub(crate) fn set_environment(environment: [(&'static str, &'static str); 2]) {
    ENVIRONMENT.with(|place| place.set(environment));
}

pub(crate) fn tell(parts: &[&str]) {
    eprint!("{}", parts.concat());
}

pub(crate) fn die(message: &str) -> ! {
    panic!("{}", message.trim_end())
}
