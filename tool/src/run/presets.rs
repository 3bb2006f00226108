//! The default selection: workloads, their variants, and how much work each does.
//!
//! *Shape* is what a variant is (the size of its blocks); *work* is how much of it is done. Work is
//! chosen so that one sample of glibc takes some tens of milliseconds, which lets ten blocks of all
//! allocators fit into the time of a run; `--set` overrides either.

/// How much work a run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// For figures.
    Default,
    /// For a first look: all rows small.
    Quick,
}

/// A workload, or one variant of it, in the default selection.
#[derive(Debug)]
pub struct Preset {
    /// Name in tables and on the command line.
    pub label: &'static str,
    /// Name of the workload itself.
    pub workload: &'static str,
    /// What makes the variant.
    pub shape: &'static [(&'static str, f64)],
    /// Amount of work of a default run.
    pub work: &'static [(&'static str, f64)],
    /// Amount of work of a quick run.
    pub quick: &'static [(&'static str, f64)],
}

/// The default selection, in the order of tables.
pub const PRESETS: &[Preset] = &[
    Preset {
        label: "malloc-test",
        workload: "malloc-test",
        shape: &[],
        work: &[("iterations", 5_000_000.0)],
        quick: &[("iterations", 3_000_000.0)],
    },
    Preset {
        label: "heap-leak",
        workload: "heap-leak",
        shape: &[],
        work: &[("rounds", 20.0)],
        quick: &[("rounds", 5.0)],
    },
    Preset {
        label: "false-sharing",
        workload: "false-sharing",
        shape: &[],
        work: &[("writes", 10_000_000.0)],
        quick: &[("writes", 3_000_000.0)],
    },
    Preset {
        label: "threadtest-small",
        workload: "threadtest",
        shape: &[("size", 64.0)],
        work: &[("rounds", 4.0)],
        quick: &[("rounds", 1.0)],
    },
    Preset {
        label: "threadtest-medium",
        workload: "threadtest",
        shape: &[("size", 4096.0)],
        work: &[("objects", 10_000.0), ("rounds", 2.0)],
        quick: &[("objects", 4000.0), ("rounds", 1.0)],
    },
    Preset {
        label: "large-block",
        workload: "large-block",
        shape: &[],
        work: &[("iterations", 8000.0)],
        quick: &[("iterations", 1000.0)],
    },
    Preset {
        label: "larson",
        workload: "larson",
        shape: &[],
        work: &[("rounds", 5.0)],
        quick: &[("rounds", 2.0)],
    },
];
