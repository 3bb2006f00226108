//! Size classes: which block sizes exist, and which one serves a request.
//!
//! Sizes go up in steps of 16 bytes to 256, and in eight steps a doubling to 960 bytes. From 1 KiB on they are what [`LONG_LINES`] says: powers of two, their eighths to 4 KiB (twice two of them give one), and of each doubling
//! from there a sixteenth, a quarter, a half and three quarters, each of them a cache line longer, so that the beginnings of neighbouring blocks lie in different sets of the processor's caches. A block is at
//! most 12.5 % (from 128 bytes to 4 KiB; 13.3 % where 961 to 1024 are asked for) or 20 % larger than asked for. Sizes are multiples of 16, so every block is aligned to 16.

/// log2 of [`UNIT`].
pub(crate) const UNIT_SHIFT: u32 = 14;
/// Bytes of a unit, the grain of spans: 16 KiB.
pub(crate) const UNIT: usize = 1 << UNIT_SHIFT;
/// Bits of a class in a unit map entry.
pub(crate) const CLASS_BITS: u32 = 6;
/// Room for classes in tables indexed by class; not all are in use.
pub(crate) const CLASS_SLOTS: usize = 1 << CLASS_BITS;
/// Largest request that a size class serves, in bytes.
pub(crate) const SMALL_MAX: usize = (32 << 10) + LINE;
/// Granularity of the request table, and alignment of every block, in bytes.
pub(crate) const QUANTUM: usize = 16;
/// Size of a cache line, in bytes.
pub(crate) const LINE: usize = 64;
/// Blocks that a span can hold at most: 16 KiB of 16-byte blocks.
pub(crate) const SPAN_BLOCKS_MAX: usize = UNIT / QUANTUM;
/// Units that a span can have at most: 256 KiB.
pub(crate) const SPAN_UNITS_MAX: usize = 16;
/// A span is at most this part of its class, an eighth, unless it is one of the smallest.
const SPAN_SHARE: usize = 8;
/// Bytes of blocks that one magazine holds at most, unless that would be fewer than two blocks, in a heap whose magazines may not grow any further.
const MAGAZINE_CROWDED: usize = 16 << 10;
/// The same for a class that is little used, in any other heap.
const MAGAZINE_LEAST: usize = 32 << 10;
/// The same for a class that is used much.
const MAGAZINE_MOST: usize = 128 << 10;
/// Bytes of blocks of a class, at least two magazines, that a private depot holds in any order once it has held a few times as much: what fits into a core's caches costs little to
/// reach, wherever it lies.
const UNORDERED: usize = 256 << 10;
/// Magazines that wait in one inbox at most, and bytes of blocks that fill lines; beyond that, blocks go straight to their spans, so that a thread that sleeps does not keep memory.
const INBOX_MOST: usize = 32;
const INBOX_BYTES: usize = 1 << 20;
/// Bytes from which on a small block counts as long: a few of them are most of what a heap keeps.
pub(crate) const LONG: u32 = 1 << 10;
/// Bytes from which on it counts as bulky, half a unit: a thread that keeps one of each bulky class keeps more than of all others together.
const BULKY: u32 = 8 << 10;
/// Blocks that one magazine holds at most.
pub(crate) const MAGAZINE_SLOTS: usize = 125;

/// A size class: 1 is the smallest, 0 means 'none'.
pub(crate) type Class = usize;

/// What there is to know of one class, in sixteen bytes: a table of them is reached from an entry of the unit map by a shift.
#[derive(Clone, Copy)]
#[repr(align(16))]
pub(crate) struct ClassInfo {
    /// Bytes of a block.
    pub(crate) size: u32,
    /// ⌈2³² / size⌉: turns an offset in a span into a block's index by one multiplication.
    pub(crate) reciprocal: u32,
    /// Units of the smallest span.
    pub(crate) units: u8,
    /// How many times as long the largest span is.
    growth: u8,
    /// Blocks that a magazine of this class may hold in any case.
    pub(crate) magazine_crowded: u8,
    /// The same while the class is little used and the heap not crowded.
    pub(crate) magazine_least: u8,
    /// The same when it is used much.
    pub(crate) magazine_most: u8,
    /// Magazines that a private depot holds in any case, whatever the order of their blocks.
    pub(crate) unordered_most: u8,
    /// Magazines of any class that wait in an inbox at most when one of this class comes.
    pub(crate) inbox_most: u8,
    /// log2 of how far the places lie apart on which the first block of a span may begin, in bytes.
    pub(crate) colour_shift: u8,
}

const _: () = assert!(size_of::<ClassInfo>() == 16 && SPAN_UNITS_MAX <= u8::MAX as usize);

const NONE: ClassInfo = ClassInfo {
    size: 0,
    reciprocal: 0,
    units: 0,
    growth: 0,
    magazine_crowded: 0,
    magazine_least: 0,
    magazine_most: 0,
    unordered_most: 0,
    inbox_most: 0,
    colour_shift: 0,
};

impl ClassInfo {
    /// Whether blocks fill whole cache lines.
    const fn fills_lines(&self) -> bool {
        (self.size as usize).is_multiple_of(LINE)
    }

    /// Bytes of the blocks by which a magazine of `capacity` holds more than it may in any case.
    pub(crate) fn bytes_beyond(&self, capacity: u8) -> usize {
        usize::from(capacity.saturating_sub(self.magazine_crowded)) * self.size as usize
    }
}

/// The smallest span, in units, that holds enough blocks and wastes at most 1/16 of itself, or, of bulky blocks, 1/8.
const fn span_units(size: usize) -> usize {
    let (least, part) = if size < BULKY as usize { (8, 16) } else { (4, 8) };
    let mut units = 1;
    loop {
        let bytes = units * UNIT;
        if bytes / size >= least && bytes % size * part <= bytes {
            return units;
        }
        units += 1;
    }
}

/// [`ClassInfo::colour_shift`] of classes whose spans' first blocks begin at multiples of a line, or of two, and of those whose spans begin with a block: no run is so long.
const BY_LINES: u8 = LINE.ilog2() as u8;
const BY_PAIRS: u8 = BY_LINES + 1;
const UNCOLOURED: u8 = 63;

/// What is left over in a span of blocks that are an odd number of lines long, or more than [`NEAR_MAX`] bytes, is used for colours. Blocks of [`PAIRED`] bytes leave nothing over: their spans have a block less.
const fn colour_shift(size: usize) -> u8 {
    let lines = size / LINE;
    if size == PAIRED {
        BY_PAIRS
    } else if size.is_multiple_of(LINE) && (lines % 2 == 1 || lines > NEAR_MAX / LINE && lines != PAGE_LINES)
    {
        BY_LINES
    } else {
        UNCOLOURED
    }
}

/// Blocks of so many bytes, of one span, all begin in eight of the first cache's 64 sets, which have eight or twelve places each.
pub(crate) const PAIRED: usize = NEAR_MAX / 2;
/// [`span_growth`] of these: at most 127 of them lie in one span.
const PAIRED_GROWTH: usize = 4;

/// How many times as long as `units` a span of blocks of `size` bytes may be.
const fn span_growth(size: usize, units: usize) -> usize {
    if size == PAIRED {
        return PAIRED_GROWTH;
    }
    let mut growth = 1;
    while (growth + 1) * units <= SPAN_UNITS_MAX && (growth + 1) * units * UNIT / size <= SPAN_BLOCKS_MAX {
        growth += 1;
    }
    growth
}

/// Blocks of `size` bytes in a magazine of up to `bytes`, or an eighth of a block more: those of a power of two are a line longer.
const fn magazine(size: usize, bytes: usize) -> u8 {
    let fitting = (bytes + size / 8) / size;
    let blocks = if fitting < 2 {
        2
    } else if fitting > MAGAZINE_SLOTS {
        MAGAZINE_SLOTS
    } else {
        fitting
    };
    blocks as u8
}

/// Magazines in an inbox when one with `bytes` bytes of blocks comes.
const fn inbox(bytes: usize, fills_lines: bool) -> u8 {
    let fitting = if fills_lines { INBOX_BYTES / bytes } else { INBOX_MOST };
    (if fitting < INBOX_MOST { fitting } else { INBOX_MOST }) as u8
}

const fn info(size: usize) -> ClassInfo {
    let units = span_units(size);
    let magazine_most = magazine(size, MAGAZINE_MOST);
    let fills_lines = size.is_multiple_of(LINE);
    ClassInfo {
        size: size as u32,
        reciprocal: (1u64 << 32).div_ceil(size as u64) as u32,
        units: units as u8,
        growth: span_growth(size, units) as u8,
        magazine_crowded: magazine(size, MAGAZINE_CROWDED),
        magazine_least: magazine(size, MAGAZINE_LEAST),
        magazine_most,
        unordered_most: (UNORDERED / (size * magazine_most as usize)) as u8,
        inbox_most: inbox(size * magazine_most as usize, fills_lines),
        colour_shift: colour_shift(size),
    }
}

/// Blocks of more than [`NEAR_MAX`] bytes, in cache lines. All but those of [`PAGE_CLASS`] are an odd number of lines long, or twice one: neighbours begin in different sets of a cache, whose number is a
/// power of two. Blocks of 4 KiB would all begin in one of the first cache's 64 sets, which has eight or twelve places for all of them. (Y. Afek, D. Dice & A. Morrison,
/// "Cache Index-Aware Memory Allocation", ISMM 2011; in glibc and Lea's malloc a header before each block does the same.)
const LONG_LINES: [usize; 31] = [
    17, 19, 21, 23, 25, 27, 30, 33, 37, 41, 45, 49, 55, 61, PAGE_LINES, 65, 69, 81, 97, 113, 129, 137, 161,
    193, 225, 257, 273, 321, 385, 449, 513,
];

/// Length of a block of [`PAGE_CLASS`], in cache lines: 4 KiB.
const PAGE_LINES: usize = 64;

const fn build() -> ([ClassInfo; CLASS_SLOTS], usize) {
    let mut table = [NONE; CLASS_SLOTS];
    let mut count = 0;
    let mut size = QUANTUM;
    while size <= NEAR_MAX {
        count += 1;
        table[count] = info(size);
        size += if size < 256 { QUANTUM } else { (1 << size.ilog2()) / 8 };
    }
    let mut index = 0;
    while index < LONG_LINES.len() {
        count += 1;
        table[count] = info(LONG_LINES[index] * LINE);
        index += 1;
    }
    (table, count)
}

const BUILT: ([ClassInfo; CLASS_SLOTS], usize) = build();

/// Number of classes; they are 1 … `CLASSES`.
pub(crate) const CLASSES: usize = BUILT.1;

static INFO: [ClassInfo; CLASS_SLOTS] = BUILT.0;

/// Largest request that the table of near requests serves, in bytes.
pub(crate) const NEAR_MAX: usize = 1 << 10;

/// Class of a request of `size` bytes, up to [`NEAR_MAX`], at index `(size - 1) / 16`. Every heap has a copy, which
/// malloc reaches through the heap's address: one instruction and one cache line less than a table of its own.
pub(crate) type Near = [u8; NEAR_MAX / QUANTUM];

/// The classes of blocks that lie at multiples of 1 and of 4 KiB, for requests that say so. All others get the next one.
const NEAR_MAX_CLASS: Class = first(NEAR_MAX as u32);
const PAGE_CLASS: Class = first((PAGE_LINES * LINE) as u32);

/// Whether a class is for requests that say at multiples of what.
const fn is_aligned_only(class: Class) -> bool {
    class == NEAR_MAX_CLASS || class == PAGE_CLASS
}

/// Classes of the requests of `quantum`, 2 · `quantum`, … bytes.
const fn requests<const N: usize>(quantum: usize) -> [u8; N] {
    let mut table = [0; N];
    let mut class = 1;
    let mut index = 0;
    while index < N {
        while (index + 1) * quantum > BUILT.0[class].size as usize || is_aligned_only(class) {
            class += 1;
        }
        table[index] = class as u8;
        index += 1;
    }
    table
}

/// See [`Near`].
pub(crate) const NEAR: Near = requests(QUANTUM);
static NEAR_TABLE: Near = NEAR;

/// Class of a request of `size` bytes, above [`NEAR_MAX`], at index `(size - 1) / 64`.
static FAR: [u8; SMALL_MAX / LINE] = requests(LINE);

/// One bit for each class whose blocks fill lines and have `least` bytes or more.
const fn filling(least: u32) -> u64 {
    let mut bits = 0;
    let mut class = 1;
    while class <= CLASSES {
        let info = &BUILT.0[class];
        bits |= ((info.fills_lines() && info.size >= least) as u64) << class;
        class += 1;
    }
    bits
}

/// The first class of blocks of `least` bytes or more.
const fn first(least: u32) -> Class {
    let mut class = 1;
    while BUILT.0[class].size < least {
        class += 1;
    }
    class
}

/// The first class of long blocks, and how many there are.
pub(crate) const FIRST_LONG: Class = first(LONG);
pub(crate) const LONG_CLASSES: usize = CLASSES + 1 - FIRST_LONG;
/// The first bulky class, and how many there are.
pub(crate) const FIRST_BULKY: Class = first(BULKY);
pub(crate) const BULKY_CLASSES: usize = CLASSES + 1 - FIRST_BULKY;

const FILLING: u64 = filling(0);
const POOLED: u64 = filling(LONG);

/// Whether blocks of `class` fill whole cache lines. Only such blocks may circulate between threads: two threads that
/// own neighbouring blocks never share a line.
#[inline(always)]
pub(crate) fn fills_lines(class: Class) -> bool {
    FILLING >> (class % CLASS_SLOTS) & 1 != 0
}

/// Whether `class` is pooled: threads beyond as many as there are processors take its blocks from the arenas of those. They fill lines and are long.
/// Shorter ones of two threads would lie between each other, several to a page, and whoever goes through what it has built would go through the other's as well.
#[inline(always)]
pub(crate) fn is_pooled(class: Class) -> bool {
    POOLED >> (class % CLASS_SLOTS) & 1 != 0
}

const _: () = assert!(CLASSES < CLASS_SLOTS);
const _: () = assert!(BUILT.0[CLASSES].size as usize == SMALL_MAX);

/// The smallest class that fills lines and whose blocks are no smaller than those of `class`.
const fn filling_from(mut class: Class) -> Class {
    while !BUILT.0[class].fills_lines() {
        class += 1;
    }
    class
}

/// As [`NEAR`], with classes that fill lines only.
pub(crate) const NEAR_FILLING: Near = {
    let mut table = NEAR;
    let mut index = 0;
    while index < table.len() {
        table[index] = filling_from(table[index] as Class) as u8;
        index += 1;
    }
    table
};

/// The class that serves `size` bytes; `None` for 0 and for sizes above [`SMALL_MAX`].
#[cfg(test)]
pub(crate) fn class_of(size: usize) -> Option<Class> {
    near_class(&NEAR_TABLE, size).or_else(|| far_class(size))
}

/// The class that serves `size` bytes, by a copy of [`NEAR`]; `None` for 0 and for sizes above [`NEAR_MAX`].
#[inline(always)]
pub(crate) fn near_class(near: &Near, size: usize) -> Option<Class> {
    near.get(size.wrapping_sub(1) / QUANTUM).map(|&class| usize::from(class))
}

/// The class that serves `size` bytes, which are not near; `None` for 0 and for sizes above [`SMALL_MAX`].
#[inline(always)]
pub(crate) fn far_class(size: usize) -> Option<Class> {
    FAR.get(size.wrapping_sub(1) / LINE).map(|&class| usize::from(class))
}

/// Up to so many bytes classes for any request serve those at multiples of 128.
pub(crate) const PAIRS_MAX: usize = NEAR_MAX - 2 * LINE;

/// The class that serves `size` bytes, more than [`PAIRS_MAX`], at multiples of `align` (a power of two); `None`: no class does.
#[inline(always)]
pub(crate) fn far_aligned_class(size: usize, align: usize) -> Option<Class> {
    match size.max(align) {
        _ if align <= LINE => far_class(size),
        ..=NEAR_MAX => Some(NEAR_MAX_CLASS),
        most => (most <= PAGE_LINES * LINE).then_some(PAGE_CLASS),
    }
}

/// Whether the class that serves `size` bytes at multiples of `align` (a power of two) serves any request for `size` rounded up to a multiple of `align`, if that is near:
/// from 128 on up to [`PAIRS_MAX`], from 256 on up to 256 bytes, beyond never.
#[inline(always)]
pub(crate) fn is_near_aligned(size: usize, align: usize) -> bool {
    size.wrapping_add(align.wrapping_mul(5)) <= PAIRS_MAX + 5 * 2 * LINE
}

/// The class that serves `size` bytes at multiples of `align` (a power of two); `None`: no class does.
pub(crate) fn class_of_aligned(size: usize, align: usize) -> Option<Class> {
    if size > SMALL_MAX || align > UNIT {
        return None;
    }
    // A block is aligned if its size and its span's colour are multiples of the alignment. Up to NEAR_MAX, all multiples of a class's step are classes up to the next power of two: what
    // is a multiple of the alignment, too, is such a class, or below one that is. Colours are multiples of a line, those of PAIRED bytes of two.
    let size = (size.max(1) + align - 1) & !(align - 1);
    let uncoloured = if size == PAIRED && align > 2 * LINE { size + align } else { size };
    if uncoloured > PAIRS_MAX {
        return far_aligned_class(uncoloured, align);
    }
    near_class(&NEAR_TABLE, uncoloured)
}

impl ClassInfo {
    /// Blocks of a span of `units` units. One that is longer than the largest span should be holds no more than that.
    pub(crate) fn blocks(&self, units: usize) -> usize {
        units.min(self.next_units(usize::MAX)) * UNIT / self.size as usize
            - usize::from(self.colour_shift == BY_PAIRS)
    }

    /// How far behind a span's beginning its first block begins, in bytes, if it is the span of number `number` of its length in memory and `left` bytes are left over: spans one after the other begin on
    /// places one after the other, all of them within a page. (J. Bonwick's colouring, "The Slab Allocator", 1994.)
    pub(crate) fn colour(&self, number: usize, left: usize) -> usize {
        let places = ((left + LINE) >> self.colour_shift).clamp(1, PAGE_LINES);
        (number % places) << self.colour_shift
    }

    /// Units of the next span where the class has `owned` units already: spans grow with what they are part of, so that a busy
    /// class asks the page heap rarely, and a rare one takes little.
    pub(crate) fn next_units(&self, owned: usize) -> usize {
        let smallest = usize::from(self.units);
        smallest * (owned / (SPAN_SHARE * smallest)).clamp(1, self.growth.into())
    }

    /// Whether a class that has `owned` units already will soon use all of what it gets.
    pub(crate) fn is_busy(&self, owned: usize) -> bool {
        owned >= 2 * SPAN_SHARE * usize::from(self.units)
    }
}

/// The facts of a class in 1 … [`CLASSES`].
#[inline]
pub(crate) const fn of(class: Class) -> &'static ClassInfo {
    &INFO[class % CLASS_SLOTS]
}

#[cfg(test)]
mod tests;
