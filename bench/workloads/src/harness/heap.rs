//! How workloads allocate.
//!
//! A workload is written once, against [`Heap`]. The timed pass runs it on [`Plain`], which adds
//! nothing to the call but the test for NULL; other [passes](crate::pass) run it on
//! [`Checked`](super::canary::Checked), [`Timed`](super::timed::Timed) or
//! [`Counted`](super::counted::Counted).

use core::arch::asm;
use core::ptr::NonNull;

use super::failure::Failure;

/// Hides from the compiler where a pointer comes from, and claims that all memory was read and
/// written: pairs of malloc and free and stores to blocks stay. It costs no instruction.
#[inline(always)]
pub fn opaque(pointer: *mut u8) -> *mut u8 {
    let mut pointer = pointer;
    // SAFETY: the assembly is empty; the pointer comes out as it went in.
    unsafe { asm!("/* {0} */", inout(reg) pointer, options(nostack, preserves_flags)) };
    pointer
}

/// Allocates and frees blocks for one worker.
pub trait Heap: Send {
    /// A block as slots keep it.
    type Block: Copy + Send + Sync;

    /// The heap of worker number `owner`.
    fn of(owner: u32) -> Self;

    /// `malloc(size)`.
    ///
    /// # Errors
    /// The allocator returned NULL; checked heaps also: a block that is not as it must be.
    fn allocate(&mut self, size: usize) -> Result<Self::Block, Failure>;

    /// `aligned_alloc(alignment, size)`: `alignment` is a power of two, `size` a multiple of it.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    fn allocate_aligned(&mut self, alignment: usize, size: usize) -> Result<Self::Block, Failure>;

    /// Writes the byte at `offset`.
    ///
    /// # Errors
    /// Checked heaps: the byte lost its content.
    ///
    /// # Safety
    /// The block is live and longer than `offset`, and nobody else uses that byte meanwhile.
    unsafe fn write(&self, block: Self::Block, offset: usize) -> Result<(), Failure>;

    /// Writes the block's first `size` bytes, as `memset` does.
    ///
    /// # Errors
    /// Checked heaps: the block lost its content.
    ///
    /// # Safety
    /// The block is live and has at least `size` bytes, and nobody else uses it meanwhile.
    unsafe fn fill(&self, block: Self::Block, size: usize) -> Result<(), Failure>;

    /// Reads the block's first `size` bytes and compares them with what [`fill`](Self::fill) wrote.
    ///
    /// # Errors
    /// The block lost its content.
    ///
    /// # Safety
    /// The block is live, was filled with at least `size` bytes, and nobody else writes to it meanwhile.
    unsafe fn read_back(&self, block: Self::Block, size: usize) -> Result<(), Failure>;

    /// Writes one byte in each 4096 of the block's first `size`: its pages become resident.
    ///
    /// # Errors
    /// Checked heaps: a byte lost its content.
    ///
    /// # Safety
    /// As [`fill`](Self::fill).
    #[inline]
    unsafe fn touch(&self, block: Self::Block, size: usize) -> Result<(), Failure> {
        for offset in (0..size).step_by(4096) {
            // SAFETY: the caller vouches for the block, and the offset is below its size.
            unsafe { self.write(block, offset)? };
        }
        Ok(())
    }

    /// `realloc(block, new_size)`; `new_size` is not 0.
    ///
    /// # Errors
    /// The allocator returned NULL, and the old block is lost to the caller; checked heaps also: the
    /// content that both sizes have in common was lost, or the new block is not as it must be.
    ///
    /// # Safety
    /// The block is live, has `old_size` bytes, and nobody uses it from now on.
    unsafe fn resize(
        &mut self,
        block: Self::Block,
        old_size: usize,
        new_size: usize,
    ) -> Result<Self::Block, Failure>;

    /// `free(block)`.
    ///
    /// # Errors
    /// Checked heaps: the block lost its content.
    ///
    /// # Safety
    /// The block is live, whichever worker's heap of the same type it comes from, and nobody uses
    /// it from now on.
    unsafe fn free(&mut self, block: Self::Block) -> Result<(), Failure>;

    /// Address of the block.
    fn address(block: Self::Block) -> usize;
}

/// A block's address, and nothing else: 8 bytes in a slot.
#[derive(Debug, Clone, Copy)]
pub struct Address(pub(super) NonNull<u8>);

// SAFETY: a block belongs to no thread; who may touch it when is up to the callers of `Heap`.
unsafe impl Send for Address {}
// SAFETY: as above; a shared `Address` gives no access without the unsafe functions of `Heap`.
unsafe impl Sync for Address {}

/// What [`Plain`] fills blocks with.
const FILLED: u8 = 0x5A;

/// The failure of a block with this content, which is not what was filled in.
#[cold]
fn lost(address: usize, content: &[u8]) -> Failure {
    let offset = content.iter().position(|&byte| byte != FILLED).unwrap_or(0);
    Failure::LostContent { address, size: content.len(), offset }
}

/// The malloc family as the dynamic linker binds it, and nothing around it.
#[derive(Debug)]
pub struct Plain;

impl Heap for Plain {
    type Block = Address;

    fn of(_owner: u32) -> Self {
        Self
    }

    #[inline(always)]
    fn allocate(&mut self, size: usize) -> Result<Address, Failure> {
        // SAFETY: malloc takes any size.
        let pointer = unsafe { libc::malloc(size) };
        NonNull::new(opaque(pointer.cast())).map(Address).ok_or(Failure::Null { size })
    }

    #[inline(always)]
    fn allocate_aligned(&mut self, alignment: usize, size: usize) -> Result<Address, Failure> {
        // SAFETY: aligned_alloc takes any arguments; it returns NULL for those that it rejects.
        let pointer = unsafe { libc::aligned_alloc(alignment, size) };
        NonNull::new(opaque(pointer.cast())).map(Address).ok_or(Failure::Null { size })
    }

    #[inline(always)]
    unsafe fn write(&self, block: Address, offset: usize) -> Result<(), Failure> {
        // SAFETY: the caller vouches that the block is live and longer than `offset`.
        unsafe { block.0.add(offset).write_volatile(offset as u8) };
        Ok(())
    }

    #[inline(always)]
    unsafe fn fill(&self, block: Address, size: usize) -> Result<(), Failure> {
        // SAFETY: the caller vouches that the block is live and has `size` bytes.
        unsafe { block.0.write_bytes(FILLED, size) };
        opaque(block.0.as_ptr());
        Ok(())
    }

    #[inline(always)]
    unsafe fn read_back(&self, block: Address, size: usize) -> Result<(), Failure> {
        opaque(block.0.as_ptr());
        // SAFETY: the caller vouches that the block is live, that these bytes were written, and that
        // nobody writes to them meanwhile.
        let content = unsafe { NonNull::slice_from_raw_parts(block.0, size).as_ref() };
        match content.iter().fold(0, |differing, byte| differing | (byte ^ FILLED)) {
            0 => Ok(()),
            _ => Err(lost(Self::address(block), content)),
        }
    }

    #[inline(always)]
    unsafe fn resize(&mut self, block: Address, _: usize, new_size: usize) -> Result<Address, Failure> {
        // SAFETY: the caller vouches that the block is live and no longer used.
        let pointer = unsafe { libc::realloc(block.0.as_ptr().cast(), new_size) };
        NonNull::new(opaque(pointer.cast())).map(Address).ok_or(Failure::Null { size: new_size })
    }

    #[inline(always)]
    unsafe fn free(&mut self, block: Address) -> Result<(), Failure> {
        // SAFETY: the caller vouches that the block is live and no longer used.
        unsafe { libc::free(block.0.as_ptr().cast()) };
        Ok(())
    }

    fn address(block: Address) -> usize {
        block.0.as_ptr() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_that_differs_from_what_was_filled_in_is_found() {
        let block = Plain.allocate(100).expect("allocated");
        // SAFETY: the block is live and 100 bytes long.
        unsafe { Plain.fill(block, 100) }.expect("filled");
        // SAFETY: as above, and it was filled.
        assert_eq!(unsafe { Plain.read_back(block, 100) }, Ok(()));
        // SAFETY: as above.
        unsafe { Plain.write(block, 42) }.expect("written");
        let address = Plain::address(block);
        // SAFETY: as above.
        let found = unsafe { Plain.read_back(block, 100) };
        assert_eq!(found, Err(Failure::LostContent { address, size: 100, offset: 42 }));
        // SAFETY: the block is live and no longer used.
        unsafe { Plain.free(block) }.expect("freed");
    }
}

#[cfg(test)]
pub mod recording {
    //! A heap that remembers what a workload asked of it.

    use super::*;

    /// [`Plain`], with a record of the requests.
    #[derive(Debug, Default)]
    pub struct Recording {
        /// Size of each block ever allocated, in order.
        pub sizes: Vec<usize>,
        /// Indices into `sizes` of the blocks freed, in order.
        pub freed: Vec<usize>,
        /// Bytes allocated and not yet freed, now.
        pub live_bytes: usize,
        /// The most that `live_bytes` ever was.
        pub peak_live_bytes: usize,
    }

    impl Heap for Recording {
        type Block = (Address, usize);

        fn of(_owner: u32) -> Self {
            Self::default()
        }

        fn allocate(&mut self, size: usize) -> Result<Self::Block, Failure> {
            let block = Plain.allocate(size)?;
            self.sizes.push(size);
            self.live_bytes += size;
            self.peak_live_bytes = self.peak_live_bytes.max(self.live_bytes);
            Ok((block, self.sizes.len() - 1))
        }

        fn allocate_aligned(&mut self, _alignment: usize, size: usize) -> Result<Self::Block, Failure> {
            self.allocate(size)
        }

        unsafe fn write(&self, (block, _): Self::Block, offset: usize) -> Result<(), Failure> {
            // SAFETY: the caller vouches for it.
            unsafe { Plain.write(block, offset) }
        }

        unsafe fn fill(&self, (block, _): Self::Block, size: usize) -> Result<(), Failure> {
            // SAFETY: the caller vouches for it.
            unsafe { Plain.fill(block, size) }
        }

        unsafe fn read_back(&self, (block, _): Self::Block, size: usize) -> Result<(), Failure> {
            // SAFETY: the caller vouches for it.
            unsafe { Plain.read_back(block, size) }
        }

        unsafe fn resize(
            &mut self,
            (block, index): Self::Block,
            old_size: usize,
            new_size: usize,
        ) -> Result<Self::Block, Failure> {
            assert_eq!(self.sizes[index], old_size);
            // SAFETY: the caller vouches for it.
            let block = unsafe { Plain.resize(block, old_size, new_size)? };
            self.freed.push(index);
            self.sizes.push(new_size);
            self.live_bytes = self.live_bytes - old_size + new_size;
            self.peak_live_bytes = self.peak_live_bytes.max(self.live_bytes);
            Ok((block, self.sizes.len() - 1))
        }

        unsafe fn free(&mut self, (block, index): Self::Block) -> Result<(), Failure> {
            self.freed.push(index);
            self.live_bytes -= self.sizes[index];
            // SAFETY: the caller vouches for it.
            unsafe { Plain.free(block) }
        }

        fn address((block, _): Self::Block) -> usize {
            Plain::address(block)
        }
    }
}
