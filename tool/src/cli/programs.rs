//! Arguments of the commands that take a program of the user's.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::seconds;
use crate::trial::Metric;

/// Arguments of `ample run`.
#[derive(Debug, Args)]
pub struct Run {
    /// The allocator: a name (see `ample allocators`), a file, with settings of its own if you like, as in
    /// `ample bench --allocators`
    #[arg(short, long, value_name = "NAME", default_value = crate::allocators::OURS)]
    pub allocator: String,
    /// Let the dynamic linker record who serves malloc in every process of the program, and tell when it has
    /// ended: exit code 0 if that was the allocator and no other, 1 if not, 2 for wrong usage
    #[arg(long)]
    pub check: bool,
    /// Do not say where the allocator cannot serve the program
    #[arg(short, long)]
    pub quiet: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// Arguments of `ample observe`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: those of the program, 128 and the signal's number where one ended it; 125 the tool failed; 126 the \
                  program cannot be executed; 127 there is none; 2 wrong usage. With --pid: 0 it was looked at; 1 it cannot be looked \
                  at; 2 wrong usage, or no such process"
)]
pub struct Observe {
    /// Look at a process that runs already, without its help: who serves its malloc, how much of its time that takes, what
    /// its threads wait for, what its memory is; under glibc, how much of that is free; and what the processes have that it
    /// has started. As its user, or as root, who sees more
    #[arg(short, long, value_name = "PID", conflicts_with = "command", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Option<i32>,
    /// How long to look at it; Ctrl-C ends that earlier, and tells what was seen
    #[arg(long, value_name = "SECONDS", conflicts_with = "command", default_value = "10", value_parser = seconds)]
    pub seconds: Duration,
    /// Write all figures as JSON to this file
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// The program and its arguments. It keeps its terminal, and Ctrl-C is answered in its own way; a second one ends
    /// it. What was observed until then is told
    #[arg(last = true, required_unless_present = "pid", value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// Arguments of `ample compare`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 there are figures; 1 something went wrong; 2 wrong usage; 5 no allocator has a number to compare: \
                  everything failed, or nothing can be measured here; 130 ended early by the user"
)]
pub struct Compare {
    /// Allocators, as in `ample bench`; glibc always takes part [default: all that are found]
    #[arg(short, long, value_delimiter = ',', value_name = "LIST")]
    pub allocators: Option<Vec<String>>,
    /// Blocks: how often the program runs under every allocator, however long that takes: not together with
    /// --budget; verdicts need 10 [default: 3 to 10, within the budget]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: Option<u32>,
    /// Seconds after which no further block is begun, once there are three: not together with --runs
    #[arg(long, value_name = "SECONDS", conflicts_with = "runs", default_value = "300", value_parser = seconds)]
    pub budget: Duration,
    /// Numbers that are put in for {threads} in CMD (or in --server and --load), one after the other: tells how the program scales
    /// under every allocator. Each thread is taken to do as much work as one alone does, or a metric to be a rate
    #[arg(short, long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u32).range(1..))]
    pub threads: Vec<u32>,
    /// A figure in the output of the program, or of the load: the first group of the expression in its last
    /// match; NAME:lower=REGEX where less is better. The first metric stands for the speed
    #[arg(long = "metric", value_name = "NAME=REGEX", value_parser = Metric::parse)]
    pub metrics: Vec<Metric>,
    /// The exit code of success
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub exit_code: i32,
    /// Seconds after which a run has failed
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds)]
    pub timeout: Duration,
    /// A server to measure, instead of CMD: it is started under every allocator, in the foreground
    #[arg(long, value_name = "CMD", requires = "load", requires = "answer", conflicts_with = "command")]
    pub server: Option<String>,
    /// What is run against the server, without the allocator
    #[arg(long, value_name = "CMD", requires = "server")]
    pub load: Option<String>,
    /// The server answers when it accepts connections on this port of 127.0.0.1
    #[arg(long, value_name = "N", group = "answer", requires = "server")]
    pub port: Option<u16>,
    /// The server answers when this command succeeds
    #[arg(long, value_name = "CMD", group = "answer", requires = "server")]
    pub ready: Option<String>,
    /// Output folder; otherwise `ample-out/UTC-HOST` with the time and the name of this machine
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Seed of the order of execution and of the bootstrap
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The program and its arguments. Every run reads standard input from the beginning if that is a file, and finds it
    /// empty otherwise; none has a terminal
    #[arg(last = true, required_unless_present = "server", value_name = "CMD")]
    pub command: Vec<OsString>,
}
