//! Where the figures of the heap lie, for who looks at a process from outside: a debugger, or `ample observe --pid`. They are read without locks, and each by itself.
//! (CPython tells in the same way where its objects lie: `_Py_DebugOffsets`.)
//!
//! Who looks finds the record by its first 16 bytes, at a multiple of 8 in what the library, or the program that it is linked to, can write to.

use crate::arena::Arena;
use crate::meta::Meta;
use crate::page_heap::{PAGE_HEAPS, PageHeaps};
use crate::sync::Lock;
use crate::units::{ARENAS, UNIT};

/// The first bytes of the record.
const MAGIC: [u8; 16] = *b"ample's figures\n";
/// Of what follows: another number means another record.
const VERSION: u32 = 1;

/// See the module. Lengths and distances are in bytes.
#[repr(C, align(8))]
pub(crate) struct Outside {
    magic: [u8; 16],
    version: u32,
    /// Of a unit, which page heaps count in.
    unit: u32,
    /// How far before this record the allocator begins.
    before: u32,
    /// In the allocator: bytes for its own records.
    metadata: u32,
    /// In the allocator: the address of its tables.
    tables: u32,
    /// In the tables: the first of the arenas' addresses; how many there can be. The first is 0, and so are all behind the last one.
    arenas: u32,
    arenas_most: u32,
    /// In an arena: bytes of blocks in spans that are not handed out.
    room: u32,
    /// In the tables: the first page heap; how far each is from the next; how many there can be.
    page_heaps: u32,
    page_heap: u32,
    page_heaps_most: u32,
    /// In a page heap: units got from the system, in free runs, in those that the system has not got back, in spans of small blocks, in starters; how many large
    /// blocks there are.
    units: [u32; 6],
}

/// Where in an allocator its parts lie.
pub(crate) struct Parts {
    pub(crate) outside: usize,
    pub(crate) meta: usize,
    pub(crate) tables: usize,
    /// In the tables.
    pub(crate) arenas: usize,
    pub(crate) pages: usize,
}

impl Outside {
    /// The record of an allocator whose parts lie there.
    pub(crate) const fn new(parts: Parts) -> Self {
        let ([page_heaps, page_heap], places) = (PageHeaps::place(), PageHeaps::places_of_units());
        let mut units = [0; 6];
        let mut index = 0;
        while index < units.len() {
            units[index] = places[index] as u32;
            index += 1;
        }
        Self {
            magic: MAGIC,
            version: VERSION,
            unit: UNIT as u32,
            before: parts.outside as u32,
            metadata: (parts.meta + Lock::<Meta>::inside() + Meta::place_of_mapped()) as u32,
            tables: parts.tables as u32,
            arenas: parts.arenas as u32,
            arenas_most: ARENAS as u32,
            room: Arena::place_of_room() as u32,
            page_heaps: (parts.pages + page_heaps) as u32,
            page_heap: page_heap as u32,
            page_heaps_most: PAGE_HEAPS as u32,
            units,
        }
    }
}
