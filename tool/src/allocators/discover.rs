//! Looks for the known allocators on this machine.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use serde::{Deserialize, Serialize};

use super::Allocator;
use super::catalogue::{KNOWN, Known, Limit, Origin};
use super::identify::{commit, identify, libc_version, package_version, resolve};
use crate::carried;

/// A known allocator that is not on this machine.
#[derive(Debug, Clone, Serialize)]
pub struct Missing {
    /// Its name.
    pub name: String,
    /// Why it is not there, in one line.
    pub reason: String,
    /// The exact command that installs it.
    pub install: String,
}

/// One entry of the manifest that the build of the bundled peers writes.
#[derive(Debug, Deserialize)]
struct Peer {
    name: String,
    #[serde(rename = "crate")]
    package: String,
    crate_version: String,
    version: Option<String>,
    library: Option<PathBuf>,
    error: Option<String>,
    /// Environment variables that the library needs to work as its makers mean it.
    #[serde(default)]
    env: BTreeMap<String, String>,
}

/// Knows the places to look at.
#[derive(Debug)]
pub struct Finder {
    ours: PathBuf,
    peers: PathBuf,
    limits: PathBuf,
    /// Whether the tool carries the project's own libraries.
    carried: bool,
    /// Why they could not be unpacked.
    refused: Option<String>,
    /// Whether the tool is installed, and needs no clone.
    installed: bool,
    libraries: Vec<PathBuf>,
    llvm: PathBuf,
}

impl Finder {
    /// The places on this machine: where `AMPLE_LIB`, `AMPLE_PEERS_DIR` and `AMPLE_LIMITS_DIR` say, beside the tool's own
    /// executable, or among what the tool carries; and the system's library folders.
    pub fn new() -> Result<Self> {
        let executable = env::current_exe().context("cannot find the tool's own path")?;
        let folder = executable.parent().context("the tool's own path has no folder")?;
        let set = |name: &str, default: PathBuf| env::var_os(name).map_or(default, PathBuf::from);
        let beside = folder.join("libample.so");
        // Others can do without them.
        let (carried, refused) = match if beside.exists() { Ok(None) } else { carried::folder() } {
            Ok(folder) => (folder, None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        let limits = carried.clone().unwrap_or_else(|| folder.join("../limits"));
        let triplet = format!("{}-linux-gnu", env::consts::ARCH);
        Ok(Self {
            ours: set("AMPLE_LIB", carried.as_ref().map_or(beside, |folder| folder.join("libample.so"))),
            peers: set("AMPLE_PEERS_DIR", folder.join("../peers")),
            limits: set("AMPLE_LIMITS_DIR", limits),
            carried: carried.is_some(),
            refused,
            installed: carried::is_installed(),
            libraries: vec![
                PathBuf::from("/usr/lib").join(triplet),
                "/usr/lib64".into(),
                "/usr/local/lib".into(),
                "/usr/lib".into(),
            ],
            llvm: "/usr/lib".into(),
        })
    }

    /// Everything in one folder.
    #[cfg(test)]
    pub fn of_folder(folder: &Path) -> Self {
        Self {
            ours: folder.join("libample.so"),
            peers: folder.to_owned(),
            limits: folder.to_owned(),
            carried: false,
            refused: None,
            installed: false,
            libraries: vec![folder.to_owned()],
            llvm: folder.to_owned(),
        }
    }

    /// Why what the tool carries could not be unpacked; none where it was, or need not be.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Every known allocator: found, or missing with the reason.
    pub fn all(&self) -> Vec<Result<Allocator, Missing>> {
        KNOWN.iter().map(|known| self.find(known)).collect()
    }

    /// One known allocator by name; none where the name is unknown.
    pub fn by_name(&self, name: &str) -> Option<Result<Allocator, Missing>> {
        KNOWN.iter().find(|known| known.name == name).map(|known| self.find(known))
    }

    fn find(&self, known: &Known) -> Result<Allocator, Missing> {
        let found = match known.origin {
            Origin::Ours => self.find_ours(),
            Origin::System => find_libc(),
            Origin::Bundled => self.find_peer(known.name),
            Origin::Debian { file, .. } => self.find_library(known.name, file),
            Origin::Llvm { .. } => self.find_scudo(known.name),
            Origin::Limit(limit) => self.find_limit(known.name, limit),
        };
        // One line, whatever the chain of causes or a manifest says.
        let line = |error: anyhow::Error| format!("{error:#}").lines().collect::<Vec<_>>().join(" ");
        found.map_err(|error| Missing {
            name: known.name.into(),
            reason: line(error),
            install: known.install(self.installed),
        })
    }

    fn find_ours(&self) -> Result<Allocator> {
        if !self.ours.exists() {
            let missing = || format!("{} does not exist", self.ours.display());
            return Err(anyhow!(self.refused.clone().unwrap_or_else(missing)));
        }
        let version = Some(env!("CARGO_PKG_VERSION").to_owned());
        let found = match (env::var_os("AMPLE_LIB"), self.carried) {
            (Some(_), _) => "AMPLE_LIB",
            (None, true) => "carried by the tool",
            (None, false) => "beside the tool",
        };
        let commit = commit(&self.ours);
        Ok(Allocator { commit, ..from_file(super::OURS, &self.ours, version, found)? })
    }

    fn find_peer(&self, name: &str) -> Result<Allocator> {
        let manifest = self.peers.join("peers.json");
        let text = fs::read_to_string(&manifest).map_err(|_| anyhow!("not built yet"))?;
        let peers: Vec<Peer> =
            serde_json::from_str(&text).with_context(|| format!("{} is damaged", manifest.display()))?;
        let peer =
            peers.into_iter().find(|peer| peer.name == name).ok_or_else(|| anyhow!("not built yet"))?;
        let library = match (peer.library, peer.error) {
            (Some(library), None) => self.peers.join(library),
            (_, error) => {
                return Err(anyhow!("does not build: {}", error.as_deref().unwrap_or("no reason recorded")));
            }
        };
        let found = format!("bundled peer, from crate {} {}", peer.package, peer.crate_version);
        let allocator = from_file(name, &library, peer.version, &found)?;
        Ok(Allocator { environment: peer.env, ..allocator })
    }

    fn find_limit(&self, name: &str, limit: Limit) -> Result<Allocator> {
        let library = self.limits.join(format!("lib{name}.so"));
        if !library.exists() {
            return Err(anyhow!(self.refused.clone().unwrap_or_else(|| "not built yet".into())));
        }
        let version = Some(env!("CARGO_PKG_VERSION").to_owned());
        let found = match limit {
            Limit::AnySize => "limit, takes part only if asked for",
            Limit::OneSize => "limit for blocks of one size, takes part only if asked for",
        };
        Ok(Allocator { limit: Some(limit), ..from_file(name, &library, version, found)? })
    }

    fn find_library(&self, name: &str, file: &str) -> Result<Allocator> {
        let library = self
            .libraries
            .iter()
            .map(|folder| folder.join(file))
            .find(|path| path.exists())
            .ok_or_else(|| anyhow!("{file} is not installed"))?;
        from_file(name, &library, package_version(&library), "installed on this system")
    }

    fn find_scudo(&self, name: &str) -> Result<Allocator> {
        let file = format!("libclang_rt.scudo_standalone-{}.so", env::consts::ARCH);
        let library = runtime_folders(&self.llvm)
            .map(|folder| folder.join(&file))
            .find(|path| path.exists())
            .ok_or_else(|| anyhow!("{file} is not installed"))?;
        from_file(name, &library, package_version(&library), "installed with LLVM")
    }
}

/// An entry for a library file. Fails unless it is a readable ELF file.
pub(super) fn from_file(name: &str, path: &Path, version: Option<String>, found: &str) -> Result<Allocator> {
    let library = resolve(path);
    if library.to_string_lossy().contains([' ', ':']) {
        bail!("{} cannot be preloaded: spaces and colons in its path separate libraries", library.display());
    }
    let identity = identify(path)?;
    Ok(Allocator {
        name: name.into(),
        library,
        environment: BTreeMap::new(),
        version,
        sha256: identity.sha256,
        build_id: identity.build_id,
        commit: None,
        found: found.into(),
        limit: None,
        defines: identity.defines,
        false_name: identity.false_name,
    })
}

/// The C library that this very process runs on, as the kernel's map of it says.
fn find_libc() -> Result<Allocator> {
    let maps = fs::read_to_string("/proc/self/maps").context("cannot read /proc/self/maps")?;
    let path = maps
        .lines()
        .filter_map(|line| line.find('/').map(|start| Path::new(&line[start..])))
        .find(|path| path.file_name().is_some_and(|name| name == "libc.so.6"))
        .ok_or_else(|| anyhow!("the tool itself does not run on glibc"))?;
    let version = match (libc_version(), package_version(path)) {
        (Some(version), Some(package)) => Some(format!("{version} ({package})")),
        (version, package) => version.or(package),
    };
    from_file(super::BASELINE, path, version, "the system's C library")
}

/// Folders of LLVM's runtime libraries, the newest LLVM first.
fn runtime_folders(root: &Path) -> impl Iterator<Item = PathBuf> {
    let children = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let release =
        |path: &Path| -> Option<u32> { path.file_name()?.to_str()?.strip_prefix("llvm-")?.parse().ok() };
    let mut releases: Vec<(u32, PathBuf)> =
        children(root).into_iter().filter_map(|path| Some((release(&path)?, path))).collect();
    releases.sort_by(|a, b| b.cmp(a));
    releases
        .into_iter()
        .flat_map(move |(_, path)| children(&path.join("lib/clang")))
        .map(|clang| clang.join("lib/linux"))
}

#[cfg(test)]
mod tests {
    use super::super::select;
    use super::*;

    fn finder(folder: &Path) -> Finder {
        Finder::of_folder(folder)
    }

    fn missing(finder: &Finder, name: &str) -> Missing {
        finder.by_name(name).expect("known").expect_err("missing")
    }

    #[test]
    fn glibc_is_always_there() {
        let glibc = finder(Path::new("/nonexistent")).by_name("glibc").expect("known").expect("found");
        assert!(glibc.is_baseline());
        assert!(glibc.defines.contains("malloc") && glibc.defines.contains("malloc_usable_size"));
        assert!(glibc.version.is_some());
    }

    #[test]
    fn what_is_missing_says_how_to_get_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let finder = finder(folder.path());
        assert_eq!(missing(&finder, "mimalloc3").install, "cargo ample peers mimalloc3");
        assert_eq!(missing(&finder, "tbbmalloc").install, "apt-get install libtbbmalloc2");
        assert_eq!(missing(&finder, "scudo").install, "apt-get install libclang-rt-dev");
        assert!(finder.by_name("nothing").is_none());
        let installed = Finder { installed: true, ..finder };
        assert_eq!(missing(&installed, "ample").install, "ample allocators");
        let peer = "cargo ample peers mimalloc3 in a clone, whose target/peers AMPLE_PEERS_DIR then names";
        assert_eq!(missing(&installed, "mimalloc3").install, peer);
    }

    #[test]
    fn where_nothing_can_be_unpacked_others_are_found_and_no_run_goes_without_our_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let refused = Some("cannot write to /x: set XDG_CACHE_HOME".to_owned());
        let finder = Finder { refused: refused.clone(), ..finder(folder.path()) };
        assert!(finder.by_name("glibc").expect("known").is_ok());
        for name in ["ample", "floor"] {
            assert_eq!(Some(missing(&finder, name).reason), refused);
        }
        let chosen = |list: Option<&[String]>| select(&finder, list, &[]).map(|chosen| chosen.len());
        assert_eq!(chosen(None).map_err(|error| error.to_string()).err(), refused);
        assert_eq!(chosen(Some(&["glibc".to_owned()])).ok(), Some(1));
    }

    #[test]
    fn a_peer_comes_from_the_manifest_and_a_failed_build_is_told_in_one_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let libc = find_libc().expect("glibc").library;
        fs::copy(libc, folder.path().join("libsnmalloc.so")).expect("copied");
        let manifest = r#"[
            {"name":"snmalloc","crate":"snmalloc-sys","crate_version":"0.7.6","version":"0.7.6",
             "library":"libsnmalloc.so","error":null},
            {"name":"tcmalloc","crate":"libtcmalloc-sys","crate_version":"1","version":"1","library":null,
             "error":"no C++ compiler\nsecond line"}]"#;
        fs::write(folder.path().join("peers.json"), manifest).expect("written");
        let finder = finder(folder.path());
        let found = finder.by_name("snmalloc").expect("known").expect("found");
        assert_eq!(found.version.as_deref(), Some("0.7.6"));
        assert_eq!(missing(&finder, "tcmalloc").reason, "does not build: no C++ compiler second line");
        assert_eq!(missing(&finder, "rpmalloc").reason, "not built yet");
        fs::write(folder.path().join("peers.json"), "[{").expect("written");
        assert!(missing(&finder, "snmalloc").reason.contains("peers.json is damaged"));
    }

    #[test]
    fn a_limit_is_known_as_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let finder = finder(folder.path());
        let floor = missing(&finder, "floor");
        assert_eq!(
            (floor.reason.as_str(), floor.install.as_str()),
            ("not built yet", "cargo ample allocators")
        );
        for name in ["floor", "single-lock"] {
            let library = folder.path().join(format!("lib{name}.so"));
            fs::copy(find_libc().expect("glibc").library, library).expect("copied");
        }
        let limit = |name: &str| finder.by_name(name).expect("known").expect("found").limit;
        assert_eq!((limit("floor"), limit("single-lock")), (Some(Limit::OneSize), Some(Limit::AnySize)));
        assert_eq!(limit("glibc"), None);
    }

    #[test]
    fn a_path_that_the_dynamic_linker_would_split_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let library = folder.path().join("lib two.so");
        fs::copy(find_libc().expect("glibc").library, &library).expect("copied");
        let error = from_file("two", &library, None, "here").expect_err("refused");
        assert!(error.to_string().contains("spaces and colons"), "{error}");
    }

    #[test]
    fn scudo_comes_from_the_newest_llvm() {
        let folder = tempfile::tempdir().expect("a folder");
        for release in ["llvm-9", "llvm-14"] {
            fs::create_dir_all(folder.path().join(release).join("lib/clang/x/lib/linux")).expect("made");
        }
        let first = runtime_folders(folder.path()).next().expect("one");
        assert!(first.starts_with(folder.path().join("llvm-14")), "{}", first.display());
    }
}
