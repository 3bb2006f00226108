//! Counts what the heap is made of when somebody asks, since nothing is counted on the fast paths, and writes it where the options say.

use crate::allocator::Allocator;
use crate::options::Name;
use crate::os;
use crate::statistics::Statistics;

impl Allocator {
    /// What the heap is made of.
    pub fn statistics(&self) -> Statistics {
        let mut statistics = self.tables.pages.statistics();
        statistics.metadata = self.meta.lock().mapped();
        for arena in self.existing_arenas() {
            arena.count(&mut statistics.classes);
        }
        self.count_caches(&mut statistics);
        for class in &mut statistics.classes {
            statistics.room_blocks += class.room;
            statistics.room += class.room * class.size;
            // They were counted at different moments.
            class.cached = class.cached.min(class.live);
            class.live -= class.cached;
        }
        statistics
    }

    /// Adds what lies in the depots, and in the caches of threads that are on no slow path.
    fn count_caches(&self, statistics: &mut Statistics) {
        for (class, statistics) in (1..).zip(&mut statistics.classes) {
            statistics.cached += self.tables.depots.blocks(class);
        }
        let registry = self.registry.lock();
        registry.heaps().for_each(|heap| heap.claim.ask());
        // Without barriers nobody may look in.
        let ordered = os::barrier_everywhere();
        for heap in registry.heaps() {
            if ordered && heap.claim.take() {
                statistics.large_cached += heap.large.bytes() + heap.large.sparse_bytes();
                for (bin, class) in heap.bins[1..].iter().zip(&mut statistics.classes) {
                    class.cached += bin.cached_blocks();
                }
            }
            heap.claim.give_back();
        }
    }

    /// Writes how the heap stands to the file of `AMPLE_STATS_JSON`; to standard error if there is no such file and somebody
    /// `asked`, or if it cannot be created.
    pub fn report(&self, asked: bool) {
        if let Some(file) = self.options.create(Name::StatsJson) {
            let mut writer = os::Writer::new(file);
            self.statistics().to_json(&mut |part| writer.add(part));
            writer.add("\n");
            return;
        }
        let wanted = self.options.is_on(Name::StatsJson);
        if wanted {
            os::tell(&[b"ample: the file that AMPLE_STATS_JSON names cannot be created; here instead:\n"]);
        }
        if asked || wanted {
            self.print();
        }
    }

    /// Prints how the heap stands to standard error.
    pub fn print(&self) {
        let mut writer = os::Writer::new(os::standard_error());
        self.statistics().to_text(&mut |part| writer.add(part));
    }
}
