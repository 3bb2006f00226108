//! A heap that only counts: what a worker would hold, without a block being allocated.
//!
//! A worker whose choices depend on its parameters alone does the same on this heap as on a real
//! one, so that its peak of live bytes is known without a counter in the measured loop.

use super::failure::Failure;
use super::heap::Heap;

/// Counts live bytes; a block is its size.
#[derive(Debug, Default)]
pub struct Tally {
    live_bytes: u64,
    /// The most bytes that were live at once.
    pub peak_live_bytes: u64,
}

impl Heap for Tally {
    type Block = usize;

    fn of(_owner: u32) -> Self {
        Self::default()
    }

    fn allocate(&mut self, size: usize) -> Result<usize, Failure> {
        self.live_bytes += size as u64;
        self.peak_live_bytes = self.peak_live_bytes.max(self.live_bytes);
        Ok(size)
    }

    fn allocate_aligned(&mut self, _alignment: usize, size: usize) -> Result<usize, Failure> {
        self.allocate(size)
    }

    unsafe fn write(&self, _block: usize, _offset: usize) -> Result<(), Failure> {
        Ok(())
    }

    unsafe fn fill(&self, _block: usize, _size: usize) -> Result<(), Failure> {
        Ok(())
    }

    unsafe fn read_back(&self, _block: usize, _size: usize) -> Result<(), Failure> {
        Ok(())
    }

    unsafe fn touch(&self, _block: usize, _size: usize) -> Result<(), Failure> {
        Ok(())
    }

    /// Counts as in place: the two blocks are not live at once.
    unsafe fn resize(&mut self, block: usize, _: usize, new_size: usize) -> Result<usize, Failure> {
        self.live_bytes -= block as u64;
        self.allocate(new_size)
    }

    unsafe fn free(&mut self, block: usize) -> Result<(), Failure> {
        self.live_bytes -= block as u64;
        Ok(())
    }

    /// A tally's blocks have no address.
    fn address(_block: usize) -> usize {
        0
    }
}
