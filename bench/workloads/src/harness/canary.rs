//! The canary pass: a heap that proves that blocks are what an allocator promises.
//!
//! Every block is filled, right after it is allocated, with a pattern of its own, and compared with
//! it before it is freed. A block that overlaps another live one cannot escape: whichever of the two
//! was filled first has lost its content when it is freed, and the pattern found there tells whose
//! block the other is. The pattern lives in the block and its stamp beside the pointer, so that the
//! check needs no table, no lock and no memory but the workload's own.

use core::ptr::NonNull;

use super::failure::Failure;
use super::heap::{Address, Heap, Plain, opaque};

/// Names one block for all its life: owner and serial number, under a tag that makes it recognisable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp(u64);

impl Stamp {
    /// Top 16 bits of every stamp.
    const TAG: u64 = 0xA3B1 << 48;
    /// An odd constant and its inverse modulo 2⁶⁴.
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    const INVERSE: u64 = 0xF1DE_83E1_9937_733D;

    fn new(owner: u32, serial: u32) -> Self {
        Self(Self::TAG | u64::from(owner & 0xFFFF) << 32 | u64::from(serial))
    }

    fn owner(self) -> u32 {
        (self.0 >> 32) as u32 & 0xFFFF
    }

    /// The eight bytes that the block repeats: a bijection of the stamp in which every byte depends
    /// on the whole of it, so that even one byte of another block is likely to differ.
    fn pattern(self) -> u64 {
        let word = (self.0 ^ self.0 >> 32).wrapping_mul(Self::FACTOR);
        (word ^ word >> 32).wrapping_mul(Self::FACTOR)
    }

    /// The stamp whose pattern this is, if it is one's.
    fn of_pattern(pattern: u64) -> Option<Self> {
        let word = pattern.wrapping_mul(Self::INVERSE);
        let word = (word ^ word >> 32).wrapping_mul(Self::INVERSE);
        let stamp = Self(word ^ word >> 32);
        (stamp.0 & 0xFFFF << 48 == Self::TAG).then_some(stamp)
    }

    fn byte(self, offset: usize) -> u8 {
        self.pattern().to_le_bytes()[offset % 8]
    }
}

/// A block with what is needed to check it.
#[derive(Debug, Clone, Copy)]
pub struct Marked {
    block: Address,
    size: usize,
    stamp: Stamp,
}

/// A heap whose blocks are checked: see the head of this file.
#[derive(Debug)]
pub struct Checked<H = Plain> {
    heap: H,
    owner: u32,
    serial: u32,
}

/// Alignment that a block of `size` bytes must have on its own account, in bytes: 16, and below 16
/// bytes that of the largest object which fits (C23 7.24.4.1), as several allocators make use of.
fn required_alignment(size: usize) -> usize {
    match size {
        0 => 1,
        1..16 => 1 << size.ilog2(),
        _ => 16,
    }
}

impl<H: Heap<Block = Address>> Checked<H> {
    fn mark(&mut self, block: Address, size: usize, alignment: usize) -> Result<Marked, Failure> {
        let address = H::address(block);
        if !address.is_multiple_of(alignment) {
            return Err(Failure::Misaligned { address, size, alignment });
        }
        self.serial = self.serial.wrapping_add(1);
        let stamp = Stamp::new(self.owner, self.serial);
        let (pattern, whole) = (stamp.pattern(), size / 8 * 8);
        for offset in (0..whole).step_by(8) {
            // SAFETY: the allocator gave the block `size` bytes, and `whole` ≤ `size`.
            unsafe { block.0.add(offset).cast::<u64>().write_unaligned(pattern.to_le()) };
        }
        for offset in whole..size {
            // SAFETY: as above.
            unsafe { block.0.add(offset).write(stamp.byte(offset)) };
        }
        Ok(Marked { block, size, stamp })
    }

    fn verify(marked: Marked) -> Result<(), Failure> {
        let Marked { block, size, stamp } = marked;
        // What was written on this thread may have been changed through another block.
        opaque(block.0.as_ptr());
        let (pattern, whole) = (stamp.pattern(), size / 8 * 8);
        let mut differing = 0;
        for offset in (0..whole).step_by(8) {
            // SAFETY: the block is live and has `size` bytes, and `whole` ≤ `size`.
            differing |= pattern.to_le() ^ unsafe { block.0.add(offset).cast::<u64>().read_unaligned() };
        }
        for offset in whole..size {
            // SAFETY: as above.
            differing |= u64::from(stamp.byte(offset) ^ unsafe { block.0.add(offset).read() });
        }
        if differing == 0 { Ok(()) } else { Err(lost(marked)) }
    }
}

/// What happened to a block that differs from its canary.
#[cold]
fn lost(marked: Marked) -> Failure {
    let Marked { block, size, stamp } = marked;
    // SAFETY: the block is live and has `size` bytes; this thread alone looks at them meanwhile.
    let content = unsafe { NonNull::slice_from_raw_parts(block.0, size).as_ref() };
    let offset = (0..size).find(|&offset| content[offset] != stamp.byte(offset)).unwrap_or(0);
    let word = content[offset / 8 * 8..].first_chunk().map(|word| u64::from_le_bytes(*word));
    let address = block.0.as_ptr() as usize;
    match word.and_then(Stamp::of_pattern).filter(|&other| other != stamp) {
        Some(other) => Failure::Overlap { address, size, offset, other_owner: other.owner() },
        None => Failure::LostContent { address, size, offset },
    }
}

impl<H: Heap<Block = Address>> Heap for Checked<H> {
    type Block = Marked;

    fn of(owner: u32) -> Self {
        Self { heap: H::of(owner), owner, serial: 0 }
    }

    fn allocate(&mut self, size: usize) -> Result<Self::Block, Failure> {
        let block = self.heap.allocate(size)?;
        self.mark(block, size, required_alignment(size))
    }

    fn allocate_aligned(&mut self, alignment: usize, size: usize) -> Result<Self::Block, Failure> {
        let block = self.heap.allocate_aligned(alignment, size)?;
        self.mark(block, size, alignment)
    }

    /// Compares the byte with the canary and writes it again: the content stays the canary.
    unsafe fn write(&self, marked: Self::Block, offset: usize) -> Result<(), Failure> {
        // SAFETY: the caller vouches that the block is live and longer than `offset`.
        let byte = unsafe { marked.block.0.add(offset) };
        // SAFETY: as above.
        if unsafe { byte.read_volatile() } != marked.stamp.byte(offset) {
            Self::verify(marked)?;
        }
        // SAFETY: as above.
        unsafe { byte.write_volatile(marked.stamp.byte(offset)) };
        Ok(())
    }

    /// Compares the block with its canary, which fills it since it was allocated.
    unsafe fn fill(&self, marked: Self::Block, _size: usize) -> Result<(), Failure> {
        Self::verify(marked)
    }

    /// As [`fill`](Heap::fill): the content is the canary.
    unsafe fn read_back(&self, marked: Self::Block, _size: usize) -> Result<(), Failure> {
        Self::verify(marked)
    }

    unsafe fn resize(
        &mut self,
        marked: Self::Block,
        old_size: usize,
        new_size: usize,
    ) -> Result<Self::Block, Failure> {
        Self::verify(marked)?;
        // SAFETY: the caller vouches that the block is live and no longer used.
        let block = unsafe { self.heap.resize(marked.block, old_size, new_size)? };
        // What realloc copied, at its new place.
        Self::verify(Marked { block, size: old_size.min(new_size), stamp: marked.stamp })?;
        self.mark(block, new_size, required_alignment(new_size))
    }

    unsafe fn free(&mut self, marked: Self::Block) -> Result<(), Failure> {
        Self::verify(marked)?;
        // SAFETY: the caller vouches that the block is live and no longer used.
        unsafe { self.heap.free(marked.block) }
    }

    fn address(marked: Self::Block) -> usize {
        H::address(marked.block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const _: () = assert!(Stamp::FACTOR.wrapping_mul(Stamp::INVERSE) == 1);

    #[repr(align(1024))]
    struct Arena([u8; 1024]);

    /// An allocator that hands out the addresses of a script, out of an arena of its own.
    struct Scripted {
        arena: Box<Arena>,
        offsets: std::vec::IntoIter<usize>,
    }

    impl Heap for Scripted {
        type Block = Address;

        fn of(_owner: u32) -> Self {
            Self { arena: Box::new(Arena([0; 1024])), offsets: Vec::new().into_iter() }
        }

        fn allocate(&mut self, size: usize) -> Result<Address, Failure> {
            let offset = self.offsets.next().ok_or(Failure::Null { size })?;
            assert!(offset + size <= self.arena.0.len());
            // SAFETY: the offset was just compared with the size of the arena.
            Ok(Address(unsafe { NonNull::from(&mut *self.arena).cast::<u8>().add(offset) }))
        }

        fn allocate_aligned(&mut self, _alignment: usize, size: usize) -> Result<Address, Failure> {
            self.allocate(size)
        }

        unsafe fn write(&self, _: Address, _: usize) -> Result<(), Failure> {
            Ok(())
        }

        unsafe fn fill(&self, _: Address, _: usize) -> Result<(), Failure> {
            Ok(())
        }

        unsafe fn read_back(&self, _: Address, _: usize) -> Result<(), Failure> {
            Ok(())
        }

        /// Copies nothing: a realloc that loses the content wherever the script moves the block.
        unsafe fn resize(&mut self, _: Address, _: usize, new_size: usize) -> Result<Address, Failure> {
            self.allocate(new_size)
        }

        unsafe fn free(&mut self, _: Address) -> Result<(), Failure> {
            Ok(())
        }

        fn address(block: Address) -> usize {
            Plain::address(block)
        }
    }

    fn scripted(offsets: &[usize]) -> Checked<Scripted> {
        let mut checked = Checked::<Scripted>::of(5);
        checked.heap.offsets = Vec::from(offsets).into_iter();
        checked
    }

    fn free(checked: &mut Checked<Scripted>, block: Marked) -> Result<(), Failure> {
        // SAFETY: the tests free each block once, and the arena outlives them.
        unsafe { checked.free(block) }
    }

    #[test]
    fn blocks_side_by_side_pass() {
        let mut heap = scripted(&[0, 48, 64, 80]);
        let blocks = [48, 7, 16, 33].map(|size| heap.allocate(size).expect("allocated"));
        for block in blocks {
            // SAFETY: the block is live and at least 7 bytes long.
            assert_eq!(unsafe { heap.write(block, 6) }, Ok(()));
            assert_eq!(free(&mut heap, block), Ok(()));
        }
    }

    #[test]
    fn an_overlap_is_found_and_names_the_other_worker() {
        let mut heap = scripted(&[0, 32]);
        let first = heap.allocate(64).expect("allocated");
        heap.owner = 9;
        let second = heap.allocate(64).expect("allocated");
        assert_eq!(free(&mut heap, second), Ok(()));
        match free(&mut heap, first) {
            Err(Failure::Overlap { size: 64, offset: 32, other_owner: 9, .. }) => {}
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_same_block_handed_out_twice_is_found() {
        let mut heap = scripted(&[16, 16]);
        let first = heap.allocate(40).expect("allocated");
        heap.allocate(40).expect("allocated");
        assert!(matches!(free(&mut heap, first), Err(Failure::Overlap { offset: 0, .. })));
    }

    #[test]
    fn an_overlap_by_the_last_byte_is_found() {
        let mut heap = scripted(&[0, 16]);
        let first = heap.allocate(17).expect("allocated");
        heap.allocate(16).expect("allocated");
        assert!(matches!(free(&mut heap, first), Err(Failure::LostContent { size: 17, offset: 16, .. })));
    }

    #[test]
    fn a_changed_byte_is_found_by_its_offset() {
        for offset in [0, 8, 21, 42] {
            let mut heap = scripted(&[0]);
            let block = heap.allocate(43).expect("allocated");
            // SAFETY: the block is live and 43 bytes long.
            let byte = unsafe { block.block.0.add(offset) };
            // SAFETY: as above.
            unsafe { byte.write(byte.read() ^ 0x40) };
            match free(&mut heap, block) {
                Err(Failure::LostContent { size: 43, offset: found, .. }) => assert_eq!(found, offset),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_realloc_must_keep_the_content_and_the_new_block_is_checked_as_well() {
        let resized = |offsets: &[usize], new_size| {
            let mut heap = scripted(offsets);
            let block = heap.allocate(64).expect("allocated");
            // SAFETY: the block is live and has 64 bytes.
            let block = unsafe { heap.resize(block, 64, new_size) }?;
            free(&mut heap, block)
        };
        assert_eq!(resized(&[0, 0], 200), Ok(()));
        assert_eq!(resized(&[0, 0], 8), Ok(()));
        assert!(matches!(resized(&[0, 256], 200), Err(Failure::LostContent { size: 64, offset: 0, .. })));
    }

    #[test]
    fn misaligned_blocks_are_refused_but_small_ones_need_less() {
        assert!(matches!(scripted(&[8]).allocate(16), Err(Failure::Misaligned { alignment: 16, .. })));
        assert!(matches!(scripted(&[4]).allocate(8), Err(Failure::Misaligned { alignment: 8, .. })));
        assert!(scripted(&[8]).allocate(15).is_ok());
        let aligned = scripted(&[16]).allocate_aligned(512, 512);
        assert!(matches!(aligned, Err(Failure::Misaligned { alignment: 512, .. })));
    }

    #[test]
    fn null_is_a_failure() {
        assert_eq!(scripted(&[]).allocate(5).map(|_| ()), Err(Failure::Null { size: 5 }));
    }
}
