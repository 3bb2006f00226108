//! Ample as a Rust program's allocator:
//!
//! ```
//! #[global_allocator]
//! static GLOBAL: ample_alloc::Ample = ample_alloc::Ample;
//!
//! assert_eq!(vec![1; 1000].len(), 1000);
//! ```
//!
//! [`options`] lists what the environment may set. [`Ample`] tells how the heap stands, and gives memory back.
//!
//! C code in the same process keeps its own malloc; to serve that too, preload or link `libample.so`.
#![no_std]

mod stay;

use core::alloc::{GlobalAlloc, Layout};

pub use ample_core::options;
pub use ample_core::{ClassStatistics, Parameter, Statistics};

/// Alignment of every block, in bytes.
const QUANTUM: usize = 16;

/// The allocator. All values stand for the same one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ample;

impl Ample {
    /// How the heap stands; [`Statistics::to_json`] writes it as JSON.
    pub fn statistics(self) -> Statistics {
        ample_core::statistics()
    }

    /// Gives free memory back to the system at once: that of this thread's caches, of idle threads' and of the page heap.
    /// Whether anything went back.
    pub fn trim(self) -> bool {
        ample_core::trim()
    }

    /// Sets one of the parameters that say when memory goes back to the system, and ends what is decided by itself otherwise.
    pub fn set(self, parameter: Parameter, bytes: usize) {
        ample_core::set_parameter(parameter, bytes);
    }

    /// A block of at least `size` bytes that has its cache lines to itself, for objects that several threads write to; null: no
    /// memory. [`GlobalAlloc::dealloc`] takes it back, with any layout.
    pub fn alloc_shared(self, size: usize) -> *mut u8 {
        stay::stay();
        ample_core::malloc_shared(size)
    }
}

// SAFETY: blocks are at least as long and as aligned as the layout says, do not overlap, and live until they are
// given back; nothing here unwinds.
unsafe impl GlobalAlloc for Ample {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > QUANTUM {
            stay::stay();
            return ample_core::malloc_aligned(layout.size(), layout.align());
        }
        let size = layout.size();
        // The size is often known here: then one of the fast paths is left.
        for fast in [ample_core::malloc_near, ample_core::malloc_far, ample_core::malloc_kept] {
            let block = fast(size);
            if !block.is_null() {
                return block;
            }
        }
        stay::stay();
        ample_core::malloc_slow(size)
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller gives a live block up.
        let taken = unsafe {
            match ample_core::free_fast(block) {
                ample_core::Fast::Taken => Ok(()),
                ample_core::Fast::Remote => ample_core::free_remote(block),
                ample_core::Fast::Full => ample_core::free_full(block),
            }
        };
        if let Err(unusual) = taken {
            // SAFETY: as above. The block is ours, by the contract of `GlobalAlloc`; the C library never calls this function.
            let _ = unsafe { ample_core::free_slow(block, unusual, || true) };
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        stay::stay();
        ample_core::malloc_zeroed(layout.size(), layout.align())
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller gives the block up unless the result is null.
        unsafe { ample_core::realloc(block, size, layout.align()) }.unwrap_or(core::ptr::null_mut())
    }
}
