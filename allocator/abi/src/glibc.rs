//! What glibc's callers ask of malloc besides blocks: statistics, and to give memory back. The answers are about Ample's heap.

use core::ffi::{c_char, c_int, c_void};

use ample_core::text::Cut;
use ample_core::{Parameter, Statistics};

/// `struct mallinfo2` of `malloc.h`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct MallInfo2 {
    arena: usize,
    ordblks: usize,
    smblks: usize,
    hblks: usize,
    hblkhd: usize,
    usmblks: usize,
    fsmblks: usize,
    uordblks: usize,
    fordblks: usize,
    keepcost: usize,
}

/// `struct mallinfo` of `malloc.h`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct MallInfo {
    arena: c_int,
    ordblks: c_int,
    smblks: c_int,
    hblks: c_int,
    hblkhd: c_int,
    usmblks: c_int,
    fsmblks: c_int,
    uordblks: c_int,
    fordblks: c_int,
    keepcost: c_int,
}

impl MallInfo2 {
    fn of(statistics: &Statistics) -> Self {
        Self {
            arena: statistics.active - statistics.large + statistics.retained,
            ordblks: statistics.room_blocks,
            hblks: statistics.large_blocks,
            hblkhd: statistics.large,
            uordblks: statistics.allocated(),
            fordblks: statistics.free(),
            keepcost: statistics.retained,
            ..Self::default()
        }
    }
}

/// How the heap stands, in bytes: `arena` in spans of small blocks and free pages, `hblkhd` in `hblks` large blocks,
/// `uordblks` handed out or in threads' caches, `fordblks` free, of which `malloc_trim` can give `keepcost` back to the system.
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo2() -> MallInfo2 {
    MallInfo2::of(&ample_core::statistics())
}

/// As [`mallinfo2`], in fields that are too small for large heaps: they hold `INT_MAX` then.
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo() -> MallInfo {
    let info = mallinfo2();
    let small = |value: usize| c_int::try_from(value).unwrap_or(c_int::MAX);
    MallInfo {
        arena: small(info.arena),
        ordblks: small(info.ordblks),
        smblks: small(info.smblks),
        hblks: small(info.hblks),
        hblkhd: small(info.hblkhd),
        usmblks: small(info.usmblks),
        fsmblks: small(info.fsmblks),
        uordblks: small(info.uordblks),
        fordblks: small(info.fordblks),
        keepcost: small(info.keepcost),
    }
}

/// Gives free memory back to the system: that of this thread's caches, of idle threads' and of the page heap. `pad` bytes to be
/// kept are not: what is needed again is mapped still. 1: something went back; 0: there was nothing, or this is asked for too often:
/// more than eight times in a row and then twice a second where the helper thread gives back later what stays, or eight times a second
/// where it does not; there, 8 MiB that are a quarter of what is in memory go back all the same. [`crate::own::ample_trim`] keeps to no pace.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(_pad: usize) -> c_int {
    ample_core::trim_at_pace().into()
}

/// Sets one of glibc's parameters. `M_MMAP_THRESHOLD`, `M_MMAP_MAX`, `M_TRIM_THRESHOLD` and `M_TOP_PAD` say when memory goes back
/// to the system, and end what Ample decides by itself otherwise (`ample.h` has the details). `M_ARENA_MAX`, `M_ARENA_TEST` and
/// `M_MXFAST` are taken and have no effect. 0 for those that ask for something that Ample does not do (`M_PERTURB`,
/// `M_CHECK_ACTION`), for unknown ones, and for a negative padding.
#[unsafe(no_mangle)]
pub extern "C" fn mallopt(parameter: c_int, value: c_int) -> c_int {
    const M_MXFAST: c_int = 1;
    const M_TRIM_THRESHOLD: c_int = -1;
    const M_TOP_PAD: c_int = -2;
    const M_MMAP_THRESHOLD: c_int = -3;
    const M_MMAP_MAX: c_int = -4;
    const M_CHECK_ACTION: c_int = -5;
    const M_PERTURB: c_int = -6;
    const M_ARENA_TEST: c_int = -7;
    const M_ARENA_MAX: c_int = -8;
    // A negative size is a very large one, as in glibc: -1 turns trimming off.
    let size = usize::try_from(value).unwrap_or(usize::MAX);
    let (parameter, value) = match parameter {
        M_MMAP_THRESHOLD => (Parameter::MmapThreshold, size),
        M_MMAP_MAX => (Parameter::MmapMax, usize::try_from(value).unwrap_or(0)),
        M_TRIM_THRESHOLD => (Parameter::TrimThreshold, size),
        M_TOP_PAD if value >= 0 => (Parameter::TopPad, size),
        M_MXFAST | M_ARENA_TEST | M_ARENA_MAX => return 1,
        // Nothing is asked for.
        M_CHECK_ACTION | M_PERTURB if value == 0 => return 1,
        _ => return 0,
    };
    ample_core::set_parameter(parameter, value);
    1
}

/// Prints how the heap stands to standard error.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_stats() {
    ample_core::print_statistics();
}

unsafe extern "C" {
    fn fputs(text: *const c_char, stream: *mut c_void) -> c_int;
}

/// Writes how the heap stands to `stream`, as XML with glibc's elements where they fit. 0: done; EINVAL: `options` is not 0; -1: the
/// stream refused it.
///
/// # Safety
/// `stream` is an open `FILE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_info(options: c_int, stream: *mut c_void) -> c_int {
    if options != 0 {
        return libc::EINVAL;
    }
    let statistics = ample_core::statistics();
    let mut bytes = [0; 16 << 10];
    // The last byte is never written, and ends the text.
    let mut text = Cut::new(&mut bytes[..(16 << 10) - 1]);
    text.add_number(
        "<malloc version=\"1\">\n<heap nr=\"0\">\n<total type=\"rest\" count=\"",
        statistics.room_blocks,
    );
    text.add_number("\" size=\"", statistics.free());
    text.add_number("\"/>\n<total type=\"mmap\" count=\"", statistics.large_blocks);
    text.add_number("\" size=\"", statistics.large);
    text.add_number("\"/>\n<system type=\"current\" size=\"", statistics.active + statistics.retained);
    text.add_number("\"/>\n<aspace type=\"total\" size=\"", statistics.mapped);
    text.add_number("\"/>\n</heap>\n<ample allocated=\"", statistics.allocated());
    text.add_number("\" resident=\"", statistics.resident());
    text.add_number("\" retained=\"", statistics.retained);
    text.add_number("\" metadata=\"", statistics.metadata);
    let mut before = "\">\n<class block_bytes=\"";
    for class in statistics.classes_in_use() {
        text.add_number(before, class.size);
        text.add_number("\" spans=\"", class.spans);
        text.add_number("\" live=\"", class.live);
        text.add_number("\" cached=\"", class.cached);
        text.add_number("\" room=\"", class.room);
        before = "\"/>\n<class block_bytes=\"";
    }
    text.add(if statistics.classes_in_use().next().is_some() { "\"/>\n" } else { "\">\n" });
    text.add("</ample>\n</malloc>\n");
    // SAFETY: the text ends in a zero; the caller's contract for the stream.
    let result = unsafe { fputs(bytes.as_ptr().cast(), stream) };
    if result < 0 { -1 } else { 0 }
}
