//! Libraries that a program opens with `RTLD_DEEPBIND`, bound to themselves and their dependencies before anything else, as PHP opens its extensions. Such a library would
//! see the C library's free, and hand it blocks that the C library took from our malloc (by `strdup`), which ends the process. So `dlopen` is
//! ours, and leaves that flag out.
//!
//! Everything else is the C library's `dlopen`. It is entered by a jump, with the caller's return address, because it looks for libraries where the
//! caller's file says.

use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

// A static program has no `dlsym`, unless it calls it; but it has the C library's `dlopen` under the name `___dlopen` (glibc 2.34), which nobody
// else sees.
weak_address!("ample_dlsym", "dlsym");
weak_address!("ample_static_dlopen", "___dlopen");

type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

unsafe extern "C" {
    safe fn ample_dlsym() -> Option<Dlsym>;
    safe fn ample_static_dlopen() -> *mut c_void;
}

/// The C library's `dlopen`; null as long as nobody has asked.
static DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// The address of the C library's `dlopen`; null where there is none.
fn address() -> *mut c_void {
    // Relaxed: an address stands for itself, and is the same whoever looks it up.
    let known = DLOPEN.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let mut address = ample_static_dlopen();
    if address.is_null()
        && let Some(dlsym) = ample_dlsym()
    {
        // SAFETY: a name that ends in a zero; what comes after this library is asked.
        address = unsafe { dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr()) };
    }
    // Relaxed: as above.
    DLOPEN.store(address, Ordering::Relaxed);
    address
}

/// The address of a function of the C library's own, looked up in that library; null where there is none. (Under every name by which a reference could
/// lead there, ours comes first.)
pub(crate) fn in_c_library(name: &CStr) -> *mut c_void {
    in_library(c"libc.so.6", name)
}

/// The address of a function of a library that is loaded already; null where it is not, or has none.
pub(crate) fn in_library(file: &CStr, name: &CStr) -> *mut c_void {
    // SAFETY: null, or a function of this type.
    let dlopen = unsafe { transmute::<*mut c_void, Option<Dlopen>>(address()) };
    let (Some(dlopen), Some(dlsym)) = (dlopen, ample_dlsym()) else { return ptr::null_mut() };
    // SAFETY: the name ends in a zero; nothing is loaded that is not there.
    let library = unsafe { dlopen(file.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return library;
    }
    // SAFETY: an open library, and a name that ends in a zero.
    unsafe { dlsym(library, name.as_ptr()) }
}

/// Where [`dlopen`] goes on, and with which mode. In C's calling conventions: two registers.
#[repr(C)]
struct Onwards {
    dlopen: *mut c_void,
    mode: usize,
}

extern "C" fn onwards(_: *const c_char, mode: c_int) -> Onwards {
    let left_out = if ample_core::keeps_deepbind() { 0 } else { libc::RTLD_DEEPBIND };
    Onwards { dlopen: address(), mode: (mode & !left_out) as usize }
}

/// As the C library's `dlopen`, but that libraries see our malloc whatever they are opened with (`AMPLE_DEEPBIND`).
///
/// # Safety
/// As for the C library's `dlopen`.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(file: *const c_char, mode: c_int) -> *mut c_void {
    naked_asm!(
        "push rdi",
        "call {onwards}",
        "pop rdi",
        "mov esi, edx",
        "test rax, rax",
        "je 2f",
        "jmp rax",
        "2:",
        "ret",
        onwards = sym onwards,
    )
}

/// As the C library's `dlopen`, but that libraries see our malloc whatever they are opened with (`AMPLE_DEEPBIND`).
///
/// # Safety
/// As for the C library's `dlopen`.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(file: *const c_char, mode: c_int) -> *mut c_void {
    naked_asm!(
        "stp x0, x30, [sp, #-16]!",
        "bl {onwards}",
        "mov x16, x0",
        "ldp x0, x30, [sp], #16",
        "cbz x16, 2f",
        "br x16",
        "2:",
        "mov x0, xzr",
        "ret",
        onwards = sym onwards,
    )
}
