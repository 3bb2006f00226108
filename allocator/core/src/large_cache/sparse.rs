//! A heap's freed large blocks in a program that touches little of them. Such blocks are hardly memory, so a thread keeps many more of them, and longer ones, and
//! gets them back by size class. It then finds the pages at their fronts already there, where otherwise it would touch new ones. (rpmalloc and snmalloc serve all
//! large blocks in this way, including filled ones, for which rounding up to the next size costs memory.)

use core::cell::Cell;
use core::ptr;

use super::LargeCache;
use crate::span::Span;
use crate::units::UNIT;

/// Classes of sizes: one for each number of units up to eight, then four a doubling, up to 8 MiB.
const CLASSES: usize = 32;
/// The least class of blocks that no other cache may hold: of more than 1 MiB.
const LONG: usize = 20;
/// A block may serve where one of a class less than so many below is enough: of a sixteenth of its size; or, where blocks hold pages of many others, which
/// would then serve nobody, of a half.
const WIDE: usize = 16;
const NARROW: usize = 5;

/// The class of the shortest blocks that have at least `units` units, and how many they have. `None`: there is none.
fn class_of(units: usize) -> Option<(usize, usize)> {
    let most = units - 1;
    let log = (most | 4).ilog2() - 2;
    let mantissa = most >> log;
    let class = 4 * log as usize + mantissa;
    (class < CLASSES).then_some((class, (mantissa + 1) << log))
}

/// For a block of `units` the length of a run that serves all of its class, or else the same.
pub(crate) fn length(units: usize) -> usize {
    class_of(units).map_or(units, |(_, units)| units)
}

/// A stack of blocks for each class. All zeros are empty.
pub(super) struct Stacks {
    tops: [Cell<*const Span>; CLASSES],
    /// A bit for each that is not empty.
    occupied: Cell<u32>,
    /// Units of all, and how many there were at least since the last trim.
    units: Cell<usize>,
    least: Cell<usize>,
    /// Whether blocks serve for much shorter ones, as of the last that was put in.
    wide: Cell<bool>,
}

const _: () = assert!(CLASSES == u32::BITS as usize);

impl Stacks {
    pub(super) const fn new() -> Self {
        Self {
            tops: [const { Cell::new(ptr::null()) }; CLASSES],
            occupied: Cell::new(0),
            units: Cell::new(0),
            least: Cell::new(0),
            wide: Cell::new(false),
        }
    }

    /// Takes out the newest block of a class that has one.
    fn pop(&self, class: usize) -> &'static Span {
        let top = &self.tops[class % CLASSES];
        // SAFETY: the stack is not empty; what is in it was put in as a span, whose descriptor is never unmapped.
        let span = unsafe { &*top.get() };
        top.set(span.newer.get());
        if top.get().is_null() {
            self.occupied.set(self.occupied.get() & !(1 << class));
        }
        self.units.set(self.units.get() - span.units.get());
        self.least.set(self.least.get().min(self.units.get()));
        span.cached.set(false);
        span
    }

    /// The class of the longest blocks.
    fn longest(&self) -> Option<usize> {
        self.occupied.get().checked_ilog2().map(|class| class as usize)
    }
}

impl LargeCache {
    /// Puts a freed block in, if all that are in such stacks have no more than `bound` units then. `false`: there is no stack for it, or no room. `wide`:
    /// from now on blocks serve for much shorter ones.
    pub(crate) fn put_sparse(&self, span: &'static Span, bound: usize, wide: bool) -> bool {
        let (units, stacks) = (span.units.get(), &self.places.get().stacks);
        let Some((class, size)) = class_of(units) else { return false };
        // It serves those that it is long enough for.
        let class = class - usize::from(size > units);
        let all = stacks.units.get() + units;
        if !self.is_open() || all > bound {
            return false;
        }
        span.cached.set(true);
        span.newer.set(stacks.tops[class].replace(span).cast_mut());
        stacks.occupied.set(stacks.occupied.get() | 1 << class);
        stacks.units.set(all);
        stacks.wide.set(wide);
        true
    }

    /// Takes the newest block of the class of `units` out of its stack, or one of the next that has any, not too far above.
    pub(crate) fn take_sparse(&self, units: usize) -> Option<&'static Span> {
        let stacks = &self.places.get().stacks;
        let class = class_of(units)?.0;
        let above = (stacks.occupied.get() >> class).trailing_zeros() as usize;
        let width = if stacks.wide.get() { WIDE } else { NARROW };
        (above < width).then(|| stacks.pop(class + above))
    }

    /// A block of `units` is asked for that no stack has. If it is to be the only one of its kind, see [`LargeCache::has_one_at_a_time`], those that are too
    /// short leave, so that it takes their pages, and more, instead of others.
    pub(crate) fn make_way(&self, units: usize, mut shed: impl FnMut(&'static Span)) {
        while self.has_one_at_a_time(units)
            && let Some(class) = self.places.get().stacks.longest()
            && class >= LONG
        {
            shed(self.places.get().stacks.pop(class));
        }
    }

    /// One of the longest blocks in stacks.
    pub(crate) fn sparse(&self) -> Option<&'static Span> {
        let stacks = &self.places.get().stacks;
        // SAFETY: as in `pop`.
        stacks.longest().map(|class| unsafe { &*stacks.tops[class].get() })
    }

    /// Bytes of the blocks in stacks.
    pub(crate) fn sparse_bytes(&self) -> usize {
        self.places.get().stacks.units.get() * UNIT
    }

    /// Takes as many out of their stacks, the longest first, as there were all the time since the last call, and what is more than `bound`.
    pub(super) fn trim_sparse(&self, bound: usize, shed: &mut impl FnMut(&'static Span)) {
        let stacks = &self.places.get().stacks;
        let goal = stacks.units.get().saturating_sub(stacks.least.get()).min(bound);
        while stacks.units.get() > goal
            && let Some(class) = stacks.longest()
        {
            shed(stacks.pop(class));
        }
        // Nobody writes to places that are closed.
        if self.is_open() {
            stacks.least.set(stacks.units.get());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::large_cache::{LARGEST, Places};
    use crate::span::Use;

    fn open() -> LargeCache {
        let cache = LargeCache::new();
        cache.open(Box::leak(Box::new(Places::empty())));
        cache
    }

    fn block(units: usize) -> &'static Span {
        Box::leak(Box::new(Span::new(units * UNIT, units, Use::Large, true, 0)))
    }

    /// Blocks of so many units, put in; they must fit.
    fn put(cache: &LargeCache, units: &[usize]) -> Vec<&'static Span> {
        let blocks: Vec<_> = units.iter().map(|&units| block(units)).collect();
        assert!(blocks.iter().all(|block| cache.put_sparse(block, usize::MAX, true) && block.cached.get()));
        blocks
    }

    fn take(cache: &LargeCache, units: usize) -> Option<usize> {
        cache.take_sparse(units).map(|span| {
            assert!(!span.cached.get());
            span.units.get()
        })
    }

    #[test]
    fn classes_are_a_quarter_apart_at_most() {
        let classes: Vec<_> = (1..).map_while(|units| Some((units, class_of(units)?))).collect();
        for &(units, (class, long)) in &classes {
            assert!(long >= units && long * 4 < units * 5, "{units}: {long}");
            assert_eq!(class_of(long), Some((class, long)), "the longest of its class");
            assert_eq!(length(units), long);
        }
        assert!(classes.is_sorted_by_key(|(_, class)| *class));
        let &(most, (last, _)) = classes.last().expect("some");
        assert_eq!((most * UNIT, last + 1), (8 << 20, CLASSES));
        assert_eq!(length(most + 1), most + 1);
        assert_eq!(
            [LARGEST, LARGEST + 1].map(|units| class_of(units).map(|(class, _)| class)),
            [Some(LONG - 1), Some(LONG)]
        );
    }

    #[test]
    fn the_newest_of_its_class_comes_back_or_one_of_the_next() {
        let cache = open();
        let blocks = put(&cache, &[20, 16, 20, 24, 19]);
        let newest = cache.take_sparse(17).expect("one");
        assert!(core::ptr::eq(newest, blocks[2]));
        assert_eq!([17, 17, 17].map(|units| take(&cache, units)), [Some(20), Some(24), None]);
        // One that is shorter than its class serves the class below.
        assert_eq!([16, 16, 16].map(|units| take(&cache, units)), [Some(19), Some(16), None]);
        assert_eq!(cache.sparse_bytes(), 0);
        put(&cache, &[512]);
        assert_eq!([32, 600, 33].map(|units| take(&cache, units)), [None, None, Some(512)]);
    }

    #[test]
    fn where_blocks_are_full_of_others_pages_none_serves_for_less_than_half_of_it() {
        let cache = open();
        let narrow = |units| assert!(cache.put_sparse(block(units), usize::MAX, false));
        narrow(16);
        narrow(64);
        assert_eq!([8, 8].map(|units| take(&cache, units)), [Some(16), None]);
        assert_eq!([27, 28].map(|units| take(&cache, units)), [None, None]);
        assert_eq!(take(&cache, 32), Some(64));
        narrow(64);
        put(&cache, &[512]);
        assert_eq!([8, 33].map(|units| take(&cache, units)), [Some(64), Some(512)]);
    }

    #[test]
    fn no_more_goes_in_than_the_bound_nor_what_has_no_class() {
        let cache = open();
        let put = |units, bound| cache.put_sparse(block(units), bound, true);
        assert!(put(10, 15) && !put(6, 15));
        assert!(put(5, 15) && !put(640, 10_000));
        assert_eq!(cache.sparse_bytes(), 15 * UNIT);
        let closed = LargeCache::new();
        assert!(!closed.put_sparse(block(1), usize::MAX, true) && closed.take_sparse(1).is_none());
        closed.empty(|_| unreachable!("nothing is there"));
    }

    #[test]
    fn short_ones_make_way_for_the_only_long_one() {
        let (cache, mut shed) = (open(), Vec::new());
        put(&cache, &[100, 10, LARGEST, 80]);
        cache.make_way(200, |_| unreachable!("there may be others"));
        for _ in 0..20 {
            let long = block(200);
            cache.note_allocated(long);
            cache.note_freed(long);
        }
        cache.make_way(LARGEST, |_| unreachable!("it is none of the long ones"));
        cache.make_way(200, |span| shed.push(span.units.get()));
        assert_eq!((shed, cache.sparse_bytes()), (vec![100, 80], (LARGEST + 10) * UNIT));
    }

    #[test]
    fn what_was_not_needed_since_the_last_time_is_shed() {
        let (cache, mut shed) = (open(), Vec::new());
        put(&cache, &[10, 20, 40, 10]);
        cache.trim(0, usize::MAX, |span| shed.push(span.units.get()));
        assert!(shed.is_empty(), "there was less since the last time");
        // Twenty were there all the time.
        assert_eq!([take(&cache, 40), take(&cache, 20)], [Some(40), Some(20)]);
        put(&cache, &[40]);
        cache.trim(0, usize::MAX, |span| shed.push(span.units.get()));
        assert_eq!(core::mem::take(&mut shed), [40]);
        cache.trim(0, 15, |span| shed.push(span.units.get()));
        assert_eq!((core::mem::take(&mut shed).len(), cache.sparse_bytes()), (2, 0));
        put(&cache, &[3, 30]);
        cache.empty(|span| shed.push(span.units.get()));
        assert_eq!((shed, cache.sparse().is_none()), (vec![30, 3], true));
    }
}
