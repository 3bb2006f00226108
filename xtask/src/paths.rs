//! `xtask paths`: what the fast paths of malloc and free are made of, from the disassembly of `libample.so`.
//!
//! A path is an exported function's code from its first instruction to its first return: what runs while magazines
//! have blocks and room. Counts are recorded in `xtask/golden/fast-paths-ARCHITECTURE.txt`: a test holds x86-64's against them, and
//! `xtask aarch64` those of aarch64: a change of the code that makes them grow must say so.

mod aarch64;
mod x86_64;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use object::{Architecture, Object, ObjectSection, ObjectSymbol};

use crate::cargo;

/// The functions: exported names.
const FUNCTIONS: [&str; 2] = ["malloc", "free"];

/// Most instructions of a path; one that is longer has no return where it should.
const LONGEST: usize = 64;

/// What one path is made of.
#[derive(Debug, Default, PartialEq, Eq)]
struct Made {
    instructions: usize,
    branches: usize,
    loads: usize,
    stores: usize,
    calls: usize,
    locked: usize,
}

impl Made {
    fn line(&self, name: &str) -> String {
        let Self { instructions, branches, loads, stores, calls, locked } = self;
        format!(
            "{name}: {instructions} instructions: {branches} branches, {loads} loads, {stores} stores, {calls} calls, \
             {locked} locked\n"
        )
    }
}

impl Made {
    /// Counts instructions up to the first return; `step` counts what one is made of, and tells what follows it.
    fn until_return(&mut self, mut step: impl FnMut(&mut Self) -> Result<Next>) -> Result<()> {
        while self.instructions < LONGEST {
            self.instructions += 1;
            match step(self)? {
                Next::Continues => {}
                Next::Jumps => bail!("the fast path jumps"),
                Next::Returns => return Ok(()),
            }
        }
        bail!("no return within {LONGEST} instructions")
    }
}

/// What follows an instruction.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// The next one, or where a conditional branch leads.
    Continues,
    /// An unconditional branch.
    Jumps,
    /// The caller.
    Returns,
}

/// `xtask paths`: prints them; with `--record`, into the golden file.
///
/// # Errors
/// When the library does not build, or has no such paths.
pub fn run(arguments: &[OsString]) -> Result<ExitCode> {
    let record = match arguments {
        [] => false,
        [only] if only == "--record" => true,
        _ => bail!("usage: cargo xtask paths [--record]"),
    };
    let library = built()?;
    print!("{}", describe(&library)?.text);
    if record { self::record(&library) } else { Ok(ExitCode::SUCCESS) }
}

/// Compares the paths of a library with the golden file of its architecture.
///
/// # Errors
/// When they differ, or the library has none.
pub fn check(library: &Path) -> Result<()> {
    let Paths { text, golden } = describe(library)?;
    let recorded =
        fs::read_to_string(&golden).with_context(|| format!("cannot read {}", golden.display()))?;
    ensure!(
        text == recorded,
        "the fast paths are not as recorded in {}; if this is meant: the command with --record\n{text}",
        golden.display()
    );
    Ok(())
}

/// Writes the golden file anew that a library of this architecture is held against.
///
/// # Errors
/// When the library has no such paths, or the file cannot be written.
pub fn record(library: &Path) -> Result<ExitCode> {
    let Paths { text, golden } = describe(library)?;
    fs::write(&golden, &text).with_context(|| format!("cannot write {}", golden.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// The library as it is built now.
fn built() -> Result<PathBuf> {
    let workspace = cargo::workspace()?;
    ensure!(cargo::build(&workspace, "release", &["ample-abi"])?, "the allocator does not build");
    Ok(workspace.target_directory.join("release/libample.so"))
}

fn read(library: &Path) -> Result<Vec<u8>> {
    fs::read(library).with_context(|| format!("cannot read {}", library.display()))
}

/// Counts the instructions of code, which lies at an address, up to the first return.
type Counter = fn(&[u8], u64, &mut Made) -> Result<()>;

/// The fast paths of a library.
struct Paths {
    /// One line for each.
    text: String,
    /// The file that they are held against.
    golden: PathBuf,
}

fn describe(library: &Path) -> Result<Paths> {
    let data = read(library)?;
    let file = object::File::parse(&*data).context("not an object file")?;
    let (name, count): (_, Counter) = match file.architecture() {
        Architecture::X86_64 => ("x86_64", x86_64::count),
        Architecture::Aarch64 => ("aarch64", aarch64::count),
        other => bail!("nothing is known of the code of {other:?}"),
    };
    let mut text = String::new();
    for function in FUNCTIONS {
        let (code, start) = code_of(&file, function)?;
        let mut made = Made::default();
        count(code, start, &mut made).with_context(|| format!("{function} at {start:#x}"))?;
        text += &made.line(function);
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    Ok(Paths { text, golden: folder.join(format!("fast-paths-{name}.txt")) })
}

/// The code from an exported function on, and its address.
fn code_of<'a>(file: &object::File<'a>, name: &str) -> Result<(&'a [u8], u64)> {
    let symbol = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(name));
    let start = symbol.with_context(|| format!("the library does not export {name}"))?.address();
    let text = file.section_by_name(".text").context("no code")?;
    let code = text.data()?.get((start - text.address()) as usize..).context("the function is no code")?;
    Ok((code, start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_fast_paths_are_as_recorded() {
        check(&built().expect("the library")).expect("cargo xtask paths --record writes the file anew");
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_library_takes_little_of_a_small_process() {
        // What lies in the file is mapped in pieces of 64 KiB around whatever is touched: nearly all of it is resident in every process.
        let data = read(&built().expect("the library")).expect("readable");
        let file = object::File::parse(&*data).expect("an object file");
        let kib = |name| file.section_by_name(name).expect(name).size() >> 10;
        assert!(kib(".text") < 84, "code: {} KiB; Cargo.toml says why it is built for size", kib(".text"));
        assert!(kib(".data") < 16, "data: {} KiB; what is all zeros belongs into .bss", kib(".data"));
        // 24 bytes each, beside the page that the loader writes to.
        let bytes = file.section_by_name(".rela.dyn").expect("relocations").size();
        assert!(
            bytes < 6 << 10,
            "relocations: {bytes} bytes; a second copy of an empty heap takes 3 KiB of them"
        );
    }

    #[test]
    fn the_functions_that_are_called_most_begin_cache_lines() {
        let data = read(&built().expect("the library")).expect("readable");
        let file = object::File::parse(&*data).expect("an object file");
        for name in ["malloc", "free", "calloc", "realloc", "_Znwm", "_ZdlPv"] {
            let (_, start) = code_of(&file, name).expect("exported");
            assert!(start.is_multiple_of(64), "{name} begins at {start:x}");
        }
        // A jump of 6 bytes (12 on aarch64) on their way to one of these.
        for name in ["_Znam", "_ZdaPv", "_ZdlPvm"] {
            let (_, start) = code_of(&file, name).expect("exported");
            assert!(start % 64 <= 64 - 12, "{name} at {start:x} lies in two cache lines");
        }
    }

    #[test]
    fn profilers_show_the_family_by_its_own_names() {
        // Of several names of one address they take one without leading underscores, and the longest of those.
        let data = read(&built().expect("the library")).expect("readable");
        let file = object::File::parse(&*data).expect("an object file");
        let exported: Vec<(u64, &str)> = file
            .dynamic_symbols()
            .filter(|symbol| symbol.is_definition())
            .filter_map(|symbol| Some((symbol.address(), symbol.name().ok()?)))
            .collect();
        for name in ["malloc", "free", "calloc", "realloc", "posix_memalign"] {
            let (address, _) = exported.iter().find(|symbol| symbol.1 == name).expect(name);
            let shown = exported.iter().filter(|symbol| symbol.0 == *address && !symbol.1.starts_with('_'));
            assert_eq!(shown.map(|symbol| symbol.1).collect::<Vec<_>>(), [name]);
        }
    }
}
