//! Arenas: owners of spans. Each thread's heap has an arena of its own while there are few threads; beyond that, heaps share arenas.

mod adopt;
mod lend;
mod returns;

use core::cell::Cell;
use core::mem::offset_of;
use core::ptr::{self, NonNull};

use crate::inbox::Inbox;
use crate::magazine::{Magazine, Slot};
use crate::page_heap::{Ground, Home, PageHeaps, Run, Watched};
use crate::size_class::{self, CLASS_SLOTS, CLASSES, Class};
use crate::span::{Batch, Look, Span, SpanList, Use};
use crate::starter::{self, Fill, MIXED, STARTER, Table};
use crate::statistics::ClassStatistics;
use crate::sync::{AtomicU32, Guard, Lock, Ordering, RawLock};
use crate::units::{self, UNIT};

pub(crate) use self::adopt::Donor;
pub(crate) use self::lend::Lenders;

/// An arena. Its spans' blocks are handed out to, and taken back from, magazines of many blocks at a time.
pub(crate) struct Arena {
    /// Index in the table of arenas, and owner in the unit map.
    pub(crate) index: u16,
    /// Magazines of this arena's blocks that other threads freed.
    pub(crate) inbox: Inbox<Magazine>,
    /// How often spans were asked for blocks.
    fills: AtomicU32,
    /// Where its runs come from, and the large blocks of its threads.
    pub(crate) home: Home,
    /// The classes of the starter's blocks.
    starter: Table,
    spans: Lock<Spans>,
}

/// Bytes that come back to an arena's spans until somebody is called to look for holes: 1 MiB.
const CALL_FROM: usize = 1 << 20;
/// Calls into the system for holes before the arena grows, as a `Batch` counts them, give or take one.
const HOLES_BEFORE_GROWING: usize = 128;
/// Units by which it grows between two looks: 2 MiB.
const LOOK_EVERY: usize = (2 << 20) / UNIT;
/// Spans that are looked at meanwhile.
const LOOKS_AT_ONCE: usize = 4096;
/// As how many looks a span counts that is searched.
const SEARCH: usize = 16;

struct Spans {
    /// For each class the spans with room.
    with_room: [SpanList; CLASS_SLOTS],
    /// For each class what there is of it.
    owned: [Owned; CLASS_SLOTS],
    /// Bytes of blocks in spans that are not handed out.
    room: usize,
    /// Units that were acquired since the last look for holes before that.
    grown: usize,
    /// Bytes of blocks that came back since the last call for somebody who looks after them.
    returned: usize,
    /// Where a look for holes goes on: a listed span, or null for the first of `looked_class`.
    look_at: *const Span,
    looked_class: Class,
    watched: Watched,
    /// The unit of the starter, if there is one, and its use.
    starter: Option<&'static Span>,
    fill: Fill,
}

/// The spans of a class, with and without room.
struct Owned {
    spans: u32,
    units: u32,
    blocks: u32,
}

// SAFETY: a starter's descriptor is used by the holder of the arena's lock only.
unsafe impl Send for Spans {}

/// What an arena needs of the rest of the allocator.
#[derive(Clone, Copy)]
pub(crate) struct Below<'a> {
    pub(crate) ground: Ground<'a>,
    pub(crate) pages: &'a PageHeaps,
    pub(crate) lenders: &'a Lenders,
}

impl Arena {
    /// Makes an arena without spans, whose inbox is open, of a record of the caller's alone. (Not on the stack, a page of which each thread
    /// would keep for it.)
    pub(crate) fn write_to(record: NonNull<Self>, index: u16) -> &'static Self {
        // SAFETY: the record is the caller's, large and aligned enough; arenas' memory is never unmapped.
        unsafe {
            record.write(const { Self::new() });
            (*record.as_ptr()).index = index;
            record.as_ref()
        }
    }

    const fn new() -> Self {
        let with_room = [const { SpanList::new() }; CLASS_SLOTS];
        let spans = Spans {
            with_room,
            owned: [const { Owned { spans: 0, units: 0, blocks: 0 } }; CLASS_SLOTS],
            room: 0,
            grown: 0,
            returned: 0,
            look_at: ptr::null(),
            looked_class: 1,
            watched: Watched::new(),
            starter: None,
            fill: Fill::new(),
        };
        Self {
            index: 0,
            inbox: Inbox::new(),
            fills: AtomicU32::new(0),
            home: Home::new(),
            starter: Table::new(),
            spans: Lock::new(spans),
        }
    }

    /// The lock alone: see [`Lock::raw`].
    pub(crate) fn raw_lock(&self) -> &RawLock {
        self.spans.raw()
    }

    /// Fills an empty magazine with up to `wanted` blocks of its class, the lowest address on top; how many it
    /// got. 0: no memory. `None`: there is room only if the program becomes larger than it ever was, and it may not.
    pub(crate) fn fill(
        &self,
        below: Below,
        magazine: &Magazine,
        wanted: usize,
        donor: &Donor,
        may_grow: impl FnOnce() -> bool,
    ) -> Option<usize> {
        let class = magazine.class();
        let donating = donor.ready();
        let mut spans = self.lock_to_take();
        let mut room = spans.room_for(class, wanted);
        if room == 0
            && let Some(from) = donating
        {
            room = spans.adopt(below, self, class, from, wanted);
            donor.judge(room > 0);
        }
        if room == 0 && size_class::fills_lines(class) && !below.ground.shared.has_dirty() {
            let borrowed = below.lenders.borrow(self, class, magazine.slots(0..wanted));
            if borrowed > 0 {
                return Some(borrowed);
            }
        }
        if room == 0 {
            let least = size_class::of(class).units.into();
            if !below.ground.shared.has_dirty() && below.pages.would_grow(&self.home, least) && !may_grow() {
                return None;
            }
            match spans.acquire(below, self, class) {
                Some(new) => room = new.room(),
                None => return Some(0),
            }
        }
        let count = room.min(wanted);
        spans.take(class, magazine.slots(0..count));
        Some(count)
    }

    /// The spans, for a block to be handed out.
    fn lock_to_take(&self) -> Guard<'_, Spans> {
        let spans = self.spans.lock();
        // Relaxed, twice: written under the lock only, and a hint for whoever reads it without.
        let fills = self.fills.load(Ordering::Relaxed);
        self.fills.store(fills.wrapping_add(1), Ordering::Relaxed);
        spans
    }

    /// Hands out one block of `class` from the starter; null: there is no room.
    pub(crate) fn take_mixed(&self, below: Below, class: Class) -> *mut u8 {
        let mut spans = self.spans.lock();
        let Some(starter) = spans.starter.or_else(|| spans.acquire_starter(below, self)) else {
            return core::ptr::null_mut();
        };
        match spans.fill.take(&self.starter, class) {
            Some(offset) => core::ptr::with_exposed_provenance_mut(starter.start.get() + offset),
            None => core::ptr::null_mut(),
        }
    }

    /// The class of a live block of the starter.
    pub(crate) fn mixed_class(&self, block: *mut u8) -> Class {
        self.starter.class(block)
    }

    /// Takes a block of the starter back.
    pub(crate) fn give_back_mixed(&self, block: *mut u8) {
        self.spans.lock().fill.take_back(&self.starter, block);
    }

    /// Hands out one block of `class`, for threads that have no heap, or no magazine of the class.
    pub(crate) fn take_one(&self, below: Below, class: Class) -> *mut u8 {
        let mut spans = self.lock_to_take();
        let found = Cell::new(core::ptr::null_mut());
        if spans.with_room[class].first().is_some() || spans.acquire(below, self, class).is_some() {
            spans.take(class, core::slice::from_ref(&found));
        }
        found.get()
    }

    /// Adds the arena's spans and blocks to the statistics of their classes.
    pub(crate) fn count(&self, classes: &mut [ClassStatistics; CLASSES]) {
        let spans = self.spans.lock();
        for class in spans.fill.live(&self.starter) {
            classes[class - 1].live += 1;
        }
        for (class, statistics) in (1..).zip(classes) {
            let mut room = 0;
            let mut span = spans.with_room[class].first();
            while let Some(listed) = span {
                room += listed.room();
                span = SpanList::after(listed);
            }
            let owned = &spans.owned[class];
            statistics.spans += owned.spans as usize;
            statistics.room += room;
            statistics.live += owned.blocks as usize - room;
        }
    }

    /// Where the bytes of blocks in spans that are not handed out lie.
    pub(crate) const fn place_of_room() -> usize {
        offset_of!(Self, spans) + Lock::<Spans>::inside() + offset_of!(Spans, room)
    }

    /// Bytes of blocks in spans that are not handed out: those that came back since the last look for holes, and the others.
    pub(crate) fn room(&self) -> [usize; 2] {
        let spans = self.spans.lock();
        let since = spans.returned.min(spans.room);
        [since, spans.room - since]
    }

    /// Whether much came back to this arena's spans that nobody has looked at.
    pub(crate) fn is_called_for(&self) -> bool {
        self.spans.lock().returned >= CALL_FROM
    }

    /// Gives back pages of spans that hold no live block (see [`Batch::look`]), about `most` calls into the system; to be called until
    /// it is done, with the arena's lock given up in between.
    pub(crate) fn purge_holes(&self, most: usize) -> Holes {
        self.spans.lock().purge_holes(most)
    }

    /// Gives empty spans back to the page heap.
    pub(crate) fn release_empty(&self, below: Below) {
        let mut spans = self.spans.lock();
        for class in 1..=CLASSES {
            let mut span = spans.with_room[class].first();
            while let Some(listed) = span {
                span = SpanList::after(listed);
                if listed.is_empty() {
                    spans.release(below, class, listed);
                }
            }
        }
        if spans.fill.is_empty()
            && let Some(starter) = spans.starter.take()
        {
            spans.free(below, starter);
        }
    }
}

/// How far a look for holes got. Busy: there are spans whose blocks come and go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holes {
    More { busy: bool },
    Done { busy: bool },
}

impl Spans {
    /// See [`Arena::purge_holes`].
    fn purge_holes(&mut self, most: usize) -> Holes {
        let (mut looks, mut calls, mut busy, mut batch) = (0, 0, false, Batch::new());
        while let Some(span) = self.next_look() {
            let (look, cost) = batch.look(span);
            calls += cost;
            match look {
                Look::Nothing => looks += 1,
                Look::Busy => (looks, busy) = (looks + 1, true),
                Look::Searched => looks += SEARCH,
            }
            if calls >= most || looks >= LOOKS_AT_ONCE {
                batch.purge();
                return Holes::More { busy };
            }
        }
        batch.purge();
        self.returned = 0;
        Holes::Done { busy }
    }

    /// Before the arena grows: gives holes back if more than half of what it has is room, so that a program whose sizes change does not
    /// grow by what it used before.
    fn purge_before_growing(&mut self, units: usize) {
        self.grown += units;
        if self.grown < LOOK_EVERY {
            return;
        }
        self.grown = 0;
        let bytes: usize = self.owned.iter().map(|owned| owned.units as usize * UNIT).sum();
        if self.room > bytes / 8 {
            self.purge_holes(HOLES_BEFORE_GROWING);
        }
    }

    /// The span that is to be looked at next; None at the end of the last class, after which the first comes again.
    fn next_look(&mut self) -> Option<&'static Span> {
        // SAFETY: a listed span, see `unlist`.
        let mut next = unsafe { self.look_at.as_ref() };
        while next.is_none() {
            if self.looked_class > CLASSES {
                self.looked_class = 1;
                return None;
            }
            next = self.with_room[self.looked_class].first();
            self.looked_class += 1;
        }
        self.look_at = next.and_then(SpanList::after).map_or(ptr::null(), ptr::from_ref);
        next
    }

    /// A fresh span of `class` in the list.
    fn acquire(&mut self, below: Below, arena: &Arena, class: Class) -> Option<&'static Span> {
        let info = size_class::of(class);
        let owned = self.owned[class].units as usize;
        let wanted = self.watched.wanted(below.ground, class, info, owned);
        self.purge_before_growing(wanted.most);
        let span = below.pages.allocate_small(below.ground, &arena.home, wanted)?;
        self.watched.watch(below.ground, class, info, span);
        span.cut(class);
        self.own(class, span);
        let entry = units::entry_of(class, arena.index);
        // More units than asked for where the page heap could not split the run.
        below.ground.units.set_all(
            span.start.get(),
            span.units.get(),
            core::ptr::from_ref(span).cast_mut(),
            entry,
        );
        self.list(class, span);
        Some(span)
    }

    /// A unit for the starter.
    fn acquire_starter(&mut self, below: Below, arena: &Arena) -> Option<&'static Span> {
        let run = Run { units: starter::UNITS, align: STARTER, usage: Use::Mixed };
        let span = below.pages.allocate(below.ground, &arena.home, run)?;
        let entry = units::entry_of(MIXED, arena.index);
        below.ground.units.set_all(
            span.start.get(),
            span.units.get(),
            core::ptr::from_ref(span).cast_mut(),
            entry,
        );
        self.starter = Some(span);
        self.starter
    }

    /// How many blocks of `class` can be handed out, up to `wanted`.
    #[inline(always)]
    fn room_for(&self, class: Class, wanted: usize) -> usize {
        let mut room = 0;
        let mut span = self.with_room[class].first();
        while let Some(listed) = span
            && room < wanted
        {
            room += listed.room();
            span = SpanList::after(listed);
        }
        room.min(wanted)
    }

    /// Hands out a block for each of `slots`; the listed spans have that many.
    fn take(&mut self, class: Class, slots: &[Slot]) {
        let mut left = slots.len();
        self.room -= left * size_class::of(class).size as usize;
        while let Some(span) = self.with_room[class].first()
            && left > 0
        {
            left -= span.take(&slots[..left]);
            if span.room() == 0 {
                self.unlist(class, span);
            }
        }
    }

    fn release(&mut self, below: Below, class: Class, span: &'static Span) {
        self.unlist(class, span);
        self.disown(class, span);
        span.uncut();
        self.free(below, span);
    }

    /// Counts a span of `class` that is the arena's from now on.
    fn own(&mut self, class: Class, span: &Span) {
        self.room += span.room() * size_class::of(class).size as usize;
        let owned = &mut self.owned[class];
        owned.spans += 1;
        owned.units += span.units.get() as u32;
        owned.blocks += span.blocks() as u32;
    }

    /// Counts a span of `class` that is the arena's no more.
    fn disown(&mut self, class: Class, span: &Span) {
        self.room -= span.room() * size_class::of(class).size as usize;
        let owned = &mut self.owned[class];
        owned.spans -= 1;
        owned.units -= span.units.get() as u32;
        owned.blocks -= span.blocks() as u32;
    }

    fn free(&mut self, below: Below, span: &'static Span) {
        below.ground.units.set_all(span.start.get(), span.units.get(), core::ptr::null_mut(), 0);
        below.pages.free(below.ground, span);
    }

    fn list(&mut self, class: Class, span: &'static Span) {
        span.listed.set(true);
        self.with_room[class].push(NonNull::from(span));
    }

    fn unlist(&mut self, class: Class, span: &Span) {
        span.listed.set(false);
        if ptr::eq(self.look_at, span) {
            self.look_at = SpanList::after(span).map_or(ptr::null(), ptr::from_ref);
        }
        self.with_room[class].remove(span);
    }
}
