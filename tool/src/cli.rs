//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

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
    Bench(Bench),
    /// List the allocators on this machine, and how to get those that are missing
    Allocators(Allocators),
    /// List the workloads: what each tells, where it comes from
    Workloads,
}

/// Arguments of `ample bench`.
#[derive(Debug, Args)]
pub struct Bench {
    /// Workloads or their variants (see `ample workloads`); without any, the default selection
    #[arg(value_name = "WORKLOAD")]
    pub workloads: Vec<String>,
    /// Allocators by name or path, separated by commas: `jemalloc,./libfoo.so,new=./libbar.so`, or
    /// with an environment variable `glibc:MALLOC_ARENA_MAX=1`; glibc always takes part [default:
    /// all that are found]
    #[arg(short, long, value_delimiter = ',', value_name = "LIST")]
    pub allocators: Option<Vec<String>>,
    /// Thread counts, separated by commas [default: 1,2,4 … up to twice the CPUs]
    #[arg(short, long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u32).range(1..))]
    pub threads: Option<Vec<u32>>,
    /// Blocks: how often every allocator runs every row [default: 3 to 10, within two and a half minutes]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: Option<u32>,
    /// Do little work in every row, and take half a minute
    #[arg(long)]
    pub quick: bool,
    /// Output folder; otherwise `ample-out/UTC-HOST` with the time and the name of this machine
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the summary as JSON instead of the table
    #[arg(long)]
    pub json: bool,
    /// Seed of the order of execution and of the bootstrap
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Set a parameter of a workload (see `ample workloads`)
    #[arg(long = "set", value_name = "WORKLOAD.KEY=VALUE")]
    pub settings: Vec<String>,
    /// Seconds after which a process has failed
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub timeout: Duration,
}

/// Arguments of `ample allocators`.
#[derive(Debug, Args)]
pub struct Allocators {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    let duration = Duration::try_from_secs_f64(value).map_err(|error| error.to_string())?;
    if duration.is_zero() { Err("must be more than nothing".into()) } else { Ok(duration) }
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
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
    }
}
