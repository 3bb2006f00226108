//! `libample.so` and `libample.a`: the allocator under the names that C and C++ programs call.
//!
//! | module | holds |
//! |---|---|
//! | `c` | malloc and its family |
//! | `cxx` | C++'s operators new and delete |
//! | `runtime` | what the C++ runtime has that they need |
//! | `glibc` | what glibc's callers ask besides: mallinfo2, malloc_trim, malloc_info, … |
//! | `tbb` | the C interface of TBB's scalable allocator (`include/ample_tbb.h`) |
//! | `libc_names` | glibc: malloc's family under the names that its own has besides: `__libc_malloc`, … |
//! | `limits` | `setrlimit`, `mlockall`: addresses that are only reserved are given up before they count |
//! | `own` | Ample's own functions (`include/ample.h`) |
//! | `opening` | glibc: `dlopen`, so that every library that a program opens sees our malloc |
//! | `caller` | who calls free: the C library itself, or anybody else |
//! | `foreign` | blocks that came from the C library's own malloc |
//! | `weak` | addresses of functions that not every program has |
//! | `placed` | where in memory the functions begin that are called most |
#![cfg_attr(not(test), no_std)]

#[macro_use]
mod weak;

mod c;
mod caller;
mod cxx;
mod foreign;
mod glibc;
#[cfg(target_env = "gnu")]
mod libc_names;
mod limits;
#[cfg(target_env = "gnu")]
mod opening;
mod own;
mod placed;
mod runtime;
mod tbb;

/// Ends the process: this library neither unwinds nor formats.
#[cfg_attr(not(test), panic_handler)]
#[cfg_attr(test, expect(dead_code, reason = "std has its own"))]
fn panic(_: &core::panic::PanicInfo) -> ! {
    const MESSAGE: &[u8] = b"ample: internal error\n";
    // SAFETY: the text is readable; the process ends whether or not it could be written.
    unsafe {
        libc::write(2, MESSAGE.as_ptr().cast(), MESSAGE.len());
        libc::abort()
    }
}

/// Runs when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static PREPARE: extern "C" fn() = {
    extern "C" fn prepare() {
        caller::learn();
        ample_core::prepare();
    }
    prepare
};

/// Runs when the process ends.
#[used]
#[unsafe(link_section = ".fini_array")]
static FINISH: extern "C" fn() = {
    extern "C" fn finish() {
        ample_core::finish();
    }
    finish
};

#[link(name = "c")]
unsafe extern "C" {}
