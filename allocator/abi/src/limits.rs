//! The calls by which a program limits its own addresses, or locks all its memory. Addresses that are only reserved count for both, so those that are not needed
//! are given up first. (A limit that another process sets is noticed when no more memory comes.)
//!
//! Beyond that each of these functions is the system call of the same name, as in any C library.

use core::ffi::{c_int, c_void};
use core::ptr;

#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = c_int;

/// As the C library's.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit(
    process: libc::pid_t,
    resource: Resource,
    new: *const c_void,
    old: *mut c_void,
) -> c_int {
    // SAFETY: the caller's contract.
    let result = unsafe { libc::syscall(libc::SYS_prlimit64, process, resource, new, old) };
    if result == 0 && resource == libc::RLIMIT_AS {
        ample_core::after_limiting();
    }
    result as c_int
}

/// As the C library's.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit64(
    process: libc::pid_t,
    resource: Resource,
    new: *const c_void,
    old: *mut c_void,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { prlimit(process, resource, new, old) }
}

/// As the C library's.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit(resource: Resource, new: *const c_void) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { prlimit(0, resource, new, ptr::null_mut()) }
}

/// As the C library's.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit64(resource: Resource, new: *const c_void) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { prlimit(0, resource, new, ptr::null_mut()) }
}

/// Whether the limit on what may be locked (`RLIMIT_MEMLOCK`) is none for this process: it has the capability `CAP_IPC_LOCK`.
fn is_free_to_lock() -> bool {
    const VERSION_3: u32 = 0x2008_0522;
    const CAP_IPC_LOCK: u32 = 14;
    // The version, and the process, 0 for this one; and of each half of the capabilities the effective ones, the permitted and the inheritable.
    let (mut header, mut sets) = ([VERSION_3, 0], [[0_u32; 3]; 2]);
    // SAFETY: both are ours to write, and as long as this version asks for.
    let known = unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()) } == 0;
    known && sets[0][0] >> CAP_IPC_LOCK & 1 != 0
}

/// As the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn mlockall(flags: c_int) -> c_int {
    let most = || {
        if is_free_to_lock() {
            return usize::MAX;
        }
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: 0 };
        // SAFETY: `limit` is ours to write; a failure leaves it as it is.
        unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
        limit.rlim_cur as usize
    };
    // What is mapped already is not locked otherwise; and what is mapped later would be filled, islands of tables as well.
    ample_core::before_locking((flags & libc::MCL_CURRENT != 0).then(most));
    // SAFETY: the call takes no pointer.
    unsafe { libc::syscall(libc::SYS_mlockall, flags) as c_int }
}
