//! `ample diff`: what changed between two runs, for people and for continuous integration.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde_json::json;

use super::{print, report};
use crate::cli::Diff;
use crate::error::say;
use crate::merge::Merged;
use crate::report::{Changes, Incomparable};

/// Exit code where something is worse.
const WORSE: u8 = 3;
/// Exit code where the runs say nothing about each other.
const NOT_COMPARABLE: u8 = 4;

/// Compares, and prints what changed.
pub fn diff(arguments: &Diff) -> Result<ExitCode> {
    let (older, newer) = (read(&arguments.older)?, read(&arguments.newer)?);
    match Changes::new(&older, &newer, arguments.allocators.as_deref()) {
        Ok(changes) => {
            let json = || serde_json::to_string_pretty(&changes).map(|text| text + "\n");
            print(&if arguments.json { json()? } else { changes.text() })?;
            Ok(if changes.worse { ExitCode::from(WORSE) } else { ExitCode::SUCCESS })
        }
        Err(Incomparable(reasons)) => {
            if arguments.json {
                print(&(serde_json::to_string_pretty(&json!({ "not_comparable": reasons }))? + "\n"))?;
            }
            for reason in reasons {
                say(&format!("ample: the runs cannot be compared: {reason}"));
            }
            Ok(ExitCode::from(NOT_COMPARABLE))
        }
    }
}

fn read(folder: &Path) -> Result<Merged> {
    report::read(&[folder.to_owned()])?.pop().context("no run")
}
