//! Before the heap grows beyond what it ever was.

use super::*;

impl World {
    /// Where no time passes.
    fn of_no_time() -> Box<Self> {
        os::stop_clock(1);
        Self::new()
    }

    fn growths(&self) -> u32 {
        // Relaxed: nobody else is there.
        self.shared.growths.load(Ordering::Relaxed)
    }
}

#[test]
fn what_is_dirty_and_too_short_goes_back_up_to_an_eighth_of_the_peak() {
    let world = World::of_no_time();
    let [other, short, wall] = [239, 64, 1].map(|units| world.allocate(units, UNIT).expect("memory"));
    world.free(short);
    assert_eq!(world.heap().dirty_bytes(), 64 * UNIT);
    // 304 units are the peak, 304 + 96 would be the next; 50 are an eighth of that.
    let longer = world.allocate(96, UNIT).expect("memory");
    assert_eq!(world.heap().dirty_bytes(), 14 * UNIT);
    // Its own place again: no more than there was.
    world.free(longer);
    let longer = world.allocate(96, UNIT).expect("memory");
    assert_eq!(world.heap().dirty_bytes(), 14 * UNIT);
    // 350 units are the peak, 424 would be the next; 3 of 53 are left.
    let more = world.allocate(74, UNIT).expect("memory");
    assert_eq!(world.heap().dirty_bytes(), 11 * UNIT);
    for run in [other, wall, longer, more] {
        world.free(run);
    }
}

#[test]
fn for_a_block_that_is_a_quarter_of_the_heap_it_is_up_to_half() {
    let world = World::of_no_time();
    let [short, wall] = [64, 1].map(|units| world.allocate(units, UNIT).expect("memory"));
    world.free(short);
    // 65 units are the peak, 65 + 95 would be the next.
    let longer = world.allocate(95, UNIT).expect("memory");
    assert_eq!(world.heap().dirty_bytes(), 0);
    // The first where the short one was.
    let [again, end] = [64, 1].map(|units| world.allocate(units, UNIT).expect("memory"));
    world.free(longer);
    // 161 units are the peak, 281 would be the next; 76 of 140 are left.
    let longest = world.allocate(120, UNIT).expect("memory");
    assert_eq!(world.heap().dirty_bytes(), (95 - 76) * UNIT);
    [wall, again, end, longest].into_iter().for_each(|run| world.free(run));
}

#[test]
fn what_was_spent_comes_back_with_small_blocks_and_time_and_is_not_saved_up() {
    let dirty_after = |before: usize, between: usize, ms: u64| {
        let world = World::of_no_time();
        let hand_out = |units: usize| {
            for _ in 0..units {
                world.free(world.allocate_for(sparsely(1, 1)));
            }
        };
        hand_out(before);
        let [other, short, wall] = [239, 64, 1].map(|units| world.allocate(units, UNIT).expect("memory"));
        world.free(short);
        // As above: this spends all that may be, 50 units, and the next would leave 11.
        let longer = world.allocate(96, UNIT).expect("memory");
        hand_out(between);
        os::stop_clock(1 + ms);
        let more = world.allocate(74, UNIT).expect("memory");
        let dirty = world.heap().dirty_bytes() / UNIT;
        [other, wall, longer, more].into_iter().for_each(|run| world.free(run));
        dirty
    };
    assert_eq!(dirty_after(0, 0, 0), 11);
    assert_eq!(dirty_after(0, 80, 0), 1);
    // 4 units are 64 KiB.
    assert_eq!(dirty_after(0, 0, 1), 7);
    assert_eq!(dirty_after(0, 0, 1000), 0);
    assert_eq!(dirty_after(320, 0, 0), dirty_after(1, 0, 0));
}

#[test]
fn a_dirty_run_made_longer_is_growth_too() {
    let world = World::of_no_time();
    let [elsewhere, wall, front] = [40, 1, 40].map(|units| world.allocate(units, UNIT).expect("memory"));
    [elsewhere, front].into_iter().for_each(|run| world.free(run));
    // 81 units are the peak. 40 dirty ones and 20 clean ones behind them: 101; 12 are an eighth of that.
    let longer = world.allocate(60, UNIT).expect("memory");
    assert!(longer.dirty.get());
    assert_eq!(world.heap().dirty_bytes(), 28 * UNIT);
    [wall, longer].into_iter().for_each(|run| world.free(run));
}

#[test]
fn no_more_than_8_mib_go_back_so() {
    let world = World::of_no_time();
    let units = CHUNK / UNIT / 4;
    let runs: Vec<_> = (0..200).map(|_| world.allocate(units, UNIT).expect("memory")).collect();
    // Every other one, so that none is long enough for more than it was.
    let (gone, kept): (Vec<_>, Vec<_>) = (0..).zip(runs).partition(|(index, _)| index % 2 == 0);
    gone.iter().for_each(|(_, run)| world.free(run));
    let dirty = world.heap().dirty_bytes();
    let longer: Vec<_> = (0..100).map(|_| world.allocate(units + 1, UNIT).expect("memory")).collect();
    assert_eq!(dirty - world.heap().dirty_bytes(), 8 << 20);
    for run in kept.into_iter().map(|(_, run)| run).chain(longer) {
        world.free(run);
    }
}

#[test]
fn what_is_dirty_beyond_what_is_in_use_goes_back_in_any_case() {
    let world = World::of_no_time();
    let mut runs: Vec<_> = (0..20)
        .map(|index| world.allocate(if index % 2 == 0 { 40 } else { 1 }, UNIT).expect("memory"))
        .collect();
    runs.extract_if(.., |run| run.units.get() == 40).for_each(|run| world.free(run));
    // 410 units are the peak, of which 10 are in use. An eighth, 56, may go beside that; with the sixth run no more is dirty than in use.
    for dirty in [359, 318, 277, 236, 195, 195] {
        runs.push(world.allocate(41, UNIT).expect("memory"));
        assert_eq!(world.heap().dirty_bytes(), dirty * UNIT);
    }
    runs.into_iter().for_each(|run| world.free(run));
}

#[test]
fn nothing_goes_back_of_a_program_that_touches_little_of_its_blocks() {
    let world = World::new();
    (0..4).for_each(|_| world.ground().learn_touched(world.allocate(8, UNIT).expect("memory"), false));
    let (short, wall) = (world.allocate(64, UNIT).expect("memory"), world.allocate(1, UNIT).expect("memory"));
    world.free(short);
    let dirty = world.heap().dirty_bytes();
    let longer = world.allocate(95, UNIT).expect("memory");
    assert_eq!(world.heap().dirty_bytes(), dirty);
    for run in [wall, longer] {
        world.free(run);
    }
}

#[test]
fn threads_are_told_of_each_eighth() {
    let world = World::new();
    let mut runs = Vec::new();
    for (units, growths) in [(100, 1), (12, 1), (4, 2), (14, 2), (16, 3)] {
        runs.push(world.allocate(units, UNIT).expect("memory"));
        assert_eq!(world.growths(), growths, "with {units} more");
    }
    // The same again is no growth.
    for run in runs {
        world.free(run);
    }
    for units in [100, 12, 4, 14] {
        world.allocate(units, UNIT).expect("memory");
    }
    assert_eq!(world.growths(), 3);
}

#[test]
fn what_could_not_be_had_is_no_growth() {
    let world = World::new();
    world.allocate(64, UNIT).expect("memory");
    assert!(world.allocate(os::window().len() / UNIT, UNIT).is_none());
    assert_eq!(world.growths(), 1);
    world.allocate(64, UNIT).expect("memory");
    assert_eq!(world.growths(), 2);
}

#[test]
#[cfg_attr(miri, ignore = "needs a heap that grows by more than a chunk")]
fn who_would_make_a_page_heap_grow_beyond_eight_megabytes_waits_for_what_is_dirty_in_another() {
    let world = World::new();
    let (one, other) = (Home::new(), Home::at(1));
    let mib = |mib: usize| large((mib << 20) / UNIT, UNIT);
    let allocate = |home: &Home, run| world.heaps.allocate(world.ground(), home, run).expect("memory");
    let [dirty, wall] = [mib(2), mib(1)].map(|run| allocate(&one, run));
    world.free(dirty);
    let threads = &Threads(&world);
    let (other, mib) = (&other, &mib);
    let (answer, answers) = std::sync::mpsc::channel();
    let ask = || {
        let answer = answer.clone();
        move || {
            let world = threads.0;
            let run = world.heaps.allocate(world.ground(), other, mib(1)).expect("memory");
            answer.send((run.page_heap, run.start.get())).expect("somebody listens");
        }
    };
    std::thread::scope(|scope| {
        let in_use = world.heap();
        scope.spawn(ask());
        assert_eq!(answers.recv().expect("an answer").0, 1, "it grows before");
        drop(in_use);
        allocate(other, mib(8));
        let in_use = world.heap();
        scope.spawn(ask());
        let early = answers.recv_timeout(std::time::Duration::from_millis(50));
        assert!(early.is_err(), "it did not wait: {early:?}");
        drop(in_use);
        assert_eq!(answers.recv().expect("an answer"), (0, wall.start.get() - (2 << 20)));
    });
}
