//! Arguments of the commands that take runs that were measured before.

use std::path::PathBuf;

use clap::Args;

use crate::allocators::OURS;

/// Arguments of `ample report`.
#[derive(Debug, Args)]
pub struct Report {
    /// Folders of runs: of other days, of other machines, or the shards of one run
    #[arg(value_name = "DIR", required = true)]
    pub folders: Vec<PathBuf>,
    /// Output folder; otherwise `ample-out/UTC-report`. One run, or the shards of one, become a run of their own
    /// there, which `ample diff` and `ample report` take again
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the summaries as JSON instead of the tables
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `ample diff`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 nothing is worse; 1 something went wrong; 2 wrong usage; 3 something is worse; 4 the \
                  runs cannot be compared: another machine, another glibc, no row in common, fewer than 10 blocks."
)]
pub struct Diff {
    /// The folder of the older run
    #[arg(value_name = "OLDER")]
    pub older: PathBuf,
    /// The folder of the newer run
    #[arg(value_name = "NEWER")]
    pub newer: PathBuf,
    /// Look at these allocators only, separated by commas [default: all that are in both runs]
    #[arg(short, long, value_delimiter = ',', value_name = "LIST")]
    pub allocators: Option<Vec<String>>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `ample history`.
#[derive(Debug, Args)]
pub struct History {
    /// The workload, as in tables; without it, the runs are listed
    #[arg(value_name = "WORKLOAD")]
    pub workload: Option<String>,
    /// The number of threads [default: all]
    #[arg(short, long, value_name = "N", requires = "workload")]
    pub threads: Option<u32>,
    /// The allocator
    #[arg(short, long, value_name = "NAME", default_value = OURS)]
    pub allocator: String,
    /// The database [default: $XDG_DATA_HOME/ample/history.sqlite, or below ~/.local/share]
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// Add the runs in these folders first; shards of one run are merged
    #[arg(long, value_name = "DIR", num_args = 1..)]
    pub add: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
