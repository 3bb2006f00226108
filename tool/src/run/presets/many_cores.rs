//! The rows of `small-blocks` with less work, so that a machine of many processors can run each on several thread counts: its threads do the work each by themselves, and are
//! twice as many as the processors in the end.

use super::{Item, item};

pub(super) const ROWS: &[Item] = &[
    item("pair-16", "malloc-test", &[("size", 16.0)]).work(&[("iterations", 2_000_000.0)]),
    item("pair-512", "malloc-test", &[("size", 512.0)]).work(&[("iterations", 2_000_000.0)]),
    item("burst-10-thousand", "threadtest", &[("size", 64.0), ("objects", 10_000.0)])
        .work(&[("rounds", 1000.0)]),
    item("burst-million", "threadtest", &[("size", 64.0), ("objects", 1_000_000.0)]).work(&[("rounds", 5.0)]),
    item("churn-10-thousand", "larson", &[("slots", 10_000.0), ("generations", 1.0)])
        .work(&[("rounds", 200.0)]),
    item("xthread-16", "xmalloc", &[("size", 16.0)]).work(&[("batches", 60.0)]),
    item("xthread-64", "xmalloc", &[("size", 64.0)]).work(&[("batches", 60.0)]),
    item("xthread-512", "xmalloc", &[("size", 512.0)]).work(&[("batches", 30.0)]),
    item("xthread-4096", "xmalloc", &[("size", 4096.0)]).work(&[("batches", 8.0)]),
    item("threadtest-medium", "threadtest", &[("size", 4096.0), ("objects", 10_000.0)])
        .work(&[("rounds", 60.0)]),
    item("larson", "larson", &[]).work(&[("rounds", 20.0)]),
    item("shbench-small", "shbench", &[("min", 1.0), ("max", 64.0)]).work(&[("repeats", 300.0)]),
    item("shbench-medium", "shbench", &[("min", 1024.0), ("max", 8192.0)]).work(&[("repeats", 500.0)]),
    item("producer-consumer", "producer-consumer", &[]).work(&[("loops", 200.0)]),
    item("mstress", "mstress", &[]).work(&[("waves", 5.0)]),
    item("cache-scratch", "cache-scratch", &[]).work(&[("writes", 10_000.0)]),
    item("cache-thrash", "cache-thrash", &[]).work(&[("writes", 10_000.0)]),
];
