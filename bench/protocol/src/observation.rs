//! What the observer counts in a process, and where it stands in the file that both sides have mapped or read.
//!
//! The file holds numbers of 64 bits in the machine's own order: [`HEADER`] of them about the process, then
//! [`SLOT`] about each of [`SLOTS`] threads; threads beyond share the last slot; then [`PLACES`] addresses of blocks. It is written while the process
//! runs, so that nothing is lost however it ends. A number that nobody has written is 0.

use std::ffi::CStr;

/// The variable that names the folder for these files. Without it the observer does nothing.
pub const FOLDER: &CStr = c"OBSERVE_MALLOC_INTO";
/// The first number of each file, which tells the version of this layout as well.
pub const MAGIC: u64 = u64::from_le_bytes(*b"observe4");
/// Numbers about the process.
pub const HEADER: usize = 64;
/// Numbers about each thread.
pub const SLOT: usize = 256;
/// Threads with a slot of their own, and one.
pub const SLOTS: usize = 1024;
/// Addresses of blocks, so that who reads them can tell which memory is malloc's.
pub const PLACES: usize = 1 << PLACES_LOG;
const PLACES_LOG: u32 = 13;
/// Blocks within so many bytes have one place.
pub const APART: u64 = 64 << 10;
/// Bytes of a file.
pub const BYTES: usize = (PLACES_FROM + PLACES) * size_of::<u64>();
/// Where the places begin.
const PLACES_FROM: usize = HEADER + SLOT * SLOTS;

/// Numbers about the process, by their place in the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Fact {
    /// [`MAGIC`].
    Magic,
    /// The process.
    Process,
    /// Threads that have called malloc or free, ended ones included.
    Threads,
    /// Bytes that were asked for and not freed.
    LiveBytes,
    /// The most of them at any time.
    PeakLiveBytes,
    /// Blocks that were allocated and not freed.
    LiveBlocks,
    /// The most of them at any time.
    PeakLiveBlocks,
    /// What two readings of the clock cost, in nanoseconds: it is in every time.
    ClockNs,
    /// The most memory that the observer itself needed, in bytes.
    OwnBytes,
    /// Blocks that were not noted, for want of memory.
    Lost,
    /// The most memory of its own that the process had resident, mapped files and the observer's left out, in bytes:
    /// looked at every [`LOOK_AFTER`] calls of a thread.
    PeakResidentBytes,
    /// What was live then.
    LiveAtPeakResident,
    /// The first eight bytes of the program's name, of which there is no more than 15.
    Name,
    /// The rest of it.
    NameRest,
    /// The process's own processor time, the observer's included, in nanoseconds, as of the last look: every [`LOOK_AFTER`]
    /// calls of a thread, at slow calls, and where the process leaves by `exit`. The system adds it to no account where nobody waits
    /// for the process.
    CpuNs,
    /// Its page faults that needed no disk, as of then.
    MinorFaults,
}

/// Calls of a thread after which it looks at the resident memory.
pub const LOOK_AFTER: u64 = 4096;

/// Numbers about a thread, by their place in its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Count {
    /// Blocks allocated, by whatever function; a `realloc` of a block does not count.
    Allocations,
    /// Blocks freed.
    Frees,
    /// Blocks given another size.
    Resizes,
    /// Of them, those that moved.
    Moves,
    /// Bytes asked for, those of new sizes included.
    Bytes,
    /// Blocks freed, or given another size, that another thread had allocated.
    OthersFreed,
    /// Blocks freed that were allocated before the observer was there, or by what it does not see.
    UnknownFreed,
    /// Blocks that were put on a cache line with a live block of another thread.
    SharedLines,
    /// Blocks of [`LARGE`] bytes and more allocated, and their bytes.
    LargeAllocations,
    /// Bytes of them.
    LargeBytes,
    /// Of them, those freed within [`SHORT_NS`].
    LargeShort,
    /// Time in calls of the allocator, in nanoseconds, clock included.
    CallNs,
    /// Calls of [`SLOW_NS`] and more: a page fault, a system call, a wait.
    SlowCalls,
    /// Time in them.
    SlowNs,
    /// Time in those of them that were looked at: one of [`LOOK_AT`] calls is.
    SeenNs,
    /// Of that, time in calls that waited for another thread.
    WaitNs,
    /// Time in calls from which the system took the processor away, and which did not wait.
    TakenNs,
    /// Time in other calls that faulted pages in.
    FaultNs,
    /// Time that the observer took for itself, in nanoseconds.
    OwnNs,
    /// Requests that got nothing.
    Failures,
    /// Calls of malloc_trim, which count as no other calls.
    Trims,
    /// Time in them, in nanoseconds.
    TrimNs,
    /// Where the thread's stack begins: not that of the first thread, and not of those that share a slot.
    StackFrom,
    /// Where it ends.
    StackTo,
}

/// From so many bytes on a block is a large one: glibc maps those of 128 KiB and more, as long as nothing else is said.
pub const LARGE: u64 = 128 << 10;
/// Large blocks that live no longer are transient.
pub const SHORT_NS: u64 = 10_000_000;
/// From here on a call is slow.
pub const SLOW_NS: u64 = 10_000;

/// One of so many calls of a thread is looked at more closely. A prime: programs have rhythms of their own.
pub const LOOK_AT: u64 = 17;

/// The distributions of a slot, each of [`BINS`] numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Distribution {
    /// Sizes that were asked for, in bytes.
    Sizes = 1,
    /// Times of calls, in nanoseconds.
    Calls = 2,
    /// How long blocks lived that were freed, in microseconds.
    Lives = 3,
}

/// Bins of a distribution: two for each power of two.
pub const BINS: usize = 64;

/// The bin of a value; the last one has all that is larger.
pub fn bin(value: u64) -> usize {
    let Some(power) = value.checked_ilog2() else { return 0 };
    let half = if power == 0 { 0 } else { (value >> (power - 1)) & 1 };
    (2 * power as usize + half as usize).min(BINS - 1)
}

/// The least value of a bin; 0 is in the first one, too.
pub fn least(bin: usize) -> u64 {
    let power = 1 << (bin / 2);
    if bin.is_multiple_of(2) { power } else { power + power / 2 }
}

/// Where the number stands in the file.
pub fn place_of(fact: Fact) -> usize {
    fact as usize
}

/// Where it stands, of the thread with this number.
pub fn place_in(thread: usize, count: Count) -> usize {
    HEADER + thread.min(SLOTS - 1) * SLOT + count as usize
}

/// Where a bin stands, of the thread with this number.
pub fn place_of_bin(thread: usize, distribution: Distribution, bin: usize) -> usize {
    HEADER + thread.min(SLOTS - 1) * SLOT + distribution as usize * BINS + bin
}

/// Where a place stands in the file.
pub fn place_of_place(place: usize) -> usize {
    PLACES_FROM + place
}

/// The place of a block at this address: those far apart may have the same one, and the last one has it.
pub fn place_of_block(address: u64) -> usize {
    ((address / APART).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - PLACES_LOG)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_the_bin_whose_least_is_at_most_it() {
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7, 8].map(bin), [0, 0, 2, 3, 4, 4, 5, 5, 6]);
        for value in (1..100_000).chain([1 << 31, (1 << 32) - 1]) {
            let bin = bin(value);
            assert!(
                least(bin) <= value && (bin + 1 == BINS || value < least(bin + 1).max(2)),
                "{value}: {bin}"
            );
        }
        assert_eq!(bin(u64::MAX), BINS - 1);
    }

    #[test]
    fn places_do_not_overlap() {
        assert!((Fact::MinorFaults as usize) < HEADER && (Count::StackTo as usize) < BINS);
        assert_eq!(place_of_bin(0, Distribution::Lives, BINS - 1), place_in(1, Count::Allocations) - 1);
        assert_eq!(place_in(SLOTS - 1, Count::Frees), place_in(SLOTS + 5, Count::Frees));
        assert_eq!(place_of_bin(SLOTS - 1, Distribution::Lives, BINS - 1) + 1, place_of_place(0));
        assert_eq!(place_of_place(PLACES - 1) + 1, BYTES / size_of::<u64>());
    }

    #[test]
    fn blocks_side_by_side_have_one_place_and_others_are_spread() {
        let mut places: Vec<_> = (0..1000).map(|at| place_of_block(0x7000_0000_0000 + at * APART)).collect();
        assert_eq!(place_of_block(0x7000_0000_0000 + APART - 16), places[0]);
        places.sort_unstable();
        places.dedup();
        assert!(places.len() > 900 && places[places.len() - 1] < PLACES, "{}", places.len());
    }
}
