//! The dirty runs by age, so that those that have been free longest are purged first.

use core::mem::offset_of;
use core::ptr;

use crate::span::Span;

/// A place in the queue: just after (newer than) the named run, or first of all after null; `None`: at the newest end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(Option<*mut Span>);

impl Place {
    pub(super) const NEWEST: Self = Self(None);

    pub(super) fn after(span: &Span) -> Self {
        Self(Some(ptr::from_ref(span).cast_mut()))
    }
}

/// A queue of runs, linked through their descriptors.
pub(super) struct Queue {
    oldest: *mut Span,
    newest: *mut Span,
    /// Units of all runs.
    units: usize,
}

impl Queue {
    pub(super) const fn new() -> Self {
        Self { oldest: ptr::null_mut(), newest: ptr::null_mut(), units: 0 }
    }

    /// Where [`Queue::units`] lies.
    pub(super) const fn place_of_units() -> usize {
        offset_of!(Self, units)
    }

    /// Units of all runs in it.
    pub(super) fn units(&self) -> usize {
        self.units
    }

    /// The run that has been in it longest.
    pub(super) fn oldest(&self) -> Option<&'static Span> {
        // SAFETY: queued descriptors are live, and descriptors' memory is never unmapped.
        unsafe { self.oldest.as_ref() }
    }

    /// Puts a run in at `place`.
    pub(super) fn insert(&mut self, span: &Span, place: Place) {
        let this = ptr::from_ref(span).cast_mut();
        self.units += span.units.get();
        let older = place.0.unwrap_or(self.newest);
        // SAFETY: queued descriptors are live.
        let newer = match unsafe { older.as_ref() } {
            Some(older) => older.newer.replace(this),
            None => core::mem::replace(&mut self.oldest, this),
        };
        span.older.set(older);
        span.newer.set(newer);
        // SAFETY: queued descriptors are live.
        match unsafe { newer.as_ref() } {
            Some(newer) => newer.older.set(this),
            None => self.newest = this,
        }
    }

    /// Takes a run out; where it was.
    pub(super) fn remove(&mut self, span: &Span) -> Place {
        self.units -= span.units.get();
        // SAFETY: queued descriptors are live.
        match unsafe { span.older.get().as_ref() } {
            Some(older) => older.newer.set(span.newer.get()),
            None => self.oldest = span.newer.get(),
        }
        // SAFETY: queued descriptors are live.
        match unsafe { span.newer.get().as_ref() } {
            Some(newer) => newer.older.set(span.older.get()),
            None => self.newest = span.older.get(),
        }
        Place(Some(span.older.get()))
    }
}
