//! The process's threads, and the one that this library starts.

use core::arch::asm;
use core::ffi::CStr;
use core::mem::{MaybeUninit, size_of};
use core::ptr;

use super::{keeping_errno, read};
use crate::os::Body;

pub(crate) fn threads() -> Option<usize> {
    let mut text = [0u8; 512];
    let length = read(c"/proc/self/stat", &mut text)?;
    // The second field, a name in parentheses, may hold anything; the number of threads is the twentieth.
    let name_end = text[..length].iter().rposition(|&byte| byte == b')')?;
    let threads = text[name_end + 1..length].split(|&byte| byte == b' ').nth(18)?;
    // An emulator of processors leaves it out, and tells 0.
    core::str::from_utf8(threads).ok()?.parse().ok().filter(|&threads| threads > 0)
}

pub(crate) fn never_had_threads() -> bool {
    let known: *const u8;
    // SAFETY: reads the address of the C library's variable, or null where it has none (before glibc 2.32, and musl).
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!(
            ".weak __libc_single_threaded",
            "mov {}, qword ptr [rip + __libc_single_threaded@GOTPCREL]",
            out(reg) known,
            options(pure, readonly, nostack, preserves_flags),
        );
        #[cfg(target_arch = "aarch64")]
        asm!(
            ".weak __libc_single_threaded",
            "adrp {place}, :got:__libc_single_threaded",
            "ldr {place}, [{place}, :got_lo12:__libc_single_threaded]",
            place = out(reg) known,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    // SAFETY: the C library's variable, which only the thread that starts the first other one writes to.
    !known.is_null() && unsafe { known.read_volatile() } != 0
}

pub(crate) fn start_thread(body: Body) -> bool {
    /// What the helper needs. glibc takes the thread-local variables of all libraries from it, too: where they are large, it gets the usual size.
    const STACK: usize = 128 << 10;
    keeping_errno(|| match create(body, Some(STACK)) {
        libc::EINVAL => create(body, None) == 0,
        error => error == 0,
    })
}

/// Starts a thread with a stack of so many bytes, or of the usual size; the C library's error, or 0.
fn create(body: Body, stack: Option<usize>) -> libc::c_int {
    let mut attributes = MaybeUninit::uninit();
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let mut thread = MaybeUninit::uninit();
    // SAFETY: every structure is filled by the call that is given it first, and used after that only; the thread's body needs
    // nothing of this frame.
    unsafe {
        let error = libc::pthread_attr_init(attributes.as_mut_ptr());
        if error != 0 {
            return error;
        }
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        if let Some(stack) = stack {
            libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack);
        }
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        let error = libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), body, ptr::null_mut());
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        error
    }
}

pub(crate) fn settle_thread(name: &CStr) {
    let bytes = size_of::<libc::cpu_set_t>();
    let mut own = MaybeUninit::<libc::cpu_set_t>::zeroed();
    let mut process = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: the name ends in a zero, and is copied; zeroed sets and a zeroed parameter are valid; the calling thread alone is changed.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
        // What is as it should be is not set: a filter of system calls may end the program for that, but hardly for asking.
        // (By raw calls: musl's functions of these names do nothing.)
        let (usual, parameter) = (libc::SCHED_OTHER, MaybeUninit::<libc::sched_param>::zeroed());
        if libc::syscall(libc::SYS_sched_getscheduler, 0) != usual.into() {
            libc::syscall(libc::SYS_sched_setscheduler, 0, usual, parameter.as_ptr());
        }
        let is_known = libc::sched_getaffinity(0, bytes, own.as_mut_ptr()) == 0
            && libc::sched_getaffinity(libc::getpid(), bytes, process.as_mut_ptr()) == 0;
        if is_known && !libc::CPU_EQUAL(&*own.as_ptr(), &*process.as_ptr()) {
            libc::sched_setaffinity(0, bytes, process.as_ptr());
        }
    }
}

pub(crate) fn thread_id() -> usize {
    // SAFETY: has no preconditions.
    unsafe { libc::pthread_self() as usize }
}
