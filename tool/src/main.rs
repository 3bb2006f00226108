//! `ample`: compares memory allocators honestly, on every thread count, in time and in memory.
//!
//! The modules are layers: ARCHITECTURE.md lists them bottom-up ("The tool's layers, bottom-up"), and `cargo xtask tidy` checks that each uses only those
//! before it in that list. A command begins in [`cli`], which parses it, and [`commands`], which has one file for each.

mod allocators;
mod apps;
mod carried;
mod cli;
mod commands;
mod error;
mod history;
mod merge;
mod observation;
mod programs;
mod record;
mod regular;
mod report;
mod run;
mod running;
mod scratch;
mod stats;
mod trial;

use std::process::ExitCode;

use clap::Parser as _;

use cli::{Cli, Command};
use error::{UsageError, say};

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Bench(arguments) => commands::bench(&arguments),
        Command::Run(arguments) => commands::run(&arguments),
        Command::Observe(arguments) => commands::observe(&arguments),
        Command::Compare(arguments) => commands::compare(&arguments),
        Command::Report(arguments) => commands::report(&arguments),
        Command::Diff(arguments) => commands::diff(&arguments),
        Command::History(arguments) => commands::history(&arguments),
        Command::Selftest(arguments) => commands::selftest(&arguments),
        Command::Allocators(arguments) => commands::allocators(&arguments),
        Command::Options(arguments) => commands::options(&arguments),
        Command::Workloads => commands::workloads(),
        Command::Completions(arguments) => commands::completions(&arguments),
        Command::Man(arguments) => commands::man(&arguments),
    };
    result.unwrap_or_else(|error| {
        say(&format!("ample: {error:#}"));
        if error.is::<UsageError>() { ExitCode::from(2) } else { ExitCode::FAILURE }
    })
}
