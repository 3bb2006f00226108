//! Who was seen with the library, process by process and program by program, from outside.
//!
//! The dynamic linker's record says nothing of a program that has no dynamic linker, that starts with an
//! environment of its own, or with other rights: what a look at the processes finds, and the record does not
//! explain, is told apart here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Record, examine, system_of};

/// What the kernel keeps of a program's name.
const NAME: usize = 15;

/// What was seen of the processes of one start.
#[derive(Debug, Clone, Default)]
pub struct Sightings {
    /// The library that is looked for; none: only which programs run is looked at.
    library: Option<PathBuf>,
    /// By process and program.
    seen: BTreeMap<(u32, PathBuf), Seen>,
    /// The names of programs that had the library.
    served: BTreeSet<String>,
    /// Processes that nobody may look into, with their names.
    closed: BTreeMap<u32, String>,
    /// The names under which processes ended.
    ended: BTreeMap<u32, String>,
}

/// One program in one process.
#[derive(Debug, Clone, Default)]
struct Seen {
    with: bool,
    without: bool,
    /// The first words of its command where it had loaded nothing yet.
    early: BTreeSet<Vec<u8>>,
}

/// A program that runs beside the library, or may do so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unserved {
    /// The process.
    pub pid: u32,
    /// The program.
    pub name: String,
    /// Why the library does not serve it, or why nobody knows, in a phrase that follows the name.
    pub reason: String,
}

impl Sightings {
    /// Looks for this library, or for programs alone.
    pub fn of(library: Option<&Path>) -> Self {
        Self { library: library.map(Path::to_owned), ..Self::default() }
    }

    /// The files of the programs that were seen.
    pub fn programs(&self) -> BTreeSet<PathBuf> {
        self.seen.keys().map(|(_, program)| program.clone()).collect()
    }

    /// Looks at one process.
    pub fn look(&mut self, pid: u32) {
        let Ok(name) = fs::read_to_string(format!("/proc/{pid}/comm")) else { return };
        let name = name.trim_end().to_owned();
        let program = || fs::read_link(format!("/proc/{pid}/exe"));
        let maps = fs::read(format!("/proc/{pid}/maps"));
        let first_word = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        match (program(), maps) {
            (Ok(file), Ok(maps)) => {
                let seen = self.seen.entry((pid, file.clone())).or_default();
                let Some(library) = &self.library else { return };
                let maps = String::from_utf8_lossy(&maps);
                // A list without an end is that of a program which another one has just replaced.
                if !maps.contains("[stack]") || program().ok().as_ref() != Some(&file) {
                    return;
                }
                if has(&maps, library) {
                    seen.with = true;
                    self.served.insert(name);
                } else if has_loaded(&maps) {
                    seen.without = true;
                } else if let Some(word) =
                    first_word.split(|&byte| byte == 0).next().filter(|w| !w.is_empty())
                {
                    seen.early.insert(word.to_owned());
                }
            }
            (Err(error), _) | (_, Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.closed.insert(pid, name);
            }
            // It has ended, and its parent has not noticed yet.
            (Err(_), _) => {
                self.ended.insert(pid, name);
            }
            _ => {}
        }
    }

    /// The programs that the library does not serve, and those of which nobody knows; `started` is the number of the
    /// first process. What other libraries serve according to the record is the record's to tell.
    pub fn unserved(&self, record: &Record, started: u32) -> Vec<Unserved> {
        let Some(library) = &self.library else { return Vec::new() };
        let system = system_of(library);
        // The file of a program often tells more than the process does.
        let obstacle = |file: &PathBuf| examine(file.as_os_str(), system).ok()?.obstacle;
        let obstacles: BTreeMap<PathBuf, Option<String>> =
            self.programs().into_iter().map(|file| (file.clone(), obstacle(&file))).collect();
        let mut found = Vec::new();
        for ((pid, file), seen) in &self.seen {
            let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
            let unserved = |reason| Unserved { pid: *pid, name, reason };
            let recorded =
                || seen.early.iter().all(|word| record.has_started(*pid, &String::from_utf8_lossy(word)));
            if let Some(obstacle) = obstacles.get(file).cloned().flatten() {
                found.push(unserved(obstacle));
            } else if seen.without {
                found.push(unserved(format!("runs without {}", library.display())));
            } else if !seen.with && !recorded() {
                found.push(unserved("left no record, and ended before it could be looked at".into()));
            }
        }
        let known =
            |name: &String| self.served.contains(name) || record.names().any(|other| cut(&other) == *name);
        for (pid, name) in self.closed.iter().filter(|(_, name)| !known(name)) {
            let reason = "left no record, and may not be looked at: it has other rights than yours".into();
            found.push(Unserved { pid: *pid, name: name.clone(), reason });
        }
        // Only the last name of the process that was started is sure to be seen.
        if let Some(name) = self.ended.get(&started).filter(|name| !known(name))
            && !record.has_ended(started)
            && found.iter().all(|unserved| unserved.pid != started)
        {
            let reason = "left no record, and ended before it could be looked at".into();
            found.push(Unserved { pid: started, name: name.clone(), reason });
        }
        found
    }
}

/// What the kernel keeps of this name.
fn cut(name: &str) -> String {
    let end = (0..=NAME.min(name.len())).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0);
    name[..end].to_owned()
}

/// The files in a list of mappings whose code may be executed.
fn executable(maps: &str) -> impl Iterator<Item = &str> {
    maps.lines().filter_map(|line| {
        let mut words = line.splitn(6, ' ');
        let rights = words.nth(1)?;
        rights.contains('x').then_some(words.nth(3)?.trim_start())
    })
}

fn has(maps: &str, library: &Path) -> bool {
    let library = library.to_string_lossy();
    executable(maps).any(|file| file.strip_suffix(" (deleted)").unwrap_or(file) == library)
}

/// Whether the dynamic linker has loaded something: it begins with what is preloaded.
fn has_loaded(maps: &str) -> bool {
    executable(maps).any(|file| {
        let name = file.rsplit('/').next().unwrap_or(file);
        file.starts_with('/') && name.contains(".so") && !name.starts_with("ld")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINKER: &str = "1-2 r-xp 0 fe:01 3                          /usr/lib/ld-linux-x86-64.so.2\n";
    const C: &str = "1-2 r-xp 0 fe:01 3                          /usr/lib/libc.so.6\n";
    const OURS: &str = "1-2 r-xp 0 fe:01 3                          /x y/libx.so (deleted)\n";

    #[test]
    fn a_list_of_mappings_tells_who_is_there_and_who_is_not_yet() {
        let library = Path::new("/x y/libx.so");
        assert!(has(&format!("{LINKER}{OURS}{C}"), library) && !has(C, library));
        assert!(has_loaded(C) && !has_loaded(LINKER));
        assert!(!has_loaded(&C.replace("r-xp", "r--p")));
        assert_eq!(
            (cut("short").as_str(), cut("a-name-that-is-long").as_str()),
            ("short", "a-name-that-is-")
        );
    }

    #[test]
    fn what_neither_a_look_nor_the_record_has_is_named() {
        let mut sightings = Sightings::of(Some(Path::new("/x/libx.so")));
        let mut see = |pid, file: &str, seen| sightings.seen.insert((pid, file.into()), seen);
        see(1, "/bin/with", Seen { with: true, early: BTreeSet::from([b"?".to_vec()]), ..Seen::default() });
        see(2, "/bin/without", Seen { without: true, ..Seen::default() });
        see(3, "/bin/early", Seen { early: BTreeSet::from([b"early".to_vec()]), ..Seen::default() });
        see(4, "/bin/hardly", Seen::default());
        sightings.closed = BTreeMap::from([(5, "closed".into()), (6, "served".into())]);
        sightings.served.insert("served".into());
        sightings.ended = BTreeMap::from([(7, "last".into()), (8, "other".into())]);
        let names = |started| {
            let unserved = sightings.unserved(&Record::default(), started);
            unserved.into_iter().map(|unserved| unserved.name).collect::<Vec<_>>()
        };
        assert_eq!(names(7), ["without", "early", "closed", "last"]);
        assert_eq!(names(1), ["without", "early", "closed"]);
    }
}
