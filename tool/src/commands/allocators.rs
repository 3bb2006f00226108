//! `ample allocators`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::print;
use crate::allocators::{Allocator, Finder, Missing};
use crate::cli::Allocators;
use crate::report;
use crate::run::{Interrupt, ProcessExecutor, Program, probe};

/// Longest life of a probe.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What the command tells.
#[derive(Serialize)]
struct Listing {
    found: Vec<Found>,
    missing: Vec<Missing>,
}

/// An allocator that is there, and whether it works.
#[derive(Serialize)]
struct Found {
    #[serde(flatten)]
    allocator: Allocator,
    /// `serves`, or why it does not; or that this was not tried.
    check: String,
}

/// Lists the known allocators: found, or missing with the command that installs them.
pub fn allocators(arguments: &Allocators) -> Result<ExitCode> {
    let program = Program::find();
    let mut executor = ProcessExecutor::new(Interrupt::install().context("cannot catch signals")?);
    let mut listing = Listing { found: Vec::new(), missing: Vec::new() };
    for entry in Finder::new()?.all() {
        match entry {
            Err(missing) => listing.missing.push(missing),
            Ok(allocator) => {
                let check = match &program {
                    Err(error) => format!("not tried: {error:#}"),
                    Ok(program) => match probe(&mut executor, program, &allocator, TIMEOUT) {
                        None => return Ok(ExitCode::from(crate::run::INTERRUPTED)),
                        Some(sample) => sample.result.reason().unwrap_or("serves").to_owned(),
                    },
                };
                listing.found.push(Found { allocator, check });
            }
        }
    }
    let text = if arguments.json { serde_json::to_string_pretty(&listing)? } else { table(&listing) };
    print(&(text + "\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn table(listing: &Listing) -> String {
    let head = ["allocator", "version", "check", "found", "SHA-256, path"].map(str::to_owned);
    let found: Vec<Vec<String>> = listing
        .found
        .iter()
        .map(|Found { allocator, check }| {
            vec![
                allocator.name.clone(),
                allocator.version.clone().unwrap_or_else(|| "unknown".into()),
                check.clone(),
                allocator.found.clone(),
                format!(
                    "{}\n{}{}",
                    allocator.sha256,
                    allocator.library.display(),
                    allocator.assignments().map(|set| format!("\nwith {set}")).unwrap_or_default()
                ),
            ]
        })
        .collect();
    let mut text = report::rows(&head, &found, head.len());
    if !listing.missing.is_empty() {
        let head = ["missing", "why", "to get it"].map(str::to_owned);
        let missing: Vec<Vec<String>> = listing
            .missing
            .iter()
            .map(|missing| vec![missing.name.clone(), missing.reason.clone(), missing.install.clone()])
            .collect();
        text.push_str("\n\n");
        text.push_str(&report::rows(&head, &missing, head.len()));
    }
    text
}
