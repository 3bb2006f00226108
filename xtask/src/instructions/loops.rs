//! The loops whose instructions are counted, and how many Ample may need.

/// Most instructions that Ample may need for a pair of 16 bytes while four blocks are live. The limits are goals
/// of the project, each below what the leanest peer needed in the same loop when they were set (here mimalloc
/// 3.3.2: 37.4).
const LIMIT_16: f64 = 30.0;

/// As [`LIMIT_16`], for 512 bytes (mimalloc 3.3.2: 60.1).
const LIMIT_512: f64 = 30.0;

/// As [`LIMIT_16`], for 8192 bytes (rpmalloc 1.4.3: 85.0).
const LIMIT_8192: f64 = 38.0;

/// As [`LIMIT_16`], for bursts that fit into a thread's caches (mimalloc 3.3.2: 48.6), and for the replacement of blocks at random (mimalloc
/// 2.3.2: 66.9).
const LIMIT_CACHED: f64 = 34.0;

/// As [`LIMIT_16`], for bursts that do not (mimalloc 3.3.2: 49.8).
const LIMIT_UNCACHED: f64 = 45.0;

/// As [`LIMIT_16`], for a large block (rpmalloc 1.4.3: 149.0).
const LIMIT_LARGE: f64 = 135.0;

/// Most instructions that Ample may need for an aligned block, or one of zeros, and its free (mimalloc 3.3.2: 76.7 and 54.2; what
/// the C library runs to clear it does not count).
const LIMIT_ALIGNED: f64 = 43.0;
const LIMIT_CALLOC: f64 = 36.0;

/// The same for a malloc, a realloc that moves the block, and its free (mimalloc 3.3.2: 170.2); for a realloc that does not (rpmalloc
/// 1.4.3: 45.0); and for the size of a block (glibc 2.36: 13.0).
const LIMIT_MOVED: f64 = 90.0;
const LIMIT_KEPT: f64 = 19.0;
const LIMIT_USABLE: f64 = 10.0;

/// The same for free of NULL (glibc 2.36: 3.0, mimalloc 2.3.2: 5.0; a test in the fast path would cost every free two more).
const LIMIT_NULL: f64 = 15.0;

/// One loop, run twice.
#[derive(Debug)]
pub(super) struct Loop {
    /// Head of its column.
    pub(super) name: &'static str,
    /// What the program calls it.
    pub(super) mode: &'static str,
    /// Rounds of the shorter run: enough for the allocator to have set up everything.
    pub(super) short: u64,
    /// Rounds of the longer run.
    pub(super) long: u64,
    /// What else the program is told.
    pub(super) sizes: &'static [u64],
    /// Pairs of malloc and free per round.
    pub(super) pairs: u64,
    /// Most instructions per pair that Ample may need.
    pub(super) limit: f64,
}

/// A table of loops.
#[derive(Debug)]
pub(super) struct Table {
    /// What is counted.
    pub(super) title: &'static str,
    /// Its columns.
    pub(super) loops: &'static [Loop],
    /// Whether it is of calls beside malloc and free, which not every library serves.
    pub(super) beside: bool,
}

/// The tables.
pub(super) const TABLES: [Table; 2] = [
    Table { title: "instructions per pair", loops: &PAIRS, beside: false },
    Table { title: "instructions per call", loops: &CALLS, beside: true },
];

const PAIRS: [Loop; 8] = [
    plain("pair 512", "pair", &[512], LIMIT_512),
    plain("pairL 16", "pairL", &[16], LIMIT_16),
    plain("pairL 512", "pairL", &[512], LIMIT_512),
    plain("pairL 8192", "pairL", &[8192], LIMIT_8192),
    burst("burst 10 000 × 64", 3, 13, &[64, 10_000], LIMIT_CACHED),
    Loop {
        name: "churn 10 000",
        mode: "churn",
        short: 200_000,
        long: 400_000,
        sizes: &[10_000],
        pairs: 1,
        limit: LIMIT_CACHED,
    },
    burst("burst 1 000 000 × 64", 1, 3, &[64, 1_000_000], LIMIT_UNCACHED),
    plain("pair 65 536", "pair", &[65_536], LIMIT_LARGE),
];

/// Each with the free of what it returns, but for those that return nothing new.
const CALLS: [Loop; 6] = [
    plain("aligned_alloc 64, 128", "aligned", &[64, 128], LIMIT_ALIGNED),
    plain("calloc 64", "calloc", &[64], LIMIT_CALLOC),
    plain("realloc 16 to 1024", "moved", &[16, 1024], LIMIT_MOVED),
    plain("realloc in place", "kept", &[64], LIMIT_KEPT),
    plain("malloc_usable_size", "usable", &[64], LIMIT_USABLE),
    plain("free(NULL)", "null", &[], LIMIT_NULL),
];

/// A loop whose rounds are one pair, or call, each.
const fn plain(name: &'static str, mode: &'static str, sizes: &'static [u64], limit: f64) -> Loop {
    Loop { name, mode, short: 1_000, long: 101_000, sizes, pairs: 1, limit }
}

/// `sizes`: bytes of a block, and blocks.
const fn burst(name: &'static str, short: u64, long: u64, sizes: &'static [u64; 2], limit: f64) -> Loop {
    Loop { name, mode: "burst", short, long, sizes, pairs: sizes[1], limit }
}
