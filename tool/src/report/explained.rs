//! What a finding of an observation means, in words.

use super::units::percent;
use crate::observation::{Finding, Kind};

/// What a finding means, and what helps; none where the first sentence says it.
pub(super) fn explained(finding: Finding, parts_are_known: bool) -> Option<String> {
    let share = percent(finding.share);
    Some(match finding.kind {
        Kind::TooFewCalls => return None,
        Kind::Cheap => format!(
            "malloc and free take {share} of the processor time: another allocator may save memory, but hardly time."
        ),
        Kind::Dear => format!(
            "malloc and free take {share} of the processor time, calls that wait or fault left out: that is what a faster \
             allocator can save, beside what it does for the caches."
        ),
        Kind::Fresh => format!(
            "Page faults brought {:.0} times as much memory as the program had at most: what was freed went back to the system, and \
             came fresh again. An allocator that keeps it for a while spares that.",
            finding.share
        ),
        Kind::Waits => format!(
            "Slow calls take as much time as {share} of the processor time, and most of that they wait for other threads: for a lock of the \
             allocator, or of the process, which the system takes where memory is mapped and unmapped. Allocators with a heap for \
             each thread, which keep what was freed, have none to wait for."
        ),
        Kind::Faults => format!(
            "Slow calls take as much time as {share} of the processor time, and most of them fault pages in: memory comes fresh from \
             the system, for the first time or again. An allocator that keeps what was freed spares the latter."
        ),
        Kind::Slow => format!(
            "Slow calls take as much time as {share} of the processor time: they work for long, or call the system, as for blocks \
             that are mapped and unmapped one by one."
        ),
        Kind::Unclear => format!(
            "Slow calls take as much time as {share} of the processor time, and they are too few to say why: whether they wait, work for \
             long, or had no processor. Let the program run for longer."
        ),
        Kind::HandedOver => format!(
            "{share} of the blocks are freed by another thread than allocated them. Where freed blocks stay with whoever freed \
             them, memory grows and blocks move between the processors' caches: compare memory, too. `ample bench \
             producer-consumer xmalloc` shows what allocators make of it."
        ),
        Kind::SharedLines => format!(
            "{share} of the blocks were put on a cache line with a block of another thread: if both write to theirs, they \
             slow each other down. Ample gives threads lines of their own; `ample bench false-sharing` shows what it costs."
        ),
        Kind::Trims => format!(
            "malloc_trim was called {:.0} times a second, by the program or by a library that it uses (protobuf's for Python calls it after every 10 000 \
             frees). Where each call gives back all that is free, as under glibc, what the program needs next comes back page by page. Allocators that \
             heed it no more often than pays, as Ample, or not at all, spare that.",
            finding.share
        ),
        Kind::TransientLarge => format!(
            "Large blocks are {share} of the bytes, and most of them live for a moment. An allocator that gives them back at \
             once pays a page fault for each 4 KiB, again and again: `ample bench large-block transaction-pool` shows it."
        ),
        Kind::Overhead => format!(
            "{:.1} times as much memory was resident as was live{}.",
            finding.share,
            if parts_are_known {
                ", stacks and other mappings left out. The rest is room between blocks, and what the allocator keeps of freed ones"
            } else {
                ". The rest is room between blocks, what the allocator keeps of freed ones, and what the program has beside malloc"
            }
        ),
        Kind::HugePages => huge_pages(&share),
        Kind::Beside => beside(&share),
        Kind::HugeStacks => huge_stacks(&share),
        Kind::Grows => format!(
            "What the program holds grew until it ended, to {:.1} times what it was at half time. It builds something up, or forgets to free: \
             no allocator gives back what is live. Who allocates it a heap profiler tells, as heaptrack.",
            finding.share
        ),
        Kind::Kept => "Most was freed, but the memory stayed: in the last tenth of the time more than twice as much was resident as was live. Compare memory \
             after the load, too (`ample compare --server` tells it); `ample bench idle-return` shows which allocators give memory back."
            .to_owned(),
    })
}

/// Stacks in huge pages: the share of the memory that they are.
pub(super) fn huge_stacks(share: &str) -> String {
    format!(
        "{share} of the memory is stacks in huge pages: such a stack has two megabytes resident or more, however little of it is used. Linux before \
         6.7 does so where it gives huge pages to all memory. Stacks below 2 MiB (pthread_attr_setstacksize, `ulimit -s`) have none; after \
         `echo madvise >/sys/kernel/mm/transparent_hugepage/enabled` nothing has that does not ask for them."
    )
}

/// Malloc's memory in huge pages: their share of it.
pub(super) fn huge_pages(share: &str) -> String {
    format!(
        "{share} of that memory is in huge pages, which are resident as a whole where a part is used. If the system gives them to \
         all memory (`cat /sys/kernel/mm/transparent_hugepage/enabled` says [always]), that is its choice rather than the program's; \
         an allocator decides for itself under [madvise]. Ample does under both."
    )
}

/// Memory that is not malloc's: its share.
pub(super) fn beside(share: &str) -> String {
    format!(
        "{share} of the memory is not malloc's, and no allocator changes that: a runtime's own heap (CPython's, unless PYTHONMALLOC=malloc is \
         set; those of Java, Go and Node.js), what the program maps itself, stacks."
    )
}
