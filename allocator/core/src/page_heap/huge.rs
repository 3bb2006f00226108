//! Huge pages for large heaps of small blocks.

use super::{Ground, Home, PageHeap, PageHeaps, Run, Source, large};
use crate::options::Name;
use crate::os;
use crate::span::{Span, Use};
use crate::sync::Ordering;
use crate::units::{CHUNK, UNIT};

/// Units in spans of small blocks from which on fresh ones come in huge pages: 8 MiB. The unused part of a huge page is a
/// quarter of the heap at most, and less the larger the heap.
pub(super) const HUGE_FROM: usize = (8 << 20) / UNIT;
/// Huge pages that are made by a mark on their mapping, which is cheaper, but may cost one of the mappings that a process may have (65 530).
const MARKED_MAX: usize = 8192;

/// Whether the system gives huge pages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum HugePages {
    /// Not asked yet.
    Unknown,
    /// So far it has.
    Given,
    /// It refused, or nobody wants them.
    Refused,
}

/// What an arena wants for small blocks.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// Units of which it takes any multiple, where only a shorter dirty run is free.
    pub(crate) least: usize,
    /// Units that it would like to have, a multiple of those.
    pub(crate) most: usize,
    /// Whether it will use all of its pages soon: others would be resident for nothing in a huge page.
    pub(crate) densely: bool,
}

/// A run for small blocks.
fn small(units: usize) -> Run {
    Run { units, align: UNIT, usage: Use::Small }
}

impl PageHeaps {
    /// A span for small blocks. (A longer one than wanted where a run cannot be split for lack of memory for records.)
    pub(crate) fn allocate_small(
        &self,
        ground: Ground,
        home: &Home,
        wanted: Wanted,
    ) -> Option<&'static Span> {
        let Wanted { least, most, densely } = wanted;
        let take = |heap: &mut PageHeap| heap.allocate_dirty_small(ground, wanted);
        let (index, mut heap) = match self.dirty(ground, home, least, take) {
            Ok(span) => return Some(span),
            Err(home) => home,
        };
        if densely
            && heap.wants_huge_page(ground, most)
            && let Some(page) = heap.allocate(ground, large(CHUNK / UNIT, CHUNK), Source::Any)
        {
            // To make it takes the system as long as a hundred spans take us: other threads need not wait.
            drop(heap);
            // Relaxed: a bound, give or take what others do meanwhile.
            let mark = ground.shared.marked.fetch_add(1, Ordering::Relaxed) < MARKED_MAX;
            // SAFETY: the run is ours alone.
            let made = unsafe { os::collapse(page.start.get(), CHUNK, mark) };
            heap = self.all()[index].lock();
            heap.put_huge_page(ground, page, made);
        }
        let span = heap.allocate(ground, small(most), Source::Any);
        let span = span.or_else(|| heap.allocate(ground, small(least), Source::Any));
        span.or_else(|| {
            drop(heap);
            self.anywhere(ground, small(least))
        })
    }
}

impl PageHeap {
    /// As much of a dirty run as is wanted.
    fn allocate_dirty_small(&mut self, ground: Ground, wanted: Wanted) -> Option<&'static Span> {
        let Wanted { least, most, .. } = wanted;
        let run = self.dirty.find(most).or_else(|| self.dirty.find(least))?;
        let units = (run.units.get() / least * least).min(most);
        self.allocate(ground, small(units), Source::Dirty)
    }

    /// Whether a run of `wanted` units for small blocks should come from a fresh huge page: many small blocks live, and no dirty
    /// run is long enough.
    fn wants_huge_page(&mut self, ground: Ground, wanted: usize) -> bool {
        if self.total(ground.shared).small < HUGE_FROM
            || wanted > CHUNK / UNIT
            || self.dirty.find(wanted).is_some()
        {
            return false;
        }
        if self.huge_pages == HugePages::Unknown {
            let given = ground.options.is_on(Name::HugePages) && os::huge_pages();
            self.huge_pages = if given { HugePages::Given } else { HugePages::Refused };
        }
        self.huge_pages == HugePages::Given
    }

    /// Puts a huge page among the dirty runs, or, if the system has not made one of it, among the clean ones. A huge page costs an eighth
    /// of what its page faults would, and its blocks need one entry of the TLB. What is not used of it is purged like any dirty
    /// run.
    fn put_huge_page(&mut self, ground: Ground, page: &'static Span, made: bool) {
        if made {
            page.dirty.set(true);
            page.since_ms.set(os::now_ms());
        } else {
            self.huge_pages = HugePages::Refused;
        }
        self.large_blocks -= 1;
        self.link(ground, page);
    }
}
