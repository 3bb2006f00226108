//! The page heap on the simulated system.

mod dense;
mod filled;
mod growth;
mod marked;
mod remap;
mod spread;
mod starters;

use core::cell::Cell;

use super::bins::{BINS, bin_of};
use super::heaps::MEETINGS;
use super::huge::{HUGE_FROM, Wanted};
use super::purge::DECAY_MS;
use super::*;
use crate::options::Name;
use crate::sync::Guard;
use crate::units::Kept;

/// A span for blocks larger than a page, which no huge page is worth.
fn sparsely(least: usize, most: usize) -> Wanted {
    Wanted { least, most, densely: false, short: false }
}

struct World {
    options: Options,
    shared: Shared,
    units: Units,
    meta: Lock<Meta>,
    home: Home,
    heaps: PageHeaps,
}

impl World {
    fn new() -> Box<Self> {
        let world = Box::new(Self {
            options: Options::new(),
            shared: Shared::new(),
            units: Units::new(Box::leak(Box::new(Kept::new()))),
            meta: Lock::new(Meta::new()),
            home: Home::new(),
            heaps: PageHeaps::new(),
        });
        world.tend(1);
        world
    }

    fn ground(&self) -> Ground<'_> {
        Ground { options: &self.options, shared: &self.shared, units: &self.units, meta: &self.meta }
    }

    /// Whether somebody looks after the dirty runs.
    fn tend(&self, tended: u32) {
        // Relaxed: nobody else is there.
        self.shared.tended.store(tended, Ordering::Relaxed);
    }

    /// The first page heap.
    fn heap(&self) -> Guard<'_, PageHeap> {
        self.heaps.all()[0].lock()
    }

    fn allocate(&self, units: usize, align: usize) -> Option<&'static Span> {
        self.heaps.allocate(self.ground(), &self.home, large(units, align))
    }

    fn allocate_small(&self, units: usize) -> &'static Span {
        self.allocate_for(Wanted { densely: true, ..sparsely(units, units) })
    }

    fn allocate_for(&self, wanted: Wanted) -> &'static Span {
        self.heaps.allocate_small(self.ground(), &self.home, wanted).expect("memory")
    }

    fn free(&self, span: &'static Span) {
        self.heaps.free(self.ground(), span);
    }
}

/// A world for several threads.
struct Threads<'a>(&'a World);

// SAFETY: pointers in free runs are followed under their page heap's lock only.
unsafe impl Sync for Threads<'_> {}

#[test]
fn bins_grow_with_the_length() {
    let mut last = 0;
    for units in 1..100_000 {
        let bin = bin_of(units);
        assert!(bin == last || bin == last + 1);
        last = bin;
    }
    assert!(bin_of((1 << 48) / UNIT) < BINS);
}

#[test]
fn runs_do_not_overlap_and_merge_again() {
    let world = World::new();
    let runs: Vec<_> = (1..15).map(|units| world.allocate(units, UNIT).expect("memory")).collect();
    for (index, run) in runs.iter().enumerate() {
        assert_eq!(run.units.get(), index + 1);
        for other in &runs[..index] {
            assert!(run.start.get() >= other.end() || other.start.get() >= run.end());
        }
    }
    for run in runs {
        world.free(run);
    }
    assert_eq!(world.heap().used_bytes(), 0);
    let mapped = world.heap().mapped;
    let all = world.allocate(14 * 15 / 2, UNIT).expect("memory");
    assert_eq!(world.heap().mapped, mapped, "the merged run is long enough");
    world.free(all);
}

#[test]
fn alignments_are_kept_and_nothing_is_lost() {
    let world = World::new();
    for shift in 14..24 {
        let run = world.allocate(3, 1 << shift).expect("memory");
        assert_eq!(run.start.get() % (1 << shift), 0);
        world.free(run);
    }
    assert_eq!(world.heap().used_bytes(), 0);
}

#[test]
fn a_run_extends_into_its_neighbour_and_shrinks_again() {
    let world = World::new();
    let (first, second) =
        (world.allocate(4, UNIT).expect("memory"), world.allocate(4, UNIT).expect("memory"));
    assert_eq!(first.end(), second.start.get());
    let ground = world.ground();
    assert!(!world.heap().extend(ground, first, 6));
    world.heap().free(ground, second);
    assert!(world.heap().extend(ground, first, 6));
    assert_eq!(first.units.get(), 6);
    world.heap().shrink(ground, first, 2);
    assert_eq!(world.heap().used_bytes(), 2 * UNIT);
}

#[test]
fn a_run_extends_into_a_dirty_neighbour_and_the_clean_one_behind_it() {
    let world = World::new();
    let [run, dirty] = [4, 4].map(|units| world.allocate(units, UNIT).expect("memory"));
    world.free(dirty);
    assert!(world.heap().extend(world.ground(), run, 11));
    assert_eq!((run.units.get(), world.heap().dirty_bytes()), (11, 0));
    let next = world.allocate(1, UNIT).expect("memory");
    assert_eq!(next.start.get(), run.end(), "the rest of the clean one is free");
    assert!(!world.heap().extend(world.ground(), run, 12));
    [run, next].into_iter().for_each(|run| world.free(run));
    assert_eq!(world.heap().used_bytes(), 0);
}

#[test]
fn what_was_free_for_long_goes_back_to_the_system() {
    let world = World::new();
    world.tend(0);
    let run = world.allocate(100, UNIT).expect("memory");
    let other = world.allocate(1, UNIT).expect("memory");
    world.free(run);
    assert_eq!(world.heap().dirty_bytes(), 100 * UNIT, "a run that was just used stays");
    std::thread::sleep(std::time::Duration::from_millis(DECAY_MS + 10 * TICK_MS));
    world.free(other);
    assert_eq!(world.heap().dirty_bytes(), 0, "the neighbour that was freed last goes with it");
}

#[test]
fn who_tends_the_heap_purges_what_is_old_and_no_more() {
    let world = World::new();
    let runs = [3 * CHUNK / UNIT, 1, 5].map(|units| world.allocate(units, UNIT).expect("memory"));
    world.free(runs[0]);
    world.free(runs[2]);
    let (now, all) = (os::now_ms(), world.heap().dirty_bytes());
    let (ground, heaps) = (world.ground(), &world.heaps);
    heaps.purge_old(ground, now + DECAY_MS / 2);
    assert_eq!(world.heap().dirty_bytes(), all);
    os::inject(os::Faults::From(0));
    heaps.purge_old(ground, now + 2 * DECAY_MS);
    os::inject(os::Faults::None);
    assert_eq!(world.heap().dirty_bytes(), all, "what the system refuses stays");
    heaps.purge_old(ground, now + 4 * DECAY_MS);
    assert_eq!(world.heap().dirty_bytes(), 0);
    world.free(runs[1]);
    assert_eq!(world.heap().used_bytes(), 0);
}

#[test]
fn whatever_the_system_refuses_the_heap_stays_whole() {
    for refusals in 0..12 {
        let world = World::new();
        os::inject(os::Faults::From(refusals));
        let early = world.allocate(3, 1 << 16);
        os::inject(os::Faults::None);
        let late = world.allocate(3, 1 << 16).expect("memory is there again");
        world.free(late);
        if let Some(early) = early {
            world.free(early);
        }
        assert_eq!(world.heap().used_bytes(), 0);
    }
}

#[test]
fn a_large_heap_of_small_blocks_grows_by_huge_pages() {
    let world = World::new();
    let small = |world: &World| world.allocate_small(4);
    let few: Vec<_> = (0..HUGE_FROM / 4).map(|_| small(&world)).collect();
    let sparse = world.allocate_for(sparsely(1, 4));
    assert_eq!(
        (world.heap().dirty_bytes(), sparse.units.get()),
        (0, 4),
        "a small heap does without, or a sparse one"
    );
    let next = small(&world);
    assert!(next.dirty.get() && next.start.get().is_multiple_of(CHUNK));
    assert_eq!(world.heap().dirty_bytes(), CHUNK - next.bytes(), "the rest of it waits as a dirty run");
    let large = world.allocate(4, UNIT).expect("memory");
    assert_eq!(large.start.get(), next.end(), "which whoever comes next takes first");
    let rest: Vec<_> = (0..CHUNK / UNIT / 4 - 2).map(|_| small(&world)).collect();
    assert_eq!(world.heap().dirty_bytes(), 0);
    for span in few.into_iter().chain(rest).chain([next, large, sparse]) {
        world.free(span);
    }
    let heap = world.heap();
    assert_eq!((heap.used_bytes(), heap.small_units), (0, 0));
}

#[test]
fn a_shorter_dirty_run_serves_small_blocks_as_well() {
    let world = World::new();
    let (run, wall) = (world.allocate(5, UNIT).expect("memory"), world.allocate(1, UNIT).expect("memory"));
    let start = run.start.get();
    world.free(run);
    let span = world.allocate_for(sparsely(2, 8));
    assert_eq!((span.start.get(), span.units.get()), (start, 4), "as many of what it takes as there are");
    let other = world.allocate_for(sparsely(2, 8));
    assert_eq!(other.units.get(), 8, "one unit is dirty, and too short");
    for span in [span, other, wall] {
        world.free(span);
    }
    assert_eq!(world.heap().used_bytes(), 0);
}

#[test]
fn where_the_system_has_no_huge_pages_or_nobody_wants_them_pages_come_one_by_one() {
    for (granted, wanted) in [(false, 1), (true, 0)] {
        let world = World::new();
        assert!(world.options.set(Name::HugePages, wanted));
        os::grant_huge_pages(granted);
        let spans: Vec<_> = (0..HUGE_FROM / 4 + 100).map(|_| world.allocate_small(4)).collect();
        os::grant_huge_pages(true);
        assert!(spans.iter().all(|span| !span.dirty.get()));
        assert_eq!(world.heap().dirty_bytes(), 0);
        for span in spans {
            world.free(span);
        }
        assert_eq!(world.heap().used_bytes(), 0);
    }
}

#[test]
fn where_huge_pages_are_dear_small_blocks_get_few() {
    // So many huge pages of these costs lose what they may.
    for (cost, pages) in [(100, 6), (700, 6), (1500, 4), (2800, 2), (4000, 1)] {
        let world = World::new();
        os::work_us(cost);
        let spans: Vec<_> =
            (0..HUGE_FROM / 4 + 6 * CHUNK / UNIT / 4).map(|_| world.allocate_small(4)).collect();
        os::work_us(0);
        let in_huge_pages = spans.iter().filter(|span| span.dirty.get()).count();
        assert_eq!(in_huge_pages, pages * CHUNK / UNIT / 4, "{cost}");
        for span in spans {
            world.free(span);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes most of the simulated machine's memory there")]
fn while_nobody_tends_the_heap_no_more_stays_dirty_than_is_in_use() {
    let mib = (1 << 20) / UNIT;
    for (tended, used, most) in [(1, 0, 80), (0, 0, 48), (0, 30, 48), (0, 64, 64), (0, 100, 80)] {
        let world = World::new();
        world.tend(tended);
        let spans: Vec<_> = (0..80).map(|_| world.allocate(mib, UNIT).expect("memory")).collect();
        let in_use = (used > 0).then(|| world.allocate(used * mib, UNIT).expect("memory"));
        spans.into_iter().for_each(|span| world.free(span));
        let dirty = world.heap().dirty_bytes() >> 20;
        // Runs that merge are purged as one; where nothing is too much, all stays.
        let least = if most == 80 { 80 } else { most - 2 };
        assert!((least..=most).contains(&dirty), "{dirty} MiB with {tended} while {used} MiB are in use");
        in_use.into_iter().for_each(|span| world.free(span));
        world.heaps.purge_excess(world.ground());
        assert!(world.heap().dirty_bytes() >> 20 <= if tended == 1 { 80 } else { 48 });
    }
}

#[test]
fn an_arena_that_often_finds_its_page_heap_taken_moves_on() {
    let world = World::new();
    let other = &Threads(&world);
    let (ask, asked) = std::sync::mpsc::channel();
    let (answer, answers) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let world = other.0;
            for () in asked {
                let run = world.heaps.allocate(world.ground(), &world.home, large(1, UNIT)).expect("memory");
                let page_heap = run.page_heap;
                world.heaps.free(world.ground(), run);
                answer.send(page_heap).expect("somebody listens");
            }
        });
        let mut met = world.home.met();
        for _ in 0..MEETINGS {
            let taken = world.heap();
            ask.send(()).expect("somebody listens");
            // Until it waits for us.
            while world.home.met() == met {
                std::thread::yield_now();
            }
            met = world.home.met();
            drop(taken);
            assert_eq!(answers.recv(), Ok(0));
        }
        let entered = || world.heaps.entered().len();
        assert_eq!(entered(), 1, "nobody looks at the others");
        ask.send(()).expect("somebody listens");
        assert_eq!(answers.recv(), Ok(1));
        assert_eq!(entered(), 2);
        drop(ask);
    });
}

#[test]
#[cfg_attr(miri, ignore = "needs a heap that grows by more than a chunk")]
fn what_is_dirty_in_another_page_heap_comes_before_fresh_memory_and_what_is_clean_there_comes_last() {
    let world = World::new();
    let ground = world.ground();
    let (one, other) = (Home::new(), Home::at(1));
    let allocate =
        |home: &Home, mib: usize| world.heaps.allocate(ground, home, large((mib << 20) / UNIT, UNIT));
    let run = allocate(&one, 3).expect("memory");
    let (start, wall) = (run.start.get(), allocate(&one, 1).expect("memory"));
    world.heaps.free(ground, run);
    let small = world.heaps.allocate(ground, &other, large(1, UNIT)).expect("memory");
    assert_eq!((small.start.get(), small.page_heap), (start, 0), "it was freed there last");
    let large_one = allocate(&other, 3).expect("memory");
    assert_eq!(
        (large_one.page_heap, large_one.dirty.get()),
        (1, false),
        "nothing that is dirty is long enough"
    );
    world.heaps.purge_all(ground);
    let next = allocate(&other, 1).expect("memory");
    assert_eq!(next.page_heap, 1, "what is clean is nobody else's business");
    let rest: Vec<_> = core::iter::from_fn(|| {
        os::inject(os::Faults::From(0));
        let run = allocate(&other, 1);
        os::inject(os::Faults::None);
        run
    })
    .collect();
    assert_eq!(rest.first().map(|run| run.page_heap), Some(1));
    assert_eq!(rest.last().map(|run| run.page_heap), Some(0), "… unless the system has no more");
    for span in rest.into_iter().chain([wall, small, large_one, next]) {
        world.heaps.free(ground, span);
    }
    assert_eq!(world.heaps.statistics().active, 0);
}

#[test]
fn a_dirty_run_and_its_clean_neighbours_serve_as_one() {
    for (lengths, units) in [([4, 5, 6], 7), ([4, 5, 6], 13), ([4, 5, 0], 6), ([0, 5, 6], 11)] {
        let world = World::new();
        let runs = [1, lengths[0].max(1), lengths[1], lengths[2].max(1), 1]
            .map(|units| world.allocate(units, UNIT).expect("memory"));
        // The clean neighbours, or blocks in use where a length is 0.
        for index in [1, 3] {
            if lengths[index - 1] > 0 {
                world.free(runs[index]);
            }
        }
        world.heaps.purge_all(world.ground());
        let from_behind = lengths[2].min(units - lengths[1]);
        let (start, end) =
            (runs[2].end() + from_behind * UNIT - units * UNIT, runs[2].end() + from_behind * UNIT);
        world.free(runs[2]);
        let free = world.heap().free_units;
        let run = world.allocate(units, UNIT).expect("memory");
        assert_eq!((run.start.get(), run.end()), (start, end), "from behind first: {lengths:?}");
        assert!(run.dirty.get() && world.heap().dirty_bytes() == 0);
        assert_eq!(world.heap().free_units, free - units);
        world.free(run);
        for index in [0, 1, 3, 4] {
            if index % 4 == 0 || lengths[index - 1] == 0 {
                world.free(runs[index]);
            }
        }
        assert_eq!(world.heap().used_bytes(), 0);
    }
}

/// A world with free runs of these lengths side by side, the odd ones dirty, between two in use.
fn side_by_side(lengths: &[usize]) -> Box<World> {
    let world = World::new();
    let run = |&units: &usize| world.allocate(units, UNIT).expect("memory");
    let runs: Vec<_> = [1].iter().chain(lengths).chain(&[1]).map(run).collect();
    for clean in [true, false] {
        for (index, run) in (0..lengths.len()).zip(&runs[1..]) {
            if (index % 2 == 0) == clean {
                world.free(run);
            }
        }
        if clean {
            world.heaps.purge_all(world.ground());
        }
    }
    world
}

#[test]
fn clean_and_dirty_runs_in_turn_serve_as_one() {
    for (units, dirty) in [(15, 2 * UNIT), (18, 0), (21, 0)] {
        let world = side_by_side(&[4, 3, 5, 6, 3]);
        let free = world.heap().free_units;
        let run = world.allocate(units, UNIT).expect("memory");
        let heap = world.heap();
        assert!(run.dirty.get());
        assert_eq!((heap.free_units, heap.dirty_bytes()), (free - units, dirty), "{units}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "needs a heap that grows by more than a chunk")]
fn short_dirty_runs_are_purged_where_that_makes_a_long_clean_one() {
    let most = GROW_MIN - CHUNK / UNIT;
    // What lies behind is long enough without the last dirty one.
    let world = side_by_side(&[most / 2, 1, most / 2, 1, 2]);
    world.heap().growth = Growth::of(usize::MAX);
    let elsewhere = world.allocate(CHUNK / UNIT / 2, UNIT).expect("memory");
    let between = world.allocate(8, UNIT).expect("memory");
    world.free(elsewhere);
    let mapped = world.heap().mapped;
    let run = world.allocate(most, UNIT).expect("memory");
    assert!(!run.dirty.get() && world.heap().mapped == mapped);
    assert_eq!(world.heap().dirty_bytes(), elsewhere.bytes() + UNIT, "what is not needed stays");
    for run in [run, between] {
        world.free(run);
    }
}

#[test]
#[cfg_attr(miri, ignore = "needs a heap that grows by more than a chunk")]
fn threads_that_have_one_block_at_a_time_find_it_where_it_was() {
    let world = World::new();
    let (ground, places) = (world.ground(), [const { Cell::new(0) }; 2]);
    let allocate = |thread: usize, mib: usize| {
        let run = large((mib << 20) / UNIT, UNIT);
        world.heaps.allocate_apart(ground, &places[thread], run).expect("memory")
    };
    let mut blocks = [allocate(0, 8), allocate(1, 8)];
    let starts = blocks.map(|block| block.start.get());
    assert_ne!(blocks[0].page_heap, blocks[1].page_heap);
    for round in 0..20 {
        let (first, second) = (round % 2, (round + 1) % 2);
        world.heaps.free(ground, blocks[first]);
        world.heaps.free(ground, blocks[second]);
        blocks[first] = allocate(first, 1 + round % 7);
        blocks[second] = allocate(second, 1 + round % 5);
        assert_eq!(blocks.map(|block| block.start.get()), starts);
    }
}
