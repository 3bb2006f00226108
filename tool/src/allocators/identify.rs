//! What a library file is: hash, build id, version, functions of the malloc family.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use object::{Object as _, ObjectSymbol as _};
use sha2::{Digest as _, Sha256};

/// What the bytes of a library file tell.
pub struct Identity {
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
    /// GNU build id, in hexadecimal.
    pub build_id: Option<String>,
    /// Names of the functions that it defines for others.
    pub defines: BTreeSet<String>,
}

/// The functions whose definition in a library is of interest.
const FAMILY: &[&str] =
    &["malloc", "free", "calloc", "realloc", "posix_memalign", "aligned_alloc", "malloc_usable_size"];

/// Reads the library. Fails for a file that is missing, unreadable or no ELF file.
pub fn identify(library: &Path) -> Result<Identity> {
    let bytes = fs::read(library).with_context(|| format!("cannot read {}", library.display()))?;
    let elf = object::File::parse(&*bytes)
        .with_context(|| format!("{} is not a shared library", library.display()))?;
    let defines = elf
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition())
        .filter_map(|symbol| symbol.name().ok())
        .filter(|name| FAMILY.contains(name))
        .map(str::to_owned)
        .collect();
    let build_id = elf.build_id().ok().flatten().map(hexadecimal);
    Ok(Identity { sha256: hexadecimal(&Sha256::digest(&bytes)), build_id, defines })
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

    #[test]
    fn a_program_is_an_elf_file_without_malloc_of_its_own() {
        let identity = identify(Path::new("/bin/sh")).expect("readable");
        assert_eq!(identity.sha256.len(), 64);
        assert!(!identity.defines.contains("malloc"));
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
