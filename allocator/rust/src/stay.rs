//! Keeps the library that the allocator is part of in the process.
//!
//! Threads that have allocated call its code when they end, and so does the helper thread. A host that closes a plugin
//! (`dlclose`) may go on with both.

use core::ffi::{c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

/// Whether that is seen to.
static SEEN_TO: AtomicBool = AtomicBool::new(false);

/// Lets the dynamic linker keep this library until the process ends; nothing where that is the program itself. To be called before
/// anything is allocated.
#[inline]
pub(crate) fn stay() {
    // Relaxed: nothing is published with it, and two threads that both do it do no harm.
    if !SEEN_TO.load(Ordering::Relaxed) {
        see_to_it();
    }
}

#[cold]
fn see_to_it() {
    // Relaxed: as above. First, since the dynamic linker may allocate.
    SEEN_TO.store(true, Ordering::Relaxed);
    let mut is_program = false;
    // SAFETY: the callback is given what it casts to; it is called before this returns.
    unsafe { libc::dl_iterate_phdr(Some(looks_at_program), (&raw mut is_program).cast()) };
    if is_program {
        return;
    }
    let mut about = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the address is one of this library's own; the pointer is valid for a write, and zeroed is a value of plain pointers.
    let about = unsafe { (libc::dladdr(here(), about.as_mut_ptr()) != 0).then(|| about.assume_init()) };
    let Some(name) = about.map(|about| about.dli_fname).filter(|name| !name.is_null()) else { return };
    // Looked up, since a static program that names it is warned of by linkers.
    // SAFETY: a string that ends; the function of this name has this signature.
    let open = unsafe {
        let address = libc::dlsym(libc::RTLD_DEFAULT, c"dlopen".as_ptr());
        core::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void>>(
            address,
        )
    };
    if let Some(open) = open {
        // SAFETY: the name is the dynamic linker's own, and the library is there: nothing is loaded, and no code of it runs.
        unsafe { open(name, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
    }
}

/// An address in this library.
fn here() -> *const c_void {
    see_to_it as *const c_void
}

/// Of all objects in the process the program comes first: whether this code is part of it.
unsafe extern "C" fn looks_at_program(
    object: *mut libc::dl_phdr_info,
    _: usize,
    is_program: *mut c_void,
) -> c_int {
    // SAFETY: the C library gives a description that is valid during the call, with so many headers.
    let (base, headers) = unsafe {
        let object = &*object;
        (object.dlpi_addr, core::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)))
    };
    let here = here().addr() as u64;
    let holds = |header: &libc::Elf64_Phdr| {
        let start = base.wrapping_add(header.p_vaddr);
        header.p_type == libc::PT_LOAD && (start..start.wrapping_add(header.p_memsz)).contains(&here)
    };
    // SAFETY: the caller of `dl_iterate_phdr` gave a pointer to a `bool` that outlives the call.
    unsafe { *is_program.cast::<bool>() = headers.iter().any(holds) };
    1
}
