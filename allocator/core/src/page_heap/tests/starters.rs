//! Which runs starters get.

use super::*;

fn take(world: &World) -> Option<&'static Span> {
    world.heaps.allocate(world.ground(), &world.home, Run { units: 4, align: 4 * UNIT, usage: Use::Mixed })
}

/// A world with so many small blocks that they would come in huge pages, if the system had any.
fn large_world() -> (Box<World>, Vec<&'static Span>) {
    let world = World::new();
    assert!(world.options.set(Name::HugePages, 0));
    // What page heaps tell of themselves may be an eighth too little.
    let spans = (0..HUGE_FROM / 4 * 5 / 4).map(|_| world.allocate_small(4)).collect();
    (world, spans)
}

#[test]
fn a_starter_of_a_small_program_takes_what_is_dirty() {
    let world = World::new();
    world.free(world.allocate(64, UNIT).expect("memory"));
    let starter = take(&world).expect("memory");
    assert!(starter.dirty.get(), "there are no huge pages of which it could be the rest");
    world.free(starter);
    assert_eq!(world.heap().used_bytes(), 0);
}

#[test]
fn a_starter_of_a_large_program_leaves_what_is_dirty_to_others_while_there_is_anything_clean() {
    let (world, spans) = large_world();
    world.free(world.allocate(64, UNIT).expect("memory"));
    let first = take(&world).expect("memory");
    assert!(!first.dirty.get());
    assert_eq!(world.heap().queue.units(), 64);
    // The system gives no more: every run that is left serves.
    os::inject(os::Faults::From(0));
    let all: Vec<_> = core::iter::from_fn(|| take(&world)).collect();
    os::inject(os::Faults::None);
    assert!(all.iter().take_while(|span| !span.dirty.get()).count() > 100);
    assert_eq!(all.iter().filter(|span| span.dirty.get()).count(), 16);
    assert_eq!(world.heap().queue.units(), 0);
    for span in spans.into_iter().chain(all).chain([first]) {
        world.free(span);
    }
    assert_eq!(world.heap().used_bytes(), 0);
}

#[test]
fn starters_that_come_and_go_use_each_others_runs() {
    let (world, spans) = large_world();
    for _ in 0..1000 {
        let starter = take(&world).expect("memory");
        world.free(starter);
    }
    let most = CHUNK / UNIT + HUGE_FROM / 16;
    let dirty = world.heap().queue.units();
    assert!(
        (most / 2..=2 * most).contains(&dirty),
        "{dirty} units, about {most} may be the rests of huge pages"
    );
    for span in spans {
        world.free(span);
    }
    assert_eq!(world.heap().used_bytes(), 0);
}
