//! `xtask instructions`: how many instructions an allocator runs per pair of malloc and free, and for other calls.
//!
//! Callgrind, a tool of valgrind, counts what a small program (`xtask/programs/loops.c`) runs, by shared object.
//! Every loop runs twice, shorter and longer: the difference, divided by the pairs that the longer run has more,
//! is free of start-up and exit. Counts do not depend on the machine's load, since the program has a clock of its own; they say
//! nothing about cache misses.

mod loops;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use object::{Object, ObjectSymbol};

use self::loops::{Loop, TABLES, Table};
use crate::peers::manifest::{Entry, Manifest};
use crate::{callgrind, cargo, process};

/// How long one run under valgrind may take; the longest takes seconds.
const PATIENCE: Duration = Duration::from_secs(300);

/// A library that has this symbol keeps its caches per CPU, through restartable sequences.
const RSEQ_SYMBOL: &str = "__rseq_abi";

/// An allocator to be measured.
#[derive(Debug)]
struct Allocator {
    /// Its name in the table.
    name: String,
    /// The file to preload, without links in its path; none for the C library, which serves without.
    library: Option<PathBuf>,
    /// Environment in which programs are to run on it.
    env: BTreeMap<String, String>,
    /// Whether it is a failure if it cannot be measured.
    required: bool,
    /// Whether it is one, too, if calls beside malloc and free cannot.
    serves_all: bool,
}

/// What the arguments ask for.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    /// Ample, glibc and the bundled peers.
    All,
    /// Ample alone, held to its limits.
    Check,
    /// These files.
    Libraries(Vec<PathBuf>),
}

/// Prints Markdown tables: a row for each allocator, a column for each loop, and below them why allocators are not
/// measured. The exit code says usage for bad arguments, and failure when a tool is missing, when Ample or a
/// library that was named cannot be measured, and, with `--check`, when Ample needs more than its limits.
///
/// # Errors
/// When the repository's layout cannot be read, `target` cannot be written or the program does not compile.
pub fn run(arguments: &[OsString]) -> Result<ExitCode> {
    let request = match parse(arguments) {
        Ok(request) => request,
        Err(message) => {
            eprintln!("error: {message}");
            return Ok(ExitCode::from(2));
        }
    };
    if let Some(message) = missing_tools(process::runs) {
        eprintln!("error: {message}");
        return Ok(ExitCode::FAILURE);
    }
    let workspace = cargo::workspace()?;
    let allocators = match &request {
        Request::Libraries(files) => files.iter().map(|file| named(file)).collect::<Result<_>>()?,
        Request::All | Request::Check => {
            if !cargo::build(&workspace, "release", &["ample-abi"])? {
                return Ok(ExitCode::FAILURE);
            }
            let mut allocators = vec![ample(&workspace.target_directory)?];
            if request == Request::All {
                allocators.extend(others(&workspace.target_directory.join("peers"))?);
            }
            allocators
        }
    };
    let bench = Bench::prepare(&workspace)?;

    let mut failed = false;
    for (index, table) in TABLES.iter().enumerate() {
        if index > 0 {
            println!();
        }
        failed |= !print(table, &bench, &allocators, request == Request::Check);
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Prints a table, and below it why allocators are not measured. `false`: one that must be was not, or needs more than its
/// limits while it is to be held to them.
fn print(table: &Table, bench: &Bench, allocators: &[Allocator], check: bool) -> bool {
    print!("{}", head(table));
    let mut unmeasured = Vec::new();
    let mut good = true;
    for allocator in allocators {
        eprintln!("measuring {} …", allocator.name);
        match bench.measure_all(allocator, table) {
            Ok(counts) => {
                println!("{}", row(&allocator.name, counts.iter().map(|count| format!("{count:.1}"))));
                if check {
                    let excess = excess(table, &counts);
                    good &= excess.is_empty();
                    excess.iter().for_each(|message| eprintln!("error: {}: {message}", allocator.name));
                }
            }
            Err(error) => {
                println!("{}", row(&allocator.name, table.loops.iter().map(|_| "–".to_string())));
                unmeasured.push(format!("- {}: not measured: {error:#}", allocator.name));
                let must = if table.beside { allocator.serves_all } else { allocator.required };
                good &= !must;
            }
        }
    }
    if !unmeasured.is_empty() {
        println!("\n{}", unmeasured.join("\n"));
    }
    good
}

/// What the arguments ask for, or a message.
fn parse(arguments: &[OsString]) -> Result<Request, String> {
    match arguments {
        [] => return Ok(Request::All),
        [only] if only == "--check" => return Ok(Request::Check),
        _ => {}
    }
    let library = |argument: &OsString| {
        let path = PathBuf::from(argument);
        if argument.as_encoded_bytes().starts_with(b"-") {
            let shown = argument.display();
            return Err(format!("unexpected '{shown}'; it is: instructions [LIB…], or instructions --check"));
        }
        match path.is_file() {
            true => Ok(path),
            false => Err(format!("no file {}; LIB is the path of an allocator's .so", path.display())),
        }
    };
    arguments.iter().map(library).collect::<Result<_, _>>().map(Request::Libraries)
}

/// A line that says which tool is missing and how to install it. `runs` tells whether a program can be run.
fn missing_tools(runs: impl Fn(&OsStr) -> bool) -> Option<String> {
    if !runs(OsStr::new("valgrind")) {
        return Some("counting instructions needs valgrind: apt-get install valgrind".to_string());
    }
    let compiler = process::compiler();
    if !runs(&compiler) {
        let shown = compiler.display();
        return Some(format!("counting instructions needs a C compiler ({shown}): apt-get install gcc"));
    }
    None
}

/// Ample as it was just built.
fn ample(target: &Path) -> Result<Allocator> {
    let library = canonical(&target.join("release/libample.so"))?;
    Ok(Allocator {
        name: "ample".into(),
        library: Some(library),
        env: BTreeMap::new(),
        required: true,
        serves_all: true,
    })
}

/// A library that was named, with the environment of its peer if it is one.
fn named(file: &Path) -> Result<Allocator> {
    let library = canonical(file)?;
    let peers = library.parent().map(Manifest::load).unwrap_or_default();
    let is_this = |peer: &&Entry| peer.library.as_deref().map(OsStr::new) == library.file_name();
    let env = peers.entries().find(is_this).map(|peer| peer.env.clone()).unwrap_or_default();
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Allocator { name, library: Some(library), env, required: true, serves_all: false })
}

/// glibc, and the bundled peers whose manifest lies in `folder`.
fn others(folder: &Path) -> Result<Vec<Allocator>> {
    let mut found = vec![Allocator {
        name: "glibc".into(),
        library: None,
        env: BTreeMap::new(),
        required: false,
        serves_all: false,
    }];
    for peer in Manifest::load(folder).entries() {
        let name = format!("{} {}", peer.name, peer.version);
        let Some(library) = &peer.library else {
            eprintln!("{name}: not built: {}", peer.error.as_deref().unwrap_or("no reason given"));
            continue;
        };
        let library = canonical(&folder.join(library))?;
        found.push(Allocator {
            name,
            library: Some(library),
            env: peer.env.clone(),
            required: false,
            serves_all: false,
        });
    }
    if found.len() == 1 {
        eprintln!("no bundled peers in {}; this builds them: cargo ample peers", folder.display());
    }
    Ok(found)
}

fn canonical(file: &Path) -> Result<PathBuf> {
    file.canonicalize().with_context(|| format!("cannot find {}", file.display()))
}

/// The compiled program, and where its profiles go.
#[derive(Debug)]
struct Bench {
    program: PathBuf,
    profile: PathBuf,
}

impl Bench {
    /// Compiles the program into a folder of its own below `target`.
    fn prepare(workspace: &cargo::Metadata) -> Result<Bench> {
        let folder = workspace.target_directory.join("instructions");
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let source = workspace.workspace_root.join("xtask/programs/loops.c");
        let program = folder.join("loops");
        compile(&source, &program)?;
        Ok(Bench { program: canonical(&program)?, profile: folder.join("callgrind.out") })
    }

    /// Instructions per pair, or call, in every loop of a table.
    fn measure_all(&self, allocator: &Allocator, table: &Table) -> Result<Vec<f64>> {
        if let Some(library) = &allocator.library {
            refuse_caches_per_cpu(library)?;
        }
        let measure = |each: &Loop| self.measure(allocator, each).with_context(|| each.name);
        table.loops.iter().map(measure).collect()
    }

    /// Instructions per pair inside the allocator.
    fn measure(&self, allocator: &Allocator, each: &Loop) -> Result<f64> {
        let short = self.count(allocator, each, each.short)?;
        let long = self.count(allocator, each, each.long)?;
        let inside = |counts: &BTreeMap<String, u64>| -> u64 {
            let belongs = |object: &str| belongs(allocator.library.as_deref(), &self.program, object);
            counts.iter().filter(|(object, _)| belongs(object)).map(|(_, count)| count).sum()
        };
        let growth = inside(&long).saturating_sub(inside(&short));
        let pairs = (each.long - each.short) * each.pairs;
        ensure!(growth >= pairs, "it ran not one instruction per pair: it does not serve malloc");
        Ok(growth as f64 / pairs as f64)
    }

    /// The instructions of one run by object.
    fn count(&self, allocator: &Allocator, each: &Loop, rounds: u64) -> Result<BTreeMap<String, u64>> {
        // What an earlier run left must not be taken for this one's.
        fs::write(&self.profile, "").with_context(|| format!("cannot write {}", self.profile.display()))?;
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["-q", "--tool=callgrind"]);
        valgrind.arg(option("--callgrind-out-file=", &self.profile));
        valgrind.arg(&self.program).arg(each.mode).arg(rounds.to_string());
        valgrind.args(each.sizes.iter().map(u64::to_string));
        valgrind.env_remove("VALGRIND_OPTS").env_remove("LD_PRELOAD").envs(&allocator.env);
        if let Some(library) = &allocator.library {
            valgrind.env("LD_PRELOAD", library);
        }
        let finished = process::run_at_most(PATIENCE, &mut valgrind).context("cannot run valgrind")?;
        let Some(finished) = finished else {
            bail!("under valgrind it does not end within {} s", PATIENCE.as_secs())
        };
        if !finished.status.success() {
            let said = finished.stderr.lines().map(str::trim).find(|line| !line.is_empty());
            bail!("under valgrind it ends with {}: {}", finished.status, said.unwrap_or("without a word"));
        }
        let profile = fs::read_to_string(&self.profile)
            .with_context(|| format!("cannot read {}", self.profile.display()))?;
        callgrind::instructions_by_object(&profile)
    }
}

/// Compiles the program of the loops, so that the compiler removes no pair of malloc and free.
fn compile(source: &Path, program: &Path) -> Result<()> {
    // Exported, so that the allocator finds the program's clock first.
    process::compile(source, program, &["-std=c11", "-O2", "-fno-builtin", "-rdynamic"])
}

fn option(name: &str, value: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(value);
    option
}

/// A library with caches per CPU cannot be measured: valgrind offers no restartable sequences, without which it
/// runs a slower path that no real program sees.
///
/// # Errors
/// When the library is such a one, or no ELF file.
fn refuse_caches_per_cpu(library: &Path) -> Result<()> {
    let content = fs::read(library).with_context(|| format!("cannot read {}", library.display()))?;
    let file = object::File::parse(&*content).context("the library is no ELF file")?;
    let has_them = file.dynamic_symbols().any(|symbol| symbol.name() == Ok(RSEQ_SYMBOL));
    ensure!(!has_them, "under valgrind only its slow path runs: valgrind offers no restartable sequences");
    Ok(())
}

/// Whether what runs in `object` counts as inside the allocator: for the C library (`library` is `None`) what
/// runs in it, since the loops call nothing else of it. For a preloaded library all but the program, the C
/// library and the dynamic linker: so also a second library that it brings along and passes the calls to, and code
/// in sections of its own (as in gperftools), which callgrind assigns to no object.
fn belongs(library: Option<&Path>, program: &Path, object: &str) -> bool {
    match library {
        None => is_c_library(object),
        Some(_) => {
            Path::new(object) != program && !is_c_library(object) && !file_name(object).starts_with("ld-")
        }
    }
}

fn is_c_library(object: &str) -> bool {
    file_name(object).starts_with("libc.so")
}

fn file_name(object: &str) -> &str {
    object.rsplit('/').next().unwrap_or(object)
}

/// The first two lines of the table.
fn head(table: &Table) -> String {
    let rule: String = table.loops.iter().map(|_| "--:|").collect();
    format!("{}\n|---|{rule}\n", row(table.title, table.loops.iter().map(|each| each.name.to_string())))
}

fn row(name: &str, cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> = cells.collect();
    format!("| {name} | {} |", cells.join(" | "))
}

/// A message for each loop in which `counts` is above the limit; in the order of the table.
fn excess(table: &Table, counts: &[f64]) -> Vec<String> {
    let pairs = table.loops.iter().zip(counts);
    pairs
        .filter(|(each, count)| **count > each.limit)
        .map(|(each, count)| format!("{}: {count:.2} {}; at most {:.0}", each.name, table.title, each.limit))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_files_or_the_check() {
        assert_eq!(parse(&[]), Ok(Request::All));
        assert_eq!(parse(&["--check".into()]), Ok(Request::Check));
        assert_eq!(parse(&["/bin/true".into()]), Ok(Request::Libraries(vec!["/bin/true".into()])));
        let message = parse(&["--check".into(), "/bin/true".into()]).expect_err("both");
        assert_eq!(message, "unexpected '--check'; it is: instructions [LIB…], or instructions --check");
        let message = parse(&["/no/such.so".into()]).expect_err("no file");
        assert_eq!(message, "no file /no/such.so; LIB is the path of an allocator's .so");
    }

    #[test]
    fn a_missing_tool_is_named_with_the_command_that_installs_it() {
        assert_eq!(missing_tools(|_| true), None);
        let message = missing_tools(|program| program != "valgrind").expect("missing");
        assert_eq!(message, "counting instructions needs valgrind: apt-get install valgrind");
        let message = missing_tools(|program| program == "valgrind").expect("missing");
        assert!(message.ends_with("): apt-get install gcc"), "{message}");
    }

    #[test]
    fn only_counts_above_a_limit_are_in_excess() {
        let table = &TABLES[0];
        let mut counts: Vec<f64> = table.loops.iter().map(|each| each.limit).collect();
        assert!(excess(table, &counts).is_empty());
        counts[1] += 0.01;
        counts[3] = 41.0;
        let expected = [
            "pairL 16: 30.01 instructions per pair; at most 30",
            "pairL 8192: 41.00 instructions per pair; at most 38",
        ];
        assert_eq!(excess(table, &counts), expected);
    }

    #[test]
    fn the_allocator_is_all_but_program_c_library_and_dynamic_linker() {
        let program = Path::new("/t/loops");
        let objects =
            ["/t/loops", "/lib/libc.so.6", "/lib64/ld-linux-x86-64.so.2", "/p/libproxy.so", "/p/libtbb.so.2"];
        let inside = |library| objects.map(|object| belongs(library, program, object));
        assert_eq!(inside(Some(Path::new("/p/libproxy.so"))), [false, false, false, true, true]);
        assert_eq!(inside(None), [false, true, false, false, false]);
    }

    #[test]
    fn the_table_has_a_cell_for_every_loop() {
        for table in &TABLES {
            let head = head(table);
            let bars: Vec<usize> = head.lines().map(|line| line.matches('|').count()).collect();
            assert_eq!(bars, [table.loops.len() + 2; 2]);
        }
        assert_eq!(row("a", ["1".to_string(), "2".to_string()].into_iter()), "| a | 1 | 2 |");
    }

    /// The program, in a folder that goes with the first of both.
    fn compiled() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("loops");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/loops.c");
        compile(&source, &program).expect("compiled");
        (folder, program)
    }

    #[test]
    fn the_program_knows_every_loop() {
        let (_folder, program) = compiled();
        let code = |arguments: &[String]| {
            let limit = Duration::from_secs(60);
            let finished = process::run_at_most(limit, Command::new(&program).args(arguments));
            finished.expect("started").expect("ended").status.code()
        };
        for each in TABLES.iter().flat_map(|table| table.loops) {
            let mut arguments = vec![each.mode.to_string(), "1".to_string()];
            arguments.extend(each.sizes.iter().map(u64::to_string));
            assert_eq!(code(&arguments), Some(0), "{}", each.name);
            arguments.pop();
            assert_eq!(code(&arguments), Some(2), "{} without its last argument", each.name);
        }
        assert_eq!(code(&[]), Some(2));
    }

    #[test]
    fn the_program_has_a_clock_for_all_of_the_process() {
        let (_folder, program) = compiled();
        let content = fs::read(&program).expect("a program");
        let file = object::File::parse(&*content).expect("an ELF file");
        let defines =
            |name| file.dynamic_symbols().any(|symbol| symbol.name() == Ok(name) && symbol.is_definition());
        assert!(defines("clock_gettime") && !defines("malloc"));
    }

    #[test]
    fn a_library_that_is_no_elf_file_is_refused() {
        let error = refuse_caches_per_cpu(Path::new("/etc/passwd")).expect_err("text");
        assert_eq!(error.to_string(), "the library is no ELF file");
        refuse_caches_per_cpu(Path::new("/bin/true")).expect("no such symbol");
    }
}
