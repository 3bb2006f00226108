//! The files of a package, and where they lie.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{LIBRARY, VERSION, notices};
use crate::cargo::Metadata;
use crate::process::succeed;

/// The folders, below the prefix, that systems disagree on.
pub struct Layout {
    /// Of libraries.
    pub libraries: PathBuf,
    /// Of zsh's completions.
    zsh: &'static str,
    /// What pkg-config takes for the prefix.
    prefix: &'static str,
}

impl Layout {
    /// Debian's, below `/usr`.
    pub fn debian() -> Self {
        let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
        let libraries = Path::new("lib").join(triplet);
        Self { libraries, zsh: "share/zsh/vendor-completions", prefix: "/usr" }
    }

    /// That of a folder which may lie anywhere.
    pub fn anywhere() -> Self {
        Self { libraries: "lib".into(), zsh: "share/zsh/site-functions", prefix: "${pcfiledir}/../.." }
    }
}

/// Fills the prefix `root` with what was built: the tool with what it carries, the allocator's libraries and headers.
///
/// # Errors
/// When a file is missing or cannot be written, or a program that it takes fails.
pub fn fill(workspace: &Metadata, layout: &Layout, root: &Path) -> Result<()> {
    let (source, built) = (&workspace.workspace_root, &workspace.target_directory);
    let tool = root.join("bin/ample");
    copy(&built.join("tool/ample"), &tool, 0o755)?;

    let libraries = root.join(&layout.libraries);
    copy(&built.join("release/libample.so"), &libraries.join(LIBRARY), 0o644)?;
    symlink(LIBRARY, libraries.join("libample.so"))?;
    copy(&built.join("release/libample.a"), &libraries.join("libample.a"), 0o644)?;
    for library in [LIBRARY, "libample.a"] {
        succeed(Command::new("strip").arg("--strip-debug").arg(libraries.join(library)))?;
    }
    write(&libraries.join("pkgconfig/ample.pc"), pkg_config(layout).as_bytes())?;
    for header in ["ample.h", "ample_tbb.h"] {
        copy(&source.join("allocator/abi/include").join(header), &root.join("include").join(header), 0o644)?;
    }

    let manual = root.join("share/man/man1");
    output(&tool, &["man".as_ref(), manual.as_os_str()])?;
    for page in fs::read_dir(&manual)? {
        fs::set_permissions(page?.path(), Permissions::from_mode(0o644))?;
    }
    for (shell, file) in [
        ("bash", "share/bash-completion/completions/ample"),
        ("fish", "share/fish/vendor_completions.d/ample.fish"),
        ("zsh", &format!("{}/_ample", layout.zsh)),
    ] {
        let completions = output(&tool, &["completions".as_ref(), shell.as_ref()])?;
        write(&root.join(file), &completions)?;
    }

    let documents = root.join("share/doc/ample");
    for (file, name) in [
        ("LICENSE", "copyright"),
        ("LICENSE-APACHE", "LICENSE-APACHE"),
        ("LICENSE-MIT", "LICENSE-MIT"),
        ("docs/options.md", "options.md"),
    ] {
        copy(&source.join(file), &documents.join(name), 0o644)?;
    }
    write(&documents.join("third-party-notices.txt"), notices::notices(workspace)?.as_bytes())?;
    Ok(())
}

/// What pkg-config tells of the library.
fn pkg_config(layout: &Layout) -> String {
    let (prefix, libraries) = (layout.prefix, layout.libraries.display());
    format!(
        "prefix={prefix}\n\
         libdir=${{prefix}}/{libraries}\n\
         includedir=${{prefix}}/include\n\n\
         Name: ample\n\
         Description: malloc for programs of many threads\n\
         Version: {VERSION}\n\
         Cflags: -I${{includedir}}\n\
         Libs: -L${{libdir}} -lample\n"
    )
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let copied = || {
        fs::create_dir_all(to.parent().expect("a file lies in a folder"))?;
        fs::copy(from, to)?;
        fs::set_permissions(to, Permissions::from_mode(mode))
    };
    copied().with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

fn write(file: &Path, content: &[u8]) -> Result<()> {
    let written = || {
        fs::create_dir_all(file.parent().expect("a file lies in a folder"))?;
        fs::write(file, content)?;
        fs::set_permissions(file, Permissions::from_mode(0o644))
    };
    written().with_context(|| format!("cannot write {}", file.display()))
}

/// What the tool prints.
fn output(tool: &Path, arguments: &[&OsStr]) -> Result<Vec<u8>> {
    let output = Command::new(tool)
        .args(arguments)
        .output()
        .with_context(|| format!("cannot run {}", tool.display()))?;
    let message = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}: {message}", tool.display(), output.status);
    Ok(output.stdout)
}
