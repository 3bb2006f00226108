//! `xtask ample ARGS…`: build what the tool needs, then become the tool.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Error, Result};

use crate::cargo;

/// The packages whose outputs the tool looks for beside itself, and the tool's own.
const PACKAGES: [&str; 3] = ["ample-abi", "ample-workloads", "ample-tool"];

/// Builds [`PACKAGES`] for release and replaces this process by the tool, with `arguments`. Returns only when
/// that did not work.
///
/// # Errors
/// When cargo or the built tool cannot be run. A build that fails has printed why, and yields an exit code.
pub fn build_and_become_the_tool(arguments: &[OsString]) -> Result<ExitCode> {
    let workspace = cargo::workspace()?;
    if !cargo::build_release(&workspace, &PACKAGES)? {
        return Ok(ExitCode::FAILURE);
    }
    let tool = workspace.target_directory.join("release/ample");
    let error = Command::new(&tool).args(arguments).exec();
    Err(Error::new(error).context(format!("cannot run {}", tool.display())))
}
