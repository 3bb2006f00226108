//! What cargo knows: where the workspace and its target folder are, and which package depends on which.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The part of `cargo metadata --no-deps` that the chores read.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    /// Root folder of the workspace.
    pub workspace_root: PathBuf,
    /// Folder of the build outputs; `CARGO_TARGET_DIR` and cargo's configuration are already applied.
    pub target_directory: PathBuf,
    /// The packages of the workspace.
    pub packages: Vec<Package>,
}

/// One package of a workspace.
#[derive(Debug, Deserialize)]
pub struct Package {
    /// Path of its Cargo.toml.
    pub manifest_path: PathBuf,
    /// What its Cargo.toml asks for, development and build dependencies included.
    pub dependencies: Vec<Dependency>,
    /// Its `[package.metadata]` table.
    #[serde(default)]
    pub metadata: serde_json::Value,
}

/// One dependency, as asked for in a Cargo.toml.
#[derive(Debug, Deserialize)]
pub struct Dependency {
    /// Name of the package that is depended on.
    pub name: String,
    /// Version requirement, as in `=0.1.49`.
    pub req: String,
    /// Its folder, for a dependency by path.
    pub path: Option<PathBuf>,
}

/// A cargo command: the cargo that started this process, where one did.
pub fn command() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")))
}

/// Asks cargo for the workspace that the package at `manifest` (a Cargo.toml) belongs to. Needs no network.
///
/// # Errors
/// When cargo cannot be run, refuses, or prints something else than expected.
pub fn metadata(manifest: &Path) -> Result<Metadata> {
    ask(&["--no-deps"], manifest)
}

/// What `cargo metadata` tells with these arguments of the workspace that the package at `manifest` belongs to, or a part of it.
///
/// # Errors
/// As [`metadata`].
pub fn ask<T: DeserializeOwned>(arguments: &[&str], manifest: &Path) -> Result<T> {
    let mut metadata = command();
    metadata.args(["metadata", "--format-version=1"]).args(arguments).arg("--manifest-path").arg(manifest);
    let output = metadata.output().context("cannot run cargo")?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!("cargo metadata for {}: {}", manifest.display(), message.trim());
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata printed something unexpected")
}

/// [`metadata`] of the workspace that this program was built from.
///
/// # Errors
/// As [`metadata`].
pub fn workspace() -> Result<Metadata> {
    metadata(&Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
}

/// Builds `packages` of the workspace with `profile` (`release` for the allocator, `tool` for the rest), and says
/// whether that worked; if not, cargo has said why. The tool carries nothing: its files lie in the target folder.
///
/// # Errors
/// When cargo cannot be run.
pub fn build(workspace: &Metadata, profile: &str, packages: &[&str]) -> Result<bool> {
    let mut build = command();
    build.args(["build", "--no-default-features"]);
    build_with(workspace, profile, packages, &mut build)
}

/// Builds the tool as it is installed, with all that it needs inside; otherwise as [`build`].
///
/// # Errors
/// As [`build`].
pub fn build_to_carry(workspace: &Metadata) -> Result<bool> {
    build_with(workspace, "tool", &["ample-tool"], command().args(["build", "--locked"]))
}

fn build_with(workspace: &Metadata, profile: &str, packages: &[&str], build: &mut Command) -> Result<bool> {
    let manifest = workspace.workspace_root.join("Cargo.toml");
    build.args(["--profile", profile, "--manifest-path"]).arg(manifest);
    for package in packages {
        build.args(["--package", package]);
    }
    Ok(build.status().context("cannot run cargo")?.success())
}
