//! Free runs by length (M. Masmano et al., "TLSF", 2004): a bin for each length or range of lengths, and a bit for each bin
//! that is occupied.

use core::ptr::NonNull;

use crate::span::{Span, SpanList};

/// Runs of up to this many units have a bin for each length.
const EXACT: usize = 64;
/// Bins: exact ones, then four a doubling.
pub(super) const BINS: usize = 192;
/// Spans looked at in a bin whose runs may be too short.
const LOOKS: usize = 8;
/// The bin of runs of `units` units.
pub(super) fn bin_of(units: usize) -> usize {
    if units <= EXACT {
        return units - 1;
    }
    let log = units.ilog2() as usize;
    EXACT + (log - 6) * 4 + (units >> (log - 2) & 3)
}

/// Free runs of one kind, by length.
pub(super) struct Bins {
    lists: [SpanList; BINS],
    occupied: [u64; BINS / 64],
}

impl Bins {
    pub(super) const fn new() -> Self {
        Self { lists: [const { SpanList::new() }; BINS], occupied: [0; BINS / 64] }
    }

    /// Puts a run in.
    pub(super) fn insert(&mut self, span: NonNull<Span>) {
        // SAFETY: the page heap passes live descriptors.
        let bin = bin_of(unsafe { span.as_ref() }.units.get());
        self.lists[bin].push(span);
        self.occupied[bin / 64] |= 1 << (bin % 64);
    }

    /// Takes a run out.
    pub(super) fn remove(&mut self, span: &Span) {
        let bin = bin_of(span.units.get());
        self.lists[bin].remove(span);
        if self.lists[bin].first().is_none() {
            self.occupied[bin / 64] &= !(1 << (bin % 64));
        }
    }

    /// All runs, nearly the longest first.
    pub(super) fn longest_first(&self) -> impl Iterator<Item = &'static Span> {
        let words = self.occupied.iter().enumerate().rev();
        let bins = words.flat_map(|(word, &bits)| {
            let highest = move |bits: &u64| 63 - bits.leading_zeros() as usize;
            let below = move |bits: &u64| Some(bits & !(1 << highest(bits))).filter(|&bits| bits != 0);
            core::iter::successors(Some(bits).filter(|&bits| bits != 0), below)
                .map(move |bits| word * 64 + highest(&bits))
        });
        bins.flat_map(|bin| core::iter::successors(self.lists[bin].first(), |&span| SpanList::after(span)))
    }

    /// A run of at least `units`, nearly the shortest.
    pub(super) fn find(&self, units: usize) -> Option<&'static Span> {
        let own = bin_of(units);
        let mut candidate = self.lists[own].first();
        for _ in 0..LOOKS {
            match candidate {
                Some(span) if span.units.get() >= units => return Some(span),
                Some(span) => candidate = SpanList::after(span),
                None => break,
            }
        }
        let mut bits = if own % 64 == 63 { 0 } else { self.occupied[own / 64] & !0 << (own % 64 + 1) };
        let mut word = own / 64;
        while bits == 0 {
            word += 1;
            bits = *self.occupied.get(word)?;
        }
        self.lists[word * 64 + bits.trailing_zeros() as usize].first()
    }
}
