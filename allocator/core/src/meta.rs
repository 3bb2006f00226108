//! Memory for the allocator's own records: span descriptors, magazines, heaps, arenas. Never given back to the
//! system; records of a kind that are no longer needed are kept for reuse by whoever needs one.

use core::mem::offset_of;
use core::ops::Range;
use core::ptr::{self, NonNull};

use crate::os;
use crate::size_class::LINE;

/// Bytes asked from the system at a time.
const PIECE: usize = 256 << 10;
/// Rests of pages that are kept.
const RESTS: usize = 4;

/// A bump allocator. Line 0 of every page stays unused: programs touch the first line of their pages most, and
/// processors predict cache ways by address bits that such lines share, which made one loop run at 5 or at 16 ns
/// by luck.
pub(crate) struct Meta {
    next: usize,
    end: usize,
    /// What was left of pages when a record did not fit into them, a shorter one will: the longest such rests.
    rests: [Range<usize>; RESTS],
    /// Mapped, untouched and not counted, for when the system has no more.
    spare: Range<usize>,
    /// Bytes got from the system.
    mapped: usize,
}

impl Meta {
    pub(crate) const fn new() -> Self {
        Self { next: 0, end: 0, rests: [const { 0..0 }; RESTS], spare: 0..0, mapped: 0 }
    }

    /// Where [`Meta::mapped`] lies.
    pub(crate) const fn place_of_mapped() -> usize {
        offset_of!(Self, mapped)
    }

    /// Bytes got from the system.
    pub(crate) fn mapped(&self) -> usize {
        self.mapped
    }

    fn map(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        let memory = os::map(bytes, os::PAGE)?;
        self.mapped += bytes;
        Some(memory)
    }

    /// Sees to it that addresses for so many bytes of records are set aside, and for twice as many where they are not: what was set aside before is
    /// lost then, untouched. Free memory is of no use to a program that has no record for a part of it.
    pub(crate) fn provide(&mut self, bytes: usize) {
        if self.spare.len() < bytes {
            let bytes = (2 * bytes).next_multiple_of(os::PAGE);
            if let Some(memory) = os::map(bytes, os::PAGE) {
                let start = memory.as_ptr().expose_provenance();
                self.spare = start..start + bytes;
            }
        }
    }

    /// Whole pages to go on with: from the system, or what was set aside.
    fn piece(&mut self) -> Option<Range<usize>> {
        if let Some(memory) = self.map(PIECE) {
            let start = memory.as_ptr().expose_provenance();
            return Some(start..start + PIECE);
        }
        let start = self.spare.start;
        let end = self.spare.end.min(start + PIECE);
        self.spare.start = end;
        self.mapped += end - start;
        (end > start).then_some(start..end)
    }

    /// Zeroed memory for a `T`, aligned to a cache line.
    pub(crate) fn record<T>(&mut self) -> Option<NonNull<T>> {
        const { assert!(align_of::<T>() <= LINE && size_of::<T>() <= os::PAGE - LINE) }
        Some(self.lines(size_of::<T>().next_multiple_of(LINE))?.cast())
    }

    /// Zeroed memory of so many bytes, whole lines, all in one page.
    #[inline(never)]
    fn lines(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        let next = if bytes <= self.left_in_page() { &mut self.next } else { self.elsewhere(bytes)? };
        let record = *next;
        *next += bytes;
        NonNull::new(ptr::with_exposed_provenance_mut(record))
    }

    /// Where so many bytes lie side by side that this page has no room for: in the shortest rest that is long enough, or in the next page.
    fn elsewhere(&mut self, bytes: usize) -> Option<&mut usize> {
        let long = |rest: &usize| self.rests[*rest].len() >= bytes;
        match (0..RESTS).filter(long).min_by_key(|rest| self.rests[*rest].len()) {
            Some(rest) => Some(&mut self.rests[rest].start),
            None => {
                self.turn_page()?;
                Some(&mut self.next)
            }
        }
    }

    /// Bytes to the end of the page in which the next record begins; 0 at the start of one.
    fn left_in_page(&self) -> usize {
        self.next.next_multiple_of(os::PAGE) - self.next
    }

    /// Goes on with the next page; what is left of this one is kept instead of a shorter rest.
    fn turn_page(&mut self) -> Option<()> {
        let left = self.next..self.next + self.left_in_page();
        let mut page = left.end;
        if page == self.end {
            Range { start: page, end: self.end } = self.piece()?;
        }
        self.next = page + LINE;
        if let Some(shortest) = self.rests.iter_mut().min_by_key(|rest| rest.len())
            && shortest.len() < left.len()
        {
            *shortest = left;
        }
        Some(())
    }

    /// Zeroed memory for `count` elements in a row.
    #[inline(never)]
    pub(crate) fn array<T>(&mut self, count: usize) -> Option<NonNull<T>> {
        let bytes = (count * size_of::<T>()).next_multiple_of(LINE);
        if bytes > PIECE / 4 {
            return Some(self.map(bytes.next_multiple_of(os::PAGE))?.cast());
        }
        let start = self.next.next_multiple_of(LINE);
        if start + bytes > self.end {
            Range { start: self.next, end: self.end } = self.piece()?;
            return self.array(count);
        }
        self.next = start + bytes;
        NonNull::new(ptr::with_exposed_provenance_mut(start))
    }
}

/// Records of one kind that wait to be used again, linked through their first word.
pub(crate) struct Spares<T> {
    first: *mut T,
}

// SAFETY: a spare record belongs to the list, and the list to whoever can reach it.
unsafe impl<T> Send for Spares<T> {}

impl<T> Spares<T> {
    pub(crate) const fn new() -> Self {
        Self { first: ptr::null_mut() }
    }

    /// # Safety
    /// Nobody uses the record any more, and its memory came from [`Meta`].
    pub(crate) unsafe fn put(&mut self, record: NonNull<T>) {
        // The caller's pointer may come from a shared reference; the memory is the list's now, to write as well.
        let record = ptr::with_exposed_provenance_mut::<T>(record.as_ptr().addr());
        // SAFETY: the record's memory is unused, aligned to a line and longer than a word.
        unsafe { record.cast::<*mut T>().write(self.first) };
        self.first = record;
    }

    /// Memory for a record; its content is arbitrary.
    pub(crate) fn take(&mut self) -> Option<NonNull<T>> {
        let record = NonNull::new(self.first)?;
        // SAFETY: `put` wrote the link there.
        self.first = unsafe { record.cast::<*mut T>().read() };
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address<T>(meta: &mut Meta) -> usize {
        meta.record::<T>().expect("a record").addr().get()
    }

    #[test]
    fn what_was_set_aside_serves_when_the_system_has_no_more() {
        let mut meta = Meta::new();
        let first = address::<[u8; 256]>(&mut meta);
        for pages in [1, 3, 6, 2] {
            meta.provide(pages * os::PAGE);
        }
        let mapped = meta.mapped();
        os::inject(os::Faults::From(0));
        let mut more = 0;
        while meta.record::<[u8; 256]>().is_some() {
            more += 1;
        }
        os::inject(os::Faults::None);
        assert!(first > 0);
        let in_a_page = (os::PAGE - LINE) / 256;
        let of_the_piece = PIECE / os::PAGE * in_a_page - 1;
        // For three pages there were six, which were enough for six, too.
        assert_eq!(more - of_the_piece, 6 * in_a_page);
        assert_eq!(meta.mapped() - mapped, 6 * os::PAGE);
    }

    #[test]
    fn what_is_left_of_a_page_serves_shorter_records() {
        let mut meta = Meta::new();
        let long = [(); 3].map(|()| address::<[u8; 2560]>(&mut meta));
        let shorter = [(); 3].map(|()| address::<[u8; 1024]>(&mut meta));
        let shortest = [(); 3].map(|()| address::<[u8; 256]>(&mut meta));
        assert_eq!(long, [0, 1, 2].map(|page| long[0] + page * os::PAGE));
        let pages = |records: [usize; 3]| records.map(|record| (record - long[0]) / os::PAGE);
        assert_eq!(
            (pages(shorter), pages(shortest)),
            ([2, 0, 1], [2, 0, 1]),
            "the page that is begun comes first"
        );
    }

    #[test]
    fn records_lie_apart_in_one_page_each_and_not_in_its_first_line() {
        let mut meta = Meta::new();
        let mut all = Vec::new();
        let mut random = 1_u32;
        for _ in 0..if cfg!(miri) { 30 } else { 3000 } {
            random = random.wrapping_mul(1_103_515_245).wrapping_add(12345);
            all.push(match random >> 16 & 7 {
                0 => (address::<[u8; 3840]>(&mut meta), 3840),
                1 => (address::<[u8; 2560]>(&mut meta), 2560),
                2 | 3 => (address::<[u8; 1000]>(&mut meta), 1024),
                4 => (meta.array::<[u8; 1088]>(3).expect("an array").addr().get(), 3 * 1088),
                _ => (address::<[u8; 256]>(&mut meta), 256),
            });
            let &(start, bytes) = all.last().expect("one");
            let is_array = bytes == 3 * 1088;
            assert!(is_array || start % os::PAGE >= LINE && start % os::PAGE + bytes <= os::PAGE);
            assert!(start.is_multiple_of(LINE));
        }
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
    }
}
