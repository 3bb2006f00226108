//! The allocator that serves the process: the static value, the calling thread's heap, and the thread's end.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::ops::Deref;
use core::ptr::{self, NonNull};

use crate::allocator::Allocator;
use crate::fork;
use crate::growing::may_become_large;
use crate::heap::{FRESH, Heap, Place};
use crate::helper::Next;
use crate::interface::{keeps_place, small_size, to_resize};
use crate::large::{self, Foreign, KEPT_MAX};
use crate::options::Name;
use crate::os;
use crate::process::{HELPER, PROCESS};
use crate::size_class::{
    NEAR_MAX, PAIRS_MAX, QUANTUM, SMALL_MAX, far_aligned_class, far_class, is_near_aligned,
};
use crate::statistics::Statistics;
use crate::sync::{AtomicU32, Ordering};
use crate::thread_local;
use crate::thresholds::Parameter;
use crate::units::Entry;

/// The key whose destructor takes a thread's heap back, plus one; 0 until it is there.
static KEY: AtomicU32 = AtomicU32::new(0);

/// The calling thread's heap, on a slow path: while this exists, nobody else touches it.
struct Current(&'static Heap);

impl Current {
    #[inline(always)]
    fn enter() -> Self {
        let heap = thread_local::heap();
        if heap.claim.try_enter() { Self(heap) } else { Self::enter_otherwise(heap) }
    }

    /// As [`Current::enter`], but for a thread that has no heap and `may_attach` none: it frees without one.
    #[inline(always)]
    fn enter_to_free(may_attach: impl FnOnce() -> bool) -> Self {
        let heap = thread_local::heap();
        if heap.claim.try_enter() {
            return Self(heap);
        }
        let stays_without = ptr::eq(heap, FRESH.heap()) && !may_attach();
        Self::enter_otherwise(if stays_without { ended() } else { heap })
    }

    /// Attaches a heap at the thread's first call, or waits for whoever touches the heap.
    #[cold]
    fn enter_otherwise(heap: &'static Heap) -> Self {
        let heap = if ptr::eq(heap, FRESH.heap()) { attach() } else { heap };
        heap.claim.enter();
        Self(heap)
    }
}

impl Deref for Current {
    type Target = Heap;
    #[inline(always)]
    fn deref(&self) -> &Heap {
        self.0
    }
}

impl Drop for Current {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.claim.leave();
    }
}

#[cold]
fn attach() -> &'static Heap {
    PROCESS.options.read_environment();
    let Some(heap) = PROCESS.attach() else { return ended() };
    // In this order: registering may allocate, which then finds the heap.
    thread_local::set_heap(heap);
    fork::watch();
    HELPER.company();
    if let Some(key) = key() {
        // SAFETY: the key exists; glibc keeps the values of early keys in the thread's own record.
        unsafe { libc::pthread_setspecific(key, ptr::from_ref(heap).cast()) };
    }
    heap
}

/// Memory for [`ended`].
struct Ended(UnsafeCell<MaybeUninit<Heap>>);
// SAFETY: written once, by `ended`, before anybody else knows of it.
unsafe impl Sync for Ended {}

/// The heap of a thread that has given its own back, or could not get one: every call takes the slow path.
fn ended() -> &'static Heap {
    static ENDED: Ended = Ended(UnsafeCell::new(MaybeUninit::zeroed()));
    static IS_MADE: AtomicU32 = AtomicU32::new(0);
    let memory = NonNull::from(&ENDED.0).cast::<Heap>();
    // One at a time, and none while the process forks.
    let registry = PROCESS.registry.lock();
    // Relaxed, twice: guarded by that lock.
    if IS_MADE.load(Ordering::Relaxed) == 0 {
        Heap::write_to(memory);
        IS_MADE.store(1, Ordering::Relaxed);
    }
    drop(registry);
    // SAFETY: a heap has been made of it, which nobody writes to but for its claim.
    unsafe { memory.as_ref() }
}

/// The key whose destructor is [`thread_ends`].
fn key() -> Option<libc::pthread_key_t> {
    // Relaxed: a key is a number; nothing else is published with it.
    let known = KEY.load(Ordering::Relaxed);
    if known != 0 {
        return Some(known - 1);
    }
    let mut key = 0;
    // SAFETY: `key` is ours to write.
    if unsafe { libc::pthread_key_create(&mut key, Some(thread_ends)) } != 0 {
        return None;
    }
    // Relaxed: as above.
    match KEY.compare_exchange(0, key + 1, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => Some(key),
        Err(other) => {
            // SAFETY: another thread was first; nobody has used this key.
            unsafe { libc::pthread_key_delete(key) };
            Some(other - 1)
        }
    }
}

/// Runs when a thread that used malloc ends. Destructors that run later still allocate and free: without a heap.
///
/// `heap` is the thread's own, or that of a thread before it on the same stack, which used malloc for the first time after all destructors: glibc
/// leaves the values of such a thread to the next one, which may never use malloc. (A thread that uses malloc for the first time in the last round of
/// destructors, the fourth, loses its heap: glibc forgets the values after that one.)
extern "C" fn thread_ends(heap: *mut c_void) {
    thread_local::set_heap(ended());
    // SAFETY: heaps are never unmapped. Their threads have ended, or this one's slot names another one now; and each value is seen once.
    unsafe { PROCESS.detach(&*heap.cast::<Heap>()) };
    HELPER.company_ends(&PROCESS);
}

/// The helper thread.
extern "C" fn help(_: *mut c_void) -> *mut c_void {
    os::settle_thread(c"ample-helper");
    let mut look: u32 = 1;
    while HELPER.look_around(&PROCESS, look) == Next::Look {
        look = look.wrapping_add(1);
    }
    ptr::null_mut()
}

/// Somebody wants to know how the heap stands. The rest is the helper's: a handler may do next to nothing.
extern "C" fn signalled(_: c_int) {
    // Relaxed: a hint, as for whoever frees.
    PROCESS.shared.calls.store(1, Ordering::Relaxed);
    HELPER.ask();
}

/// Reserves the tables that tell our blocks from foreign ones. Runs when the library is loaded, so that a foreign
/// block may be freed before anything was allocated; without it, the first allocation does so.
pub fn prepare() {
    let meta = PROCESS.meta.lock();
    // A failure shows itself at the first allocation, as 'no memory'.
    PROCESS.units.establish();
    drop(meta);
    // While there is one thread: another's first allocation may be under way when this one forks, whose own first allocation that is not (musl's
    // `pthread_create` allocates nothing).
    fork::watch();
    HELPER.know_first();
    if let Some(turn) = PROCESS.eager.turn() {
        turn.know_birth(os::now_ms());
    }
    if PROCESS.options.read_environment()
        && let heap = thread_local::heap()
        && heap.arena().is_some()
    {
        PROCESS.apply_options(&Current::enter());
        // What the fast paths look at may have changed.
        thread_local::set_heap(heap);
    }
    let signal = PROCESS.options.get(Name::StatsSignal);
    if signal != 0 {
        if os::on_signal(signal as c_int, signalled) {
            HELPER.start(help);
        } else {
            os::tell(&[b"ample: AMPLE_STATS_SIGNAL is ignored: the system lets nobody catch that signal\n"]);
        }
    }
}

/// Whether libraries that are opened with `RTLD_DEEPBIND` are to see the C library's malloc.
pub fn keeps_deepbind() -> bool {
    PROCESS.options.is_on(Name::DeepBind)
}

/// The fast path of malloc up to 1 KiB: a block of at least `size` bytes, aligned to 16, or null: then [`malloc_far`] must
/// be asked. They are apart so that a caller can make the next one its last act, and needs no stack frame.
#[inline(always)]
pub fn malloc_near(size: usize) -> *mut u8 {
    thread_local::near_place(size).map_or(ptr::null_mut(), Place::pop)
}

/// The fast path of malloc from 1 KiB on; null: [`malloc_kept`] must be asked.
#[inline(always)]
pub fn malloc_far(size: usize) -> *mut u8 {
    if size.wrapping_sub(1) < NEAR_MAX {
        return ptr::null_mut();
    }
    far_class(size).map_or(ptr::null_mut(), |class| thread_local::place(class).pop())
}

/// The fast path of malloc of large blocks, those that this thread freed lately; null: [`malloc_slow`] must be asked.
#[inline(always)]
pub fn malloc_kept(size: usize) -> *mut u8 {
    if size <= SMALL_MAX || size > KEPT_MAX {
        return ptr::null_mut();
    }
    let heap = thread_local::heap();
    if !heap.claim.try_enter() {
        return ptr::null_mut();
    }
    let run = Allocator::take_kept(heap, size);
    heap.claim.leave();
    // It is the caller's now.
    run.map_or(ptr::null_mut(), |run| large::in_kept(run, size, QUANTUM).as_ptr())
}

/// The whole of malloc: a block of at least `size` bytes, aligned to 16; null: no memory.
#[inline(never)]
pub fn malloc_slow(size: usize) -> *mut u8 {
    PROCESS.allocate(&Current::enter(), size)
}

/// What [`free_fast`] did with a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fast {
    /// It is taken back, and its content stays what it is until this thread's next call.
    Taken,
    /// It is another thread's: [`free_remote`] must be asked.
    Remote,
    /// There is no room in its magazine, it is large, not ours, or NULL: [`free_full`] must be asked.
    Full,
}

/// The fast path of free.
///
/// # Safety
/// `block` is NULL, foreign, or a live block that nobody uses any more.
#[inline(always)]
pub unsafe fn free_fast(block: *mut u8) -> Fast {
    // SAFETY: the caller's contract.
    let entry = unsafe { PROCESS.units.entry(block.addr()) };
    match thread_local::own_place(entry).map(|place| place.push(block)) {
        Some(true) => Fast::Taken,
        Some(false) => Fast::Full,
        None => Fast::Remote,
    }
}

/// A block that neither [`free_remote`] nor [`free_full`] could take back: what its unit says of it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Unusual(Entry);

/// The fast path for another thread's block. An error: there is no room, and [`free_slow`] must be asked.
///
/// # Safety
/// As for [`free_fast`]; that said [`Fast::Remote`].
#[inline(always)]
pub unsafe fn free_remote(block: *mut u8) -> Result<(), Unusual> {
    // SAFETY: the caller's contract.
    let entry = unsafe { PROCESS.units.entry(block.addr()) };
    if thread_local::heap().push_foreign(entry, block) { Ok(()) } else { Err(Unusual(entry)) }
}

/// The fast path for NULL, of which some programs free several for each block (OpenSSL), and for a large block. An error: [`free_slow`] must be asked.
///
/// # Safety
/// As for [`free_fast`]; that said [`Fast::Full`].
#[inline(always)]
pub unsafe fn free_full(block: *mut u8) -> Result<(), Unusual> {
    if block.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's contract.
    let entry = unsafe { PROCESS.units.entry(block.addr()) };
    let heap = thread_local::heap();
    if let Some(units) = Allocator::keepable(entry)
        && heap.claim.try_enter()
    {
        let kept = PROCESS.keep_large(heap, block, units);
        heap.claim.leave();
        if kept {
            return Ok(());
        }
    }
    Err(Unusual(entry))
}

/// Takes back what neither [`free_remote`] nor [`free_full`] could. Calls the helper thread if there is something for it to do. `may_start` says
/// whether a thread may be started, and whether this one may get a heap if it has none: the caller of free must hold no lock that `pthread_create` takes, and
/// run no later than the thread's destructors. The C library frees while it holds such a lock (see `caller.rs` in `ample-abi`). If it says no, the next call of free is asked.
///
/// # Safety
/// As for [`free_fast`]; `unusual` is what was said of this block.
#[inline]
pub unsafe fn free_slow(
    block: *mut u8,
    Unusual(entry): Unusual,
    may_start: impl Fn() -> bool,
) -> Result<(), Foreign> {
    let current = Current::enter_to_free(&may_start);
    // SAFETY: the caller's contract.
    let result = unsafe { PROCESS.free_unusual(&current, block, entry) };
    drop(current);
    heed_calls(may_start);
    result
}

/// Calls the helper thread if there is something for it to do.
#[inline(always)]
fn heed_calls(may_start: impl Fn() -> bool) {
    let calls = &PROCESS.shared.calls;
    // Relaxed: a hint; the next one sees it.
    if calls.load(Ordering::Relaxed) != 0 {
        // Acquire: with the release of whoever wrote it under the page heap's lock or an arena's, which the helper had before it fell asleep, if it did: this
        // thread sees it asleep then, too. Before the helper is called: what calls it from now on does so anew.
        let called = calls.swap(0, Ordering::Acquire) != 0;
        if called && !HELPER.call(&PROCESS, help, may_start) {
            // Release: as for whoever wrote it.
            calls.store(1, Ordering::Release);
        }
    }
}

/// The whole of free, but that no thread is started.
///
/// # Safety
/// As for [`free_fast`].
#[inline(always)]
unsafe fn free(block: *mut u8) -> Result<(), Foreign> {
    // SAFETY: the caller's contract.
    unsafe {
        let taken = match free_fast(block) {
            Fast::Taken => Ok(()),
            Fast::Remote => free_remote(block),
            Fast::Full => free_full(block),
        };
        taken.or_else(|unusual| free_slow(block, unusual, || false))
    }
}

/// The fast path of [`malloc_aligned`] up to 1 KiB; null: [`malloc_aligned_far`] must be asked, also about an `align` that is no power of two.
#[inline(always)]
pub fn malloc_aligned_near(size: usize, align: usize) -> *mut u8 {
    if !is_near_aligned(size, align) || align & align.wrapping_sub(1) != 0 {
        return ptr::null_mut();
    }
    // As `class_of_aligned`; 0, which is near no class, for a size or an alignment of 0, and where the sum is too large for a word.
    malloc_near((size + align).wrapping_sub(1) & align.wrapping_neg())
}

/// See [`Allocator::allocate_aligned`].
#[inline(always)]
pub fn malloc_aligned(size: usize, align: usize) -> *mut u8 {
    let near = malloc_aligned_near(size, align);
    if near.is_null() { malloc_aligned_far(size, align) } else { near }
}

/// What remains of [`malloc_aligned`]; quick for blocks that are not near.
#[inline(always)]
pub fn malloc_aligned_far(size: usize, align: usize) -> *mut u8 {
    let class = if size > PAIRS_MAX { far_aligned_class(size, align) } else { None };
    // What lies in magazines came from spans: it is aligned as blocks of its class are.
    let block = class.map_or(ptr::null_mut(), |class| thread_local::place(class).pop());
    if block.is_null() { malloc_aligned_slow(size, align) } else { block }
}

#[cold]
#[inline(never)]
fn malloc_aligned_slow(size: usize, align: usize) -> *mut u8 {
    PROCESS.allocate_aligned(&Current::enter(), size, align)
}

/// See [`Allocator::allocate_shared`].
pub fn malloc_shared(size: usize) -> *mut u8 {
    PROCESS.allocate_shared(&Current::enter(), size)
}

/// See [`Allocator::allocate_zeroed`].
pub fn malloc_zeroed(size: usize, align: usize) -> *mut u8 {
    if size > SMALL_MAX {
        return PROCESS.allocate_zeroed(&Current::enter(), size, align);
    }
    let block = malloc_aligned(size, align);
    if !block.is_null() {
        // SAFETY: a fresh block of at least `size` bytes.
        unsafe { block.write_bytes(0, size) };
    }
    block
}

/// See [`Allocator::reallocate`].
///
/// # Safety
/// See there.
#[inline(always)]
pub unsafe fn realloc(block: *mut u8, size: usize, align: usize) -> Result<*mut u8, Foreign> {
    // SAFETY: the caller's contract.
    match small_size(unsafe { PROCESS.units.entry(block.addr()) }) {
        Some(old_size) if keeps_place(old_size, size) => Ok(block),
        Some(old_size) if size <= SMALL_MAX && !may_become_large(old_size, size) => {
            let (room, count) = to_resize(old_size, size);
            let new = malloc_aligned(room, align);
            if !new.is_null() {
                // SAFETY: both blocks are live and distinct, and at least that long.
                unsafe { ptr::copy_nonoverlapping(block, new, count) };
                // SAFETY: the caller gives the block up.
                unsafe { free(block) }?;
            }
            Ok(new)
        }
        // SAFETY: the caller's contract.
        _ => unsafe { realloc_slow(block, size, align) },
    }
}

/// The whole of realloc. A helper thread that is there is called if there is something for it to do; none is started: see [`free_slow`].
///
/// # Safety
/// As for [`realloc`].
#[inline(never)]
pub unsafe fn realloc_slow(block: *mut u8, size: usize, align: usize) -> Result<*mut u8, Foreign> {
    // SAFETY: the caller's contract.
    let result = unsafe { PROCESS.reallocate(&Current::enter(), block, size, align) };
    heed_calls(|| false);
    result
}

/// Reports how the heap stands if the options ask for it. Runs when the process ends.
pub fn finish() {
    if PROCESS.options.is_on(Name::ShowStats) {
        PROCESS.print();
    }
    PROCESS.report(false);
}

/// Prints how the heap stands to standard error.
pub fn print_statistics() {
    PROCESS.print();
}

/// Sets one of glibc's parameters, which ends what is decided by itself otherwise: see `thresholds`.
pub fn set_parameter(parameter: Parameter, value: usize) {
    PROCESS.options.read_environment();
    PROCESS.options.thresholds.set(parameter, value);
}

/// See [`Allocator::statistics`].
pub fn statistics() -> Statistics {
    PROCESS.statistics()
}

/// See [`Allocator::trim_at_pace`].
pub fn trim_at_pace() -> bool {
    PROCESS.trim_at_pace(&Current::enter())
}

/// See [`Allocator::trim`].
pub fn trim() -> bool {
    PROCESS.trim(&Current::enter())
}

/// The fast path of malloc_usable_size; `None`: [`usable_size`] must be asked.
///
/// # Safety
/// `block` is NULL, foreign, or a live block.
#[inline(always)]
pub unsafe fn usable_size_small(block: *mut u8) -> Option<usize> {
    // SAFETY: the caller's contract.
    small_size(unsafe { PROCESS.units.entry(block.addr()) })
}

/// See [`Allocator::usable_size`].
///
/// # Safety
/// See there.
#[inline]
pub unsafe fn usable_size(block: *mut u8) -> Result<usize, Foreign> {
    // SAFETY: the caller's contract.
    unsafe { PROCESS.usable_size(block) }
}
