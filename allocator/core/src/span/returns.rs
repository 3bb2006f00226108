//! Blocks that come back to their span.

use core::mem;

use super::{Span, WORDS, ones};
use crate::magazine::Slot;
use crate::size_class::{ClassInfo, UNIT};
use crate::sync;

/// What is said when a block is freed twice.
pub(crate) const FREE_ALREADY: &str = "ample: free of a block that is free already\n";

/// How many of `blocks`, at least one, lie `step` bytes apart: the first and those after it.
#[inline(always)]
fn run(blocks: &[Slot], step: usize) -> usize {
    let first = blocks[0].get().addr();
    let (mut expected, mut count) = (first, 0);
    let mut follows = |slot: &Slot| {
        let follows = slot.get().addr() == expected;
        expected = expected.wrapping_add(step);
        follows
    };
    // Sixteen at once: the loop's own cost is more than a comparison's.
    for [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] in blocks.as_chunks().0 {
        let four = follows(a) && follows(b) && follows(c) && follows(d);
        let eight = four && follows(e) && follows(f) && follows(g) && follows(h);
        let twelve = eight && follows(i) && follows(j) && follows(k) && follows(l);
        if !(twelve && follows(m) && follows(n) && follows(o) && follows(p)) {
            break;
        }
        count += 16;
    }
    let at = |count: usize| first.wrapping_add(count.wrapping_mul(step));
    while count < blocks.len() && blocks[count].get().addr() == at(count) {
        count += 1;
    }
    count
}

/// How many bytes the first three of `blocks` lie apart if they are neighbours in memory, upwards or downwards; else 0. (Two would not be worth it: the loop
/// for many is dear for them.)
#[inline(always)]
fn step(blocks: &[Slot], size: usize) -> usize {
    let [first, second, third, ..] = blocks else { return 0 };
    let second = second.get().addr();
    let step = second.wrapping_sub(first.get().addr());
    let even = third.get().addr().wrapping_sub(second) == step;
    if even && (step == size || step == size.wrapping_neg()) { step } else { 0 }
}

/// A bit for each byte, all of which are 0 or 1, the first one's the lowest.
#[inline(always)]
fn gather(bytes: [u8; 8]) -> u64 {
    // Each bit of the factor moves one byte's to the top one, where it belongs; the others fall out above or stay below.
    u64::from_le_bytes(bytes).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

impl Span {
    /// Takes back the first one of `blocks`, which lies in this span, and those after it that do; how many those are. Ends the process if one of
    /// them cannot be a block of this span that is handed out: a pointer into the middle of a block, or a block that was freed twice.
    #[inline(always)]
    pub(crate) fn take_back(&self, info: &ClassInfo, blocks: &[Slot]) -> usize {
        let block = blocks[0].get().addr();
        let taken = match blocks.get(1) {
            Some(next) if (block ^ next.get().addr()) < UNIT => self.take_several_back(info, blocks),
            // Blocks that are freed in no order at all lie in other spans each.
            _ => {
                self.set_one_free(self.index(info, block.wrapping_sub(self.start.get())));
                1
            }
        };
        self.freed.set(self.freed.get() + taken as u16);
        self.riddled.set(true);
        taken
    }

    /// Takes back one block, which lies in this span, unless that would change what the span is for its arena: it is not listed, or would be empty. Ends the process
    /// as [`Span::take_back`] does.
    #[inline(always)]
    pub(crate) fn take_one_back(&self, info: &ClassInfo, block: usize) -> bool {
        let freed = self.freed.get() + 1;
        if !self.listed.get() || freed == self.fresh.get() {
            return false;
        }
        self.set_one_free(self.index(info, block.wrapping_sub(self.start.get())));
        self.freed.set(freed);
        self.riddled.set(true);
        true
    }

    /// The index of the block that begins `offset` bytes from the first one and is handed out. Ends the process if none does, as where `offset` is one before the first: nearly 2⁶⁴.
    #[inline(always)]
    fn index(&self, info: &ClassInfo, offset: usize) -> usize {
        let index = ((offset as u64).wrapping_mul(info.reciprocal.into()) >> 32) as usize;
        if index * info.size as usize != offset || index >= usize::from(self.fresh.get()) {
            sync::die("ample: free of a pointer that malloc did not return\n");
        }
        index
    }

    /// Sets the bits of the leading ones of `blocks` that lie in this span; how many those are. Neighbours in memory that are neighbours in `blocks`, as they are
    /// where a program frees in the order in which it allocated or in the opposite one, are found together.
    #[inline(never)]
    fn take_several_back(&self, info: &ClassInfo, blocks: &[Slot]) -> usize {
        let mut taken = 0;
        while taken < blocks.len() {
            let rest = &blocks[taken..];
            let step = step(rest, info.size as usize);
            if step == 0 {
                return taken + self.set_several_free(info, rest);
            }
            let Some(offset) = self.offset(info, &rest[0]) else { break };
            taken += self.set_run_free(self.index(info, offset), step, rest);
        }
        taken
    }

    /// Sets the bits of the leading ones of `blocks` that lie in this span, in whatever order; how many those are. Ends the process if one of them is set.
    ///
    /// By way of a byte for each block: who sets bits one after the other waits for each that lies in the word of the one before, or guesses wrong that it does.
    #[inline(never)]
    fn set_several_free(&self, info: &ClassInfo, blocks: &[Slot]) -> usize {
        let mut bytes = [[0u8; 64]; WORDS];
        let mut touched = 0u32;
        let mut count = 0;
        for slot in blocks {
            let Some(offset) = self.offset(info, slot) else { break };
            let index = self.index(info, offset);
            if mem::replace(&mut bytes.as_flattened_mut()[index % (WORDS * 64)], 1) != 0 {
                sync::die(FREE_ALREADY);
            }
            touched |= 1 << (index / 64);
            count += 1;
        }
        while touched != 0 {
            let at = touched.trailing_zeros() as usize % WORDS;
            touched &= touched - 1;
            let eights = bytes[at].as_chunks().0.iter().rev();
            let bits = eights.fold(0, |bits, eight| bits << 8 | gather(*eight));
            let word = &self.free[at];
            if word.get() & bits != 0 {
                sync::die(FREE_ALREADY);
            }
            word.set(word.get() | bits);
        }
        count
    }

    /// How far from the first block a block of this span begins, in bytes.
    #[inline(always)]
    pub(super) fn offset(&self, info: &ClassInfo, block: &Slot) -> Option<usize> {
        let offset = block.get().addr().wrapping_sub(self.start.get());
        if offset < self.blocks() * info.size as usize { Some(offset) } else { None }
    }

    /// Sets the bits of the first one of `blocks`, whose index is given, and of those after it that lie `step` bytes apart, a block's size up or down; how many
    /// those are.
    #[inline(never)]
    fn set_run_free(&self, index: usize, step: usize, blocks: &[Slot]) -> usize {
        let upwards = step < usize::MAX / 2;
        let most = if upwards { usize::from(self.fresh.get()) - index } else { index + 1 };
        let count = run(&blocks[..blocks.len().min(most)], step);
        self.set_free(if upwards { index } else { index + 1 - count }, count);
        count
    }

    /// Sets the bit of a block. Ends the process if it is set.
    #[inline(always)]
    fn set_one_free(&self, index: usize) {
        let (word, bit) = (&self.free[index / 64 % WORDS], 1 << (index % 64));
        if word.get() & bit != 0 {
            sync::die(FREE_ALREADY);
        }
        word.set(word.get() | bit);
    }

    /// Sets the bits of `count` blocks from `first` on. Ends the process if one of them is set.
    fn set_free(&self, first: usize, count: usize) {
        let (mut index, end) = (first, first + count);
        while index < end {
            let word = &self.free[index / 64];
            let bits = (64 - index % 64).min(end - index);
            let mask = ones(bits) << (index % 64);
            if word.get() & mask != 0 {
                sync::die(FREE_ALREADY);
            }
            word.set(word.get() | mask);
            index += bits;
        }
    }
}
