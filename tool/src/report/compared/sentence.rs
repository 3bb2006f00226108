//! What to use, in a sentence or two.

use std::path::Path;

use super::{Line, Speed};
use crate::report::behind::Beaten;
use crate::report::comparison::Comparison;
use crate::report::summary::{Cell, Figures, Overall, Row, Summary};
use crate::report::units;
use crate::stats::{EQUIVALENT_AT_MOST, Estimate, MARGIN, MIN_BLOCKS, Verdict};
use crate::trial::AS_IS;

/// One allocator beside glibc, with both ratios to it.
struct Candidate<'a> {
    name: &'a str,
    speed: (Estimate, Verdict),
    memory: (Estimate, Verdict),
    /// The share of speed that counts as none.
    margin: f64,
    /// Whether another one is faster beyond the noise.
    beaten: bool,
    /// What noise keeps from being told of its speed, and of its memory: how far glibc differs from itself.
    noise: [Option<f64>; 2],
}

impl Candidate<'_> {
    /// Whether it is faster than glibc, and nothing is faster than it beyond the noise.
    fn is_in_front(&self) -> bool {
        self.speed.1 == Verdict::Faster && !self.beaten
    }
}

/// The verdict on the whole run.
pub fn sentence(summary: &Summary, speed: &Speed, lines: &[Line], own: Option<&Path>) -> String {
    let early = if summary.interrupted { " (Ended early by the user.)" } else { "" };
    let text = if candidates(summary).is_empty() {
        nothing(summary, lines)
    } else if summary.blocks < MIN_BLOCKS {
        provisional(summary, speed, own)
    } else {
        decided(summary, speed, own)
    };
    text + early
}

fn candidates(summary: &Summary) -> Vec<Candidate<'_>> {
    let columns = summary.allocators.iter().zip(&summary.rows[0].cells);
    let candidates = columns.filter_map(|(allocator, cell)| match cell {
        Cell::Measured(Figures { throughput: Some(speed), peak_rss: Some(memory), .. }) => Some(Candidate {
            name: &allocator.name,
            speed: (speed.ratio, speed.verdict),
            memory: (memory.ratio, memory.verdict),
            margin: speed.margin,
            beaten: is_beaten(allocator, &summary.rows[0]),
            noise: [speed, memory].map(noise),
        }),
        _ => None,
    });
    candidates.collect()
}

/// Whether another one is faster beyond the noise in this row.
fn is_beaten(allocator: &Overall, row: &Row) -> bool {
    let here = |beaten: &Beaten| (&beaten.workload, beaten.threads) == (&row.workload, row.threads);
    allocator.slower.as_ref().is_some_and(|behind| behind.beaten.iter().any(here))
}

/// How far glibc differs from itself, where this cannot be told on a machine too noisy to call anything equivalent.
fn noise(found: &Comparison) -> Option<f64> {
    let hidden = found.verdict == Verdict::CannotTell && found.margin > EQUIVALENT_AT_MOST;
    hidden.then_some(found.margin)
}

/// Without two entries to compare.
fn nothing(summary: &Summary, lines: &[Line]) -> String {
    let measured: Vec<String> = lines
        .iter()
        .filter(|line| !line.texts.is_empty())
        .map(|line| format!("'{}'", line.allocator))
        .collect();
    let failed = summary.gaps.first().map(|gap| format!(" {}: {}.", gap.allocators.join(", "), gap.reason));
    let failed = failed.unwrap_or_default();
    match &measured[..] {
        [] => format!("Nothing was measured.{failed}"),
        [_] if summary.allocators[0].name == AS_IS => {
            format!(
                "Nothing can be compared: no allocator can take the place of the program's own, as the note says.{failed}"
            )
        }
        [only] => format!("Nothing can be compared: only {only} has numbers.{failed}"),
        several => format!(
            "Nothing can be compared with glibc, which has no numbers; {} have some.{failed}",
            several.join(", ")
        ),
    }
}

fn provisional(summary: &Summary, speed: &Speed, own: Option<&Path>) -> String {
    let all = candidates(summary);
    let blocks = units::blocks(summary.blocks);
    let end = format!("provisional, after {blocks}: verdicts need {MIN_BLOCKS}");
    // What glibc differs from itself by is no lead, after however few blocks.
    let leads = |candidate: &&Candidate<'_>| {
        candidate.speed.0.low > 1.0 && candidate.speed.0.value > 1.0 + candidate.margin
    };
    match fastest(all.iter().filter(leads)) {
        Some(best) => format!(
            "Ahead so far is {}: {}, {} than glibc ({end}).",
            called(best.name, own),
            faster(best.speed.0, speed),
            memory(best.memory.0)
        ),
        None => format!("Nothing is clearly faster than glibc so far ({end})."),
    }
}

fn decided(summary: &Summary, speed: &Speed, own: Option<&Path>) -> String {
    let all = candidates(summary);
    let best = best(&all);
    let leanest = all
        .iter()
        .filter(|candidate| candidate.memory.1 == Verdict::Smaller && candidate.speed.1 != Verdict::Slower)
        .min_by(|a, b| a.memory.0.value.total_cmp(&b.memory.0.value));
    let both = |candidate: &Candidate<'_>| both(candidate, speed);
    let mut text = match (best, leanest) {
        (Some(best), leanest) => {
            let mut text = format!("{}: {}.", advice(best, own), both(best));
            text.push_str(&as_fast(&all, best, own));
            // Those in front were named with their memory.
            let leaner =
                leanest.filter(|leanest| leanest.memory.0.high < best.memory.0.low && !leanest.is_in_front());
            if let Some(leanest) = leaner {
                text.push_str(&format!(
                    " With less memory: {}: {}.",
                    called(leanest.name, own),
                    both(leanest)
                ));
            }
            text
        }
        (None, Some(leanest)) => format!("{}: {}.", advice(leanest, own), both(leanest)),
        (None, None) => return indifferent(&all, speed, own, threads(summary)),
    };
    // What it would change from.
    if let Some(now) = all.iter().find(|candidate| candidate.name == AS_IS)
        && !text.contains(AS_IS)
    {
        text.push_str(&format!(" As it is now, {}: {}.", called(AS_IS, own), both(now)));
    }
    if let Some(noisy) = noisy(&all, threads(summary)) {
        text.push_str(&format!(" {noisy}"));
    }
    text
}

/// The fastest, if it is faster than glibc; but of those that it is not faster than beyond the noise, the fastest of the leanest: what can be told comes before
/// what cannot.
fn best<'a>(all: &'a [Candidate<'a>]) -> Option<&'a Candidate<'a>> {
    let first = fastest(all.iter().filter(|one| one.speed.1 == Verdict::Faster))?;
    let equals = || all.iter().filter(|one| one.is_in_front() && one.noise[1].is_none());
    let least = equals().map(|one| one.memory.0.value).fold(f64::INFINITY, f64::min);
    let lean = equals().filter(|one| one.memory.0.value <= least * (1.0 + MARGIN));
    Some(fastest(lean).unwrap_or(first))
}

fn fastest<'a>(some: impl Iterator<Item = &'a Candidate<'a>>) -> Option<&'a Candidate<'a>> {
    some.max_by(|a, b| a.speed.0.value.total_cmp(&b.speed.0.value))
}

/// Those that are not to be told from the best in speed: what its lead is worth. Empty where there are none.
fn as_fast(all: &[Candidate<'_>], best: &Candidate<'_>, own: Option<&Path>) -> String {
    let told = |other: &Candidate<'_>| format!("{} ({})", called(other.name, own), of_memory(other));
    let others = all.iter().filter(|other| other.name != best.name && other.is_in_front());
    let others: Vec<String> = others.map(told).collect();
    if others.is_empty() {
        return String::new();
    }
    format!(" Not to be told from it in speed: {}.", others.join(", "))
}

/// The threads that the verdict is on, where there are several counts.
fn threads(summary: &Summary) -> Option<u32> {
    (summary.rows.len() > 1).then(|| summary.rows[0].threads)
}

/// That the machine was too noisy, and for what of whom; none where it was not.
fn noisy(all: &[Candidate<'_>], on: Option<u32>) -> Option<String> {
    let (mut hidden, mut floors) = (Vec::new(), Vec::new());
    for (index, what) in ["speed", "memory"].into_iter().enumerate() {
        let of = || all.iter().filter_map(|candidate| Some((candidate.name, candidate.noise[index]?)));
        let names: Vec<&str> = of().map(|(name, _)| name).collect();
        if let Some((_, floor)) = of().next() {
            hidden.push(format!("the {what} of {}", names.join(", ")));
            floors.push(format!("{} in {what}", units::floor(floor)));
        }
    }
    let on = on.map_or(String::new(), |count| format!(" on {}", units::threads(count)));
    (!hidden.is_empty()).then(|| {
        format!(
            "The machine was too noisy to tell {}: glibc against itself differs by up to {}{on}: run it again on a quiet \
             machine.",
            hidden.join(", or "),
            floors.join(", ")
        )
    })
}

/// Where nothing is better than glibc.
fn indifferent(all: &[Candidate<'_>], speed: &Speed, own: Option<&Path>, on: Option<u32>) -> String {
    let verdicts = || all.iter().flat_map(|candidate| [candidate.speed.1, candidate.memory.1]);
    if verdicts().all(|verdict| verdict == Verdict::Equivalent) {
        return "It makes no difference: every allocator is equivalent to glibc in speed and in memory."
            .into();
    }
    let now = all.iter().find(|candidate| candidate.name == AS_IS);
    let worse = |verdict| verdict == Verdict::Slower || verdict == Verdict::Larger;
    let stay = match now {
        Some(now) if worse(now.speed.1) || worse(now.memory.1) => {
            format!(
                "Use glibc ({} by contrast: {}, {})",
                called(AS_IS, own),
                of_speed(now, speed),
                of_memory(now)
            )
        }
        Some(_) => format!("Leave it {}", called(AS_IS, own)),
        None => "Stay with glibc".into(),
    };
    let open: Vec<&str> = all
        .iter()
        .filter(|candidate| [candidate.speed.1, candidate.memory.1].contains(&Verdict::CannotTell))
        .map(|candidate| candidate.name)
        .collect();
    if let Some(noisy) = noisy(all, on) {
        return format!("{stay}: nothing is proved to be faster than glibc, or leaner and as fast. {noisy}");
    }
    if open.is_empty() {
        return format!("{stay}: nothing is faster than glibc, and nothing as fast needs less memory.");
    }
    format!(
        "{stay}: nothing is proved to be faster than glibc, or leaner and as fast. More runs (--runs) may tell for {}.",
        open.join(", ")
    )
}

/// What to use, and for the sake of what where only that can be told.
fn advice(candidate: &Candidate<'_>, own: Option<&Path>) -> String {
    let name = candidate.name;
    let advice =
        if name == AS_IS { format!("Leave it {}", called(name, own)) } else { format!("Use {name}") };
    let reason = match candidate.noise {
        [Some(_), _] => " for its memory",
        [_, Some(_)] => " for its speed",
        [None, None] => "",
    };
    advice + reason
}

/// The entry by its name; the program's own allocator with its file.
fn called(name: &str, own: Option<&Path>) -> String {
    let file = own.and_then(Path::file_name).filter(|_| name == AS_IS);
    file.map_or_else(|| name.to_owned(), |file| format!("{AS_IS} ({})", file.to_string_lossy()))
}

/// Speed and memory beside glibc's: first what can be told.
fn both(candidate: &Candidate<'_>, speed: &Speed) -> String {
    let (of_speed, of_memory) = (of_speed(candidate, speed), of_memory(candidate));
    match candidate.noise {
        [None, None] => format!("{of_speed}, {of_memory} than glibc"),
        [Some(_), None] => format!("{of_memory} than glibc; {of_speed}"),
        [None, Some(_)] if candidate.speed.1 == Verdict::Equivalent => {
            format!("{of_speed} as glibc; {of_memory}")
        }
        [None, Some(_)] => format!("{of_speed} than glibc; {of_memory}"),
        [Some(_), Some(_)] => format!("{of_speed}; {of_memory}"),
    }
}

fn of_speed(candidate: &Candidate<'_>, speed: &Speed) -> String {
    match candidate.speed.1 {
        _ if candidate.noise[0].is_some() => {
            format!("its speed cannot be told ({})", faster(candidate.speed.0, speed))
        }
        Verdict::Equivalent => "as fast".into(),
        Verdict::CannotTell => {
            format!("in speed perhaps no difference ({})", faster(candidate.speed.0, speed))
        }
        _ => faster(candidate.speed.0, speed),
    }
}

fn of_memory(candidate: &Candidate<'_>) -> String {
    match candidate.memory.1 {
        _ if candidate.noise[1].is_some() => {
            format!("its memory cannot be told ({})", memory(candidate.memory.0))
        }
        Verdict::Equivalent => "no more and no less memory".into(),
        Verdict::CannotTell => format!("in memory perhaps no difference ({})", memory(candidate.memory.0)),
        _ => memory(candidate.memory.0),
    }
}

/// `12 % faster [10–14]`, `2.3 times as fast [2.1–2.5]`; of a metric, `12 % better in NAME [10–14]`.
fn faster(ratio: Estimate, speed: &Speed) -> String {
    let (more, less, times) = match speed {
        Speed::Time => ("faster".to_owned(), "slower".to_owned(), "as fast".to_owned()),
        Speed::Metric(name) => {
            (format!("better in {name}"), format!("worse in {name}"), format!("as good in {name}"))
        }
    };
    phrase(ratio, &more, &less, &times)
}

/// `30 % less memory [25–35]`, `2.3 times the memory [2.1–2.5]`.
fn memory(ratio: Estimate) -> String {
    phrase(ratio, "more memory", "less memory", "as much memory")
}

fn phrase(ratio: Estimate, more: &str, less: &str, times: &str) -> String {
    let Estimate { value, low, high } = ratio;
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let (found, interval) = if value >= 2.0 {
        (format!("{value:.1} times {times}"), format!("{low:.1}–{high:.1}"))
    } else if value >= 1.0 {
        (format!("{:.0} % {more}", percent(value)), format!("{:.0}–{:.0}", percent(low), percent(high)))
    } else {
        (format!("{:.0} % {less}", -percent(value)), format!("{:.0}–{:.0}", -percent(high), -percent(low)))
    };
    format!("{found} [{}]", if ratio.is_telling() { &interval } else { "?" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocators::{Allocator, TWIN};
    use crate::record::Judgement;
    use crate::run::testing::conclude;

    /// The sentence on allocators with these shares of glibc's time and memory.
    fn told(blocks: usize, entries: &[(&str, f64, f64)]) -> String {
        let names = std::iter::once("glibc").chain(entries.iter().map(|entry| entry.0));
        let allocators: Vec<Allocator> = names.map(Allocator::fake).collect();
        let (plan, conclusion) = conclude(&allocators, blocks, usize::MAX, |asked, measurement| {
            if let Some((_, time, memory)) = entries.iter().find(|entry| entry.0 == asked.allocator) {
                measurement.wall_ns = (measurement.wall_ns as f64 * time) as u64;
                measurement.peak_rss_bytes = (measurement.peak_rss_bytes as f64 * memory) as u64;
            }
            None
        });
        let summary = Summary::new(&conclusion, &plan, &allocators, 1);
        sentence(&summary, &Speed::Time, &[], Some(Path::new("/lib/libown.so.2")))
    }

    #[test]
    fn the_fastest_is_named_and_a_leaner_one_beside_it() {
        assert_eq!(
            told(10, &[("a", 0.8, 0.7), ("b", 0.9, 0.5), ("c", 1.0, 1.0)]),
            "Use a: 25 % faster [25–25], 30 % less memory [30–30] than glibc. With less memory: b: 11 % faster \
             [11–11], 50 % less memory [50–50] than glibc."
        );
        assert_eq!(
            told(10, &[("a", 0.4, 3.0)]),
            "Use a: 2.5 times as fast [2.5–2.5], 3.0 times as much memory [3.0–3.0] than glibc."
        );
    }

    #[test]
    fn less_memory_alone_is_a_reason_and_its_own_allocator_is_left() {
        assert_eq!(told(10, &[("a", 1.0, 0.8)]), "Use a: as fast, 20 % less memory [20–20] than glibc.");
        let own = told(10, &[("as-is", 0.8, 1.0)]);
        assert!(own.starts_with("Leave it as-is (libown.so.2): 25 % faster"), "{own}");
        let change = told(10, &[("a", 0.8, 1.0), ("as-is", 0.9, 1.0)]);
        assert!(
            change.contains(" As it is now, as-is (libown.so.2): 11 % faster [11–11], no more"),
            "{change}"
        );
        let no_change = told(10, &[("a", 1.2, 1.0), ("as-is", 1.0, 1.0)]);
        assert!(no_change.starts_with("Leave it as-is (libown.so.2): nothing is faster"), "{no_change}");
        let back = told(10, &[("as-is", 1.25, 1.0)]);
        assert!(
            back.starts_with("Use glibc (as-is (libown.so.2) by contrast: 20 % slower [20–20], "),
            "{back}"
        );
    }

    #[test]
    fn no_difference_is_a_verdict_and_worse_is_one_too() {
        assert!(told(10, &[("a", 1.0, 1.0)]).starts_with("It makes no difference"));
        assert!(
            told(10, &[("a", 1.2, 0.5)]).starts_with("Stay with glibc: nothing is faster than glibc, and")
        );
    }

    #[test]
    fn of_those_that_are_not_to_be_told_apart_in_speed_the_leanest_is_named() {
        let lean = told(10, &[("a", 0.8, 1.2), ("b", 0.805, 1.0), ("c", 0.9, 1.0)]);
        assert_eq!(
            lean,
            "Use b: 24 % faster [24–24], no more and no less memory than glibc. Not to be told from it in speed: a (20 % more \
             memory [20–20])."
        );
        // What hardly differs in memory is judged by its speed.
        let fast = told(10, &[("a", 0.8, 1.21), ("b", 0.805, 1.2)]);
        assert!(
            fast.starts_with("Use a: ") && fast.ends_with("speed: b (20 % more memory [20–20])."),
            "{fast}"
        );
        // It is named once.
        let both = told(10, &[("a", 0.8, 0.71), ("b", 0.805, 0.7)]);
        assert!(
            both.starts_with("Use a: ") && both.ends_with("speed: b (30 % less memory [30–30])."),
            "{both}"
        );
        // Who is slower beyond the noise is none of them, however lean.
        let faster = told(10, &[("a", 0.8, 1.2), ("b", 0.85, 0.5)]);
        assert!(faster.starts_with("Use a: ") && faster.contains(" With less memory: b: "), "{faster}");
    }

    #[test]
    fn a_lead_within_the_noise_is_none() {
        let allocators = ["glibc", "a"].map(Allocator::fake);
        let (plan, mut conclusion) = conclude(&allocators, 3, usize::MAX, |asked, measurement| {
            if asked.allocator == "a" {
                measurement.wall_ns = (measurement.wall_ns as f64 * 0.9) as u64;
            }
            None
        });
        for sample in conclusion.samples.iter_mut().filter(|sample| sample.allocator == TWIN) {
            if let Judgement::Measured(measurement) = &mut sample.result {
                measurement.wall_ns *= sample.block.map_or(1, |block| block as u64 + 1);
            }
        }
        let summary = Summary::new(&conclusion, &plan, &allocators, 1);
        let told = sentence(&summary, &Speed::Time, &[], None);
        assert!(told.starts_with("Nothing is clearly faster than glibc so far"), "{told}");
    }

    /// The sentence on an allocator with this share of glibc's memory, whose times scatter as glibc's do.
    fn told_in_noise(memory: f64, own: bool) -> String {
        let allocators = ["glibc", if own { AS_IS } else { "a" }].map(Allocator::fake);
        let mut runs = 0;
        let (plan, conclusion) = conclude(&allocators, 10, usize::MAX, |asked, measurement| {
            runs += 1;
            measurement.wall_ns *= [10, 13, 20, 11, 17][runs % 5];
            if asked.allocator == allocators[1].name {
                measurement.peak_rss_bytes = (measurement.peak_rss_bytes as f64 * memory) as u64;
            }
            None
        });
        let summary = Summary::new(&conclusion, &plan, &allocators, 1);
        let told = sentence(&summary, &Speed::Time, &[], None);
        let floor = summary.rows[0].noise_floor.expect("a floor").throughput;
        let end = format!(
            "The machine was too noisy to tell the speed of {}: glibc against itself differs by up to {} in speed on {}: \
             run it again on a quiet machine.",
            allocators[1].name,
            units::floor(floor),
            units::threads(summary.rows[0].threads)
        );
        let rest = told.strip_suffix(&end).unwrap_or_else(|| panic!("{told}"));
        rest.trim_end().to_owned()
    }

    #[test]
    fn a_noisy_machine_is_no_proof_that_nothing_differs() {
        let told = told_in_noise(1.0, false);
        assert_eq!(
            told,
            "Stay with glibc: nothing is proved to be faster than glibc, or leaner and as fast."
        );
    }

    #[test]
    fn advice_in_noise_is_for_what_can_be_told_alone() {
        let told = told_in_noise(0.8, false);
        let start = "Use a for its memory: 20 % less memory [20–20] than glibc; its speed cannot be told (";
        assert!(told.starts_with(start) && !told.contains("perhaps"), "{told}");
        let own = told_in_noise(0.8, true);
        assert!(own.starts_with("Leave it as-is for its memory: 20 % less memory"), "{own}");
        let worse = told_in_noise(1.2, true);
        let start = "Use glibc (as-is by contrast: its speed cannot be told (";
        assert!(worse.starts_with(start) && !worse.contains("perhaps"), "{worse}");
    }

    #[test]
    fn few_blocks_are_said_to_be_few() {
        let few = told(3, &[("a", 0.8, 1.0)]);
        assert_eq!(
            few,
            "Ahead so far is a: 25 % faster [25–25], 0 % more memory [0–0] than glibc (provisional, after 3 \
             blocks: verdicts need 10)."
        );
        assert!(told(3, &[("a", 1.2, 1.0)]).starts_with("Nothing is clearly faster"));
        assert!(told(3, &[]).starts_with("Nothing"));
    }
}
