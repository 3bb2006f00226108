//! What glibc's malloc has in a process that runs: a walk over its heaps, from outside.
//!
//! Its blocks lie side by side, each with its length before it and a bit that tells whether the one before it is in use (Doug Lea's boundary tags;
//! glibc's `malloc/malloc.c`, "malloc_chunk"; tried with 2.27 to 2.42). The first thread's arena grows by `brk`; the others consist of heaps of
//! up to 64 MiB, at multiples of that, which begin with their arena and their length. Large blocks have mappings of their own.
//!
//! The process goes on meanwhile, so that a walk may meet what is being changed: each step is checked, and a walk that is lost begins
//! again behind that place. What no walk came through is told as unknown.

use std::ops::Range;
use std::time::{Duration, Instant};

use procfs::process::{MMPermissions, MMapPath, MemoryMap};
use serde::Serialize;

use super::contents::Contents;

/// Where the heaps of further arenas begin, and how long they are at most.
const HEAP: u64 = 64 << 20;
/// Before a block: the length of the one before it, if that is free, then its own with [`BEFORE_IS_USED`] and [`IS_MAPPED`].
const WORD: u64 = 8;
const ALIGNED: u64 = 16;
const LEAST: u64 = 32;
const BEFORE_IS_USED: u64 = 1;
const IS_MAPPED: u64 = 2;
const FLAGS: u64 = 7;
/// In an arena, which begins with its lock: where its bins begin, as the free blocks in them have it, and its length at most.
const BINS: Range<u64> = 96..2160;
const ARENA: usize = 2304;
/// Steps that a walk must take to be believed, unless it comes to the end before.
const BELIEVED: usize = 32;
/// How far behind the place where a walk was lost the next one begins, at most.
const BEHIND: u64 = 1 << 20;
/// Bytes that are read at once.
const WINDOW: usize = 64 << 10;
/// How long all walks may take together, and steps between two looks at the clock.
const PATIENCE: Duration = Duration::from_secs(5);
const STEPS: usize = 4096;

/// What glibc's malloc has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Heaps {
    /// Arenas, the first one included.
    pub arenas: u64,
    /// Bytes that they have from the system.
    pub bytes: u64,
    /// Blocks in use, those in mappings of their own left out. What threads keep in their caches, and fastbins, counts as in use.
    pub used_blocks: u64,
    /// Their bytes, with the eight before each.
    pub used_bytes: u64,
    /// Bytes that are free, in memory or not.
    pub free_bytes: u64,
    /// Bytes of which nothing is known: the walks came not through, or they are on disk, and to read them would bring them back.
    pub unknown_bytes: u64,
    /// Blocks in mappings of their own.
    pub mapped_blocks: u64,
    /// Their bytes.
    pub mapped_bytes: u64,
}

impl Heaps {
    /// Bytes in use at most, all together.
    pub fn live_bytes(&self) -> u64 {
        self.used_bytes + self.mapped_bytes
    }

    /// Whether nearly all of it was walked through.
    pub fn are_known(&self) -> bool {
        self.unknown_bytes <= (self.bytes + self.mapped_bytes) / 10
    }
}

/// What a walk over all heaps finds.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// The figures.
    pub heaps: Heaps,
    /// An address in each mapping of malloc's.
    pub places: Vec<u64>,
    /// Where the arenas' locks are, or may be.
    pub locks: Vec<Range<u64>>,
}

/// Walks over all heaps of these mappings, in the order of their addresses. `data`: what glibc itself can write to.
pub(super) fn survey(maps: &[MemoryMap], data: &[Range<u64>], memory: &impl Contents) -> Survey {
    let mut survey = Survey::default();
    let mut walker = Walker::new(memory, data);
    let mut arenas = Vec::new();
    for map in maps.iter().filter(|map| is_writable(map)) {
        let range = map.address.0..map.address.1;
        if map.pathname == MMapPath::Heap {
            survey.heaps.arenas = 1;
            survey.places.push(range.start);
            survey.add(&mut walker, range, map);
        } else if map.pathname == MMapPath::Anonymous && figure(map, "Rss") + figure(map, "Swap") > 0 {
            let heaps = heaps(&range, memory);
            for (heap, arena) in &heaps {
                arenas.push(*arena);
                survey.places.push(heap.start);
                survey.add(&mut walker, heap.clone(), map);
            }
            if heaps.is_empty() && figure(map, "Swap") == 0 {
                survey.add_mapped(&range, memory);
            }
        }
    }
    arenas.sort_unstable();
    arenas.dedup();
    survey.heaps.arenas += arenas.len() as u64;
    survey.locks = arenas.iter().map(|arena| *arena..arena + WORD).collect();
    survey.locks.extend(arenas.iter().find_map(|arena| following(*arena, data, memory)).or(walker.lock()));
    survey
}

impl Survey {
    fn add(&mut self, walker: &mut Walker<'_, impl Contents>, range: Range<u64>, map: &MemoryMap) {
        let length = range.end - range.start;
        self.heaps.bytes += length;
        if figure(map, "Swap") > 0 {
            self.heaps.unknown_bytes += length;
            return;
        }
        let tally = walker.walk_all(range);
        self.heaps.used_blocks += tally.used_blocks;
        self.heaps.used_bytes += tally.used_bytes;
        self.heaps.free_bytes += tally.free_bytes;
        self.heaps.unknown_bytes += length.saturating_sub(tally.used_bytes + tally.free_bytes);
    }

    /// Blocks in mappings of their own, of which the system makes one where they lie side by side.
    fn add_mapped(&mut self, range: &Range<u64>, memory: &impl Contents) {
        let mut at = range.start;
        while let Some([before, head]) = words(at, memory) {
            let length = head & !FLAGS;
            let is_block = before == 0 && head & FLAGS == IS_MAPPED && length > 0;
            if !is_block || !length.is_multiple_of(procfs::page_size()) || length > range.end - at {
                break;
            }
            if at == range.start {
                self.places.push(at);
            }
            self.heaps.mapped_blocks += 1;
            self.heaps.mapped_bytes += length;
            at += length;
        }
    }
}

fn is_writable(map: &MemoryMap) -> bool {
    map.perms.contains(MMPermissions::WRITE | MMPermissions::PRIVATE)
}

/// A figure of `smaps`, in bytes.
fn figure(map: &MemoryMap, name: &str) -> u64 {
    map.extension.map.get(name).copied().unwrap_or(0)
}

/// The heaps of further arenas in a mapping, each with its arena.
fn heaps(range: &Range<u64>, memory: &impl Contents) -> Vec<(Range<u64>, u64)> {
    let begins = (range.start.next_multiple_of(HEAP)..range.end).step_by(HEAP as usize);
    let heap = |at: u64| {
        // The arena, the heap before this one in it, the bytes of this one that are in use.
        let [arena, before] = words(at, memory)?;
        let [length, _] = words(at + 2 * WORD, memory)?;
        let behind_head = arena % HEAP;
        let is_heap = arena != 0
            && (1..4096).contains(&behind_head)
            && before.is_multiple_of(HEAP)
            && (before == 0) == (arena - behind_head == at)
            && length.is_multiple_of(procfs::page_size())
            && (1..=HEAP).contains(&length);
        // It may have grown since.
        is_heap.then(|| (at..range.end.min(at + length), arena))
    };
    begins.filter_map(heap).collect()
}

/// The first arena, which is glibc's own data: the others lead to it, as all are in a ring.
fn following(arena: u64, data: &[Range<u64>], memory: &impl Contents) -> Option<Range<u64>> {
    let mut bytes = vec![0; ARENA];
    let count = memory.read(arena, &mut bytes);
    let words = bytes[..count].as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
    let first = words.into_iter().find(|word| data.iter().any(|range| range.contains(word)))?;
    Some(first..first + WORD)
}

fn words(at: u64, memory: &impl Contents) -> Option<[u64; 2]> {
    let mut bytes = [0; 16];
    let is_there = memory.read(at, &mut bytes) == bytes.len();
    let word = |place: usize| bytes.as_chunks().0.get(place).map(|word| u64::from_ne_bytes(*word));
    is_there.then_some([word(0)?, word(1)?])
}

/// What was walked through.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    used_blocks: u64,
    used_bytes: u64,
    free_bytes: u64,
}

struct Walker<'a, M> {
    memory: &'a M,
    /// What glibc can write to: the first arena is in it.
    data: &'a [Range<u64>],
    /// Bytes that were read, and where they begin.
    window: Vec<u8>,
    at: u64,
    ends: Instant,
    /// The least bin of the first arena that a free block points to.
    least_bin: Option<u64>,
}

impl<'a, M: Contents> Walker<'a, M> {
    fn new(memory: &'a M, data: &'a [Range<u64>]) -> Self {
        Self { memory, data, window: Vec::new(), at: 0, ends: Instant::now() + PATIENCE, least_bin: None }
    }

    /// Where the lock of the first arena may be: so much before the least bin that was seen.
    fn lock(&self) -> Option<Range<u64>> {
        let bin = self.least_bin?;
        Some(bin.saturating_sub(BINS.end)..bin.saturating_sub(BINS.start) + 1)
    }

    fn walk_all(&mut self, range: Range<u64>) -> Tally {
        let mut tally = Tally::default();
        let mut at = range.start;
        self.window.clear();
        while at < range.end && Instant::now() < self.ends {
            let Some(first) = self.find(at, range.end) else { break };
            at = self.walk(first, range.end, usize::MAX, &mut tally).0;
            // What is there has been changed since, or will be read as it is now.
            self.window.clear();
        }
        tally
    }

    /// From here on, the first place from which a walk leads on.
    fn find(&mut self, from: u64, end: u64) -> Option<u64> {
        let candidates = (from..end.min(from + BEHIND)).step_by(ALIGNED as usize);
        candidates.into_iter().find(|&at| {
            let (stopped, steps) = self.walk(at, end, BELIEVED, &mut Tally::default());
            steps == BELIEVED || stopped == end
        })
    }

    /// From block to block, so many steps at most: where it stopped, and after how many.
    fn walk(&mut self, from: u64, end: u64, most: usize, tally: &mut Tally) -> (u64, usize) {
        let (mut at, mut before) = (from, None);
        for step in 0..most {
            if step % STEPS == STEPS - 1 && Instant::now() > self.ends {
                return (at, step);
            }
            let Some(head) = self.word(at + WORD) else { return (at, step) };
            let length = head & !FLAGS;
            let left = end - at;
            // What is left at the heap's end, behind a block in use; more than there was where the heap has grown since. Or what marks the end of a heap that is full.
            let is_last =
                head & FLAGS == BEFORE_IS_USED && (length == left || length > left && before.is_some());
            let is_end = left <= 2 * ALIGNED && length <= ALIGNED && before.is_some();
            let is_block = (LEAST..left).contains(&length) && head & IS_MAPPED == 0;
            if !length.is_multiple_of(ALIGNED) || !(is_last || is_end || is_block) {
                return (at, step);
            }
            if let Some((before, next)) = before {
                if head & BEFORE_IS_USED != 0 {
                    tally.used_blocks += 1;
                    tally.used_bytes += before;
                } else if self.word(at) == Some(before) {
                    tally.free_bytes += before;
                    self.note_bin(next);
                } else {
                    return (at, step);
                }
            }
            if is_last || is_end {
                tally.free_bytes += left;
                return (end, step);
            }
            before = Some((length, self.word(at + 2 * WORD)));
            at += length;
        }
        (at, most)
    }

    /// A free block points to the next one, or to the bin that both are in.
    fn note_bin(&mut self, next: Option<u64>) {
        let bin = next.filter(|next| self.data.iter().any(|data| data.contains(next)));
        self.least_bin = [self.least_bin, bin].into_iter().flatten().min();
    }

    fn word(&mut self, at: u64) -> Option<u64> {
        let end = self.at + self.window.len() as u64;
        if at < self.at || at + WORD > end {
            self.window.resize(WINDOW, 0);
            let count = self.memory.read(at, &mut self.window);
            self.window.truncate(count);
            self.at = at;
        }
        let offset = usize::try_from(at - self.at).ok()?;
        let bytes = self.window.get(offset..offset + WORD as usize)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use procfs::FromRead as _;
    use procfs::process::MemoryMaps;

    use super::*;
    use crate::running::contents::Fake;

    impl Fake {
        /// Blocks from here on, some of them free, and what is left after them. The last one is in use.
        fn fill(&mut self, range: Range<u64>, lengths: &[u64], is_free: impl Fn(usize) -> bool, bin: u64) {
            let (mut at, mut before) = (range.start, None);
            for (place, length) in lengths.iter().chain([&0]).enumerate() {
                let length = if *length == 0 { range.end - at } else { *length };
                let flag = if before.is_some() { 0 } else { BEFORE_IS_USED };
                self.put(at, &[before.unwrap_or(0x61), length | flag]);
                before = (place < lengths.len() && is_free(place)).then(|| {
                    self.put(at + 2 * WORD, &[bin, bin]);
                    length
                });
                at += length;
            }
        }
    }

    fn mapping(range: &Range<u64>, path: &str, swap: u64) -> MemoryMap {
        let text = format!(
            "{:x}-{:x} rw-p 00000000 00:00 0    {path}\nRss: 4 kB\nSwap: {swap} kB\nVmFlags: rd wr\n",
            range.start, range.end
        );
        MemoryMaps::from_read(text.as_bytes()).expect("smaps").0.remove(0)
    }

    const DATA: Range<u64> = 0x7000_0000_1000..0x7000_0000_3000;

    #[test]
    fn the_first_arena_is_walked_from_block_to_block() {
        let range = 0x10000..0x90000;
        let mut memory = Fake::new(&range);
        let lengths: Vec<u64> = (0..900).map(|place| 32 + 16 * (place % 30)).collect();
        memory.fill(range.clone(), &lengths, |place| place % 3 == 1, DATA.start + 0x200);
        let used: Vec<u64> = lengths
            .iter()
            .enumerate()
            .filter(|(place, _)| place % 3 != 1)
            .map(|(_, length)| *length)
            .collect();
        let told = survey(&[mapping(&range, "[heap]", 0)], &[DATA], &memory);
        let expected = Heaps {
            arenas: 1,
            bytes: 0x80000,
            used_blocks: 600,
            used_bytes: used.iter().sum(),
            free_bytes: 0x80000 - used.iter().sum::<u64>(),
            ..Heaps::default()
        };
        assert_eq!((told.heaps, told.places), (expected, vec![range.start]));
        let lock = DATA.start + 0x200 - BINS.start;
        assert!(told.locks.len() == 1 && told.locks[0].contains(&lock), "{:?}", told.locks);
        let on_disk = survey(&[mapping(&range, "[heap]", 4)], &[DATA], &memory);
        assert_eq!((on_disk.heaps.unknown_bytes, on_disk.heaps.are_known()), (0x80000, false));
    }

    #[test]
    fn a_walk_that_is_lost_begins_again_behind_that_place() {
        let range = 0x10000..0x90000;
        let mut memory = Fake::new(&range);
        memory.fill(range.clone(), &[64; 6000], |_| false, 0);
        // Written into by the process meanwhile.
        memory.put(range.start + 64 * 3000, &[7; 8]);
        let told = survey(&[mapping(&range, "[heap]", 0)], &[], &memory).heaps;
        assert_eq!((told.used_blocks, told.unknown_bytes), (5998, 128), "{told:?}");
        assert!(told.are_known());
        memory.put(range.start, &[7; 0x10000]);
        assert_eq!(survey(&[mapping(&range, "[heap]", 0)], &[], &memory).heaps.unknown_bytes, 0x80000);
    }

    #[test]
    fn heaps_of_further_arenas_and_single_blocks_are_found_in_what_the_system_made_one_mapping() {
        let range = HEAP - 0x40000..HEAP + 0x40000;
        let mut memory = Fake::new(&range);
        // Two blocks with mappings of their own, then a heap with its arena in it, and what is not in use of it yet.
        memory.put(range.start, &[0, 0x30000 | IS_MAPPED]);
        memory.put(range.start + 0x30000, &[0, 0x10000 | IS_MAPPED]);
        let whole = survey(&[mapping(&(range.start..HEAP), "", 0)], &[], &memory);
        assert_eq!((whole.heaps.mapped_blocks, whole.heaps.mapped_bytes), (2, 0x40000));
        assert_eq!(whole.places, [range.start]);
        memory.put(HEAP, &[HEAP + 0x30, 0, 0x20000, 0x40000]);
        memory.put(HEAP + 0x30 + 2160, &[DATA.start + 0x80]);
        memory.fill(HEAP + 0x8d0..HEAP + 0x20000, &[48; 1000], |place| place % 2 == 0, HEAP + 0x90);
        let told = survey(&[mapping(&range, "", 0)], &[DATA], &memory);
        assert_eq!(
            (told.heaps.arenas, told.heaps.bytes, told.heaps.used_blocks),
            (1, 0x20000, 500),
            "{told:?}"
        );
        assert_eq!(told.heaps.unknown_bytes, 0x8d0);
        assert_eq!((told.places, told.locks.len()), (vec![HEAP], 2));
        assert!(told.locks[0].contains(&(HEAP + 0x30)) && told.locks[1].contains(&(DATA.start + 0x80)));
    }

    #[test]
    fn what_is_no_heap_of_glibcs_is_none() {
        let range = HEAP..HEAP + 0x10000;
        let mut memory = Fake::new(&range);
        memory.put(HEAP, &[HEAP + 0x30, HEAP, 0x8000, 0x8000]);
        assert_eq!(survey(&[mapping(&range, "", 0)], &[], &memory).heaps, Heaps::default());
        assert_eq!(survey(&[mapping(&range, "/a/file", 0)], &[], &memory).heaps, Heaps::default());
    }
}
