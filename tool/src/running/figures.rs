//! What Ample's heap is made of in a process that runs, read from outside: its library, or the program that it is linked to, tells where its figures lie
//! (`allocator/core/src/outside.rs`).

use std::ops::Range;

use serde::Serialize;

use super::contents::Contents;

/// By what the record begins, at a multiple of [`ALIGNED`]; the version of it that is known; the words of 32 bits that follow.
const MAGIC: &[u8; 16] = b"ample's figures\n";
const ALIGNED: usize = 8;
const VERSION: u32 = 1;
const WORDS: usize = 17;
/// Bytes of data that are searched at most, in each part.
const SEARCHED: u64 = 1 << 20;
/// Arenas and page heaps that are believed.
const MOST: u32 = 1 << 16;

/// Sizes in bytes, each read by itself while the process goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// Owners of spans; about one for each thread, while threads are few.
    pub arenas: u64,
    /// In spans of small blocks.
    pub small_bytes: u64,
    /// Of these, in blocks that are free, whether their pages are in memory or not. What threads keep for themselves is not free.
    pub room_bytes: u64,
    /// In large blocks, those that threads keep included.
    pub large_bytes: u64,
    /// How many these are.
    pub large_blocks: u64,
    /// Free and in memory, to be used again or to go back to the system.
    pub kept_bytes: u64,
    /// For the allocator's own records.
    pub metadata_bytes: u64,
}

impl Figures {
    /// In blocks, or kept by threads for their next ones.
    pub fn live_bytes(&self) -> u64 {
        (self.small_bytes + self.large_bytes).saturating_sub(self.room_bytes)
    }

    /// All of it, if all pages are in memory.
    pub fn bytes(&self) -> u64 {
        self.small_bytes + self.large_bytes + self.kept_bytes + self.metadata_bytes
    }
}

/// Where the figures lie in a process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    at: u64,
    words: [u32; WORDS],
}

impl Record {
    /// The record in what the allocator can write to; none where there is none, or one of another version.
    pub fn find(data: &[Range<u64>], memory: &impl Contents) -> Option<Self> {
        data.iter().find_map(|range| {
            let mut bytes = vec![0; (range.end - range.start).min(SEARCHED) as usize];
            let count = memory.read(range.start, &mut bytes);
            let places = (0..count).step_by(ALIGNED);
            let place = places.into_iter().find(|place| bytes[*place..count].starts_with(MAGIC))?;
            let words = bytes[place + MAGIC.len()..count].as_chunks().0.iter();
            let words: Vec<u32> = words.take(WORDS).map(|word| u32::from_ne_bytes(*word)).collect();
            let record = Self { at: range.start + place as u64, words: words.try_into().ok()? };
            record.is_known().then_some(record)
        })
    }

    fn is_known(&self) -> bool {
        let [version, unit, _, _, _, _, arenas, _, _, _, page_heaps, ..] = self.words;
        version == VERSION && unit.is_power_of_two() && arenas <= MOST && page_heaps <= MOST
    }

    /// What the figures say now; none where they cannot be read, or nobody has used the allocator.
    pub fn read(&self, memory: &impl Contents) -> Option<Figures> {
        let [
            _,
            unit,
            before,
            metadata,
            tables,
            arenas,
            arenas_most,
            room,
            page_heaps,
            page_heap,
            page_heaps_most,
            places @ ..,
        ] = self.words.map(u64::from);
        let word = |at: u64| {
            let mut bytes = [0; 8];
            (memory.read(at, &mut bytes) == bytes.len()).then(|| u64::from_ne_bytes(bytes))
        };
        let allocator = self.at.checked_sub(before)?;
        let tables = word(allocator + tables)?;
        let mut figures = Figures { metadata_bytes: word(allocator + metadata)?, ..Figures::default() };
        for index in 1..arenas_most {
            let arena = word(tables + arenas + index * 8)?;
            if arena == 0 {
                break;
            }
            figures.arenas += 1;
            figures.room_bytes += word(arena + room)?;
        }
        for index in 0..page_heaps_most {
            let heap = tables + page_heaps + index * page_heap;
            let mut units = [0; 6];
            for (units, place) in units.iter_mut().zip(places) {
                *units = word(heap + place)?;
            }
            let [mapped, free, kept, small, mixed, large_blocks] = units;
            // Each changes by itself meanwhile.
            let used = mapped.saturating_sub(free);
            figures.small_bytes += (small + mixed) * unit;
            figures.large_bytes += used.saturating_sub(small + mixed) * unit;
            figures.large_blocks += large_blocks;
            figures.kept_bytes += kept * unit;
        }
        (figures.arenas > 0).then_some(figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::running::contents::Fake;

    const DATA: Range<u64> = 0x10000..0x14000;
    const RECORD: u64 = 0x11008;
    const TABLES: u64 = 0x12000;
    const ARENAS: [u64; 2] = [0x13000, 0x13800];
    const KIB: u64 = 1 << 10;

    /// An allocator with two arenas and two page heaps, whose record is not at its beginning.
    fn process() -> Fake {
        let mut memory = Fake::new(&DATA);
        let magic = MAGIC.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
        memory.put(RECORD, &magic.collect::<Vec<_>>());
        let [allocator, metadata, tables] = [RECORD - 8, 0x80, 0x88];
        let of_tables = [0x10, 5, 0x18, 0x100, 0x80, 2];
        let words = [u64::from(VERSION), KIB, RECORD - allocator, metadata, tables];
        let words: Vec<u64> = words.into_iter().chain(of_tables).chain([0, 8, 16, 24, 32, 40, 0]).collect();
        let pairs = words.as_chunks().0.iter().map(|[low, high]| low | high << 32);
        memory.put(RECORD + MAGIC.len() as u64, &pairs.collect::<Vec<_>>());
        memory.put(allocator + metadata, &[300, TABLES]);
        // The first of the addresses is nobody's.
        memory.put(TABLES + 0x18, &ARENAS);
        for arena in ARENAS {
            memory.put(arena + 0x18, &[2000]);
        }
        memory.put(TABLES + 0x100, &[100, 40, 30, 20, 5, 3]);
        memory.put(TABLES + 0x180, &[10, 10, 1, 0, 0, 0]);
        memory
    }

    #[test]
    fn figures_are_read_where_the_record_says() {
        let memory = process();
        let record = Record::find(&[0x10000..0x10800, DATA], &memory).expect("found");
        assert_eq!(record.at, RECORD);
        let expected = Figures {
            arenas: 2,
            small_bytes: 25 * KIB,
            room_bytes: 4000,
            large_bytes: 35 * KIB,
            large_blocks: 3,
            kept_bytes: 31 * KIB,
            metadata_bytes: 300,
        };
        assert_eq!(record.read(&memory), Some(expected));
        assert_eq!((expected.live_bytes(), expected.bytes()), (60 * KIB - 4000, 91 * KIB + 300));
        let mut unused = process();
        unused.put(TABLES + 0x18, &[0]);
        assert_eq!(record.read(&unused), None);
        let mut elsewhere = process();
        elsewhere.put(RECORD + 0x80, &[DATA.end]);
        assert_eq!(record.read(&elsewhere), None, "the tables are not where the allocator says");
    }

    #[test]
    fn a_record_of_another_version_is_none() {
        let mut memory = process();
        memory.put(RECORD + MAGIC.len() as u64, &[u64::from(VERSION + 1) | KIB << 32]);
        assert!(Record::find(&[DATA], &memory).is_none());
        assert!(
            Record::find(&[DATA.end..DATA.end + 0x1000, 0x20000..0x21000], &process()).is_none(),
            "there is nothing"
        );
    }
}
