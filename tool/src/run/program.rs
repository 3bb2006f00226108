//! The program that holds the workloads.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ample_protocol::Description;
use anyhow::{Context as _, Result, anyhow, bail};

use super::plan::Entry;
use crate::carried;
use crate::error::UsageError;

/// Its file name.
const PROGRAM: &str = "ample-workload";

/// `ample-workload`, and what it can run.
#[derive(Debug)]
pub struct Program {
    /// Its path.
    pub path: PathBuf,
    /// Its workloads: at least one.
    pub descriptions: Vec<Description>,
}

impl Program {
    /// Finds it where `AMPLE_WORKLOAD` says, beside the tool, or among what the tool carries, and asks for its workloads.
    pub fn find() -> Result<Self> {
        let beside = || -> Result<PathBuf> {
            let own = env::current_exe().context("cannot find the tool's own path")?;
            let beside = own.with_file_name(PROGRAM);
            if beside.is_file() {
                return Ok(beside);
            }
            Ok(carried::folder()?.map_or(beside, |folder| folder.join(PROGRAM)))
        };
        let path = env::var_os("AMPLE_WORKLOAD").map_or_else(beside, |path| Ok(path.into()))?;
        if !path.is_file() {
            let remedy = if carried::is_installed() {
                "without AMPLE_WORKLOAD the tool takes the one that it carries"
            } else {
                "`cargo ample workloads` builds it, or AMPLE_WORKLOAD names another one"
            };
            bail!("the workloads' program {} does not exist; {remedy}", path.display());
        }
        let descriptions = list(&path)?;
        if descriptions.is_empty() {
            bail!("{} offers no workload", path.display());
        }
        Ok(Self { path, descriptions })
    }

    /// Lets the program check the user's own parameters of a workload, in a run at test size.
    ///
    /// Fails with a usage error for a value that it refuses.
    pub fn check(&self, entry: &Entry) -> Result<()> {
        const REFUSED: i32 = 2;
        let mut command = Command::new(&self.path);
        command.args(["run", &entry.description.name, "--test"]).stdin(Stdio::null());
        for (key, value) in &entry.fixed {
            command.arg("--set").arg(format!("{key}={value}"));
        }
        let output = command.output().with_context(|| format!("cannot run {}", self.path.display()))?;
        if output.status.code() == Some(REFUSED) {
            let text = String::from_utf8_lossy(&output.stderr);
            bail!(UsageError(text.lines().next().unwrap_or_default().to_owned()));
        }
        Ok(())
    }
}

fn list(program: &Path) -> Result<Vec<Description>> {
    let shown = program.display();
    let output = Command::new(program)
        .arg("list")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {shown}"))?;
    if !output.status.success() {
        bail!("{shown} list: {}", output.status);
    }
    let text = String::from_utf8(output.stdout).map_err(|_| anyhow!("{shown} list: not UTF-8"))?;
    text.lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("{shown} list: malformed line")))
        .collect()
}
