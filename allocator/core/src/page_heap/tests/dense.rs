//! Which small blocks get huge pages.

use super::*;
use crate::size_class::{self, Class};

/// Classes of blocks of 4 KiB, 8 KiB and 32 KiB.
fn classes() -> [Class; 3] {
    [4096, 8192, 32_768].map(|size| size_class::class_of_aligned(size, 1).expect("a small size"))
}

/// A fresh span that an arena gets for `class`, of which the program touches `touched` of a hundred pages; and whether its next one should come from a huge page.
fn use_span(world: &World, watched: &mut Watched, class: Class, touched: usize) -> bool {
    let info = size_class::of(class);
    let span =
        world.allocate_for(Wanted { least: info.units.into(), most: info.units.into(), densely: false });
    watched.watch(world.ground(), class, info, span);
    let pages = span.bytes() / os::PAGE;
    for page in 0..pages * touched / 100 {
        // SAFETY: within the span, which is ours.
        unsafe { core::ptr::with_exposed_provenance_mut::<u8>(span.start.get() + page * os::PAGE).write(1) };
    }
    watched.is_dense(world.ground(), class, info, span.units.get())
}

#[test]
fn blocks_larger_than_a_page_get_huge_pages_where_the_program_fills_them() {
    let [page, middle, largest] = classes();
    let (world, mut watched) = (World::new(), Watched::new());
    assert!(use_span(&world, &mut watched, page, 0), "a block of a page is touched if it is used");
    let told: Vec<_> =
        [90, 60, 100, 40, 100, 100].map(|touched| use_span(&world, &mut watched, middle, touched)).into();
    assert_eq!(told, [false, true, true, false, true, true]);
    let told: Vec<_> = (0..32).map(|_| use_span(&world, &mut watched, largest, 100)).collect();
    assert_eq!(told.iter().filter(|&&dense| !dense).count(), 2, "one of sixteen is looked at");
}

/// Spans of blocks of a page until the process has so many units of small blocks; how many of the last ones should come from huge pages.
fn use_short_spans(world: &World, watched: &mut Watched, small: usize, touched: usize) -> (usize, usize) {
    let [page, ..] = classes();
    let (mut spans, mut dense) = (0, 0);
    while world.shared.small() < small {
        spans += 1;
        dense += usize::from(use_span(world, watched, page, touched));
    }
    (spans, dense)
}

#[test]
fn blocks_up_to_a_page_get_no_huge_pages_where_nobody_touches_them() {
    for touched in [0, 100] {
        let (world, mut watched) = (World::new(), Watched::new());
        let (spans, dense) = use_short_spans(&world, &mut watched, HUGE_FROM, touched);
        assert!(spans - dense <= 1, "there are none yet, whatever was touched");
        let (spans, dense) = use_short_spans(&world, &mut watched, HUGE_FROM * 3 / 2, touched);
        let expected = if touched > 0 { spans - spans.div_ceil(64) } else { 0 };
        assert!(dense.abs_diff(expected) <= 1, "{touched}: {dense} of {spans}");
    }
}

#[test]
fn a_span_tells_when_the_next_of_its_class_is_needed_and_is_not_waited_for_for_ever() {
    let [_, middle, largest] = classes();
    let (world, mut watched) = (World::new(), Watched::new());
    let info = size_class::of(middle);
    let of = |class| size_class::of(class);
    for round in 0..2 {
        let span = world.allocate(info.units.into(), UNIT).expect("memory");
        watched.watch(world.ground(), middle, info, span);
        // Its blocks are handed out one after the other; spans of other classes say nothing of it.
        for _ in 0..3 {
            assert!(!watched.is_dense(world.ground(), largest, of(largest), 1));
        }
        // SAFETY: the span is ours.
        unsafe {
            core::ptr::with_exposed_provenance_mut::<u8>(span.start.get()).write_bytes(1, span.bytes())
        };
        assert_eq!(watched.is_dense(world.ground(), middle, info, 1), round == 1);
    }
    let never_used_up = world.allocate(info.units.into(), UNIT).expect("memory");
    watched.watch(world.ground(), middle, info, never_used_up);
    for _ in 0..16 {
        watched.is_dense(world.ground(), largest, of(largest), 1);
    }
    use_span(&world, &mut watched, largest, 0);
    assert!(!watched.is_dense(world.ground(), largest, of(largest), 1), "the next one is looked at instead");
}

#[test]
fn a_span_whose_pages_were_there_tells_nothing() {
    let [_, middle, _] = classes();
    let (world, mut watched) = (World::new(), Watched::new());
    let info = size_class::of(middle);
    for _ in 0..4 {
        let span = world.allocate(info.units.into(), UNIT).expect("memory");
        // SAFETY: the span is ours.
        unsafe {
            core::ptr::with_exposed_provenance_mut::<u8>(span.start.get()).write_bytes(1, span.bytes())
        };
        span.dirty.set(true);
        watched.watch(world.ground(), middle, info, span);
        assert!(!watched.is_dense(world.ground(), middle, info, 1));
    }
}
