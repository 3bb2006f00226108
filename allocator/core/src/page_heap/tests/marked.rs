//! Chunks that are marked together.

use super::super::marked::Marks;
use super::*;
use crate::os::{Call, Faults};

/// Spans of a chunk's size until so many units are in spans of small blocks.
fn grow(world: &World, units: usize) -> Vec<&'static Span> {
    let mut spans = Vec::new();
    while world.heap().small_units < units {
        spans.push(world.allocate_small(16));
    }
    spans
}

#[test]
fn a_heap_that_grows_changes_few_mappings_and_takes_each_mark_away() {
    let world = World::new();
    os::marks();
    let spans = grow(&world, 10 * HUGE_FROM);
    let marks = os::marks();
    let (set, others): (Vec<_>, Vec<_>) = marks.iter().partition(|(.., huge)| *huge);
    assert!(set.len() <= 6, "as many at a time as the heap has: {marks:?}");
    let is_ended = |(start, len, _): &&(usize, usize, bool)| set.contains(&&(*start, *len, true));
    let (ended, barred): (Vec<_>, Vec<_>) = others.into_iter().partition(is_ended);
    assert_eq!(set.len(), ended.len() + 1, "all that were set together, but the last one: {marks:?}");
    let barred: usize = barred.iter().map(|(_, len, _)| len).sum();
    assert_eq!(barred, world.heap().mapped * UNIT, "fresh memory has no huge pages until then: {marks:?}");
    let in_huge_pages = spans.iter().filter(|span| span.dirty.get());
    assert!(in_huge_pages.map(|span| span.units.get()).sum::<usize>() >= 9 * HUGE_FROM);
    let used: usize = spans.iter().map(|span| span.units.get()).sum();
    let heap = world.heap();
    assert_eq!(heap.used_bytes(), used * UNIT, "what waits for its first touch is free");
}

#[test]
fn where_the_system_gives_no_more_what_is_marked_serves_others() {
    let world = World::new();
    let _spans = grow(&world, HUGE_FROM + CHUNK / UNIT);
    os::inject(Faults::From(0));
    let mut blocks = 0;
    while world.allocate(CHUNK / UNIT, UNIT).is_some() {
        blocks += 1;
    }
    assert!(os::refused_calls().contains(&Call::Mark), "it was to be marked no more");
    os::inject(Faults::None);
    let free = world.heap().free_units;
    assert!(blocks > 3 && free < 2 * CHUNK / UNIT, "{blocks} blocks, {free} units are left");
}

#[test]
fn while_one_thread_sets_marks_others_do_without() {
    let world = World::new();
    let _spans = grow(&world, HUGE_FROM);
    let (first, marks) = world.heap().next_for_huge_page(world.ground()).expect("chunks");
    assert!(matches!(marks, Marks::ComingTo(end) if end > first.end()));
    assert!(world.heap().next_for_huge_page(world.ground()).is_none());
    let other = world.allocate_small(16);
    assert!(!other.dirty.get());
    world.heap().end_marks(world.ground());
    assert!(world.heap().next_for_huge_page(world.ground()).is_none(), "it is the other thread's");
    // That one does not live on in the child of a fork.
    let free = world.heap().free_units;
    os::marks();
    world.heaps.forget_marks(world.ground());
    assert_eq!(os::marks().len(), 1);
    assert_eq!(world.heap().free_units, free);
    assert!(world.heap().next_for_huge_page(world.ground()).is_some());
}

/// A heap some of whose marked chunks are left, the spans in it, and where the marks begin.
fn half_marked(world: &World) -> (Vec<&'static Span>, usize) {
    os::marks();
    let spans = grow(world, HUGE_FROM + CHUNK / UNIT);
    let (from, ..) = *os::marks().iter().rfind(|(.., huge)| *huge).expect("huge pages are wanted");
    (spans, from)
}

#[test]
fn marks_end_when_no_chunk_was_taken_for_some_time() {
    let world = World::new();
    let (_spans, from) = half_marked(&world);
    let now = os::now_ms();
    world.heaps.purge_old(world.ground(), now + DECAY_MS / 2);
    assert_eq!(os::marks(), []);
    world.heaps.purge_old(world.ground(), now + 2 * DECAY_MS);
    let ended = os::marks();
    assert!(matches!(ended[..], [(start, _, false)] if start == from), "{ended:?}");
    let last = from + ended[0].1 - CHUNK;
    let heap = world.heap();
    let mut free = heap.clean.longest_first();
    assert!(free.any(|run| (run.start.get()..run.end()).contains(&last)), "others may have what is left");
}

#[test]
fn what_is_purged_is_marked_no_more() {
    let world = World::new();
    let (spans, from) = half_marked(&world);
    let (among, before): (Vec<_>, Vec<_>) = spans.into_iter().partition(|span| span.start.get() >= from);
    // What is purged elsewhere does not matter.
    world.free(before[0]);
    assert!(world.heap().purge_oldest(world.ground(), 1).0);
    assert_eq!(os::marks(), []);
    world.free(among[0]);
    world.heap().purge_all(world.ground());
    let ended = os::marks();
    assert!(matches!(ended[..], [(start, _, false)] if start == from), "{ended:?}");
}
