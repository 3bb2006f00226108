//! Whether a heap's thread does anything: what the helper thread, which looks after all heaps, learns from two looks. Guarded by the registry's lock.

use super::Heap;
use crate::sync::Ordering;

/// What others make of a heap's thread.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Idleness {
    /// It took slow paths lately.
    Active,
    /// It took none; the heap is being asked for.
    Asked,
    /// It took none since its heap was emptied.
    Emptied,
}

impl Heap {
    /// Whether the thread took no slow path since the last call, and the heap was not emptied since: then it is to be
    /// asked for. The caller holds the registry's lock.
    pub(crate) fn looks_idle(&self) -> bool {
        // Relaxed: as in `count_event`.
        let events = self.events.load(Ordering::Relaxed);
        let idleness = match (self.seen.replace(events) == events, self.idleness.get()) {
            (false, _) => Idleness::Active,
            (true, Idleness::Emptied) => Idleness::Emptied,
            (true, _) => Idleness::Asked,
        };
        self.idleness.set(idleness);
        idleness == Idleness::Asked
    }

    /// Whether it is being asked for. The caller holds the registry's lock.
    pub(crate) fn was_asked(&self) -> bool {
        self.idleness.get() == Idleness::Asked
    }

    /// Whether its thread did nothing since it was emptied. The caller holds the registry's lock.
    pub(crate) fn is_emptied(&self) -> bool {
        self.idleness.get() == Idleness::Emptied
    }

    /// Notes the end of asking for it. The caller holds the registry's lock.
    pub(crate) fn set_emptied(&self, emptied: bool) {
        self.idleness.set(if emptied { Idleness::Emptied } else { Idleness::Active });
    }
}
