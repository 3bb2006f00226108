//! Blocks that are not ours: handed out by the C library's own malloc, before this library was there, or to a library
//! that was linked or opened so that it sees that one first (`RTLD_DEEPBIND`). They go back where they came from.

use core::arch::global_asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

// Weak: a static program has neither, and meets no foreign blocks.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".weak dlopen",
    ".pushsection .text.ample_dlopen,\"ax\",@progbits",
    ".hidden ample_dlopen",
    ".globl ample_dlopen",
    ".type ample_dlopen,@function",
    "ample_dlopen:",
    "mov rax, qword ptr [rip + dlopen@GOTPCREL]",
    "ret",
    ".popsection",
    ".weak dlsym",
    ".pushsection .text.ample_dlsym,\"ax\",@progbits",
    ".hidden ample_dlsym",
    ".globl ample_dlsym",
    ".type ample_dlsym,@function",
    "ample_dlsym:",
    "mov rax, qword ptr [rip + dlsym@GOTPCREL]",
    "ret",
    ".popsection",
);
#[cfg(target_arch = "aarch64")]
global_asm!(
    ".weak dlopen",
    ".pushsection .text.ample_dlopen,\"ax\",@progbits",
    ".hidden ample_dlopen",
    ".globl ample_dlopen",
    ".type ample_dlopen,@function",
    "ample_dlopen:",
    "adrp x0, :got:dlopen",
    "ldr x0, [x0, :got_lo12:dlopen]",
    "ret",
    ".popsection",
    ".weak dlsym",
    ".pushsection .text.ample_dlsym,\"ax\",@progbits",
    ".hidden ample_dlsym",
    ".globl ample_dlsym",
    ".type ample_dlsym,@function",
    "ample_dlsym:",
    "adrp x0, :got:dlsym",
    "ldr x0, [x0, :got_lo12:dlsym]",
    "ret",
    ".popsection",
);

type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void);
type Realloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type UsableSize = unsafe extern "C" fn(*mut c_void) -> usize;

unsafe extern "C" {
    safe fn ample_dlopen() -> Option<Dlopen>;
    safe fn ample_dlsym() -> Option<Dlsym>;
}

/// A function of the C library's own, looked up in that library: under every name by which a reference could lead there, ours
/// comes first.
struct Own {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Own {
    const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Its address; null where there is none.
    fn address(&self) -> *mut c_void {
        // Relaxed: an address stands for itself, and is the same whoever looks it up.
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        let (Some(dlopen), Some(dlsym)) = (ample_dlopen(), ample_dlsym()) else { return ptr::null_mut() };
        // SAFETY: the name ends in a zero; nothing is loaded that is not there.
        let library = unsafe { dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if library.is_null() {
            return library;
        }
        // SAFETY: an open library, and a name that ends in a zero.
        let address = unsafe { dlsym(library, self.name.as_ptr()) };
        // Relaxed: as above.
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

static FREE: Own = Own::new(c"free");
static REALLOC: Own = Own::new(c"realloc");
static USABLE_SIZE: Own = Own::new(c"malloc_usable_size");

/// Takes a foreign block back; leaks it where the C library's free cannot be reached.
///
/// # Safety
/// `block` came from the C library's own malloc, and nobody uses it any more.
#[cold]
pub(crate) unsafe fn free(block: *mut c_void) {
    // SAFETY: null, or a function of this type.
    if let Some(free) = unsafe { transmute::<*mut c_void, Option<Free>>(FREE.address()) } {
        // SAFETY: the caller's contract.
        unsafe { free(block) };
    }
}

/// Resizes a foreign block; NULL where the C library's realloc cannot be reached.
///
/// # Safety
/// As for `realloc`, for a block from the C library's own malloc.
#[cold]
pub(crate) unsafe fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: null, or a function of this type.
    match unsafe { transmute::<*mut c_void, Option<Realloc>>(REALLOC.address()) } {
        // SAFETY: the caller's contract.
        Some(realloc) => unsafe { realloc(block, size) },
        None => ptr::null_mut(),
    }
}

/// Bytes of a foreign block that the program may use; 0 where nobody knows.
///
/// # Safety
/// As for `malloc_usable_size`, for a block from the C library's own malloc.
#[cold]
pub(crate) unsafe fn usable_size(block: *mut c_void) -> usize {
    // SAFETY: null, or a function of this type.
    match unsafe { transmute::<*mut c_void, Option<UsableSize>>(USABLE_SIZE.address()) } {
        // SAFETY: the caller's contract.
        Some(usable_size) => unsafe { usable_size(block) },
        None => 0,
    }
}
