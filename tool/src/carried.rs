//! What an installed tool carries with it: `libample.so`, the workloads' program, the limits.
//!
//! They are unpacked on first use into `$XDG_CACHE_HOME/ample/<id>/` (without that variable, into `.cache` of the home folder), where
//! `<id>` tells these files from those of another build. What lies there already is compared byte by byte, and written anew where it differs.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

include!(concat!(env!("OUT_DIR"), "/carried.rs"));

/// Whether the tool carries any, and thus needs no clone: it is installed.
pub fn is_installed() -> bool {
    !FILES.is_empty()
}

/// The folder with the carried files, all of them as they were built; none where the tool carries none.
///
/// # Errors
/// There is no folder for caches, or it takes no files.
pub fn folder() -> Result<Option<PathBuf>> {
    if !is_installed() {
        return Ok(None);
    }
    const REMEDY: &str =
        "the tool unpacks its libraries there; set XDG_CACHE_HOME to a folder that can be written";
    let caches = caches().with_context(|| format!("there is no home folder: {REMEDY}"))?;
    let folder = caches.join("ample").join(ID);
    unpack(&folder, FILES).with_context(|| format!("cannot write to {}: {REMEDY}", folder.display()))?;
    Ok(Some(folder))
}

/// The user's folder for caches; the specification has relative paths ignored.
fn caches() -> Option<PathBuf> {
    let set = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    set.or_else(|| Some(env::home_dir().filter(|home| home.is_absolute())?.join(".cache")))
}

/// Makes the folder hold these files. Each appears whole or not at all, whoever else is unpacking.
fn unpack(folder: &Path, files: &[(&str, &[u8])]) -> std::io::Result<()> {
    const MODE: u32 = 0o755;
    fs::create_dir_all(folder)?;
    for (name, content) in files {
        let path = folder.join(name);
        let mode = |path: &Path| Some(fs::metadata(path).ok()?.permissions().mode() & 0o777);
        if mode(&path) == Some(MODE) && fs::read(&path).is_ok_and(|found| found == *content) {
            continue;
        }
        let unfinished = folder.join(format!("{name}.{}.unfinished", std::process::id()));
        fs::write(&unfinished, content)?;
        fs::set_permissions(&unfinished, Permissions::from_mode(MODE))?;
        fs::rename(&unfinished, &path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_damaged_is_written_anew_and_what_is_whole_is_left_alone() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("ample/id");
        let files: [(&str, &[u8]); 2] = [("a.so", b"library"), ("program", b"#!/bin/sh\nexit 7\n")];
        unpack(&folder, &files).expect("unpacked");
        let status = std::process::Command::new(folder.join("program")).status().expect("runs");
        assert_eq!(status.code(), Some(7));
        let written = || {
            let time = |name: &str| {
                fs::metadata(folder.join(name)).and_then(|file| file.modified()).expect("a time")
            };
            files.map(|(name, _)| time(name))
        };
        let first = written();
        unpack(&folder, &files).expect("nothing to do");
        assert_eq!(written(), first);
        fs::write(folder.join("a.so"), "libr").expect("damaged");
        unpack(&folder, &files).expect("mended");
        assert_eq!(fs::read(folder.join("a.so")).expect("a file"), b"library");
        assert_eq!(written()[1], first[1]);
        let names = fs::read_dir(&folder).expect("readable").count();
        assert_eq!(names, 2, "nothing unfinished is left");
    }

    #[test]
    fn a_debug_build_carries_nothing() {
        assert_eq!(FILES.is_empty(), cfg!(debug_assertions) || !cfg!(feature = "carry"));
        assert_eq!(ID.len(), 16);
        assert!(FILES.is_empty() == folder().expect("a folder, or none").is_none());
    }
}
