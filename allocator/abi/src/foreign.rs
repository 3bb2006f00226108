//! Blocks that are not ours: handed out by the C library's own malloc, before this library was there or to a library
//! that was linked to it directly. They go back where they came from.

use core::arch::global_asm;
use core::ffi::c_void;

// glibc exports its own malloc under these names too. Weak: another C library may not.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".weak __libc_free",
    ".weak __libc_realloc",
    ".pushsection .text.ample_libc,\"ax\",@progbits",
    ".hidden ample_libc_free",
    ".globl ample_libc_free",
    ".type ample_libc_free,@function",
    "ample_libc_free:",
    "mov rax, qword ptr [rip + __libc_free@GOTPCREL]",
    "ret",
    ".hidden ample_libc_realloc",
    ".globl ample_libc_realloc",
    ".type ample_libc_realloc,@function",
    "ample_libc_realloc:",
    "mov rax, qword ptr [rip + __libc_realloc@GOTPCREL]",
    "ret",
    ".popsection",
);
#[cfg(target_arch = "aarch64")]
global_asm!(
    ".weak __libc_free",
    ".weak __libc_realloc",
    ".pushsection .text.ample_libc,\"ax\",@progbits",
    ".hidden ample_libc_free",
    ".globl ample_libc_free",
    ".type ample_libc_free,@function",
    "ample_libc_free:",
    "adrp x0, :got:__libc_free",
    "ldr x0, [x0, :got_lo12:__libc_free]",
    "ret",
    ".hidden ample_libc_realloc",
    ".globl ample_libc_realloc",
    ".type ample_libc_realloc,@function",
    "ample_libc_realloc:",
    "adrp x0, :got:__libc_realloc",
    "ldr x0, [x0, :got_lo12:__libc_realloc]",
    "ret",
    ".popsection",
);

type Free = unsafe extern "C" fn(*mut c_void);
type Realloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;

unsafe extern "C" {
    safe fn ample_libc_free() -> Option<Free>;
    safe fn ample_libc_realloc() -> Option<Realloc>;
}

/// Takes a foreign block back; leaks it where the C library's free cannot be reached.
///
/// # Safety
/// `block` came from the C library's own malloc, and nobody uses it any more.
#[cold]
pub(crate) unsafe fn free(block: *mut c_void) {
    if let Some(free) = ample_libc_free() {
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
    match ample_libc_realloc() {
        // SAFETY: the caller's contract.
        Some(realloc) => unsafe { realloc(block, size) },
        None => core::ptr::null_mut(),
    }
}
