//! Huge pages for large blocks.

use super::*;

/// Blocks of this many units hold a whole chunk wherever they begin.
const WITH_CHUNK: usize = 2 * CHUNK / UNIT;

/// A fresh large block as `malloc` hands it out, of whose first chunk `touched` is written to afterwards.
fn fresh(world: &World, touched: usize) -> &'static Span {
    fresh_of(world, WITH_CHUNK, touched)
}

fn fresh_of(world: &World, units: usize, touched: usize) -> &'static Span {
    let span = world.allocate(units, UNIT).expect("memory");
    assert!(!span.dirty.get());
    world.ground().mark_fresh(span);
    let chunk = span.start.get().next_multiple_of(CHUNK);
    // SAFETY: within the block, which is ours.
    unsafe { core::ptr::with_exposed_provenance_mut::<u8>(chunk).write_bytes(1, touched) };
    span
}

#[test]
fn blocks_get_huge_pages_where_the_program_fills_them() {
    let world = World::new();
    os::marks();
    let first: Vec<_> = (0..3).map(|_| fresh(&world, CHUNK)).collect();
    let (start, end) = (first[2].start.get().next_multiple_of(CHUNK), first[2].end() / CHUNK * CHUNK);
    let set: Vec<_> = os::marks().into_iter().filter(|(.., huge)| *huge).collect();
    assert_eq!(set, [(start, end - start, true)], "the first two are looked at");
    let others: Vec<_> = (3..32).map(|_| fresh(&world, 1)).collect();
    let marked = |spans: &[&Span]| spans.iter().filter(|span| span.marked_to.get() > 0).count();
    assert_eq!(marked(&others[..13]), 13, "what is marked tells nothing of the program");
    assert_eq!(marked(&others[13..]), 0, "one of sixteen is not marked, and tells");
    os::marks();
    for span in first.into_iter().chain(others) {
        world.ground().unmark(span);
        world.free(span);
    }
    let unmarked = os::marks();
    assert!(unmarked.contains(&(start, end - start, false)) && unmarked.len() == 14);
}

#[test]
fn blocks_get_none_where_the_program_touches_little_or_nobody_wants_them() {
    for (touched, wanted) in [(CHUNK / 2, 1), (CHUNK, 0)] {
        let world = World::new();
        assert!(world.options.set(Name::HugePages, wanted));
        os::marks();
        let spans: Vec<_> = (0..20).map(|_| fresh(&world, touched)).collect();
        for span in spans {
            world.ground().unmark(span);
            world.free(span);
        }
        assert!(os::marks().iter().all(|(.., huge)| !huge));
    }
}

#[test]
fn where_huge_pages_are_dear_none_are_asked_for_for_a_while() {
    let world = World::new();
    let filled: Vec<_> = (0..2).map(|_| fresh(&world, CHUNK)).collect();
    os::work_us(4000);
    os::marks();
    let dear = fresh(&world, CHUNK);
    let marks = os::marks();
    assert!(matches!(marks[..], [(_, _, true), (_, _, false)]), "the mark is taken back: {marks:?}");
    let next = fresh(&world, CHUNK);
    assert_eq!((dear.marked_to.get(), next.marked_to.get(), os::marks()), (0, 0, vec![]));
    os::work_us(0);
    for span in filled.into_iter().chain([dear, next]) {
        world.ground().unmark(span);
        world.free(span);
    }
}

#[test]
fn one_dear_huge_page_stands_for_all_of_its_block() {
    // 300 us are lost with each.
    for (chunks, marked) in [(1, true), (8, true), (9, false)] {
        let world = World::new();
        let filled: Vec<_> = (0..2).map(|_| fresh_of(&world, (chunks + 1) * (CHUNK / UNIT), CHUNK)).collect();
        os::work_us(1000);
        let block = fresh_of(&world, (chunks + 1) * CHUNK / UNIT - 1, CHUNK);
        os::work_us(0);
        assert_eq!(block.marked_to.get() > 0, marked, "{chunks}");
        for span in filled.into_iter().chain([block]) {
            world.ground().unmark(span);
            world.free(span);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "needs a heap that grows by more than a chunk")]
fn a_block_more_than_twice_as_long_as_filled_ones_is_looked_at_first() {
    let world = World::new();
    let mut spans: Vec<_> = (0..2).map(|_| fresh(&world, CHUNK)).collect();
    let mut is_marked = |units, touched| {
        spans.push(fresh_of(&world, units, touched));
        spans[spans.len() - 1].marked_to.get() > 0
    };
    assert!(!is_marked(2 * WITH_CHUNK + 1, CHUNK), "none of half its length was filled");
    assert!(is_marked(2 * WITH_CHUNK + 1, 0), "it was filled");
    assert!(is_marked(2 * (2 * WITH_CHUNK + 1), 0));
    for span in spans {
        world.ground().unmark(span);
        world.free(span);
    }
}

#[test]
#[cfg_attr(miri, ignore = "needs a heap that grows by more than a chunk")]
fn a_block_that_grows_is_marked_however_long_it_becomes() {
    let world = World::new();
    let ground = world.ground();
    let few: Vec<_> = (0..2).map(|_| fresh(&world, CHUNK)).collect();
    let span = fresh(&world, CHUNK);
    let marked = span.marked_to.get();
    assert!(marked > 0 && world.heap().extend(ground, span, 2 * WITH_CHUNK + CHUNK / UNIT));
    ground.mark_fresh(span);
    assert!(span.marked_to.get() > marked, "where it lies");
    ground.unmark(span);
    let to = world.allocate(4 * WITH_CHUNK, UNIT).expect("memory");
    assert!(world.heap().remap(ground, span, to));
    ground.mark_fresh(to);
    assert!(to.marked_to.get() > to.start.get(), "elsewhere");
    for span in few.into_iter().chain([to]) {
        ground.unmark(span);
        world.free(span);
    }
}

#[test]
fn a_block_that_is_freed_tells_before_its_pages_are_used_again() {
    let world = World::new();
    let span = fresh(&world, CHUNK);
    world.ground().unmark(span);
    let other = fresh(&world, CHUNK);
    let third = fresh(&world, 0);
    assert_eq!([span, other, third].map(|span| span.marked_to.get() > 0), [false, false, true]);
}

#[test]
#[cfg_attr(miri, ignore = "needs a heap that grows by more than a chunk")]
fn a_block_that_grows_is_marked_as_far_as_it_grew() {
    let world = World::new();
    let ground = world.ground();
    let (first, second) = (fresh(&world, CHUNK), fresh(&world, CHUNK));
    let span = fresh(&world, CHUNK);
    let marked = span.marked_to.get();
    assert!(marked > 0);
    os::marks();
    assert!(world.heap().extend(ground, span, WITH_CHUNK + 1));
    ground.mark_fresh(span);
    assert_eq!(os::marks(), [], "no further chunk");
    assert!(world.heap().extend(ground, span, 2 * WITH_CHUNK));
    ground.mark_fresh(span);
    assert_eq!(os::marks(), [(marked, 2 * CHUNK, true)]);
    for span in [first, second, span] {
        ground.unmark(span);
        world.free(span);
    }
}

/// Units of a block that holds no whole chunk, and how many of them come out of one.
const SHORT: usize = CHUNK / UNIT / 4;
const OF_A_CHUNK: usize = 4;

/// A short block as `malloc` hands it out, of which `touched` bytes are written to afterwards.
fn short(world: &World, touched: usize) -> &'static Span {
    let span = world.allocate(SHORT, UNIT).expect("memory");
    if !span.dirty.get() {
        world.ground().mark_fresh(span);
    }
    // SAFETY: within the block, which is ours.
    unsafe { core::ptr::with_exposed_provenance_mut::<u8>(span.start.get()).write_bytes(1, touched) };
    span
}

fn end(world: &World, spans: Vec<&'static Span>) {
    for span in spans {
        world.ground().unmark(span);
        world.free(span);
    }
    assert_eq!(world.heap().used_bytes(), 0);
}

#[test]
fn short_blocks_come_out_of_huge_pages_where_the_program_fills_them_and_much_is_in_use() {
    let world = World::new();
    let few: Vec<_> = (0..6).map(|_| short(&world, SHORT * UNIT)).collect();
    assert!(few.iter().all(|span| !span.dirty.get()), "little is in use");
    let much = world.allocate(HUGE_FROM, UNIT).expect("memory");
    let filled = SHORT * UNIT / 8 * 5;
    let mut spans: Vec<_> = (0..OF_A_CHUNK + 3).map(|_| short(&world, filled)).collect();
    let dirty = |spans: &[&Span]| spans.iter().filter(|span| span.dirty.get()).count();
    assert_eq!((dirty(&spans[..2]), dirty(&spans)), (0, OF_A_CHUNK + 1), "two have told");
    assert_eq!(world.heap().dirty_bytes(), CHUNK - SHORT * UNIT, "the rest of the second huge page");
    spans.extend((0..20 * OF_A_CHUNK).map(|_| short(&world, 1)));
    let fresh = 2 + spans[2..].iter().position(|span| !span.dirty.get()).expect("one is to be looked at");
    assert_eq!(dirty(&spans[fresh..]), 0, "it tells that they are filled no more");
    spans.extend(few);
    spans.push(much);
    end(&world, spans);
}

#[test]
fn short_blocks_come_out_of_none_where_they_are_not_filled_or_nobody_wants_huge_pages() {
    for (touched, wanted, units) in
        [(SHORT * UNIT / 2, 1, 4), (SHORT * UNIT, 0, 4), (SHORT * UNIT, 1, CHUNK / UNIT / 2 + 1)]
    {
        let world = World::new();
        assert!(world.options.set(Name::HugePages, wanted));
        let much = world.allocate(HUGE_FROM, UNIT).expect("memory");
        let mut spans: Vec<_> = (0..2).map(|_| short(&world, touched)).collect();
        spans.extend((0..20).map(|_| world.allocate(units, UNIT).expect("memory")));
        assert!(spans.iter().all(|span| !span.dirty.get()), "{touched}, {wanted}, {units}");
        spans.push(much);
        end(&world, spans);
    }
}
