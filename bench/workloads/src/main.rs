//! `ample-workload`: runs one workload in this process and says what it found out.
//!
//! The program links no allocator: whatever the dynamic linker binds `malloc` to serves it. Exit
//! code: 0 for measured and not measurable, 1 for failed, 2 for usage.

mod definition;
mod harness;
mod outcome;
#[macro_use]
mod pass;
mod registry;
mod workloads;

use std::io::{self, Write};
use std::process::ExitCode;

use ample_protocol::Outcome;
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use pass::Pass;

/// Runs one workload in this process and prints what it found out as one JSON line.
#[derive(Parser)]
#[command(name = "ample-workload", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Prints the workloads, one JSON line each
    List,
    /// Runs a workload and prints its outcome, one JSON line
    Run {
        /// The workload's name
        name: String,
        /// Worker threads at the same time
        #[arg(long, default_value_t = 1)]
        threads: u32,
        /// Run the size for tests: a few milliseconds
        #[arg(long)]
        test: bool,
        /// What the run is for; only in the timed pass do its times mean anything
        #[arg(long, value_enum, default_value = "timed")]
        pass: Pass,
        /// Set a parameter
        #[arg(long = "set", value_name = "NAME=VALUE")]
        assignments: Vec<String>,
    },
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            return print(&error.to_string());
        }
        Err(error) => return usage(&first_line(&error.to_string())),
    };
    match arguments.command {
        Command::List => {
            let lines = registry::WORKLOADS.iter().map(|workload| json(&workload.description()) + "\n");
            print(&lines.collect::<String>())
        }
        Command::Run { name, threads, test, pass, assignments } => {
            let found = registry::find(&name)
                .and_then(|workload| Ok((workload, workload.settings(threads, test, pass, &assignments)?)));
            match found {
                Ok((workload, settings)) => report(&outcome::run(workload, &settings)),
                Err(line) => usage(&line),
            }
        }
    }
}

/// Prints the outcome; the exit code says whether it failed.
fn report(outcome: &Outcome) -> ExitCode {
    let printed = print(&(json(outcome) + "\n"));
    if matches!(outcome, Outcome::Failed { .. }) { ExitCode::FAILURE } else { printed }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("the protocol's types are representable in JSON")
}

fn print(text: &str) -> ExitCode {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ample-workload: cannot write to standard output: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage(line: &str) -> ExitCode {
    eprintln!("ample-workload: {line} (see ample-workload --help)");
    ExitCode::from(2)
}

/// The first paragraph of a message of clap's, in one line and without its prefix.
fn first_line(message: &str) -> String {
    let lines: Vec<_> = message.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    lines.join(" ").trim_start_matches("error: ").to_owned()
}
