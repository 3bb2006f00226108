//! Every interleaving of the protocols that cross threads, as far as `loom` can enumerate them. Run with
//! `cargo xtask loom`.
//!
//! The lock, the inbox, the claim on a heap, the owner of a span and what arenas lend to each other are all there is: magazines, spans and the page heap are reached by
//! one thread at a time, which holds the lock, is inside the heap, or took the magazine out of an inbox.
#![cfg(loom)]

#[path = "../src/atomics.rs"]
mod atomics;
#[path = "../src/claim.rs"]
mod claim;
#[path = "../src/inbox.rs"]
mod inbox;
#[path = "../src/sync.rs"]
mod sync;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use claim::Claim;
use inbox::{Inbox, Linked};
use sync::{RawLock, light_fence};

/// A counter behind the lock under test.
struct Guarded {
    lock: RawLock,
    count: UnsafeCell<usize>,
}

// SAFETY: reached by the holder of the lock only; `loom` checks that.
unsafe impl Sync for Guarded {}

impl Guarded {
    fn add(&self) {
        self.lock.acquire();
        // SAFETY: the lock is held.
        self.count.with_mut(|count| unsafe { *count += 1 });
        self.lock.release();
    }
}

#[test]
fn the_lock_lets_one_thread_in_and_forgets_nobody() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let guarded = Arc::new(Guarded { lock: RawLock::new(), count: UnsafeCell::new(0) });
        let others: Vec<_> = (0..2)
            .map(|_| {
                let guarded = guarded.clone();
                thread::spawn(move || guarded.add())
            })
            .collect();
        guarded.add();
        // A sleeper whom nobody wakes would be a deadlock, which the model reports.
        for other in others {
            other.join().expect("no panic");
        }
        guarded.lock.acquire();
        // SAFETY: the lock is held.
        assert_eq!(guarded.count.with(|count| unsafe { *count }), 3);
        guarded.lock.release();
    });
}

/// What stands for a magazine: a link, and content that must be seen by whoever takes it.
struct Record {
    next: UnsafeCell<*mut Record>,
    content: UnsafeCell<usize>,
}

impl Linked for Record {
    fn set_next(&self, next: *mut Self) {
        // SAFETY: the caller owns the record; `loom` checks that.
        self.next.with_mut(|place| unsafe { *place = next });
    }
}

fn record(content: usize) -> *mut Record {
    Box::into_raw(Box::new(Record {
        next: UnsafeCell::new(std::ptr::null_mut()),
        content: UnsafeCell::new(content),
    }))
}

/// Takes linked records apart; their contents.
fn contents(mut first: *mut Record) -> Vec<usize> {
    let mut found = Vec::new();
    while !first.is_null() {
        // SAFETY: the records were taken out by the caller.
        let record = unsafe { Box::from_raw(first) };
        // SAFETY: as above.
        found.push(record.content.with(|content| unsafe { *content }));
        // SAFETY: as above.
        first = record.next.with(|next| unsafe { *next });
    }
    found
}

/// Puts a record in, or takes it apart where it is refused; what it held, if it was refused.
fn put(inbox: &Inbox<Record>, content: usize) -> Vec<usize> {
    let record = record(content);
    // SAFETY: the record is valid and this function's.
    if unsafe { inbox.put(record, 8) } {
        return Vec::new();
    }
    // SAFETY: refused, so it is still this function's; its link means nothing.
    let record = unsafe { Box::from_raw(record) };
    // SAFETY: as above.
    vec![record.content.with(|content| unsafe { *content })]
}

#[test]
fn what_is_put_in_comes_out_once_and_whole() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::<Record>::new());
        let senders: Vec<_> = (1..3)
            .map(|content| {
                let inbox = inbox.clone();
                thread::spawn(move || {
                    assert!(put(&inbox, content).is_empty(), "an open inbox with room takes all")
                })
            })
            .collect();
        let mut found = contents(inbox.take_all());
        for sender in senders {
            sender.join().expect("no panic");
        }
        found.extend(contents(inbox.take_all()));
        found.sort_unstable();
        assert_eq!(found, [1, 2]);
    });
}

#[test]
fn nothing_is_left_in_a_closed_inbox() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::<Record>::new());
        let senders: Vec<_> = (1..3)
            .map(|content| {
                let inbox = inbox.clone();
                thread::spawn(move || put(&inbox, content))
            })
            .collect();
        let mut found = contents(inbox.close());
        for sender in senders {
            found.extend(sender.join().expect("no panic"));
        }
        found.sort_unstable();
        assert_eq!(found, [1, 2], "a record is in the closed batch, or refused and still its sender's");
        inbox.open();
        assert!(put(&inbox, 3).is_empty());
        assert_eq!(contents(inbox.take_all()), [3]);
    });
}

/// An arena of several threads: one takes, while another's end closes the inbox, or its start opens what is open.
#[test]
fn an_inbox_that_is_opened_twice_or_closed_while_somebody_takes_loses_nothing() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::<Record>::new());
        let sender = {
            let inbox = inbox.clone();
            thread::spawn(move || put(&inbox, 1))
        };
        let taker = {
            let inbox = inbox.clone();
            thread::spawn(move || contents(inbox.take_all()))
        };
        inbox.open();
        let mut found = contents(inbox.close());
        for other in [sender, taker] {
            found.extend(other.join().expect("no panic"));
        }
        assert_eq!(found, [1]);
        assert_eq!(put(&inbox, 2), [2], "it stays closed");
    });
}

#[test]
fn an_inbox_keeps_its_bound() {
    loom::model(|| {
        let inbox = Inbox::<Record>::new();
        let mut refused = 0;
        for content in 0..10 {
            refused += put(&inbox, content).len();
        }
        assert_eq!(refused, 2);
        assert_eq!(contents(inbox.take_all()).len(), 8);
    });
}

/// The cold part of a heap.
struct Claimed {
    claim: Claim,
    count: UnsafeCell<usize>,
}

// SAFETY: reached by whoever is inside only; `loom` checks that.
unsafe impl Sync for Claimed {}

#[test]
fn a_heap_is_touched_by_its_thread_or_by_who_claimed_it() {
    loom::model(|| {
        let heap = Arc::new(Claimed { claim: Claim::new(), count: UnsafeCell::new(0) });
        let owner = {
            let heap = heap.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    heap.claim.enter();
                    // SAFETY: the thread is inside.
                    heap.count.with_mut(|count| unsafe { *count += 1 });
                    heap.claim.leave();
                }
            })
        };
        heap.claim.ask();
        // In place of the barrier in every thread.
        light_fence();
        let taken = heap.claim.take();
        if taken {
            // SAFETY: the heap is claimed.
            heap.count.with_mut(|count| unsafe { *count += 1 });
        }
        heap.claim.give_back();
        // An owner whom nobody wakes would be a deadlock, which the model reports.
        owner.join().expect("no panic");
        // SAFETY: the owner has ended.
        assert_eq!(heap.count.with(|count| unsafe { *count }), 2 + usize::from(taken));
    });
}

/// Two arenas and a span, which is the first one's to begin with.
struct Arenas {
    locks: [RawLock; 2],
    /// Whose the span is, as the unit map says.
    owner: AtomicUsize,
    /// What came back to the span. Guarded by its owner's lock.
    returned: UnsafeCell<usize>,
}

// SAFETY: reached by the holder of the owner's lock only; `loom` checks that.
unsafe impl Sync for Arenas {}

impl Arenas {
    /// As `Arena::give_back` and who calls it: the owner is read, and looked at again under its lock.
    fn give_back(&self) {
        loop {
            // Relaxed, twice: as for entries of the unit map.
            let owner = self.owner.load(Ordering::Relaxed);
            self.locks[owner].acquire();
            // Relaxed: as above.
            let is_owner = self.owner.load(Ordering::Relaxed) == owner;
            if is_owner {
                // SAFETY: the owner's lock is held.
                self.returned.with_mut(|returned| unsafe { *returned += 1 });
            }
            self.locks[owner].release();
            if is_owner {
                return;
            }
        }
    }

    /// As `Spans::adopt`: an arena takes the span over if the other one's lock is free.
    fn adopt(&self, arena: usize) {
        self.locks[arena].acquire();
        let other = 1 - arena;
        if self.locks[other].try_acquire() {
            // Relaxed, twice: as for entries of the unit map.
            if self.owner.load(Ordering::Relaxed) == other {
                // SAFETY: the owner's lock is held.
                self.returned.with_mut(|returned| unsafe { *returned += 10 });
                // Relaxed: as above.
                self.owner.store(arena, Ordering::Relaxed);
            }
            self.locks[other].release();
        }
        self.locks[arena].release();
    }
}

#[test]
fn what_comes_back_to_a_span_reaches_whoever_owns_it_by_then() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let arenas = Arc::new(Arenas {
            locks: [RawLock::new(), RawLock::new()],
            owner: AtomicUsize::new(0),
            returned: UnsafeCell::new(0),
        });
        let adopter = {
            let arenas = arenas.clone();
            thread::spawn(move || arenas.adopt(1))
        };
        let giver = {
            let arenas = arenas.clone();
            thread::spawn(move || arenas.give_back())
        };
        // The first arena would have it back.
        arenas.adopt(0);
        for other in [adopter, giver] {
            other.join().expect("no panic");
        }
        // Relaxed: all others have ended.
        let owner = arenas.owner.load(Ordering::Relaxed);
        arenas.locks[owner].acquire();
        // SAFETY: the owner's lock is held.
        let returned = arenas.returned.with(|returned| unsafe { *returned });
        arenas.locks[owner].release();
        assert_eq!(returned % 10, 1);
        assert_eq!(returned / 10 % 2, owner, "it changed its owner as often as it was adopted");
    });
}

/// Two arenas that lend to each other blocks of a class that fills lines.
struct Lending {
    locks: [RawLock; 2],
    /// Blocks that each has room for. Guarded by its lock.
    room: [UnsafeCell<usize>; 2],
    /// One more than the index of the arena that may have room; 0: nobody knows of any.
    lender: AtomicUsize,
}

// SAFETY: an arena's room is reached by the holder of its lock only; `loom` checks that.
unsafe impl Sync for Lending {}

impl Lending {
    /// Whether there was a block in this arena, whose lock is held.
    fn hand_out(&self, arena: usize) -> bool {
        // SAFETY: the lock is held.
        self.room[arena].with_mut(|room| unsafe {
            let had = *room > 0;
            *room -= usize::from(had);
            had
        })
    }

    /// As `Arena::fill` and `Lenders::borrow`: how many blocks an arena gets without growing.
    fn fill(&self, own: usize) -> usize {
        self.locks[own].acquire();
        let mut got = self.hand_out(own);
        // Acquire: as in `borrow`.
        let lender = self.lender.load(Ordering::Acquire);
        if !got && lender > 0 {
            let free = lender - 1 != own && self.locks[lender - 1].try_acquire();
            if free {
                got = self.hand_out(lender - 1);
                self.locks[lender - 1].release();
            }
            if !got && (free || lender - 1 == own) {
                // Relaxed: as in `borrow`.
                self.lender.store(0, Ordering::Relaxed);
            }
        }
        self.locks[own].release();
        usize::from(got)
    }

    /// As `Arena::give_back` of a block.
    fn give_back(&self, arena: usize) {
        self.locks[arena].acquire();
        // SAFETY: the lock is held.
        self.room[arena].with_mut(|room| unsafe { *room += 1 });
        // Relaxed: as in `Lenders::note`.
        if self.lender.load(Ordering::Relaxed) == 0 {
            // Release: as in `Lenders::note`.
            self.lender.store(arena + 1, Ordering::Release);
        }
        self.locks[arena].release();
    }
}

#[test]
fn what_arenas_lend_to_each_other_is_handed_out_once() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let lending = Arc::new(Lending {
            locks: [RawLock::new(), RawLock::new()],
            room: [UnsafeCell::new(1), UnsafeCell::new(0)],
            lender: AtomicUsize::new(1),
        });
        let first = {
            let lending = lending.clone();
            thread::spawn(move || {
                lending.give_back(1);
                lending.fill(0)
            })
        };
        let second = {
            let lending = lending.clone();
            thread::spawn(move || lending.fill(1))
        };
        let got = lending.fill(1) + first.join().expect("no panic") + second.join().expect("no panic");
        // SAFETY: all others have ended.
        let left = |arena: usize| lending.room[arena].with(|room| unsafe { *room });
        assert_eq!(got + left(0) + left(1), 2, "one was there, and one came back");
        assert!(got > 0, "whoever came first found the one that was there");
    });
}
