//! Ample's own functions, declared in `include/ample.h`.

use core::ffi::{CStr, c_char, c_int, c_void};

use crate::c::or_enomem;
use crate::text::Text;

/// The version of this library: `MAJOR.MINOR.PATCH`.
#[unsafe(no_mangle)]
pub extern "C" fn ample_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// Gives free memory back to the system at once: that of this thread's caches, of idle threads' and of the page heap. 1: something
/// went back; 0: there was nothing.
#[unsafe(no_mangle)]
pub extern "C" fn ample_trim() -> c_int {
    ample_core::trim().into()
}

/// Writes how the heap stands as a JSON object into `text`, which has room for `room` bytes, and cuts it off there; it
/// ends in a zero unless `room` is 0. The bytes of the whole, without that zero.
///
/// # Safety
/// `text` has room for `room` bytes, or `room` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ample_statistics_json(text: *mut c_char, room: usize) -> usize {
    let statistics = ample_core::statistics();
    let mut whole = Text::default();
    let mut separator = "{\"";
    for (name, value) in statistics.fields() {
        whole.add(separator).add(name).add("\":").number(value);
        separator = ",\"";
    }
    let bytes = whole.add("}").as_c_str().to_bytes();
    if let Some(last) = room.checked_sub(1) {
        let count = bytes.len().min(last);
        // SAFETY: the caller vouches for the room.
        unsafe {
            text.copy_from_nonoverlapping(bytes.as_ptr().cast(), count);
            text.add(count).write(0);
        }
    }
    bytes.len()
}

/// A block of at least `size` bytes that has its cache lines to itself, for objects that several threads write to. NULL and
/// ENOMEM: no memory.
#[unsafe(no_mangle)]
pub extern "C" fn ample_malloc_shared(size: usize) -> *mut c_void {
    or_enomem(ample_core::malloc_shared(size))
}
