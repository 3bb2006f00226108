//! The C++ runtime: what it throws with, its new-handler, and its own operators. It is looked up when it is needed, since a program without C++ has none.
//!
//! Where a program in C opens a library in C++ for that library's use alone (`RTLD_LOCAL`: Python's modules, most plugins), the runtime comes with it, and is in no scope that
//! a look-up by name searches. So the runtimes that exist are also asked for by their files' names.

use core::ffi::{CStr, c_void};
use core::ptr;

#[cfg(target_env = "gnu")]
use crate::opening::in_library;

/// GNU's runtime and LLVM's. (Of the latter this is one part, and needs the other: a look-up in it finds what is in either.)
const FILES: [&CStr; 2] = [c"libstdc++.so.6", c"libc++.so.1"];

/// The address of a function of a library that is loaded already; null where it is not, or has none.
#[cfg(target_env = "musl")]
pub(crate) fn in_library(file: &CStr, name: &CStr) -> *mut c_void {
    // SAFETY: the name ends in a zero; nothing is loaded that is not there.
    let library = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return library;
    }
    // SAFETY: an open library, and a name that ends in a zero.
    unsafe { libc::dlsym(library, name.as_ptr()) }
}

// In a static program there is nothing to look up, but a part of the runtime that is linked has an address.
weak_address!("ample_get_new_handler", "_ZSt15get_new_handlerv");
weak_address!("ample_throw_bad_alloc", "_ZSt17__throw_bad_allocv");
unsafe extern "C" {
    safe fn ample_get_new_handler() -> *mut c_void;
    safe fn ample_throw_bad_alloc() -> *mut c_void;
}

/// The runtime's function of this name, in the scope or else wherever it is loaded; or NULL.
fn look_up(scope: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the name is a C string, the scope one of dlsym's constants.
    let function = unsafe { libc::dlsym(scope, name.as_ptr()) };
    if !function.is_null() {
        return function;
    }
    FILES
        .iter()
        .map(|file| in_library(file, name))
        .find(|function| !function.is_null())
        .unwrap_or(ptr::null_mut())
}

/// What was linked, or else the runtime's function of this name.
fn linked_or(linked: *mut c_void, name: &CStr) -> *mut c_void {
    if linked.is_null() { look_up(libc::RTLD_DEFAULT, name) } else { linked }
}

/// `std::get_new_handler`, or NULL.
pub(crate) extern "C" fn get_new_handler() -> *mut c_void {
    linked_or(ample_get_new_handler(), c"_ZSt15get_new_handlerv")
}

/// `std::__throw_bad_alloc`; ends the process where there is no C++ runtime that could throw.
pub(crate) extern "C" fn throw_bad_alloc() -> *mut c_void {
    let function = linked_or(ample_throw_bad_alloc(), c"_ZSt17__throw_bad_allocv");
    if function.is_null() {
        const MESSAGE: &[u8] =
            b"ample: operator new: no memory, and no C++ runtime to throw std::bad_alloc\n";
        // SAFETY: the text is readable; the process ends whether or not it could be written.
        unsafe {
            libc::write(2, MESSAGE.as_ptr().cast(), MESSAGE.len());
            libc::abort()
        }
    }
    function
}

/// The runtime's own operator of this name, which ours comes before; or NULL.
pub(crate) fn next(name: &CStr) -> *mut c_void {
    look_up(libc::RTLD_NEXT, name)
}
