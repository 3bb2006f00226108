//! The limits: small C libraries in `bench/limits` that allocators are held against, as `target/limits/libNAME.so`.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result};

use crate::{cargo, process};

/// All limits, by the names that the tool knows.
const LIMITS: [&str; 2] = ["floor", "single-lock"];

/// How they are compiled. Without built-ins the compiler may not make a call of the malloc family out of another.
const ARGUMENTS: &str = include_str!("../../bench/limits/arguments");

/// Compiles the limits that are older than their source, or than this program.
///
/// # Errors
/// When one does not compile, or `target/limits` cannot be written.
pub fn build(workspace: &cargo::Metadata) -> Result<()> {
    let folder = workspace.target_directory.join("limits");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let own = std::env::current_exe().context("cannot find this program's own path")?;
    for name in LIMITS {
        let source = workspace.workspace_root.join(format!("bench/limits/{name}.c"));
        let library = folder.join(format!("lib{name}.so"));
        if !is_newer(&library, &[&source, &own]) {
            compile(&source, &library)?;
        }
    }
    Ok(())
}

/// Compiles one limit; whoever has the old library open keeps it.
fn compile(source: &Path, library: &Path) -> Result<()> {
    let unfinished = library.with_extension(format!("{}.unfinished", std::process::id()));
    process::compile(source, &unfinished, &ARGUMENTS.split_whitespace().collect::<Vec<_>>())?;
    fs::rename(&unfinished, library).with_context(|| format!("cannot write {}", library.display()))
}

/// Whether the file is there, and newer than all of `others`.
fn is_newer(file: &Path, others: &[&Path]) -> bool {
    let changed = |path: &Path| -> Option<SystemTime> { fs::metadata(path).ok()?.modified().ok() };
    changed(file).is_some_and(|own| others.iter().all(|other| changed(other).is_some_and(|time| own > time)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::check;
    use std::collections::BTreeMap;

    #[test]
    fn every_limit_compiles_serves_the_malloc_family_and_can_be_preloaded() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in LIMITS {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../bench/limits/{name}.c"));
            let library = folder.path().join(format!("lib{name}.so"));
            let arguments: Vec<&str> = ARGUMENTS.split_whitespace().chain(["-Werror"]).collect();
            process::compile(&source, &library, &arguments).expect("no warning");
            check::exports_malloc(&library).expect("exports");
            check::can_be_preloaded(&library, &BTreeMap::new()).expect("preloads");
        }
    }

    #[test]
    fn every_source_is_a_limit() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/limits");
        let mut sources: Vec<String> = fs::read_dir(folder)
            .expect("readable")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .filter(|name| name != "arguments")
            .collect();
        sources.sort();
        assert_eq!(sources, LIMITS.map(|name| format!("{name}.c")));
    }

    #[test]
    fn what_is_older_or_missing_is_not_newer() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, age_s| {
            let path = folder.path().join(name);
            let time = SystemTime::now() - std::time::Duration::from_secs(age_s);
            fs::File::create(&path).and_then(|file| file.set_modified(time)).expect("written");
            path
        };
        let (old, new) = (file("old", 100), file("new", 10));
        let missing = folder.path().join("missing");
        assert!(is_newer(&new, &[&old]));
        assert!(!is_newer(&old, &[&new]) && !is_newer(&missing, &[&old]) && !is_newer(&new, &[&missing]));
    }
}
