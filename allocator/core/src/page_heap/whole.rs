//! Whole system pages, where these are larger than a unit: the system takes back nothing less.

use super::{Ground, PageHeap, ptr};
use crate::os;
use crate::span::Span;
use crate::units::UNIT;

impl PageHeap {
    /// The part of a dirty run that was put aside that consists of whole pages, and what was cut off before and behind it. Where there is
    /// none, or no memory for a record, the run as it is.
    pub(super) fn whole_pages(
        &mut self,
        ground: Ground,
        run: &'static Span,
    ) -> (&'static Span, [Option<&'static Span>; 2]) {
        let page = os::page_size();
        let start = run.start.get().next_multiple_of(page);
        let end = run.end() / page * page;
        if page <= UNIT || start >= end {
            return (run, [None, None]);
        }
        let (whole, before) = match (start - run.start.get()) / UNIT {
            0 => (run, None),
            units => match self.split(ground, run, units) {
                Some(whole) => (whole, Some(run)),
                None => (run, None),
            },
        };
        let units = end.saturating_sub(whole.start.get()) / UNIT;
        let behind = if whole.units.get() > units { self.split(ground, whole, units) } else { None };
        for part in [Some(whole), before, behind].into_iter().flatten() {
            ground.units.set_ends(part.start.get(), part.units.get(), ptr(part));
        }
        (whole, [before, behind])
    }
}
