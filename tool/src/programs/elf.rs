//! What the ELF file of a program tells of its memory.

use std::collections::BTreeSet;
use std::path::Path;

use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::{ElfFile, ProgramHeader as _};
use object::{Architecture, Endianness, Object as _, ObjectSection as _, ObjectSymbol as _};

type Elf<'a> = ElfFile<'a, FileHeader64<Endianness>>;

/// Allocators that programs carry inside: name; functions that only they define; a text that is in the file
/// even where the names are stripped (empty where there is none).
const BUNDLED: &[(&str, &[&str], &[u8])] = &[
    ("jemalloc", &["_rjem_malloc", "_rjem_mallocx", "je_malloc", "mallctl"], b"<jemalloc>: "),
    ("mimalloc", &["mi_malloc", "mi_free", "_mi_malloc_generic"], b"mimalloc: warning: "),
    ("tcmalloc", &["tc_malloc", "TCMallocInternalMalloc"], b"TCMALLOC_"),
    ("snmalloc", &["sn_rust_alloc", "sn_malloc"], b""),
    ("rpmalloc", &["rpmalloc"], b""),
];

/// Functions of an allocator's own that give out or take back blocks: a program that calls them besides malloc
/// may hand a block of one allocator to another.
const FOREIGN_CALLS: &[&str] = &[
    "mallocx",
    "rallocx",
    "xallocx",
    "dallocx",
    "sdallocx",
    "je_malloc",
    "je_free",
    "mi_malloc",
    "mi_free",
    "tc_malloc",
    "tc_free",
    "rpmalloc",
    "rpfree",
];

/// What one ELF file tells.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// For which processor it is.
    pub architecture: Option<Architecture>,
    /// The dynamic linker that it asks for; none for a static program.
    pub interpreter: Option<String>,
    /// The libraries that it asks for.
    pub needed: Vec<String>,
    /// Whether it offers a `malloc` of its own to all libraries, which comes before a preloaded one.
    pub own_malloc: bool,
    /// An allocator inside under names of its own, which nothing can displace.
    pub bundled: Option<&'static str>,
    /// A function of some allocator's own interface that it calls.
    pub foreign_call: Option<&'static str>,
    /// Whether Go's toolchain made it.
    pub go: bool,
    /// Whether it is CPython, and not a program that loads it as a library.
    pub python: bool,
}

impl Facts {
    /// Reads an ELF file; none for another file.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let file = object::File::parse(bytes).ok()?;
        let object::File::Elf64(elf) = &file else {
            return Some(Self { architecture: Some(file.architecture()), ..Self::default() });
        };
        let exported = names(elf.dynamic_symbols().filter(|symbol| symbol.is_definition()));
        let wanted = names(elf.dynamic_symbols().filter(|symbol| symbol.is_undefined()));
        let inside = names(elf.symbols().filter(|symbol| symbol.is_definition()));
        let interpreter = elf.elf_program_headers().iter().find_map(|header| {
            let path = header.interpreter(elf.endian(), bytes).ok()??;
            Some(String::from_utf8_lossy(path).into_owned())
        });
        Some(Self {
            architecture: Some(elf.architecture()),
            interpreter,
            needed: needed(elf),
            own_malloc: exported.contains("malloc"),
            bundled: bundled(elf, &exported, &inside),
            foreign_call: FOREIGN_CALLS.iter().copied().find(|name| wanted.contains(name)),
            go: elf.section_by_name(".go.buildinfo").is_some(),
            python: exported.contains("PyObject_Malloc"),
        })
    }
}

/// What a library is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct System {
    /// The processor.
    pub architecture: Architecture,
    /// Whether the C library is musl; else it is glibc, or none is asked for.
    pub musl: bool,
}

/// The system that a library is for; none where it cannot be read.
pub fn system_of(library: &Path) -> Option<System> {
    let Facts { architecture, needed, .. } = Facts::read(&crate::regular::read(library).ok()?)?;
    // Alpine's name for it holds the processor's: libc.musl-x86_64.so.1.
    let musl = needed.iter().any(|name| name == "libc.so" || name.starts_with("libc.musl-"));
    Some(System { architecture: architecture?, musl })
}

fn names<'a, S: object::ObjectSymbol<'a>>(symbols: impl Iterator<Item = S>) -> BTreeSet<&'a str> {
    symbols.filter_map(|symbol| symbol.name().ok()).collect()
}

fn needed(elf: &Elf<'_>) -> Vec<String> {
    let Ok(table) = elf.elf_dynamic_table() else { return Vec::new() };
    let wanted = (&table).into_iter().filter(|entry| entry.tag == DT_NEEDED);
    let names = wanted.filter_map(|entry| table.string(entry).ok());
    names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

fn bundled(elf: &Elf<'_>, exported: &BTreeSet<&str>, inside: &BTreeSet<&str>) -> Option<&'static str> {
    let has = |names: &[&str]| names.iter().any(|name| exported.contains(name) || inside.contains(name));
    let constants =
        elf.section_by_name(".rodata").and_then(|section| section.data().ok()).unwrap_or_default();
    let says = |text: &[u8]| !text.is_empty() && constants.windows(text.len()).any(|window| window == text);
    let found = BUNDLED.iter().find(|(_, names, text)| has(names) || says(text))?;
    Some(found.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn facts(path: &str) -> Facts {
        Facts::read(&fs::read(path).expect("a file")).expect("an ELF file")
    }

    #[test]
    fn a_plain_program_asks_for_the_dynamic_linker_and_has_no_allocator_inside() {
        let shell = facts("/bin/sh");
        assert!(shell.interpreter.is_some_and(|path| path.contains("ld-linux")));
        assert!(shell.needed.iter().any(|name| name == "libc.so.6"));
        assert!(!shell.own_malloc && !shell.go && !shell.python);
        assert_eq!((shell.bundled, shell.foreign_call), (None, None));
        assert_eq!(
            system_of(Path::new("/bin/sh")),
            Some(System { architecture: shell.architecture.expect("known"), musl: false })
        );
    }

    #[test]
    fn what_is_no_elf_file_has_no_facts() {
        assert_eq!(Facts::read(b"#!/bin/sh\n"), None);
        assert_eq!(system_of(Path::new("/nonexistent")), None);
    }
}
