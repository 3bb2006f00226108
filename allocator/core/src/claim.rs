//! Who may touch the cold part of a heap: its own thread, or, while that thread is elsewhere, whoever claims it.
//!
//! The thread enters and leaves on each of its slow paths, by plain stores and a load. The order between them is paid for by the
//! rare other side, with a barrier in every thread of the process (`membarrier`): D. Dice, H. Huang & M. Yang,
//! "Asymmetric Dekker Synchronization" (2001).
//!
//! ```text
//! thread: busy = 1;                          claimed = 0? go on.         1? busy = 0, sleep, try again
//! other:  claimed = 1; barrier everywhere;   busy = 0? the heap is ours. 1? claimed = 0, another time
//! ```

use crate::sync::{AtomicU32, Ordering, light_fence, wait, wake_all};

/// See the module.
pub(crate) struct Claim {
    /// Whether the heap's thread is inside.
    busy: AtomicU32,
    /// Whether another thread is inside, or is about to look whether it may be.
    claimed: AtomicU32,
}

impl Claim {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self { busy: AtomicU32::new(0), claimed: AtomicU32::new(0) }
    }

    /// Claimed for ever: nobody can go in.
    #[cfg(not(loom))]
    pub(crate) const fn never() -> Self {
        Self { busy: AtomicU32::new(0), claimed: AtomicU32::new(1) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self { busy: AtomicU32::new(0), claimed: AtomicU32::new(0) }
    }

    /// The heap's thread goes in, to be followed by [`Claim::leave`]; `false`: somebody else is inside.
    #[inline(always)]
    pub(crate) fn try_enter(&self) -> bool {
        // Relaxed: ordered against the load below by the fence, or by the other side's barrier.
        self.busy.store(1, Ordering::Relaxed);
        light_fence();
        // Acquire: pairs with the Release in `give_back`: what the other side did is seen.
        if self.claimed.load(Ordering::Acquire) == 0 {
            return true;
        }
        // Nothing was done inside.
        self.leave();
        false
    }

    /// The heap's thread goes in, to be followed by [`Claim::leave`]; sleeps while somebody else is inside.
    pub(crate) fn enter(&self) {
        while !self.try_enter() {
            wait(&self.claimed, 1);
        }
    }

    /// The heap's thread goes out.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        // Release: pairs with the Acquire in `take`: what the thread did is seen by whoever takes the heap.
        self.busy.store(0, Ordering::Release);
    }

    /// Another thread asks for the heap; one at a time may. To be followed by a barrier in every thread, then [`Claim::take`].
    pub(crate) fn ask(&self) {
        // Relaxed: ordered against the load in `take` by the barrier.
        self.claimed.store(1, Ordering::Relaxed);
    }

    /// Whether the heap is the caller's now; to be followed by [`Claim::give_back`] either way.
    pub(crate) fn take(&self) -> bool {
        // Acquire: pairs with the Release in `leave`.
        self.busy.load(Ordering::Acquire) == 0
    }

    /// The heap is its thread's again.
    pub(crate) fn give_back(&self) {
        // Release: pairs with the Acquire in `try_enter`.
        self.claimed.store(0, Ordering::Release);
        wake_all(&self.claimed);
    }
}
