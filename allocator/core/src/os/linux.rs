//! Linux.

mod addresses;
mod remap;
mod resident;
mod threads;

use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

pub(crate) use self::addresses::{address_limit, each_mapping, give_up, make_writable, map_at, reserve};
pub(crate) use self::remap::remap;
pub(crate) use self::resident::resident;
pub(crate) use self::threads::{never_had_threads, settle_thread, start_thread, thread_id, threads};
use super::{ADDRESS_BITS, Part};
use crate::atomics::{AtomicU8, AtomicU32, Ordering};

/// All addresses of a program.
pub(crate) fn window() -> core::ops::Range<usize> {
    0..1 << ADDRESS_BITS
}

/// The thread's `errno`.
fn errno() -> libc::c_int {
    // SAFETY: glibc gives every thread an errno that lives as long as the thread.
    unsafe { *libc::__errno_location() }
}

/// Runs `call` and puts `errno` back: a malloc that succeeds must not change it.
fn keeping_errno<T>(call: impl FnOnce() -> T) -> T {
    // SAFETY: glibc gives every thread an errno that lives as long as the thread.
    let errno = unsafe { &mut *libc::__errno_location() };
    let before = *errno;
    let result = call();
    *errno = before;
    result
}

const READ_WRITE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

fn mmap(hint: usize, len: usize, protection: libc::c_int, flags: libc::c_int) -> Option<NonNull<u8>> {
    keeping_errno(|| {
        // SAFETY: a fresh anonymous mapping, never MAP_FIXED, touches no memory that anybody uses.
        let start = unsafe {
            libc::mmap(
                ptr::without_provenance_mut(hint),
                len,
                protection,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast()) }
    })
}

/// # Safety
/// `[start, start + len)` was mapped by this module and nobody uses it any more.
unsafe fn unmap(start: usize, len: usize) {
    if len > 0 {
        keeping_errno(|| {
            // SAFETY: the caller's contract. A failure leaves the range mapped, which wastes addresses only.
            unsafe { libc::munmap(ptr::with_exposed_provenance_mut(start), len) };
        });
    }
}

pub(crate) fn map(len: usize, align: usize) -> Option<NonNull<u8>> {
    let start = mmap(0, len, READ_WRITE, 0)?;
    if start.addr().get().is_multiple_of(align) {
        start.expose_provenance();
        return Some(start);
    }
    // SAFETY: mapped just above, used by nobody.
    unsafe { unmap(start.addr().get(), len) };
    let padded = len.checked_add(align)?;
    let start = mmap(0, padded, READ_WRITE, 0)?.expose_provenance().get();
    let aligned = start.next_multiple_of(align);
    // SAFETY: the parts before and after the aligned range belong to the mapping made just above.
    unsafe { unmap(start, aligned - start) };
    // SAFETY: as above.
    unsafe { unmap(aligned + len, padded - len - (aligned - start)) };
    NonNull::new(ptr::with_exposed_provenance_mut(aligned))
}

pub(crate) fn page_size() -> usize {
    // SAFETY: asks for a constant of the system.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(super::PAGE)
}

/// Not 0: the program has locked all of its memory.
static ALL_LOCKED: AtomicU8 = AtomicU8::new(0);

pub(crate) fn keep_locked() {
    // Relaxed: a value that stands for itself.
    ALL_LOCKED.store(1, Ordering::Relaxed);
}

/// # Safety
/// As for [`super::purge`].
pub(crate) unsafe fn purge(start: usize, len: usize) -> bool {
    // SAFETY: the caller's contract.
    let give_back = || unsafe { advise(start, len, libc::MADV_DONTNEED) };
    match give_back() {
        Ok(()) => true,
        // SAFETY: the caller's contract.
        Err(libc::EINVAL) if unsafe { unlock(start, len) } => give_back().is_ok(),
        Err(_) => false,
    }
}

/// Ends the locks of single blocks that the program has locked and freed: the system takes nothing back where a page is locked (`EINVAL`), however much lies beside it.
/// `false`: all memory is to stay.
///
/// # Safety
/// As for [`super::purge`].
#[cold]
unsafe fn unlock(start: usize, len: usize) -> bool {
    // Relaxed: as in `keep_locked`.
    ALL_LOCKED.load(Ordering::Relaxed) == 0
        // SAFETY: the caller's contract; the call changes no content.
        && keeping_errno(|| unsafe { libc::munlock(ptr::with_exposed_provenance(start), len) == 0 })
}

/// # Safety
/// As for [`super::purge_together`].
pub(crate) unsafe fn purge_together(parts: &[Part]) -> bool {
    /// The calling process, as a file descriptor (since Linux 6.14).
    const PIDFD_SELF: libc::c_int = -10001;
    /// Not 0: the system does not do it for us. Kernels from 6.13 on take this advice, 6.16 and later flush the TLBs of all processors
    /// once.
    static REFUSED: AtomicU8 = AtomicU8::new(0);
    // Relaxed: a hint.
    if REFUSED.load(Ordering::Relaxed) != 0 {
        return false;
    }
    let bytes: usize = parts.iter().map(|part| part.len).sum();
    // SAFETY: the caller's contract; a part is laid out as an `iovec`.
    let done = keeping_errno(|| unsafe {
        let advice = libc::MADV_DONTNEED;
        let done =
            libc::syscall(libc::SYS_process_madvise, PIDFD_SELF, parts.as_ptr(), parts.len(), advice, 0);
        // Refused for a locked page, the call is worth another try with other parts; what a system lacks it refuses otherwise.
        if done < 0 && errno() != libc::EINVAL {
            // Relaxed: as above.
            REFUSED.store(1, Ordering::Relaxed);
        }
        done
    });
    usize::try_from(done) == Ok(bytes)
}

/// Opens a file to read from. By raw calls, as all that is done with files: the C library's are points where a thread may be cancelled.
/// Fails with the system's `errno`.
fn open(path: &CStr) -> Result<File, libc::c_int> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    keeping_errno(|| {
        // SAFETY: the path ends in a zero.
        let file = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) };
        if file >= 0 { Ok(File(file)) } else { Err(errno()) }
    })
}

/// Reads the beginning of a file; how many bytes.
fn read(path: &CStr, text: &mut [u8]) -> Option<usize> {
    let file = open(path).ok()?;
    // SAFETY: the buffer is ours, and that long.
    let length =
        keeping_errno(|| unsafe { libc::syscall(libc::SYS_read, file.0, text.as_mut_ptr(), text.len()) });
    usize::try_from(length).ok()
}

pub(crate) fn huge_pages() -> bool {
    let (mut enabled, mut size) = ([0u8; 64], [0u8; 24]);
    let enabled_len = read(c"/sys/kernel/mm/transparent_hugepage/enabled", &mut enabled).unwrap_or(0);
    let size_len = read(c"/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", &mut size).unwrap_or(0);
    super::gives_huge_pages(&enabled[..enabled_len], &size[..size_len])
}

/// How many the process may use, as it was when somebody asked first.
pub(crate) fn processors() -> usize {
    static KNOWN: AtomicU32 = AtomicU32::new(0);
    // Relaxed: everybody comes to the same result.
    let known = KNOWN.load(Ordering::Relaxed);
    if known > 0 {
        return known as usize;
    }
    let counted = count_processors();
    // Relaxed: as above.
    KNOWN.store(counted as u32, Ordering::Relaxed);
    counted
}

fn count_processors() -> usize {
    // SAFETY: plain data.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: the call fills in the set, which is that long; it fails on machines with more processors than fit.
    let known = keeping_errno(|| unsafe {
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) == 0
    });
    // SAFETY: the set is initialised.
    if known { unsafe { libc::CPU_COUNT(&set) }.max(1) as usize } else { 1024 }
}

// Not into who asks, once in the life of a process: its room on the stack would be theirs in every thread.
#[cold]
#[inline(never)]
pub(crate) fn memory_limit() -> Option<usize> {
    super::cgroup::memory_limit(read)
}

/// # Safety
/// `[start, start + len)` was returned by [`map`].
pub(crate) unsafe fn collapse(start: usize, len: usize, marked: bool) -> bool {
    /// Since Linux 6.1.
    const MADV_COLLAPSE: libc::c_int = 25;
    // Where the range is marked, this touch brings a huge page, if the kernel has one and has no page table for the range. It takes
    // two thirds of the time of the call below, which wants a first page that is there.
    // SAFETY: the caller's contract; nobody uses the memory.
    unsafe { touch(start) };
    // SAFETY: the caller's contract; the call changes no content.
    marked && super::is_resident(start + len / 2) || unsafe { advise(start, len, MADV_COLLAPSE).is_ok() }
}

/// # Safety
/// `address` lies in memory that [`map`] returned, and nobody uses it but the caller.
pub(crate) unsafe fn touch(address: usize) {
    let byte = ptr::with_exposed_provenance_mut::<u8>(address);
    // SAFETY: the caller's contract.
    unsafe { byte.write_volatile(byte.read_volatile()) };
}

/// # Safety
/// `[start, start + len)` was returned by [`map`].
pub(crate) unsafe fn mark(start: usize, len: usize, huge: bool) -> bool {
    // SAFETY: the caller's contract; the call changes no content.
    unsafe { advise(start, len, if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE }).is_ok() }
}

/// Fails with the system's `errno`.
///
/// # Safety
/// `[start, start + len)` was returned by [`map`], and may be given back if that is the advice.
#[inline(never)]
unsafe fn advise(start: usize, len: usize, advice: libc::c_int) -> Result<(), libc::c_int> {
    keeping_errno(|| {
        // SAFETY: the caller's contract.
        match unsafe { libc::madvise(ptr::with_exposed_provenance_mut(start), len, advice) } {
            0 => Ok(()),
            _ => Err(errno()),
        }
    })
}

/// # Safety
/// As for [`super::unmix`].
pub(crate) unsafe fn unmix(start: usize, len: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let place = ptr::with_exposed_provenance_mut::<libc::c_void>(start);
    // SAFETY: the caller's contract: the mapping that is replaced is ours.
    keeping_errno(|| unsafe { libc::mmap(place, len, READ_WRITE, flags, -1, 0) == place })
        // Older systems unmap what lies there before they find that they have no memory for what is to come.
        || map_at(start, len).is_some()
}

#[inline(never)]
pub(crate) fn wait(word: &AtomicU32, expected: u32) {
    keeping_errno(|| {
        // SAFETY: the word lives for the duration of the call; no time-out is given.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                expected,
                ptr::null::<libc::timespec>(),
            )
        };
    });
}

pub(crate) fn wait_for(word: &AtomicU32, expected: u32, ms: u64) {
    let time = libc::timespec { tv_sec: (ms / 1000) as i64, tv_nsec: (ms % 1000 * 1_000_000) as i64 };
    keeping_errno(|| {
        // SAFETY: the word is readable, the time is valid; the kernel changes neither.
        unsafe {
            let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
            libc::syscall(libc::SYS_futex, ptr::from_ref(word), operation, expected, &raw const time)
        }
    });
}

pub(crate) fn wake(word: &AtomicU32, count: u32) {
    keeping_errno(|| {
        // SAFETY: only the address is used.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                ptr::from_ref(word),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                count,
            )
        }
    });
}

pub(crate) fn barrier_everywhere() -> bool {
    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;
    // SAFETY: the call takes no pointer.
    let membarrier = |command: libc::c_int| unsafe { libc::syscall(libc::SYS_membarrier, command, 0) == 0 };
    // A process registers once; a second time costs little.
    keeping_errno(|| membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED))
}

pub(crate) fn on_signal(number: libc::c_int, handler: extern "C" fn(libc::c_int)) -> bool {
    keeping_errno(|| {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: a zeroed action is one without a handler and with an empty mask.
        let action = unsafe { action.assume_init_mut() };
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        // SAFETY: the handler does nothing that a handler may not.
        unsafe { libc::sigaction(number, action, ptr::null_mut()) == 0 }
    })
}

fn now(clock: libc::clockid_t) -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    keeping_errno(|| {
        // SAFETY: `now` is ours to write.
        unsafe { libc::clock_gettime(clock, &mut now) };
    });
    now
}

#[inline(never)]
pub(crate) fn now_ms() -> u64 {
    let now = now(libc::CLOCK_MONOTONIC_COARSE);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

fn us(clock: libc::clockid_t) -> u64 {
    let now = now(clock);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

#[inline(never)]
pub(crate) fn now_us() -> u64 {
    us(libc::CLOCK_MONOTONIC)
}

#[inline(never)]
pub(crate) fn worked_us() -> u64 {
    us(libc::CLOCK_THREAD_CPUTIME_ID)
}

pub(crate) fn has_environment() -> bool {
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    // SAFETY: the C library's own variable; a pointer is read, nothing more.
    !unsafe { environ }.is_null()
}

pub(crate) fn environment(name: &'static str) -> Option<&'static [u8]> {
    assert!(name.ends_with('\0'));
    unsafe extern "C" {
        fn secure_getenv(name: *const libc::c_char) -> *const libc::c_char;
    }
    // SAFETY: the name ends in a zero.
    let value = unsafe { secure_getenv(name.as_ptr().cast()) };
    // SAFETY: the environment's texts end in a zero, and live as long as nobody changes them: until the program runs,
    // which is when they are read.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_bytes())
}

pub(crate) fn process_id() -> usize {
    // SAFETY: has no preconditions.
    unsafe { libc::getpid() as usize }
}

/// An open file; closed in the end, unless it is the standard error.
pub(crate) struct File(libc::c_long);

impl Drop for File {
    fn drop(&mut self) {
        if self.0 != libc::c_long::from(libc::STDERR_FILENO) {
            // SAFETY: opened by `open` or `create`, and used no more.
            keeping_errno(|| unsafe { libc::syscall(libc::SYS_close, self.0) });
        }
    }
}

pub(crate) fn standard_error() -> File {
    File(libc::STDERR_FILENO.into())
}

pub(crate) fn create(path: &CStr) -> Option<File> {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC | libc::O_NOCTTY;
    // SAFETY: the path ends in a zero.
    let file = keeping_errno(|| unsafe {
        libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o666)
    });
    (file >= 0).then_some(File(file))
}

pub(crate) fn write(file: &File, mut bytes: &[u8]) {
    keeping_errno(|| {
        while !bytes.is_empty() {
            // SAFETY: the bytes are readable.
            let written = unsafe { libc::syscall(libc::SYS_write, file.0, bytes.as_ptr(), bytes.len()) };
            match usize::try_from(written) {
                Ok(count) if count > 0 => bytes = &bytes[count..],
                _ if errno() == libc::EINTR => {}
                _ => return,
            }
        }
    });
}

pub(crate) fn tell(parts: &[&[u8]]) {
    parts.iter().for_each(|part| write(&standard_error(), part));
}

pub(crate) fn die(message: &str) -> ! {
    // SAFETY: the text is readable; the process ends whether or not it could be written.
    unsafe {
        libc::write(2, message.as_ptr().cast(), message.len());
        libc::abort()
    }
}
