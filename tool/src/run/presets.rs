//! The presets: selections of workloads, their variants, and how much work each does.
//!
//! *Shape* is what a variant is (the size of its blocks); *work* is how much of it is done. In the quick
//! and the default preset work is chosen so that one sample of glibc takes some tens of milliseconds,
//! which lets ten blocks and more of all allocators fit into the time of a run; in the default preset it is
//! also enough that the first touch of memory does not decide a row. The presets of the seeds keep
//! the parameters of their documents, but for the amount of work where today's machines would do
//! nothing else all day: it changes no rate. `--set` overrides either.

mod many_cores;
mod programs;

use std::time::Duration;

use super::measure::Measure;
use crate::error::{UsageError, unknown};

/// How much work a run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// For a first look: all rows small.
    Quick,
    /// For figures.
    Default,
    /// As much as the workloads themselves think right.
    Full,
}

/// The thread counts of rows that have none of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sweep {
    /// 1, 2, and as many as there are CPUs: the time of the run goes into more blocks, without which nothing
    /// can be told of most rows.
    Ends,
    /// 1, 2, 4 … up to twice the CPUs, and up to 4 at least: the shape of the curve, and what too many threads do.
    Doubling,
}

/// A setting: the parameter's name and its value.
pub type Setting = (&'static str, f64);

/// A workload, or one variant of it, in a preset.
#[derive(Debug, Clone, Copy)]
pub struct Item {
    /// Name in tables and on the command line.
    pub label: &'static str,
    /// Name of the workload itself.
    pub workload: &'static str,
    /// What makes the variant.
    pub shape: &'static [Setting],
    /// Amount of work of a default run.
    pub work: &'static [Setting],
    /// Amount of work of a quick run.
    pub quick: &'static [Setting],
    /// Thread counts of its own; none: those of the run.
    pub threads: &'static [u32],
}

const fn item(label: &'static str, workload: &'static str, shape: &'static [Setting]) -> Item {
    Item { label, workload, shape, work: &[], quick: &[], threads: &[] }
}

impl Item {
    const fn work(self, work: &'static [Setting]) -> Self {
        Self { work, ..self }
    }

    const fn quick(self, quick: &'static [Setting]) -> Self {
        Self { quick, ..self }
    }

    const fn threads(self, threads: &'static [u32]) -> Self {
        Self { threads, ..self }
    }
}

/// A selection with a name.
#[derive(Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a few words.
    pub is: &'static str,
    /// Its workloads, in the order of tables.
    pub items: &'static [Item],
    /// Whether all other workloads that there are follow, each as it comes.
    pub others_too: bool,
    /// How much work.
    pub size: Size,
    /// Thread counts when all of its workloads are run; those that are asked for by name are always swept.
    pub sweep: Sweep,
    /// Time after which a process has failed, unless the user says otherwise.
    pub timeout: Duration,
    /// Time that a run takes, as far as three blocks fit into it.
    pub budget: Duration,
    /// Blocks at most; none: as a run without a preset.
    pub blocks: Option<usize>,
    /// Allocators that take part beside those that are found: variants, and limits.
    pub arms: &'static [&'static str],
    /// What is measured in runs of its own, after the blocks.
    pub measures: &'static [Measure],
}

/// The preset of a run that asks for none.
pub const DEFAULT: &str = "default";
/// The preset for a first look.
pub const QUICK: &str = "quick";

const MINUTE: u64 = 60;

/// Time after which a process has failed, where nothing else is said.
pub const TIMEOUT: Duration = Duration::from_secs(MINUTE);

const fn preset(name: &'static str, is: &'static str, items: &'static [Item], budget_seconds: u64) -> Preset {
    Preset {
        name,
        is,
        items,
        others_too: false,
        size: Size::Default,
        sweep: Sweep::Doubling,
        timeout: TIMEOUT,
        budget: Duration::from_secs(budget_seconds),
        blocks: None,
        arms: &[],
        measures: &[],
    }
}

/// glibc with the threshold of 2001 that its sliding one replaced.
const THRESHOLD_2001: &[&str] = &["glibc:mmap_threshold=131072"];
/// The vendors' malloc of the seeds' tables, which serves one thread at a time.
const SINGLE_LOCK: &[&str] = &["single-lock"];
/// All limits.
const LIMITS: &[&str] = &["floor", "single-lock"];

/// All of them.
pub const PRESETS: &[Preset] = &[
    Preset { size: Size::Quick, ..preset(QUICK, "a minute", COMMON, 35) },
    Preset { sweep: Sweep::Ends, blocks: Some(30), ..preset(DEFAULT, "five minutes", DEFAULTS, 265) },
    Preset {
        size: Size::Full,
        others_too: true,
        blocks: Some(20),
        arms: LIMITS,
        measures: &[Measure::All],
        ..preset(
            "full",
            "all workloads and measures, and as much work as they think right",
            COMMON,
            180 * MINUTE,
        )
    },
    Preset {
        sweep: Sweep::Ends,
        ..preset("small-blocks", "up to 32 KiB, in every pattern", SMALL_BLOCKS, 30 * MINUTE)
    },
    Preset { sweep: Sweep::Ends, ..preset("large-blocks", "from 64 KiB on", LARGE_BLOCKS, 30 * MINUTE) },
    preset("random-programs", "traits drawn at random", programs::PROGRAMS, 15 * MINUTE),
    preset(
        "many-cores",
        "small blocks on up to twice as many threads as there are CPUs",
        many_cores::ROWS,
        15 * MINUTE,
    ),
    // To fill and check 8 GB takes minutes.
    Preset {
        timeout: Duration::from_secs(10 * MINUTE),
        ..preset("live-heap", "1 MB to 8 GB of live blocks", LIVE_HEAP, 60 * MINUTE)
    },
    Preset { arms: SINGLE_LOCK, ..preset("seed-000", "Lever & Boreham 1999", SEED_000, 60 * MINUTE) },
    Preset { arms: SINGLE_LOCK, ..preset("seed-001", "Lever & Boreham 2000", SEED_001, 60 * MINUTE) },
    Preset { arms: SINGLE_LOCK, ..preset("seed-002", "elfmalloc 2017", SEED_002, 60 * MINUTE) },
    Preset {
        arms: THRESHOLD_2001,
        ..preset("seed-003", "glibc's sliding threshold, 2006", SEED_003, 60 * MINUTE)
    },
    Preset { arms: THRESHOLD_2001, ..preset("seed-004", "Dementiev 2009", SEED_004, 60 * MINUTE) },
];

/// Finds a preset. Fails with a usage error for an unknown name.
pub fn find(name: &str) -> Result<&'static Preset, UsageError> {
    let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    PRESETS.iter().find(|preset| preset.name == name).ok_or_else(|| unknown("preset", name, &names))
}

/// What `--preset` takes, for its help.
pub fn help() -> String {
    let named = |preset: &Preset| format!("{} ({})", preset.name, preset.is);
    let all: Vec<String> = PRESETS.iter().map(named).collect();
    format!("What to measure, and how much of it: {}", all.join(", "))
}

const TEN_MILLION: &[Setting] = &[("iterations", 10_000_000.0)];

/// What every run measures unless it is told otherwise.
pub const COMMON: &[Item] = &[
    item("malloc-test", "malloc-test", &[])
        .work(&[("iterations", 5_000_000.0)])
        .quick(&[("iterations", 3_000_000.0)]),
    item("heap-leak", "heap-leak", &[]).work(&[("rounds", 60.0)]).quick(&[("rounds", 5.0)]),
    item("false-sharing", "false-sharing", &[])
        .work(&[("writes", 10_000_000.0)])
        .quick(&[("writes", 3_000_000.0)]),
    item("threadtest-small", "threadtest", &[("size", 64.0)])
        .work(&[("rounds", 60.0)])
        .quick(&[("rounds", 1.0)]),
    item("threadtest-medium", "threadtest", &[("size", 4096.0), ("objects", 10_000.0)])
        .work(&[("rounds", 60.0)])
        .quick(&[("objects", 4000.0), ("rounds", 1.0)]),
    item("large-block", "large-block", &[]).work(&[("iterations", 8000.0)]).quick(&[("iterations", 1000.0)]),
    item("larson", "larson", &[]).work(&[("rounds", 40.0)]).quick(&[("rounds", 2.0)]),
];

/// What a default run measures: that, and the field's best-known programs.
const DEFAULTS: &[Item] = &[
    COMMON[0],
    COMMON[1],
    COMMON[2],
    COMMON[3],
    COMMON[4],
    COMMON[5],
    COMMON[6],
    item("shbench", "shbench", &[]).work(&[("repeats", 300.0)]),
    item("producer-consumer", "producer-consumer", &[]).work(&[("loops", 400.0)]),
    item("xmalloc", "xmalloc", &[]).work(&[("batches", 500.0)]),
    item("mstress", "mstress", &[]).work(&[("waves", 10.0)]),
    item("cache-scratch", "cache-scratch", &[]).work(&[("writes", 50_000.0)]),
    item("transaction-pool", "transaction-pool", &[("idle", 0.0)]).work(&[("transactions", 5000.0)]),
    item("size-curve", "size-curve", &[]).work(&[("replacements", 2_000_000.0)]),
    item("rebuild", "rebuild", &[]).work(&[("rounds", 10.0)]),
];

/// Blocks of up to 32 KiB in every pattern: in pairs, in bursts, replaced at random, across threads. Long enough that the first use of memory, which
/// takes 10 ms and more, is a small part.
const SMALL_BLOCKS: &[Item] = &[
    item("pair-16", "malloc-test", &[("size", 16.0)]).work(&[("iterations", 20_000_000.0)]),
    item("pair-512", "malloc-test", &[("size", 512.0)]).work(&[("iterations", 20_000_000.0)]),
    item("pair-8192", "malloc-test", &[("size", 8192.0)]).work(&[("iterations", 20_000_000.0)]),
    item("burst-10-thousand", "threadtest", &[("size", 64.0), ("objects", 10_000.0)])
        .work(&[("rounds", 2000.0)]),
    item("burst-million", "threadtest", &[("size", 64.0), ("objects", 1_000_000.0)])
        .work(&[("rounds", 10.0)]),
    item("churn-10-thousand", "larson", &[("slots", 10_000.0), ("generations", 1.0)])
        .work(&[("rounds", 1000.0)]),
    item("churn-million", "larson", &[("slots", 1_000_000.0), ("generations", 1.0)]).work(&[("rounds", 2.0)]),
    item("xthread-16", "xmalloc", &[("size", 16.0)]).work(&[("batches", 2000.0)]).threads(&[1]),
    item("xthread-64", "xmalloc", &[("size", 64.0)]).work(&[("batches", 2000.0)]).threads(&[1]),
    item("xthread-512", "xmalloc", &[("size", 512.0)]).work(&[("batches", 1000.0)]).threads(&[1]),
    item("xthread-4096", "xmalloc", &[("size", 4096.0)]).work(&[("batches", 150.0)]).threads(&[1]),
    COMMON[3],
    COMMON[4],
    COMMON[6],
    item("shbench-small", "shbench", &[("min", 1.0), ("max", 64.0)]).work(&[("repeats", 1500.0)]),
    item("shbench-medium", "shbench", &[("min", 1024.0), ("max", 8192.0)]).work(&[("repeats", 1500.0)]),
    item("producer-consumer", "producer-consumer", &[]).work(&[("loops", 2000.0)]),
    item("xmalloc", "xmalloc", &[]).work(&[("batches", 1000.0)]),
    item("mstress", "mstress", &[]).work(&[("waves", 50.0)]),
    DEFAULTS[11],
    item("cache-thrash", "cache-thrash", &[]).work(&[("writes", 50_000.0)]),
];

/// Blocks from 64 KiB on: used once and freed, kept for a while, grown; and what stays when the load is over.
const LARGE_BLOCKS: &[Item] = &[
    COMMON[5],
    item("transaction-pool-hundredth", "transaction-pool", &[("touched", 1.0)])
        .work(&[("transactions", 3000.0)]),
    item("transaction-pool-half", "transaction-pool", &[("touched", 50.0)]).work(&[("transactions", 3000.0)]),
    item("transaction-pool", "transaction-pool", &[]).work(&[("transactions", 3000.0)]),
    item(
        "replaced-64-kib-to-4-mib",
        "larson",
        &[("min", 65_536.0), ("max", 4_194_304.0), ("slots", 16.0), ("generations", 1.0)],
    )
    .work(&[("rounds", 4000.0)])
    .threads(&[1, 2, 8]),
    item("giant", "giant", &[]),
    item("giant-filled", "giant", &[("touched", 100.0)]).work(&[("replacements", 500.0)]),
    item("buffers", "buffers", &[]),
    item("realloc-growth", "realloc-growth", &[]),
    item("fragmentation", "fragmentation", &[]),
    item("idle-return", "idle-return", &[("quiet", 10_000.0)]),
];

/// Replacement at random among 1 MB … 8 GB of live blocks, on one thread.
const LIVE_HEAP: &[Item] = &[
    item("live-1-mb", "larson", &[("slots", 2000.0), ONE]).work(&[("rounds", 1000.0)]).threads(&[1]),
    item("live-16-mb", "larson", &[("slots", 32_000.0), ONE]).work(&[("rounds", 50.0)]).threads(&[1]),
    item("live-128-mb", "larson", &[("slots", 256_000.0), ONE]).work(&[("rounds", 8.0)]).threads(&[1]),
    item("live-1-gb", "larson", &[("slots", 2_000_000.0), ONE]).work(&[("rounds", 1.0)]).threads(&[1]),
    item("live-8-gb", "larson", &[("slots", 16_000_000.0), ONE]).work(&[("rounds", 1.0)]).threads(&[1]),
];

const ONE: Setting = ("generations", 1.0);

/// Series one to three of Lever & Boreham 1999. Two processes are one row, of one thread each.
const SEED_000: &[Item] = &[
    item("malloc-test-512", "malloc-test", &[("size", 512.0)]).work(TEN_MILLION).threads(&[1, 2]),
    item("malloc-test-512-processes", "malloc-test", &[("size", 512.0), ("processes", 2.0)])
        .work(TEN_MILLION)
        .threads(&[1]),
    item("malloc-test-8192", "malloc-test", &[("size", 8192.0)]).work(TEN_MILLION).threads(&[1, 2, 3, 4, 5]),
    // A fifth of the source's pairs: at 48 threads behind one lock they would take a minute.
    item("malloc-test-4100", "malloc-test", &[("size", 4100.0)])
        .work(&[("iterations", 2_000_000.0)])
        .threads(&[16, 24, 32, 40, 48]),
];

const LEAKING: &[u32] = &[1, 3, 7];
const SHARING: &[u32] = &[1, 2, 3, 4];
const WRITES: &[Setting] = &[("writes", 20_000_000.0)];

/// Benchmarks 1 to 3 of Lever & Boreham 2000. Of the rounds 1 to 8 both ends, and far beyond; of the
/// sizes 3 to 52 one for each way to lie in a cache line.
const SEED_001: &[Item] = &[
    SEED_000[0],
    SEED_000[1],
    SEED_000[2],
    SEED_000[3],
    item("heap-leak-1-round", "heap-leak", &[("rounds", 1.0)]).threads(LEAKING),
    item("heap-leak-8-rounds", "heap-leak", &[("rounds", 8.0)]).threads(LEAKING),
    item("heap-leak-200-rounds", "heap-leak", &[("rounds", 200.0)]).threads(LEAKING),
    item("false-sharing-3", "false-sharing", &[("size", 3.0)]).work(WRITES).threads(SHARING),
    item("false-sharing-8", "false-sharing", &[("size", 8.0)]).work(WRITES).threads(SHARING),
    item("false-sharing-24", "false-sharing", &[("size", 24.0)]).work(WRITES).threads(SHARING),
    item("false-sharing-40", "false-sharing", &[("size", 40.0)]).work(WRITES).threads(SHARING),
    item("false-sharing-52", "false-sharing", &[("size", 52.0)]).work(WRITES).threads(SHARING),
    item("false-sharing-aligned", "false-sharing", &[("size", 8.0), ("aligned", 1.0)])
        .work(WRITES)
        .threads(SHARING),
];

/// The elfmalloc evaluation of 2017: small blocks and medium ones, and those that others free.
const SEED_002: &[Item] = &[
    item("threadtest-small", "threadtest", &[("size", 64.0)]).work(&[("rounds", 20.0)]),
    item("threadtest-medium", "threadtest", &[("size", 4096.0)])
        .work(&[("objects", 10_000.0), ("rounds", 10.0)]),
    item("shbench-small", "shbench", &[("min", 1.0), ("max", 64.0)]).work(&[("repeats", 100.0)]),
    item("shbench-1000", "shbench", &[("min", 1.0), ("max", 1000.0)]).work(&[("repeats", 50.0)]),
    item("shbench-medium", "shbench", &[("min", 1024.0), ("max", 8192.0)]).work(&[("repeats", 500.0)]),
    item("producer-consumer", "producer-consumer", &[("exchange", 1.0)]).work(&[("loops", 1000.0)]),
    item("producer-consumer-local", "producer-consumer", &[("exchange", 0.0)]).work(&[("loops", 1000.0)]),
];

/// glibc's sliding threshold of 2006: transactions below and above its cap, and with large blocks that
/// were there before.
const SEED_003: &[Item] = &[
    item("transaction-pool", "transaction-pool", &[("min_kib", 1024.0), ("max_kib", 8192.0)])
        .work(&[("transactions", 1000.0)]),
    item("transaction-pool-tenth", "transaction-pool", &[("touched", 10.0)])
        .work(&[("transactions", 4000.0)]),
    item("transaction-pool-huge", "transaction-pool", &[("min_kib", 33_000.0), ("max_kib", 40_000.0)])
        .work(&[("transactions", 30.0)]),
    item("transaction-pool-long-lived", "transaction-pool", &[("long_lived", 20.0)])
        .work(&[("transactions", 1000.0)]),
];

const EIGHT: &[u32] = &[1, 2, 4, 8];

/// Dementiev 2009: blocks of 200 KiB, and the same with a computation instead of memset.
const SEED_004: &[Item] = &[
    item("large-block", "large-block", &[("size", 204_800.0)])
        .work(&[("iterations", 10_000.0)])
        .threads(EIGHT),
    item("large-block-compute", "large-block", &[("size", 204_800.0), ("compute", 1.0)])
        .work(&[("iterations", 10_000.0)])
        .threads(EIGHT),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_are_unique_and_an_unknown_preset_is_a_usage_error() {
        for (index, preset) in PRESETS.iter().enumerate() {
            assert!(PRESETS[..index].iter().all(|other| other.name != preset.name));
            for (index, item) in preset.items.iter().enumerate() {
                assert!(
                    preset.items[..index].iter().all(|other| other.label != item.label),
                    "{}",
                    item.label
                );
            }
        }
        assert_eq!(find(DEFAULT).expect("known").size, Size::Default);
        let error = find("seed-000s").expect_err("refused").to_string();
        assert!(error.contains("did you mean 'seed-000'?"), "{error}");
    }

    #[test]
    fn limits_take_part_in_the_full_run_and_where_the_seeds_show_a_malloc_that_serialises() {
        let with = |arm| -> Vec<&str> {
            PRESETS.iter().filter(|preset| preset.arms.contains(&arm)).map(|preset| preset.name).collect()
        };
        assert_eq!(with("single-lock"), ["full", "seed-000", "seed-001", "seed-002"]);
        assert_eq!(with("floor"), ["full"]);
    }

    #[test]
    fn the_default_run_keeps_its_promise_of_five_minutes() {
        // Canaries, calibration and the report of four allocators take some 15 s on two cores.
        let rest = Duration::from_secs(30);
        assert!(find(DEFAULT).expect("known").budget + rest < Duration::from_secs(5 * MINUTE));
        assert!(find(QUICK).expect("known").budget < Duration::from_secs(MINUTE));
    }
}
