//! What follows from a look at a process that runs: what costs it speed, and what its memory is.

use serde::Serialize;

use super::{Memory, Running};
use crate::observation::share;

/// Below so much processor time, in seconds, nothing is said of how it is spent.
const LEAST_TIME: f64 = 0.2;
/// Fewer looks tell nothing.
const LEAST_LOOKS: u64 = 50;
/// From this share of the processor time on, malloc matters for the speed; below the other one it does not.
const DEAR: f64 = 0.10;
const CHEAP: f64 = 0.02;
/// From this share of the time on in which threads have something to do, waits are told.
const WAITS: f64 = 0.05;
/// From so many page faults for each second of processor time on, and this multiple of what the growth of the memory needs, memory comes fresh again and again.
const FRESH: (f64, f64) = (50_000.0, 4.0);
/// From so many bytes on memory is judged,
const LEAST_MEMORY: u64 = 16 << 20;
/// and from this multiple of the blocks' bytes on, malloc's memory is told to be free in good part.
const KEPT: f64 = 1.5;
/// So many bytes, and this share of it, by which the memory grew meanwhile.
const GREW: (u64, f64) = (8 << 20, 0.02);
/// From this share of malloc's memory on, huge pages are told where much is free.
const HUGE: f64 = 0.5;
/// From this share of all memory on what is not malloc's is told,
const BESIDE: f64 = 0.5;
/// and huge pages of stacks are.
const STACKS: f64 = 0.1;

/// What was found, with the figure that says how much of it there is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Finding {
    /// What it is.
    pub kind: Kind,
    /// How much, as [`Kind`] tells.
    pub share: f64,
}

/// The findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// It hardly ran: the processors that it used.
    Idle,
    /// Malloc takes much of the processor time: its share.
    Dear,
    /// Malloc takes little of it: its share.
    Cheap,
    /// Threads wait for a lock of malloc's: the share of the time in which they have something to do.
    WaitsForMalloc,
    /// They wait while memory is mapped, unmapped or brought in: that share.
    WaitsForMemory,
    /// Memory comes fresh again and again: bytes a second.
    Fresh,
    /// Much of malloc's memory is free: the multiple of the blocks' bytes that is resident.
    Kept,
    /// Then most of it is in huge pages: their share.
    HugePages,
    /// Malloc's memory is what the blocks take: the same multiple.
    Held,
    /// The memory grew, and so did the blocks: bytes a second.
    HoldsMore,
    /// The memory grew by more than the blocks did: bytes a second.
    KeepsMore,
    /// The memory grew, and nobody knows the blocks: bytes a second.
    Grew,
    /// Most of the memory is not malloc's: its share.
    Beside,
    /// Stacks are in huge pages: the share of all memory that they are.
    HugeStacks,
}

impl Kind {
    /// Whether it holds threads up that could run, or memory that could be free.
    pub fn is_trouble(self) -> bool {
        !matches!(
            self,
            Self::Idle | Self::Dear | Self::Cheap | Self::Held | Self::Beside | Self::HoldsMore | Self::Grew
        )
    }
}

/// Everything that follows.
pub(super) fn of(running: &Running) -> Vec<Finding> {
    let mut findings = Vec::new();
    of_time(running, &mut |kind, share| findings.push(Finding { kind, share }));
    // What threads wait for, or do again and again, is not cheap.
    let cheap = running.malloc_share().filter(|malloc| *malloc < CHEAP && findings.is_empty());
    findings.extend(cheap.map(|share| Finding { kind: Kind::Cheap, share }));
    let mut found = |kind, share| findings.push(Finding { kind, share });
    of_memory(&running.after, &mut found);
    of_growth(running, &mut found);
    findings
}

impl Running {
    /// Whether the processes that it has started did something meanwhile.
    pub fn descendants_work(&self) -> bool {
        let time_ns: u64 = self.descendants.iter().map(|descendant| descendant.cpu_ns).sum();
        time_ns as f64 / 1e9 >= LEAST_TIME
    }
}

fn of_time(running: &Running, found: &mut impl FnMut(Kind, f64)) {
    let (account, seconds) = (&running.account, running.seconds.max(1e-3));
    let time = account.cpu_ns() as f64 / 1e9;
    if time < LEAST_TIME {
        found(Kind::Idle, time / seconds);
    } else if let Some(malloc) = running.malloc_share().filter(|malloc| *malloc >= DEAR) {
        found(Kind::Dear, malloc);
    }
    if let Some(waits) = running.waits.filter(|waits| waits.busy() >= LEAST_LOOKS) {
        let both = [(Kind::WaitsForMalloc, waits.for_malloc), (Kind::WaitsForMemory, waits.for_memory)];
        for (kind, count) in both {
            let lost = share(count, waits.busy());
            if lost >= WAITS {
                found(kind, lost);
            }
        }
    }
    let fresh = account.fault_bytes() as f64;
    if account.faults as f64 >= FRESH.0 * time.max(LEAST_TIME) && fresh >= FRESH.1 * running.grown() as f64 {
        found(Kind::Fresh, fresh / seconds);
    }
}

fn of_memory(memory: &Memory, found: &mut impl FnMut(Kind, f64)) {
    let parts = &memory.parts;
    if let Some((malloc, live)) = memory.malloc() {
        let multiple = share(malloc, live.max(1));
        if malloc.saturating_sub(live) >= LEAST_MEMORY && multiple >= KEPT {
            found(Kind::Kept, multiple);
            let huge = share(parts.malloc.huge_bytes, malloc);
            if huge >= HUGE {
                found(Kind::HugePages, huge);
            }
        } else if malloc >= LEAST_MEMORY {
            found(Kind::Held, multiple);
        }
    }
    if memory.heaps.is_some_and(|heaps| heaps.are_known()) && memory.figures.is_none() {
        let beside = share(parts.beside(), parts.total());
        if parts.beside() >= LEAST_MEMORY && beside >= BESIDE {
            found(Kind::Beside, beside);
        }
    }
    let huge = share(parts.stacks.huge_bytes, parts.total());
    if parts.stacks.huge_bytes >= LEAST_MEMORY && huge >= STACKS {
        found(Kind::HugeStacks, huge);
    }
}

fn of_growth(running: &Running, found: &mut impl FnMut(Kind, f64)) {
    let (before, after, grown) = (&running.before, &running.after, running.grown());
    if grown < GREW.0 || (grown as f64) < GREW.1 * before.resident_bytes as f64 {
        return;
    }
    let kind = match before.malloc().zip(after.malloc()) {
        Some(((_, then), (_, now))) if 2 * now.saturating_sub(then) >= grown => Kind::HoldsMore,
        Some(((then, _), (now, _))) if 2 * now.saturating_sub(then) >= grown => Kind::KeepsMore,
        _ => Kind::Grew,
    };
    found(kind, grown as f64 / running.seconds.max(1e-3));
}

impl Memory {
    /// Bytes of malloc's that are in memory, and those of its blocks, both at most where Ample tells them itself; none where they are not known.
    fn malloc(&self) -> Option<(u64, u64)> {
        let walked = match self.heaps {
            Some(heaps) if !heaps.are_known() => return None,
            heaps => heaps.map(|heaps| (self.parts.malloc.bytes, heaps.live_bytes())),
        };
        // Its mappings are not told from others, which is what else it may be.
        let told =
            self.figures.map(|figures| (figures.bytes().min(self.parts.others.bytes), figures.live_bytes()));
        // A program in Rust may have both.
        [walked, told].into_iter().flatten().reduce(|one, other| (one.0 + other.0, one.1 + other.1))
    }
}

impl Running {
    /// Of the processor time, what malloc's code takes: a share; none where too little was seen.
    pub fn malloc_share(&self) -> Option<f64> {
        let looks = self.code.filter(|looks| looks.all >= LEAST_LOOKS)?;
        Some(share(looks.in_malloc, looks.all) * share(self.account.user_ns, self.account.cpu_ns()))
    }

    /// By how much its memory grew meanwhile, in bytes.
    fn grown(&self) -> u64 {
        self.after.resident_bytes.saturating_sub(self.before.resident_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::{Part, Parts};
    use crate::running::{Account, Descendant, Figures, Heaps, Looks, Waits};

    const MIB: u64 = 1 << 20;

    /// A process that works for ten seconds on one processor, with 100 MiB of malloc's, nearly all of it in blocks.
    fn kinds(change: impl FnOnce(&mut Running)) -> Vec<Kind> {
        let heaps = Heaps {
            arenas: 3,
            bytes: 104 * MIB,
            used_blocks: 1000,
            used_bytes: 90 * MIB,
            free_bytes: 14 * MIB,
            ..Heaps::default()
        };
        let parts = Parts { malloc: Part { bytes: 100 * MIB, huge_bytes: 0 }, ..Parts::default() };
        let memory = Memory { resident_bytes: 100 * MIB, parts, heaps: Some(heaps), ..Memory::default() };
        let mut running = Running {
            seconds: 10.0,
            account: Account { user_ns: 8_000_000_000, kernel_ns: 2_000_000_000, ..Account::default() },
            code: Some(Looks { all: 4000, in_malloc: 200 }),
            waits: Some(Waits { running: 1000, for_malloc: 0, for_memory: 0 }),
            before: memory,
            after: memory,
            ..Running::default()
        };
        change(&mut running);
        of(&running).into_iter().map(|finding| finding.kind).collect()
    }

    #[test]
    fn a_process_that_holds_what_it_has_is_told_just_that() {
        assert_eq!(kinds(|_| ()), [Kind::Held]);
        assert_eq!(kinds(|running| running.account = Account::default()), [Kind::Idle, Kind::Held]);
    }

    #[test]
    fn a_server_whose_workers_did_something_is_told_from_one_that_sleeps() {
        let with = |times: &[u64]| Running {
            descendants: times.iter().map(|&cpu_ns| Descendant { cpu_ns, ..Descendant::default() }).collect(),
            ..Running::default()
        };
        assert!(!with(&[]).descendants_work() && !with(&[1_000_000, 2_000_000]).descendants_work());
        assert!(with(&[0, 150_000_000, 150_000_000]).descendants_work());
    }

    #[test]
    fn malloc_s_code_is_judged_by_its_share_of_the_whole_time() {
        let looks =
            |in_malloc| move |running: &mut Running| running.code = Some(Looks { all: 4000, in_malloc });
        assert_eq!(kinds(looks(500)), [Kind::Dear, Kind::Held]);
        assert_eq!(kinds(looks(499)), [Kind::Held], "less than a tenth with the kernel's part");
        assert_eq!(kinds(looks(20)), [Kind::Cheap, Kind::Held]);
        assert_eq!(
            kinds(|running| running.code = Some(Looks { all: 40, in_malloc: 39 })),
            [Kind::Held],
            "too few"
        );
        let waits = |running: &mut Running| {
            looks(20)(running);
            running.waits = Some(Waits { running: 900, for_malloc: 50, for_memory: 50 });
        };
        assert_eq!(
            kinds(waits),
            [Kind::WaitsForMalloc, Kind::WaitsForMemory, Kind::Held],
            "what it waits for is not cheap"
        );
    }

    #[test]
    fn memory_that_comes_fresh_is_told_apart_from_memory_that_grows() {
        assert_eq!(kinds(|running| running.account.faults = 500_000), [Kind::Fresh, Kind::Held]);
        assert_eq!(kinds(|running| running.account.faults = 499_000), [Kind::Held]);
        let grown = |running: &mut Running, by: u64, live: u64| {
            running.account.faults = 500_000;
            running.after.resident_bytes += by;
            running.after.parts.malloc.bytes += by;
            running.after.heaps.as_mut().expect("known").used_bytes += live;
        };
        assert_eq!(kinds(|running| grown(running, 1000 * MIB, 1000 * MIB)), [Kind::Held, Kind::HoldsMore]);
        assert_eq!(kinds(|running| grown(running, 1000 * MIB, 0)), [Kind::Kept, Kind::KeepsMore]);
        assert_eq!(kinds(|running| grown(running, 7 * MIB, 0)), [Kind::Fresh, Kind::Held]);
        let unknown = |running: &mut Running| {
            grown(running, 1000 * MIB, 0);
            (running.before.heaps, running.after.heaps) = (None, None);
        };
        assert_eq!(kinds(unknown), [Kind::Grew]);
    }

    #[test]
    fn what_is_free_or_not_malloc_s_is_told_where_that_is_known() {
        let freed =
            |running: &mut Running| running.after.heaps.as_mut().expect("known").used_bytes = 60 * MIB;
        assert_eq!(kinds(freed), [Kind::Kept]);
        let all_freed = |running: &mut Running| running.after.heaps = Some(Heaps::default());
        assert_eq!(kinds(all_freed), [Kind::Kept]);
        let huge = |running: &mut Running| {
            freed(running);
            running.after.parts.malloc.huge_bytes = 60 * MIB;
        };
        assert_eq!(kinds(huge), [Kind::Kept, Kind::HugePages]);
        let unknown = |running: &mut Running| {
            freed(running);
            running.after.heaps.as_mut().expect("known").unknown_bytes = 20 * MIB;
        };
        assert_eq!(kinds(unknown), [], "a fifth of it is not known");
        assert_eq!(kinds(|running| running.after.parts.others.bytes = 110 * MIB), [Kind::Held, Kind::Beside]);
        let stacks = Part { bytes: 40 * MIB, huge_bytes: 32 * MIB };
        assert_eq!(kinds(|running| running.after.parts.stacks = stacks), [Kind::Held, Kind::HugeStacks]);
    }

    #[test]
    fn what_ample_tells_of_itself_is_judged_as_what_a_walk_finds() {
        let of_ample = |small: u64, room: u64, kept: u64, resident: u64| {
            move |running: &mut Running| {
                let figures = Figures {
                    small_bytes: small * MIB,
                    room_bytes: room * MIB,
                    kept_bytes: kept * MIB,
                    ..Figures::default()
                };
                let parts =
                    Parts { others: Part { bytes: resident * MIB, huge_bytes: 0 }, ..Parts::default() };
                running.after = Memory {
                    resident_bytes: resident * MIB,
                    parts,
                    figures: Some(figures),
                    ..Memory::default()
                };
                running.before = running.after;
            }
        };
        assert_eq!(kinds(of_ample(100, 10, 10, 110)), [Kind::Held]);
        assert_eq!(kinds(of_ample(100, 60, 10, 110)), [Kind::Kept]);
        assert_eq!(kinds(of_ample(50, 0, 60, 110)), [Kind::Kept]);
        assert_eq!(kinds(of_ample(100, 60, 0, 45)), [Kind::Held], "the free pages are the system's again");
        let grown = |running: &mut Running| {
            of_ample(100, 10, 10, 120)(running);
            running.after.resident_bytes += 100 * MIB;
            running.after.parts.others.bytes += 100 * MIB;
            running.after.figures.as_mut().expect("told").small_bytes += 100 * MIB;
        };
        assert_eq!(kinds(grown), [Kind::Held, Kind::HoldsMore]);
        let both = |running: &mut Running| {
            let of_glibc = running.after;
            of_ample(100, 80, 0, 100)(running);
            (running.after.heaps, running.after.parts.malloc) = (of_glibc.heaps, of_glibc.parts.malloc);
        };
        assert_eq!(kinds(both), [Kind::Kept], "200 MiB for 110 MiB of blocks");
        let kept = |running: &mut Running| {
            grown(running);
            running.after.figures.as_mut().expect("told").room_bytes += 100 * MIB;
        };
        assert_eq!(kinds(kept), [Kind::Kept, Kind::KeepsMore]);
    }
}
