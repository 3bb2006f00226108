//! The helper thread: looks around from time to time, so that memory comes back although the program does nothing.
//!
//! It is started when there is enough to give back, in a process that has several threads already (`AMPLE_BACKGROUND_THREAD`): a
//! program with one thread may rely on that (`setns`, `unshare`). While there is nothing to do it sleeps until it is called again.

use core::ffi::c_void;

use crate::global::PROCESS;
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

static STATE: AtomicU32 = AtomicU32::new(ABSENT);

/// Sees to it that somebody looks around soon. The caller is in no slow path, and holds no lock: a new thread allocates.
#[cold]
pub(crate) fn call() {
    // Relaxed: the state stands for itself.
    match STATE.load(Ordering::Relaxed) {
        // Relaxed: as above.
        ABSENT if STATE.compare_exchange(ABSENT, AWAKE, Ordering::Relaxed, Ordering::Relaxed).is_ok() => {
            start()
        }
        // Relaxed: as above.
        ASLEEP if STATE.compare_exchange(ASLEEP, AWAKE, Ordering::Relaxed, Ordering::Relaxed).is_ok() => {
            os::wake(&STATE, 1);
        }
        _ => {}
    }
}

fn start() {
    let state = match PROCESS.options.get(Name::BackgroundThread) {
        0 => REFUSED,
        1 if !PROCESS.has_several_threads() => ALONE,
        _ if os::start_thread(run) => return,
        _ => REFUSED,
    };
    // Relaxed: as in `call`.
    STATE.store(state, Ordering::Relaxed);
}

/// There is another thread.
pub(crate) fn company() {
    // Relaxed: as in `call`. Whatever the outcome, it is right: it changes from alone to absent only.
    let _ = STATE.compare_exchange(ALONE, ABSENT, Ordering::Relaxed, Ordering::Relaxed);
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    os::name_thread(c"ample-helper");
    // Relaxed: a hint.
    PROCESS.tended.store(1, Ordering::Relaxed);
    let mut look: u32 = 0;
    loop {
        look = look.wrapping_add(1);
        os::wait_for(&STATE, AWAKE, PERIOD_MS);
        if PROCESS.tend(look) == Found::Nothing {
            // Relaxed: ordered by the locks. Who takes one after the look below finds the helper asleep, and
            // wakes it; what was freed before is seen by the look.
            STATE.store(ASLEEP, Ordering::Relaxed);
            if PROCESS.is_called_for() {
                // Relaxed: as above.
                STATE.store(AWAKE, Ordering::Relaxed);
            }
            // Relaxed: as in `call`.
            while STATE.load(Ordering::Relaxed) == ASLEEP {
                os::wait(&STATE, ASLEEP);
            }
        }
    }
}

/// In the child of a fork, where there is none.
pub(crate) fn lost() {
    // Relaxed: the child has one thread.
    PROCESS.tended.store(0, Ordering::Relaxed);
    // Relaxed: the child has one thread.
    if STATE.load(Ordering::Relaxed) != REFUSED {
        // Relaxed: as above.
        STATE.store(ABSENT, Ordering::Relaxed);
    }
}
