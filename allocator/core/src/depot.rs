//! The shared depots: for each class, full magazines that any thread may take. Only classes whose blocks fill whole cache lines
//! go through them.
//!
//! On many processors a depot has several parts, each with its own lock, so that not all threads meet at one. A magazine goes to the part of the arena that its newest block belongs to, where the
//! threads of that arena look first. A thread that takes finds nothing only if all parts are empty, and one that puts finds no room only if all are full.

use core::ptr::NonNull;

use crate::magazine::{Magazine, Stack};
use crate::size_class::{self, CLASS_SLOTS, CLASSES, Class};
use crate::sync::{AtomicUsize, Guard, Lock, Ordering, RawLock};
use crate::units::UNIT;

/// Bytes of blocks that the depot of one class holds at most in a program of [`WHOLE`] units, unless that would be fewer than [`LEAST`] magazines.
const BYTES: usize = 1 << 20;
/// Bytes of blocks that are taken out at once, unless that would be less than a magazine.
const BYTES_AT_ONCE: usize = 16 << 10;
/// How many times as much whoever finds the depot busy takes out.
const MORE_WHERE_BUSY: u32 = 4;
/// Parts of a depot at most, a power of two, of which there is one for two processors.
const PARTS: usize = 16;
/// Magazines that the depot of one class may always hold.
const LEAST: usize = 4;
/// Units of spans of small blocks of a program whose depots may hold as much: 64 MiB. In a smaller one it is as much less.
const WHOLE: usize = (64 << 20) / UNIT;

/// For each class how many of its magazines have `bytes` bytes of blocks, but `least` at least.
const fn magazines(bytes: usize, least: usize) -> [u16; CLASS_SLOTS] {
    let mut counts = [0; CLASS_SLOTS];
    let mut class = 1;
    while class <= CLASSES {
        let info = size_class::of(class);
        let fitting = bytes / (info.size as usize * info.magazine_most as usize);
        counts[class] = if fitting < least { least } else { fitting } as u16;
        class += 1;
    }
    counts
}

/// For each class how many magazines its depot holds at most.
static BOUNDS: [u16; CLASS_SLOTS] = magazines(BYTES, LEAST);
/// For each class how many are taken out at once at most.
static AT_ONCE: [u16; CLASS_SLOTS] = magazines(BYTES_AT_ONCE, 1);

/// The shared depots of all classes. A new one is all zeros, so that those of the process cost no memory until they are used.
pub(crate) struct Depots {
    /// Parts that are used less one; a power of two are used.
    last: AtomicUsize,
    parts: [[Part; CLASS_SLOTS]; PARTS],
}

/// A part of the shared depot of one class. Threads that use different ones do not meet on its line.
#[repr(align(64))]
pub(crate) struct Part {
    full: Lock<Stack>,
    /// Magazines in it: whoever finds it empty, or full, needs no lock.
    count: AtomicUsize,
}

impl Depots {
    pub(crate) const fn new() -> Self {
        Self { last: AtomicUsize::new(0), parts: [const { [const { Part::new() }; CLASS_SLOTS] }; PARTS] }
    }

    /// Uses one part for each two processors. To be called before there is anything in the depots.
    pub(crate) fn spread_over(&self, processors: usize) {
        // Relaxed: everybody comes to the same result, and whoever does not know it looks into fewer parts.
        self.last.store((1 << (processors / 2).clamp(1, PARTS).ilog2()) - 1, Ordering::Relaxed);
    }

    #[inline(always)]
    fn last(&self) -> usize {
        // Relaxed: see `spread_over`.
        self.last.load(Ordering::Relaxed) % PARTS
    }

    /// All parts that are used, class by class.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.parts[..=self.last()].iter().flatten()
    }

    /// Those of one class, the one of an arena first.
    pub(crate) fn parts_of(&self, class: Class, arena: u16) -> impl Iterator<Item = &Part> {
        let last = self.last();
        (0..=last).map(move |step| &self.parts[(usize::from(arena) + step) & last][class % CLASS_SLOTS])
    }

    /// Blocks of a class.
    pub(crate) fn blocks(&self, class: Class) -> usize {
        self.parts_of(class, 0).map(|part| part.full.lock().blocks()).sum()
    }

    /// Whether there is nothing of a class: a hint. (With a look at the last part first: this is asked each time a magazine is filled from the spans.)
    #[inline(always)]
    pub(crate) fn is_empty(&self, class: Class) -> bool {
        let last = self.last();
        self.parts[last][class % CLASS_SLOTS].count() == 0 && (last == 0 || self.are_all_empty(class))
    }

    #[inline(never)]
    fn are_all_empty(&self, class: Class) -> bool {
        self.parts_of(class, 0).all(|part| part.count() == 0)
    }

    /// Takes some magazines with at least one block each: two or more if there are many, so that a thread that uses up what others
    /// free does not come for each of them; but no more than half of a part, so that the next thread finds some too.
    pub(crate) fn take(&self, class: Class, arena: u16) -> Stack {
        let mut busy = None;
        for part in self.parts_of(class, arena).filter(|part| part.count() > 0) {
            match part.full.try_lock() {
                Some(full) if full.len() > 0 => return part.take_out(full, AT_ONCE[class].into()),
                Some(_) => {}
                None => busy = busy.or(Some(part)),
            }
        }
        // Whoever takes more comes less often: fewer wait.
        busy.map_or(Stack::new(), |part| {
            part.take_out(part.full.lock(), MORE_WHERE_BUSY * u32::from(AT_ONCE[class]))
        })
    }

    /// Puts a magazine in whose newest block is an arena's, unless the depot holds what it may in a program with `small` units of spans of small blocks; then it stays the
    /// caller's (`false`). Where there are others at all parts that have room it may go `elsewhere` instead.
    pub(crate) fn put(
        &self,
        class: Class,
        magazine: NonNull<Magazine>,
        arena: u16,
        small: usize,
        elsewhere: impl FnOnce() -> bool,
    ) -> bool {
        let most = usize::from(BOUNDS[class]) * small.min(WHOLE) / WHOLE;
        let most = most.max(LEAST).div_ceil(self.last() + 1);
        let mut busy = None;
        // A few threads at once may put one too many.
        for part in self.parts_of(class, arena).filter(|part| part.count() < most) {
            if let Some(full) = part.full.try_lock() {
                part.put_in(&full, magazine);
                return true;
            }
            busy = busy.or(Some(part));
        }
        let Some(part) = busy else { return false };
        if !elsewhere() {
            part.put_in(&part.full.lock(), magazine);
        }
        true
    }
}

impl Part {
    const fn new() -> Self {
        Self { full: Lock::new(Stack::new()), count: AtomicUsize::new(0) }
    }

    /// The lock alone: see [`Lock::raw`].
    pub(crate) fn raw_lock(&self) -> &RawLock {
        self.full.raw()
    }

    /// How many magazines there are: a hint; one that arrives just now is found next time.
    #[inline(always)]
    fn count(&self) -> usize {
        // Relaxed: a hint.
        self.count.load(Ordering::Relaxed)
    }

    /// Half of what there is, but at least one and at most `most`.
    fn take_out(&self, full: Guard<'_, Stack>, most: u32) -> Stack {
        let taken = Stack::new();
        let most = (full.len() / 2).clamp(1, most);
        while taken.len() < most
            && let Some(magazine) = full.pop()
        {
            taken.push(magazine);
        }
        // Relaxed: as in `count`.
        self.count.store(full.len() as usize, Ordering::Relaxed);
        taken
    }

    fn put_in(&self, full: &Stack, magazine: NonNull<Magazine>) {
        full.push(magazine);
        // Relaxed: as in `count`.
        self.count.store(full.len() as usize, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::Meta;

    const CLASS: Class = 4;

    #[test]
    fn a_depot_holds_as_much_as_befits_the_program_on_any_number_of_processors() {
        let mut meta = Meta::new();
        let mut held_by = |small, processors| {
            let depots = Box::new(Depots::new());
            depots.spread_over(processors);
            let mut magazine = || meta.record::<Magazine>().expect("a magazine");
            core::iter::repeat_with(|| depots.put(CLASS, magazine(), 1, small, || false))
                .take_while(|taken| *taken)
                .count()
        };
        let whole = usize::from(BOUNDS[CLASS]);
        assert!(whole > 8 * LEAST);
        for (processors, parts) in [(1, 1), (2, 1), (4, 2), (9, 4), (64, PARTS), (65, PARTS)] {
            let held = [0, WHOLE / 4, WHOLE, 9 * WHOLE].map(|small| held_by(small, processors));
            let expected = [LEAST, whole / 4, whole, whole].map(|most| most.next_multiple_of(parts));
            assert_eq!(held, expected, "{processors} processors");
        }
    }

    #[test]
    fn what_lies_in_one_part_is_found_from_every_arena() {
        let mut meta = Meta::new();
        let depots = Box::new(Depots::new());
        depots.spread_over(16);
        for arena in 0..20 {
            assert!(depots.is_empty(CLASS));
            assert!(depots.put(CLASS, meta.record().expect("a magazine"), 3, WHOLE, || false));
            assert!(!depots.is_empty(CLASS) && depots.is_empty(CLASS + 1));
            assert_eq!(depots.take(CLASS, arena).len(), 1);
        }
        assert_eq!(depots.parts().count(), 8 * CLASS_SLOTS);
    }
}
