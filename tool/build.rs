//! Lets an installed tool carry what it needs: `libample.so`, the workloads' program and the limits become part of the executable.
//!
//! Only with the feature `carry`, which is on unless it is turned off, and in builds that inherit from `release`: `cargo install` makes such
//! a build. A debug build, and that of `cargo ample`, finds its files beside itself and carries none. The other packages are built by
//! cargo in a target folder of their own below this script's output folder, so that the two cargos do not wait for each other.

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest as _, Sha256};

/// The limits, and how they are compiled: see `bench/limits`.
const LIMITS: [&str; 2] = ["floor", "single-lock"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(set("OUT_DIR"));
    let carries = env::var_os("CARGO_FEATURE_CARRY").is_some() && set("PROFILE") == "release";
    let files = if carries { build(&out) } else { Vec::new() };
    fs::write(out.join("carried.rs"), table(&files)).expect("the output folder takes files");
}

/// A variable that cargo sets for build scripts.
fn set(name: &str) -> OsString {
    env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name}"))
}

/// Builds everything that is carried: the files.
fn build(out: &Path) -> Vec<PathBuf> {
    let workspace = Path::new(&set("CARGO_MANIFEST_DIR")).join("..");
    for source in ["allocator", "bench", "Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", workspace.join(source).display());
    }
    let target = out.join("carried");
    let built = |profile: &str, package: &str, file: &str| {
        let mut cargo = Command::new(set("CARGO"));
        cargo.args(["build", "--locked", "--profile", profile, "--package", package, "--target"]);
        cargo.arg(set("TARGET")).arg("--target-dir").arg(&target);
        cargo.arg("--manifest-path").arg(workspace.join("Cargo.toml"));
        // What checks this build, clippy for one, has no business in that one.
        cargo.env_remove("RUSTC_WORKSPACE_WRAPPER");
        run(&mut cargo);
        target.join(set("TARGET")).join(profile).join(file)
    };
    let mut files = vec![
        built("release", "ample-abi", "libample.so"),
        built("tool", "ample-workloads", "ample-workload"),
        built("tool", "ample-observer", "libample_observer.so"),
    ];
    let sources = workspace.join("bench/limits");
    let arguments = fs::read_to_string(sources.join("arguments")).expect("bench/limits/arguments is there");
    for name in LIMITS {
        let library = out.join(format!("lib{name}.so"));
        let mut compiler = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()));
        compiler.args(arguments.split_whitespace()).arg("-o").arg(&library);
        run(compiler.arg(sources.join(format!("{name}.c"))));
        files.push(library);
    }
    files
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    assert!(
        status.success(),
        "{command:?}: {status}; `--no-default-features` builds a tool that carries nothing"
    );
}

/// The carried files as a Rust table: what tells them from others, name and content.
fn table(files: &[PathBuf]) -> String {
    let mut hash = Sha256::new();
    let mut entries = String::new();
    for file in files {
        let content = fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let name = file.file_name().expect("a file").to_str().expect("a plain name");
        hash.update(name.as_bytes());
        hash.update((content.len() as u64).to_le_bytes());
        hash.update(&content);
        let path = file.to_str().expect("a path that is text");
        writeln!(entries, "    ({name:?}, include_bytes!({path:?})),").expect("written");
    }
    let id: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("const ID: &str = {id:?};\nconst FILES: &[(&str, &[u8])] = &[\n{entries}];\n")
}
