//! Where an app works: its folder, its programs, how much it does.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::trial::{Care, Kind, Ready, Server, Subject};

/// Paths of Unix sockets are no longer than this, of which the last part is ours.
const SOCKET_BOUND: usize = 60;

/// A folder for all apps of a run. It lies on a disk: files that a program maps from a file system in memory
/// would count as shared memory, which is the program's own.
pub fn scratch() -> Result<TempDir> {
    const IN_MEMORY: u32 = 0x0102_1994;
    let on_disk =
        |place: &Path| rustix::fs::statfs(place).is_ok_and(|found| found.f_type as u32 != IN_MEMORY);
    let places = [std::env::temp_dir(), "/var/tmp".into()];
    let Some(place) = places.iter().find(|place| on_disk(place)) else {
        bail!("{} is in memory; set TMPDIR to a folder on a disk", places[0].display());
    };
    if place.as_os_str().len() > SOCKET_BOUND {
        bail!("{} is too long a path for sockets; set TMPDIR to a shorter one", place.display());
    }
    let made = tempfile::Builder::new().prefix("ample-").tempdir_in(place);
    made.with_context(|| format!("cannot make a folder in {}", place.display()))
}

/// What an app is given.
#[derive(Debug)]
pub struct Site {
    /// Its own folder: its input, and `run`, which every run finds empty.
    pub folder: PathBuf,
    /// Its programs by name.
    pub programs: BTreeMap<&'static str, PathBuf>,
    /// Whether it does as little as tests do.
    pub small: bool,
    /// Longest life of one run.
    pub timeout: Duration,
}

impl Site {
    /// The amount of work.
    pub fn amount(&self, full: usize, small: usize) -> usize {
        if self.small { small } else { full }
    }

    /// A program's file, as a word of a command.
    pub fn program(&self, name: &str) -> OsString {
        self.programs.get(name).map_or_else(|| name.into(), |path| path.clone().into())
    }

    /// A file of the input.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A file of the run.
    pub fn in_run(&self, name: &str) -> PathBuf {
        self.folder.join("run").join(name)
    }

    /// Writes a file of the input.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> io::Result<PathBuf> {
        let path = self.path(name);
        fs::write(&path, content)?;
        Ok(path)
    }

    /// How to empty the run's folder.
    pub fn empty(&self) -> impl Fn() -> io::Result<()> + use<> {
        let run = self.folder.join("run");
        move || {
            if run.exists() {
                fs::remove_dir_all(&run)?;
            }
            fs::create_dir(&run)
        }
    }

    /// A program that ends by itself, every run of which begins with an empty folder.
    pub fn command(
        &self,
        words: Vec<OsString>,
        product: impl Fn(&str) -> Result<String, String> + 'static,
    ) -> Subject {
        self.subject(Kind::Command(words), Care::new(self.empty(), product))
    }

    /// A server and its load, a script for the shell.
    pub fn server(&self, server: Vec<OsString>, ready: Ready, load: &str, care: Care) -> io::Result<Subject> {
        let script = self.write("load.sh", load)?;
        let load = vec!["/bin/sh".into(), script.into()];
        Ok(self.subject(Kind::Server(Server { server, load, ready }), care))
    }

    fn subject(&self, kind: Kind, care: Care) -> Subject {
        Subject {
            kind,
            metrics: Vec::new(),
            exit_code: 0,
            timeout: self.timeout,
            environment: vec![("LC_ALL", "C".into())],
            thread_counts: Vec::new(),
            care: Some(care),
        }
    }
}

/// A command from its program and its arguments.
pub fn words(program: OsString, arguments: &[&dyn AsRef<OsStr>]) -> Vec<OsString> {
    let arguments = arguments.iter().map(|&argument| argument.as_ref().to_owned());
    std::iter::once(program).chain(arguments).collect()
}

/// A fingerprint of a file.
pub fn fingerprint(path: &Path) -> Result<String, String> {
    let content = read(path)?;
    if content.is_empty() {
        return Err(format!("{} is empty", name(path)));
    }
    Ok(digest(&content))
}

/// A fingerprint of some bytes: the beginning of their SHA-256.
pub fn digest(content: &[u8]) -> String {
    Sha256::digest(content).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// A file that a run should have written.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", name(path)))
}

/// Fails unless these are the same.
pub fn expect(what: &str, found: usize, wanted: usize) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("wrong output: {found} {what} instead of {wanted}")) }
}

/// The last line of an output.
pub fn last_line(output: &str) -> Result<String, String> {
    let line = output.lines().rev().find(|line| !line.trim().is_empty());
    line.map(|line| line.trim().to_owned()).ok_or_else(|| "no output".into())
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
pub mod testing {
    use super::*;

    /// A site in this folder, with the programs that the app finds.
    pub fn site(folder: &Path, programs: BTreeMap<&'static str, PathBuf>) -> Site {
        Site { folder: folder.to_owned(), programs, small: true, timeout: Duration::from_secs(60) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_begins_with_an_empty_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let site = testing::site(folder.path(), BTreeMap::new());
        let empty = site.empty();
        empty().expect("made");
        fs::write(site.in_run("left"), "x").expect("written");
        empty().expect("made anew");
        assert!(!site.in_run("left").exists() && site.in_run("").is_dir());
    }

    #[test]
    fn products_that_are_missing_or_wrong_say_so() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("out");
        assert!(fingerprint(&file).expect_err("missing").starts_with("out: "));
        fs::write(&file, "").expect("written");
        assert_eq!(fingerprint(&file), Err("out is empty".into()));
        fs::write(&file, "abc").expect("written");
        assert_eq!(fingerprint(&file).as_deref(), Ok("ba7816bf8f01cfea"));
        assert_eq!(expect("lines", 3, 4), Err("wrong output: 3 lines instead of 4".into()));
        assert_eq!(last_line("a\nb\n\n"), Ok("b".into()));
        assert!(last_line(" \n").is_err());
    }

    #[test]
    fn the_scratch_folder_is_on_a_disk() {
        let folder = scratch().expect("a folder");
        assert!(folder.path().is_dir());
    }
}
