//! C++'s operators new and delete in all their forms, under their mangled names (`size_t` is `unsigned long`).
//!
//! A program may replace any of them. Most replace two, `new(n)` and `delete(p)`, and rely on what the standard says of the others: each does its
//! work by calling a simpler form, its *primary*, whoever defines that. So a derived form here is a jump to its primary through the global offset table, whose
//! entry the dynamic linker fills with the definition in force. The linker is told to leave these entries to it (`replaceable.list`). The
//! forms that do not throw allocate by themselves as long as nobody has replaced their primary; otherwise they call the C++ runtime's
//! own, which call the primary and catch what it throws.
//!
//! The throwing forms do what the standard demands: they call the new-handler and try again, and throw `std::bad_alloc`
//! when there is none. Rust frames must not be unwound, so none is left by then: the last act of the operator is a
//! jump to [`ample_new_failed`], which is written in assembly and says how to unwind it. The C++ runtime is looked up only
//! then: programs without C++ need none.

use core::arch::{asm, global_asm, naked_asm};
use core::ffi::{CStr, c_void};
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::c::release;
use crate::runtime::{self, get_new_handler, throw_bad_alloc};

/// Alignment that the plain forms promise.
const DEFAULT_ALIGN: usize = 16;

/// One attempt; NULL: no memory.
extern "C" fn attempt(size: usize, align: usize) -> *mut c_void {
    ample_core::malloc_aligned_far(size, align).cast()
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

/// operator new: a block of `size` bytes, or an exception.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.ample.new")]
pub extern "C" fn _Znwm(size: usize) -> *mut c_void {
    new_or_throw(size)
}

/// operator new with alignment: a block of `size` bytes at `align` (a power of two), or an exception.
#[unsafe(no_mangle)]
pub extern "C" fn _ZnwmSt11align_val_t(size: usize, align: usize) -> *mut c_void {
    new_aligned_or_throw(size, align)
}

/// operator delete.
///
/// # Safety
/// As for `free`, for a block from operator new.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.ample.delete")]
pub unsafe extern "C" fn _ZdlPv(block: *mut c_void) {
    // SAFETY: the caller's contract.
    unsafe { release(block) };
}

/// operator delete that is told the alignment.
///
/// # Safety
/// As for `free`, for a block from operator new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ZdlPvSt11align_val_t(block: *mut c_void, _: usize) {
    // SAFETY: the caller's contract.
    unsafe { release(block) };
}

/// Goes on as the operator in force of this name, with the arguments that are there; where `without_size` is said, the second of
/// three is dropped.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    ($primary:ident) => {
        naked_asm!("jmp qword ptr [rip + {primary}@GOTPCREL]", primary = sym $primary)
    };
    ($primary:ident without_size) => {
        naked_asm!("mov rsi, rdx", "jmp qword ptr [rip + {primary}@GOTPCREL]", primary = sym $primary)
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    ($primary:ident) => {
        naked_asm!(
            "adrp x16, :got:{primary}",
            "ldr x16, [x16, :got_lo12:{primary}]",
            "br x16",
            primary = sym $primary,
        )
    };
    ($primary:ident without_size) => {
        naked_asm!(
            "mov x1, x2",
            "adrp x16, :got:{primary}",
            "ldr x16, [x16, :got_lo12:{primary}]",
            "br x16",
            primary = sym $primary,
        )
    };
}

/// The operator in force of this name. The compiler must not know which function it is: it would compare and call it as ours.
macro_rules! in_force {
    ($primary:ident) => {{
        let address: *mut c_void;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: reads an entry of the global offset table.
        unsafe {
            asm!("mov {}, qword ptr [rip + {primary}@GOTPCREL]", out(reg) address, primary = sym $primary,
                options(pure, readonly, nostack, preserves_flags));
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: reads an entry of the global offset table.
        unsafe {
            asm!("adrp {0}, :got:{primary}", "ldr {0}, [{0}, :got_lo12:{primary}]", out(reg) address,
                primary = sym $primary, options(pure, readonly, nostack, preserves_flags));
        }
        address
    }};
}

/// Gives our own operator of this name another one, which nobody sees and replaces: `ample_own` before it.
macro_rules! own_names {
    ($($primary:ident)*) => {
        $(global_asm!(
            concat!(".hidden ample_own", stringify!($primary)),
            concat!(".globl ample_own", stringify!($primary)),
            concat!(".set ample_own", stringify!($primary), ", {primary}"),
            primary = sym $primary,
        );)*
    };
}

own_names!(_Znwm _Znam _ZnwmSt11align_val_t _ZnamSt11align_val_t);

/// Whether the operator in force of this name is our own.
macro_rules! is_own {
    ($primary:ident) => {{
        let own: *mut c_void;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: forms an address.
        unsafe {
            asm!(concat!("lea {}, [rip + ample_own", stringify!($primary), "]"), out(reg) own,
                options(pure, nomem, nostack, preserves_flags));
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: forms an address.
        unsafe {
            asm!(concat!("adrp {0}, ample_own", stringify!($primary)),
                concat!("add {0}, {0}, :lo12:ample_own", stringify!($primary)), out(reg) own,
                options(pure, nomem, nostack, preserves_flags));
        }
        own == in_force!($primary)
    }};
}

/// A form that does not throw, as its primary or the C++ runtime's form gives it: C's calling conventions let a function overlook
/// arguments that it does not have.
type Nothrow = unsafe extern "C" fn(usize, usize, usize) -> *mut c_void;

/// What the C++ runtime's form of `name` gives, which calls the primary and catches: NULL, unless a new-handler finds memory, or the program's own primary
/// does. Where there is no runtime nothing is thrown either: then what `replaced`, the program's own primary, gives; NULL where it has none.
///
/// # Safety
/// The last three arguments begin with those of the operator `name`; `known` is for that name alone.
#[cold]
#[inline(never)]
unsafe fn new_by_runtime(
    known: &AtomicPtr<c_void>,
    name: &CStr,
    replaced: *mut c_void,
    size: usize,
    second: usize,
    third: usize,
) -> *mut c_void {
    // Relaxed: an address stands for itself, and is the same whoever looks it up. (Looking up takes the dynamic linker's lock.)
    let mut function = known.load(Ordering::Relaxed);
    if function.is_null() {
        function = runtime::next(name);
        // Relaxed: as above.
        known.store(function, Ordering::Relaxed);
    }
    if function.is_null() {
        function = replaced;
    }
    // SAFETY: NULL, the operator of that name, or its primary, which has fewer of the same arguments.
    let function = unsafe { transmute::<*mut c_void, Option<Nothrow>>(function) };
    let Some(function) = function else { return ptr::null_mut() };
    // SAFETY: the caller's contract.
    unsafe { function(size, second, third) }
}

/// The forms that do not throw, with or without an alignment. Of an array's form, the primary is itself derived.
macro_rules! new_nothrow {
    ($($name:ident($($align:ident)?) $c_name:literal: $primary:ident $($further:ident)?;)*) => {
        $(
            /// operator new that does not throw: a block of `size` bytes (at `align`, a power of two), or NULL.
            ///
            /// # Safety
            /// `tag` is `std::nothrow`.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(size: usize, $($align: usize,)? tag: *const c_void) -> *mut c_void {
                static RUNTIME: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
                let mut replaced = in_force!($primary);
                if is_own!($primary) $(&& is_own!($further))? {
                    let block = attempt(size, [$($align,)? DEFAULT_ALIGN][0]);
                    if !block.is_null() {
                        return block;
                    }
                    replaced = ptr::null_mut();
                }
                let second = [$($align,)? tag.addr()][0];
                // SAFETY: the name and its arguments, the tag once more where there is no alignment; the primary's are the first of them.
                unsafe { new_by_runtime(&RUNTIME, $c_name, replaced, size, second, tag.addr()) }
            }
        )*
    };
}

new_nothrow! {
    _ZnwmRKSt9nothrow_t() c"_ZnwmRKSt9nothrow_t": _Znwm;
    _ZnamRKSt9nothrow_t() c"_ZnamRKSt9nothrow_t": _Znam _Znwm;
    _ZnwmSt11align_val_tRKSt9nothrow_t(align) c"_ZnwmSt11align_val_tRKSt9nothrow_t": _ZnwmSt11align_val_t;
    _ZnamSt11align_val_tRKSt9nothrow_t(align) c"_ZnamSt11align_val_tRKSt9nothrow_t":
        _ZnamSt11align_val_t _ZnwmSt11align_val_t;
}

/// operator new[]: as `new`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.ample.derived")]
pub extern "C" fn _Znam(size: usize) -> *mut c_void {
    jump!(_Znwm)
}

/// operator new[] with alignment: as `new` with alignment.
#[unsafe(naked)]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.ample.derived")]
pub extern "C" fn _ZnamSt11align_val_t(size: usize, align: usize) -> *mut c_void {
    jump!(_ZnwmSt11align_val_t)
}

/// operator delete[]: as `delete`.
///
/// # Safety
/// As for `free`, for a block from operator new.
#[unsafe(naked)]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.ample.derived")]
pub unsafe extern "C" fn _ZdaPv(block: *mut c_void) {
    jump!(_ZdlPv)
}

macro_rules! derived_deletes {
    (of_2 { $($name:ident => $primary:ident;)* } of_3 { $($name_of_3:ident => $primary_of_3:ident $($dropped:ident)?;)* }) => {
        $(
            /// operator delete that is told the size, the alignment, or `std::nothrow`: as its primary.
            ///
            /// # Safety
            /// As for `free`, for a block from operator new.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            #[unsafe(link_section = ".text.ample.derived")]
            pub unsafe extern "C" fn $name(block: *mut c_void, _: usize) {
                jump!($primary)
            }
        )*
        $(
            /// operator delete that is told the size and the alignment, or the alignment and `std::nothrow`: as its primary, which is told the
            /// alignment.
            ///
            /// # Safety
            /// As for `free`, for a block from operator new.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name_of_3(block: *mut c_void, _: usize, _: usize) {
                jump!($primary_of_3 $($dropped)?)
            }
        )*
    };
}

derived_deletes! {
    of_2 {
        _ZdlPvm => _ZdlPv;
        _ZdaPvm => _ZdaPv;
        _ZdlPvRKSt9nothrow_t => _ZdlPv;
        _ZdaPvRKSt9nothrow_t => _ZdaPv;
        _ZdaPvSt11align_val_t => _ZdlPvSt11align_val_t;
    }
    of_3 {
        _ZdlPvmSt11align_val_t => _ZdlPvSt11align_val_t without_size;
        _ZdaPvmSt11align_val_t => _ZdaPvSt11align_val_t without_size;
        _ZdlPvSt11align_val_tRKSt9nothrow_t => _ZdlPvSt11align_val_t;
        _ZdaPvSt11align_val_tRKSt9nothrow_t => _ZdaPvSt11align_val_t;
    }
}
