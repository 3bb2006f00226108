//! What `dpkg` wants to know of a package.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use object::read::elf::{ElfFile64, FileHeader as _};

use super::VERSION;

/// The libraries that programs of ours need, and the packages that have them.
const PACKAGES: [(&str, &str); 4] =
    [("libc.so.", "libc6"), ("libm.so.", "libc6"), ("ld-linux", "libc6"), ("libgcc_s.so.", "libgcc-s1")];

/// Debian's name of this machine's architecture.
///
/// # Errors
/// When it is another one than those for which Ample is made.
pub fn architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("Ample is not made for {other}"),
    }
}

/// Writes the folder `DEBIAN` of a package whose files lie below `root`, `programs` among them.
///
/// # Errors
/// When a file cannot be read or written, or a program needs a library of which no package is known.
pub fn describe(root: &Path, programs: &[PathBuf]) -> Result<()> {
    let mut needs = Needs::default();
    for program in programs {
        let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
        needs.add(&bytes).with_context(|| program.display().to_string())?;
    }
    let size = kilobytes(root)?;
    let folder = root.join("DEBIAN");
    fs::create_dir(&folder)?;
    fs::write(folder.join("control"), control(architecture()?, &needs, size))?;
    fs::write(folder.join("triggers"), "activate-noawait ldconfig\n")?;
    Ok(())
}

/// The fields that describe the package.
fn control(architecture: &str, needs: &Needs, kilobytes: u64) -> String {
    format!(
        "Package: ample\n\
         Version: {VERSION}\n\
         Architecture: {architecture}\n\
         Maintainer: the developers of Ample\n\
         Installed-Size: {kilobytes}\n\
         Depends: {}\n\
         Suggests: libjemalloc2, libgoogle-perftools4, libtbbmalloc2\n\
         Section: devel\n\
         Priority: optional\n\
         Description: memory management that is multi-core ready\n \
         libample.so is a malloc to preload or to link with, for programs of many\n \
         threads. The command ample compares allocators in time and memory, and tells\n \
         which of them suits a program best.\n",
        needs.packages()
    )
}

/// What programs need of others' packages.
#[derive(Debug, Default)]
struct Needs {
    packages: BTreeSet<&'static str>,
    /// The newest version of glibc whose symbols they use.
    glibc: (u32, u32),
}

impl Needs {
    /// Adds what an ELF file of 64 bits needs.
    fn add(&mut self, bytes: &[u8]) -> Result<()> {
        let elf = ElfFile64::<object::Endianness>::parse(bytes)?;
        let endian = elf.endian();
        let table = elf.elf_dynamic_table()?;
        for entry in &table {
            if entry.tag == object::elf::DT_NEEDED {
                let library = String::from_utf8_lossy(table.string(entry)?);
                let known = PACKAGES.iter().find(|(beginning, _)| library.starts_with(beginning));
                let (_, package) =
                    known.with_context(|| format!("no package is known that has {library}"))?;
                self.packages.insert(package);
            }
        }
        let sections = elf.elf_header().sections(endian, bytes)?;
        if let Some((mut libraries, strings)) = sections.gnu_verneed(endian, bytes)? {
            let strings = sections.strings(endian, bytes, strings)?;
            while let Some((_, mut versions)) = libraries.next()? {
                while let Some(version) = versions.next()? {
                    let name = String::from_utf8_lossy(version.name(endian, strings)?);
                    self.glibc = self.glibc.max(glibc_version(&name).unwrap_or_default());
                }
            }
        }
        Ok(())
    }

    /// As the field `Depends` has it.
    fn packages(&self) -> String {
        let (major, minor) = self.glibc;
        let with_version = |package: &&str| match *package {
            "libc6" => format!("libc6 (>= {major}.{minor})"),
            other => other.to_owned(),
        };
        self.packages.iter().map(with_version).collect::<Vec<_>>().join(", ")
    }
}

/// The version that glibc's name of a version of its symbols tells: `GLIBC_2.34`, `GLIBC_2.2.5`.
fn glibc_version(name: &str) -> Option<(u32, u32)> {
    let mut numbers = name.strip_prefix("GLIBC_")?.split('.').map_while(|number| number.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

/// How much the files below a folder have, each rounded up to kilobytes.
fn kilobytes(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        sum += if metadata.is_dir() { 1 + kilobytes(&entry.path())? } else { metadata.len().div_ceil(1024) };
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_needs_the_c_library_of_its_newest_symbol() {
        let mut needs = Needs::default();
        let own = std::env::current_exe().and_then(fs::read).expect("readable");
        needs.add(&own).expect("an ELF file");
        assert!(needs.packages.contains("libc6"), "{needs:?}");
        // Rust's standard library asks for no older one.
        assert!(needs.glibc >= (2, 17), "{needs:?}");
    }

    #[test]
    fn versions_are_ordered_as_numbers_and_others_are_none() {
        assert_eq!(glibc_version("GLIBC_2.2.5"), Some((2, 2)));
        assert!(glibc_version("GLIBC_2.34") > glibc_version("GLIBC_2.4"));
        assert_eq!(glibc_version("GLIBC_PRIVATE"), None);
        assert_eq!(glibc_version("GCC_3.0"), None);
    }

    #[test]
    fn what_is_no_program_is_an_error() {
        assert!(Needs::default().add(b"#!/bin/sh\n").is_err());
    }

    #[test]
    fn the_description_has_the_fields_that_dpkg_wants() {
        let needs = Needs { packages: ["libc6", "libgcc-s1"].into(), glibc: (2, 34) };
        let text = control("amd64", &needs, 17);
        assert!(
            text.contains("\nDepends: libc6 (>= 2.34), libgcc-s1\n")
                && text.contains("\nInstalled-Size: 17\n")
        );
        // A line of the long description begins with a space.
        let (fields, description) = text.split_once("Description: ").expect("a description");
        assert!(fields.lines().all(|line| line.contains(": ")), "{text}");
        assert!(description.lines().skip(1).all(|line| line.starts_with(' ')), "{text}");
    }

    #[test]
    fn sizes_are_rounded_up() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("below")).expect("made");
        fs::write(folder.path().join("one"), [0; 1]).expect("written");
        fs::write(folder.path().join("below/two"), [0; 1025]).expect("written");
        assert_eq!(kilobytes(folder.path()).expect("readable"), 1 + 1 + 2);
    }
}
