//! `ample completions` and `ample man`: what a shell and `man` know of the tool.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;

use super::print;
use crate::cli::{Cli, Completions, Man};

/// Prints the completions for a shell.
pub fn completions(arguments: &Completions) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "ample", &mut script);
    print(&String::from_utf8(script).context("completions that are no text")?)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a manual page for the tool and one for each command.
pub fn man(arguments: &Man) -> Result<ExitCode> {
    let folder = &arguments.folder;
    let shown = folder.display();
    fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {shown}"))?;
    clap_mangen::generate_to(Cli::command(), folder)
        .with_context(|| format!("cannot write manual pages into {shown}"))?;
    print(&format!("manual pages: {shown}\n"))?;
    Ok(ExitCode::SUCCESS)
}
