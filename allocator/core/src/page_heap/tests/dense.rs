//! Small blocks larger than a page.

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
    watched.watch(class, info, span);
    let pages = span.bytes() / os::PAGE;
    for page in 0..pages * touched / 100 {
        // SAFETY: within the span, which is ours.
        unsafe { core::ptr::with_exposed_provenance_mut::<u8>(span.start.get() + page * os::PAGE).write(1) };
    }
    watched.is_dense(world.ground(), class, info)
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

#[test]
fn a_span_tells_when_the_next_of_its_class_is_needed_and_is_not_waited_for_for_ever() {
    let [_, middle, largest] = classes();
    let (world, mut watched) = (World::new(), Watched::new());
    let info = size_class::of(middle);
    let of = |class| size_class::of(class);
    for round in 0..2 {
        let span = world.allocate(info.units.into(), UNIT).expect("memory");
        watched.watch(middle, info, span);
        // Its blocks are handed out one after the other; spans of other classes say nothing of it.
        for _ in 0..3 {
            assert!(!watched.is_dense(world.ground(), largest, of(largest)));
        }
        // SAFETY: the span is ours.
        unsafe {
            core::ptr::with_exposed_provenance_mut::<u8>(span.start.get()).write_bytes(1, span.bytes())
        };
        assert_eq!(watched.is_dense(world.ground(), middle, info), round == 1);
    }
    let never_used_up = world.allocate(info.units.into(), UNIT).expect("memory");
    watched.watch(middle, info, never_used_up);
    for _ in 0..16 {
        watched.is_dense(world.ground(), largest, of(largest));
    }
    use_span(&world, &mut watched, largest, 0);
    assert!(!watched.is_dense(world.ground(), largest, of(largest)), "the next one is looked at instead");
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
        watched.watch(middle, info, span);
        assert!(!watched.is_dense(world.ground(), middle, info));
    }
}
