//! The rows of `small-blocks` with less work, and one of threads that share nothing. Each thread does the work by itself, and there are up to twice as many threads as
//! processors: with less work, a machine of many processors can run each row on several thread counts.

use super::{Item, SMALL_BLOCKS, Setting, item};

pub(super) const ROWS: &[Item] = &[
    row("pair-16", &[("iterations", 2_000_000.0)]),
    row("pair-512", &[("iterations", 2_000_000.0)]),
    row("burst-10-thousand", &[("rounds", 1000.0)]),
    row("burst-million", &[("rounds", 5.0)]),
    row("churn-10-thousand", &[("rounds", 200.0)]),
    row("xthread-16", &[("batches", 60.0)]),
    row("xthread-64", &[("batches", 60.0)]),
    row("xthread-512", &[("batches", 30.0)]),
    row("xthread-4096", &[("batches", 8.0)]),
    row("threadtest-medium", &[("rounds", 60.0)]),
    row("larson", &[("rounds", 20.0)]),
    row("shbench-small", &[("repeats", 300.0)]),
    row("shbench-medium", &[("repeats", 500.0)]),
    row("producer-consumer", &[("loops", 200.0)]),
    row("mstress", &[("waves", 5.0)]),
    row("cache-scratch", &[("writes", 10_000.0)]),
    row("cache-thrash", &[("writes", 10_000.0)]),
    item("migration", "migration", &[]).work(&[("rounds", 100.0)]),
];

/// The row of `small-blocks` with this label, with other work, on any number of threads. (A label that there is not does not compile.)
const fn row(label: &str, work: &'static [Setting]) -> Item {
    let mut index = 0;
    while !is_same(SMALL_BLOCKS[index].label, label) {
        index += 1;
    }
    SMALL_BLOCKS[index].work(work).threads(&[])
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut index = 0;
    while index < one.len() && index < other.len() && one[index] == other[index] {
        index += 1;
    }
    index == one.len() && index == other.len()
}
