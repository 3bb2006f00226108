//! Every call into the operating system fails once, in every scenario: the n-th alone, and the n-th with all that follow. Then the
//! answer is "no memory" or a block, no live block has lost its content, the same work succeeds when the system gives again, and
//! in the end nothing is left over.

use super::*;
use crate::helper::Helper;
use crate::os::{Call, Faults};
use crate::statistics::Statistics;
use crate::thresholds::Parameter;

/// Bytes of the machine that one run has; touched where they are used.
const REGION: usize = 2 << 30;

/// An allocator, its main thread's heap, and what is live.
struct World {
    allocator: &'static Allocator,
    helper: Helper,
    /// None as long as there is no memory for one.
    heap: Option<&'static Heap>,
    /// Another thread's.
    other: Option<&'static Heap>,
    inert: Heap,
    live: Vec<Filled>,
}

extern "C" fn no_body(_: *mut core::ffi::c_void) -> *mut core::ffi::c_void {
    ptr::null_mut()
}

impl World {
    fn new() -> Self {
        let (inert, helper) = (Heap::inert(), Helper::new());
        Self { allocator: allocator(), helper, heap: None, other: None, inert, live: Vec::new() }
    }

    fn heap(&self) -> &Heap {
        self.heap.unwrap_or(&self.inert)
    }

    fn attach(&mut self) -> bool {
        self.heap = self.heap.or_else(|| self.allocator.attach());
        self.heap.is_some()
    }

    fn attach_other(&mut self) -> bool {
        self.other = self.other.or_else(|| self.allocator.attach());
        self.other.is_some()
    }

    /// Keeps a block that was got; `false`: there was none.
    fn keep(&mut self, block: *mut u8, size: usize) -> bool {
        if block.is_null() {
            return false;
        }
        let byte = (self.live.len() % 255) as u8 + 1;
        self.live.push(Filled::new(block, size, byte));
        true
    }

    fn malloc(&mut self, size: usize) -> bool {
        let block = self.allocator.allocate(self.heap(), size);
        self.keep(block, size)
    }

    fn calloc(&mut self, size: usize) -> bool {
        let block = self.allocator.allocate_zeroed(self.heap(), size, 1);
        if !block.is_null() {
            Filled { block: block.expose_provenance(), size, byte: 0 }.check(size);
        }
        self.keep(block, size)
    }

    fn aligned(&mut self, size: usize, align: usize) -> bool {
        let block = self.allocator.allocate_aligned(self.heap(), size, align);
        assert_eq!(block.addr() % align, 0);
        self.keep(block, size)
    }

    /// Resizes the block at `index`, which keeps its content either way.
    fn realloc(&mut self, index: usize, size: usize) -> bool {
        let Some(old) = self.live.get(index) else { return false };
        // SAFETY: the block is live, and replaced by the result unless that is null.
        let block = unsafe { self.allocator.reallocate(self.heap(), old.pointer(), size, 1) }.expect("ours");
        if block.is_null() {
            return false;
        }
        let byte = old.byte;
        Filled { block: block.expose_provenance(), size, byte }.check(size.min(old.size));
        self.live[index] = Filled::new(block, size, byte);
        true
    }

    fn free(&mut self, count: usize) -> bool {
        let from = self.live.len() - count;
        for block in self.live.split_off(from) {
            block.free(self.allocator, self.heap());
        }
        true
    }

    fn check(&self) {
        self.live.iter().for_each(|block| block.check(block.size));
    }
}

/// Work whose calls into the system fail. `prepare` succeeds; `act` says whether all of it succeeded.
struct Scenario {
    name: &'static str,
    prepare: fn(&mut World),
    act: fn(&mut World) -> bool,
}

fn started(world: &mut World) {
    assert!(world.attach());
}

/// A large block with a wall behind it, so that it cannot grow where it lies.
fn walled(world: &mut World) {
    started(world);
    assert!(world.malloc(600 << 10) && world.malloc(100 << 10));
}

/// Free memory everywhere: in magazines, in the cache of large blocks, and dirty; and a block whose pages were moved.
fn used(world: &mut World) {
    walled(world);
    assert!(world.attach_other() && world.realloc(0, 3 << 20));
    assert!((0..3000).all(|_| world.malloc(700)) && world.malloc(300 << 10));
    world.free(3001);
}

/// The same, and what was remapped is dirty.
fn moved_and_freed(world: &mut World) {
    used(world);
    world.free(world.live.len());
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "thread start",
        prepare: |_| {},
        act: |world| world.attach() & world.attach_other() & world.malloc(10),
    },
    Scenario {
        name: "malloc, small",
        prepare: started,
        act: |world| [1, 16, 100, 1000, 5000, 30_000].iter().all(|&size| world.malloc(size)),
    },
    Scenario {
        name: "malloc, small, without a heap",
        prepare: |_| {},
        act: |world| [1, 1000, 30_000].iter().all(|&size| world.malloc(size)),
    },
    Scenario {
        name: "malloc, a heap of small blocks that gets huge pages",
        prepare: started,
        act: |world| (0..1200).all(|_| world.malloc(10_000)),
    },
    Scenario {
        name: "malloc, large",
        prepare: started,
        act: |world| [40_000, 1 << 20, 3 << 20].iter().all(|&size| world.malloc(size)),
    },
    Scenario {
        name: "malloc, large, in a program that fills its blocks",
        prepare: |world| {
            started(world);
            assert!((0..3).all(|_| world.malloc(4 << 20)));
        },
        act: |world| {
            (0..3).all(|_| world.malloc(4 << 20)) && world.realloc(5, 9 << 20) && world.realloc(5, 3 << 20)
        },
    },
    Scenario { name: "malloc, huge", prepare: started, act: |world| world.malloc(33 << 20) },
    Scenario {
        name: "calloc",
        prepare: used,
        act: |world| [10, 20_000, 300 << 10, 33 << 20].iter().all(|&size| world.calloc(size)),
    },
    Scenario {
        name: "calloc and malloc, large, in a program that touches little of its blocks",
        prepare: |world| {
            started(world);
            for size in [2 << 20, 4 << 20] {
                let block = world.allocator.allocate(world.heap(), size);
                // SAFETY: a live block, and nobody uses it any more.
                assert_eq!(unsafe { world.allocator.free(world.heap(), block) }, Ok(()));
            }
        },
        act: |world| world.calloc(3 << 20) & world.malloc(2 << 20),
    },
    Scenario {
        name: "realloc, growing",
        prepare: |world| {
            started(world);
            assert!(world.malloc(100));
        },
        act: |world| [1000, 30_000, 100_000, 400_000, 33 << 20].iter().all(|&size| world.realloc(0, size)),
    },
    Scenario { name: "realloc, moving pages", prepare: walled, act: |world| world.realloc(0, 5 << 20) },
    Scenario {
        name: "realloc, shrinking",
        prepare: used,
        act: |world| [1 << 20, 50_000, 20_000, 1000, 10].iter().all(|&size| world.realloc(0, size)),
    },
    Scenario {
        name: "aligned",
        prepare: started,
        act: |world| {
            [(10, 64), (100, 4096), (10, 32 << 10), (100_000, 4 << 20), (1 << 20, 64 << 20)]
                .iter()
                .all(|&(size, align)| world.aligned(size, align))
        },
    },
    Scenario {
        name: "free",
        prepare: |world| {
            walled(world);
            assert!(world.realloc(0, 3 << 20) && (0..2000).all(|_| world.malloc(700)));
        },
        act: |world| world.free(world.live.len()),
    },
    Scenario {
        name: "free of another thread's blocks",
        prepare: |world| {
            started(world);
            assert!((0..3000).all(|n| world.malloc(100 + n % 1000)));
        },
        act: |world| {
            let attached = world.attach_other();
            let blocks = world.live.split_off(world.live.len().saturating_sub(1000));
            for block in blocks {
                block.free(world.allocator, world.other.unwrap_or(&world.inert));
            }
            attached
        },
    },
    Scenario {
        name: "purge",
        prepare: |world| {
            used(world);
            world.allocator.flush(world.heap());
        },
        act: |world| {
            // Later than any free, and once more for what was refused: all dirty runs are old.
            for later in [10_000, 20_000] {
                world.allocator.tables.pages.purge_old(world.allocator.ground(), os::now_ms() + later);
            }
            !world.allocator.tables.pages.has_dirty(world.allocator.ground())
        },
    },
    Scenario {
        name: "trim",
        prepare: moved_and_freed,
        act: |world| {
            world.allocator.trim(world.heap());
            world.allocator.statistics().retained == 0
        },
    },
    Scenario {
        name: "tending idle threads",
        prepare: used,
        act: |world| {
            for look in 1..10 {
                world.allocator.tend(look);
            }
            true
        },
    },
    Scenario {
        name: "holes",
        prepare: |world| {
            started(world);
            assert!((0..600).all(|_| world.malloc(700)));
        },
        act: |world| {
            for (index, block) in core::mem::take(&mut world.live).into_iter().enumerate() {
                match index % 20 {
                    0 => world.live.push(block),
                    _ => block.free(world.allocator, world.heap()),
                }
            }
            world.allocator.flush(world.heap());
            // Blocks were handed out just now; then nothing happened.
            (0..3).filter(|_| world.allocator.purge_holes()).count() <= 2
        },
    },
    Scenario {
        name: "fork",
        prepare: used,
        act: |world| {
            world.allocator.give_back_before_fork(false);
            world.allocator.before_fork();
            let done = world.malloc(33 << 20) & world.malloc(11_000);
            world.allocator.after_fork_in_parent();
            world.allocator.before_fork();
            let done = done & world.malloc(3 << 20);
            world.allocator.after_fork_in_child(world.heap);
            world.other = None;
            done & world.attach_other() & world.malloc(9000)
        },
    },
    Scenario {
        name: "a soft limit",
        prepare: started,
        act: |world| {
            assert!(world.allocator.options.set(Name::SoftLimit, 1 << 20));
            let done = world.malloc(3 << 20) & world.malloc(600 << 10) & world.realloc(0, 5 << 20);
            done && world.free(1)
        },
    },
    Scenario {
        name: "addresses are limited from now on",
        prepare: used,
        act: |world| {
            os::limit_addresses(Some(1 << 20));
            world.allocator.ground().let_go();
            world.malloc(3 << 20) & world.malloc(33 << 20) & world.malloc(900) && world.free(3)
        },
    },
    Scenario {
        name: "the limit of the control group",
        prepare: used,
        act: |world| world.malloc(17 << 20) & world.malloc(17 << 20) && world.free(1),
    },
    Scenario {
        name: "free at once, from a set threshold on",
        prepare: walled,
        act: |world| {
            world.allocator.options.thresholds.set(Parameter::MmapThreshold, 64 << 10);
            world.malloc(3 << 20) && world.free(1)
        },
    },
    Scenario {
        name: "the report at the end",
        prepare: |world| {
            used(world);
            assert!(world.allocator.options.set(Name::StatsJson, 7));
        },
        act: |world| {
            world.allocator.report(false);
            let written = os::written();
            assert!(written.windows(12).any(|part| part == b"active_bytes"));
            os::created() == "7"
        },
    },
    Scenario {
        name: "helper start",
        prepare: used,
        act: |world| {
            let answered = world.helper.call(world.allocator, no_body, || true);
            assert!(answered, "a thread may be started");
            let there = world.helper.is_there();
            world.helper = Helper::new();
            there
        },
    },
];

/// Runs a scenario with these faults; the calls that were refused, and how many calls there were.
fn run_with(scenario: &Scenario, limited: bool, faults: Faults) -> (Vec<Call>, u64) {
    os::use_region(REGION, limited);
    let mut world = World::new();
    (scenario.prepare)(&mut world);
    os::inject(faults);
    let done = (scenario.act)(&mut world);
    let (refused, calls) = (os::refused_calls(), os::calls());
    os::inject(Faults::None);
    assert!(done || !refused.is_empty(), "{}: fails although nothing was refused", scenario.name);
    world.check();
    assert!((scenario.act)(&mut world), "{}: fails after {refused:?}", scenario.name);
    world.check();
    assert!(world.attach() && world.malloc(50) && world.malloc(5 << 20));
    let (allocator, count) = (world.allocator, world.live.len());
    world.free(count);
    for heap in [world.heap, world.other].into_iter().flatten() {
        // SAFETY: the heap is used no more.
        unsafe { allocator.detach(heap) };
    }
    assert_eq!(kept_bytes(allocator), 0, "{}: after {refused:?}", scenario.name);
    let left = allocator.statistics();
    let nothing = Statistics { mapped: left.mapped, metadata: left.metadata, ..Statistics::default() };
    assert_eq!(left, nothing, "{}: after {refused:?}", scenario.name);
    (refused, calls)
}

#[test]
fn every_call_into_the_system_fails_once() {
    let mut reached = Vec::new();
    for scenario in SCENARIOS {
        for limited in [false, true] {
            let (_, expected) = run_with(scenario, limited, Faults::None);
            let (mut single, mut lasting) = (0, 0);
            for (faults, runs) in [
                (Faults::Only as fn(u64) -> Faults, &mut single),
                (Faults::From as fn(u64) -> Faults, &mut lasting),
            ] {
                // Until no call is left that could fail.
                while let (refused, _) = run_with(scenario, limited, faults(*runs))
                    && !refused.is_empty()
                {
                    reached.extend(refused);
                    *runs += 1;
                }
            }
            assert!(single >= expected, "{}: {single} of {expected} calls failed", scenario.name);
            let tables = if limited { "tables in pieces" } else { "whole tables" };
            println!(
                "{}, {tables}: each of {single} calls failed alone, each of {lasting} with all after it",
                scenario.name
            );
        }
    }
    for call in Call::ALL {
        let times = reached.iter().filter(|&&refused| refused == call).count();
        println!("{call:?}: refused {times} times");
        assert!(times > 0, "no scenario reaches {call:?}");
    }
}
