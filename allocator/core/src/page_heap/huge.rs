//! Huge pages for large heaps of small blocks.

use super::{Ground, PageHeap};
use crate::options::Name;
use crate::os;
use crate::span::Use;
use crate::units::{CHUNK, UNIT};

/// Units in spans of small blocks from which on fresh ones come in huge pages: 8 MiB. The unused part of a huge page is a
/// quarter of the heap at most, and less the larger the heap.
pub(super) const HUGE_FROM: usize = (8 << 20) / UNIT;
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

impl PageHeap {
    /// Whether a run of `wanted` units for small blocks should come from a fresh huge page: many small blocks live, and no dirty
    /// run is long enough.
    pub(super) fn wants_huge_page(&mut self, ground: Ground, wanted: usize) -> bool {
        if self.small_units < HUGE_FROM || wanted > CHUNK / UNIT || self.dirty.find(wanted).is_some() {
            return false;
        }
        if self.huge_pages == HugePages::Unknown {
            let given = ground.options.is_on(Name::HugePages) && os::huge_pages();
            self.huge_pages = if given { HugePages::Given } else { HugePages::Refused };
        }
        self.huge_pages == HugePages::Given
    }

    /// Makes a huge page resident, as a dirty run. It costs an eighth of what its page faults would, and its blocks need one
    /// entry of the TLB. What is not used of it is purged like any dirty run.
    pub(super) fn add_huge_page(&mut self, ground: Ground) {
        let Some(page) = self.allocate(ground, CHUNK / UNIT, CHUNK, Use::Large) else { return };
        // SAFETY: the run is ours alone.
        if unsafe { os::collapse(page.start.get(), CHUNK) } {
            page.dirty.set(true);
            page.since_ms.set(os::now_ms());
        } else {
            self.huge_pages = HugePages::Refused;
        }
        self.large_blocks -= 1;
        self.link(ground, page);
    }
}
