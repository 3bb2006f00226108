//! Which small blocks get huge pages.

use super::*;
use crate::size_class::{self, Class};

/// Classes of blocks of 4 KiB, 8 KiB and 32 KiB.
fn classes() -> [Class; 3] {
    [4096, 8192, 32_768].map(|size| size_class::class_of_aligned(size, 1).expect("a small size"))
}

/// Units that an arena has of a class that it uses much.
const MUCH: usize = 1 << 20;

/// Whether an arena's next span of `class` should come from a huge page.
fn is_dense(world: &World, watched: &mut Watched, class: Class) -> bool {
    watched.wanted(world.ground(), class, size_class::of(class), MUCH).densely
}

/// The program touches `touched` of a hundred pages of a span.
fn touch(span: &Span, touched: usize) {
    for page in 0..span.bytes() / os::PAGE * touched / 100 {
        // SAFETY: within the span, which is the test's.
        unsafe { core::ptr::with_exposed_provenance_mut::<u8>(span.start.get() + page * os::PAGE).write(1) };
    }
}

/// A fresh span that an arena gets for `class`, of which the program touches `touched` of a hundred pages; and whether its next one should come from a huge page.
fn use_span(world: &World, watched: &mut Watched, class: Class, touched: usize) -> bool {
    let info = size_class::of(class);
    let span = world.allocate_for(sparsely(info.units.into(), info.units.into()));
    watched.watch(world.ground(), class, info, span);
    touch(span, touched);
    is_dense(world, watched, class)
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

/// Spans of blocks of a page, until the process has so many units of small blocks; how many of those came from huge pages.
fn use_short_spans(world: &World, watched: &mut Watched, units: usize, touched: usize) -> usize {
    let [class, ..] = classes();
    let info = size_class::of(class);
    let (mut all, mut huge) = (0, 0);
    while all < units {
        let span = world.allocate_for(watched.wanted(world.ground(), class, info, MUCH));
        watched.watch(world.ground(), class, info, span);
        all += span.units.get();
        huge += if span.dirty.get() { span.units.get() } else { 0 };
        touch(span, touched);
    }
    huge
}

#[test]
fn blocks_up_to_a_page_get_no_huge_pages_where_nobody_touches_them() {
    let (world, mut watched) = (World::new(), Watched::new());
    assert_eq!(use_short_spans(&world, &mut watched, 2 * HUGE_FROM, 0), 0);
    let (world, mut watched) = (World::new(), Watched::new());
    let huge = use_short_spans(&world, &mut watched, 2 * HUGE_FROM, 100);
    assert!(huge > HUGE_FROM * 3 / 4, "{huge} of those beyond the first 8 MiB");
    let huge = use_short_spans(&world, &mut watched, 2 * HUGE_FROM, 0);
    assert!(huge <= 5 * CHUNK / UNIT, "one of four huge pages waits for a look, which ends it: {huge}");
}

#[test]
fn a_span_tells_when_the_next_of_its_class_is_needed_and_is_not_waited_for_for_ever() {
    let [_, middle, largest] = classes();
    let (world, mut watched) = (World::new(), Watched::new());
    let info = size_class::of(middle);
    for round in 0..2 {
        let span = world.allocate(info.units.into(), UNIT).expect("memory");
        watched.watch(world.ground(), middle, info, span);
        // Its blocks are handed out one after the other; spans of other classes say nothing of it.
        for _ in 0..3 {
            assert!(!is_dense(&world, &mut watched, largest));
        }
        // SAFETY: the span is ours.
        unsafe {
            core::ptr::with_exposed_provenance_mut::<u8>(span.start.get()).write_bytes(1, span.bytes())
        };
        assert_eq!(is_dense(&world, &mut watched, middle), round == 1);
    }
    let never_used_up = world.allocate(info.units.into(), UNIT).expect("memory");
    watched.watch(world.ground(), middle, info, never_used_up);
    for _ in 0..16 {
        is_dense(&world, &mut watched, largest);
    }
    use_span(&world, &mut watched, largest, 0);
    assert!(!is_dense(&world, &mut watched, largest), "the next one is looked at instead");
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
        assert!(!is_dense(&world, &mut watched, middle));
    }
}
