//! Atomics and the lock. With `atomics`, the only file that knows whether `loom` is checking.

pub(crate) use crate::atomics::*;
#[cfg(not(loom))]
use crate::os;

/// The thread that is between the two ends of a `fork` and holds every lock; 0: none. Other libraries' fork handlers, which run
/// between ours, may allocate.
#[cfg(not(loom))]
static FORKER: AtomicUsize = AtomicUsize::new(0);

/// Says whether the calling thread, which holds every lock, is forking. Until it says otherwise it passes through all locks.
#[cfg(not(loom))]
pub(crate) fn set_forking(forking: bool) {
    // Relaxed: only the thread itself acts on its own id.
    FORKER.store(if forking { os::thread_id() } else { 0 }, Ordering::Relaxed);
}

/// Ends the process with a message. The thread may hold locks, and a handler of the signal that ends it may allocate: it passes through them.
#[cfg(not(loom))]
#[cold]
pub(crate) fn die(message: &str) -> ! {
    // (Tests go on, in threads that would be taken for this one.)
    #[cfg(not(test))]
    set_forking(true);
    os::die(message)
}

#[cfg(not(loom))]
fn is_forking() -> bool {
    // Relaxed: see `set_forking`.
    let forker = FORKER.load(Ordering::Relaxed);
    forker != 0 && forker == os::thread_id()
}

#[cfg(loom)]
fn is_forking() -> bool {
    false
}

/// Nobody holds the lock.
const FREE: u32 = 0;
/// Somebody holds the lock, nobody waits.
const HELD: u32 = 1;
/// Somebody holds the lock, and somebody may sleep until it is free.
const CONTENDED: u32 = 2;

/// A mutual-exclusion lock of one word, whose waiters sleep in the kernel: the third mutex of
/// U. Drepper, "Futexes Are Tricky" (2011). Critical sections here last about a microsecond, so a waiter
/// looks many times before it sleeps. (Each time it may find that another one was faster: of sixteen that wait at a time all but one would else go to sleep
/// whenever the lock becomes free, and to wake each costs more than what it waits for.)
pub(crate) struct RawLock(AtomicU32);

impl RawLock {
    /// How often a waiter looks before it sleeps, and after it was woken before it sleeps again.
    const LOOKS: u32 = if cfg!(loom) { 1 } else { 200 };

    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Returns once the calling thread holds the lock. `false`: it held it before, as the thread that is forking,
    /// and must not release it for this call.
    #[inline]
    pub(crate) fn acquire(&self) -> bool {
        // Acquire: pairs with the Release in `release`. Relaxed: a failed attempt reads nothing guarded.
        if self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return true;
        }
        self.acquire_contended()
    }

    /// Whether the lock was free; then the calling thread holds it.
    pub(crate) fn try_acquire(&self) -> bool {
        // Acquire, Relaxed: as in `acquire`.
        self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Whether somebody holds the lock, at the moment: a hint.
    pub(crate) fn is_held(&self) -> bool {
        // Relaxed: a hint.
        self.0.load(Ordering::Relaxed) != FREE
    }

    #[cold]
    fn acquire_contended(&self) -> bool {
        if is_forking() {
            return false;
        }
        // What the word becomes: who has slept does not know whether others still do.
        let mut taken = HELD;
        loop {
            for _ in 0..Self::LOOKS {
                // Relaxed: only a hint that the exchange may succeed.
                if self.0.load(Ordering::Relaxed) == FREE
                    // Acquire: pairs with the Release in `release`. Relaxed: a failed attempt reads nothing guarded.
                    && self.0.compare_exchange(FREE, taken, Ordering::Acquire, Ordering::Relaxed).is_ok()
                {
                    return true;
                }
                spin_hint();
            }
            // Acquire: as above.
            if self.0.swap(CONTENDED, Ordering::Acquire) == FREE {
                return true;
            }
            wait(&self.0, CONTENDED);
            taken = CONTENDED;
        }
    }

    /// Gives the lock up. Only the holder may call it (or, after `fork`, the child on behalf of the thread that
    /// took all locks before).
    #[inline]
    pub(crate) fn release(&self) {
        // Release: pairs with the Acquire in `acquire` and `acquire_contended`.
        if self.0.swap(FREE, Ordering::Release) == CONTENDED {
            wake_one(&self.0);
        }
    }
}

#[cfg(not(loom))]
fn spin_hint() {
    core::hint::spin_loop();
}

#[cfg(loom)]
fn spin_hint() {
    loom::thread::yield_now();
}

/// Keeps the compiler from moving accesses over it. The processor's own order is the other side's business:
/// `os::barrier_everywhere`.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn light_fence() {
    // SeqCst: the strongest; it costs no instruction.
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// In the model, where there is no barrier that reaches other threads, both sides pay.
#[cfg(loom)]
pub(crate) fn light_fence() {
    // SeqCst: pairs with the same fence of the other side.
    loom::sync::atomic::fence(Ordering::SeqCst);
}

#[cfg(not(loom))]
pub(crate) fn wait(word: &AtomicU32, expected: u32) {
    os::wait(word, expected);
}

#[cfg(loom)]
loom::lazy_static! {
    /// The model's kernel: it looks at the word and puts the caller to sleep in one step, as a futex does. All words share one queue,
    /// which models use for one lock only.
    static ref KERNEL: (loom::sync::Mutex<()>, loom::sync::Condvar) =
        (loom::sync::Mutex::new(()), loom::sync::Condvar::new());
}

#[cfg(loom)]
pub(crate) fn wait(word: &AtomicU32, expected: u32) {
    let asleep = KERNEL.0.lock().expect("no panic");
    // Relaxed: the caller's own swap orders; as the kernel does.
    if word.load(Ordering::Relaxed) == expected {
        drop(KERNEL.1.wait(asleep).expect("no panic"));
    }
}

#[cfg(not(loom))]
#[cold]
#[inline(never)]
fn wake_one(word: &AtomicU32) {
    os::wake(word, 1);
}

/// Wakes everybody who sleeps on the word.
#[cfg(not(loom))]
pub(crate) fn wake_all(word: &AtomicU32) {
    os::wake(word, u32::MAX >> 1);
}

#[cfg(loom)]
pub(crate) fn wake_all(_: &AtomicU32) {
    let _awake = KERNEL.0.lock().expect("no panic");
    KERNEL.1.notify_all();
}

#[cfg(loom)]
fn wake_one(_: &AtomicU32) {
    let _awake = KERNEL.0.lock().expect("no panic");
    KERNEL.1.notify_one();
}

#[cfg(not(loom))]
pub(crate) use guarded::{Guard, Lock};

/// A value on cache lines of its own: who writes to it does not slow down who reads what lies beside it.
#[cfg(not(loom))]
#[repr(align(64))]
pub(crate) struct OwnLine<T>(pub(crate) T);

#[cfg(not(loom))]
impl<T> core::ops::Deref for OwnLine<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(not(loom))]
mod guarded {
    use core::cell::UnsafeCell;
    use core::mem::offset_of;
    use core::ops::{Deref, DerefMut};

    use super::RawLock;

    /// A value that only the holder of its lock can reach.
    pub(crate) struct Lock<T> {
        raw: RawLock,
        value: UnsafeCell<T>,
    }

    // SAFETY: the lock lets one thread at a time reach the value, so sending the value is all that is needed.
    unsafe impl<T: Send> Sync for Lock<T> {}

    impl<T> Lock<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self { raw: RawLock::new(), value: UnsafeCell::new(value) }
        }

        /// How far behind the lock's address its value lies.
        pub(crate) const fn inside() -> usize {
            offset_of!(Self, value)
        }

        #[inline]
        pub(crate) fn lock(&self) -> Guard<'_, T> {
            Guard { releases: self.raw.acquire(), lock: self }
        }

        /// Access if nobody has it, without waiting.
        #[inline]
        pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
            self.raw.try_acquire().then(|| Guard { releases: true, lock: self })
        }

        /// The lock without its value: for `fork`, which takes every lock and gives them back in parent and child.
        pub(crate) fn raw(&self) -> &RawLock {
            &self.raw
        }
    }

    /// Access to a [`Lock`]'s value until dropped.
    pub(crate) struct Guard<'a, T> {
        lock: &'a Lock<T>,
        /// Whether the lock was taken for this guard.
        releases: bool,
    }

    impl<T> Deref for Guard<'_, T> {
        type Target = T;
        #[inline]
        fn deref(&self) -> &T {
            // SAFETY: a guard exists only while its thread holds the lock.
            unsafe { &*self.lock.value.get() }
        }
    }

    impl<T> DerefMut for Guard<'_, T> {
        #[inline]
        fn deref_mut(&mut self) -> &mut T {
            // SAFETY: a guard exists only while its thread holds the lock, and is borrowed mutably here.
            unsafe { &mut *self.lock.value.get() }
        }
    }

    impl<T> Drop for Guard<'_, T> {
        #[inline(never)]
        fn drop(&mut self) {
            if self.releases {
                self.lock.raw.release();
            }
        }
    }
}
