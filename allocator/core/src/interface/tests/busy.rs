//! What threads do where others are in the way.

use super::*;
use crate::magazine::Stack;
use crate::size_class::{self, Class};
use crate::sync::RawLock;

const SIZE: usize = 512;
/// About ten magazines: two stay with a thread that only frees, and an inbox takes sixteen.
const BLOCKS: usize = 640;
const FIRST: usize = 16;

fn class() -> Class {
    size_class::class_of(SIZE).expect("a small size")
}

/// One thread frees blocks that another has allocated while somebody holds the locks that `busy` finds: how many are then in the shared depot, and in the inbox of the other.
fn shed_while(busy: impl Fn(&'static Allocator, &'static Heap) -> Vec<&'static RawLock>) -> (usize, usize) {
    let allocator = allocator();
    let (owner, other) = (allocator.attach().expect("memory"), allocator.attach().expect("memory"));
    let blocks: Vec<_> = (0..BLOCKS).map(|_| Filled::new(allocator.allocate(owner, SIZE), SIZE, 7)).collect();
    let locks = busy(allocator, owner);
    // The first ones are of a starter, and go back one by one.
    let mut blocks = blocks.into_iter();
    blocks.by_ref().take(FIRST).for_each(|block| block.free(allocator, other));
    for lock in &locks {
        lock.acquire();
    }
    blocks.for_each(|block| block.free(allocator, other));
    for lock in locks {
        lock.release();
    }
    let in_depot = allocator.tables.depots.blocks(class());
    let inbox = owner.arena().expect("an arena").inbox.take_all();
    let sent = Stack::from_linked(inbox).blocks();
    allocator.flush_linked(inbox);
    // SAFETY: the heaps are used no more.
    unsafe {
        allocator.detach(owner);
        allocator.detach(other);
    }
    (in_depot, sent)
}

#[test]
fn blocks_that_fill_lines_go_to_their_owner_where_the_shared_depot_is_busy() {
    let (in_depot, sent) = shed_while(|_, _| Vec::new());
    assert!(in_depot > 0 && sent == 0, "{in_depot} in the depot, {sent} sent");
    let parts = |allocator: &'static Allocator| allocator.tables.depots.parts_of(class(), 0);
    let (in_depot, sent) = shed_while(|allocator, _| parts(allocator).map(|part| part.raw_lock()).collect());
    assert!(in_depot == 0 && sent > 0, "{in_depot} in the depot, {sent} sent");
}

#[test]
fn where_a_part_of_the_depot_is_busy_another_one_serves() {
    let busy = |allocator: &'static Allocator, owner: &'static Heap| {
        let arena = owner.arena().expect("an arena").index;
        vec![allocator.tables.depots.parts_of(class(), arena).next().expect("a part").raw_lock()]
    };
    let (in_depot, sent) = shed_while(busy);
    assert!(in_depot > 0 && sent > 0, "until it is full: {in_depot} in the depot, {sent} sent");
}

#[test]
fn blocks_that_fill_lines_go_to_their_owner_where_its_spans_are_busy_and_the_depot_is_full() {
    let (in_depot, sent) =
        shed_while(|_, owner| owner.arena().map(|arena| arena.raw_lock()).into_iter().collect());
    assert!(in_depot > 0 && sent > 0, "{in_depot} in the depot, {sent} sent");
}
