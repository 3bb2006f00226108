//! Which blocks live, who allocated them, and which cache lines they lie on.
//!
//! Spread over shards, each with a lock of its own, so that threads that are observed seldom wait for each other.

use std::cell::UnsafeCell;

use crate::table::{Full, Plain, Table};

/// Shards; a power of two.
const SHARDS: usize = 256;
/// Bytes of a cache line.
const LINE: u64 = 64;
/// In the place of a thread: blocks of several lie on the line.
const SEVERAL: u32 = u32::MAX;

/// A live block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Block {
    /// Bytes that were asked for.
    pub size: u64,
    /// When, in nanoseconds of the monotonic clock.
    pub born_ns: u64,
    /// The number of the thread that allocated it.
    pub thread: u32,
}

/// A cache line that a live block has a part of, or several have.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Line {
    thread: u32,
    blocks: u32,
}

// SAFETY: integers all.
unsafe impl Plain for Block {}
// SAFETY: integers all.
unsafe impl Plain for Line {}

struct Shard {
    lock: UnsafeCell<libc::pthread_mutex_t>,
    tables: UnsafeCell<Tables>,
}

struct Tables {
    blocks: Table<Block>,
    lines: Table<Line>,
}

// SAFETY: the tables are reached under the lock only, which is the C library's own affair.
unsafe impl Sync for Shard {}

static ALL: [Shard; SHARDS] = [const {
    Shard {
        lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
        tables: UnsafeCell::new(Tables { blocks: Table::new(), lines: Table::new() }),
    }
}; SHARDS];

/// The shard of an address or a line.
fn shard(key: u64) -> &'static Shard {
    &ALL[(key.wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 56) as usize]
}

impl Shard {
    fn with<R>(&self, work: impl FnOnce(&mut Tables) -> R) -> R {
        // SAFETY: a mutex that was initialised; this thread does not hold it, as `work` takes no lock and observes nothing.
        unsafe { libc::pthread_mutex_lock(self.lock.get()) };
        // SAFETY: under the lock nobody else has the tables.
        let result = work(unsafe { &mut *self.tables.get() });
        // SAFETY: held since above.
        unsafe { libc::pthread_mutex_unlock(self.lock.get()) };
        result
    }
}

/// What came of noting a block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Noted {
    /// What was noted at its address before: a block whose end was not seen.
    pub before: Option<Block>,
    /// Whether it lies on a line with a live block of another thread.
    pub shares_a_line: bool,
    /// Bytes that the tables grew by.
    pub grown: usize,
}

/// Notes a new block; nothing where there is no memory to do so.
pub fn note(address: u64, block: Block) -> Option<Noted> {
    let inserted = shard(address).with(|tables| {
        let bytes = tables.blocks.bytes();
        let before = tables.blocks.insert(address, block)?;
        Ok::<_, Full>((before, tables.blocks.bytes() - bytes))
    });
    let (before, mut grown) = inserted.ok()?;
    if let Some(before) = before {
        leave_lines(address, before.size);
    }
    let mut shares_a_line = false;
    for line in shared_lines(address, block.size) {
        // A line for which there is no memory is none that is shared: as good as any other answer.
        let (shared, more) = enter(line, block.thread).unwrap_or_default();
        shares_a_line |= shared;
        grown += more;
    }
    Some(Noted { before, shares_a_line, grown })
}

/// Forgets a block: what was noted of it.
pub fn forget(address: u64) -> Option<Block> {
    let block = shard(address).with(|tables| tables.blocks.remove(address))?;
    leave_lines(address, block.size);
    Some(block)
}

/// The lines of which a block has a part only.
fn shared_lines(address: u64, size: u64) -> impl Iterator<Item = u64> {
    let end = address + size.max(1);
    let (first, last) = (address / LINE, (end - 1) / LINE);
    let part_of_first = !address.is_multiple_of(LINE) || end < (first + 1) * LINE;
    let part_of_last = last > first && !end.is_multiple_of(LINE);
    [part_of_first.then_some(first), part_of_last.then_some(last)].into_iter().flatten()
}

/// A block of this thread has a part of this line from now on: whether another's has, and what the table grew by.
fn enter(line: u64, thread: u32) -> Result<(bool, usize), Full> {
    shard(line).with(|tables| {
        if let Some(there) = tables.lines.get_mut(line) {
            there.blocks += 1;
            let shared = there.thread != thread;
            if shared {
                there.thread = SEVERAL;
            }
            return Ok((shared, 0));
        }
        let bytes = tables.lines.bytes();
        tables.lines.insert(line, Line { thread, blocks: 1 })?;
        Ok((false, tables.lines.bytes() - bytes))
    })
}

fn leave_lines(address: u64, size: u64) {
    for line in shared_lines(address, size) {
        shard(line).with(|tables| {
            let Some(there) = tables.lines.get_mut(line) else { return };
            there.blocks -= 1;
            if there.blocks == 0 {
                tables.lines.remove(line);
            }
        });
    }
}

/// Takes all locks, so that a fork's child finds whole tables.
pub fn before_fork() {
    for shard in &ALL {
        // SAFETY: as in `with`; in the same order everywhere, and nobody else takes two.
        unsafe { libc::pthread_mutex_lock(shard.lock.get()) };
    }
}

/// Gives them back in the parent.
pub fn after_fork_in_parent() {
    for shard in &ALL {
        // SAFETY: this thread has held it since `before_fork`.
        unsafe { libc::pthread_mutex_unlock(shard.lock.get()) };
    }
}

/// Makes them anew in the child: its only thread has another number for the C library than the one that took them.
pub fn after_fork_in_child() {
    for shard in &ALL {
        // SAFETY: no other thread is there that could wait for it.
        unsafe { *shard.lock.get() = libc::PTHREAD_MUTEX_INITIALIZER };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(size: u64, thread: u32) -> Block {
        Block { size, born_ns: 7, thread }
    }

    #[test]
    fn lines_are_those_that_a_block_does_not_fill() {
        let lines = |address, size| shared_lines(address, size).collect::<Vec<_>>();
        assert_eq!(lines(0x1000, 64), []);
        assert_eq!(lines(0x1000, 128), []);
        assert_eq!(lines(0x1000, 16), [0x40]);
        assert_eq!(lines(0x1030, 16), [0x40], "its end is the line's");
        assert_eq!(lines(0x1010, 64), [0x40, 0x41]);
        assert_eq!(lines(0x1000, 80), [0x41]);
        assert_eq!(lines(0x1010, 176), [0x40]);
        assert_eq!(lines(0x1010, 180), [0x40, 0x43]);
        assert_eq!(lines(0x1000, 0), [0x40]);
    }

    #[test]
    fn a_line_is_shared_while_blocks_of_two_threads_live_there() {
        let shared = |address, thread| note(address, block(16, thread)).expect("memory").shares_a_line;
        assert!(!shared(0x7000, 1));
        assert!(!shared(0x7010, 1));
        assert!(shared(0x7020, 2));
        assert!(shared(0x7030, 2));
        assert_eq!(forget(0x7000), Some(block(16, 1)));
        assert_eq!(forget(0x7000), None);
        for address in [0x7010, 0x7020, 0x7030] {
            assert!(forget(address).is_some());
        }
        assert!(!shared(0x7000, 2), "the line was empty");
        assert_eq!(note(0x7000, block(32, 2)).expect("memory").before, Some(block(16, 2)));
        assert_eq!(forget(0x7000), Some(block(32, 2)));
    }
}
