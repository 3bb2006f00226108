//! What a program asks of malloc, in words: a sentence first, then the figures, then what they mean.

use super::again::quote;
use super::explained::explained;
use super::units::{bytes, count, multiple, nanoseconds, percent, seconds, trim};
use crate::observation::{
    Histogram, Kind, Moment, Observation, Part, Parts, Process, Totals, causes_are_known, share,
};

/// Threads that are told one by one, at most.
const MOST_TOLD: usize = 5;
/// Threads with a smaller share of the calls do something else.
const LEAST_SHARE: f64 = 0.01;
/// Live bytes from which on resident memory is compared with them.
const LEAST_LIVE: u64 = 8 << 20;
/// Parts of the memory that are told one by one, at least.
const LEAST_PART: u64 = 1 << 20;
/// Moments from which on it is told how memory grew.
const LEAST_MOMENTS: usize = 20;
/// Width of paragraphs, in characters.
const WIDTH: usize = 110;

/// All of it, for a terminal. `command` is the program and its arguments.
pub fn observed(observation: &Observation, command: &[String]) -> String {
    let words: Vec<String> = command.iter().map(|word| quote(word)).collect();
    let command = words.join(" ");
    let Some(busiest) = observation.busiest().filter(|_| observation.all.all_calls() > 0) else {
        return format!("No call of malloc was seen. Who serves it: `ample run --check -- {command}`\n");
    };
    let mut text = format!("{}\n\n", wrapped(&sentence(observation), ""));
    for (name, figures) in figures(observation, busiest) {
        text.push_str(&format!(" {name:<14} {figures}\n"));
    }
    let known = busiest.memory.parts.is_some();
    let told: Vec<String> =
        observation.findings.iter().filter_map(|finding| explained(*finding, known)).collect();
    if !told.is_empty() {
        text.push_str("\nWhat that means\n");
        for explanation in told {
            text.push_str(&format!(" - {}\n", wrapped(&explanation, "   ")));
        }
    }
    text.push_str(&format!(
        "\nWhich allocator suits it:\n   ample compare -- {command}\nEvery allocator under blocks of these sizes, numbers and ways:\n   {}\n",
        synthetic(observation, busiest)
    ));
    text
}

/// Lines of a paragraph, each but the first with this indent.
pub(super) fn wrapped(paragraph: &str, indent: &str) -> String {
    let mut text = String::new();
    let mut width = 0;
    for word in paragraph.split(' ') {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > WIDTH {
            text.push('\n');
            text.push_str(indent);
            width = 0;
        } else if width > 0 {
            text.push(' ');
            width += 1;
        }
        text.push_str(word);
        width += length;
    }
    text
}

/// The first sentence: whether anything in its use of malloc stands in the way of many cores.
fn sentence(observation: &Observation) -> String {
    let has = |kind| observation.findings.iter().any(|finding| finding.kind == kind);
    let troubles = observation.findings.iter().filter(|finding| finding.kind.is_trouble()).count();
    let several = observation.processes.len() > 1;
    let alone = match workers(observation.busiest()) {
        0 | 1 if several => " Its busiest process calls malloc in one thread.",
        0 | 1 => " It calls malloc in one thread.",
        _ if observation.processors == 1 => {
            " But it had one processor, on which threads hardly ever wait for each other: ask again where it has several."
        }
        _ => "",
    };
    let what = match troubles {
        0 if has(Kind::TooFewCalls) => "This program calls malloc too seldom for that to matter.",
        0 if has(Kind::Cheap) => {
            "Nothing in this program's use of malloc slows it down or makes it grow, and no allocator will make it much faster."
        }
        0 if has(Kind::Unclear) => {
            "As far as can be told, nothing in this program's use of malloc keeps threads from running side by side, or makes its memory grow."
        }
        0 => {
            "Nothing in this program's use of malloc keeps threads from running side by side, or makes its memory grow."
        }
        1 => {
            "One thing in this program's use of malloc can cost it speed or memory on many cores: see below."
        }
        _ => {
            "Some things in this program's use of malloc can cost it speed or memory on many cores: see below."
        }
    };
    format!("{what}{alone}")
}

/// Threads with more than a little of the calls.
fn workers(process: Option<&Process>) -> usize {
    let calls = process.map_or(&[][..], |process| &process.calls_of_threads);
    let all = calls.iter().sum();
    calls.iter().filter(|own| share(**own, all) >= LEAST_SHARE).count()
}

/// The figures, each with its name.
fn figures(observation: &Observation, busiest: &Process) -> Vec<(&'static str, String)> {
    let all = &observation.all;
    let wall = observation.wall_ns as f64 / 1e9;
    let rate = count(all.all_calls() as f64 / wall.max(1e-9));
    let mean = all.call_ns as f64 / all.all_calls().max(1) as f64;
    let usage = &observation.usage;
    let mut lines = vec![
        (
            "calls",
            format!(
                "{} blocks allocated, {} freed, {} given another size in {}: {rate} calls a second",
                number(all.allocations),
                number(all.frees),
                number(all.resizes),
                seconds(wall)
            ),
        ),
        ("threads", threads(observation, busiest)),
        ("sizes", spread(&all.sizes, "half of the blocks have less than", |size| short(size as f64))),
        (
            "lives",
            spread(&all.lives, "half of those that were freed lived less than", |life| {
                nanoseconds(life as f64 * 1000.0)
            }),
        ),
        (
            "time",
            format!(
                "{} a call; {} of the processor time without slow ones; {}",
                nanoseconds(mean.round()),
                percent(observation.quick_share()),
                spread(&all.calls, "half take less than", |time| nanoseconds(time as f64))
            ),
        ),
        (
            "slow calls",
            format!(
                "{} took 10 µs or more, {} in all{}",
                number(all.slow_calls),
                seconds(all.slow_ns as f64 / 1e9),
                causes(all)
            ),
        ),
        (
            "the system",
            format!(
                "{} page faults, {} waits, {} times without a processor, {}",
                number(observation.program_faults()),
                number(usage.voluntary_switches),
                number(usage.involuntary_switches),
                if observation.unaccounted {
                    "at least: nobody waited for some of its processes, of which the system then keeps no account"
                } else {
                    "in the whole program"
                }
            ),
        ),
        (
            "others' blocks",
            format!("{} of the freed blocks had another thread's malloc", percent(all.others())),
        ),
        (
            "cache lines",
            format!(
                "{} of the blocks were put on a line with another thread's block",
                percent(all.on_shared_lines())
            ),
        ),
        ("large blocks", large(observation)),
        ("memory", memory(busiest)),
    ];
    lines.extend(busiest.memory.parts.as_ref().map(|parts| ("resident", resident(parts))));
    lines.extend(over_time(busiest).map(|text| ("over time", text)));
    lines.push((
        "observer",
        format!(
            "{} of the processor's time for itself, which is in none of these",
            seconds(all.own_ns as f64 / 1e9)
        ),
    ));
    if all.trims > 0 {
        lines.push((
            "malloc_trim",
            format!(
                "called {} time{}, {} in all",
                number(all.trims),
                if all.trims == 1 { "" } else { "s" },
                seconds(all.trim_ns as f64 / 1e9)
            ),
        ));
    }
    if all.failures > 0 {
        lines.push(("failures", format!("{} requests got nothing", number(all.failures))));
    }
    if busiest.lost > 0 {
        lines.push(("not seen", format!("{} blocks: no memory to note them", number(busiest.lost))));
    }
    lines
}

/// What the time in slow calls went into, by those that were looked at; nothing where there was none.
fn causes(all: &Totals) -> String {
    let part = |time| percent(share(time, all.seen_ns));
    if !causes_are_known(all) {
        return if all.slow_calls == 0 { "" } else { ": too few to say what they went into" }.into();
    }
    format!(
        ": {} of that in waits for other threads, {} without a processor, {} in page faults",
        part(all.wait_ns),
        part(all.taken_ns),
        part(all.fault_ns)
    )
}

fn number(value: u64) -> String {
    count(value as f64)
}

/// Bytes without zeros that say nothing.
fn short(value: f64) -> String {
    let text = bytes(value);
    text.split_once(' ').map_or(text.clone(), |(number, unit)| format!("{} {unit}", trim(number)))
}

fn threads(observation: &Observation, busiest: &Process) -> String {
    let calls = &busiest.calls_of_threads;
    let all: u64 = calls.iter().sum();
    let shares: Vec<String> =
        calls.iter().take(MOST_TOLD).map(|own| format!("{:.0} %", share(*own, all) * 100.0)).collect();
    let more = if calls.len() > MOST_TOLD { ", …" } else { "" };
    let threads = match calls.len() {
        1 => "1 calls malloc".to_owned(),
        several => format!("{several} call malloc, with {}{more} of the calls", shares.join(", ")),
    };
    match observation.processes.len() {
        1 => threads,
        several => format!("{threads} (in {}, the busiest of {several} processes)", busiest.name),
    }
}

/// The middle of a distribution, and its end: each bound is that of a bin, and no sharper.
fn spread(histogram: &Histogram, middle: &str, text: impl Fn(u64) -> String) -> String {
    let at = |share| histogram.quantile(share).map(|(_, beyond)| text(beyond));
    match (at(0.5), at(0.99), at(0.999)) {
        (Some(half), Some(most), Some(nearly_all)) => {
            format!("{middle} {half}, 99 % {most}, 99.9 % {nearly_all}")
        }
        _ => "none".into(),
    }
}

fn large(observation: &Observation) -> String {
    let all = &observation.all;
    if all.large_allocations == 0 {
        return "none of 128 KiB or more".into();
    }
    format!(
        "{} of 128 KiB or more, {} of the bytes; {} of them lived 10 ms at most",
        number(all.large_allocations),
        percent(all.large()),
        percent(all.transient())
    )
}

fn memory(process: &Process) -> String {
    let live = format!(
        "{} live at most, {} block{} at most",
        bytes(process.peak_live_bytes as f64),
        number(process.peak_live_blocks),
        if process.peak_live_blocks == 1 { "" } else { "s" }
    );
    let (resident, of_live) = (process.peak_resident_bytes, process.live_at_peak_resident);
    if of_live < LEAST_LIVE {
        return live;
    }
    format!(
        "{live}; {} resident at most, {} of the {} live then",
        bytes(resident as f64),
        multiple(share(resident, of_live)),
        bytes(of_live as f64)
    )
}

/// What the memory was when there was most of it.
fn resident(parts: &Parts) -> String {
    let part = |name: &str, part: Part| {
        let in_huge_pages = match part.huge_bytes {
            0 => String::new(),
            some => format!(" ({} in huge pages)", bytes(some as f64)),
        };
        (part.bytes >= LEAST_PART).then(|| format!("{} {name}{in_huge_pages}", bytes(part.bytes as f64)))
    };
    let told = [
        part("malloc's", parts.malloc),
        part("stacks", parts.stacks),
        part("data of programs and libraries", parts.files),
        part("mapped otherwise", parts.others),
    ];
    let told: Vec<String> = told.into_iter().flatten().collect();
    format!(
        "{}: {}, for {} live; {} after the start",
        bytes(parts.total() as f64),
        told.join(", "),
        bytes(parts.live_bytes as f64),
        seconds(parts.at_ms as f64 / 1000.0)
    )
}

/// What was live and resident at five moments; nothing where there were not so many.
fn over_time(process: &Process) -> Option<String> {
    let moments = &process.memory.moments;
    let (first, last) = (moments.first()?, moments.last()?);
    let at = |fifth: u64| {
        let ms = first.at_ms + (last.at_ms - first.at_ms) * fifth / 5;
        moments.iter().rfind(|moment| moment.at_ms <= ms)
    };
    let five: Vec<&Moment> = (1..=5).filter_map(at).collect();
    if moments.len() < LEAST_MOMENTS {
        return None;
    }
    let told = |what: fn(&Moment) -> u64| {
        let figures: Vec<String> = five.iter().map(|moment| short(what(moment) as f64)).collect();
        figures.join(", ")
    };
    Some(format!(
        "live {}; resident {}; after each fifth of {}",
        told(|moment| moment.live_bytes),
        told(|moment| moment.resident_bytes),
        seconds(last.at_ms as f64 / 1000.0)
    ))
}

/// The workload that has these traits, as a command.
fn synthetic(observation: &Observation, busiest: &Process) -> String {
    let all = &observation.all;
    let at = |share| all.sizes.quantile(share).map_or(1, |(least, _)| least.max(1));
    let threads = workers(Some(busiest)).max(1);
    let percent = |share: f64| (share * 100.0).round() as u64;
    let settings = [
        ("min", at(0.05)),
        ("max", at(0.99)),
        ("slots", (busiest.peak_live_blocks / threads as u64).max(1)),
        ("given", percent(all.others())),
        ("resized", percent(share(all.resizes, all.allocations + all.resizes))),
    ];
    let settings = settings.map(|(name, value)| format!(" --set synthetic.{name}={value}"));
    format!("ample bench synthetic --threads {threads}{}", settings.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::Totals;
    use crate::observation::testing;

    fn told(change: impl FnOnce(&mut Totals)) -> String {
        let observation = testing::observed(|process, _| change(process.totals_mut()));
        observed(&observation, &["./a program".to_owned(), "7".to_owned()])
    }

    #[test]
    fn a_program_without_trouble_is_told_so_and_can_be_compared() {
        let text = told(|_| ());
        assert!(
            text.starts_with(
                "Nothing in this program's use of malloc keeps threads from running side by side"
            ),
            "{text}"
        );
        assert!(text.contains(" threads        2 call malloc, with 50 %, 50 % of the calls\n"), "{text}");
        assert!(!text.contains("What that means"), "{text}");
        assert!(text.contains("\n   ample compare -- './a program' 7\n"), "{text}");
        assert!(text.contains("ample bench synthetic --threads 2 --set synthetic.min="), "{text}");
    }

    #[test]
    fn too_few_slow_calls_are_said_to_tell_nothing() {
        let text = told(|totals| {
            (totals.slow_calls, totals.slow_ns) = (100, 400_000_000);
            (totals.call_ns, totals.seen_ns, totals.wait_ns) = (480_000_000, 100, 80);
        });
        assert!(text.starts_with("As far as can be told, nothing in this program's use of malloc"), "{text}");
        assert!(
            text.contains(" slow calls     100 took 10 µs or more, 400 ms in all: too few to say"),
            "{text}"
        );
        assert!(
            text.contains(
                " - Slow calls take as much time as 20.0 % of the processor time, and they are too"
            ),
            "{text}"
        );
    }

    #[test]
    fn one_processor_shows_no_waits_and_that_is_said() {
        let mut observation = testing::observed(|_, _| ());
        let told = |observation: &Observation| observed(observation, &["./a".to_owned()]);
        observation.processors = 2;
        assert!(!told(&observation).contains("it had one processor"));
        observation.processors = 1;
        assert!(told(&observation).contains("it had one processor"), "{}", told(&observation));
    }

    #[test]
    fn each_finding_is_explained_in_lines_of_some_width() {
        let text = told(|totals| {
            (totals.others_freed, totals.shared_lines) = (500_000, 300_000);
            (totals.slow_calls, totals.slow_ns) = (1000, 400_000_000);
            (totals.call_ns, totals.seen_ns, totals.wait_ns) = (800_000_000, 100, 80);
        });
        assert!(text.starts_with("Some things in this program's use of malloc"), "{text}");
        for part in [
            "50.0 % of the blocks are freed by another thread",
            "30.0 % of the blocks were put on a cache line",
            "most of that they wait for other threads",
            ": 80.0 % of that in waits for other threads, 0.0 % without a processor",
        ] {
            assert!(text.replace("\n   ", " ").contains(part), "{part}: {text}");
        }
        let explained =
            text.lines().skip_while(|line| *line != "What that means").take_while(|line| !line.is_empty());
        assert!(
            explained.clone().count() > 6
                && explained.into_iter().all(|line| line.chars().count() <= WIDTH + 3),
            "{text}"
        );
    }

    #[test]
    fn without_a_call_it_is_said_how_to_find_out_why() {
        let text = told(|totals| *totals = Totals::default());
        assert_eq!(
            text,
            "No call of malloc was seen. Who serves it: `ample run --check -- './a program' 7`\n"
        );
    }

    #[test]
    fn memory_is_told_part_by_part_and_over_time() {
        let observation = testing::observed(|process, _| {
            let moment =
                |at: u64| Moment { at_ms: at * 100, live_bytes: at << 20, resident_bytes: (at + 2) << 20 };
            process.memory.moments = (0..=20).map(moment).collect();
            process.memory.parts = Some(Parts {
                at_ms: 1900,
                live_bytes: 19 << 20,
                malloc: Part { bytes: 20 << 20, huge_bytes: 4 << 20 },
                others: Part { bytes: 40 << 20, huge_bytes: 0 },
                ..Parts::default()
            });
        });
        let text = observed(&observation, &["./a".to_owned()]);
        for line in [
            " resident       60.0 MiB: 20.0 MiB malloc's (4.00 MiB in huge pages), 40.0 MiB mapped otherwise, for 19.0 MiB live; 1.90 s after the start\n",
            " over time      live 4 MiB, 8 MiB, 12 MiB, 16 MiB, 20 MiB; resident 6 MiB, 10 MiB, 14 MiB, 18 MiB, 22 MiB; after each fifth of 2.00 s\n",
            "\n - 66.7 % of the memory is not malloc's",
            "\n - What the program holds grew until it ended, to 1.8 times",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
