//! The dynamic linker's own record of who serves malloc (`LD_DEBUG=bindings`), process by process.
//!
//! It says for each reference to `malloc` in each file which file's `malloc` it was bound to, whatever the
//! reason: a preloaded library, a program that exports its own, a library loaded with a scope of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::elf::Facts;
use crate::allocators::resolve;

/// The functions that decide who serves a process.
const DECISIVE: &[&str] = &["malloc", "free", "calloc", "realloc"];
/// What C++'s operators new and delete are called that a library may replace, but for their further arguments.
const OPERATORS: &[&str] = &["_Znwm", "_Znam", "_ZdlPv", "_ZdaPv"];
/// Those arguments: none, an alignment, no exceptions, or both.
const FURTHER: &[&str] = &["", "St11align_val_t", "RKSt9nothrow_t", "St11align_val_tRKSt9nothrow_t"];
/// How the names of C++ runtimes begin.
const RUNTIMES: &[&str] = &["libstdc++.", "libc++.", "libc++abi."];
/// What the dynamic linker is asked to record: bindings, and which program is started.
const CATEGORIES: &str = "bindings,libs";

/// The record of all processes of one start, in the order of their numbers.
#[derive(Debug, Default)]
pub struct Record {
    /// Those that were linked dynamically: static programs leave no trace.
    processes: Vec<Process>,
}

/// One process.
#[derive(Debug, Default)]
struct Process {
    pid: u32,
    /// The programs that it executed, one after the other.
    programs: Vec<String>,
    /// The first words of the commands.
    words: BTreeSet<String>,
    /// Whether libraries are being loaded: what is bound now need not be called.
    loading: bool,
    /// Whether the last one has left by `exit`: no other took its place.
    ended: bool,
    /// Their files.
    program_files: BTreeSet<PathBuf>,
    /// By file and function: the file that it was bound to.
    bound: BTreeSet<(PathBuf, String, PathBuf)>,
}

/// Who served the processes of a start.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Whether the process that was started is in the record at all: a static program is not.
    pub seen: bool,
    /// Programs that the library served, each once.
    pub by_it: BTreeSet<String>,
    /// Processes that it served.
    pub count: usize,
    /// Programs that another file served, with that file; the process that was started comes first.
    pub by_others: Vec<(String, PathBuf)>,
    /// Processes whose C++ operators another allocator serves.
    pub operators: Vec<Operators>,
}

/// A process in which a library with a malloc of its own serves operators new and delete, whoever serves malloc.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operators {
    /// The process.
    pub pid: u32,
    /// Its program.
    pub program: String,
    /// The library that serves them.
    pub library: PathBuf,
}

impl Record {
    /// Lets the command and its children write their records into this folder.
    ///
    /// Fails where the folder cannot be opened to all: a server may change its user.
    pub fn write_to(folder: &Path, command: &mut Command) -> io::Result<()> {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o1777))?;
        command.env("LD_DEBUG", CATEGORIES).env("LD_DEBUG_OUTPUT", folder.join("process"));
        // With it all is bound at once, and what is never called cannot be told from the rest.
        command.env_remove("LD_BIND_NOW");
        Ok(())
    }

    /// Reads what was recorded in this folder.
    pub fn read(folder: &Path) -> io::Result<Self> {
        let mut processes = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let pid = path.extension().and_then(|pid| pid.to_str()?.parse().ok());
            let Some(pid) = pid else { continue };
            let mut process = Process { pid, ..Process::default() };
            for line in BufReader::new(File::open(&path)?).split(b'\n') {
                process.note(&String::from_utf8_lossy(&line?));
            }
            processes.push(process);
        }
        processes.sort_by_key(|process| process.pid);
        Ok(Self { processes })
    }

    /// Who served these processes; `started` is the number of the first one.
    pub fn served(&self, library: &Path, started: u32) -> Served {
        let mut served = Served::default();
        let own = |process: &&Process| process.pid == started;
        let others = self.processes.iter().filter(|process| !own(process));
        for process in self.processes.iter().filter(own).chain(others) {
            served.seen |= process.pid == started;
            let elsewhere = process.operators(library);
            served.operators.extend(elsewhere.map(|library| Operators {
                pid: process.pid,
                program: process.name(),
                library,
            }));
            let files = process.files(library);
            let other = files.iter().find(|file| file.as_path() != library);
            match other {
                Some(other) => served.by_others.push((process.name(), other.clone())),
                None if files.is_empty() => {}
                None => {
                    served.count += 1;
                    served.by_it.extend(process.programs.iter().cloned());
                }
            }
        }
        served
    }

    /// Whether this process has started a program whose command has this first word.
    pub fn has_started(&self, pid: u32, word: &str) -> bool {
        self.processes.iter().any(|process| process.pid == pid && process.words.contains(word.trim()))
    }

    /// Whether the last program of this process is on record. A script, whose name is not its shell's, may be that.
    pub fn has_ended(&self, pid: u32) -> bool {
        let shell = |word: &String| word.starts_with('/') && word.ends_with("sh");
        let mut processes = self.processes.iter().filter(|process| process.pid == pid);
        processes.any(|process| process.ended || process.words.iter().any(shell))
    }

    /// The names of all programs, as their commands have them.
    pub fn names(&self) -> impl Iterator<Item = String> {
        let words = self.processes.iter().flat_map(|process| &process.words);
        words.map(|word| word.rsplit('/').next().unwrap_or(word).trim_start_matches('-').to_owned())
    }

    /// The file that serves the process that was started: of several processes that differ, the first one's.
    pub fn library(&self, started: u32) -> Option<PathBuf> {
        let nothing = Path::new("");
        let own = self.processes.iter().find(|process| process.pid == started);
        let rest = self.processes.iter().filter(|process| process.pid != started);
        own.into_iter().chain(rest).find_map(|process| process.files(nothing).into_iter().next())
    }

    /// Every file that serves some process.
    pub fn libraries(&self) -> BTreeSet<PathBuf> {
        self.processes.iter().flat_map(|process| process.files(Path::new(""))).collect()
    }

    /// For each function of the malloc family that was called: the file that serves it, in the first
    /// process that this library serves, or else in the first one.
    pub fn functions(&self, library: &Path) -> BTreeMap<String, PathBuf> {
        let serves = |process: &&Process| process.files(library).contains(library);
        let process = self.processes.iter().find(serves).or(self.processes.first());
        let mut functions = BTreeMap::new();
        for (from, name, _) in process.map(|process| &process.bound).into_iter().flatten() {
            if is_of_the_family(name)
                && let Some(target) = process.and_then(|process| process.target(from, name, library))
            {
                functions.insert(name.clone(), target);
            }
        }
        functions
    }
}

impl Process {
    fn note(&mut self, line: &str) {
        if let Some((_, program)) = line.split_once("transferring control: ") {
            (self.ended, self.loading) = (false, false);
            self.words.insert(program.trim().to_owned());
            let file = Path::new(program.trim());
            self.program_files.insert(resolve(file));
            let name = file.file_name();
            let name = name.map_or(program.to_owned(), |name| name.to_string_lossy().into_owned());
            if !self.programs.contains(&name) {
                self.programs.push(name);
            }
        } else if line.contains("find library=") {
            self.loading = true;
        } else if line.contains("calling init: ") {
            self.loading = false;
        } else if line.contains("calling fini: ") {
            self.ended = true;
        } else if let Some((from, to, function)) = binding(line)
            && (is_of_the_family(function) || self.is_use(Path::new(from), function))
        {
            self.bound.insert((resolve(Path::new(from)), function.to_owned(), resolve(Path::new(to))));
        }
    }

    /// Whether this reference shows that operators are used. A C++ runtime takes the addresses of some when it is
    /// loaded, be it for the sake of an allocator alone, in a program that has nothing to do with C++.
    fn is_use(&self, from: &Path, function: &str) -> bool {
        let name = from.file_name().unwrap_or_default().to_string_lossy();
        let runtime = RUNTIMES.iter().any(|runtime| name.starts_with(runtime));
        is_operator(function) && !(runtime && self.loading)
    }

    fn name(&self) -> String {
        self.programs.last().cloned().unwrap_or_else(|| format!("process {}", self.pid))
    }

    /// The files that serve the decisive functions of this process.
    fn files(&self, library: &Path) -> BTreeSet<PathBuf> {
        let decisive = self.bound.iter().filter(|(_, name, _)| DECISIVE.contains(&name.as_str()));
        decisive.filter_map(|(from, name, _)| self.target(from, name, library)).collect()
    }

    /// The allocator that serves C++'s operators new and delete although it is not this one; none where they lead to the
    /// program itself, or to a library that hands on to malloc, as the C++ runtimes do.
    fn operators(&self, library: &Path) -> Option<PathBuf> {
        let operators = self.bound.iter().filter(|(_, name, _)| is_operator(name));
        let files: BTreeSet<PathBuf> = operators
            .filter_map(|(from, name, _)| self.target(from, name, library).filter(|file| file != from))
            .collect();
        let foreign =
            |file: &PathBuf| file != library && !self.program_files.contains(file) && has_a_malloc(file);
        files.into_iter().find(foreign)
    }

    /// Where a reference ends; none for one of the library to itself or to what lies below it.
    ///
    /// A program that takes a function's address and was linked for a fixed address of its own offers all
    /// libraries a stub; a binding to a stub that leads on to another file counts as one to that file.
    fn target(&self, from: &Path, name: &str, library: &Path) -> Option<PathBuf> {
        if from == library {
            return None;
        }
        let onward = |file: &Path| {
            let mut bound =
                self.bound.iter().filter(|(source, function, _)| source == file && function == name);
            bound.find(|(.., target)| target != file).map(|(.., target)| target.clone())
        };
        let to_itself = (from.to_owned(), name.to_owned(), from.to_owned());
        let target = match onward(from) {
            Some(target) => target,
            None => self.bound.get(&to_itself)?.2.clone(),
        };
        let is_stub = self.program_files.contains(&target);
        Some(if is_stub { onward(&target).unwrap_or(target) } else { target })
    }
}

fn is_of_the_family(name: &str) -> bool {
    const OTHERS: &[&str] = &["posix_memalign", "aligned_alloc", "malloc_usable_size"];
    DECISIVE.contains(&name) || OTHERS.contains(&name)
}

/// Whether this is the name of an operator new or delete that a library may replace.
fn is_operator(name: &str) -> bool {
    let mut rests = OPERATORS.iter().filter_map(|operator| name.strip_prefix(operator));
    // A delete may be told the size.
    rests.any(|rest| FURTHER.contains(&rest.strip_prefix('m').unwrap_or(rest)))
}

/// Whether this library defines malloc for others.
fn has_a_malloc(library: &Path) -> bool {
    let bytes = crate::regular::read(library).ok();
    bytes.and_then(|bytes| Facts::read(&bytes)).is_some_and(|facts| facts.own_malloc)
}

/// The two files and the function of ``binding file A [0] to B [0]: normal symbol `malloc' [GLIBC_2.2.5]``.
fn binding(line: &str) -> Option<(&str, &str, &str)> {
    let (_, rest) = line.split_once("binding file ")?;
    let (files, rest) = rest.split_once(": normal symbol `")?;
    let (function, _) = rest.split_once('\'')?;
    let (from, to) = files.split_once("] to ")?;
    // After each file comes the number of its namespace: ` [0]`.
    Some((&from[..from.rfind(" [")?], &to[..to.rfind(" [")?], function))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, program: &str, bindings: &[(&str, &str)]) -> Process {
        let mut process = Process { pid, ..Process::default() };
        for (from, to) in bindings {
            process.note(&format!(
                "     {pid}:\tbinding file {from} [0] to {to} [0]: normal symbol `malloc' [GLIBC_2.2.5]"
            ));
        }
        process.note(&format!("     {pid}:\ttransferring control: {program}"));
        process
    }

    const LIBRARY: &str = "/x/libx.so";

    fn served(processes: Vec<Process>) -> Served {
        Record { processes }.served(Path::new(LIBRARY), 7)
    }

    #[test]
    fn a_line_is_taken_apart_even_with_spaces_in_it() {
        let line = "  1:\tbinding file /a b/c [0] to /d [e]/f [0]: normal symbol `free' [GLIBC_2.2.5]";
        assert_eq!(binding(line), Some(("/a b/c", "/d [e]/f", "free")));
        assert_eq!(binding("  1:\tcalling init: /lib/libc.so.6"), None);
    }

    #[test]
    fn one_process_of_another_library_is_enough_to_be_named() {
        let good = || process(7, "/bin/good", &[("/lib/libc.so.6", LIBRARY), (LIBRARY, "/lib/libc.so.6")]);
        let all = served(vec![good()]);
        assert_eq!((all.seen, all.count, all.by_others.len()), (true, 1, 0));
        assert!(all.by_it.contains("good"));
        let bad = process(9, "bad", &[("/lib/libc.so.6", "bad")]);
        let some = served(vec![good(), bad]);
        assert_eq!((some.count, some.by_others), (1, vec![("bad".into(), PathBuf::from("bad"))]));
        assert!(!served(vec![process(8, "child", &[("child", LIBRARY)])]).seen, "a static program");
    }

    #[test]
    fn a_stub_that_leads_to_the_library_is_the_library() {
        let plain = [("/lib/libc.so.6", "prog"), ("prog", "prog"), ("prog", "/lib/libc.so.6")];
        let files = process(7, "prog", &plain).files(Path::new(""));
        assert_eq!(files, BTreeSet::from(["/lib/libc.so.6".into()]), "and so is one to the C library");
        let bindings = [("/lib/libc.so.6", "prog"), ("prog", "prog"), ("prog", LIBRARY)];
        assert_eq!(served(vec![process(7, "prog", &bindings)]).by_others, []);
        let own = process(7, "prog", &bindings[..2]);
        assert_eq!(served(vec![own]).by_others, [("prog".into(), PathBuf::from("prog"))]);
    }

    #[test]
    fn operators_of_another_allocator_are_found_and_those_of_a_runtime_are_not() {
        for name in ["_Znwm", "_ZdlPvm", "_ZdaPvSt11align_val_t", "_ZnamRKSt9nothrow_t"] {
            assert!(is_operator(name), "{name}");
        }
        for name in ["_ZnwmPv", "_ZdlPvS_", "_ZN3FoonwEm", "malloc"] {
            assert!(!is_operator(name), "{name}");
        }
        let maps = fs::read_to_string("/proc/self/maps").expect("a list");
        let file = |name: &str| {
            let line = maps.lines().find(|line| line.contains(name)).expect("loaded");
            line[line.find('/').expect("a path")..].to_owned()
        };
        // A library that defines malloc, and one that does not.
        let (with, without) = (file("/libc.so.6"), file("/libgcc_s.so.1"));
        let found_after = |before: &[&str], from: &str, to: &str| {
            let mut process = process(7, "prog", &[("prog", LIBRARY)]);
            before.iter().for_each(|line| process.note(line));
            process.note(&format!("7: binding file {from} [0] to {to} [0]: normal symbol `_Znwm'"));
            let served = served(vec![process]);
            assert_eq!((served.count, served.by_others), (1, vec![]), "malloc is the library's");
            served.operators
        };
        let found = |from: &str, to: &str| found_after(&[], from, to);
        let expected = Operators { pid: 7, program: "prog".into(), library: with.clone().into() };
        assert_eq!(found("prog", &with), std::slice::from_ref(&expected));
        assert_eq!(found("/lib/libstdc++.so.6", &with), std::slice::from_ref(&expected));
        for (from, to) in [("prog", without.as_str()), ("prog", LIBRARY), ("prog", "prog"), (&with, &with)] {
            assert_eq!(found(from, to), [], "{from} {to}");
        }
        // A runtime that is loaded takes addresses; what it binds later it calls.
        let (loads, begins) = ("7: find library=libstdc++.so.6 [0]; searching", "7: calling init: /lib/x.so");
        assert_eq!(found_after(&[loads], "/lib/libstdc++.so.6", &with), []);
        assert_eq!(
            found_after(&[loads, begins], "/lib/libstdc++.so.6", &with),
            std::slice::from_ref(&expected)
        );
        assert_eq!(found_after(&[loads], "/lib/libuser.so", &with), [expected]);
    }

    #[test]
    fn a_real_process_is_recorded() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new("/bin/sh");
        Record::write_to(folder.path(), &mut command).expect("open to all");
        let mut child = command.args(["-c", ":"]).spawn().expect("runs");
        assert!(child.wait().expect("ends").success());
        let record = Record::read(folder.path()).expect("a record");
        let library = record.library(child.id()).expect("somebody serves it");
        assert!(library.to_string_lossy().contains("libc.so.6"), "{library:?}");
        assert!(record.served(&library, child.id()).by_it.contains("sh"));
        assert_eq!(record.functions(&library)["malloc"], library);
    }
}
