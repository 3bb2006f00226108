//! The helper thread: looks around from time to time, so that memory comes back although the program does nothing.
//!
//! It is started when there is enough to give back, in a process that has several threads already (`AMPLE_BACKGROUND_THREAD`): a
//! program with one thread may rely on that (`setns`, `unshare`). While there is nothing to do it sleeps until it is called again.

use crate::allocator::Allocator;
use crate::options::Name;
use crate::os;
use crate::sync::{AtomicU32, Ordering};
use crate::tend::Found;

/// Milliseconds between two looks.
const PERIOD_MS: u64 = 250;

/// There is none.
const ABSENT: u32 = 0;
/// It looks around by itself.
const AWAKE: u32 = 1;
/// It sleeps until it is called.
const ASLEEP: u32 = 2;
/// There is none as long as the process has one thread.
const ALONE: u32 = 3;
/// The system refused one, or nobody wants one.
const REFUSED: u32 = 4;

/// See the module.
pub(crate) struct Helper {
    state: AtomicU32,
    /// Not 0: somebody wants to know how the heap stands.
    asked: AtomicU32,
}

impl Helper {
    /// A helper whose thread is not there yet.
    pub(crate) const fn new() -> Self {
        Self { state: AtomicU32::new(ABSENT), asked: AtomicU32::new(0) }
    }

    /// Sees to it that somebody looks around soon: a thread with this `body`. The caller is in no slow path, and holds no lock: a
    /// new thread allocates. `false`: a thread must be started, and `may_start` says that this is no time for it.
    #[cold]
    #[must_use]
    pub(crate) fn call(
        &self,
        allocator: &Allocator,
        body: os::Body,
        may_start: impl FnOnce() -> bool,
    ) -> bool {
        // Relaxed: the state stands for itself.
        match self.state.load(Ordering::Relaxed) {
            ABSENT if !may_start() => return false,
            ABSENT => {
                let without = match allocator.options.get(Name::BackgroundThread) {
                    // Relaxed: as above.
                    _ if self.asked.load(Ordering::Relaxed) != 0 => None,
                    0 => Some(REFUSED),
                    1 if !allocator.has_several_threads() && !os::has_several_threads() => Some(ALONE),
                    _ => None,
                };
                match without {
                    Some(state) => _ = self.turns(ABSENT, state),
                    None => self.start(body),
                }
            }
            ASLEEP => self.rouse(),
            _ => {}
        }
        true
    }

    /// Starts the thread, if there is none and the system grants one.
    pub(crate) fn start(&self, body: os::Body) {
        if self.turns(ABSENT, AWAKE) && !os::start_thread(body) {
            self.turns(AWAKE, REFUSED);
        }
    }

    /// Asks for a report of how the heap stands. A signal handler may call this.
    pub(crate) fn ask(&self) {
        // SeqCst: with the thread's falling asleep in `look_around`: either this is seen there, or that is seen in `turns`.
        self.asked.store(1, Ordering::SeqCst);
        self.company();
        self.rouse();
    }

    /// Wakes the thread if it sleeps until it is called.
    fn rouse(&self) {
        if self.turns(ASLEEP, AWAKE) {
            os::wake(&self.state, 1);
        }
    }

    fn turns(&self, from: u32, to: u32) -> bool {
        // SeqCst: for `ask`, with the store in `look_around`.
        self.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Whether the thread was started.
    #[cfg(test)]
    pub(crate) fn is_there(&self) -> bool {
        // Relaxed: as in `call`.
        matches!(self.state.load(Ordering::Relaxed), AWAKE | ASLEEP)
    }

    /// There is another thread.
    pub(crate) fn company(&self) {
        // Whatever the outcome, it is right: it changes from alone to absent only.
        let _ = self.turns(ALONE, ABSENT);
    }

    /// What the thread does again and again; `look` counts how often.
    pub(crate) fn look_around(&self, allocator: &Allocator, look: u32) {
        let wanted = allocator.options.is_on(Name::BackgroundThread);
        // Relaxed: a hint. Before the first wait: until now the program kept little.
        allocator.shared.tended.store(wanted.into(), Ordering::Relaxed);
        os::wait_for(&self.state, AWAKE, PERIOD_MS);
        // Relaxed: as in `ask`.
        if self.asked.swap(0, Ordering::Relaxed) != 0 {
            allocator.report(true);
        }
        if !wanted || allocator.tend(look) == Found::Nothing {
            // SeqCst: with `ask`. For what is free the locks order it: who takes one after the look below finds the
            // helper asleep, and wakes it; what was freed before is seen by the look.
            self.state.store(ASLEEP, Ordering::SeqCst);
            let called = wanted && allocator.is_called_for();
            // SeqCst: with `ask`.
            if called || self.asked.load(Ordering::SeqCst) != 0 {
                // Relaxed: as in `call`.
                self.state.store(AWAKE, Ordering::Relaxed);
            }
            // Relaxed: as in `call`.
            while self.state.load(Ordering::Relaxed) == ASLEEP {
                os::wait(&self.state, ASLEEP);
            }
        }
    }

    /// In the child of a fork, where there is none.
    pub(crate) fn lost(&self, allocator: &Allocator) {
        // Relaxed: the child has one thread.
        allocator.shared.tended.store(0, Ordering::Relaxed);
        // Relaxed: the child has one thread.
        if self.state.load(Ordering::Relaxed) != REFUSED {
            // Relaxed: as above.
            self.state.store(ABSENT, Ordering::Relaxed);
        }
    }
}
