//! x86-64: the slot's offset from the thread pointer lies in the global offset table. Beside the heap, the slot holds copies of what the fast paths look at
//! before they know the class, so that one instruction adds the heap's address to the offset at which the class stands in it. The compiler does not see through that sum, and
//! so cannot put it into the address of each access: some processors (Intel's since Golden Cove) forward a recent store to a load at no cost, but not if the address has an index.

use core::arch::{asm, global_asm};

use crate::heap::{FRESH, Heap, Inert, Place};
use crate::size_class::{CLASS_SLOTS, Class, Near, QUANTUM};
use crate::units::{CLASS_SHIFT, Entry};

/// A thread's slot. All zeros but for the heap are true of any heap: class 0 has neither blocks nor room.
#[repr(C)]
struct Local {
    heap: *const Heap,
    /// What the heap looks at in an entry of the unit map.
    mask: usize,
    /// How far the place for each near request lies from the start of the heap, in bytes.
    near: [u16; NEAR_REQUESTS],
}

const NEAR_REQUESTS: usize = size_of::<Near>();
const MASK: usize = core::mem::offset_of!(Local, mask);
const NEAR: usize = core::mem::offset_of!(Local, near);
const _: () = assert!(core::mem::offset_of!(Local, heap) == 0);
const _: () = assert!(CLASS_SLOTS << CLASS_SHIFT <= u16::MAX as usize);

global_asm!(
    ".pushsection .tdata.ample_heap,\"awT\",@progbits",
    ".balign 8",
    ".hidden ample_heap",
    ".globl ample_heap",
    ".type ample_heap,@object",
    ".size ample_heap,{size}",
    "ample_heap: .quad {fresh}",
    ".zero {size} - 8",
    ".popsection",
    fresh = sym FRESH,
    size = const size_of::<Local>(),
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
#[inline(always)]
pub(crate) fn near_place(size: usize) -> Option<Place<'static>> {
    let index = size.wrapping_sub(1) / QUANTUM;
    if index >= NEAR_REQUESTS {
        return None;
    }
    let place: *const u8;
    // SAFETY: reads the calling thread's slot, within the table.
    unsafe {
        asm!(
            "mov {slot}, qword ptr [rip + ample_heap@GOTTPOFF]",
            "movzx {place:e}, word ptr fs:[{slot} + 2 * {index} + {near}]",
            "add {place}, qword ptr fs:[{slot}]",
            slot = out(reg) _,
            place = out(reg) place,
            index = in(reg) index,
            near = const NEAR,
            options(pure, readonly, nostack),
        );
    }
    // SAFETY: the place of a class in the heap, which is live.
    Some(unsafe { Place::at(place) })
}

/// See the table in `mod.rs`.
#[inline(always)]
pub(crate) fn place(class: Class) -> Place<'static> {
    debug_assert!(class < CLASS_SLOTS);
    let place: *const u8;
    // SAFETY: reads the calling thread's slot.
    unsafe {
        asm!(
            "mov {slot}, qword ptr [rip + ample_heap@GOTTPOFF]",
            "add {place}, qword ptr fs:[{slot}]",
            slot = out(reg) _,
            place = inout(reg) class << CLASS_SHIFT => place,
            options(pure, readonly, nostack),
        );
    }
    // SAFETY: the place of a class in the heap, which is live.
    unsafe { Place::at(place) }
}

/// See the table in `mod.rs`.
#[inline(always)]
pub(crate) fn own_place(entry: Entry) -> Option<Place<'static>> {
    let (slot, left): (usize, usize);
    // SAFETY: reads the calling thread's slot. (Writing to the lower half of a register clears the upper one.)
    unsafe {
        asm!(
            "mov {slot}, qword ptr [rip + ample_heap@GOTTPOFF]",
            "and {left:e}, dword ptr fs:[{slot} + {mask}]",
            slot = out(reg) slot,
            left = inout(reg) entry as usize => left,
            mask = const MASK,
            options(pure, readonly, nostack),
        );
    }
    if left >= CLASS_SLOTS << CLASS_SHIFT {
        return None;
    }
    let place: *const u8;
    // SAFETY: as above.
    unsafe {
        asm!(
            "add {place}, qword ptr fs:[{slot}]",
            place = inout(reg) left => place,
            slot = in(reg) slot,
            options(pure, readonly, nostack),
        );
    }
    // SAFETY: the place of a class in the heap, which is live.
    Some(unsafe { Place::at(place) })
}

/// See the table in `mod.rs`.
#[inline(never)]
pub(crate) fn set_heap(heap: &'static Heap) {
    let local: *mut Local;
    // SAFETY: the address of the calling thread's slot: its offset and the thread pointer, which lies where that points to.
    unsafe {
        asm!(
            "mov {slot}, qword ptr fs:[0]",
            "add {slot}, qword ptr [rip + ample_heap@GOTTPOFF]",
            slot = out(reg) local,
            options(pure, readonly, nostack),
        );
    }
    // SAFETY: the slot, which only this thread and this module use. In a signal handler in between any heap goes with any copies: inert ones have neither blocks
    // nor room in any class.
    let local = unsafe { &mut *local };
    local.heap = heap;
    local.mask = heap.mask.get();
    for (place, class) in local.near.iter_mut().zip(heap.near()) {
        *place = u16::from(*class) << CLASS_SHIFT;
    }
}
