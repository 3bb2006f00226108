//! What a library file is: hash, build id, version, functions of the malloc family, and whether it is
//! what its name says.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use object::{Object as _, ObjectSymbol as _};
use sha2::{Digest as _, Sha256};

use crate::regular;

/// What the bytes of a library file tell.
pub struct Identity {
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
    /// GNU build id, in hexadecimal.
    pub build_id: Option<String>,
    /// Names of the functions that it defines for others.
    pub defines: BTreeSet<String>,
    /// What it calls itself, and why it is not that; none where nothing speaks against its names.
    pub false_name: Option<String>,
}

/// Beginnings of file names that belong to one allocator, and the functions of its own of which every
/// build defines at least one.
const SIGNATURES: &[(&str, &[&str])] = &[
    ("libjemalloc", &["mallctl", "je_mallctl", "_rjem_mallctl"]),
    ("libmimalloc", &["mi_version"]),
    ("libtcmalloc", &["tc_version", "MallocExtension_Internal_GetAllocatedSize"]),
    ("libtbbmalloc_proxy", &["__TBB_malloc_proxy"]),
    ("librpmalloc", &["rpmalloc"]),
];

/// The functions whose definition in a library is of interest.
const FAMILY: &[&str] =
    &["malloc", "free", "calloc", "realloc", "posix_memalign", "aligned_alloc", "malloc_usable_size"];

/// Reads the library. Fails for a file that is missing, unreadable or no ELF file.
pub fn identify(library: &Path) -> Result<Identity> {
    let bytes = regular::read(library).with_context(|| format!("cannot read {}", library.display()))?;
    let elf = object::File::parse(&*bytes)
        .with_context(|| format!("{} is not a shared library", library.display()))?;
    let defines: BTreeSet<String> = elf
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition())
        .filter_map(|symbol| symbol.name().ok())
        .map(str::to_owned)
        .collect();
    let target = resolve(library);
    let files = [library, &target].map(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let false_name =
        files.into_iter().chain([soname(&elf)]).flatten().find_map(|name| unmask(&name, &defines));
    Ok(Identity {
        sha256: hexadecimal(&Sha256::digest(&bytes)),
        build_id: elf.build_id().ok().flatten().map(hexadecimal),
        defines: defines.into_iter().filter(|name| FAMILY.contains(&name.as_str())).collect(),
        false_name,
    })
}

/// The name that the library gives itself for the dynamic linker.
fn soname(elf: &object::File<'_>) -> Option<String> {
    let object::File::Elf64(elf) = elf else { return None };
    let table = elf.elf_dynamic_table().ok()?;
    let entry = (&table).into_iter().find(|entry| entry.tag == object::elf::DT_SONAME)?;
    Some(String::from_utf8_lossy(table.string(entry).ok()?).into_owned())
}

/// Why a library of these functions is not what this name says; none where it may be.
fn unmask(name: &str, defines: &BTreeSet<String>) -> Option<String> {
    let (_, functions) = SIGNATURES.iter().find(|(beginning, _)| name.starts_with(beginning))?;
    let genuine = functions.iter().any(|function| defines.contains(*function));
    (!genuine).then(|| format!("it is called {name}, but defines no {}", functions.join(" or ")))
}

/// SHA-256 of a file, in hexadecimal.
pub fn file_sha256(path: &Path) -> Result<String> {
    let bytes = regular::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(hexadecimal(&Sha256::digest(&bytes)))
}

/// The commit of the checkout of this project that a library lies in, with `-dirty` where files were changed
/// since; none where it lies in no such checkout, or where there is no git.
pub fn commit(library: &Path) -> Option<String> {
    let library = resolve(library);
    let folder = library.parent()?;
    library.ancestors().find(|folder| folder.join("allocator/abi/Cargo.toml").exists())?;
    let arguments = ["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"];
    let output =
        Command::new("git").arg("-C").arg(folder).args(arguments).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| output.status.success() && !text.is_empty())
}

/// The canonical path; the path itself where it cannot be resolved.
pub fn resolve(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Version of the Debian package that owns the file, where dpkg knows it.
pub fn package_version(library: &Path) -> Option<String> {
    let resolved = resolve(library);
    // Where /lib is a link to /usr/lib, dpkg may know a file under either name.
    let stripped = resolved.strip_prefix("/usr").ok().map(|rest| Path::new("/").join(rest));
    let names = [Some(library.to_owned()), Some(resolved), stripped];
    let owner = names.into_iter().flatten().find_map(|name| {
        let answer = query(&["--search".as_ref(), name.as_os_str()])?;
        // "package:arch: /path", one line a package.
        answer.lines().next()?.rsplit_once(": ").map(|(package, _)| package.to_owned())
    })?;
    query(&["--showformat=${Version}".as_ref(), "--show".as_ref(), owner.as_ref()])
}

/// Version of the C library that this process runs on.
pub fn libc_version() -> Option<String> {
    // SAFETY: the function takes no argument and has no precondition.
    let version = unsafe { libc::gnu_get_libc_version() };
    if version.is_null() {
        return None;
    }
    // SAFETY: not null, and glibc documents a pointer to a static, NUL-terminated string.
    let version = unsafe { CStr::from_ptr(version) };
    version.to_str().ok().map(str::to_owned)
}

fn query(arguments: &[&std::ffi::OsStr]) -> Option<String> {
    let output = Command::new("dpkg-query").args(arguments).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.is_empty()).then_some(text)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_program_is_an_elf_file_without_malloc_of_its_own() {
        let identity = identify(Path::new("/bin/sh")).expect("readable");
        assert_eq!(identity.sha256.len(), 64);
        assert!(!identity.defines.contains("malloc"));
    }

    #[test]
    fn a_name_is_believed_only_with_the_functions_that_go_with_it() {
        let defines = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let lie = unmask("libjemalloc.so.2", &defines(&["malloc"]));
        assert_eq!(
            lie.as_deref(),
            Some("it is called libjemalloc.so.2, but defines no mallctl or je_mallctl or _rjem_mallctl")
        );
        assert_eq!(unmask("libjemalloc.so.2", &defines(&["mallctl"])), None);
        assert_eq!(unmask("libfoo.so", &defines(&[])), None);
    }

    #[test]
    fn other_files_are_refused_in_one_line() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), "not a library").expect("written");
        let error = identify(file.path()).err().expect("refused");
        assert!(error.to_string().contains("is not a shared library"), "{error}");
        let error = identify(Path::new("/nonexistent/lib.so")).err().expect("refused");
        assert!(error.to_string().starts_with("cannot read /nonexistent/lib.so"), "{error}");
    }

    #[test]
    fn bytes_become_two_digits_each() {
        assert_eq!(hexadecimal(&[0, 10, 255]), "000aff");
    }
}
