//! aarch64: the slot's offset from the thread pointer lies in the global offset table.

use core::arch::{asm, global_asm};

use crate::heap::{FRESH, Heap, Inert, Place};
use crate::size_class::Class;
use crate::units::Entry;

global_asm!(
    ".pushsection .tdata.ample_heap,\"awT\",@progbits",
    ".balign 8",
    ".hidden ample_heap",
    ".globl ample_heap",
    ".type ample_heap,@object",
    ".size ample_heap,8",
    "ample_heap: .xword {fresh}",
    ".popsection",
    fresh = sym FRESH,
);

const _: () = assert!(size_of::<Inert>() == size_of::<Heap>());

/// See the table in `mod.rs`.
#[inline(always)]
pub(crate) fn heap() -> &'static Heap {
    let heap: *const Heap;
    // SAFETY: reads the calling thread's slot, which always holds a pointer to a live heap: `FRESH`, which an
    // `Inert` consists of, or what `set_heap` stored.
    unsafe {
        asm!(
            "mrs {thread}, tpidr_el0",
            "adrp {heap}, :gottprel:ample_heap",
            "ldr {heap}, [{heap}, :gottprel_lo12:ample_heap]",
            "ldr {heap}, [{thread}, {heap}]",
            thread = out(reg) _,
            heap = out(reg) heap,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    // SAFETY: as above.
    unsafe { &*heap }
}

/// See the table in `mod.rs`.
#[inline(always)]
pub(crate) fn near_place(size: usize) -> Option<Place<'static>> {
    let heap = heap();
    heap.near_class(size).map(|class| heap.place(class))
}

/// See the table in `mod.rs`.
#[inline(always)]
pub(crate) fn place(class: Class) -> Place<'static> {
    heap().place(class)
}

/// See the table in `mod.rs`.
#[inline(always)]
pub(crate) fn own_place(entry: Entry) -> Option<Place<'static>> {
    heap().own_place(entry)
}

/// See the table in `mod.rs`.
pub(crate) fn set_heap(heap: &'static Heap) {
    // SAFETY: writes the calling thread's slot, which only this module uses.
    unsafe {
        asm!(
            "mrs {thread}, tpidr_el0",
            "adrp {offset}, :gottprel:ample_heap",
            "ldr {offset}, [{offset}, :gottprel_lo12:ample_heap]",
            "str {heap}, [{thread}, {offset}]",
            thread = out(reg) _,
            offset = out(reg) _,
            heap = in(reg) heap,
            options(nostack, preserves_flags),
        );
    }
}
