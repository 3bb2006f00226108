//! The whole allocator on the simulated system: random programs whose blocks must not overlap nor lose their content.

mod adopting;
#[cfg(not(miri))]
mod apart;
#[cfg(not(miri))]
mod busy;
mod crowded;
#[cfg(not(miri))]
mod faults;
mod growing;
mod large;
mod order;
#[cfg(not(miri))]
mod pages;
#[cfg(not(miri))]
mod returning;
#[cfg(not(miri))]
mod sparse;

use std::collections::VecDeque;
use std::sync::Mutex;

use super::*;
use crate::allocator::Tables;
use crate::heap::FRESH;
use crate::options::Name;
use crate::os;
use crate::size_class::LINE;
use crate::sync::Ordering;
use crate::tend::Found;

/// Operations of a random program.
const STEPS: usize = if cfg!(miri) { 100 } else { 10_000 };

fn allocator() -> &'static Allocator {
    // Leaked, as the process's own allocator lives for ever.
    Box::leak(Box::new(Allocator::new(Box::leak(Box::new(Tables::new())))))
}

/// xorshift64*, S. Vigna 2016.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound
    }

    fn size(&mut self) -> usize {
        let shift = self.below(if cfg!(miri) { 12 } else { 18 });
        self.below(1 << shift) + 1
    }
}

/// A block, filled with a byte of its own.
struct Filled {
    block: usize,
    size: usize,
    byte: u8,
}

impl Filled {
    fn new(block: *mut u8, size: usize, byte: u8) -> Self {
        assert!(!block.is_null());
        // SAFETY: a fresh block of that size.
        unsafe { block.write_bytes(byte, size) };
        Self { block: block.expose_provenance(), size, byte }
    }

    fn pointer(&self) -> *mut u8 {
        ptr::with_exposed_provenance_mut(self.block)
    }

    fn check(&self, size: usize) {
        // SAFETY: the block is live.
        let content = unsafe { std::slice::from_raw_parts(self.pointer(), size) };
        assert!(
            size == 0 || content[0] == self.byte && content[1..] == content[..size - 1],
            "a block of {} bytes lost its content",
            self.size
        );
    }

    fn free(self, allocator: &Allocator, heap: &Heap) {
        self.check(self.size);
        // SAFETY: the block is live, and given up here.
        assert_eq!(unsafe { allocator.free(heap, self.pointer()) }, Ok(()));
    }
}

fn run(allocator: &Allocator, heap: &Heap, seed: u64, exchange: Option<&Mutex<VecDeque<Filled>>>) {
    let mut random = Random(seed);
    let mut live: Vec<Filled> = Vec::new();
    for step in 0..STEPS {
        let byte = step as u8;
        match random.below(12) {
            0..5 => {
                let size = random.size();
                live.push(Filled::new(allocator.allocate(heap, size), size, byte));
            }
            5 => {
                let (size, align) = (random.size(), 1 << random.below(16));
                let block = allocator.allocate_aligned(heap, size, align);
                assert_eq!(block.addr() % align, 0);
                live.push(Filled::new(block, size, byte));
            }
            6 => {
                let size = random.size();
                let block = allocator.allocate_zeroed(heap, size, 1);
                Filled { block: block.expose_provenance(), size, byte: 0 }.check(size);
                live.push(Filled::new(block, size, byte));
            }
            7 if !live.is_empty() => {
                let index = random.below(live.len());
                let old = live.swap_remove(index);
                let size = random.size();
                // SAFETY: the block is live, and replaced by the result.
                let block = unsafe { allocator.reallocate(heap, old.pointer(), size, 1) }.expect("ours");
                Filled { block: block.expose_provenance(), size, byte: old.byte }.check(size.min(old.size));
                live.push(Filled::new(block, size, byte));
            }
            _ if !live.is_empty() => {
                let block = live.swap_remove(random.below(live.len()));
                match exchange {
                    None => block.free(allocator, heap),
                    Some(exchange) => {
                        let mut others = exchange.lock().expect("no panic");
                        others.push_back(block);
                        if others.len() > 50
                            && let Some(other) = others.pop_front()
                        {
                            drop(others);
                            other.free(allocator, heap);
                        }
                    }
                }
            }
            _ => {}
        }
    }
    for block in live {
        block.free(allocator, heap);
    }
}

#[test]
fn one_thread() {
    let allocator = allocator();
    let heap = allocator.attach().expect("memory");
    run(allocator, heap, 1, None);
    // SAFETY: the heap is used no more.
    unsafe { allocator.detach(heap) };
    assert_eq!(kept_bytes(allocator), 0, "everything was freed, and the heap given back");
}

#[test]
fn one_thread_without_caches_or_with_isolated_lines() {
    for (name, value) in [(Name::Cache, 0), (Name::IsolateLines, 1)] {
        let allocator = allocator();
        assert!(allocator.options.set(name, value));
        let heap = allocator.attach().expect("memory");
        run(allocator, heap, 2, None);
        for size in [1, 16, 100, 300, 1000] {
            let block = allocator.allocate(heap, size).addr();
            assert!(name == Name::Cache || block.is_multiple_of(64), "{size}");
            let shared = allocator.allocate_shared(heap, size).addr();
            assert!(shared.is_multiple_of(64), "{size}");
        }
        // SAFETY: the heap is used no more.
        unsafe { allocator.detach(heap) };
    }
}

#[test]
fn many_threads_that_free_each_others_blocks() {
    let allocator = allocator();
    let exchange = Mutex::new(VecDeque::new());
    for round in 0..if cfg!(miri) { 1 } else { 3 } {
        std::thread::scope(|scope| {
            for seed in 1..4 {
                let exchange = &exchange;
                scope.spawn(move || {
                    let heap = allocator.attach().expect("memory");
                    run(allocator, heap, seed + round * 10, Some(exchange));
                    // SAFETY: the heap is used no more.
                    unsafe { allocator.detach(heap) };
                });
            }
        });
    }
    let heap = allocator.attach().expect("memory");
    for block in exchange.into_inner().expect("no panic") {
        block.free(allocator, heap);
    }
    // SAFETY: the heap is used no more.
    unsafe { allocator.detach(heap) };
    assert_eq!(kept_bytes(allocator), 0, "everything was freed, and the heaps given back");
}

/// Bytes in use once all that can be given back is.
fn kept_bytes(allocator: &Allocator) -> usize {
    allocator.reclaim(&Heap::inert());
    let pages = allocator.tables.pages.statistics();
    assert_eq!(pages.retained, 0);
    pages.active
}

#[test]
fn without_a_heap_everything_works_too() {
    let allocator = allocator();
    let heap = Heap::inert();
    run(allocator, &heap, 7, None);
    assert_eq!(kept_bytes(allocator), 0);
}

#[test]
fn blocks_that_share_a_line_belong_to_one_thread() {
    let allocator = allocator();
    let (one, two) = (allocator.attach().expect("memory"), allocator.attach().expect("memory"));
    for size in (1..600).step_by(if cfg!(miri) { 97 } else { 1 }) {
        // The second thread frees what the first allocated, then allocates itself.
        let blocks: Vec<_> = (0..200).map(|_| allocator.allocate(one, size)).collect();
        for block in blocks.iter().step_by(2) {
            // SAFETY: live, and given up here.
            assert_eq!(unsafe { allocator.free(two, *block) }, Ok(()));
        }
        let theirs: Vec<_> = (0..200).map(|_| allocator.allocate(two, size)).collect();
        let lines = |block: &*mut u8| block.addr() / LINE..=(block.addr() + size - 1) / LINE;
        let ours: std::collections::HashSet<_> = blocks.iter().skip(1).step_by(2).flat_map(lines).collect();
        assert!(theirs.iter().flat_map(lines).all(|line| !ours.contains(&line)), "size {size}");
    }
}

#[test]
fn what_cannot_be_had_is_refused() {
    let allocator = allocator();
    let heap = allocator.attach().expect("memory");
    for size in [isize::MAX as usize, isize::MAX as usize + 1, usize::MAX - 4096, usize::MAX] {
        assert!(allocator.allocate(heap, size).is_null());
        assert!(allocator.allocate_zeroed(heap, size, 1).is_null());
        assert!(allocator.allocate_aligned(heap, size, 4096).is_null());
    }
    assert!(!allocator.allocate(heap, 0).is_null());
    // SAFETY: NULL is always allowed.
    assert_eq!(unsafe { allocator.free(heap, ptr::null_mut()) }, Ok(()));
}

#[test]
fn foreign_blocks_are_recognised() {
    let allocator = allocator();
    let heap = Heap::inert();
    let mut foreign = [0u64; 4];
    assert!(allocator.units.establish());
    // SAFETY: foreign blocks are allowed, and left alone.
    assert_eq!(unsafe { allocator.free(&heap, foreign.as_mut_ptr().cast()) }, Err(Foreign));
}

#[test]
#[should_panic(expected = "free already")]
fn a_second_free_of_a_block_whose_span_went_back_ends_the_process() {
    let allocator = allocator();
    let heap = Heap::inert();
    let blocks: Vec<_> = (0..100).map(|_| allocator.allocate(&heap, 10_000)).collect();
    for block in blocks.iter().chain(&blocks[..1]) {
        // SAFETY: live; the last one is not, which is found out.
        let _ = unsafe { allocator.free(&heap, *block) };
    }
}

#[test]
fn no_memory_is_an_answer_and_memory_comes_again() {
    for refusals in 0..if cfg!(miri) { 2 } else { 16 } {
        let allocator = allocator();
        os::inject(os::Faults::From(refusals));
        let heap = allocator.attach();
        let mut blocks = Vec::new();
        let inert = Heap::inert();
        for size in [16, 100, 1000, 30_000, 100_000, 3_000_000] {
            blocks.push(allocator.allocate(heap.unwrap_or(&inert), size));
        }
        os::inject(os::Faults::None);
        let heap = heap.or_else(|| allocator.attach()).expect("memory is there again");
        for block in blocks {
            // SAFETY: NULL, or live and given up here.
            assert_eq!(unsafe { allocator.free(heap, block) }, Ok(()));
        }
        run(allocator, heap, 3 + refusals, None);
        // SAFETY: the heap is used no more.
        unsafe { allocator.detach(heap) };
        assert_eq!(kept_bytes(allocator), 0);
    }
}

#[test]
fn the_child_of_a_fork_goes_on() {
    const COUNT: usize = if cfg!(miri) { 20 } else { 200 };
    let allocator = allocator();
    let (own, other) = (allocator.attach().expect("memory"), allocator.attach().expect("memory"));
    let blocks: Vec<_> =
        (1..COUNT).map(|n| Filled::new(allocator.allocate(other, n * 10), n * 10, n as u8)).collect();
    allocator.before_fork();
    // Another library's fork handler allocates, and needs more than the loaded magazine has.
    let handlers: Vec<_> =
        (1..COUNT).map(|n| Filled::new(allocator.allocate(own, n * 300), n * 300, 1)).collect();
    handlers.into_iter().for_each(|block| block.free(allocator, own));
    allocator.after_fork_in_child(Some(own));
    for block in blocks {
        block.free(allocator, own);
    }
    let adopted = allocator.attach().expect("memory");
    assert!(
        ptr::eq(adopted.arena.get(), other.arena.get()),
        "the arena of a thread that is gone is used again"
    );
    run(allocator, adopted, 5, None);
}

/// Frees 2000 blocks of 512 bytes that were allocated before.
fn leave_full_caches(allocator: &Allocator, heap: &Heap) {
    let blocks: Vec<_> = (0..2000).map(|_| allocator.allocate(heap, 512)).collect();
    for block in blocks {
        // SAFETY: the block is live, and given up here.
        assert_eq!(unsafe { allocator.free(heap, block) }, Ok(()));
    }
    let large = allocator.allocate(heap, 200_000);
    // SAFETY: as above.
    assert_eq!(unsafe { allocator.free(heap, large) }, Ok(()));
}

#[test]
fn the_caches_of_an_idle_thread_are_emptied_by_others_and_the_thread_goes_on() {
    let allocator = allocator();
    let heap = allocator.attach().expect("memory");
    leave_full_caches(allocator, heap);
    let full = allocator.statistics().allocated();
    assert!(full > 200_000, "{full}");
    assert!(allocator.empty_idle_heaps(), "it was active");
    assert_eq!(allocator.statistics().allocated(), full);
    assert!(!allocator.empty_idle_heaps(), "nothing happened since");
    let emptied = allocator.statistics();
    // A loaded magazine of each class stays.
    assert!(emptied.allocated() < 100_000 && emptied.large_blocks == 0, "{emptied:?}");
    assert!(!allocator.empty_idle_heaps());
    run(allocator, heap, 3, None);
    assert!(allocator.empty_idle_heaps(), "it is active again");
    // SAFETY: the heap is used no more.
    unsafe { allocator.detach(heap) };
    assert_eq!(kept_bytes(allocator), 0);
}

#[test]
fn a_thread_that_is_inside_keeps_its_caches() {
    let allocator = allocator();
    let heap = allocator.attach().expect("memory");
    assert!(!allocator.has_several_threads());
    let other = allocator.attach().expect("memory");
    assert!(allocator.has_several_threads());
    leave_full_caches(allocator, heap);
    let full = allocator.statistics();
    heap.claim.enter();
    for _ in 0..3 {
        allocator.empty_idle_heaps();
    }
    assert_eq!(allocator.statistics().allocated(), full.allocated());
    heap.claim.leave();
    allocator.empty_idle_heaps();
    assert!(allocator.statistics().allocated() < full.allocated());
    for heap in [heap, other] {
        // SAFETY: the heap is used no more.
        unsafe { allocator.detach(heap) };
    }
}

#[test]
fn the_heap_of_a_thread_that_has_none_yet_cannot_be_entered() {
    assert!(!FRESH.heap().claim.try_enter());
    // Nor does a heap that is copied from it inherit that.
    let record = allocator().meta.lock().record().expect("a record");
    assert!(Heap::write_to(record).claim.try_enter());
}

#[test]
fn tending_ends_when_nothing_is_left_to_give_back() {
    let allocator = allocator();
    let heap = allocator.attach().expect("memory");
    leave_full_caches(allocator, heap);
    assert_eq!(allocator.tend(0), Found::Work);
    assert_eq!(allocator.tend(0), Found::Work, "what is free has not been so for long");
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert_eq!(allocator.tend(0), Found::Nothing);
    assert_eq!(allocator.statistics().retained, 0);
    assert_eq!(allocator.tend(0), Found::Nothing, "a heap that was emptied is not looked at again");
    // SAFETY: the heap is used no more.
    unsafe { allocator.detach(heap) };
}

/// Frees all blocks but one in so many: those that stay, and where the others were.
fn free_all_but_one_in(
    many: usize,
    allocator: &Allocator,
    heap: &Heap,
    blocks: impl IntoIterator<Item = Filled>,
) -> (Vec<Filled>, Vec<*mut u8>) {
    let (mut kept, mut freed) = (Vec::new(), Vec::new());
    for (index, block) in blocks.into_iter().enumerate() {
        if index % many == 0 {
            kept.push(block);
        } else {
            freed.push(block.pointer());
            block.free(allocator, heap);
        }
    }
    (kept, freed)
}

#[test]
#[cfg_attr(miri, ignore = "a megabyte, byte by byte, takes an hour")]
fn pages_between_live_blocks_go_back_when_nothing_happens_there() {
    let allocator = allocator();
    // Relaxed: nobody else is there. This test looks for holes, the thread that frees does not.
    allocator.shared.tended.store(1, Ordering::Relaxed);
    let heap = allocator.attach().expect("memory");
    let blocks: Vec<_> = (0..3000).map(|_| Filled::new(allocator.allocate(heap, 512), 512, 7)).collect();
    let (kept, freed) = free_all_but_one_in(30, allocator, heap, blocks);
    allocator.empty_idle_heaps();
    allocator.empty_idle_heaps();
    assert!(allocator.is_called_for(), "more than a megabyte came back");
    // SAFETY: memory of the simulated system, which stays mapped.
    let zeroed = || freed.iter().filter(|block| unsafe { block.add(256).read() } == 0).count();
    assert!(allocator.purge_holes(), "blocks came back since");
    assert_eq!(zeroed(), 0);
    assert!(!allocator.purge_holes());
    assert!(!allocator.is_called_for(), "all was looked at");
    // No span is empty; of the 32 blocks of each those stay that share a page with a live one, 8 or 16.
    assert!(zeroed() > freed.len() / 2, "{} of {}", zeroed(), freed.len());
    for block in kept {
        block.free(allocator, heap);
    }
    // SAFETY: the heap is used no more.
    unsafe { allocator.detach(heap) };
}

#[test]
#[cfg_attr(miri, ignore = "megabytes, byte by byte, take hours")]
fn a_heap_whose_sizes_change_gives_pages_back_before_it_grows() {
    let allocator = allocator();
    let heap = allocator.attach().expect("memory");
    let fill = |size: usize, count: usize| -> Vec<_> {
        (0..count).map(|_| Filled::new(allocator.allocate(heap, size), size, 7)).collect()
    };
    let (mut kept, mut freed) = (Vec::new(), Vec::new());
    for (index, block) in fill(512, 48_000).into_iter().enumerate() {
        if index % 30 == 0 {
            kept.push(block);
        } else {
            freed.push(block.pointer());
            block.free(allocator, heap);
        }
    }
    // SAFETY: memory of the simulated system, which stays mapped.
    let zeroed = || freed.iter().filter(|block| unsafe { block.add(256).read() } == 0).count();
    assert_eq!(zeroed(), 0);
    let others = fill(1024, 12_000);
    assert!(zeroed() > 2000, "{} of {}", zeroed(), freed.len());
    kept.into_iter().chain(others).for_each(|block| block.free(allocator, heap));
    // SAFETY: the heap is used no more.
    unsafe { allocator.detach(heap) };
}

#[test]
fn statistics_follow_what_is_allocated() {
    let allocator = allocator();
    let heap = allocator.attach().expect("memory");
    let before = allocator.statistics();
    let blocks = [(40_000, 3), (3000, 50)].map(|(size, count)| -> Vec<_> {
        (0..count).map(|_| (allocator.allocate(heap, size), size)).collect()
    });
    let during = allocator.statistics();
    assert_eq!(during.large_blocks, before.large_blocks + 3);
    assert!(during.large - before.large >= 3 * 40_000);
    assert!(during.allocated() - before.allocated() >= 3 * 40_000 + 50 * 3000);
    assert!(during.mapped >= during.active + during.retained);
    assert!(during.metadata > 0);
    for (block, _) in blocks.into_iter().flatten() {
        // SAFETY: the block is live, and given up here.
        assert_eq!(unsafe { allocator.free(heap, block) }, Ok(()));
    }
    assert!(allocator.trim(heap), "there was something to give back");
    let after = allocator.statistics();
    assert_eq!((after.allocated(), after.retained, after.large_blocks), (0, 0, 0));
    assert!(!allocator.trim(heap));
    // SAFETY: the heap is used no more.
    unsafe { allocator.detach(heap) };
}
