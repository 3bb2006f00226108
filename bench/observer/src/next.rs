//! The functions that are observed: those that the program would have without the observer.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

thread_local! {
    /// Whether this thread looks a function up, which may itself ask for memory.
    static LOOKING: Cell<bool> = const { Cell::new(false) };
}

/// A function of the library behind this one.
pub struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address; none where there is no such function, or while this thread looks one up.
    fn address(&self) -> Option<*mut c_void> {
        // Relaxed: the function was there before its address; every thread finds the same.
        let found = self.found.load(Ordering::Relaxed);
        if !found.is_null() {
            return Some(found);
        }
        if LOOKING.replace(true) {
            return None;
        }
        // SAFETY: a name that ends.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        LOOKING.set(false);
        // Relaxed: as above.
        self.found.store(found, Ordering::Relaxed);
        (!found.is_null()).then_some(found)
    }
}

/// Defines a function that calls the next one of its name, and gives `$otherwise` where there is none.
macro_rules! next {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) -> $result:ty, or $otherwise:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// That of the function itself.
        pub unsafe fn $name($($argument: $type),*) -> $result {
            static NEXT: Next = Next::new(match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name"),
            });
            match NEXT.address() {
                Some(address) => {
                    // SAFETY: the function of this name has this signature: it is the C library's interface.
                    let function: unsafe extern "C" fn($($type),*) -> $result = unsafe { std::mem::transmute(address) };
                    // SAFETY: the caller keeps to the function's contract.
                    unsafe { function($($argument),*) }
                }
                None => $otherwise,
            }
        }
    )*};
}

next! {
    /// malloc.
    malloc(size: usize) -> *mut c_void, or early(16, size);
    /// calloc.
    calloc(count: usize, size: usize) -> *mut c_void, or count.checked_mul(size).map_or(std::ptr::null_mut(), |size| early(16, size));
    /// realloc.
    realloc(block: *mut c_void, size: usize) -> *mut c_void, or std::ptr::null_mut();
    /// free.
    free(block: *mut c_void) -> (), or ();
    /// memalign.
    memalign(alignment: usize, size: usize) -> *mut c_void, or early(alignment, size);
    /// aligned_alloc.
    aligned_alloc(alignment: usize, size: usize) -> *mut c_void, or early(alignment, size);
    /// posix_memalign.
    posix_memalign(block: *mut *mut c_void, alignment: usize, size: usize) -> c_int, or libc::ENOMEM;
    /// valloc.
    valloc(size: usize) -> *mut c_void, or early(4096, size);
    /// pvalloc.
    pvalloc(size: usize) -> *mut c_void, or std::ptr::null_mut();
    /// malloc_trim.
    malloc_trim(pad: usize) -> c_int, or 0;
    /// mmap.
    mmap(address: *mut c_void, length: usize, access: c_int, kind: c_int, file: c_int, offset: libc::off_t) -> *mut c_void,
        or libc::MAP_FAILED;
    /// mmap64.
    mmap64(address: *mut c_void, length: usize, access: c_int, kind: c_int, file: c_int, offset: libc::off_t) -> *mut c_void,
        or libc::MAP_FAILED;
}

/// Bytes for those who ask while the first function is looked up. They are never freed.
const EARLY: usize = 64 << 10;

#[repr(align(4096))]
struct Early(std::cell::UnsafeCell<[u8; EARLY]>);

// SAFETY: each byte is given to one caller.
unsafe impl Sync for Early {}

static MEMORY: Early = Early(std::cell::UnsafeCell::new([0; EARLY]));
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Zeroed bytes of the early ones; null where they are used up.
fn early(alignment: usize, size: usize) -> *mut c_void {
    let aligned = |taken: usize| taken.checked_next_multiple_of(alignment.clamp(16, 4096));
    let end = |taken: usize| aligned(taken)?.checked_add(size).filter(|end| *end <= EARLY);
    // Relaxed: a count of bytes, each of which is given away once.
    match TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end) {
        // SAFETY: the range that was just taken lies within.
        Ok(taken) => unsafe { MEMORY.0.get().cast::<u8>().add(aligned(taken).unwrap_or(taken)).cast() },
        Err(_) => std::ptr::null_mut(),
    }
}

/// Whether a block is one of the early ones; then, how many bytes lie from there to their end.
pub fn early_bytes(block: *mut c_void) -> Option<usize> {
    let offset = (block as usize).checked_sub(MEMORY.0.get() as usize)?;
    EARLY.checked_sub(offset).filter(|bytes| *bytes > 0)
}
