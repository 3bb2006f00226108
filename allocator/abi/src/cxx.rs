//! C++'s operators new and delete in all their forms, under their mangled names (`size_t` is `unsigned long`).
//!
//! The throwing forms do what the standard demands: call the new-handler and try again, and throw `std::bad_alloc`
//! when there is none. Rust frames must not be unwound, so none is left by then: the last act of the operator is a
//! jump to [`ample_new_failed`], which is written in assembly and says how to unwind it. The C++ runtime is looked up only
//! then: programs without C++ need none.

use core::arch::global_asm;
use core::ffi::{CStr, c_void};
use core::ptr;

use crate::c::release;

/// Alignment that the plain forms promise.
const DEFAULT_ALIGN: usize = 16;

/// One attempt; NULL: no memory.
extern "C" fn attempt(size: usize, align: usize) -> *mut c_void {
    ample_core::malloc_aligned(size, align).cast()
}

fn runtime(scope: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the name is a C string, the scope one of dlsym's constants.
    unsafe { libc::dlsym(scope, name.as_ptr()) }
}

/// `std::get_new_handler`, or NULL.
extern "C" fn get_new_handler() -> *mut c_void {
    runtime(libc::RTLD_DEFAULT, c"_ZSt15get_new_handlerv")
}

/// `std::__throw_bad_alloc`; ends the process where there is no C++ runtime that could throw.
extern "C" fn throw_bad_alloc() -> *mut c_void {
    let function = runtime(libc::RTLD_DEFAULT, c"_ZSt17__throw_bad_allocv");
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

// ample_new_failed(size, align): loop { handler = get_new_handler(); if none throw; handler(); if attempt → return }
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".pushsection .text.ample_new_failed,\"ax\",@progbits",
    ".hidden ample_new_failed",
    ".globl ample_new_failed",
    ".type ample_new_failed,@function",
    "ample_new_failed:",
    ".cfi_startproc",
    "push rbx",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset rbx, 0",
    "push r12",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset r12, 0",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "mov rbx, rdi",
    "mov r12, rsi",
    "2:",
    "call {get_new_handler}",
    "test rax, rax",
    "je 3f",
    "call rax",
    "test rax, rax",
    "je 3f",
    "call rax",
    "mov rdi, rbx",
    "mov rsi, r12",
    "call {attempt}",
    "test rax, rax",
    "je 2b",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "pop r12",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore r12",
    "pop rbx",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore rbx",
    "ret",
    ".cfi_adjust_cfa_offset 24",
    ".cfi_rel_offset r12, 8",
    ".cfi_rel_offset rbx, 16",
    "3:",
    "call {throw_bad_alloc}",
    "call rax",
    "ud2",
    ".cfi_endproc",
    ".size ample_new_failed, .-ample_new_failed",
    ".popsection",
    get_new_handler = sym get_new_handler,
    throw_bad_alloc = sym throw_bad_alloc,
    attempt = sym attempt,
);
#[cfg(target_arch = "aarch64")]
global_asm!(
    ".pushsection .text.ample_new_failed,\"ax\",@progbits",
    ".hidden ample_new_failed",
    ".globl ample_new_failed",
    ".type ample_new_failed,@function",
    "ample_new_failed:",
    ".cfi_startproc",
    "stp x29, x30, [sp, #-32]!",
    ".cfi_adjust_cfa_offset 32",
    ".cfi_rel_offset x29, 0",
    ".cfi_rel_offset x30, 8",
    "stp x19, x20, [sp, #16]",
    ".cfi_rel_offset x19, 16",
    ".cfi_rel_offset x20, 24",
    "mov x19, x0",
    "mov x20, x1",
    "2:",
    "bl {get_new_handler}",
    "cbz x0, 3f",
    "blr x0",
    "cbz x0, 3f",
    "blr x0",
    "mov x0, x19",
    "mov x1, x20",
    "bl {attempt}",
    "cbz x0, 2b",
    ".cfi_remember_state",
    "ldp x19, x20, [sp, #16]",
    "ldp x29, x30, [sp], #32",
    ".cfi_restore x19",
    ".cfi_restore x20",
    ".cfi_restore x29",
    ".cfi_restore x30",
    ".cfi_adjust_cfa_offset -32",
    "ret",
    ".cfi_restore_state",
    "3:",
    "bl {throw_bad_alloc}",
    "blr x0",
    "brk #1",
    ".cfi_endproc",
    ".size ample_new_failed, .-ample_new_failed",
    ".popsection",
    get_new_handler = sym get_new_handler,
    throw_bad_alloc = sym throw_bad_alloc,
    attempt = sym attempt,
);

unsafe extern "C" {
    /// Calls the new-handler and tries again until there is memory, or throws.
    fn ample_new_failed(size: usize, align: usize) -> *mut c_void;
}

#[inline(always)]
fn new_or_throw(size: usize) -> *mut c_void {
    let block = ample_core::malloc_near(size);
    if block.is_null() { new_far(size) } else { block.cast() }
}

#[inline(never)]
extern "C" fn new_far(size: usize) -> *mut c_void {
    let block = ample_core::malloc_far(size);
    if block.is_null() { new_kept(size) } else { block.cast() }
}

#[inline(never)]
extern "C" fn new_kept(size: usize) -> *mut c_void {
    let block = ample_core::malloc_kept(size);
    if block.is_null() { new_slow(size) } else { block.cast() }
}

#[cold]
#[inline(never)]
extern "C" fn new_slow(size: usize) -> *mut c_void {
    let block = ample_core::malloc_slow(size);
    if !block.is_null() {
        return block.cast();
    }
    // SAFETY: in tail position: no frame of ours is unwound.
    unsafe { ample_new_failed(size, DEFAULT_ALIGN) }
}

#[inline(always)]
fn new_aligned_or_throw(size: usize, align: usize) -> *mut c_void {
    let block = ample_core::malloc_aligned_near(size, align);
    if block.is_null() { new_aligned_far(size, align) } else { block.cast() }
}

#[inline(never)]
extern "C" fn new_aligned_far(size: usize, align: usize) -> *mut c_void {
    let block = attempt(size, align);
    if !block.is_null() {
        return block;
    }
    // SAFETY: in tail position: no frame of ours is unwound.
    unsafe { ample_new_failed(size, align) }
}

/// The C++ runtime's own nothrow operator `name`: it calls our throwing one, and catches.
#[cold]
fn runtime_new(name: &CStr) -> *mut c_void {
    runtime(libc::RTLD_NEXT, name)
}

type NewNothrow = unsafe extern "C" fn(usize, *const c_void) -> *mut c_void;
type NewAlignedNothrow = unsafe extern "C" fn(usize, usize, *const c_void) -> *mut c_void;

/// `block`, or what the runtime's `name` gives: NULL, unless a new-handler finds memory.
///
/// # Safety
/// `name` has the type [`NewNothrow`], `tag` is its last argument.
#[inline(always)]
unsafe fn or_handler(block: *mut u8, name: &CStr, size: usize, tag: *const c_void) -> *mut c_void {
    if !block.is_null() {
        return block.cast();
    }
    let function = runtime_new(name);
    if function.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the caller's contract.
    let function = unsafe { core::mem::transmute::<*mut c_void, NewNothrow>(function) };
    // SAFETY: the caller's contract.
    unsafe { function(size, tag) }
}

/// As [`or_handler`], for the aligned forms.
///
/// # Safety
/// `name` has the type [`NewAlignedNothrow`], `tag` is its last argument.
#[inline(always)]
unsafe fn aligned_or_handler(name: &CStr, size: usize, align: usize, tag: *const c_void) -> *mut c_void {
    let block = attempt(size, align);
    if !block.is_null() {
        return block;
    }
    let function = runtime_new(name);
    if function.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the caller's contract.
    let function = unsafe { core::mem::transmute::<*mut c_void, NewAlignedNothrow>(function) };
    // SAFETY: the caller's contract.
    unsafe { function(size, align, tag) }
}

macro_rules! operators {
    (new: $($new:ident)*; new_nothrow: $($new_nothrow:ident $nothrow_name:literal)*;
     new_aligned: $($new_aligned:ident)*; new_aligned_nothrow: $($new_aligned_nothrow:ident $aligned_name:literal)*;
     delete: $($delete:ident)*; delete_2: $($delete_2:ident)*; delete_3: $($delete_3:ident)*;) => {
        $(
            /// operator new: a block of `size` bytes, or an exception.
            #[unsafe(no_mangle)]
            #[unsafe(link_section = ".text.ample.new")]
            pub extern "C" fn $new(size: usize) -> *mut c_void {
                new_or_throw(size)
            }
        )*
        $(
            /// operator new that does not throw: a block of `size` bytes, or NULL.
            ///
            /// # Safety
            /// `tag` is `std::nothrow`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $new_nothrow(size: usize, tag: *const c_void) -> *mut c_void {
                // SAFETY: the name has this function's type.
                unsafe { or_handler(attempt(size, DEFAULT_ALIGN).cast(), $nothrow_name, size, tag) }
            }
        )*
        $(
            /// operator new with alignment: a block of `size` bytes at `align` (a power of two), or an exception.
            #[unsafe(no_mangle)]
            pub extern "C" fn $new_aligned(size: usize, align: usize) -> *mut c_void {
                new_aligned_or_throw(size, align)
            }
        )*
        $(
            /// operator new with alignment that does not throw: a block of `size` bytes at `align`, or NULL.
            ///
            /// # Safety
            /// `tag` is `std::nothrow`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $new_aligned_nothrow(
                size: usize,
                align: usize,
                tag: *const c_void,
            ) -> *mut c_void {
                // SAFETY: the name has this function's type.
                unsafe { aligned_or_handler($aligned_name, size, align, tag) }
            }
        )*
        $(
            /// operator delete.
            ///
            /// # Safety
            /// As for `free`, for a block from operator new.
            #[unsafe(no_mangle)]
            #[unsafe(link_section = ".text.ample.delete")]
            pub unsafe extern "C" fn $delete(block: *mut c_void) {
                // SAFETY: the caller's contract.
                unsafe { release(block) };
            }
        )*
        $(
            /// operator delete that is told the size, the alignment, or `std::nothrow`.
            ///
            /// # Safety
            /// As for `free`, for a block from operator new.
            #[unsafe(no_mangle)]
            #[unsafe(link_section = ".text.ample.delete_sized")]
            pub unsafe extern "C" fn $delete_2(block: *mut c_void, _: usize) {
                // SAFETY: the caller's contract.
                unsafe { release(block) };
            }
        )*
        $(
            /// operator delete that is told the size and the alignment, or the alignment and `std::nothrow`.
            ///
            /// # Safety
            /// As for `free`, for a block from operator new.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $delete_3(block: *mut c_void, _: usize, _: usize) {
                // SAFETY: the caller's contract.
                unsafe { release(block) };
            }
        )*
    };
}

operators! {
    new: _Znwm _Znam;
    new_nothrow: _ZnwmRKSt9nothrow_t c"_ZnwmRKSt9nothrow_t" _ZnamRKSt9nothrow_t c"_ZnamRKSt9nothrow_t";
    new_aligned: _ZnwmSt11align_val_t _ZnamSt11align_val_t;
    new_aligned_nothrow: _ZnwmSt11align_val_tRKSt9nothrow_t c"_ZnwmSt11align_val_tRKSt9nothrow_t"
        _ZnamSt11align_val_tRKSt9nothrow_t c"_ZnamSt11align_val_tRKSt9nothrow_t";
    delete: _ZdlPv _ZdaPv;
    delete_2: _ZdlPvm _ZdaPvm _ZdlPvRKSt9nothrow_t _ZdaPvRKSt9nothrow_t _ZdlPvSt11align_val_t _ZdaPvSt11align_val_t;
    delete_3: _ZdlPvmSt11align_val_t _ZdaPvmSt11align_val_t
        _ZdlPvSt11align_val_tRKSt9nothrow_t _ZdaPvSt11align_val_tRKSt9nothrow_t;
}
