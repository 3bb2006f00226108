//! Where large blocks begin.

use super::*;

/// Units of a block of many chunks (Miri pays for every byte), and of one of less than a chunk.
const LONG: usize = if cfg!(miri) { 2 } else { 13 } * CHUNK / UNIT;
const SHORT: usize = 24;

/// A large block as the program hands it back, of which it has written to `touched` bytes since it got it.
fn use_one(world: &World, units: usize, touched: usize) -> &'static Span {
    let span = world.allocate(units, UNIT).expect("memory");
    // SAFETY: within the block, which is ours.
    unsafe { core::ptr::with_exposed_provenance_mut::<u8>(span.start.get()).write_bytes(1, touched) };
    world.ground().learn_touched(span, false);
    span
}

#[test]
fn two_blocks_tell_whether_the_program_touches_little_of_them() {
    for units in [SHORT, LONG] {
        let world = World::new();
        let spread = || world.ground().spread(units) > UNIT;
        let told = [units * UNIT * 2 / 5, units * UNIT / 5].map(|touched| {
            use_one(&world, units, touched);
            spread()
        });
        assert_eq!(told, [false, true], "{units}");
        let told = [UNIT, UNIT, UNIT, units * UNIT * 2 / 3, units * UNIT, 0, 0].map(|touched| {
            use_one(&world, units, touched);
            spread()
        });
        assert_eq!(
            told,
            [true, true, true, true, false, false, true],
            "{units}: two that are not sparse end it"
        );
    }
}

#[test]
fn what_was_not_fresh_or_is_small_tells_nothing() {
    let world = World::new();
    for _ in 0..4 {
        use_one(&world, SHORT / 8, 1);
        world.free(use_one(&world, LONG, LONG * UNIT));
        // It comes again, all of it resident, and then purged: little of it is.
        let dirty = world.allocate(LONG, UNIT).expect("memory");
        assert!(dirty.dirty.get());
        // SAFETY: a live run of ours.
        assert!(unsafe { os::purge(dirty.start.get(), dirty.bytes()) });
        world.ground().learn_touched(dirty, false);
    }
    assert_eq!(world.ground().spread(LONG), UNIT);
}

#[test]
fn what_was_not_fresh_tells_that_little_is_touched_if_it_is_looked_at_but_not_that_much_is() {
    let world = World::new();
    let sparse = || world.ground().kept_times() > 0;
    world.free(use_one(&world, LONG, LONG * UNIT));
    let dirty = world.allocate(LONG, UNIT).expect("memory");
    // SAFETY: a live run of ours.
    assert!(dirty.dirty.get() && unsafe { os::purge(dirty.start.get(), dirty.bytes()) });
    let told = [(); 2].map(|()| {
        world.ground().learn_touched(dirty, true);
        sparse()
    });
    assert_eq!(told, [false, true]);
    // SAFETY: as above.
    unsafe {
        core::ptr::with_exposed_provenance_mut::<u8>(dirty.start.get()).write_bytes(1, dirty.bytes());
    }
    for _ in 0..4 {
        world.ground().learn_touched(dirty, true);
        assert!(sparse(), "what is there may be from earlier blocks");
    }
    (0..2).for_each(|_| world.ground().look_at_touched(dirty, true));
    assert!(!sparse());
}

#[test]
fn where_nobody_knows_what_was_touched_blocks_lie_side_by_side() {
    let world = World::new();
    for _ in 0..4 {
        let span = world.allocate(SHORT, UNIT).expect("memory");
        os::inject(os::Faults::From(0));
        world.ground().learn_touched(span, false);
        os::inject(os::Faults::None);
    }
    assert_eq!(world.ground().spread(SHORT), UNIT);
}

#[test]
fn sparse_blocks_begin_at_a_quarter_to_a_half_of_their_size_and_leave_more_dirty() {
    let world = World::new();
    assert_eq!(world.shared.spread.times(), 1);
    for _ in 0..2 {
        use_one(&world, LONG, 1);
    }
    assert_eq!(world.shared.spread.times(), 2);
    let places = [1, 3, 4, 7, 8, 100, 256, 1000, 100_000].map(|units| world.ground().spread(units) / UNIT);
    assert_eq!(places, [1, 1, 2, 2, 4, 32, 128, 128, 128]);
}

#[test]
fn long_blocks_may_be_sparse_where_short_ones_are_filled() {
    let world = World::new();
    let spread = |units| world.ground().spread(units) > UNIT;
    for _ in 0..2 {
        use_one(&world, LONG, 1);
        use_one(&world, SHORT, SHORT * UNIT);
        world.ground().learn_copied(SHORT * UNIT);
    }
    assert_eq!((spread(SHORT), spread(64), spread(65), spread(LONG)), (false, false, true, true));
    assert_eq!((world.shared.spread.times(), world.ground().kept_times()), (1, 0), "not all together");
    world.ground().learn_copied(LONG * UNIT);
    assert!(!spread(LONG));
}

#[test]
fn what_realloc_copies_was_touched() {
    let world = World::new();
    let sparse = || world.ground().kept_times() > 0;
    let told = [1, 1].map(|touched| {
        use_one(&world, SHORT, touched);
        sparse()
    });
    assert_eq!(told, [false, true]);
    for _ in 0..4 {
        world.ground().learn_copied(4 * UNIT - 1);
        assert!(sparse(), "so few bytes are no such block");
    }
    world.ground().learn_copied(4 * UNIT);
    assert!(!sparse());
}

#[test]
fn blocks_that_served_others_tell_whether_there_are_pages_at_three_quarters_of_them() {
    let world = World::new();
    let clean = || world.ground().ends_are_clean();
    for _ in 0..4 {
        use_one(&world, LONG, LONG * UNIT);
        assert!(clean(), "a fresh one has no other's");
    }
    world.free(use_one(&world, LONG, LONG * UNIT));
    let dirty = world.allocate(LONG, UNIT).expect("memory");
    let touch = |from: usize, bytes: usize| {
        // SAFETY: within a live run of ours.
        unsafe {
            assert!(os::purge(dirty.start.get(), dirty.bytes()));
            core::ptr::with_exposed_provenance_mut::<u8>(dirty.start.get() + from).write_bytes(1, bytes);
        }
    };
    let look = || {
        world.ground().learn_touched(dirty, true);
        clean()
    };
    world.ground().learn_touched(dirty, false);
    assert!(dirty.dirty.get() && clean());
    assert_eq!([look(), look()], [true, false]);
    // Half of it, and its last unit, as one leaves them who touches both ends.
    touch(0, LONG / 2 * UNIT);
    assert_eq!([look(), look()], [false, true]);
    touch((LONG - 1) * UNIT, UNIT);
    assert_eq!([look(), look()], [true, true]);
    touch(LONG / 4 * 3 * UNIT, 2 * UNIT);
    os::inject(os::Faults::From(0));
    assert_eq!([look(), look()], [true, false], "where nobody knows");
    os::inject(os::Faults::None);
}
