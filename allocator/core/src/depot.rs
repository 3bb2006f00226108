//! The shared depot: full magazines of one class that any thread may take. Only classes whose blocks fill whole cache lines
//! go through it.

use core::ptr::NonNull;

use crate::magazine::{Magazine, Stack};
use crate::size_class::{self, CLASS_SLOTS, CLASSES, Class};
use crate::sync::{AtomicUsize, Lock, Ordering, RawLock};
use crate::units::UNIT;

/// Bytes of blocks that the depot of one class holds at most in a program of [`WHOLE`] units, unless that would be fewer than [`LEAST`] magazines.
const BYTES: usize = 1 << 20;
/// Bytes of blocks that are taken out at once, unless that would be less than a magazine.
const BYTES_AT_ONCE: usize = 16 << 10;
/// How many times as much whoever finds the depot busy takes out.
const MORE_WHERE_BUSY: u32 = 4;
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

/// The shared depot of one class. Threads that use different classes do not meet on its line.
#[repr(align(64))]
pub(crate) struct Depot {
    full: Lock<Stack>,
    /// Magazines in the depot: whoever finds it empty, or full, needs no lock.
    count: AtomicUsize,
}

impl Depot {
    pub(crate) const fn new() -> Self {
        Self { full: Lock::new(Stack::new()), count: AtomicUsize::new(0) }
    }

    /// The lock alone: see [`Lock::raw`].
    pub(crate) fn raw_lock(&self) -> &RawLock {
        self.full.raw()
    }

    /// Blocks in the depot.
    pub(crate) fn blocks(&self) -> usize {
        self.full.lock().blocks()
    }

    /// Takes some magazines with at least one block each: two or more if there are many, lest a thread that uses up what others
    /// free come for each. No more than half of them, so that the next thread finds some, too.
    #[inline(always)]
    pub(crate) fn take(&self, class: Class) -> Stack {
        // Relaxed: a hint; a magazine that arrives just now is found next time.
        if self.count.load(Ordering::Relaxed) == 0 { Stack::new() } else { self.take_some(class) }
    }

    fn take_some(&self, class: Class) -> Stack {
        let taken = Stack::new();
        let (full, more) = match self.full.try_lock() {
            Some(full) => (full, 1),
            // The fewer come, the fewer wait.
            None => (self.full.lock(), MORE_WHERE_BUSY),
        };
        let most = (full.len() / 2).clamp(1, more * u32::from(AT_ONCE[class]));
        while taken.len() < most
            && let Some(magazine) = full.pop()
        {
            taken.push(magazine);
        }
        // Relaxed: as above.
        self.count.store(full.len() as usize, Ordering::Relaxed);
        taken
    }

    /// Puts a magazine in, unless the depot holds what it may in a program with `small` units of spans of small blocks; then it stays the caller's (`false`). Where others
    /// are at the depot it may go `elsewhere` instead.
    pub(crate) fn put(
        &self,
        class: Class,
        magazine: NonNull<Magazine>,
        small: usize,
        elsewhere: impl FnOnce() -> bool,
    ) -> bool {
        let most = usize::from(BOUNDS[class]) * small.min(WHOLE) / WHOLE;
        // Relaxed: as in `take`; a few threads at once may put one too many.
        if self.count.load(Ordering::Relaxed) >= most.max(LEAST) {
            return false;
        }
        let full = match self.full.try_lock() {
            Some(full) => full,
            None if elsewhere() => return true,
            None => self.full.lock(),
        };
        full.push(magazine);
        // Relaxed: as above.
        self.count.store(full.len() as usize, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::Meta;

    #[test]
    fn a_depot_holds_as_much_as_befits_the_program() {
        const CLASS: Class = 4;
        let mut meta = Meta::new();
        let held_by = |small| {
            let depot = Depot::new();
            let mut magazine = || meta.record::<Magazine>().expect("a magazine");
            core::iter::repeat_with(|| depot.put(CLASS, magazine(), small, || false))
                .take_while(|taken| *taken)
                .count()
        };
        let whole = usize::from(BOUNDS[CLASS]);
        assert!(whole > 8 * LEAST);
        assert_eq!([0, WHOLE / 4, WHOLE, 9 * WHOLE].map(held_by), [LEAST, whole / 4, whole, whole]);
    }
}
