//! `xtask loom`, `xtask miri`, `xtask tsan`: the checks that take minutes, or a nightly toolchain, and so are no
//! part of `cargo test`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};

use crate::cargo;

/// Installs what [`Toolchain::Nightly`] may ask for.
const INSTALL: &str = "rustup toolchain install nightly --component miri,rust-src";

/// One check: a run of cargo in an environment.
#[derive(Debug)]
pub struct Check {
    /// Name of the chore, and of the folder below `target` that it builds in: its flags differ from all others',
    /// and in a shared folder each would undo the other's builds.
    name: &'static str,
    toolchain: Toolchain,
    environment: &'static [(&'static str, &'static str)],
    /// Arguments of cargo, after the toolchain.
    arguments: &'static [&'static str],
}

/// Which compiler a check needs.
#[derive(Debug)]
enum Toolchain {
    /// The one that the repository pins.
    Pinned,
    /// The nightly one, with these components.
    Nightly(&'static [Component]),
}

/// A component of a toolchain.
#[derive(Debug)]
struct Component {
    /// Its name for rustup.
    name: &'static str,
    /// A file or folder that it brings, relative to the toolchain's folder.
    brings: &'static str,
}

const MIRI: Component = Component { name: "miri", brings: "bin/cargo-miri" };
const RUST_SRC: Component = Component { name: "rust-src", brings: "lib/rustlib/src/rust/library" };

const CHECKS: [Check; 3] = [
    // Every interleaving of the protocols that cross threads.
    Check {
        name: "loom",
        toolchain: Toolchain::Pinned,
        environment: &[("RUSTFLAGS", "--cfg loom")],
        arguments: &["test", "-p", "ample-core", "--test", "loom"],
    },
    // The core's unit tests, on a simulated operating system, under an interpreter that knows undefined behaviour. The
    // simulated machine, and the allocators on it, live as long as the process: they are no leaks.
    Check {
        name: "miri",
        toolchain: Toolchain::Nightly(&[MIRI, RUST_SRC]),
        environment: &[(
            "MIRIFLAGS",
            "-Zmiri-permissive-provenance -Zmiri-disable-isolation -Zmiri-ignore-leaks",
        )],
        arguments: &["miri", "test", "-p", "ample-core", "--lib"],
    },
    // Threads under ThreadSanitizer, as long as AMPLE_STRESS_ROUNDS or AMPLE_STRESS_SECONDS says; the standard library must be built
    // with it too, and that only with unwinding.
    Check {
        name: "tsan",
        toolchain: Toolchain::Nightly(&[RUST_SRC]),
        environment: &[("CARGO_PROFILE_DEV_PANIC", "unwind"), ("RUSTFLAGS", "-Zsanitizer=thread")],
        arguments: &[
            "test",
            "-Zbuild-std",
            "--target",
            "x86_64-unknown-linux-gnu",
            "-p",
            "ample-alloc",
            "--test",
            "stress",
        ],
    },
];

/// The check of this name, if there is one.
pub fn find(name: &str) -> Option<&'static Check> {
    CHECKS.iter().find(|check| check.name == name)
}

/// Runs a check; the exit code says whether it passed. A toolchain or component that is missing is named, with
/// the command that installs it, and nothing is run.
///
/// # Errors
/// When cargo cannot be run.
pub fn run(check: &Check) -> Result<ExitCode> {
    let workspace = cargo::workspace()?;
    if let Toolchain::Nightly(components) = check.toolchain
        && let Some(missing) = missing(components, nightly_folder().as_deref())
    {
        eprintln!("error: {} needs {missing}: {INSTALL}", check.name);
        return Ok(ExitCode::FAILURE);
    }
    let mut command = command(check, &workspace.target_directory);
    command.current_dir(&workspace.workspace_root);
    eprintln!("{}", shown(&command));
    let passed = command.status().context("cannot run cargo")?.success();
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The cargo command of a check, with its outputs below the folder `target`.
fn command(check: &Check, target: &Path) -> Command {
    let mut command = match check.toolchain {
        Toolchain::Pinned => cargo::command(),
        Toolchain::Nightly(_) => {
            // Only rustup's cargo, found by name, understands `+nightly`; and a nightly cargo that is told in CARGO
            // to run the pinned one would do so.
            let mut rustup = Command::new("cargo");
            rustup.env_remove("CARGO").arg("+nightly");
            rustup
        }
    };
    // It would outrank RUSTFLAGS, and the check would run without its flag.
    command.env_remove("CARGO_ENCODED_RUSTFLAGS");
    command.envs(check.environment.iter().copied()).env("CARGO_TARGET_DIR", target.join(check.name));
    command.args(check.arguments);
    command
}

/// What of a nightly toolchain in `folder` is missing, if anything: the whole of it, or one of the components.
fn missing(components: &[Component], folder: Option<&Path>) -> Option<String> {
    let Some(folder) = folder else { return Some("Rust's nightly toolchain".to_string()) };
    let absent = components.iter().find(|component| !folder.join(component.brings).exists())?;
    Some(format!("the component {} of Rust's nightly toolchain", absent.name))
}

/// The folder of the nightly toolchain, where rustup has one.
fn nightly_folder() -> Option<PathBuf> {
    let output = Command::new("rustc")
        .args(["+nightly", "--print", "sysroot"])
        .env("RUSTUP_AUTO_INSTALL", "0")
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let folder = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(folder.trim()))
}

/// The command as one would type it in a shell.
fn shown(command: &Command) -> String {
    let settings = command.get_envs().filter_map(|(name, value)| {
        let (name, value) = (name.to_string_lossy(), value?.to_string_lossy());
        Some(if value.contains(' ') { format!("{name}=\"{value}\"") } else { format!("{name}={value}") })
    });
    let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
    let all: Vec<String> = settings.chain(std::iter::once("cargo".to_string())).chain(words).collect();
    all.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str) -> String {
        shown(&command(find(name).expect("known"), Path::new("/t")))
    }

    #[test]
    fn each_check_is_the_command_that_the_documents_say() {
        assert_eq!(
            line("loom"),
            r#"CARGO_TARGET_DIR=/t/loom RUSTFLAGS="--cfg loom" cargo test -p ample-core --test loom"#
        );
        assert_eq!(
            line("miri"),
            "CARGO_TARGET_DIR=/t/miri \
             MIRIFLAGS=\"-Zmiri-permissive-provenance -Zmiri-disable-isolation -Zmiri-ignore-leaks\" \
             cargo +nightly miri test -p ample-core --lib"
        );
        assert_eq!(
            line("tsan"),
            "CARGO_PROFILE_DEV_PANIC=unwind CARGO_TARGET_DIR=/t/tsan RUSTFLAGS=-Zsanitizer=thread \
             cargo +nightly test -Zbuild-std --target x86_64-unknown-linux-gnu -p ample-alloc --test stress"
        );
        assert!(find("tidy").is_none());
    }

    #[test]
    fn a_missing_toolchain_or_component_is_named() {
        let components = [MIRI, RUST_SRC];
        assert_eq!(missing(&components, None).as_deref(), Some("Rust's nightly toolchain"));
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(folder.path().join(MIRI.brings)).expect("created");
        let without_source = missing(&components, Some(folder.path()));
        assert_eq!(without_source.as_deref(), Some("the component rust-src of Rust's nightly toolchain"));
        std::fs::create_dir_all(folder.path().join(RUST_SRC.brings)).expect("created");
        assert_eq!(missing(&components, Some(folder.path())), None);
    }
}
