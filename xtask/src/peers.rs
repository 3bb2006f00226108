//! `xtask ample peers [NAME…]`: build the bundled peers.
//!
//! Each folder `peers/NAME` is a package of its own whose build script makes one shared object and says,
//! through cargo, where it lies and which version it holds. Here that is run, checked, copied to
//! `target/peers/libNAME.so` and entered into the manifest; a peer that fails is entered with the reason, and
//! the rest go on. The manifest is replaced after every peer, so that an interruption loses nothing.

pub mod check;
pub mod manifest;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use serde::Deserialize;

use crate::{cargo, process};
use manifest::{Entry, Manifest};

/// Begins the line with which a peer's build script says why it failed.
const RECIPE_FAILURE: &str = "recipe failed: ";

/// Most characters of a reason in the manifest: it is to fit one line of a table.
const REASON_LENGTH: usize = 200;

/// One peer, as its Cargo.toml describes it.
#[derive(Debug)]
struct Peer {
    name: String,
    manifest_path: PathBuf,
    crate_name: String,
    crate_version: String,
    env: BTreeMap<String, String>,
}

/// The table `[package.metadata.peer]` of a peer's Cargo.toml.
#[derive(Debug, Deserialize)]
struct PeerTable {
    /// The package of crates.io that ships the peer's source.
    #[serde(rename = "crate")]
    crate_name: String,
    /// Environment in which programs are to run on this peer.
    #[serde(default)]
    env: BTreeMap<String, String>,
}

/// Builds the peers named, or all where none is named. The exit code says usage where a name is unknown, and
/// failure where no peer at all was built or a tool is missing.
///
/// # Errors
/// When the repository's layout cannot be read or `target/peers` cannot be written.
pub fn build(names: &[OsString]) -> Result<ExitCode> {
    let workspace = cargo::workspace()?;
    let known = find(&workspace.workspace_root.join("peers"))?;
    let chosen = match choose(&known, names) {
        Ok(chosen) => chosen,
        Err(message) => {
            eprintln!("error: {message}");
            return Ok(ExitCode::from(2));
        }
    };
    if let Some(message) = missing_tools(|program| process::runs(&program)) {
        eprintln!("error: {message}");
        return Ok(ExitCode::FAILURE);
    }

    let target = &workspace.target_directory;
    let folder = target.join("peers");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut manifest = Manifest::load(&folder);
    manifest.retain(|name| known.iter().any(|peer| peer.name == name));
    let mut built = 0;
    for peer in chosen {
        eprintln!("building {} ({} {}) …", peer.name, peer.crate_name, peer.crate_version);
        let start = Instant::now();
        let outcome = build_one(peer, target, &folder);
        let seconds = start.elapsed().as_secs_f64();
        match &outcome {
            Ok(version) => {
                built += 1;
                println!("{} {version}: {}, {seconds:.1} s", peer.name, folder.join(library(peer)).display());
            }
            Err(error) => {
                let log = folder.join(format!("{}.log", peer.name));
                println!("{}: not built: {error:#} (log: {})", peer.name, log.display());
            }
        }
        manifest.enter(entry(peer, outcome));
        manifest.save(&folder)?;
    }
    Ok(if built == 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The packages below `folder` that have a [`PeerTable`], by name.
fn find(folder: &Path) -> Result<Vec<Peer>> {
    let mut peers = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let manifest_path = entry.path().join("Cargo.toml");
        if !manifest_path.exists() {
            continue;
        }
        for package in cargo::metadata(&manifest_path)?.packages {
            let Some(table) = package.metadata.get("peer") else { continue };
            let table = PeerTable::deserialize(table)
                .with_context(|| format!("[package.metadata.peer] in {}", manifest_path.display()))?;
            let dependency = package.dependencies.iter().find(|found| found.name == table.crate_name);
            let crate_version =
                dependency.and_then(|found| found.req.strip_prefix('=')).with_context(|| {
                    format!("{} must pin {} with =", manifest_path.display(), table.crate_name)
                })?;
            peers.push(Peer {
                name: entry.file_name().to_string_lossy().into_owned(),
                manifest_path: manifest_path.clone(),
                crate_version: crate_version.to_string(),
                crate_name: table.crate_name,
                env: table.env,
            });
        }
    }
    peers.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(peers)
}

/// The peers with these names, in the order named; all where none is named; a message where one is unknown.
fn choose<'a>(known: &'a [Peer], names: &[OsString]) -> Result<Vec<&'a Peer>, String> {
    if names.is_empty() {
        return Ok(known.iter().collect());
    }
    let find = |name: &OsString| {
        known.iter().find(|peer| *name == *peer.name).ok_or_else(|| {
            let all: Vec<&str> = known.iter().map(|peer| peer.name.as_str()).collect();
            format!("no peer named '{}'; there are: {}", name.display(), all.join(", "))
        })
    };
    names.iter().map(find).collect()
}

/// A line that says which tools are missing for building peers and how to install them. `runs` tells whether a
/// program can be run.
fn missing_tools(runs: impl Fn(OsString) -> bool) -> Option<String> {
    let compiler = |variable: &str, default: &str| {
        std::env::var_os(variable).filter(|value| !value.is_empty()).unwrap_or_else(|| default.into())
    };
    let tools = [
        ("a C compiler", compiler("CC", "cc")),
        ("a C++ compiler", compiler("CXX", "c++")),
        ("cmake", "cmake".into()),
        ("make", "make".into()),
    ];
    let missing: Vec<String> = tools
        .into_iter()
        .filter(|(_, program)| !runs(program.clone()))
        .map(|(what, program)| match program.to_string_lossy() {
            program if program == what => what.to_string(),
            program => format!("{what} ({program})"),
        })
        .collect();
    if missing.is_empty() {
        return None;
    }
    Some(format!(
        "building peers needs {}, which cannot be run here; on Debian: apt-get install g++ cmake make",
        missing.join(", ")
    ))
}

/// Builds, checks and copies one peer, and returns its version.
fn build_one(peer: &Peer, target: &Path, folder: &Path) -> Result<String> {
    let log = folder.join(format!("{}.log", peer.name));
    let (built, version) = run_cargo(peer, &target.join("peers-build").join(&peer.name), &log)?;
    check::exports_malloc(&built)?;
    check::can_be_preloaded(&built, &peer.env)?;
    // A copy and a rename, so that a process that has the old library mapped keeps it whole.
    let new = folder.join(format!("{}.new", library(peer)));
    fs::copy(&built, &new).with_context(|| format!("cannot write {}", new.display()))?;
    fs::rename(&new, folder.join(library(peer))).context("cannot rename the new library")?;
    Ok(version)
}

/// Runs cargo on the peer's package, its messages into `log`, and returns the path of the shared object and the
/// version that the build script published.
fn run_cargo(peer: &Peer, target: &Path, log: &Path) -> Result<(PathBuf, String)> {
    let messages = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut cargo = cargo::command();
    cargo.args(["build", "--release", "--locked", "--message-format=json-render-diagnostics"]);
    cargo.arg("--manifest-path").arg(&peer.manifest_path).arg("--target-dir").arg(target);
    let mut child = cargo.stdout(Stdio::piped()).stderr(messages).spawn().context("cannot run cargo")?;
    let mut published = BTreeMap::new();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            published.extend(published_by_build_script(&line.context("cannot read what cargo says")?));
        }
    }
    let status = child.wait().context("cannot wait for cargo")?;
    if !status.success() {
        let log = fs::read_to_string(log).unwrap_or_default();
        bail!(reason(&log).unwrap_or_else(|| format!("cargo ended with {status}")));
    }
    let mut take =
        |name: &str| published.remove(name).ok_or_else(|| anyhow!("its build script published no {name}"));
    Ok((take("PEER_LIBRARY")?.into(), take("PEER_VERSION")?))
}

/// The environment variables that one line of cargo's JSON messages says a build script set.
fn published_by_build_script(line: &str) -> Vec<(String, String)> {
    #[derive(Deserialize)]
    struct Message {
        #[serde(default)]
        env: Vec<(String, String)>,
    }
    serde_json::from_str::<Message>(line).map(|message| message.env).unwrap_or_default()
}

/// Why a build failed, in one line out of its log: the compiler's first error, else what the recipe said,
/// else cargo's first error. Compilers' messages may come twice, as cargo's warnings and as what the build
/// script printed; only the latter is read.
fn reason(log: &str) -> Option<String> {
    let lines = || {
        let lines = log.lines().map(str::trim).filter(|line| !line.starts_with("warning: "));
        // A line that ends with a colon only announces the reason, as those of configure scripts do.
        lines
            .map(|line| line.strip_prefix("cargo:warning=").unwrap_or(line))
            .filter(|line| !line.ends_with(':'))
    };
    let line = lines()
        .find(|line| line.contains(": error: ") || line.contains(": fatal error: "))
        .or_else(|| lines().find_map(|line| line.strip_prefix(RECIPE_FAILURE)))
        .or_else(|| lines().find_map(|line| line.strip_prefix("error: ")))?;
    Some(line.chars().take(REASON_LENGTH).collect())
}

/// File name of the peer's shared object in `target/peers`.
fn library(peer: &Peer) -> String {
    format!("lib{}.so", peer.name)
}

fn entry(peer: &Peer, outcome: Result<String>) -> Entry {
    let (version, library, error) = match outcome {
        Ok(version) => (version, Some(library(peer)), None),
        Err(error) => (peer.crate_version.clone(), None, Some(format!("{error:#}"))),
    };
    Entry {
        name: peer.name.clone(),
        crate_name: peer.crate_name.clone(),
        crate_version: peer.crate_version.clone(),
        version,
        library,
        error,
        env: peer.env.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &str) -> Peer {
        Peer {
            name: name.into(),
            manifest_path: PathBuf::new(),
            crate_name: format!("{name}-sys"),
            crate_version: "1.0.0".into(),
            env: BTreeMap::new(),
        }
    }

    #[test]
    fn no_name_means_all_and_an_unknown_name_lists_the_known() {
        let known = [peer("jemalloc"), peer("snmalloc")];
        assert_eq!(choose(&known, &[]).expect("all").len(), 2);
        assert_eq!(choose(&known, &["snmalloc".into()]).expect("one")[0].name, "snmalloc");
        let message = choose(&known, &["hoard".into()]).expect_err("unknown");
        assert_eq!(message, "no peer named 'hoard'; there are: jemalloc, snmalloc");
    }

    #[test]
    fn a_missing_tool_is_named_with_the_command_that_installs_it() {
        assert_eq!(missing_tools(|_| true), None);
        let message = missing_tools(|program| program != "cmake").expect("cmake is missing");
        assert!(message.starts_with("building peers needs cmake, which"), "{message}");
        assert!(message.ends_with("apt-get install g++ cmake make"), "{message}");
    }

    #[test]
    fn the_reason_is_the_compilers_first_error_then_the_recipes_then_cargos() {
        let cargo = "error: failed to run custom build command\n";
        let recipe = format!("{cargo}  recipe failed: cannot run cmake: not found\n");
        let compiler = format!("a.cc:1:2: error: 'x' was not declared\na.cc:2:2: error: other\n{recipe}");
        assert_eq!(reason(&compiler).as_deref(), Some("a.cc:1:2: error: 'x' was not declared"));
        assert_eq!(reason(&recipe).as_deref(), Some("cannot run cmake: not found"));
        assert_eq!(reason(cargo).as_deref(), Some("failed to run custom build command"));
        let twice = "warning: p@0.1.0: a.c:1:2: error: no\n  cargo:warning=a.c:1:2: error: no\n";
        assert_eq!(reason(twice).as_deref(), Some("a.c:1:2: error: no"));
        let configure =
            "configure: error: in `/out':\nconfigure: error: C compiler cannot create executables\n";
        assert_eq!(
            reason(configure).as_deref(),
            Some("configure: error: C compiler cannot create executables")
        );
        assert_eq!(reason("Compiling a\n"), None);
    }

    #[test]
    fn what_a_build_script_publishes_is_read_from_cargos_messages() {
        let line = r#"{"reason":"build-script-executed","env":[["PEER_VERSION","5.3.1"]],"out_dir":"/o"}"#;
        assert_eq!(published_by_build_script(line), [("PEER_VERSION".to_string(), "5.3.1".to_string())]);
        assert!(published_by_build_script(r#"{"reason":"build-finished","success":true}"#).is_empty());
        assert!(published_by_build_script("no JSON").is_empty());
    }

    #[test]
    fn every_peer_of_the_repository_pins_its_crate() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers");
        let names: Vec<String> = find(&folder).expect("readable").into_iter().map(|peer| peer.name).collect();
        assert_eq!(names, ["jemalloc", "mimalloc2", "mimalloc3", "rpmalloc", "snmalloc", "tcmalloc"]);
    }
}
