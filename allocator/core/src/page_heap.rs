//! A page heap: runs of units, got from the system in whole chunks and given back to it when they were free for long enough.
//!
//! `allocate → a dirty run that fits, or: a clean one, or: fresh chunks from the system`. Dirty runs come first since their pages are there already. Runs
//! are found by size in bins with a bit set of the occupied ones (M. Masmano et al., "TLSF", 2004); neighbours
//! are found through the chunk table and merged. The page heap never unmaps: what it gives back (purges) keeps its
//! addresses and reads as zero.

mod bins;
mod combine;
mod dense;
mod filled;
mod growth;
mod heaps;
mod huge;
mod limit;
mod marked;
mod purge;
mod queue;
mod remap;
mod resize;
mod score;
mod shared;
mod spread;
mod whole;

use core::ptr::NonNull;

use self::bins::Bins;
pub(crate) use self::dense::Watched;
use self::growth::Growth;
pub(crate) use self::heaps::{Home, PageHeaps, large};
use self::marked::Marked;
use self::purge::SLICE;
use self::queue::{Place, Queue};
pub(crate) use self::remap::MOVED_FROM;
pub(crate) use self::resize::with_room;
pub(crate) use self::shared::{PAGE_HEAPS, Shared};
use self::shared::{Sums, Told};
use crate::meta::{Meta, Spares};
use crate::options::Options;
use crate::os;
use crate::size_class::LINE;
use crate::span::{Span, Use};
use crate::statistics::Statistics;
use crate::sync::{Lock, Ordering};
use crate::units::{CHUNK, UNIT, Units};

/// Units by which the heap grows at least: 32 MiB of addresses (Miri pays for every byte).
const GROW_MIN: usize = if cfg!(miri) { CHUNK } else { 32 << 20 } / UNIT;
/// Units by which the heap grows at most, unless more is asked for: 1 GiB of addresses.
const GROW_MAX: usize = (1 << 30) / UNIT;
/// How often the page heap looks for runs to purge, and calls for somebody else to do so, in milliseconds.
const TICK_MS: u64 = 5;
/// Units that one tick purges, give or take a slice: 2 MiB.
const TICK_UNITS: usize = (2 << 20) / UNIT;
/// Dirty units from which on somebody is called to look after them: 1 MiB.
const CALL_FROM: usize = (1 << 20) / UNIT;
/// Units that may be dirty while somebody looks after them: 1 GiB. What a free leaves beyond goes back to the system at once.
const TENDED_DIRTY_MAX: usize = (1 << 30) / UNIT;
/// Units that may be dirty while nobody does, in a program that may never call again, unless more than that is in use: 48 MiB.
const DIRTY_MAX: usize = (48 << 20) / UNIT;

/// One page heap; there are several, see [`PageHeaps`].
pub(crate) struct PageHeap {
    /// Its index, from when it is entered.
    page_heap: u8,
    clean: Bins,
    dirty: Bins,
    /// The dirty runs again, by age.
    queue: Queue,
    marked: Marked,
    spares: Spares<Span>,
    /// Units got from the system.
    mapped: usize,
    /// Units in free runs of either kind.
    free_units: usize,
    /// Units in spans of small blocks.
    small_units: usize,
    /// Units in starters.
    mixed_units: usize,
    /// Large blocks.
    large_blocks: usize,
    /// How large it ever was.
    growth: Growth,
    /// What the other page heaps know of this one.
    told: Sums<Told>,
    /// Whether free memory is being given back because there was too much of it.
    trimming: bool,
    ticked_ms: u64,
    /// When it last called for somebody.
    called_ms: u64,
}

// SAFETY: the pointers lead to descriptors that only the holder of the page heap's lock touches while they are free.
unsafe impl Send for PageHeap {}

/// What the page heap needs of the rest of the allocator.
#[derive(Clone, Copy)]
pub(crate) struct Ground<'a> {
    pub(crate) options: &'a Options,
    pub(crate) shared: &'a Shared,
    pub(crate) units: &'a Units,
    pub(crate) meta: &'a Lock<Meta>,
}

/// What a run is to be.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    /// Its length.
    pub(crate) units: usize,
    /// It begins at a multiple of so many bytes (a power of two).
    pub(crate) align: usize,
    pub(crate) usage: Use,
}

/// Where a run may come from; what is dirty comes first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The longest dirty run, if what is left of it is worth something to a block that grows.
    Roomy,
    /// Dirty runs.
    Dirty,
    /// Free ones of either kind.
    Free,
    /// Those, or fresh chunks.
    Any,
    /// Clean runs, or fresh chunks; what is dirty only where there are none: of the run little will be touched.
    Clean,
}

impl PageHeap {
    const fn new() -> Self {
        Self {
            page_heap: 0,
            clean: Bins::new(),
            dirty: Bins::new(),
            queue: Queue::new(),
            marked: Marked::new(),
            spares: Spares::new(),
            mapped: 0,
            free_units: 0,
            small_units: 0,
            mixed_units: 0,
            large_blocks: 0,
            growth: Growth::new(),
            told: Told::NOTHING_OF_ALL,
            trimming: false,
            ticked_ms: 0,
            called_ms: 0,
        }
    }

    /// A run whose `dirty` says whether it may hold anything but zeros.
    fn allocate(&mut self, ground: Ground, run: Run, source: Source) -> Option<&'static Span> {
        let Run { units, align, usage } = run;
        let slack = align.max(UNIT) / UNIT - 1;
        let wanted = units.checked_add(slack)?;
        if wanted > os::window().len() / UNIT {
            return None;
        }
        let (span, place) = self.find(ground, run, wanted, source)?;
        let head = match source {
            Source::Roomy => self.left_before(ground, span, units),
            _ => (span.start.get().next_multiple_of(align.max(UNIT)) - span.start.get()) / UNIT,
        };
        let (head, span) = match head {
            0 => (None, span),
            _ => match self.split(ground, span, head) {
                Some(aligned) => (Some(span), aligned),
                None => {
                    self.link_at(ground, span, place);
                    return None;
                }
            },
        };
        let tail = if span.units.get() > units { self.split(ground, span, units) } else { None };
        span.usage.set(usage);
        match usage {
            Use::Small => {
                self.small_units += span.units.get();
                self.growth.allow_for(span.units.get());
            }
            Use::Mixed => self.mixed_units += span.units.get(),
            Use::Aside => self.free_units += span.units.get(),
            _ => self.large_blocks += 1,
        }
        // Before the rest is put back: it looks at its neighbours.
        ground.units.set_ends(span.start.get(), span.units.get(), ptr(span));
        for rest in [tail, head].into_iter().flatten() {
            self.link_at(ground, rest, place);
        }
        self.note_growth(ground);
        self.heed_limit(ground);
        Some(span)
    }

    /// Takes out a free run that holds the one that is asked for, `wanted` units of which hold it wherever they begin; and where it
    /// was.
    fn find(
        &mut self,
        ground: Ground,
        run: Run,
        wanted: usize,
        source: Source,
    ) -> Option<(&'static Span, Place)> {
        let in_bins = |bins: &Bins| {
            let aligned = |found: &&Span| found.start.get().is_multiple_of(run.align);
            let shorter = if wanted > run.units { bins.find(run.units).filter(aligned) } else { None };
            shorter.or_else(|| bins.find(wanted))
        };
        let first = match source {
            Source::Roomy => self.roomy(run.units),
            Source::Clean => in_bins(&self.clean),
            _ => in_bins(&self.dirty),
        };
        if let Some(first) = first {
            return Some((first, self.unlink(first)));
        }
        if !matches!(source, Source::Roomy | Source::Clean)
            && wanted == run.units
            && let Some(combined) = self.combine(ground, wanted)
        {
            self.before_growing(ground, 0);
            return Some((combined, Place::NEWEST));
        }
        if source == Source::Any {
            self.before_growing(ground, wanted);
        }
        let found = match source {
            Source::Roomy | Source::Dirty => None,
            Source::Free => in_bins(&self.clean),
            Source::Clean => self.grow(ground, wanted).or_else(|| in_bins(&self.dirty)),
            Source::Any => in_bins(&self.clean)
                .or_else(|| self.join(ground, wanted))
                .or_else(|| self.grow(ground, wanted)),
        };
        let found = found.or_else(|| self.set_aside(ground, source, wanted))?;
        Some((found, self.unlink(found)))
    }

    /// A run of one large block, from this page heap and no other.
    pub(crate) fn allocate_large(&mut self, ground: Ground, units: usize) -> Option<&'static Span> {
        self.allocate(ground, large(units, UNIT), Source::Any)
    }

    /// Takes a run back, all of it dirty.
    pub(crate) fn free(&mut self, ground: Ground, span: &'static Span) {
        span.dirty.set(true);
        self.take_back(ground, span);
    }

    /// Takes a run back that reads as zero unless it is dirty. `true`: there is more free than there should be, see
    /// [`PageHeap::purge_excess`].
    pub(crate) fn take_back(&mut self, ground: Ground, span: &'static Span) -> bool {
        let now = os::now_ms();
        match span.usage.get() {
            Use::Small => self.small_units -= span.units.get(),
            Use::Mixed => self.mixed_units -= span.units.get(),
            _ => self.large_blocks -= 1,
        }
        span.since_ms.set(now);
        let few = self.queue.units() < CALL_FROM;
        self.link(ground, span);
        self.heed_limit(ground);
        self.tick(ground, now);
        // Not each time: all threads look at the word.
        if self.queue.units() >= CALL_FROM && (few || now.wrapping_sub(self.called_ms) >= TICK_MS) {
            self.called_ms = now;
            // Release: for whoever calls, in `heed_calls`.
            ground.shared.calls.store(1, Ordering::Release);
        }
        self.trimming
    }

    /// Gives dirty runs back to the system, now and then: those that were dirty for long, unless somebody else looks after them, and
    /// whatever is too much.
    fn tick(&mut self, ground: Ground, now_ms: u64) {
        self.purge_excess(ground);
        // Relaxed: a hint.
        if ground.shared.tended.load(Ordering::Relaxed) == 0 && now_ms.wrapping_sub(self.ticked_ms) >= TICK_MS
        {
            self.ticked_ms = now_ms;
            let mut purged = 0;
            while purged < TICK_UNITS
                && let Some(run) = self.begin_purge_old(ground, now_ms, SLICE)
            {
                purged += run.span.units.get();
                self.purge(ground, run);
            }
        }
    }

    /// Gives all that is free back to the system; whether there was anything.
    pub(crate) fn purge_all(&mut self, ground: Ground) -> bool {
        // Each once, also where the system refuses some: it gives back whole pages of its own only.
        let (mut left, mut purged) = (self.queue.units(), false);
        while left > 0 {
            let (done, units) = self.purge_oldest(ground, SLICE);
            purged |= done;
            left -= units.clamp(1, left);
        }
        purged
    }

    /// Fresh chunks with room for `units`, as a free run.
    fn grow(&mut self, ground: Ground, units: usize) -> Option<&'static Span> {
        let chunk = CHUNK / UNIT;
        let least = units.next_multiple_of(chunk);
        let padded = units.saturating_add(ground.options.thresholds.top_pad() / UNIT);
        let usual =
            (self.mapped / 4).clamp(GROW_MIN, GROW_MAX).max(least).max(padded).next_multiple_of(chunk);
        if self.mapped > 0 {
            self.learn_group_limit(ground);
        }
        let map = |units| Some((os::map(units * UNIT, CHUNK)?.as_ptr().expose_provenance(), units));
        let map_some = || [usual, least].into_iter().find_map(map);
        let (start, got) = map_some().or_else(|| ground.let_go().then(map_some)?)?;
        // From here on a failure leaves the chunks mapped and unused: the system has no memory for our records
        // either, and untouched chunks cost none.
        let span = self.descriptor(ground, start, got, Use::Free, false)?;
        let mut meta = ground.meta.lock();
        // Relaxed: a bound, give or take what others do meanwhile.
        let mapped = ground.shared.mapped.load(Ordering::Relaxed);
        // One for two units, or for as many more; the first chunks have the first piece.
        if mapped > 0 {
            meta.provide((mapped + got) / 2 * size_of::<Span>().next_multiple_of(LINE));
        }
        // The first by itself, into what is left of a page: the others stay untouched until their chunks are used.
        let infos = |count| if count == 1 { meta.record() } else { meta.array(count) };
        let registered = ground.units.register(start, got * UNIT, self.page_heap, infos);
        drop(meta);
        if !registered {
            self.discard(span);
            return None;
        }
        self.mapped += got;
        // Relaxed: a bound, give or take what others do meanwhile.
        let before = ground.shared.mapped.fetch_add(got, Ordering::Relaxed);
        // SAFETY: fresh memory, which nobody else knows.
        unsafe { huge::bar(start, got * UNIT) };
        // A touch before any part of it is marked for huge pages: the kernel never joins mappings again that had their first page fault
        // each by itself. (The first is touched by the program long before that.)
        if before > 0 {
            let last = core::ptr::with_exposed_provenance_mut::<u8>(span.end() - 1);
            // SAFETY: the last byte of fresh memory, which nobody else knows.
            unsafe { last.write_volatile(0) };
        }
        Some(self.link(ground, span))
    }

    /// Puts a run that is in no list into its bin, merged with free neighbours of its kind; if it is dirty, as the newest one.
    fn link(&mut self, ground: Ground, span: &'static Span) -> &'static Span {
        self.link_at(ground, span, Place::NEWEST)
    }

    /// As [`PageHeap::link`]; a dirty run comes to `place` in the queue. A merged run takes the place, and the age, of its oldest
    /// part.
    fn link_at(&mut self, ground: Ground, span: &'static Span, mut place: Place) -> &'static Span {
        span.usage.set(Use::Free);
        let mut merged = span;
        let before = self.free_neighbour(ground, span.start.get().wrapping_sub(UNIT));
        if let Some(before) = before
            && before.dirty.get() == span.dirty.get()
            && before.end() == span.start.get()
        {
            place = self.absorb(before, span, place);
            before.units.set(before.units.get() + span.units.get());
            ground.join_mappings(before, span);
            self.discard(span);
            merged = before;
        }
        if let Some(after) = self.free_neighbour(ground, merged.end())
            && after.dirty.get() == merged.dirty.get()
            && after.start.get() == merged.end()
        {
            place = self.absorb(after, merged, place);
            merged.units.set(merged.units.get() + after.units.get());
            ground.join_mappings(merged, after);
            self.discard(after);
        }
        ground.units.set_ends(merged.start.get(), merged.units.get(), ptr(merged));
        self.free_units += merged.units.get();
        if merged.dirty.get() {
            self.dirty.insert(NonNull::from(merged));
            self.queue.insert(merged, place);
        } else {
            self.clean.insert(NonNull::from(merged));
        }
        merged
    }

    /// Takes a free neighbour out of its lists to merge it with `span`, which is bound for `place`. Gives both the age of the older, and returns
    /// the older's place.
    #[inline(never)]
    fn absorb(&mut self, neighbour: &Span, span: &Span, place: Place) -> Place {
        let its_place = self.unlink(neighbour);
        let since = span.since_ms.get().min(neighbour.since_ms.get());
        let its_is_older = neighbour.since_ms.get() < span.since_ms.get();
        span.since_ms.set(since);
        neighbour.since_ms.set(since);
        // A place just after the neighbour goes with the neighbour.
        if its_is_older || place == Place::after(neighbour) { its_place } else { place }
    }

    /// Takes a free run out of its bin; if it is dirty, also out of the queue. Where it was there.
    fn unlink(&mut self, span: &Span) -> Place {
        self.free_units -= span.units.get();
        if !span.dirty.get() {
            self.clean.remove(span);
            return Place::NEWEST;
        }
        self.dirty.remove(span);
        self.queue.remove(span)
    }

    /// The run for `usage` whose end touches `address`, which is just outside a run of ours.
    fn neighbour(&self, ground: Ground, address: usize, usage: Use) -> Option<&'static Span> {
        let span = ground.units.neighbour(address, self.page_heap)?;
        // SAFETY: the table names live descriptors at the ends of every run.
        let span = unsafe { span.as_ref() };
        (span.usage.get() == usage).then_some(span)
    }

    /// The free one there.
    fn free_neighbour(&self, ground: Ground, address: usize) -> Option<&'static Span> {
        self.neighbour(ground, address, Use::Free)
    }

    /// Cuts a run that is in no list after `units` units; the rest is a run of the same kind, in no list either.
    fn split(&mut self, ground: Ground, span: &Span, units: usize) -> Option<&'static Span> {
        let start = span.start.get() + units * UNIT;
        let rest =
            self.descriptor(ground, start, span.units.get() - units, span.usage.get(), span.dirty.get())?;
        rest.since_ms.set(span.since_ms.get());
        span.units.set(units);
        ground.share_mappings(span, rest);
        Some(rest)
    }

    fn descriptor(
        &mut self,
        ground: Ground,
        start: usize,
        units: usize,
        usage: Use,
        dirty: bool,
    ) -> Option<&'static Span> {
        let record = match self.spares.take() {
            Some(record) => record,
            None => ground.meta.lock().record()?,
        };
        // SAFETY: the record is ours alone, large and aligned enough.
        unsafe { record.write(Span::new(start, units, usage, dirty, self.page_heap)) };
        // SAFETY: just written; descriptors' memory is never unmapped.
        Some(unsafe { record.as_ref() })
    }

    fn discard(&mut self, span: &Span) {
        if cfg!(debug_assertions) {
            // Whoever still reads it is to notice.
            span.start.set(usize::MAX);
            span.units.set(usize::MAX);
        }
        // SAFETY: the caller merged the run into another one or gave it up: no table or list names it.
        unsafe { self.spares.put(NonNull::from(span)) };
    }

    /// Adds what the page heap knows of the heap's statistics.
    fn count(&self, statistics: &mut Statistics) {
        let active = self.mapped - self.free_units;
        statistics.mapped += self.mapped * UNIT;
        statistics.active += active * UNIT;
        statistics.large += (active - self.small_units - self.mixed_units) * UNIT;
        statistics.large_blocks += self.large_blocks;
        statistics.retained += self.queue.units() * UNIT;
    }

    /// Bytes in free runs that the system has not got back.
    #[cfg(test)]
    pub(crate) fn dirty_bytes(&self) -> usize {
        self.queue.units() * UNIT
    }

    /// Bytes in use, as large blocks or as spans of small ones.
    #[cfg(test)]
    pub(crate) fn used_bytes(&self) -> usize {
        (self.mapped - self.free_units) * UNIT
    }
}

fn ptr(span: &Span) -> *mut Span {
    core::ptr::from_ref(span).cast_mut()
}

#[cfg(test)]
mod tests;
