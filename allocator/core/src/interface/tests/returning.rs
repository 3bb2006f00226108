//! When memory goes back to the system: thresholds, limits, large pages; and what the statistics say of it.

use super::*;
use crate::size_class;
use crate::statistics::Statistics;
use crate::thresholds::Parameter;

/// Bytes of free memory that the system has not got back.
fn retained(allocator: &Allocator) -> usize {
    allocator.statistics().retained
}

/// Bytes of the blocks that serve small requests of `size` bytes.
fn class_size(size: usize) -> usize {
    size_class::of(size_class::class_of(size).expect("a small size")).size as usize
}

#[test]
fn large_blocks_from_a_set_threshold_on_go_back_at_once() {
    let allocator = allocator();
    let heap = allocator.attach().expect("memory");
    let free_one_of = |size: usize| {
        let block = Filled::new(allocator.allocate(heap, size), size, 9);
        block.free(allocator, heap);
    };
    free_one_of(300_000);
    assert_eq!(allocator.statistics().large_blocks, 1, "it stays with its thread");
    free_one_of(3 << 20);
    assert!(retained(allocator) >= 3 << 20, "it waits");
    assert!(allocator.trim(heap));
    allocator.options.thresholds.set(Parameter::MmapThreshold, 256 << 10);
    for size in [300_000, 3 << 20] {
        free_one_of(size);
        assert_eq!((allocator.statistics().large_blocks, retained(allocator)), (0, 0), "{size}");
    }
    free_one_of(100_000);
    assert_eq!(allocator.statistics().large_blocks, 1, "smaller ones stay with their thread");
    assert!(allocator.trim(heap));
    // A block that moved, and one that shrank.
    let block = allocator.allocate(heap, 1 << 20);
    let wall = allocator.allocate(heap, 300_000);
    // SAFETY: the block is live, and replaced by the result.
    let block = unsafe { allocator.reallocate(heap, block, 5 << 20, 1) }.expect("ours");
    Filled::new(block, 5 << 20, 3).free(allocator, heap);
    Filled::new(wall, 300_000, 3).free(allocator, heap);
    let cleared = allocator.allocate_zeroed(heap, 6 << 20, 1);
    Filled { block: cleared.expose_provenance(), size: 6 << 20, byte: 0 }.free(allocator, heap);
    assert_eq!(retained(allocator), 0);
    // SAFETY: the heap is used no more.
    unsafe { allocator.detach(heap) };
}

#[test]
fn what_a_thread_stores_serves_other_sizes_before_the_program_grows() {
    let allocator = allocator();
    let heap = allocator.attach().expect("memory");
    let of = |size: usize, count| -> Vec<_> {
        (0..count).map(|_| Filled::new(allocator.allocate(heap, size), size, 7)).collect()
    };
    let runs = || {
        let statistics = allocator.statistics();
        statistics.active + statistics.retained
    };
    let free = |blocks: Vec<Filled>| blocks.into_iter().for_each(|block| block.free(allocator, heap));
    free(of(512, 40));
    // What it asks for again and again it stores.
    (0..8).for_each(|_| free(of(4096, 200)));
    assert!(heap.stored_bytes() > 100 * 4096, "{} bytes", heap.stored_bytes());
    let before = runs();
    let others = of(512, 1000);
    assert_eq!((heap.stored_bytes(), runs()), (0, before));
    free(others);
    // SAFETY: the heap is used no more.
    unsafe { allocator.detach(heap) };
}

#[test]
fn before_the_program_grows_its_threads_give_back_what_they_keep() {
    let allocator = allocator();
    let heap = allocator.attach().expect("memory");
    let of = |size: usize, count| -> Vec<_> {
        (0..count).map(|_| Filled::new(allocator.allocate(heap, size), size, 7)).collect()
    };
    let cached = |size| {
        let statistics = allocator.statistics();
        let class = statistics.classes.iter().find(|class| class.size == class_size(size)).expect("a class");
        (class.cached, statistics.large_cached)
    };
    // Relaxed: nobody else is there.
    let growths = || allocator.shared.growths.load(Ordering::Relaxed);
    for block in of(4096, 100).into_iter().chain(of(100_000, 4)) {
        block.free(allocator, heap);
    }
    let (small, large) = cached(4096);
    assert!(small > 8 && large >= 100_000, "{small} blocks and {large} bytes");
    // As much again is no growth: it serves.
    for block in of(4096, 100) {
        block.free(allocator, heap);
    }
    assert!(cached(4096).0 > 8);
    let before = growths();
    let others = of(512, 4000);
    assert!(growths() > before);
    assert_eq!(cached(4096), (0, 0));
    for block in others {
        block.free(allocator, heap);
    }
    // SAFETY: the heap is used no more.
    unsafe { allocator.detach(heap) };
}

#[test]
fn a_heap_that_no_thread_uses_keeps_no_more_than_a_magazine_of_longer_blocks() {
    let allocator = allocator();
    let heap = allocator.attach().expect("memory");
    let block = |size| Filled::new(allocator.allocate(heap, size), size, 7);
    let blocks: Vec<_> = (0..800).map(|index| block([512, 4096][index % 2])).collect();
    blocks.into_iter().for_each(|block| block.free(allocator, heap));
    let cached = || {
        let statistics = allocator.statistics();
        [512, 4096].map(|size| {
            statistics.classes.iter().find(|class| class.size == class_size(size)).expect("a class").cached
        })
    };
    assert!(cached().iter().all(|&blocks| blocks > 8), "{:?}", cached());
    // SAFETY: the heap is used no more.
    unsafe { allocator.detach(heap) };
    let [near, far] = cached();
    assert!(near > 8 && far == 0, "{near} and {far}");
}

#[test]
fn free_memory_stays_up_to_a_set_trim_threshold() {
    let allocator = allocator();
    let inert = Heap::inert();
    allocator.options.thresholds.set(Parameter::MmapMax, 0);
    allocator.options.thresholds.set(Parameter::TrimThreshold, 8 << 20);
    allocator.options.thresholds.set(Parameter::TopPad, 2 << 20);
    let blocks: Vec<_> =
        (0..12).map(|_| Filled::new(allocator.allocate(&inert, 1 << 20), 1 << 20, 1)).collect();
    for (freed, block) in blocks.into_iter().enumerate() {
        block.free(allocator, &inert);
        let expected = if freed < 8 { (freed + 1) << 20 } else { (2 << 20) + ((freed - 8) << 20) };
        assert!(retained(allocator).abs_diff(expected) <= 1 << 20, "{freed}: {}", retained(allocator));
    }
    assert_eq!(allocator.tend(4), Found::Nothing, "what stays is nobody's work");
    assert!(allocator.trim(&inert) && retained(allocator) == 0, "but whoever asks gets it");
}

#[test]
fn what_a_block_gives_up_that_shrinks_comes_back() {
    let allocator = allocator();
    let inert = Heap::inert();
    allocator.options.thresholds.set(Parameter::TrimThreshold, 1 << 20);
    let block = Filled::new(allocator.allocate(&inert, 40 << 20), 40 << 20, 1);
    // SAFETY: the block is live, and replaced by the result.
    let less = unsafe { allocator.reallocate(&inert, block.pointer(), 2 << 20, 1) }.expect("ours");
    assert!(retained(allocator) <= 1 << 20, "{} bytes stay", retained(allocator));
    Filled { block: less.expose_provenance(), size: 2 << 20, ..block }.free(allocator, &inert);
}

#[test]
fn above_the_soft_limit_nothing_free_stays() {
    let allocator = allocator();
    let heap = allocator.attach().expect("memory");
    assert!(allocator.options.set(Name::SoftLimit, 8 << 20));
    let fill = |size: usize, count: usize| -> Vec<_> {
        (0..count).map(|_| Filled::new(allocator.allocate(heap, size), size, 1)).collect()
    };
    let free = |blocks: Vec<Filled>| blocks.into_iter().for_each(|block| block.free(allocator, heap));
    free(fill(200_000, 10));
    assert!(retained(allocator) + allocator.statistics().large > 0, "below it free memory waits");
    let (kept, large, small) = (fill(3 << 20, 3), fill(200_000, 10), fill(500, 20_000));
    assert!(allocator.is_tight());
    free(large);
    assert_eq!((retained(allocator), allocator.statistics().large), (0, 9 << 20));
    free(small);
    let left = allocator.statistics().allocated() - (9 << 20);
    assert!(left < 200_000, "{left} bytes of small blocks stay with the thread");
    assert_eq!(retained(allocator), 0);
    free(kept);
    assert!(!allocator.is_tight() && retained(allocator) > 0, "below it free memory waits again");
    // SAFETY: the heap is used no more.
    unsafe { allocator.detach(heap) };
}

#[test]
fn three_quarters_of_what_the_control_group_may_have_are_a_soft_limit() {
    os::limit_memory(Some(64 << 20));
    let allocator = allocator();
    let inert = Heap::inert();
    let blocks: Vec<_> = (0..5).map(|_| allocator.allocate(&inert, 9 << 20)).collect();
    assert!(!allocator.is_tight(), "45 MiB");
    let last = allocator.allocate(&inert, 9 << 20);
    assert!(allocator.is_tight(), "54 MiB");
    // SAFETY: the block is live, and given up here.
    assert_eq!(unsafe { allocator.free(&inert, last) }, Ok(()));
    assert!(!allocator.is_tight());
    os::limit_memory(None);
    assert!(!blocks.contains(&ptr::null_mut()));
}

#[test]
fn statistics_tell_classes_and_why_memory_is_kept() {
    let allocator = allocator();
    let heap = allocator.attach().expect("memory");
    let class = |statistics: &Statistics, size: usize| {
        *statistics.classes.iter().find(|class| class.size >= size).expect("a class")
    };
    let blocks: Vec<_> = (0..1000).map(|_| Filled::new(allocator.allocate(heap, 3000), 3000, 1)).collect();
    let full = class(&allocator.statistics(), 3000);
    assert!(full.live >= 1000 && full.live + full.room < 1200, "{full:?}");
    // The smallest would hold 16 each; one is an eighth of what was there before at most.
    assert!((25..40).contains(&full.spans), "{full:?}");
    assert!(full.live - 1000 + full.cached < 100, "all that is handed out: {full:?}");
    // Of each span some stay, so that it stays.
    let (kept, freed): (Vec<_>, Vec<_>) = (0..).zip(blocks).partition(|(index, _)| index % 2 == 0);
    freed.into_iter().for_each(|(_, block)| block.free(allocator, heap));
    let half = allocator.statistics();
    let shares = class(&half, 3000);
    assert!(shares.live < 600 && shares.live + shares.cached + shares.room >= 1000, "{shares:?}");
    assert!(half.cached() >= shares.cached * shares.size && half.room >= shares.room * shares.size);
    Filled::new(allocator.allocate(heap, 100_000), 100_000, 1).free(allocator, heap);
    assert_eq!(allocator.statistics().large_cached, 7 * UNIT);
    let mut text = String::new();
    allocator.statistics().to_json(&mut |part| text.push_str(part));
    assert!(text.starts_with("{\"allocated_bytes\":") && text.ends_with("}]}"), "{text}");
    assert!(
        text.contains(&format!("{{\"block_bytes\":{},\"spans\":{},", shares.size, shares.spans)),
        "{text}"
    );
    kept.into_iter().for_each(|(_, block): (i32, _)| block.free(allocator, heap));
    allocator.trim(heap);
    assert_eq!(allocator.statistics().classes_in_use().count(), 0);
    // SAFETY: the heap is used no more.
    unsafe { allocator.detach(heap) };
}

#[test]
fn a_large_block_of_zeros_is_not_filled_where_little_was_touched() {
    const SIZE: usize = 4 << 20;
    let allocator = allocator();
    let inert = Heap::inert();
    for (touched, calls) in [(1, 2), (SIZE / 16, 2), (SIZE / 8, 1), (SIZE, 1)] {
        // What an earlier round touched is gone.
        allocator.trim(&inert);
        let block = allocator.allocate(&inert, SIZE);
        // SAFETY: within the block, which is ours.
        unsafe { block.write_bytes(7, touched) };
        // SAFETY: the block is live, and nobody uses it any more.
        assert_eq!(unsafe { allocator.free(&inert, block) }, Ok(()));
        os::inject(os::Faults::None);
        let cleared = allocator.allocate_zeroed(&inert, SIZE, 1);
        assert_eq!(os::calls(), calls, "{touched}: a look, and where little was touched a purge");
        assert_eq!(cleared, block, "what is dirty comes first");
        Filled { block: cleared.expose_provenance(), size: SIZE, byte: 0 }.free(allocator, &inert);
    }
}

#[test]
fn blocks_of_which_little_is_touched_begin_where_others_did_if_there_is_room() {
    const SIZE: usize = (3 << 20) + (256 << 10);
    const APART: usize = 1 << 20;
    let allocator = allocator();
    let inert = Heap::inert();
    let fresh = || allocator.allocate(&inert, SIZE).expose_provenance();
    let free = |block: usize| {
        // SAFETY: the block is live, and nobody uses it any more.
        assert_eq!(unsafe { allocator.free(&inert, ptr::with_exposed_provenance_mut(block)) }, Ok(()));
    };
    os::use_region(64 << 20, false);
    let mut side_by_side: Vec<_> = core::iter::repeat_with(fresh).take_while(|&block| block != 0).collect();
    assert!(side_by_side.windows(2).any(|pair| pair[1] == pair[0] + SIZE), "nothing is known yet");
    // The system has no more, and between two that are live there is room for one, at no round place.
    for _ in 0..2 {
        let hole = side_by_side.iter().position(|block| !block.is_multiple_of(APART)).expect("most of them");
        free(side_by_side.remove(hole));
        assert_ne!(fresh(), 0, "a block that begins elsewhere is better than none");
    }
    side_by_side.into_iter().for_each(free);
    let apart: Vec<_> = (0..3).map(|_| fresh()).collect();
    assert!(apart.iter().all(|block| block.is_multiple_of(APART)), "{apart:x?}");
}

#[test]
#[cfg_attr(miri, ignore = "megabytes, byte by byte, take hours")]
fn what_nobody_looks_after_goes_back_as_soon_as_most_is_free() {
    let allocator = allocator();
    let heap = allocator.attach().expect("memory");
    let mut calls = 0;
    let mut give_back = || {
        while !allocator.give_back_eagerly() {
            calls += 1;
        }
        std::mem::take(&mut calls)
    };
    let mut blocks: Vec<_> =
        (0..60_000).map(|_| Filled::new(allocator.allocate(heap, 512), 512, 7)).collect();
    let (mut kept, mut freed) = free_all_but_one_in(100, allocator, heap, blocks.drain(..30_000));
    assert_eq!(give_back(), 0, "half is live");
    let (others_kept, others_freed) = free_all_but_one_in(100, allocator, heap, blocks);
    kept.extend(others_kept);
    freed.extend(others_freed);
    // SAFETY: memory of the simulated system, which stays mapped.
    let zeroed = || freed.iter().filter(|block| unsafe { block.add(256).read() } == 0).count();
    assert_eq!(zeroed(), 0);
    assert!(give_back() > 4, "each call does a part of it");
    assert!(zeroed() > freed.len() / 4 * 3, "{} of {}", zeroed(), freed.len());
    assert_eq!(retained(allocator), 0);
    assert_eq!(give_back(), 0, "once");
    kept.into_iter().for_each(|block| block.free(allocator, heap));
    // SAFETY: the heap is used no more.
    unsafe { allocator.detach(heap) };
}

#[test]
#[cfg_attr(miri, ignore = "megabytes, byte by byte, take hours")]
fn what_is_free_goes_back_before_a_fork() {
    let allocator = allocator();
    let heap = allocator.attach().expect("memory");
    let mut blocks: Vec<_> =
        (0..20_000).map(|_| Filled::new(allocator.allocate(heap, 512), 512, 7)).collect();
    let large = Filled::new(allocator.allocate(heap, 5 << 20), 5 << 20, 7);
    let (mut kept, freed) = free_all_but_one_in(100, allocator, heap, blocks.drain(..10_000));
    kept.extend(blocks);
    large.free(allocator, heap);
    // SAFETY: memory of the simulated system, which stays mapped.
    let zeroed = || freed.iter().filter(|block| unsafe { block.add(256).read() } == 0).count();
    assert_eq!(zeroed(), 0);
    let has_dirty = || allocator.tables.pages.has_dirty(allocator.ground());
    // A signal handler may fork in the midst of a malloc, and must not wait for what it interrupts.
    let meta = allocator.meta.lock();
    allocator.give_back_before_fork(true);
    assert!(has_dirty());
    drop(meta);
    allocator.give_back_before_fork(true);
    assert!(!has_dirty());
    assert!(zeroed() > freed.len() / 4 * 3, "{} of {}", zeroed(), freed.len());
    Filled::new(allocator.allocate(heap, 5 << 20), 5 << 20, 7).free(allocator, heap);
    allocator.give_back_before_fork(false);
    assert!(has_dirty(), "it was needed again at once");
    kept.into_iter().for_each(|block| block.free(allocator, heap));
    // SAFETY: the heap is used no more.
    unsafe { allocator.detach(heap) };
}

#[test]
fn whoever_trims_by_habit_is_served_at_a_pace() {
    let allocator = allocator();
    let heap = allocator.attach().expect("memory");
    // Relaxed, here and below: nobody else is there.
    let tend = |tended| allocator.shared.tended.store(tended, Ordering::Relaxed);
    let due_in = |ms: u64| {
        let due = (os::now_ms() + ms) as usize;
        allocator.shared.trim_due_ms.store(due, Ordering::Relaxed);
    };
    let free_one_of =
        |size: usize| Filled::new(allocator.allocate(heap, size), size, 9).free(allocator, heap);
    let trims = |size: usize| {
        free_one_of(size);
        allocator.trim_at_pace(heap)
    };
    let live = Filled::new(allocator.allocate(heap, 2 << 20), 2 << 20, 5);
    for (tended, pace_ms) in [(1, 500), (0, 125)] {
        tend(tended);
        due_in(0);
        let start_ms = os::now_ms();
        let served = (0..).take_while(|_| trims(100_000)).count() as u64;
        let most = 9 + (os::now_ms() - start_ms) / pace_ms;
        assert!((8..=most).contains(&served), "{served} in a row, with {tended}");
        due_in(7 * pace_ms - 1);
        assert!(trims(100_000), "one more when its time has come");
    }
    // The helper thread, which has ended since, let them wait for longer.
    due_in(60_000);
    let start_ms = os::now_ms();
    assert!(!trims(100_000));
    while !trims(100_000) {
        assert!(os::now_ms() - start_ms < 30_000, "it waits as if there were a helper thread");
    }
    tend(1);
    due_in(60_000);
    assert!(!trims(3 << 20), "the helper thread gives it back");
    assert!(allocator.trim(heap), "but who asks for that gets it");
    tend(0);
    due_in(60_000);
    assert!(!trims(3 << 20) && trims(9 << 20), "nobody else would, and it is much");
    tend(1);
    due_in(60_000);
    allocator.options.thresholds.set(Parameter::TrimThreshold, 64 << 20);
    allocator.options.thresholds.set(Parameter::MmapMax, 0);
    assert!(!trims(3 << 20) && trims(9 << 20), "the helper thread would not");
    live.free(allocator, heap);
    // SAFETY: the heap is used no more.
    unsafe { allocator.detach(heap) };
}
