//! One call that is observed: how long it took, and what came of it.

use std::cell::Cell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU8, Ordering};

use ample_protocol::observation::{Count, Distribution, Fact, LARGE, LOOK_AFTER, LOOK_AT, SHORT_NS, SLOW_NS};

use crate::blocks::{self, Block};
use crate::{file, memory};

/// Nobody has called yet.
const NEW: u8 = 0;
/// A thread prepares for it.
const PREPARING: u8 = 1;
/// Calls are observed.
const ON: u8 = 2;
/// There is no file to count in.
const OFF: u8 = 3;

static STATE: AtomicU8 = AtomicU8::new(NEW);
/// A thread without a number yet.
const NONE: u32 = u32::MAX;

thread_local! {
    /// Whether this thread is within a call that is observed.
    static WITHIN: Cell<bool> = const { Cell::new(false) };
    /// Its number.
    static THREAD: Cell<u32> = const { Cell::new(NONE) };
    /// Its calls.
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// A call of the program's, while it lasts.
pub struct Call {
    thread: u32,
    began_ns: u64,
    /// Time in the allocator, clock included.
    call_ns: u64,
}

impl Call {
    /// None where it is not to be observed: within another one, or without a file.
    pub fn begin() -> Option<Self> {
        // Acquire: pairs with the release in `prepare`.
        match STATE.load(Ordering::Acquire) {
            ON => {}
            NEW => prepare()?,
            _ => return None,
        }
        if WITHIN.replace(true) {
            return None;
        }
        let mut thread = THREAD.get();
        if thread == NONE {
            thread = u32::try_from(file::add(Fact::Threads, 1)).unwrap_or(NONE - 1);
            THREAD.set(thread);
            if let Some(stack) = memory::stack() {
                file::stack(thread, stack);
            }
        }
        Some(Self { thread, began_ns: now_ns(), call_ns: 0 })
    }

    /// The call itself.
    pub fn of<R>(&mut self, function: impl FnOnce() -> R) -> R {
        let looked = CALLS.get().is_multiple_of(LOOK_AT).then(Work::now);
        let before = now_ns();
        let result = function();
        self.call_ns += now_ns() - before;
        if let Some(work) = looked
            && self.call_ns >= SLOW_NS
        {
            file::count(self.thread, Count::SeenNs, self.call_ns);
            if let Some(cause) = Work::now().cause_since(work) {
                file::count(self.thread, cause, self.call_ns);
            }
        }
        result
    }

    /// A block that was allocated; null is a failure.
    pub fn allocated(&self, block: *mut c_void, size: usize) {
        if block.is_null() {
            file::count(self.thread, Count::Failures, 1);
            return;
        }
        let size = size as u64;
        file::count(self.thread, Count::Allocations, 1);
        if size >= LARGE {
            file::count(self.thread, Count::LargeAllocations, 1);
            file::count(self.thread, Count::LargeBytes, size);
        }
        self.lives(block, size);
    }

    /// A block that is to be freed, told before the allocator may give it to another thread.
    pub fn freed(&self, block: *mut c_void) {
        if block.is_null() {
            return;
        }
        file::count(self.thread, Count::Frees, 1);
        let Some(dead) = self.dies(block) else { return };
        let life_ns = self.began_ns.saturating_sub(dead.born_ns);
        file::note(self.thread, Distribution::Lives, life_ns / 1000);
        if dead.size >= LARGE && life_ns <= SHORT_NS {
            file::count(self.thread, Count::LargeShort, 1);
        }
    }

    /// A block that gets another size, told before the allocator may give its place to another thread: what it was.
    pub fn resizing(&self, block: *mut c_void) -> Option<Block> {
        file::count(self.thread, Count::Resizes, 1);
        self.dies(block)
    }

    /// What came of that; a failure leaves the block as it was.
    pub fn resized(&self, old: *mut c_void, was: Option<Block>, new: *mut c_void, size: usize) {
        if !new.is_null() {
            file::count(self.thread, Count::Moves, u64::from(new != old));
            self.lives(new, size as u64);
        } else if size > 0 {
            file::count(self.thread, Count::Failures, 1);
            if let Some(was) = was {
                self.note(old, was);
            }
        }
    }

    /// A call of malloc_trim: no request for a block, and in no distribution of those.
    pub fn trims<R>(self, function: impl FnOnce() -> R) -> R {
        let result = function();
        file::count(self.thread, Count::Trims, 1);
        file::count(self.thread, Count::TrimNs, now_ns() - self.began_ns);
        std::mem::forget(self);
        WITHIN.set(false);
        result
    }

    fn lives(&self, block: *mut c_void, size: u64) {
        file::count(self.thread, Count::Bytes, size);
        file::note(self.thread, Distribution::Sizes, size);
        self.note(block, Block { size, born_ns: self.began_ns, thread: self.thread });
    }

    fn note(&self, address: *mut c_void, block: Block) {
        let Some(noted) = blocks::note(address as u64, block) else {
            file::add(Fact::Lost, 1);
            return;
        };
        if let Some(before) = noted.before {
            // It was freed by something that is not observed.
            file::subtract(Fact::LiveBytes, before.size);
            file::subtract(Fact::LiveBlocks, 1);
        }
        file::place(address as u64);
        file::count(self.thread, Count::SharedLines, u64::from(noted.shares_a_line));
        if noted.grown > 0 {
            file::add(Fact::OwnBytes, noted.grown as u64);
        }
        file::raise(Fact::PeakLiveBytes, file::add(Fact::LiveBytes, block.size) + block.size);
        file::raise(Fact::PeakLiveBlocks, file::add(Fact::LiveBlocks, 1) + 1);
    }

    fn dies(&self, address: *mut c_void) -> Option<Block> {
        let Some(dead) = blocks::forget(address as u64) else {
            file::count(self.thread, Count::UnknownFreed, 1);
            return None;
        };
        file::subtract(Fact::LiveBytes, dead.size);
        file::subtract(Fact::LiveBlocks, 1);
        file::count(self.thread, Count::OthersFreed, u64::from(dead.thread != self.thread));
        Some(dead)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        file::count(self.thread, Count::CallNs, self.call_ns);
        file::note(self.thread, Distribution::Calls, self.call_ns);
        if self.call_ns >= SLOW_NS {
            file::count(self.thread, Count::SlowCalls, 1);
            file::count(self.thread, Count::SlowNs, self.call_ns);
            memory::account();
        }
        // What is longer was no work: another thread had the lock, or the processor.
        let own_ns = (now_ns() - self.began_ns).saturating_sub(self.call_ns);
        file::count(self.thread, Count::OwnNs, own_ns.min(SLOW_NS));
        CALLS.set(CALLS.get() + 1);
        if CALLS.get().is_multiple_of(LOOK_AFTER) {
            memory::look();
        }
        WITHIN.set(false);
    }
}

/// Whether calls are observed, and this thread is within none.
pub fn is_beside() -> bool {
    // Relaxed: nothing that was prepared is used for it.
    STATE.load(Ordering::Relaxed) == ON && !WITHIN.get()
}

/// What the system has counted of this thread.
#[derive(Clone, Copy)]
struct Work {
    waits: i64,
    taken_away: i64,
    faults: i64,
}

impl Work {
    fn now() -> Self {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: valid for a write of its type; zeroed is a value of it, plain integers, where the call fails.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
            usage.assume_init()
        };
        Self { waits: usage.ru_nvcsw, taken_away: usage.ru_nivcsw, faults: usage.ru_minflt }
    }

    /// Why a call that began then took long: none of these where the allocator or the system worked.
    fn cause_since(self, then: Self) -> Option<Count> {
        if self.waits > then.waits {
            Some(Count::WaitNs)
        } else if self.taken_away > then.taken_away {
            Some(Count::TakenNs)
        } else if self.faults > then.faults {
            Some(Count::FaultNs)
        } else {
            None
        }
    }
}

/// Nanoseconds of the monotonic clock.
fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: valid for a write of its type. This clock is on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Opens the file, and lets calls be observed. None in all threads but one, as long as that lasts, and where there is no file.
#[cold]
fn prepare() -> Option<()> {
    // Acquire, on failure relaxed: whoever comes second does nothing with what the first prepares.
    STATE.compare_exchange(NEW, PREPARING, Ordering::Acquire, Ordering::Relaxed).ok()?;
    // SAFETY: errno is this thread's own; a malloc that succeeds leaves it alone.
    let errno = unsafe { *libc::__errno_location() };
    let there = file::open(u64::from(std::process::id()), now_ns());
    if there {
        file::add(Fact::ClockNs, clock_ns());
        // SAFETY: the handlers are functions that stay; a refusal, for want of memory, leaves forked children with their parent's file.
        unsafe {
            libc::pthread_atfork(Some(before_fork), Some(after_fork_in_parent), Some(after_fork_in_child))
        };
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    // Release: pairs with the acquire in `begin`; the file is there before anybody counts.
    STATE.store(if there { ON } else { OFF }, Ordering::Release);
    there.then_some(())
}

/// What a time of nothing is: the least of many.
fn clock_ns() -> u64 {
    let time = |_| {
        let before = now_ns();
        now_ns() - before
    };
    (0..1000).map(time).min().unwrap_or(0)
}

/// Where the process leaves by `exit`, or returns from `main`: the last look at its account.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

#[cfg(not(test))]
extern "C" fn at_exit() {
    memory::account();
}

extern "C" fn before_fork() {
    blocks::before_fork();
}

extern "C" fn after_fork_in_parent() {
    blocks::after_fork_in_parent();
}

extern "C" fn after_fork_in_child() {
    blocks::after_fork_in_child();
    if !file::open(u64::from(std::process::id()), now_ns()) {
        // Relaxed: the child has one thread. What it does would count as its parent's.
        STATE.store(OFF, Ordering::Relaxed);
    }
}
