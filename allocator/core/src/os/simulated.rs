//! A simulated operating system for the unit tests and Miri: a fixed piece of memory, handed out once, and calls
//! that fail on demand.

mod addresses;
mod threads;

use core::cell::{Cell, RefCell};
use core::ffi::CStr;
use core::ops::Range;
use core::ptr::NonNull;
use std::sync::LazyLock;
use std::sync::atomic::AtomicUsize;

pub(crate) use self::addresses::*;
pub(crate) use self::threads::*;
use crate::atomics::{AtomicU32, Ordering};

/// Bytes of the simulated machine, shared by all tests of a process; touched only where they are used.
const MEMORY: usize = if cfg!(miri) { 1 << 30 } else { 16 << 30 };

/// Alignment of the simulated machine's memory: that of a chunk.
const ALIGN: usize = 2 << 20;

struct Machine {
    start: usize,
    /// Bytes handed out so far; what is handed out is never taken back.
    used: AtomicUsize,
}

static MACHINE: LazyLock<Machine> = LazyLock::new(|| {
    // Aligned by hand: a request for alignment would be zeroed by hand, all of it.
    #[cfg(miri)]
    // SAFETY: the layout is not empty.
    let start = unsafe {
        let layout = std::alloc::Layout::from_size_align(MEMORY + ALIGN, 16).expect("a valid layout");
        std::alloc::alloc_zeroed(layout)
    };
    // Not reserved: it may be more than the real machine has.
    #[cfg(not(miri))]
    // SAFETY: a mapping of its own.
    let start = unsafe {
        let (access, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        let memory = libc::mmap(core::ptr::null_mut(), MEMORY + ALIGN, access, kind, -1, 0);
        if memory == libc::MAP_FAILED { core::ptr::null_mut() } else { memory.cast::<u8>() }
    };
    assert!(!start.is_null(), "no memory for the simulated machine");
    Machine { start: start.expose_provenance().next_multiple_of(ALIGN), used: AtomicUsize::new(0) }
});

/// A function of the contract that can be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    BarrierEverywhere,
    Collapse,
    Create,
    GiveUp,
    HugePages,
    Resident,
    MakeWritable,
    Map,
    MapAt,
    Mark,
    MemoryLimit,
    Purge,
    PurgeTogether,
    Remap,
    Reserve,
    StartThread,
    Unmix,
}

impl Call {
    /// All of them.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 17] = [
        Self::BarrierEverywhere,
        Self::Collapse,
        Self::Create,
        Self::GiveUp,
        Self::HugePages,
        Self::Resident,
        Self::MakeWritable,
        Self::Map,
        Self::MapAt,
        Self::Mark,
        Self::MemoryLimit,
        Self::Purge,
        Self::PurgeTogether,
        Self::Remap,
        Self::Reserve,
        Self::StartThread,
        Self::Unmix,
    ];
}

/// Which of the calling thread's calls are refused; they are counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Faults {
    None,
    /// This one and all after it.
    From(u64),
    /// This one alone.
    Only(u64),
}

/// A part of the machine that one thread has for itself.
#[derive(Clone, Copy)]
struct Region {
    start: usize,
    used: usize,
    len: usize,
}

thread_local! {
    static FAULTS: Cell<Faults> = const { Cell::new(Faults::None) };
    static CALLS: Cell<u64> = const { Cell::new(0) };
    static REFUSED: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
    static REGION: Cell<Option<Region>> = const { Cell::new(None) };
    static ENVIRONMENT: Cell<[(&'static str, &'static str); 2]> = const { Cell::new([("", ""); 2]) };
    static PAGE_SIZE: Cell<usize> = const { Cell::new(super::PAGE) };
    static MEMORY_LIMIT: Cell<Option<usize>> = const { Cell::new(None) };
    /// The path of the file created last, and what was written since.
    static CREATED: RefCell<String> = const { RefCell::new(String::new()) };
    static WRITTEN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// How long the thread has worked, and how far that goes on at each look.
    static MICROSECONDS: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    /// Where [`now_ms`] stands still, if it does.
    static STOPPED_MS: Cell<Option<u64>> = const { Cell::new(None) };
    static MARKS: RefCell<Vec<(usize, usize, bool)>> = const { RefCell::new(Vec::new()) };
    static COLLAPSES: Cell<bool> = const { Cell::new(true) };
    static MOVED: Cell<super::Moved> = const { Cell::new(super::Moved::No) };
}

/// Begins to count the calling thread's calls, and to refuse these.
pub(crate) fn inject(faults: Faults) {
    FAULTS.set(faults);
    CALLS.set(0);
    REFUSED.take();
}

/// The calling thread's calls since [`inject`].
#[cfg(test)]
pub(crate) fn calls() -> u64 {
    CALLS.get()
}

/// Those of them that were refused.
#[cfg(test)]
pub(crate) fn refused_calls() -> Vec<Call> {
    REFUSED.with_borrow(Vec::clone)
}

fn refused(call: Call) -> bool {
    let number = CALLS.replace(CALLS.get() + 1);
    let refused = match FAULTS.get() {
        Faults::None => false,
        Faults::From(first) => number >= first,
        Faults::Only(one) => number == one,
    };
    if refused {
        REFUSED.with_borrow_mut(|calls| calls.push(call));
    }
    refused
}

/// All addresses of the simulated machine.
pub(crate) fn window() -> Range<usize> {
    MACHINE.start..MACHINE.start + MEMORY
}

pub(crate) fn map(len: usize, align: usize) -> Option<NonNull<u8>> {
    if refused(Call::Map) { None } else { take(len, align) }
}

/// Memory of the machine, or of the thread's part of it.
fn take(len: usize, align: usize) -> Option<NonNull<u8>> {
    if let Some(region) = REGION.get() {
        let start = (region.start + region.used).next_multiple_of(align);
        let used = start.checked_add(len)? - region.start;
        if used > region.len {
            return None;
        }
        REGION.set(Some(Region { used, ..region }));
        return NonNull::new(core::ptr::with_exposed_provenance_mut(start));
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

/// # Safety
/// `[start, start + len)` was returned by [`map`], and nobody needs its content any more.
pub(crate) unsafe fn purge(start: usize, len: usize) -> bool {
    let done = !refused(Call::Purge);
    if done {
        // SAFETY: the caller's contract.
        unsafe { clear(start, len) };
    }
    done
}

/// # Safety
/// As for [`purge`], for each part.
pub(crate) unsafe fn purge_together(parts: &[super::Part]) -> bool {
    let done = !refused(Call::PurgeTogether);
    if done {
        // SAFETY: the caller's contract.
        parts.iter().for_each(|part| unsafe { clear(part.start, part.len) });
    }
    done
}

/// What the system does: to whole pages, but that lengths are rounded up.
///
/// # Safety
/// As for [`purge`].
unsafe fn clear(start: usize, len: usize) {
    let page = PAGE_SIZE.get();
    assert!(start.is_multiple_of(page), "no page begins at {start:#x}");
    // SAFETY: the caller's contract.
    unsafe {
        core::ptr::with_exposed_provenance_mut::<u8>(start).write_bytes(0, len.next_multiple_of(page));
    }
}

pub(crate) fn page_size() -> usize {
    PAGE_SIZE.get()
}

/// The calling thread's system has pages of this size.
#[cfg(test)]
pub(crate) fn set_page_size(size: usize) {
    PAGE_SIZE.set(size);
}

pub(crate) fn processors() -> usize {
    4
}

pub(crate) fn huge_pages() -> bool {
    !refused(Call::HugePages)
}

/// # Safety
/// `[start, start + len)` was returned by [`map`].
pub(crate) unsafe fn collapse(_: usize, _: usize, _: bool) -> bool {
    !refused(Call::Collapse) && COLLAPSES.get()
}

/// # Safety
/// `[start, start + len)` was returned by [`map`].
pub(crate) unsafe fn mark(start: usize, len: usize, huge: bool) -> bool {
    if refused(Call::Mark) {
        return false;
    }
    MARKS.with_borrow_mut(|marks| marks.push((start, len, huge)));
    true
}

/// The marks that the calling thread set and took away.
#[cfg(test)]
pub(crate) fn marks() -> Vec<(usize, usize, bool)> {
    MARKS.take()
}

/// # Safety
/// `address` lies in memory that [`map`] returned, and nobody uses it but the caller.
pub(crate) unsafe fn touch(address: usize) {
    let byte = core::ptr::with_exposed_provenance_mut::<u8>(address);
    // SAFETY: the caller's contract.
    unsafe { byte.write_volatile(byte.read_volatile()) };
}

/// Pages that hold anything but zeros at the beginning of a block, as those that tests touch do (where Miri pays for every byte: of the page).
pub(crate) fn resident(start: usize, len: usize, most: usize) -> Option<usize> {
    const STEP: usize = if cfg!(miri) { super::PAGE } else { 16 };
    let filled = |page: &usize| {
        let page = core::ptr::with_exposed_provenance::<u8>(*page);
        // SAFETY: the caller passes memory of `map`, which is initialised and never given up.
        (0..super::PAGE).step_by(STEP).any(|byte| unsafe { page.add(byte).read_volatile() } != 0)
    };
    let pages = (start..start + len).step_by(super::PAGE).filter(filled);
    (!refused(Call::Resident)).then(|| pages.take(most / super::PAGE + 1).count() * super::PAGE)
}

/// Whether the calling thread's requests for huge pages are granted.
#[cfg(test)]
pub(crate) fn grant_huge_pages(granted: bool) {
    COLLAPSES.with(|place| place.set(granted));
}

/// # Safety
/// Both ranges were returned by [`map`]; nobody uses the one at `from` but its owner, who calls, and nobody the one at `to`.
pub(crate) unsafe fn remap(from: usize, to: usize, len: usize, _remapped: bool) -> super::Moved {
    if refused(Call::Remap) {
        return MOVED.get();
    }
    let page = PAGE_SIZE.get();
    assert!((from | to).is_multiple_of(page), "no page begins at {from:#x}, or at {to:#x}");
    let (from, to) =
        (core::ptr::with_exposed_provenance_mut::<u8>(from), core::ptr::with_exposed_provenance_mut(to));
    // SAFETY: the caller's contract; distinct runs do not overlap.
    unsafe {
        core::ptr::copy_nonoverlapping(from, to, len.next_multiple_of(page));
        from.write_bytes(0, len);
    }
    super::Moved::Yes
}

/// What becomes of pages that the calling thread's system refuses to move.
#[cfg(test)]
pub(crate) fn refuse_to_move(moved: super::Moved) {
    MOVED.set(moved);
}

/// # Safety
/// `[start, start + len)` was returned by [`map`], and nobody needs its content any more.
pub(crate) unsafe fn unmix(start: usize, len: usize) -> bool {
    if refused(Call::Unmix) {
        return false;
    }
    // SAFETY: the caller's contract.
    unsafe { clear(start, len) };
    true
}

pub(crate) fn wait(_: &AtomicU32, _: u32) {
    std::thread::yield_now();
}

pub(crate) fn wait_for(_: &AtomicU32, _: u32, _: u64) {
    std::thread::yield_now();
}

pub(crate) fn wake(_: &AtomicU32, _: u32) {}

pub(crate) fn barrier_everywhere() -> bool {
    // Tests that rely on it have one thread at a time.
    !refused(Call::BarrierEverywhere)
}

pub(crate) fn now_ms() -> u64 {
    static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
    STOPPED_MS.get().unwrap_or_else(|| START.elapsed().as_millis() as u64)
}

/// From now on [`now_ms`] stands still for the calling thread, at `ms`.
#[cfg(test)]
pub(crate) fn stop_clock(ms: u64) {
    STOPPED_MS.set(Some(ms));
}

/// No time passes but that of [`worked_us`].
pub(crate) fn now_us() -> u64 {
    worked_us()
}

/// A thread works only between two calls.
pub(crate) fn worked_us() -> u64 {
    let (now, step) = MICROSECONDS.get();
    MICROSECONDS.set((now + step, step));
    now
}

/// From now on the calling thread works for so many microseconds between two looks at the clock.
#[cfg(test)]
pub(crate) fn work_us(step: u64) {
    MICROSECONDS.set((0, step));
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

pub(crate) fn memory_limit() -> Option<usize> {
    if refused(Call::MemoryLimit) { None } else { MEMORY_LIMIT.get() }
}

/// The calling thread's control group may have so much memory.
#[cfg(test)]
pub(crate) fn limit_memory(bytes: Option<usize>) {
    MEMORY_LIMIT.set(bytes);
}

pub(crate) fn process_id() -> usize {
    4711
}

/// A file to write to: one for each thread, the one created last.
pub(crate) struct File;

pub(crate) fn standard_error() -> File {
    File
}

pub(crate) fn create(path: &CStr) -> Option<File> {
    if refused(Call::Create) {
        return None;
    }
    CREATED.set(path.to_string_lossy().into_owned());
    WRITTEN.take();
    Some(File)
}

pub(crate) fn write(_: &File, bytes: &[u8]) {
    WRITTEN.with_borrow_mut(|written| written.extend(bytes));
}

/// The path of the file that the calling thread created last.
#[cfg(test)]
pub(crate) fn created() -> String {
    CREATED.with_borrow(String::clone)
}

/// What the calling thread wrote since then.
#[cfg(test)]
pub(crate) fn written() -> Vec<u8> {
    WRITTEN.with_borrow(Vec::clone)
}

pub(crate) fn tell(parts: &[&[u8]]) {
    eprint!("{}", String::from_utf8_lossy(&parts.concat()));
}

pub(crate) fn die(message: &str) -> ! {
    panic!("{}", message.trim_end())
}
