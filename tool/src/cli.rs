//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

mod programs;
mod runs;

pub use programs::{Compare, Observe, Run};
pub use runs::{Diff, History, Report};

use crate::record::Shard;
use crate::run::{DEFAULT_PRESET, Measure, Preset, preset, preset_help};

/// Compares memory allocators honestly: on every thread count, in time and in memory.
#[derive(Debug, Parser)]
#[command(name = "ample", version, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure workloads under all allocators, and compare them with glibc
    Bench(Box<Bench>),
    /// Run a program of yours on an allocator, and say whether that took
    Run(Run),
    /// Tell what a program of yours asks of malloc, and what that does to its speed and memory on many cores
    Observe(Observe),
    /// Compare allocators on a program of yours: time, memory, and what to use
    Compare(Compare),
    /// Report runs of other days and machines side by side; shards of one run become that run
    Report(Report),
    /// Tell what changed between two runs: exit code 0 if nothing is worse, 3 if something is, 4 if they cannot be
    /// compared
    Diff(Diff),
    /// Show how a row went over time, from the database that runs are added to
    History(History),
    /// Let the tool test itself: what measuring costs; whether differences are found where there are none, and
    /// a known one is
    Selftest(Selftest),
    /// List the allocators on this machine, and how to get those that are missing
    Allocators(Allocators),
    /// List the options of Ample's allocator, from the library itself: environment variables that it reads
    Options(Options),
    /// List the workloads: what each tells, where it comes from
    Workloads,
    /// Print the completions for a shell: `ample completions bash > ~/.local/share/bash-completion/completions/ample`,
    /// `ample completions zsh > DIR/_ample` for a DIR of $fpath, `ample completions fish >
    /// ~/.config/fish/completions/ample.fish`
    Completions(Completions),
    /// Write the manual pages into a folder: `ample man ~/.local/share/man/man1`, then `man ample`
    Man(Man),
}

/// Arguments of `ample bench`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 there are figures; 1 something went wrong; 2 wrong usage; 5 no row has a number to compare: \
                  everything failed, or nothing can be measured here; 130 ended early by the user"
)]
pub struct Bench {
    /// Workloads or their variants (see `ample workloads`); without any, all of the preset
    #[arg(value_name = "WORKLOAD")]
    pub workloads: Vec<String>,
    /// Allocators by name or path, separated by commas: `jemalloc,./libfoo.so,new=./libbar.so`, each
    /// with settings of its own if you like: `glibc:mmap_threshold=131072`, or an environment variable
    /// as it stands, `glibc:MALLOC_ARENA_MAX=1`: glibc takes whole numbers, Ample what `ample options`
    /// lists, and other values are refused; glibc always takes part [default: all that are found]
    #[arg(short, long, value_delimiter = ',', value_name = "LIST")]
    pub allocators: Option<Vec<String>>,
    /// Thread counts, separated by commas [default: 1,2,4 … up to twice the
    /// CPUs; in a whole default run 1, 2 and all CPUs]
    #[arg(short, long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u32).range(1..))]
    pub threads: Option<Vec<u32>>,
    /// Blocks: how often every allocator runs every row, however long that takes: not together with --budget
    /// [default: 3 to 30, within the time of the preset]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: Option<u32>,
    /// Seconds after which no further block is begun, once there are three: not together with --runs
    #[arg(long, value_name = "SECONDS", conflicts_with = "runs", value_parser = seconds)]
    pub budget: Option<Duration>,
    /// End earlier, but after ten blocks at the earliest, as soon as the interval of every throughput
    /// ratio reaches no further than this to either side; for it, as many blocks are run as the budget
    /// or --runs allows
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub precision: Option<f64>,
    /// What to measure, and how much of it.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_PRESET, value_parser = preset, help = preset_help())]
    pub preset: &'static Preset,
    /// The same as `--preset quick`
    #[arg(long, conflicts_with = "preset")]
    pub quick: bool,
    /// Measure real programs instead: those of these names, separated by commas, or all that are installed (see
    /// `ample workloads`); with --quick, each as little as its test does
    #[arg(long, value_name = "LIST", num_args = 0.., value_delimiter = ',', conflicts_with_all =
        ["workloads", "threads", "preset", "measures", "settings", "seed_arguments", "shard", "resume"])]
    pub apps: Option<Vec<String>>,
    /// What to measure besides, each in runs of its own after the blocks, separated by commas: how long
    /// single calls take, memory over operations, the processor's counters, system calls by name
    /// [default: what the preset asks for: full all, the others none]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    pub measures: Option<Vec<Measure>>,
    /// Check the request, list the rows that would be measured, and stop: for readers, not as JSON
    #[arg(long, conflicts_with = "json")]
    pub dry_run: bool,
    /// Output folder; otherwise `ample-out/UTC-HOST` with the time and the name of this machine
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Go on with the interrupted run in this folder, by the command that began it: what it has measured stays,
    /// a block that was not finished is run again. The machine and all files that take part must be the same
    #[arg(long, value_name = "DIR", exclusive = true)]
    pub resume: Option<PathBuf>,
    /// Run one of several parts of the run, the I-th of N: of its blocks, those that are its own. `ample report`
    /// makes one run of the parts; they may run on machines of one kind at the same time
    #[arg(long, value_name = "I/N", requires = "runs", conflicts_with = "precision")]
    pub shard: Option<Shard>,
    /// Add the run to this database for `ample history` [default: $XDG_DATA_HOME/ample/history.sqlite, or below
    /// ~/.local/share; where the environment has CI, none]
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// Add the run to no database
    #[arg(long, conflicts_with = "history")]
    pub no_history: bool,
    /// Print the summary as JSON instead of the table
    #[arg(long)]
    pub json: bool,
    /// Seed of the order of execution and of the bootstrap
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Set a parameter of a workload (see `ample workloads`)
    #[arg(long = "set", value_name = "WORKLOAD.KEY=VALUE")]
    pub settings: Vec<String>,
    /// Seconds after which a process has failed [default: 60, or what the preset needs]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,
    /// For malloc-test alone, the arguments of the program that it comes from: SIZE [ITERATIONS
    /// [THREADS]]; prints that program's own lines as well
    #[arg(last = true, value_name = "ARGUMENT", conflicts_with_all = ["threads", "settings", "preset"])]
    pub seed_arguments: Vec<String>,
}

/// Arguments of `ample selftest`.
#[derive(Debug, Args)]
pub struct Selftest {
    /// Independent comparisons of each kind
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub comparisons: u32,
    /// Blocks of each comparison
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(10..))]
    pub blocks: u32,
    /// Do twenty comparisons: a first look
    #[arg(long, conflicts_with = "comparisons")]
    pub quick: bool,
    /// Only tell what measuring itself costs, in a few seconds
    #[arg(long, conflicts_with_all = ["comparisons", "blocks", "quick", "seed"])]
    pub cost: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Seed of the order of execution and of the bootstrap
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// Arguments of `ample allocators`.
#[derive(Debug, Args)]
pub struct Allocators {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `ample options`.
#[derive(Debug, Args)]
pub struct Options {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `ample completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Arguments of `ample man`.
#[derive(Debug, Args)]
pub struct Man {
    /// The folder; it is made where it does not exist
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    let duration = Duration::try_from_secs_f64(value).map_err(|error| error.to_string())?;
    if duration.is_zero() { Err("must be more than nothing".into()) } else { Ok(duration) }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(percent) if percent > 0.0 && percent < 100.0 => Ok(percent),
        _ => Err("must be a number between 0 and 100".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn lists_are_split_and_times_are_positive() {
        let cli = Cli::parse_from(["ample", "bench", "larson", "-a", "glibc,x=./y.so", "-t", "1,2"]);
        let Command::Bench(bench) = cli.command else { panic!("bench") };
        assert_eq!(bench.allocators.expect("a list"), ["glibc", "x=./y.so"]);
        assert_eq!(bench.threads.expect("a list"), [1, 2]);
        assert!(seconds("0").is_err() && seconds("-1").is_err() && seconds("x").is_err());
        assert!(percent("0").is_err() && percent("100").is_err() && percent("x").is_err());
        assert_eq!(percent("0.5"), Ok(0.5));
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
    }
}
