//! The figures that say what the heap is made of, and how they are written as JSON and as text. `report.rs` counts them.

use crate::size_class::{self, CLASSES};
use crate::text::{Number, Sink};

/// Sizes in bytes, at one moment. Each part is counted under its own lock: while other threads allocate, the sums may be a
/// little off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistics {
    /// Addresses got from the system for blocks.
    pub mapped: usize,
    /// In spans of small blocks and in large blocks: what is not free to be used for anything.
    pub active: usize,
    /// In large blocks, those in threads' caches included.
    pub large: usize,
    /// How many large blocks that is.
    pub large_blocks: usize,
    /// In large blocks in threads' caches.
    pub large_cached: usize,
    /// In spans of small blocks, for blocks that are neither handed out nor in a magazine.
    pub room: usize,
    /// How many blocks that is.
    pub room_blocks: usize,
    /// In free runs that the system has not got back.
    pub retained: usize,
    /// For the allocator's own records.
    pub metadata: usize,
    /// The size classes, the smallest first.
    pub classes: [ClassStatistics; CLASSES],
}

/// How one size class stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClassStatistics {
    /// Bytes of a block.
    pub size: usize,
    /// Spans of this class.
    pub spans: usize,
    /// Blocks handed out to the program, or in magazines that only their thread may look into.
    pub live: usize,
    /// Blocks in other magazines: in depots, and those that were loaded before.
    pub cached: usize,
    /// Blocks in spans that nobody has.
    pub room: usize,
}

impl Default for Statistics {
    fn default() -> Self {
        let mut classes = [ClassStatistics::default(); CLASSES];
        for (class, statistics) in (1..).zip(&mut classes) {
            statistics.size = size_class::of(class).size as usize;
        }
        Self {
            mapped: 0,
            active: 0,
            large: 0,
            large_blocks: 0,
            large_cached: 0,
            room: 0,
            room_blocks: 0,
            retained: 0,
            metadata: 0,
            classes,
        }
    }
}

impl Statistics {
    /// Handed out to the program, or in a cache of one of its threads.
    pub fn allocated(&self) -> usize {
        self.active.saturating_sub(self.room)
    }

    /// What costs memory, or would if the program touched all of what it has.
    pub fn resident(&self) -> usize {
        self.active + self.retained + self.metadata
    }

    /// In caches: of large blocks, and magazines that others may look into.
    pub fn cached(&self) -> usize {
        self.large_cached + self.classes.iter().map(|class| class.cached * class.size).sum::<usize>()
    }

    /// All of them by name, but for the classes. The last three say why memory that nobody uses is not the system's.
    pub fn fields(&self) -> [(&'static str, usize); 13] {
        [
            ("allocated_bytes", self.allocated()),
            ("active_bytes", self.active),
            ("large_bytes", self.large),
            ("large_blocks", self.large_blocks),
            ("room_bytes", self.room),
            ("room_blocks", self.room_blocks),
            ("retained_bytes", self.retained),
            ("resident_bytes", self.resident()),
            ("mapped_bytes", self.mapped),
            ("metadata_bytes", self.metadata),
            ("held_by_fragmentation_bytes", self.room),
            ("held_by_caches_bytes", self.cached()),
            ("held_to_be_reused_bytes", self.retained),
        ]
    }

    /// Free to be handed out again, at the cost of no page.
    pub fn free(&self) -> usize {
        self.room + self.retained
    }

    /// The classes that have spans or live blocks.
    pub fn classes_in_use(&self) -> impl Iterator<Item = &ClassStatistics> {
        self.classes.iter().filter(|class| class.spans + class.live > 0)
    }

    /// Writes them as a JSON object; `classes` is an array of objects, of the classes that are in use.
    #[inline(never)]
    pub fn to_json(&self, sink: Sink<'_>) {
        sink("{");
        for (name, value) in self.fields() {
            member(sink, "", name, value);
            sink(",");
        }
        sink("\"classes\":[");
        for (index, class) in self.classes_in_use().enumerate() {
            sink(if index == 0 { "" } else { "," });
            for (index, (name, value)) in class.fields().into_iter().enumerate() {
                member(sink, if index == 0 { "{" } else { "," }, name, value);
            }
            sink("}");
        }
        sink("]}");
    }

    /// Writes them as lines for people.
    pub fn to_text(&self, sink: Sink<'_>) {
        for (name, value) in self.fields() {
            ["ample: ", name, " = ", Number::of(value).text(), "\n"].into_iter().for_each(&mut *sink);
        }
        for class in self.classes_in_use() {
            sink("ample: class");
            for (name, value) in class.fields() {
                [" ", name, "=", Number::of(value).text()].into_iter().for_each(&mut *sink);
            }
            sink("\n");
        }
    }
}

impl ClassStatistics {
    /// All of them by name.
    pub fn fields(&self) -> [(&'static str, usize); 5] {
        [
            ("block_bytes", self.size),
            ("spans", self.spans),
            ("live_blocks", self.live),
            ("cached_blocks", self.cached),
            ("room_blocks", self.room),
        ]
    }
}

/// Writes a member of an object, after `before`.
fn member(sink: Sink<'_>, before: &str, name: &str, value: usize) {
    [before, "\"", name, "\":", Number::of(value).text()].into_iter().for_each(sink);
}
