//! Ample's own functions, declared in `include/ample.h`.

use core::ffi::{CStr, c_char, c_int, c_void};

use ample_core::text::{Cut, Sink};

use crate::c::or_enomem;

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
    // SAFETY: the caller's contract.
    unsafe { fill(text, room, |sink| statistics.to_json(sink)) }
}

/// Writes the options of the environment as a JSON array into `text`, like [`ample_statistics_json`].
///
/// # Safety
/// As for [`ample_statistics_json`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ample_options_json(text: *mut c_char, room: usize) -> usize {
    // SAFETY: the caller's contract.
    unsafe { fill(text, room, ample_core::options::to_json) }
}

/// # Safety
/// As for [`ample_statistics_json`].
unsafe fn fill(text: *mut c_char, room: usize, write: impl FnOnce(Sink<'_>)) -> usize {
    let room = match room {
        0 => &mut [],
        // SAFETY: the caller vouches for the room; a text of C may hold anything.
        _ => unsafe { core::slice::from_raw_parts_mut(text.cast::<u8>(), room) },
    };
    let Some((end, rest)) = room.split_last_mut() else {
        let mut nowhere = Cut::new(&mut []);
        write(&mut |part| nowhere.add(part));
        return nowhere.length();
    };
    *end = 0;
    let mut cut = Cut::new(rest);
    write(&mut |part| cut.add(part));
    let length = cut.length();
    if let Some(behind) = rest.get_mut(length) {
        *behind = 0;
    }
    length
}

/// A block of at least `size` bytes that has its cache lines to itself, for objects that several threads write to. NULL and
/// ENOMEM: no memory.
#[unsafe(no_mangle)]
pub extern "C" fn ample_malloc_shared(size: usize) -> *mut c_void {
    or_enomem(ample_core::malloc_shared(size))
}
