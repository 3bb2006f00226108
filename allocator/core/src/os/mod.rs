//! The operating system as the allocator needs it: one page, the same for every system.
//!
//! | function | contract |
//! |---|---|
//! | `map(len, align)` | zeroed, readable and writable memory at a multiple of `align`, or `None` |
//! | `reserve(place, len)` | addresses that read as zero, for a large table of which little will be used, exactly there if a place is named |
//! | `make_writable(start, len)` | part of what `reserve` gave can be written from now on; `false` where refused |
//! | `give_up(start, len)` | part of what `reserve` gave is free for others; `false` where refused: nothing happened |
//! | `address_limit()` | bytes of addresses that the process may have, `None` without a limit |
//! | `each_mapping(visit)` | visits the addresses of all that is mapped, as far as that is known, and where the program's own heap begins |
//! | `map_at(address, len)` | as `map`, exactly there, or `None` where something is mapped already |
//! | `page_size()` | bytes of the system's pages, at least [`PAGE`] |
//! | `purge(start, len)` | gives the memory back, keeps the addresses: reads as zero from now on, and is locked (`mlock`) no more; `false` where refused |
//! | `keep_locked()` | from now on, `purge` refuses what is locked |
//! | `purge_together(parts)` | `purge` of several parts, no more than [`PARTS`], by one call; `false` where the system has none, or refuses some: then any of them may be as before |
//! | `processors()` | how many processors the process may run on, at least 1 |
//! | `threads()` | how many threads the process has, also of those that never asked for memory; `None` where that is not known |
//! | `never_had_threads()` | whether the process has had one thread only; `false` where that is not known. A signal handler may call it |
//! | `huge_pages()` | whether memory that is marked for huge pages gets them |
//! | `collapse(start, len, marked)` | makes memory of `map`, zeroed or not, resident in huge pages, where it is marked for them or not; `false` where refused |
//! | `mark(start, len, huge)` | memory of `map` gets huge pages as it is touched from now on, or gets none; `false` where refused |
//! | `touch(address)` | writes to the page there, of memory of `map`, what it holds |
//! | `resident(start, len, most)` | how many bytes of memory of `map` are in memory; no longer exact beyond `most`; `None` where that is not known |
//! | `window()` | all addresses that `map` can return lie in it |
//! | `remap(from, to, len, remapped)` | moves pages from one place of `map` to another, whose own are lost; `from` reads as zero from now on; else see [`Moved`]. `remapped`: some of them came by it |
//! | `unmix(start, len)` | makes memory that `remap` filled like any other of `map` again: it reads as zero; `false` where refused: nothing happened |
//! | `wait(word, expected)` | sleeps while `*word == expected`; may return early |
//! | `wait_for(word, expected, ms)` | the same, for no longer than that |
//! | `wake(word, count)` | wakes up to that many sleepers |
//! | `barrier_everywhere()` | a full memory barrier in every thread of the process; `false` where there is none |
//! | `settle_thread(name)` | names the calling thread, for people; it runs where the process's first thread may, with no priority, whatever the thread was allowed that started it |
//! | `start_thread(body)` | starts a thread that gets no signals; `false` where refused |
//! | `on_signal(number, handler)` | calls the handler when the process gets that signal; `false` where refused |
//! | `thread_id()` | a number that no other live thread has; not 0 |
//! | `now_ms()` | a clock in milliseconds that never runs backwards; cheap, coarse |
//! | `now_us()` | a clock in microseconds that never runs backwards; exact |
//! | `worked_us()` | microseconds of processor time that the calling thread has used, what it waited for others left out; exact; 0 where refused |
//! | `has_environment()` | whether `environment` can be asked already |
//! | `environment(name)` | an environment variable (`name` ends in a zero); `None` also in privileged processes |
//! | `memory_limit()` | bytes of memory that the process's control group, or one above it, may have; `None` without a limit |
//! | `process_id()` | the number of the process |
//! | `standard_error()` | the file that `tell` writes to |
//! | `create(path)` | a file to write to, empty; `None` where refused |
//! | `write(file, bytes)` | appends to a file; what the system refuses is lost |
//! | `tell(parts)` | writes to standard error |
//! | `die(message)` | one line on standard error, then the end of the process |
//!
//! `len` and `align` are multiples of [`PAGE`]; `errno` stays as it was.

/// The smallest page of any machine that we run on. The system's own page may be larger: what gives pages back, or moves them, refuses parts of such
/// pages.
pub(crate) const PAGE: usize = 4096;

/// Bits of an address of a program: 47 on x86-64 (the kernel gives more only to those who ask for it), 48 on aarch64.
pub(crate) const ADDRESS_BITS: u32 = if cfg!(target_arch = "aarch64") { 48 } else { 47 };

/// Parts that `purge_together` takes at once.
pub(crate) const PARTS: usize = 128;

/// A part of memory, as the system takes it (`iovec`).
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Part {
    pub(crate) start: usize,
    pub(crate) len: usize,
}

impl Part {
    pub(crate) const NOTHING: Self = Self { start: 0, len: 0 };
}

/// What became of pages that were to move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moved {
    Yes,
    /// Nothing happened.
    No,
    /// They are where they were; but where they were to go may be anybody's from now on.
    PlaceLost,
    /// A part of them moved, and nobody knows which: no use of them is safe.
    Torn,
}

/// Whether Linux gives huge pages to memory that is marked for them, from what it tells: its files `enabled`, and `hpage_pmd_size`, which it has since 4.10. Not where a huge page
/// has another size than a chunk, as on aarch64 with pages of 16 or 64 KiB (32 and 512 MiB): nothing here is made for those.
fn gives_huge_pages(enabled: &[u8], size: &[u8]) -> bool {
    let chosen = |choice: &[u8]| enabled.windows(choice.len()).any(|part| part == choice);
    (size.is_empty() || size.trim_ascii() == b"2097152") && (chosen(b"[always]") || chosen(b"[madvise]"))
}

/// What a thread does.
pub(crate) type Body = extern "C" fn(*mut core::ffi::c_void) -> *mut core::ffi::c_void;

mod cgroup;
mod maps;
mod writer;

pub(crate) use writer::Writer;

/// Whether the page at `address`, the first byte of a page of memory of `map`, is in memory; `false` where that is not known.
pub(crate) fn is_resident(address: usize) -> bool {
    resident(address, PAGE, 0).is_some_and(|bytes| bytes > 0)
}

#[cfg(not(any(test, miri)))]
mod linux;
#[cfg(not(any(test, miri)))]
use linux as system;
#[cfg(any(test, miri))]
mod simulated;
#[cfg(any(test, miri))]
use simulated as system;

// But for the four that follow.
pub(crate) use system::*;

/// Whether all of a part are whole pages of the system's, which rounds lengths up, and would take what lies behind the part.
fn is_whole(start: usize, len: usize) -> bool {
    (start | len).is_multiple_of(page_size())
}

/// # Safety
/// `[start, start + len)` was returned by [`map`], and nobody needs its content any more.
pub(crate) unsafe fn purge(start: usize, len: usize) -> bool {
    // SAFETY: the caller's contract.
    is_whole(start, len) && unsafe { system::purge(start, len) }
}

/// # Safety
/// As for [`purge`], for each part.
pub(crate) unsafe fn purge_together(parts: &[Part]) -> bool {
    let bits = parts.iter().fold(0, |bits, part| bits | part.start | part.len);
    // SAFETY: the caller's contract.
    is_whole(bits, 0) && unsafe { system::purge_together(parts) }
}

/// # Safety
/// Both ranges were returned by [`map`]; nobody uses the one at `from` but its owner, who calls, and nobody the one at `to`.
pub(crate) unsafe fn remap(from: usize, to: usize, len: usize, remapped: bool) -> Moved {
    // SAFETY: the caller's contract.
    if is_whole(from | to, len) { unsafe { system::remap(from, to, len, remapped) } } else { Moved::No }
}

/// # Safety
/// As for [`purge`].
pub(crate) unsafe fn unmix(start: usize, len: usize) -> bool {
    // SAFETY: the caller's contract.
    is_whole(start, len) && unsafe { system::unmix(start, len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_known_from_what_linux_tells() {
        let gives = |enabled: &str, size: &str| gives_huge_pages(enabled.as_bytes(), size.as_bytes());
        assert!(
            gives("always [madvise] never\n", "2097152\n") && gives("[always] madvise never\n", "2097152\n")
        );
        assert!(gives("always [madvise] never\n", ""), "an old kernel");
        assert!(!gives("always madvise [never]\n", "2097152\n"));
        assert!(!gives("", ""), "a kernel without them");
        for other in ["33554432\n", "536870912\n"] {
            assert!(!gives("[always] madvise never\n", other));
        }
    }
}
