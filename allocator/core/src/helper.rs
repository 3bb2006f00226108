//! The helper thread: it looks around from time to time, so that memory comes back although the program does nothing.
//!
//! It is started when there is enough to give back, and only in a process that has several threads already (`AMPLE_BACKGROUND_THREAD`): a
//! program with one thread may rely on having just one (`setns`, `unshare`). While there is nothing to do it sleeps until it is called again; if the program
//! has come down to one thread by then, it ends. A process whose first thread has left (`pthread_exit`) ends with its last thread: there the helper
//! goes on looking around until it is itself the last.

use crate::allocator::Allocator;
use crate::options::Name;
use crate::os;
use crate::sync::{AtomicU32, AtomicUsize, Ordering};
use crate::tend::Found;

/// Milliseconds between two looks, and between two attempts to start it.
const PERIOD_MS: u64 = 250;

/// There is none.
const ABSENT: u32 = 0;
/// It looks around by itself.
const AWAKE: u32 = 1;
/// It sleeps until it is called.
const ASLEEP: u32 = 2;
/// There is none for now: the process has one thread, or the system refused one.
const PUT_OFF: u32 = 3;
/// Nobody wants one.
const UNWANTED: u32 = 4;
/// It is to end at once.
const DISMISSED: u32 = 5;
/// Milliseconds that a fork waits for its end, at most.
const LEAVE_MS: u32 = 20;

/// See the module.
pub(crate) struct Helper {
    state: AtomicU32,
    /// Not 0: somebody wants to know how the heap stands.
    asked: AtomicU32,
    /// When it was put off, in milliseconds, in what a word holds of them.
    put_off_ms: AtomicUsize,
    /// The process's first thread as `os::thread_id` tells it; 0: not known.
    first: AtomicUsize,
    /// Not 0: the process's first thread has ended.
    is_left: AtomicU32,
}

/// What becomes of the helper's thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    Look,
    End,
}

impl Helper {
    /// A helper whose thread is not there yet.
    pub(crate) const fn new() -> Self {
        Self {
            state: AtomicU32::new(ABSENT),
            asked: AtomicU32::new(0),
            put_off_ms: AtomicUsize::new(0),
            first: AtomicUsize::new(0),
            is_left: AtomicU32::new(0),
        }
    }

    /// Sees to it that somebody looks around soon: a thread with this `body`. The caller is in no slow path, and holds no lock: a
    /// new thread allocates. `false`: to be called again, since a thread must be started, and `may_start` says that this is no time for it, or since there is
    /// more to give back where there is no such thread.
    #[cold]
    #[must_use]
    pub(crate) fn call(&self, allocator: &Allocator, body: os::Body, may_start: impl Fn() -> bool) -> bool {
        // Relaxed: the state stands for itself.
        let state = self.state.load(Ordering::Relaxed);
        match state {
            PUT_OFF if !self.is_due() => return allocator.give_back_eagerly(),
            ABSENT | PUT_OFF if !may_start() => return false,
            ABSENT | PUT_OFF => match allocator.options.get(Name::BackgroundThread) {
                // Relaxed: as above.
                _ if self.asked.load(Ordering::Relaxed) != 0 => self.start(body),
                0 => _ = self.turns(state, UNWANTED),
                // Costs nothing to ask again.
                1 if os::never_had_threads() => return allocator.give_back_eagerly(),
                1 if !has_several_threads(allocator) => self.put_off(state),
                _ => self.start(body),
            },
            ASLEEP => self.rouse(),
            UNWANTED => return allocator.give_back_eagerly(),
            _ => {}
        }
        true
    }

    /// Starts the thread, if there is none and the system grants one.
    pub(crate) fn start(&self, body: os::Body) {
        let starts = self.turns(ABSENT, AWAKE) || self.turns(PUT_OFF, AWAKE);
        if starts && !os::start_thread(body) {
            self.put_off(AWAKE);
        }
    }

    /// There is none for now: the next attempt comes later.
    fn put_off(&self, from: u32) {
        // Relaxed: who reads another time asks earlier, or later.
        self.put_off_ms.store(os::now_ms() as usize, Ordering::Relaxed);
        self.turns(from, PUT_OFF);
    }

    /// Whether it was put off long ago.
    fn is_due(&self) -> bool {
        // Relaxed: as above.
        let since = self.put_off_ms.load(Ordering::Relaxed);
        (os::now_ms() as usize).wrapping_sub(since) >= PERIOD_MS as usize
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
        // SeqCst: for `ask` and `company_ends`, with the stores in `look_around`.
        self.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Whether the thread was started, and is to stay.
    pub(crate) fn is_there(&self) -> bool {
        // Relaxed: as in `call`.
        matches!(self.state.load(Ordering::Relaxed), AWAKE | ASLEEP)
    }

    /// There is another thread.
    pub(crate) fn company(&self) {
        // Whatever the outcome, it is right: it may be tried again at once.
        let _ = self.turns(PUT_OFF, ABSENT);
    }

    /// The calling thread is the process's first one. Before there are others.
    pub(crate) fn know_first(&self) {
        // Relaxed: the thread asks for its own.
        self.first.store(os::thread_id(), Ordering::Relaxed);
    }

    /// The calling thread ends, and has no heap any more. With the last one but one the helper ends, too. And if it is the process's first one, the
    /// process ends with its last thread, which must not be the helper.
    pub(crate) fn company_ends(&self, allocator: &Allocator) {
        // Relaxed: as in `know_first`.
        let is_first = self.first.load(Ordering::Relaxed) == os::thread_id();
        if is_first {
            // SeqCst: with the thread's falling asleep in `look_around`: either this is seen there, or that is seen in `turns`.
            self.is_left.store(1, Ordering::SeqCst);
        }
        if is_first || !allocator.has_several_threads() {
            self.rouse();
        }
    }

    /// What the thread does again and again; `look` counts how often.
    pub(crate) fn look_around(&self, allocator: &Allocator, look: u32) -> Next {
        let wanted = allocator.options.is_on(Name::BackgroundThread);
        // Relaxed: a hint. Before the first wait: until now the program kept little.
        allocator.shared.tended.store(wanted.into(), Ordering::Relaxed);
        os::wait_for(&self.state, AWAKE, PERIOD_MS);
        // Relaxed: as in `call`.
        if self.state.load(Ordering::Relaxed) == DISMISSED {
            return self.end(allocator);
        }
        // Relaxed: as in `ask`.
        if self.asked.swap(0, Ordering::Relaxed) != 0 {
            allocator.report(true);
        }
        let works = wanted && allocator.tend(look) == Found::Work;
        // A program of one thread that goes on for ever would keep it.
        let needed = works && allocator.has_several_threads() || wanted && allocator.is_called_for();
        if !needed && self.may_end(allocator) {
            return self.end(allocator);
        }
        // SeqCst, in `turns`: with `ask` and `company_ends`. For what is free the locks order it: who takes one after the look below finds the
        // helper asleep, and wakes it; what was freed before is seen by the look. It falls asleep unless it was dismissed.
        if works || !self.turns(AWAKE, ASLEEP) {
            return Next::Look;
        }
        let called = wanted && allocator.is_called_for();
        // SeqCst, twice: with `ask` and `company_ends`.
        if called || self.asked.load(Ordering::SeqCst) != 0 || self.is_left.load(Ordering::SeqCst) != 0 {
            self.turns(ASLEEP, AWAKE);
        }
        // Relaxed: as in `call`.
        while self.state.load(Ordering::Relaxed) == ASLEEP {
            os::wait(&self.state, ASLEEP);
        }
        Next::Look
    }

    fn end(&self, allocator: &Allocator) -> Next {
        // Relaxed: a hint.
        allocator.shared.tended.store(0, Ordering::Relaxed);
        // SeqCst: with `turns`.
        self.state.store(ABSENT, Ordering::SeqCst);
        // Whoever waits in `make_way`.
        os::wake(&self.state, 1);
        Next::End
    }

    /// Before the calling thread forks, and before it takes any lock: beside it alone the helper ends, if it may. The parent of a fork looks how many threads it
    /// has (CPython 3.12 warns of several). It comes again when it is called. In vain where the helper is busy for long: the fork does not wait for that.
    pub(crate) fn make_way(&self, allocator: &Allocator) {
        if !self.is_there() || allocator.has_several_threads() || !self.may_end(allocator) {
            return;
        }
        if !self.turns(AWAKE, DISMISSED) && !self.turns(ASLEEP, DISMISSED) {
            return;
        }
        os::wake(&self.state, 1);
        for _ in 0..LEAVE_MS {
            // Relaxed: as in `call`. It says that it ends, and is gone a moment later.
            os::wait_for(&self.state, self.state.load(Ordering::Relaxed), 1);
            if os::threads() == Some(1) {
                break;
            }
        }
    }

    /// Whether the program has no more than one thread beside this one, or only what is left of its first one, and nobody wants the helper then.
    fn may_end(&self, allocator: &Allocator) -> bool {
        let options = &allocator.options;
        let stays = options.get(Name::BackgroundThread) > 1 || options.get(Name::StatsSignal) != 0;
        // Relaxed: who sees it late comes back here.
        (!stays || self.is_left.load(Ordering::Relaxed) != 0)
            && os::threads().is_some_and(|threads| threads <= 2)
    }

    /// In the child of a fork, where there is none, and whose first thread is the calling one.
    pub(crate) fn lost(&self, allocator: &Allocator) {
        self.know_first();
        // Relaxed: the child has one thread.
        self.is_left.store(0, Ordering::Relaxed);
        // Relaxed: as above.
        allocator.shared.tended.store(0, Ordering::Relaxed);
        // Relaxed: as above.
        if self.state.load(Ordering::Relaxed) != UNWANTED {
            // Relaxed: as above.
            self.state.store(ABSENT, Ordering::Relaxed);
        }
    }
}

/// Whether the process has several threads, the helper not among them. Where the system does not tell: of those that have heaps.
fn has_several_threads(allocator: &Allocator) -> bool {
    os::threads().map_or_else(|| allocator.has_several_threads(), |threads| threads > 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocator::Tables;

    extern "C" fn no_body(nothing: *mut core::ffi::c_void) -> *mut core::ffi::c_void {
        nothing
    }

    fn allocator() -> &'static Allocator {
        Box::leak(Box::new(Allocator::new(Box::leak(Box::new(Tables::new())))))
    }

    /// Whether it ends within a few looks around.
    fn ends(helper: &Helper, allocator: &Allocator) -> bool {
        (2..20).any(|look| helper.look_around(allocator, look) == Next::End)
    }

    #[test]
    fn it_is_put_off_while_the_process_has_one_thread() {
        let (allocator, helper) = (allocator(), Helper::new());
        let call = || assert!(helper.call(allocator, no_body, || true));
        os::set_threads(Some(1));
        call();
        assert!(!helper.is_there());
        os::set_threads(Some(2));
        call();
        assert!(!helper.is_there(), "just now it was put off");
        std::thread::sleep(std::time::Duration::from_millis(PERIOD_MS + 50));
        assert!(!helper.call(allocator, no_body, || false), "this is no time for it");
        call();
        assert!(helper.is_there());
    }

    #[test]
    fn a_new_heap_is_company() {
        let (allocator, helper) = (allocator(), Helper::new());
        os::set_threads(Some(1));
        assert!(helper.call(allocator, no_body, || true));
        os::set_threads(None);
        helper.company();
        assert!(helper.call(allocator, no_body, || true) && !helper.is_there(), "no thread has a heap");
        let heaps = [allocator.attach().expect("memory"), allocator.attach().expect("memory")];
        helper.company();
        assert!(helper.call(allocator, no_body, || true) && helper.is_there());
        for heap in heaps {
            // SAFETY: the heap is used no more.
            unsafe { allocator.detach(heap) };
        }
    }

    #[test]
    fn it_ends_with_the_last_thread_of_the_program() {
        let (allocator, helper) = (allocator(), Helper::new());
        helper.start(no_body);
        helper.know_first();
        helper.company_ends(allocator);
        os::set_threads(Some(3));
        assert_eq!(helper.look_around(allocator, 1), Next::Look);
        assert!(allocator.options.set(Name::BackgroundThread, 2));
        os::set_threads(Some(2));
        assert!(ends(&helper, allocator));
        assert!(!helper.is_there());
    }

    #[test]
    fn it_makes_way_for_a_fork_of_a_program_that_is_alone_but_for_it() {
        for (threads, ends) in [(3, false), (2, true)] {
            let (allocator, helper) = (self::allocator(), Helper::new());
            helper.start(no_body);
            os::set_threads(Some(threads));
            helper.make_way(allocator);
            let next = helper.look_around(allocator, 1);
            assert_eq!((next == Next::End, helper.is_there()), (ends, !ends));
        }
    }

    #[test]
    fn it_ends_beside_one_thread_unless_it_is_wanted() {
        let (allocator, helper) = (allocator(), Helper::new());
        helper.start(no_body);
        os::set_threads(Some(2));
        assert!(ends(&helper, allocator));
        for (name, value) in [(Name::BackgroundThread, 2), (Name::StatsSignal, 10)] {
            let (allocator, helper) = (self::allocator(), Helper::new());
            assert!(allocator.options.set(name, value));
            assert!(!helper.may_end(allocator), "{value}");
        }
    }
}
