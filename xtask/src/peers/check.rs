//! What a peer's shared object must be able to do before it is offered to the tool.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use object::{Object, ObjectSymbol};

use crate::process;

/// The functions without which part of a program would stay on another allocator.
const REQUIRED: [&str; 6] = ["malloc", "free", "calloc", "realloc", "posix_memalign", "aligned_alloc"];

/// How long the smallest program may take under a peer before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(20);

/// The library defines every function of [`REQUIRED`] for the dynamic linker.
///
/// # Errors
/// When it does not, or is no ELF file.
pub fn exports_malloc(library: &Path) -> Result<()> {
    let content = std::fs::read(library).with_context(|| format!("cannot read {}", library.display()))?;
    let file = object::File::parse(&*content).context("the library is no ELF file")?;
    let defined: BTreeSet<&str> = file
        .dynamic_symbols()
        .filter(|symbol| !symbol.is_undefined())
        .filter_map(|symbol| symbol.name().ok())
        .collect();
    let missing: Vec<&str> = REQUIRED.into_iter().filter(|name| !defined.contains(name)).collect();
    if !missing.is_empty() {
        bail!("the library does not export {}", missing.join(", "));
    }
    Ok(())
}

/// The smallest program runs with the library preloaded, in the environment `env`.
///
/// # Errors
/// When the dynamic linker refuses the library (which it only says on standard error, then goes on without),
/// and when the program fails or hangs.
pub fn can_be_preloaded(library: &Path, env: &BTreeMap<String, String>) -> Result<()> {
    let mut command = Command::new("/bin/true");
    command.env("LD_PRELOAD", library).envs(env);
    let finished = process::run_at_most(PATIENCE, &mut command).context("cannot run /bin/true")?;
    let Some(finished) = finished else { bail!("/bin/true hangs with the library preloaded") };
    match finished.stderr.lines().next() {
        Some(line) => bail!("/bin/true with the library preloaded says: {line}"),
        None if !finished.status.success() => {
            bail!("/bin/true with the library preloaded ends with {}", finished.status)
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The C library as this very test has it mapped.
    fn libc() -> String {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
        let path = maps
            .lines()
            .filter_map(|line| line.split_whitespace().nth(5))
            .find(|path| path.contains("/libc."));
        path.expect("a C library").to_string()
    }

    #[test]
    fn the_c_library_exports_malloc_and_can_be_preloaded() {
        let libc = libc();
        exports_malloc(Path::new(&libc)).expect("exports");
        can_be_preloaded(Path::new(&libc), &BTreeMap::new()).expect("preloads");
    }

    #[test]
    fn a_program_exports_no_malloc_and_cannot_be_preloaded() {
        let program = Path::new("/bin/true");
        let error = exports_malloc(program).expect_err("no malloc").to_string();
        assert_eq!(
            error,
            "the library does not export malloc, free, calloc, realloc, posix_memalign, aligned_alloc"
        );
        let error = can_be_preloaded(program, &BTreeMap::new()).expect_err("no library").to_string();
        assert!(error.contains("cannot be preloaded"), "{error}");
    }

    #[test]
    fn a_file_that_is_no_library_is_refused() {
        let error = exports_malloc(Path::new("/etc/passwd"));
        assert_eq!(error.expect_err("text").to_string(), "the library is no ELF file");
    }
}
