//! What glibc's callers ask of its malloc besides blocks: how it stands, and to give memory back. The answers are of Ample's heap.

use core::ffi::{c_char, c_int, c_void};

use ample_core::Statistics;

use crate::text::Text;

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
/// kept are not: what is needed again is mapped still. 1: something went back; 0: there was nothing.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(_pad: usize) -> c_int {
    ample_core::trim().into()
}

/// Sets one of glibc's parameters. 1 for those that tune what Ample does by itself, which then has no effect (`M_MMAP_THRESHOLD`,
/// `M_MMAP_MAX`, `M_TRIM_THRESHOLD`, `M_TOP_PAD`, `M_ARENA_MAX`, `M_ARENA_TEST`, `M_MXFAST`); 0 for those that ask for
/// something that Ample does not do (`M_PERTURB`, `M_CHECK_ACTION`) and for unknown ones.
#[unsafe(no_mangle)]
pub extern "C" fn mallopt(parameter: c_int, _value: c_int) -> c_int {
    const M_MXFAST: c_int = 1;
    const M_TRIM_THRESHOLD: c_int = -1;
    const M_MMAP_MAX: c_int = -4;
    const M_ARENA_TEST: c_int = -7;
    const M_ARENA_MAX: c_int = -8;
    let tunes = matches!(parameter, M_MXFAST | M_MMAP_MAX..=M_TRIM_THRESHOLD | M_ARENA_MAX..=M_ARENA_TEST);
    tunes.into()
}

/// Prints how the heap stands to standard error.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_stats() {
    let statistics = ample_core::statistics();
    let mut text = Text::default();
    for (name, value) in statistics.fields() {
        text.add("ample: ").add(name).add(" = ").number(value).add("\n");
    }
    text.to_standard_error();
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
    let mut text = Text::default();
    text.add("<malloc version=\"1\">\n<heap nr=\"0\">\n");
    text.add("<total type=\"rest\" count=\"").number(statistics.room_blocks);
    text.add("\" size=\"").number(statistics.free()).add("\"/>\n");
    text.add("<total type=\"mmap\" count=\"").number(statistics.large_blocks);
    text.add("\" size=\"").number(statistics.large).add("\"/>\n");
    text.add("<system type=\"current\" size=\"")
        .number(statistics.active + statistics.retained)
        .add("\"/>\n");
    text.add("<aspace type=\"total\" size=\"").number(statistics.mapped).add("\"/>\n</heap>\n");
    text.add("<ample allocated=\"").number(statistics.allocated());
    text.add("\" retained=\"").number(statistics.retained);
    text.add("\" metadata=\"").number(statistics.metadata).add("\"/>\n</malloc>\n");
    // SAFETY: the text ends in a zero; the caller's contract for the stream.
    let result = unsafe { fputs(text.as_c_str().as_ptr(), stream) };
    if result < 0 { -1 } else { 0 }
}
