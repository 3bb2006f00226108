//! What follows from an observation: what keeps a program's threads from the use of all processors, or makes its memory grow.

use ample_protocol::observation::LOOK_AT;
use serde::Serialize;

use super::{Observation, PAGE, Process, Totals};

/// From this share of the processor time on, the allocator matters for the speed.
const DEAR: f64 = 0.10;
/// Below this one it does not.
const CHEAP: f64 = 0.02;
/// From this share of the processor time on, slow calls are told: they may be waits, which need none of it.
const SLOW: f64 = 0.05;
/// Of fewer slow calls too few were looked at, one of [`LOOK_AT`], to say why they were.
const LEAST_SLOW: u64 = 10 * LOOK_AT;
/// From so many page faults on, and this multiple of the most memory, memory came fresh again and again.
const FRESH: (u64, f64) = (10_000, 4.0);
/// From this share of the freed blocks on, threads free each other's.
const HANDED_OVER: f64 = 0.05;
/// From this share of the allocated blocks on, and so many of them, threads have blocks on the same cache lines. Few of them
/// that live long do harm, too.
const SHARED: (f64, u64) = (0.01, 64);
/// From this share of all bytes on, and so many of them, large blocks matter,
const LARGE: (f64, u64) = (0.25, 1000);
/// and from this share of them on, they are transient.
const TRANSIENT: f64 = 0.5;
/// From so many calls of malloc_trim on, and so many a second, they are a habit.
const TRIMS: (u64, f64) = (20, 5.0);
/// From so many live bytes on, and this multiple of them, resident memory is told.
const OVERHEAD: (u64, f64) = (8 << 20, 1.3);
/// From this share of malloc's memory on, huge pages are why there is more than is live.
const HUGE: f64 = 0.5;
/// From so many bytes on, and this share of all memory, what is not malloc's is told,
const BESIDE: (u64, f64) = (16 << 20, 0.5);
/// and huge pages of stacks are.
const STACKS: (u64, f64) = (16 << 20, 0.1);
/// From this multiple of what was live at half time on, and so many bytes, it grows to the end.
const GROWS: (f64, u64) = (1.25, 16 << 20);
/// So many bytes that stay resident beyond twice what is live are told, where most was freed.
const KEPT: u64 = 16 << 20;
/// Fewer moments, or a shorter time, in milliseconds, tell nothing of how memory grows.
const LEAST_MOMENTS: (usize, u64) = (20, 1000);
/// Fewer calls tell nothing of small blocks.
const LEAST_CALLS: u64 = 10_000;

/// What was found, with the share that says how much of it there is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Finding {
    /// What it is.
    pub kind: Kind,
    /// Its share, as [`Kind`] tells.
    pub share: f64,
}

/// The findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Too few calls to say anything: their number, as a share of the least one.
    TooFewCalls,
    /// Time in calls takes little of the processor time: its share.
    Cheap,
    /// Calls that are not slow take much of it: their share.
    Dear,
    /// Some calls take long, most of them since they wait for other threads: the time in all of them as a share of the processor time.
    Waits,
    /// Most of them since they fault pages in.
    Faults,
    /// Most of them since the allocator or the system has much to do.
    Slow,
    /// They may be that, or wait, or have had no processor: too few were looked at.
    Unclear,
    /// Page faults brought a multiple of the most memory that the program ever had: that multiple.
    Fresh,
    /// Threads free what others allocated: the share of such blocks.
    HandedOver,
    /// Blocks of several threads lie on one cache line: the share of blocks put there.
    SharedLines,
    /// The program gives memory back all the time by malloc_trim: how often in a second.
    Trims,
    /// Large blocks are allocated for a moment: the share of the bytes that large blocks are.
    TransientLarge,
    /// Resident memory, malloc's where that is known, is a multiple of what is live: that multiple.
    Overhead,
    /// Then most of it is in huge pages: their share.
    HugePages,
    /// Most of the memory is not malloc's: its share.
    Beside,
    /// Stacks are in huge pages: the share of all memory that they are.
    HugeStacks,
    /// What is live grew to the end: the multiple of what it was at half time.
    Grows,
    /// Much stayed resident after most was freed: the multiple of what was live.
    Kept,
}

impl Kind {
    /// Whether it holds threads up that could run, or memory that could be free.
    pub fn is_trouble(self) -> bool {
        !matches!(self, Self::TooFewCalls | Self::Cheap | Self::Dear | Self::Unclear | Self::Beside)
    }
}

/// Everything that follows.
pub(super) fn of(observation: &Observation) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut found = |kind, share| findings.push(Finding { kind, share });
    let all = &observation.all;
    let often = all.all_calls() >= LEAST_CALLS;
    if often {
        of_calls(observation, &mut found);
        let handed_over = all.others();
        if handed_over >= HANDED_OVER {
            found(Kind::HandedOver, handed_over);
        }
    }
    let (shared, (least_share, least_count)) = (all.on_shared_lines(), SHARED);
    if shared >= least_share && all.shared_lines >= least_count {
        found(Kind::SharedLines, shared);
    }
    if let Some(fresh) = fresh(observation) {
        found(Kind::Fresh, fresh);
    }
    let (trims, (least_count, least_rate)) = (observation.trims_a_second(), TRIMS);
    if all.trims >= least_count && trims >= least_rate {
        found(Kind::Trims, trims);
    }
    let (large, (least_share, least_count)) = (all.large(), LARGE);
    if large >= least_share && all.large_allocations >= least_count && all.transient() >= TRANSIENT {
        found(Kind::TransientLarge, large);
    }
    if let Some(process) = observation.busiest() {
        of_memory(process, &mut found);
        of_growth(process, &mut found);
    }
    if !often && findings.is_empty() {
        let share = share(all.all_calls(), LEAST_CALLS);
        findings.push(Finding { kind: Kind::TooFewCalls, share });
    }
    findings
}

/// How many times the most memory of a process came fresh, where that is often. Each of several processes is held against its own memory:
/// that many are started, each with fresh memory, is not the allocator's doing.
fn fresh(observation: &Observation) -> Option<f64> {
    let multiple = |faults: u64, memory| {
        let multiple = share(faults * PAGE, memory);
        (faults >= FRESH.0 && multiple >= FRESH.1).then_some(multiple)
    };
    match &observation.processes[..] {
        [_] => multiple(observation.program_faults(), observation.usage.max_rss_bytes),
        several => several
            .iter()
            .filter_map(|process| multiple(process.faults, process.peak_resident_bytes))
            .max_by(f64::total_cmp),
    }
}

/// What the memory tells that there was at most.
fn of_memory(process: &Process, found: &mut impl FnMut(Kind, f64)) {
    let parts = process.memory.parts.as_ref();
    let (resident, live) = parts
        .map_or((process.peak_resident_bytes, process.live_at_peak_resident), |parts| {
            (parts.malloc.bytes, parts.live_bytes)
        });
    let (least_live, least) = OVERHEAD;
    let multiple = share(resident, live);
    let overhead = live >= least_live && multiple >= least;
    if overhead {
        found(Kind::Overhead, multiple);
    }
    let Some(parts) = parts else { return };
    let huge = share(parts.malloc.huge_bytes, parts.malloc.bytes);
    if overhead && huge >= HUGE {
        found(Kind::HugePages, huge);
    }
    let (least_bytes, least_share) = BESIDE;
    let beside = share(parts.beside(), parts.total());
    if parts.beside() >= least_bytes && beside >= least_share {
        found(Kind::Beside, beside);
    }
    let (least_bytes, least_share) = STACKS;
    let stacks = share(parts.stacks.huge_bytes, parts.total());
    if parts.stacks.huge_bytes >= least_bytes && stacks >= least_share {
        found(Kind::HugeStacks, stacks);
    }
}

/// What the moments tell: whether the program holds more and more, and whether memory stays that it does not hold.
fn of_growth(process: &Process, found: &mut impl FnMut(Kind, f64)) {
    let moments = &process.memory.moments;
    let (Some(first), Some(last)) = (moments.first(), moments.last()) else { return };
    let (least, least_ms) = LEAST_MOMENTS;
    let ms = last.at_ms - first.at_ms;
    if moments.len() < least || ms < least_ms {
        return;
    }
    // Of a time in tenths.
    let since =
        |tenths: u64| moments.iter().skip_while(move |moment| moment.at_ms < first.at_ms + ms * tenths / 10);
    let most_before = |tenths: u64| {
        let before = moments.iter().take_while(|moment| moment.at_ms <= first.at_ms + ms * tenths / 10);
        before.map(|moment| moment.live_bytes).max().unwrap_or(0)
    };
    // What a program frees just before its end does not count.
    let [half, later, end] = [5, 7, 9].map(most_before);
    let (least, least_bytes) = GROWS;
    if end >= least_bytes && end as f64 >= half as f64 * least && half < later && later < end {
        found(Kind::Grows, share(end, half.max(1)));
    }
    let beside = process.memory.parts.map_or(0, |parts| parts.beside());
    let most = moments.iter().map(|moment| moment.live_bytes).max().unwrap_or(0);
    let is_kept = |moment: &super::Moment| {
        moment.live_bytes <= most / 2
            && moment.resident_bytes.saturating_sub(beside) >= 2 * moment.live_bytes + KEPT
    };
    if since(9).all(is_kept) {
        found(Kind::Kept, share(last.resident_bytes.saturating_sub(beside), last.live_bytes.max(1)));
    }
}

/// What the time in calls tells.
fn of_calls(observation: &Observation, found: &mut impl FnMut(Kind, f64)) {
    let all = &observation.all;
    // Where the system took the processor away the allocator has no part in that.
    let known = causes_are_known(all);
    let own = if known { 1.0 - share(all.taken_ns, all.seen_ns) } else { 1.0 };
    let slow = share(all.slow_ns, observation.cpu_ns) * own;
    let quick = observation.quick_share();
    if quick >= DEAR {
        found(Kind::Dear, quick);
    } else if quick + slow < CHEAP {
        found(Kind::Cheap, quick + slow);
    }
    if slow >= SLOW {
        let work = all.seen_ns.saturating_sub(all.wait_ns + all.taken_ns + all.fault_ns);
        let causes = [(work, Kind::Slow), (all.fault_ns, Kind::Faults), (all.wait_ns, Kind::Waits)];
        let (_, cause) = causes.into_iter().max_by_key(|(time, _)| *time).unwrap_or((0, Kind::Slow));
        found(if known { cause } else { Kind::Unclear }, slow);
    }
}

/// Whether enough slow calls were looked at to say what they went into.
pub fn causes_are_known(all: &Totals) -> bool {
    all.slow_calls >= LEAST_SLOW && all.seen_ns > 0
}

/// A part of a whole; 0 of nothing.
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::testing::{in_three_processes, observed};
    use crate::observation::{Histogram, Moment, Part, Parts, Process};
    use crate::record::Usage;

    fn kinds(change: impl FnOnce(&mut Process, &mut Usage)) -> Vec<Kind> {
        observed(change).findings.iter().map(|finding| finding.kind).collect()
    }

    #[test]
    fn each_trouble_is_found_where_it_is() {
        assert_eq!(kinds(|_, _| ()), []);
        assert_eq!(kinds(|process, _| process.totals.calls = Histogram(vec![100])), [Kind::TooFewCalls]);
        assert_eq!(
            kinds(|process, _| {
                process.totals.calls = Histogram(vec![4000]);
                (process.totals.large_allocations, process.totals.large_short) = (2000, 2000);
                process.totals.large_bytes = 64_000_000;
            }),
            [Kind::TransientLarge],
            "few calls, but large"
        );
        assert_eq!(kinds(|process, _| process.totals.call_ns = 1_000_000), [Kind::Cheap]);
        assert_eq!(kinds(|process, _| process.totals.call_ns = 900_000_000), [Kind::Dear]);
        assert_eq!(kinds(|process, _| process.totals.others_freed = 100_000), [Kind::HandedOver]);
        assert_eq!(kinds(|process, _| process.totals.shared_lines = 20_000), [Kind::SharedLines]);
        assert_eq!(
            kinds(|process, _| {
                process.totals.calls = Histogram(vec![2000]);
                (process.totals.allocations, process.totals.shared_lines) = (1000, 800);
            }),
            [Kind::SharedLines],
            "few blocks may be used for long"
        );
        let faults = |minor_faults| {
            kinds(|_, usage| {
                (usage.minor_faults, usage.max_rss_bytes) = (minor_faults, 10 << 20);
            })
        };
        assert_eq!((faults(9_000), faults(11_000)), (vec![], vec![Kind::Fresh]));
        let trims = |trims| kinds(|process, _| process.totals.trims = trims);
        assert_eq!((trims(19), trims(20)), (vec![], vec![Kind::Trims]), "of one second");
        let large = |short| {
            kinds(|process, _| {
                process.totals.large_allocations = 10_000;
                process.totals.large_bytes = 30_000_000;
                process.totals.large_short = short;
            })
        };
        assert_eq!((large(4000), large(6000)), (vec![], vec![Kind::TransientLarge]));
        let resident = |resident: u64| {
            kinds(|process, _| {
                process.live_at_peak_resident = 10 << 20;
                process.peak_resident_bytes = resident << 20;
            })
        };
        assert_eq!((resident(12), resident(14)), (vec![], vec![Kind::Overhead]));
    }

    #[test]
    fn malloc_answers_for_its_own_memory_only() {
        let parts = |[live, malloc, huge, stacks, others]: [u64; 5]| {
            kinds(|process, _| {
                (process.live_at_peak_resident, process.peak_resident_bytes) = (10 << 20, 100 << 20);
                process.memory.parts = Some(Parts {
                    live_bytes: live << 20,
                    malloc: Part { bytes: malloc << 20, huge_bytes: huge << 20 },
                    stacks: Part { bytes: stacks << 20, huge_bytes: stacks << 20 },
                    others: Part { bytes: others << 20, huge_bytes: 0 },
                    ..Parts::default()
                });
            })
        };
        assert_eq!(parts([50, 60, 0, 2, 20]), []);
        assert_eq!(parts([50, 70, 10, 2, 20]), [Kind::Overhead]);
        assert_eq!(parts([50, 70, 40, 2, 20]), [Kind::Overhead, Kind::HugePages]);
        assert_eq!(parts([50, 60, 40, 2, 20]), []);
        assert_eq!(parts([10, 12, 0, 2, 20]), [Kind::Beside]);
        assert_eq!(parts([50, 60, 0, 20, 2]), [Kind::HugeStacks]);
        assert_eq!(parts([1, 2, 0, 2, 2]), [], "little");
    }

    #[test]
    fn growth_is_the_programs_and_what_stays_the_allocators() {
        let over_time = |live: fn(u64) -> u64, resident: fn(u64) -> u64| {
            kinds(|process, _| {
                let moment = |tenth| Moment {
                    at_ms: tenth * 100,
                    live_bytes: live(tenth) << 20,
                    resident_bytes: resident(tenth) << 20,
                };
                process.memory.moments = (0..=20).map(moment).collect();
            })
        };
        assert_eq!(over_time(|_| 50, |_| 60), []);
        assert_eq!(over_time(|tenth| 10 * tenth, |tenth| 10 * tenth + 8), [Kind::Grows]);
        assert_eq!(over_time(|tenth| tenth.min(12) * 10, |_| 130), [], "it stopped at 60 %");
        assert_eq!(over_time(|tenth| 60 + tenth, |_| 90), [], "slowly");
        assert_eq!(over_time(|tenth| if tenth < 15 { 100 } else { 10 }, |_| 105), [Kind::Kept]);
        assert_eq!(
            over_time(|tenth| if tenth < 20 { 100 } else { 10 }, |_| 105),
            [],
            "freed just before the end"
        );
        assert_eq!(
            over_time(|tenth| if tenth < 15 { 100 } else { 10 }, |tenth| if tenth < 17 { 105 } else { 20 }),
            []
        );
    }

    #[test]
    fn each_process_is_held_against_its_own_memory() {
        let found = |faults| {
            let observation = in_three_processes(|processes, usage| {
                (usage.minor_faults, usage.max_rss_bytes) = (60_000, 10 << 20);
                for process in &mut *processes {
                    (process.faults, process.peak_resident_bytes) = (300, 1 << 20);
                }
                processes[1].faults = faults;
            });
            observation.findings.iter().map(|finding| (finding.kind, finding.share)).collect::<Vec<_>>()
        };
        assert_eq!(found(300), [], "many processes start with fresh memory");
        assert_eq!(found(12_800), [(Kind::Fresh, 50.0)]);
    }

    #[test]
    fn slow_calls_have_the_cause_that_takes_most_and_those_without_a_processor_do_not_count() {
        let slow = |[wait_ns, taken_ns, fault_ns]: [u64; 3]| {
            kinds(|process, _| {
                let totals = &mut process.totals;
                (totals.slow_calls, totals.slow_ns, totals.call_ns) = (1000, 150_000_000, 250_000_000);
                totals.seen_ns = 100;
                (totals.wait_ns, totals.taken_ns, totals.fault_ns) = (wait_ns, taken_ns, fault_ns);
            })
        };
        assert_eq!(slow([60, 20, 10]), [Kind::Waits]);
        assert_eq!(slow([20, 20, 40]), [Kind::Faults]);
        assert_eq!(slow([20, 20, 20]), [Kind::Slow]);
        assert_eq!(slow([5, 90, 5]), []);
        let few = |slow_calls| {
            kinds(|process, _| {
                let totals = &mut process.totals;
                (totals.slow_ns, totals.call_ns) = (150_000_000, 250_000_000);
                (totals.slow_calls, totals.seen_ns, totals.wait_ns) = (slow_calls, 100, 60);
            })
        };
        assert_eq!((few(169), few(170)), (vec![Kind::Unclear], vec![Kind::Waits]));
    }
}
