//! Who serves malloc in a process that runs, and where its code is.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use object::elf::FileHeader64;
use object::read::elf::ElfFile;
use object::{Endianness, Object as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind};
use procfs::process::{MMPermissions, MMapPath, MemoryMap, Process};

use crate::regular;

type Elf<'a> = ElfFile<'a, FileHeader64<Endianness>>;

/// Functions of glibc's malloc, whose code lies together: what is between them is theirs, too. The last ones are known in programs that have it inside.
const FAMILY: &[&str] = &[
    "malloc",
    "free",
    "calloc",
    "realloc",
    "memalign",
    "malloc_trim",
    "mallopt",
    "malloc_info",
    "_int_malloc",
    "_int_free",
    "malloc_consolidate",
    "sysmalloc",
    "arena_get2",
];
/// No malloc has more code than so many bytes in one C library.
const MOST_CODE: u64 = 64 << 10;

/// Who serves malloc.
#[derive(Debug, Default)]
pub(super) struct Server {
    /// Its file; none where no file is known that has a malloc.
    pub file: Option<PathBuf>,
    /// Whether it is glibc.
    pub is_glibc: bool,
    /// Where its code is; nothing where that is not known.
    pub code: Vec<Range<u64>>,
    /// What it can write to, of its own data.
    pub data: Vec<Range<u64>>,
}

impl Server {
    /// Who serves this process, which has these mappings.
    ///
    /// As the dynamic linker chooses: the program itself, then what is preloaded, then its libraries; of several of these the one that was loaded first, which is the
    /// one with the highest addresses.
    pub fn of(process: &Process, maps: &[MemoryMap]) -> Self {
        let program = process.exe().ok();
        let preloaded = process.environ().ok().and_then(|mut all| all.remove(OsStr::new("LD_PRELOAD")));
        let preloaded = names(preloaded.as_deref().unwrap_or_default());
        let mut found = Vec::new();
        for file in files(maps).into_iter().rev() {
            let name = file.path.file_name().unwrap_or_default().as_bytes();
            let is_program = program.as_ref() == Some(&file.path);
            let is_c_library = is_c_library(name);
            // Older dynamic linkers have a malloc for themselves.
            if !is_program && !is_c_library && name.starts_with(b"ld-") {
                continue;
            }
            let Some(bytes) = read(process, &file, is_program) else { continue };
            let Ok(elf) = Elf::parse(&*bytes) else { continue };
            let Some(functions) = functions(&elf, is_program) else { continue };
            let rank = if is_program {
                0
            } else if preloaded.contains(name) {
                1
            } else {
                2 + u8::from(is_c_library)
            };
            let is_glibc = (is_program || is_c_library) && is_glibc(&elf, &bytes);
            let code = if is_glibc {
                file.of(&offsets(&elf, &functions))
            } else if is_program || is_c_library {
                // The other code of a program, or of musl, is not told from its malloc's.
                Vec::new()
            } else {
                file.code.iter().map(|(range, _)| range.clone()).collect()
            };
            found.push((rank, Self { file: Some(file.path), is_glibc, code, data: file.data }));
        }
        // Of several the first one.
        found.into_iter().min_by_key(|(rank, _)| *rank).map_or_else(Self::default, |found| found.1)
    }

    /// Whether what runs there is malloc's.
    pub fn has(&self, address: u64) -> bool {
        self.code.iter().any(|range| range.contains(&address))
    }

    /// What it is called: glibc, or the name of its file.
    pub fn name(&self) -> Option<String> {
        let name = self.file.as_ref()?.file_name()?.to_string_lossy().into_owned();
        Some(if self.is_glibc { "glibc".into() } else { name })
    }
}

/// A file whose code is in the process.
#[derive(Debug)]
struct Mapped {
    path: PathBuf,
    /// Whether it was replaced or removed since.
    deleted: bool,
    /// Its code, with where in the file each part begins.
    code: Vec<(Range<u64>, u64)>,
    data: Vec<Range<u64>>,
}

impl Mapped {
    /// Where this part of the file is in memory.
    fn of(&self, offsets: &Range<u64>) -> Vec<Range<u64>> {
        let part = |(range, begin): &(Range<u64>, u64)| {
            let [from, to] = [offsets.start, offsets.end]
                .map(|offset| range.start + offset.saturating_sub(*begin).min(range.end - range.start));
            from..to
        };
        self.code.iter().map(part).filter(|range| !range.is_empty()).collect()
    }
}

/// What programs and libraries in the process can write to, of their own data.
pub(super) fn data(maps: &[MemoryMap]) -> Vec<Range<u64>> {
    files(maps).into_iter().flat_map(|file| file.data).collect()
}

/// The files whose code is mapped, in the order of their addresses.
fn files(maps: &[MemoryMap]) -> Vec<Mapped> {
    let mut files: BTreeMap<&Path, Mapped> = BTreeMap::new();
    for map in maps {
        let MMapPath::Path(path) = &map.pathname else { continue };
        let range = map.address.0..map.address.1;
        let file = files.entry(path).or_insert_with(|| {
            let name = path.as_os_str().as_bytes();
            let stripped = name.strip_suffix(b" (deleted)");
            Mapped {
                path: PathBuf::from(OsStr::from_bytes(stripped.unwrap_or(name))),
                deleted: stripped.is_some(),
                code: Vec::new(),
                data: Vec::new(),
            }
        });
        if map.perms.contains(MMPermissions::EXECUTE) {
            file.code.push((range.clone(), map.offset));
        }
        if map.perms.contains(MMPermissions::WRITE) {
            file.data.push(range);
        }
    }
    let mut files: Vec<Mapped> = files.into_values().filter(|file| !file.code.is_empty()).collect();
    files.sort_by_key(|file| file.code[0].0.start);
    files
}

/// The bytes of a file, as the process has it: it may have been replaced since, or lie in a container.
fn read(process: &Process, file: &Mapped, is_program: bool) -> Option<Vec<u8>> {
    let folder = PathBuf::from(format!("/proc/{}", process.pid()));
    if is_program {
        return regular::read(&folder.join("exe")).ok();
    }
    let (range, _) = file.code.first()?;
    let mapped = folder.join(format!("map_files/{:x}-{:x}", range.start, range.end));
    let outside = || {
        let inside = file.path.strip_prefix("/").ok().filter(|_| !file.deleted)?;
        regular::read(&folder.join("root").join(inside)).ok()
    };
    regular::read(&mapped).ok().or_else(outside)
}

/// The names of the files in a list of what is preloaded.
fn names(preloaded: &OsStr) -> BTreeSet<&[u8]> {
    let words = preloaded.as_bytes().split(|byte| matches!(byte, b' ' | b':'));
    words.filter_map(|word| Some(Path::new(OsStr::from_bytes(word)).file_name()?.as_bytes())).collect()
}

/// Where the functions of a file begin and end that others can call, or all of a program's; none where malloc is not among them.
fn functions<'a>(elf: &Elf<'a>, is_program: bool) -> Option<BTreeMap<u64, (u64, BTreeSet<&'a str>)>> {
    let mut functions: BTreeMap<u64, (u64, BTreeSet<&str>)> = BTreeMap::new();
    let all = elf.dynamic_symbols().chain(elf.symbols().filter(|_| is_program));
    for symbol in all.filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition()) {
        let function = functions.entry(symbol.address()).or_default();
        function.0 = function.0.max(symbol.address() + symbol.size());
        function.1.extend(symbol.name());
    }
    functions.values().any(|function| function.1.contains("malloc")).then_some(functions)
}

/// glibc's, by its old and new names, or musl's, which is its dynamic linker as well.
fn is_c_library(name: &[u8]) -> bool {
    [&b"libc.so"[..], b"libc-", b"ld-musl"].iter().any(|begin| name.starts_with(begin))
}

fn is_glibc(elf: &Elf<'_>, bytes: &[u8]) -> bool {
    const SAID: &[u8] = b"malloc_consolidate(): ";
    let exports = elf.dynamic_symbols().filter(|symbol| symbol.is_definition());
    let mut names = exports.filter_map(|symbol| symbol.name().ok());
    names.any(|name| name == "gnu_get_libc_version") || bytes.windows(SAID.len()).any(|part| part == SAID)
}

/// Where in the file glibc's malloc is: from the last function that is not of the family to the end of the family's last one.
fn offsets(elf: &Elf<'_>, functions: &BTreeMap<u64, (u64, BTreeSet<&str>)>) -> Range<u64> {
    let of_family = functions.iter().filter(|(_, (_, names))| FAMILY.iter().any(|name| names.contains(name)));
    let (mut from, mut to) = (u64::MAX, 0);
    for (begin, (end, _)) in of_family {
        (from, to) = (from.min(*begin), to.max(*end));
    }
    let before = functions.range(..from).map(|(_, (end, _))| *end).max().unwrap_or(from);
    from = before.min(from).max(to.saturating_sub(MOST_CODE));
    let segment = elf
        .segments()
        .find(|segment| (segment.address()..segment.address() + segment.size()).contains(&from));
    let Some(segment) = segment else { return 0..0 };
    let offset = |address: u64| address - segment.address() + segment.file_range().0;
    offset(from)..offset(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_glibc_s_malloc_and_its_code_is_a_small_part_of_the_library() {
        let process = Process::myself().expect("this process");
        let maps = process.smaps().expect("readable").0;
        let server = Server::of(&process, &maps);
        assert_eq!(server.name().as_deref(), Some("glibc"), "{server:?}");
        for function in [libc::malloc as *const (), libc::free as *const (), libc::calloc as *const ()] {
            assert!(server.has(function as u64), "{server:?}");
        }
        for function in [libc::printf as *const (), libc::memcpy as *const (), libc::mmap as *const ()] {
            assert!(!server.has(function as u64), "{server:?}");
        }
        let length: u64 = server.code.iter().map(|range| range.end - range.start).sum();
        assert!((8 << 10..=MOST_CODE).contains(&length), "{length}");
        assert!(!server.data.is_empty());
    }

    #[test]
    fn what_is_preloaded_is_known_by_the_names_of_its_files() {
        let names = names(OsStr::new("/a/libx.so:/b/liby.so libz.so"));
        assert_eq!(names, BTreeSet::from([&b"libx.so"[..], b"liby.so", b"libz.so"]));
    }

    #[test]
    fn the_c_library_is_told_from_the_dynamic_linker() {
        for (name, is_it) in [
            ("libc.so.6", true),
            ("libc-2.31.so", true),
            ("ld-musl-x86_64.so.1", true),
            ("ld-2.31.so", false),
            ("libcap.so.2", false),
        ] {
            assert_eq!(is_c_library(name.as_bytes()), is_it, "{name}");
        }
    }

    #[test]
    fn a_part_of_a_file_is_where_its_code_is_mapped() {
        let file = Mapped {
            path: PathBuf::new(),
            deleted: false,
            code: vec![(0x5000..0x8000, 0x1000), (0x9000..0xa000, 0x9000)],
            data: Vec::new(),
        };
        assert_eq!(file.of(&(0x3f00..0x9100)), [0x7f00..0x8000, 0x9000..0x9100]);
        assert!(file.of(&(0x4000..0x9000)).is_empty());
    }
}
