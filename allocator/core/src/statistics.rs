//! What the heap is made of, counted when somebody asks: nothing is counted on the fast paths.

use crate::allocator::Allocator;
use crate::heap::Heap;

/// Sizes in bytes, at one moment. Each part is counted under its own lock: while other threads allocate, the sums may be a
/// little off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Addresses got from the system for blocks.
    pub mapped: usize,
    /// In spans of small blocks and in large blocks: what is not free to be used for anything.
    pub active: usize,
    /// In large blocks, those in threads' caches included.
    pub large: usize,
    /// How many large blocks that is.
    pub large_blocks: usize,
    /// In spans of small blocks, for blocks that are neither handed out nor in a magazine.
    pub room: usize,
    /// How many blocks that is.
    pub room_blocks: usize,
    /// In free runs that the system has not got back.
    pub retained: usize,
    /// For the allocator's own records.
    pub metadata: usize,
}

impl Statistics {
    /// Handed out to the program, or in a cache of one of its threads.
    pub fn allocated(&self) -> usize {
        self.active.saturating_sub(self.room)
    }

    /// All of them by name.
    pub fn fields(&self) -> [(&'static str, usize); 9] {
        [
            ("allocated_bytes", self.allocated()),
            ("active_bytes", self.active),
            ("large_bytes", self.large),
            ("large_blocks", self.large_blocks),
            ("room_bytes", self.room),
            ("room_blocks", self.room_blocks),
            ("retained_bytes", self.retained),
            ("mapped_bytes", self.mapped),
            ("metadata_bytes", self.metadata),
        ]
    }

    /// Free to be handed out again, at the cost of no page.
    pub fn free(&self) -> usize {
        self.room + self.retained
    }
}

impl Allocator {
    /// What the heap is made of.
    pub fn statistics(&self) -> Statistics {
        let mut statistics = self.pages.lock().statistics();
        statistics.metadata = self.meta.lock().mapped();
        for arena in self.existing_arenas() {
            let (blocks, bytes) = arena.room();
            statistics.room_blocks += blocks;
            statistics.room += bytes;
        }
        statistics
    }

    /// Gives back whatever nobody uses: what idle threads and this one keep, and all free memory. Whether anything went
    /// back to the system.
    pub fn trim(&self, heap: &Heap) -> bool {
        // Twice: the first look only sees who is active.
        self.empty_idle_heaps();
        self.empty_idle_heaps();
        let reclaimed = self.reclaim(heap);
        // Twice: the first look only sees which spans are quiet.
        self.purge_holes();
        self.purge_holes();
        reclaimed
    }
}
