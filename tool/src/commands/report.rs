//! `ample report`: runs side by side, shards as the run that they are.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use super::print;
use crate::cli::Report;
use crate::merge::{Merged, merge};
use crate::record::{Folder, Stored, timestamp};
use crate::report::{Overview, Told};

/// Reads the runs, writes the report, and prints the tables.
pub fn report(arguments: &Report) -> Result<ExitCode> {
    let runs = read(&arguments.folders)?;
    let overview = Overview { runs: runs.into_iter().map(Told::new).collect() };
    let page = overview.write(&Folder::place(arguments.out.as_deref(), &timestamp(), "report")?)?;
    if arguments.json {
        print(&(overview.json()? + "\n"))?;
    } else {
        print(&format!("{}\nreport: {}\n", overview.text(), page.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The runs in these folders, shards put together.
pub(super) fn read(folders: &[PathBuf]) -> Result<Vec<Merged>> {
    merge(folders.iter().map(|folder| Stored::open(folder)).collect::<Result<_>>()?)
}
