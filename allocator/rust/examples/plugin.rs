//! A library with an allocator of its own, for a host that knows nothing of it: see `tests/unloading.rs`.

#[global_allocator]
static GLOBAL: ample_alloc::Ample = ample_alloc::Ample;

/// Allocates so many blocks, and gives all but one back: how many are left.
#[unsafe(no_mangle)]
pub extern "C" fn work(count: usize) -> usize {
    let mut blocks: Vec<Vec<u8>> = (0..count).map(|index| vec![1; 100 + index % 3000]).collect();
    blocks.truncate(1);
    blocks.len()
}
