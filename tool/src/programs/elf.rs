//! What the ELF file of a program tells of its memory.

use std::collections::BTreeSet;
use std::path::Path;

use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::{ElfFile, ProgramHeader as _};
use object::{Architecture, Endianness, Object as _, ObjectSection as _, ObjectSymbol as _};

type Elf<'a> = ElfFile<'a, FileHeader64<Endianness>>;

/// An allocator that programs carry inside.
struct Bundled {
    name: &'static str,
    /// Functions that only it defines.
    functions: &'static [&'static str],
    /// Its crate, as it stands in the names of all that Rust compiles of it; empty where it is in another language.
    crate_name: &'static str,
    /// A text that is in the file even where the names are stripped; empty where there is none.
    text: &'static [u8],
}

/// Those that are known; of several that are found the first one counts.
const BUNDLED: &[Bundled] = &[
    Bundled {
        name: "jemalloc",
        functions: &["_rjem_malloc", "_rjem_mallocx", "je_malloc", "mallctl"],
        crate_name: "",
        text: b"<jemalloc>: ",
    },
    Bundled {
        name: "mimalloc",
        functions: &["mi_malloc", "mi_free", "_mi_malloc_generic"],
        crate_name: "",
        text: b"mimalloc: warning: ",
    },
    Bundled {
        name: "tcmalloc",
        functions: &["tc_malloc", "TCMallocInternalMalloc"],
        crate_name: "",
        text: b"TCMALLOC_",
    },
    Bundled { name: "snmalloc", functions: &["sn_rust_alloc", "sn_malloc"], crate_name: "", text: b"" },
    Bundled { name: "rpmalloc", functions: &["rpmalloc"], crate_name: "", text: b"" },
    Bundled {
        name: "Ample",
        functions: &["ample_malloc_shared"],
        crate_name: "10ample_core",
        text: b"ample: free of a pointer that malloc did not return\n",
    },
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
    let is_part = |part: &str| !part.is_empty() && inside.iter().any(|name| name.contains(part));
    let constants =
        elf.section_by_name(".rodata").and_then(|section| section.data().ok()).unwrap_or_default();
    let says = |text: &[u8]| !text.is_empty() && constants.windows(text.len()).any(|window| window == text);
    let is_there =
        |bundled: &&Bundled| has(bundled.functions) || is_part(bundled.crate_name) || says(bundled.text);
    BUNDLED.iter().find(is_there).map(|bundled| bundled.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

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
    fn an_allocator_inside_is_known_by_a_function_a_crate_or_a_text() {
        let folder = tempfile::tempdir().expect("a folder");
        let bundled = |source: &str| {
            let (code, object) = (folder.path().join("code.c"), folder.path().join("code.o"));
            fs::write(&code, source).expect("written");
            let compiled = Command::new("cc").arg("-c").arg("-o").arg(&object).arg(&code).status();
            assert!(compiled.expect("a C compiler").success());
            facts(&object.display().to_string()).bundled
        };
        assert_eq!(bundled("void mi_malloc(void) {}"), Some("mimalloc"));
        assert_eq!(
            bundled("void _ZN10ample_core4heap4Heap4free17h0123456789abcdefE(void) {}"),
            Some("Ample")
        );
        assert_eq!(
            bundled("void _RNvNtCs1_10ample_core4heap4free(void) {}"),
            Some("Ample"),
            "Rust's new names"
        );
        let text = r#"const char said[] = "ample: free of a pointer that malloc did not return\n";"#;
        assert_eq!(bundled(text), Some("Ample"));
        assert_eq!(bundled("void malloc_of_mine(void) {}"), None);
    }

    #[test]
    fn what_is_no_elf_file_has_no_facts() {
        assert_eq!(Facts::read(b"#!/bin/sh\n"), None);
        assert_eq!(system_of(Path::new("/nonexistent")), None);
    }
}
