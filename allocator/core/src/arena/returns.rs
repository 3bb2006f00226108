//! Blocks that come back to an arena's spans. However they were freed, they lie there in the order of their addresses again.

use core::cell::Cell;
use core::ptr;

use super::{Arena, Below, CALL_FROM, Spans};
use crate::magazine::{Magazine, Slot};
use crate::size_class::{self, ClassInfo};
use crate::span::{FREE_ALREADY, Span, SpanList};
use crate::sync::{self, Ordering};
use crate::units::{self, Entry, UNIT};

impl Arena {
    /// Takes back those of the lowest `count` blocks of a magazine that belong to this arena; moves the others
    /// down. Returns how many others there are.
    pub(crate) fn give_back(&self, below: Below, magazine: &Magazine, count: usize) -> usize {
        let class = magazine.class();
        let (info, own) = (size_class::of(class), units::entry_of(class, self.index));
        let blocks = magazine.slots(0..count);
        let mut spans = self.spans.lock();
        let (mut index, mut others, mut taken) = (0, 0, 0);
        while index < count {
            let block = blocks[index].get();
            // SAFETY: a live small block.
            let entry = unsafe { below.ground.units.entry(block.addr()) };
            if entry != own {
                if units::arena_in(entry) == self.index {
                    sync::die(FREE_ALREADY);
                }
                blocks[others].set(block);
                others += 1;
                index += 1;
                continue;
            }
            // SAFETY: as above; the owner changes only under this lock.
            let span = unsafe { below.ground.units.span_of_block(block.addr()) };
            let back = span.take_back(info, &blocks[index..]);
            index += back;
            taken += back;
            if !span.listed.get() || span.is_empty() {
                spans.count_returned(below, core::mem::take(&mut taken) * info.size as usize);
                spans.settle(below, span);
            }
            if back == 1 {
                // The next ones hardly lie together either. (Asked before every run, this costs blocks that do 0.6 instructions each.)
                let scattered = take_scattered_back(below, own, info, &blocks[index..]);
                index += scattered;
                taken += scattered;
            }
        }
        spans.count_returned(below, taken * info.size as usize);
        others
    }

    /// Takes one block back, for threads that have no heap, or no magazine of the class, if it is this arena's.
    pub(crate) fn give_back_one(&self, below: Below, block: *mut u8) -> bool {
        let mut spans = self.spans.lock();
        // SAFETY: a live small block.
        let entry = unsafe { below.ground.units.entry(block.addr()) };
        if units::arena_in(entry) != self.index {
            return false;
        }
        // SAFETY: as above; the owner changes only under this lock.
        let span = unsafe { below.ground.units.span_of_block(block.addr()) };
        let info = size_class::of(span.class());
        span.take_back(info, &[Cell::new(block)]);
        spans.count_returned(below, info.size as usize);
        spans.settle(below, span);
        true
    }
}

/// Takes back the leading ones of `blocks` that have the entry `own` in the unit map, while each lies in another unit than the one before, and its span stays as it
/// is: neither empty nor to be listed. Returns how many. (What a program frees in no order at all: less than half of the instructions of taking them back singly.)
#[inline(never)]
fn take_scattered_back(below: Below, own: Entry, info: &ClassInfo, blocks: &[Slot]) -> usize {
    let units = &below.ground.units;
    let mut before = usize::MAX;
    for (index, slot) in blocks.iter().enumerate() {
        let block = slot.get().addr();
        if block ^ before < UNIT {
            return index;
        }
        before = block;
        // SAFETY: a live small block.
        if unsafe { units.entry(block) } != own {
            return index;
        }
        // SAFETY: as above; the owner changes only under the arena's lock.
        let span = unsafe { units.span_of_block(block) };
        if !span.take_one_back(info, block) {
            return index;
        }
    }
    blocks.len()
}

impl Spans {
    /// Counts what came back, and calls for somebody who looks after it.
    #[inline(always)]
    fn count_returned(&mut self, below: Below, bytes: usize) {
        let before = self.returned;
        self.returned += bytes;
        self.room += bytes;
        // A multiple of it, since in a program of one thread nobody looks after it unless most is free.
        if before ^ self.returned >= CALL_FROM {
            // Release: for whoever calls, in `heed_calls`.
            below.ground.shared.calls.store(1, Ordering::Release);
        }
    }

    /// Lists a span that blocks came back to, or releases it when it is empty.
    #[inline(never)]
    fn settle(&mut self, below: Below, span: &'static Span) {
        let class = span.class();
        if !span.listed.get() {
            self.list(class, span);
        }
        // One span with room stays, or a single block that comes and goes would fetch and return a span each time.
        let first = self.with_room[class].first().is_some_and(|first| ptr::eq(first, span));
        let alone = first && SpanList::after(span).is_none();
        if span.is_empty() && !alone {
            self.release(below, class, span);
        }
    }
}
