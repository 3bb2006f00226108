//! What the build scripts of the peers share.
//!
//! A peer's build script makes one shared object out of C or C++ source that a package of crates.io ships:
//!
//! ```text
//! Source::of("libmimalloc-sys")      where cargo unpacked the package, and its exact version
//!   -> compile / the peer's own build system, with the peer's own release flags
//!   -> link_shared                   one shared object, exporting the peer's own malloc
//!   -> publish                       tells the caller of cargo where it is and which version it is
//! ```
//!
//! The package itself is an optional dependency that is never built: its own build script makes a static
//! library for Rust's global allocator, without the malloc that a preload library must export. As a
//! dependency it is pinned, checksummed and downloaded by cargo, which is all that is wanted of it.
//!
//! Whatever fails ends the build script with one line that begins with [`FAILURE`].

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

/// Begins the line that says why a recipe failed.
pub const FAILURE: &str = "recipe failed: ";

/// The unpacked source of a registry package.
#[derive(Debug, Clone)]
pub struct Source {
    /// Folder of the package.
    pub root: PathBuf,
    /// Its version on crates.io, build metadata included.
    pub version: String,
}

impl Source {
    /// The source of the package `name`, which must be an (optional) dependency of the package that is
    /// being built. Asks `cargo metadata`, which downloads it where needed.
    pub fn of(name: &str) -> Source {
        let manifest = Path::new(&variable("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let mut cargo = Command::new(variable("CARGO"));
        cargo.args(["metadata", "--format-version=1", "--all-features", "--locked", "--manifest-path"]);
        cargo.arg(&manifest);
        let output = cargo.output().unwrap_or_else(|error| fail(&format!("cannot run {cargo:?}: {error}")));
        if !output.status.success() {
            eprint!("{}", String::from_utf8_lossy(&output.stderr));
            fail(&format!("cargo metadata cannot find the source of {name} (is the network there?)"));
        }
        let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| fail(&format!("cargo metadata printed no JSON: {error}")));
        let package = metadata["packages"]
            .as_array()
            .and_then(|packages| packages.iter().find(|package| package["name"] == name))
            .unwrap_or_else(|| fail(&format!("{name} is no dependency of {}", manifest.display())));
        let text = |key: &str| {
            package[key].as_str().unwrap_or_else(|| fail(&format!("cargo metadata lacks {key}"))).to_string()
        };
        let manifest_path = PathBuf::from(text("manifest_path"));
        let root = manifest_path.parent().map(Path::to_path_buf);
        Source { root: root.unwrap_or_else(|| fail("a package without a folder")), version: text("version") }
    }

    /// Content of a text file of the package.
    pub fn read(&self, file: &str) -> String {
        let path = self.root.join(file);
        std::fs::read_to_string(&path)
            .unwrap_or_else(|error| fail(&format!("cannot read {}: {error}", path.display())))
    }
}

/// The build script's own folder for what it makes.
pub fn out_dir() -> PathBuf {
    PathBuf::from(variable("OUT_DIR"))
}

/// A compiler that gets the flags named here and no others: none of those that the cc crate would derive
/// from cargo's profile. Warnings are the peer's own business. `CC`, `CXX`, `CFLAGS` and `CXXFLAGS` hold.
pub fn compiler(flags: &[&str]) -> cc::Build {
    let mut build = cc::Build::new();
    build.no_default_flags(true).warnings(false).cargo_metadata(false).flags(flags);
    build
}

/// Compiles `files` with `build`, in parallel as cargo's job server allows, and returns the object files.
pub fn compile(build: &mut cc::Build, files: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
    build
        .files(files)
        .try_compile_intermediates()
        .unwrap_or_else(|error| fail(&format!("does not compile: {error}")))
}

/// Links `objects` into the shared object `lib<name>.so` with the compiler of `build`, with `arguments` after
/// the objects, and returns its path. A symbol that nothing defines is an error.
pub fn link_shared(build: &cc::Build, name: &str, objects: &[PathBuf], arguments: &[&str]) -> PathBuf {
    let library = out_dir().join(format!("lib{name}.so"));
    let mut linker = build.get_compiler().to_command();
    linker.args(["-shared", "-o"]).arg(&library).args(objects);
    linker.args(["-Wl,--no-undefined", "-pthread"]).args(arguments);
    run(&mut linker);
    library
}

/// Runs one step of the peer's own build system.
pub fn run(command: &mut Command) {
    // make takes cargo's job server, so that all of the build together uses the processors once.
    if let Ok(flags) = env::var("CARGO_MAKEFLAGS") {
        command.env("MAKEFLAGS", flags);
    }
    println!("{command:?}");
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => fail(&format!("{} ended with {status}", program(command))),
        Err(error) => fail(&format!("cannot run {}: {error}", program(command))),
    }
}

/// Tells whoever called cargo where the finished shared object is and which version of the peer it holds,
/// as the environment variables `PEER_LIBRARY` and `PEER_VERSION` of the build script's message; and that
/// nothing but the build script, the lock file and the compilers' variables can change the result.
pub fn publish(library: &Path, version: &str) {
    println!("cargo::rustc-env=PEER_LIBRARY={}", library.display());
    println!("cargo::rustc-env=PEER_VERSION={version}");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=Cargo.lock");
    for name in ["CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
}

/// Ends the build script with one line that says why.
pub fn fail(reason: &str) -> ! {
    eprintln!("{FAILURE}{reason}");
    exit(1)
}

/// The value of a variable that cargo sets for every build script.
fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| fail(&format!("{name} is not set: run through cargo")))
}

fn program(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}
