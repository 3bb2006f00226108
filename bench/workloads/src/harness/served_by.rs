//! Which library serves the malloc family in this very process.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr};
use std::fmt::Write;
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ample_protocol::ServedBy;
use object::read::{Object, ReadCache};

/// The functions asked for.
const SYMBOLS: [&CStr; 7] =
    [c"malloc", c"free", c"calloc", c"realloc", c"posix_memalign", c"aligned_alloc", c"malloc_usable_size"];

/// For each function of the family, the library that the dynamic linker binds it to: what every
/// object of the process gets that does not bring its own. A function that nobody defines is left out.
pub fn served_by() -> Vec<ServedBy> {
    let mut build_ids = BTreeMap::new();
    let entry = |symbol: &CStr| {
        let path = defining_file(symbol)?;
        let path = fs::canonicalize(&path).unwrap_or(path);
        let build_id = build_ids.entry(path.clone()).or_insert_with(|| build_id(&path)).clone();
        let symbol = symbol.to_string_lossy().into_owned();
        Some(ServedBy { symbol, path: path.to_string_lossy().into_owned(), build_id })
    };
    SYMBOLS.into_iter().filter_map(entry).collect()
}

fn defining_file(symbol: &CStr) -> Option<PathBuf> {
    // SAFETY: the name is a C string.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()) };
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: dladdr takes any address, and writes to the memory of a Dl_info.
    if address.is_null() || unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: dladdr succeeded, so the info is filled.
    let name = unsafe { info.assume_init() }.dli_fname;
    // SAFETY: the name is a C string that lives as long as its library, which nobody unloads.
    let name = unsafe { CStr::from_ptr(name) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

fn build_id(path: &Path) -> Option<String> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let mut hexadecimal = String::new();
    for byte in file.build_id().ok()?? {
        write!(hexadecimal, "{byte:02x}").ok()?;
    }
    Some(hexadecimal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_is_served_by_an_existing_library() {
        let served = served_by();
        assert_eq!(served.len(), SYMBOLS.len());
        for entry in served {
            assert!(Path::new(&entry.path).is_file(), "{entry:?}");
        }
    }
}
