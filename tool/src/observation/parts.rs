//! What a process has in memory: malloc's part, stacks, what it wrote to files' pages, and the rest.

use std::ops::Range;

use procfs::process::{MMPermissions, MMapPath, MemoryMap, MemoryPageFlags, PageInfo, Process, VmFlags};
use serde::Serialize;

/// Data that begins as zeros is no longer than this behind a file; what is, only happens to lie there.
const MOST_ZEROS: u64 = 16 << 20;

/// A part of the memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Part {
    /// Bytes that are resident.
    pub bytes: u64,
    /// Of them, those in huge pages.
    pub huge_bytes: u64,
}

/// The memory of a process that is its own, at a moment. Mapped files are left out, and the observer's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Parts {
    /// When, in milliseconds since the program began.
    pub at_ms: u64,
    /// Bytes live then.
    pub live_bytes: u64,
    /// Mappings with blocks of malloc's. (What the program maps by `mmap` beside them is a mapping of its own: the observer marks it.)
    pub malloc: Part,
    /// Stacks of threads that called malloc, and the first thread's.
    pub stacks: Part,
    /// What was written to pages of programs and libraries: their data.
    pub files: Part,
    /// What the program maps itself, or a runtime: heaps that are not malloc's.
    pub others: Part,
}

impl Parts {
    /// All of it, in bytes.
    pub fn total(&self) -> u64 {
        self.malloc.bytes + self.beside()
    }

    /// What is not malloc's, in bytes.
    pub fn beside(&self) -> u64 {
        self.stacks.bytes + self.files.bytes + self.others.bytes
    }
}

/// What the observer knows of the process's addresses.
#[derive(Debug, Default)]
pub struct Known {
    /// Where there are blocks, or were, in order.
    pub places: Vec<u64>,
    /// Stacks of threads.
    pub stacks: Vec<Range<u64>>,
}

impl Known {
    fn has_block_in(&self, range: &Range<u64>) -> bool {
        let first = self.places.partition_point(|place| *place < range.start);
        self.places.get(first).is_some_and(|place| *place < range.end)
    }
}

/// Tells the parts from mappings in the order of their addresses. `resident`: bytes in memory of a range.
pub fn parts(maps: &[MemoryMap], known: &Known, resident: impl Fn(Range<u64>) -> u64) -> Parts {
    let mut parts = Parts::default();
    let mut files_end = 0;
    for map in maps {
        let range = map.address.0..map.address.1;
        let follows_file = files_end == range.start && range.end - range.start <= MOST_ZEROS;
        let is_file = matches!(map.pathname, MMapPath::Path(_));
        if is_file {
            files_end = range.end;
        }
        let figure = |name| map.extension.map.get(name).copied().unwrap_or(0);
        let (bytes, huge_bytes) = (figure("Anonymous"), figure("AnonHugePages"));
        if bytes == 0 || map.perms.contains(MMPermissions::SHARED) || is_observers(map) {
            continue;
        }
        // The system makes one mapping of a stack and what lies directly behind it.
        let stack = known.stacks.iter().find(|stack| stack.start == range.start);
        let of_stack = match stack {
            Some(stack) if stack.end < range.end => resident(stack.clone()).min(bytes),
            Some(_) => bytes,
            None => 0,
        };
        let huge_of_stack = huge_bytes.min(of_stack);
        parts.stacks.add(of_stack, huge_of_stack);
        let rest = match map.pathname {
            MMapPath::Heap => &mut parts.malloc,
            MMapPath::Stack | MMapPath::TStack(_) => &mut parts.stacks,
            _ if known.has_block_in(&range) => &mut parts.malloc,
            // What a library has beyond its file's end is data that begins as zeros.
            _ if is_file || follows_file => &mut parts.files,
            _ => &mut parts.others,
        };
        rest.add(bytes - of_stack, huge_bytes - huge_of_stack);
    }
    parts
}

impl Part {
    fn add(&mut self, bytes: u64, huge_bytes: u64) {
        self.bytes += bytes;
        self.huge_bytes += huge_bytes;
    }
}

/// Bytes of a range that are in memory; none where the system does not tell.
pub fn in_memory(process: &Process, range: Range<u64>) -> Option<u64> {
    let page = procfs::page_size();
    let pages = usize::try_from(range.start / page).ok()?..usize::try_from(range.end / page).ok()?;
    let infos = process.pagemap().ok()?.get_range_info(pages).ok()?;
    let present = infos.iter().filter(
        |info| matches!(info, PageInfo::MemoryPage(flags) if flags.contains(MemoryPageFlags::PRESENT)),
    );
    Some(present.count() as u64 * page)
}

/// Whether it is memory of the observer's tables, by the marks that it gives it.
fn is_observers(map: &MemoryMap) -> bool {
    map.extension.vm_flags.contains(VmFlags::RR | VmFlags::DD) && map.pathname == MMapPath::Anonymous
}

#[cfg(test)]
mod tests {
    use procfs::FromRead as _;
    use procfs::process::MemoryMaps;

    use super::*;

    /// A mapping as `smaps` has it, in KiB.
    fn mapping(range: &str, access: &str, path: &str, [anonymous, huge]: [u64; 2], flags: &str) -> String {
        format!(
            "{range} {access} 00000000 00:00 0    {path}\nSize: 1 kB\nAnonymous: {anonymous} kB\nAnonHugePages: {huge} kB\nVmFlags: {flags}\n"
        )
    }

    fn told(mappings: &[String], known: &Known) -> [(u64, u64); 4] {
        let maps = MemoryMaps::from_read(mappings.concat().as_bytes()).expect("smaps");
        let parts = parts(&maps.0, known, |range| {
            assert_eq!(range, 0x30000..0x40000);
            40 << 10
        });
        [parts.malloc, parts.stacks, parts.files, parts.others]
            .map(|part| (part.bytes >> 10, part.huge_bytes >> 10))
    }

    #[test]
    fn each_mapping_is_part_of_what_it_holds() {
        let known =
            Known { places: vec![0x50010, 0x71000], stacks: vec![0x30000..0x40000, 0x90000..0x98000] };
        let mappings = [
            mapping("00010000-00011000", "rw-p", "/lib/a.so", [4, 0], "rd wr"),
            mapping("00011000-00013000", "rw-p", "", [8, 0], "rd wr"),
            mapping("00020000-00021000", "rw-p", "[heap]", [16, 0], "rd wr"),
            mapping("0002f000-00030000", "---p", "", [0, 0], ""),
            mapping("00030000-00050000", "rw-p", "", [100, 0], "rd wr"),
            mapping("00050000-00060000", "rw-p", "", [4096, 2048], "rd wr"),
            mapping("00070000-00071000", "rw-p", "", [32, 0], "rd wr"),
            mapping("00080000-00081000", "rw-p", "", [64, 0], "rd wr rr dd"),
            mapping("00082000-00083000", "rw-s", "/dev/zero", [128, 0], "rd wr"),
            mapping("00090000-00098000", "rw-p", "", [2048, 2048], "rd wr"),
            mapping("000a0000-000a1000", "rw-p", "[stack]", [256, 0], "rd wr"),
            mapping("000b0000-000b1000", "rw-p", "/lib/c.so", [1, 0], "rd wr"),
            mapping("000b1000-020b1000", "rw-p", "", [512, 0], "rd wr"),
        ];
        assert_eq!(
            told(&mappings, &known),
            [(16 + 4096, 2048), (40 + 2048 + 256, 2048), (13, 0), (60 + 32 + 512, 0)]
        );
    }

    #[test]
    fn a_stack_whose_place_another_mapping_has_is_none() {
        let known = Known { places: vec![], stacks: std::iter::once(0x30000..0x40000).collect() };
        let mappings = [mapping("00028000-00050000", "rw-p", "", [100, 0], "rd wr")];
        assert_eq!(told(&mappings, &known), [(0, 0), (0, 0), (0, 0), (100, 0)]);
    }
}
