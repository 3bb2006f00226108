//! Spans that change their owner. A block of a class that does not fill lines goes home to the arena that owns its span. Where one thread loads
//! a program's data and others replace it, the first thread's arena would empty block by block while the others' grow, up to twice the memory. So
//! an arena that has no room adopts spans from one that nobody takes from any more, and to which its threads send such blocks.
//!
//! Both arenas' locks are held meanwhile, the second only if it is free. A thread that read the old owner from the unit map brings its blocks there, and finds under the lock that
//! the span has another owner: see [`Arena::give_back`]. (Taking over pages that others left half empty is mimalloc's idea; mimalloc asks when a block is freed.)

use core::cell::Cell;
use core::ptr;

use super::{Arena, Below, Spans};
use crate::size_class::Class;
use crate::span::SpanList;
use crate::sync::Ordering;
use crate::units;

/// How often a heap is filled from its own arena while nobody takes blocks from the other, before it adopts spans from there; and how often it then
/// looks for some in vain before it looks elsewhere.
const PATIENCE: u32 = if cfg!(miri) { 2 } else { 16 };
/// Bytes of blocks that are not handed out, which stay with their owner in any case: 1 MiB.
const LEFT: usize = if cfg!(miri) { 4 << 10 } else { 1 << 20 };
/// The part of a span's blocks that is free at least: an eighth.
const PART: usize = 8;
/// Spans that are looked at each time.
const LOOKS: usize = 8;

/// The arena from which a heap's own may adopt spans. Only the heap's thread uses it.
pub(crate) struct Donor {
    /// Null: none.
    arena: Cell<*const Arena>,
    /// How often it was asked for blocks when it was noted.
    fills: Cell<u32>,
    /// Up to [`PATIENCE`], how often the heap was filled since; what is more, how often there was nothing to adopt.
    waited: Cell<u32>,
}

impl Donor {
    pub(crate) const fn new() -> Self {
        Self { arena: Cell::new(ptr::null()), fills: Cell::new(0), waited: Cell::new(0) }
    }

    /// The thread sends blocks home to `arena`.
    pub(crate) fn note(&self, arena: &'static Arena) {
        if self.arena.get().is_null() {
            self.arena.set(arena);
            // Relaxed, here and below: how often is compared, nothing follows from it.
            self.fills.set(arena.fills.load(Ordering::Relaxed));
            self.waited.set(0);
        }
    }

    /// The arena, if nobody took blocks from there for long enough. To be called once for each time that the heap is filled.
    pub(super) fn ready(&self) -> Option<&'static Arena> {
        // SAFETY: arenas live for ever.
        let arena = unsafe { self.arena.get().as_ref() }?;
        // Relaxed: as above.
        if arena.fills.load(Ordering::Relaxed) != self.fills.get() {
            self.arena.set(ptr::null());
            return None;
        }
        if self.waited.get() < PATIENCE {
            self.waited.set(self.waited.get() + 1);
            return None;
        }
        Some(arena)
    }

    /// Whether there was anything to adopt.
    pub(super) fn judge(&self, adopted: bool) {
        self.waited.set(if adopted { PATIENCE } else { self.waited.get() + 1 });
        if self.waited.get() > 2 * PATIENCE {
            self.arena.set(ptr::null());
        }
    }
}

impl Spans {
    /// Adopts spans of `class` for the arena that these are of, until they have room for `wanted` blocks; for how many they have.
    pub(super) fn adopt(
        &mut self,
        below: Below,
        arena: &Arena,
        class: Class,
        from: &Arena,
        wanted: usize,
    ) -> usize {
        let Some(mut theirs) = from.spans.try_lock() else { return 0 };
        if theirs.room <= LEFT {
            return 0;
        }
        let (mut room, mut next) = (0, theirs.with_room[class].first());
        for _ in 0..LOOKS {
            let Some(span) = next else { break };
            next = SpanList::after(span);
            if span.room() * PART >= span.blocks() {
                theirs.unlist(class, span);
                theirs.disown(class, span);
                self.own(class, span);
                below.ground.units.set_entries(span, units::entry_of(class, arena.index));
                self.list(class, span);
                room += span.room();
                if room >= wanted {
                    break;
                }
            }
        }
        room
    }
}
