//! `xtask package`: tool, library, headers and manual as a Debian package, and as an archive for any folder, in `target/package`.

mod debian;
mod notices;
mod tree;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::cargo;
use crate::process::{self, succeed};
use tree::Layout;

/// The version of the workspace, which all its packages share.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What the dynamic linker calls the library: see `allocator/abi/build.rs`.
const LIBRARY: &str = concat!("libample.so.", env!("CARGO_PKG_VERSION_MAJOR"));

/// Builds the packages, and says where they are and how they are installed.
///
/// # Errors
/// When something does not build or cannot be written, or a program that it takes is missing. A build that fails has printed why, and yields an exit code.
pub fn run(arguments: &[OsString]) -> Result<ExitCode> {
    if let Some(first) = arguments.first() {
        bail!("`xtask package` takes no argument, but got {}", first.display());
    }
    let workspace = cargo::workspace()?;
    if !(cargo::build(&workspace, "release", &["ample-abi"])? && cargo::build_to_carry(&workspace)?) {
        return Ok(ExitCode::FAILURE);
    }
    let folder = workspace.target_directory.join("package");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let archive = archive(&workspace, &folder)?;
    println!("{}: tar -xzf … --strip-components=1 -C ~/.local (or any other folder)", archive.display());
    if process::runs("dpkg-deb".as_ref()) {
        let package = debian_package(&workspace, &folder)?;
        println!("{}: apt-get install ./…", package.display());
    } else {
        println!("no Debian package: there is no dpkg-deb on this machine");
    }
    Ok(ExitCode::SUCCESS)
}

/// Everything below one folder, which may be unpacked anywhere.
fn archive(workspace: &cargo::Metadata, folder: &Path) -> Result<PathBuf> {
    let name = format!("ample-{VERSION}-{}-linux-gnu", std::env::consts::ARCH);
    let root = folder.join(&name);
    empty(&root)?;
    tree::fill(workspace, &Layout::anywhere(), &root)?;
    let archive = folder.join(format!("{name}.tar.gz"));
    let owners = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner"];
    succeed(Command::new("tar").args(owners).arg("-C").arg(folder).arg("-czf").arg(&archive).arg(&name))?;
    Ok(archive)
}

/// The same in the folders that Debian wants.
fn debian_package(workspace: &cargo::Metadata, folder: &Path) -> Result<PathBuf> {
    let root = folder.join("debian");
    empty(&root)?;
    let layout = Layout::debian();
    let usr = root.join("usr");
    fs::create_dir_all(&usr)?;
    tree::fill(workspace, &layout, &usr)?;
    let programs = [usr.join("bin/ample"), usr.join(&layout.libraries).join(LIBRARY)];
    debian::describe(&root, &programs)?;
    let package = folder.join(format!("ample_{VERSION}_{}.deb", debian::architecture()?));
    let mut build = Command::new("dpkg-deb");
    succeed(build.args(["--root-owner-group", "--build"]).args([&root, &package]).stdout(std::io::stderr()))?;
    Ok(package)
}

/// An empty folder in place of whatever an earlier call left.
fn empty(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}
