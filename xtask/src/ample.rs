//! `xtask ample ARGS…`: build what the tool needs, then become the tool.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Error, Result};

use crate::{cargo, limits};

/// Builds the allocator, the workloads, the limits and the tool, and replaces this process by the tool, with `arguments`.
/// Returns only when that did not work.
///
/// # Errors
/// When cargo or the built tool cannot be run, or a limit does not compile. A build that fails has printed why, and yields an exit code.
pub fn build_and_become_the_tool(arguments: &[OsString]) -> Result<ExitCode> {
    let workspace = cargo::workspace()?;
    let built = cargo::build(&workspace, "release", &["ample-abi"])?
        && cargo::build(&workspace, "tool", &["ample-workloads", "ample-observer", "ample-tool"])?;
    if !built {
        return Ok(ExitCode::FAILURE);
    }
    limits::build(&workspace)?;
    let outputs = &workspace.target_directory;
    let tool = outputs.join("tool/ample");
    let mut command = Command::new(&tool);
    if env::var_os("AMPLE_LIB").is_none() {
        command.env("AMPLE_LIB", outputs.join("release/libample.so"));
    }
    let error = command.args(arguments).exec();
    Err(Error::new(error).context(format!("cannot run {}", tool.display())))
}
