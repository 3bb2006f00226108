//! x86-64: the slot's offset from the thread pointer lies in the global offset table.

use core::arch::{asm, global_asm};

use super::{FRESH, Inert};
use crate::heap::Heap;

global_asm!(
    ".pushsection .tdata.ample_heap,\"awT\",@progbits",
    ".balign 8",
    ".hidden ample_heap",
    ".globl ample_heap",
    ".type ample_heap,@object",
    ".size ample_heap,8",
    "ample_heap: .quad {fresh}",
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
            "mov {heap}, qword ptr [rip + ample_heap@GOTTPOFF]",
            "mov {heap}, qword ptr fs:[{heap}]",
            heap = out(reg) heap,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    // SAFETY: as above.
    unsafe { &*heap }
}

/// See the table in `mod.rs`.
pub(crate) fn set_heap(heap: &'static Heap) {
    // SAFETY: writes the calling thread's slot, which only this module uses.
    unsafe {
        asm!(
            "mov {offset}, qword ptr [rip + ample_heap@GOTTPOFF]",
            "mov qword ptr fs:[{offset}], {heap}",
            offset = out(reg) _,
            heap = in(reg) heap,
            options(nostack, preserves_flags),
        );
    }
}
