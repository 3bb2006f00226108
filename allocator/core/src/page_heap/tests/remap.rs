//! Pages that were moved, and the mappings that the system keeps for them.

use super::*;

/// Bytes of the least block that is moved, in units.
const MOVED: usize = MOVED_FROM / UNIT;

fn large(world: &World, units: usize) -> &'static Span {
    world.heap().allocate_large(world.ground(), units).expect("memory")
}

/// Units that are dirty, units in use, and large blocks.
fn sums(world: &World) -> (usize, usize, usize) {
    let heap = world.heap();
    (heap.dirty_bytes() / UNIT, heap.used_bytes() / UNIT, heap.large_blocks)
}

fn mappings(world: &World) -> usize {
    // Relaxed: nobody else is there.
    world.shared.mappings.load(Ordering::Relaxed)
}

fn byte(span: &Span, offset: usize) -> *mut u8 {
    core::ptr::with_exposed_provenance_mut(span.start.get() + offset)
}

/// A run of `units` whose pages came from elsewhere.
fn moved(world: &World, units: usize) -> &'static Span {
    let (from, to) = (large(world, MOVED.min(units)), large(world, units));
    assert!(world.heap().remap(world.ground(), from, to));
    to
}

#[test]
fn pages_move_to_another_run_and_what_is_left_is_clean() {
    let world = World::new();
    let (from, wall, to) = (large(&world, 4), large(&world, 1), large(&world, 9));
    let place = byte(from, 4 * UNIT - 1);
    // SAFETY: the run is this test's, and that long.
    unsafe { place.write(7) };
    assert!(world.heap().remap(world.ground(), from, to));
    // SAFETY: as above; the simulated system's memory stays readable.
    assert_eq!(unsafe { (byte(to, 4 * UNIT - 1).read(), place.read()) }, (7, 0));
    assert_eq!((sums(&world), mappings(&world)), ((0, 10, 2), 1));
    os::inject(os::Faults::From(0));
    let again = large(&world, 9);
    assert!(!world.heap().remap(world.ground(), to, again), "where the system refuses nothing changes");
    os::inject(os::Faults::None);
    // What was to take the pages is free again, and clean.
    assert_eq!((sums(&world), mappings(&world)), ((0, 10, 2), 1));
    for span in [wall, to] {
        world.free(span);
    }
    assert_eq!(sums(&world), (10, 0, 0));
}

#[test]
fn what_moves_on_takes_its_mappings_along_and_one_for_what_it_grew_by() {
    let world = World::new();
    let mut run = moved(&world, 4 * MOVED);
    for count in [1, 2, 3] {
        assert_eq!((run.mappings.get(), mappings(&world)), (count, count as usize));
        let to = large(&world, 4 * MOVED);
        assert!(world.heap().remap(world.ground(), run, to));
        run = to;
    }
    world.free(run);
    let part = world.allocate(1, UNIT).expect("memory");
    world.free(part);
    world.heaps.purge_all(world.ground());
    assert_eq!((sums(&world), mappings(&world)), ((0, 0, 0), 0));
}

#[test]
fn where_pages_could_not_go_and_the_place_is_lost_nothing_ever_lies() {
    let world = World::new();
    let (from, to, wall) = (large(&world, 4), large(&world, 9), large(&world, 1));
    let (lost, mapped) = (to.start.get()..to.end(), world.heap().mapped);
    // SAFETY: the run is this test's.
    unsafe { byte(from, 0).write(7) };
    os::refuse_to_move(os::Moved::PlaceLost);
    os::inject(os::Faults::From(0));
    assert!(!world.heap().remap(world.ground(), from, to));
    os::inject(os::Faults::None);
    os::refuse_to_move(os::Moved::No);
    // SAFETY: as above.
    assert_eq!(unsafe { byte(from, 0).read() }, 7);
    assert_eq!((sums(&world), world.heap().mapped), ((0, 5, 2), mapped - 9));
    assert!(!world.heap().extend(world.ground(), from, 5), "behind it lies nothing that is free");
    for span in [from, wall] {
        world.free(span);
    }
    assert_eq!(sums(&world), (5, 0, 0));
    let all = mapped - 9;
    let again: Vec<_> = (0..all).map_while(|_| world.allocate(1, UNIT)).collect();
    assert!(again.len() >= all && again.iter().all(|span| !lost.contains(&span.start.get())));
}

#[test]
#[should_panic(expected = "a part of a block only")]
fn a_program_whose_pages_moved_in_part_ends() {
    let world = World::new();
    let (from, to) = (large(&world, 4), large(&world, 4));
    os::refuse_to_move(os::Moved::Torn);
    os::inject(os::Faults::From(0));
    world.heap().remap(world.ground(), from, to);
}

#[test]
fn moved_pages_stay_with_their_run_until_they_are_given_back() {
    let world = World::new();
    let run = moved(&world, 2 * MOVED);
    world.free(run);
    assert_eq!((sums(&world), mappings(&world)), ((2 * MOVED, 0, 0), 1));
    let parts: Vec<_> = (0..4).map(|_| world.allocate(MOVED / 2, UNIT).expect("memory")).collect();
    assert!(parts.iter().all(|part| part.dirty.get()), "they are used again");
    assert!((1..=4).contains(&mappings(&world)));
    parts.into_iter().for_each(|part| world.free(part));
    assert!((1..=4).contains(&mappings(&world)));
    os::inject(os::Faults::From(0));
    world.heaps.purge_all(world.ground());
    assert!(mappings(&world) > 0, "the system refused");
    os::inject(os::Faults::None);
    world.heaps.purge_all(world.ground());
    assert_eq!((sums(&world), mappings(&world)), ((0, 0, 0), 0));
}

#[test]
fn mappings_are_no_more_than_the_length_allows_however_often_runs_are_split_and_merged() {
    let world = World::new();
    let run = moved(&world, 4 * MOVED);
    world.free(run);
    for _ in 0..20 {
        let parts = [1, 3, MOVED, 2 * MOVED].map(|units| world.allocate(units, UNIT).expect("memory"));
        parts.into_iter().for_each(|part| world.free(part));
    }
    // Each part may have one at its ends.
    assert!((1..=4 + 5).contains(&mappings(&world)), "{}", mappings(&world));
    world.heaps.purge_all(world.ground());
    assert_eq!(mappings(&world), 0);
}

#[test]
#[cfg_attr(miri, ignore = "needs a heap that grows by more than a chunk")]
fn a_block_that_grows_goes_where_pages_are_and_room_is_left() {
    let world = World::new();
    let room = |units: usize| world.heap().allocate_with_room(world.ground(), units);
    assert!(room(MOVED).is_none(), "nothing is dirty");
    assert!(
        room(usize::MAX / UNIT).is_none() && room(usize::MAX).is_none(),
        "no address space is that large"
    );
    let (first, wall) = (large(&world, 2 * MOVED), large(&world, 1));
    world.free(first);
    assert!(room(2 * MOVED).is_none(), "no room is left");
    let (longer, next_wall) = (large(&world, 3 * MOVED), large(&world, 1));
    let start = longer.start.get();
    world.free(longer);
    let block = room(MOVED).expect("it fits");
    assert_eq!(
        (block.start.get(), block.units.get(), block.dirty.get()),
        (start + UNIT, MOVED, true),
        "in the longest one, as far behind the block before that as that is long"
    );
    assert!(world.heap().extend(world.ground(), block, 3 * MOVED - 1), "it has room");
    assert!(world.heap().extend(world.ground(), wall, 2), "so has the other");
    for span in [block, wall, next_wall] {
        world.free(span);
    }
}

#[test]
fn a_block_that_grows_into_fresh_memory_counts_for_the_peak() {
    let world = World::new();
    let (block, wall) = (large(&world, MOVED), large(&world, 1));
    let (dirty, next_wall) = (large(&world, 16 * MOVED), large(&world, 1));
    world.free(dirty);
    assert!(world.heap().extend(world.ground(), next_wall, 16 * MOVED));
    assert!(
        sums(&world).0 < 16 * MOVED,
        "what is dirty makes room for it, as far as page faults are worth it"
    );
    for span in [block, wall, next_wall] {
        world.free(span);
    }
    assert_eq!(sums(&world).1, 0);
}
