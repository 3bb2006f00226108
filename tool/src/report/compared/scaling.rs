//! How a program of the user's scales under each allocator.

use ample_protocol::Measurement;
use serde::Serialize;

use crate::record::operations_per_second;
use crate::report::summary::Summary;
use crate::report::{columns, units};
use crate::run::Conclusion;
use crate::stats::{Bootstrap, Estimate, MIN_BLOCKS, Resamples, hodges_lehmann, log_ratio};
use crate::trial::{LOAD_PROCESSORS, Subject};

/// The share of the ideal from which on a program is said to scale.
const SCALES_FROM: f64 = 0.75;
/// The share of the ratio of threads from which on processor time is said to grow with them.
const GROWS_FROM: f64 = 0.75;
/// The noise floor up to which a program is said not to scale: beyond it others may have had the processors.
const QUIET_UP_TO: f64 = 0.10;
/// The share of the processors that a server's load may keep busy itself where the server is said not to scale.
const LIGHT_UP_TO: f64 = 0.10;

/// How much more work is done in a time on more threads.
#[derive(Debug, Serialize)]
pub struct Scaling {
    /// Under this allocator.
    pub allocator: String,
    /// The fewest threads.
    pub from: u32,
    /// More threads.
    pub to: u32,
    /// The work done in a time on these, as a multiple of that on the fewest, with its 95 % interval; none where the
    /// work seems to be the same for any number.
    pub factor: Option<Estimate>,
    /// What it would be if threads had nothing in common but the processors.
    pub ideal: f64,
    /// What may be said of it.
    #[serde(skip)]
    pub finding: Finding,
    /// The same in words.
    pub word: &'static str,
    /// Whether a metric says how much work is done; else each thread is taken to do as much as one alone.
    pub metric: bool,
}

/// What may be said of a program on more threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// It does [`SCALES_FROM`] of the ideal at least.
    Scales,
    /// It does less.
    DoesNotScale,
    /// Too few blocks.
    FewBlocks,
    /// An interval that decides nothing.
    Undecided,
    /// It does less, but others may have had the processors.
    Noisy,
    /// It does less, but the load has a part of the processors.
    Loaded,
    /// The fewest threads have all processors already.
    NoProcessors,
    /// Processor time did not grow, and no metric tells the work.
    SameWork,
}

impl Finding {
    /// In a table.
    fn word(self) -> &'static str {
        match self {
            Self::Scales => "scales",
            Self::DoesNotScale => "does not scale",
            Self::FewBlocks => "cannot be told from so few blocks",
            Self::Undecided => "cannot be told",
            Self::Noisy => "cannot be told: the machine is too noisy",
            Self::Loaded => "cannot be told: the load takes processors, too",
            Self::NoProcessors => "cannot be told: no more processors than threads",
            Self::SameWork => "cannot be told: the processor time did not grow with the threads",
        }
    }

    /// The same in a sentence: with what may be done about it.
    fn advice(self) -> String {
        let more = match self {
            Self::SameWork => {
                ", so the work seems to be the same for any number: compare the times, or give a metric that is a rate"
            }
            Self::Loaded => ": give each processors of its own (taskset), or let the load run elsewhere",
            _ => "",
        };
        format!("{}{more}", self.word())
    }
}

/// What bears on the finding beside the factor.
struct Circumstances {
    blocks: usize,
    ideal: f64,
    /// The larger noise floor of the two rows.
    noise: f64,
    /// The share of the processors that a server's load kept busy itself.
    load: f64,
}

/// One entry for each allocator and each thread count but the least; none for a program that ran on one.
pub fn scaling(conclusion: &Conclusion, summary: &Summary, subject: &Subject) -> Vec<Scaling> {
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
    of(conclusion, summary, &subject.thread_counts, !subject.metrics.is_empty(), cpus)
}

fn of(
    conclusion: &Conclusion,
    summary: &Summary,
    thread_counts: &[u32],
    metric: bool,
    cpus: u32,
) -> Vec<Scaling> {
    let Some(&from) = thread_counts.iter().min() else { return Vec::new() };
    // One value a block: how many times as much of something there is on more threads.
    let growths = |allocator: &str, to, figure: fn(&Measurement) -> f64| -> Option<Vec<f64>> {
        let measured = |block, threads| conclusion.measured(block, allocator, threads).map(figure);
        let growth = |block| log_ratio(measured(block, to)?, measured(block, from)?);
        (0..conclusion.blocks).map(growth).collect()
    };
    let floor = |threads| {
        let row = summary.rows.iter().find(|row| row.threads == threads);
        row.and_then(|row| row.noise_floor).map_or(0.0, |floor| floor.throughput)
    };
    let load = |allocator: &str, threads| {
        let measured =
            (0..conclusion.blocks).filter_map(|block| conclusion.measured(block, allocator, threads));
        let loads: Option<Vec<f64>> =
            measured.map(|found| found.extra.get(LOAD_PROCESSORS).copied()).collect();
        loads.and_then(|loads| hodges_lehmann(&loads)).unwrap_or(0.0)
    };
    let names = || summary.allocators.iter().map(|allocator| allocator.name.as_str());
    let grows = |allocator: &str, to| {
        let growths = growths(allocator, to, |found| (found.user_ns + found.kernel_ns) as f64)?;
        Some(hodges_lehmann(&growths)?.exp() >= GROWS_FROM * f64::from(to) / f64::from(from))
    };
    // What one allocator costs more on more threads is no work: the program's is the same if it is under any.
    let same_work = |to| {
        let measured = names().filter(|name| growths(name, to, operations_per_second).is_some());
        !metric && measured.into_iter().any(|name| grows(name, to) != Some(true))
    };
    let mut found = Vec::new();
    for allocator in names() {
        for &to in thread_counts.iter().rev().filter(|&&count| count > from) {
            let Some(mut growths) = growths(allocator, to, operations_per_second) else { continue };
            // A run's time is that of as much work for each thread.
            let work = if metric { 1.0 } else { f64::from(to) / f64::from(from) };
            growths.iter_mut().for_each(|growth| *growth += work.ln());
            let Some(estimate) = Bootstrap::of(&growths, &Resamples::new(growths.len(), 1)) else { continue };
            let ideal = f64::from(to.min(cpus)) / f64::from(from.min(cpus));
            let factor = (!same_work(to)).then(|| estimate.estimate().exp());
            let noise = floor(from).max(floor(to));
            let load = load(allocator, to) / f64::from(cpus);
            let finding = finding(factor, &Circumstances { blocks: growths.len(), ideal, noise, load });
            let (allocator, word) = (allocator.to_owned(), finding.word());
            found.push(Scaling { allocator, from, to, factor, ideal, finding, word, metric });
        }
    }
    found
}

fn finding(factor: Option<Estimate>, beside: &Circumstances) -> Finding {
    let ideal = beside.ideal;
    let Some(factor) = factor else { return Finding::SameWork };
    if ideal <= 1.0 {
        Finding::NoProcessors
    } else if beside.blocks < MIN_BLOCKS {
        Finding::FewBlocks
    } else if factor.low >= SCALES_FROM * ideal {
        Finding::Scales
    } else if factor.high >= SCALES_FROM * ideal {
        Finding::Undecided
    } else if beside.load > LIGHT_UP_TO {
        Finding::Loaded
    } else if beside.noise > QUIET_UP_TO {
        Finding::Noisy
    } else {
        Finding::DoesNotScale
    }
}

/// The finding on the most threads, in a sentence or two; none where nothing may be said.
pub fn told(all: &[Scaling]) -> Option<String> {
    let most = all.iter().max_by_key(|scaling| scaling.to)?;
    let those = |finding| {
        all.iter().filter(move |scaling| (scaling.to, scaling.finding) == (most.to, finding)).peekable()
    };
    let list = |finding| {
        let text = |scaling: &Scaling| {
            let factor = scaling.factor.map(|factor| format!(" ({:.2} times the work)", factor.value));
            format!("{}{}", scaling.allocator, factor.unwrap_or_default())
        };
        let text: Vec<String> = those(finding).map(text).collect();
        (!text.is_empty()).then(|| text.join(", "))
    };
    let said: Vec<String> = [
        list(Finding::Scales).map(|names| format!("it scales on {names}")),
        list(Finding::DoesNotScale).map(|names| format!("it does not scale on {names}")),
    ]
    .into_iter()
    .flatten()
    .collect();
    let mut sentences = Vec::new();
    if !said.is_empty() {
        let assumed = if most.metric { "" } else { ", if each thread does as much work as one alone" };
        sentences.push(format!(
            "From {} to {} threads, where {:.0} times would be ideal, {}{assumed}.",
            most.from,
            most.to,
            most.ideal,
            said.join("; ")
        ));
    }
    for finding in [Finding::Noisy, Finding::Loaded] {
        if let Some(names) = list(finding) {
            sentences.push(format!("Whether it scales on {names} {}.", finding.advice()));
        }
    }
    for finding in [Finding::NoProcessors, Finding::SameWork] {
        if those(finding).peek().is_some() {
            sentences.push(format!(
                "Whether it scales from {} to {} threads {}.",
                most.from,
                most.to,
                finding.advice()
            ));
        }
    }
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

impl Scaling {
    /// The factor and its interval, as text.
    pub fn figures(&self) -> [String; 2] {
        let Some(factor) = self.factor else { return ["–".into(), String::new()] };
        [format!("{:.2}", factor.value), units::interval(factor)]
    }
}

/// All of it as a table for a terminal; empty where there is nothing.
pub fn table(all: &[Scaling]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let head = ["scaling", "threads", "times the work", "95 % interval", "ideal", ""].map(str::to_owned);
    let line = |scaling: &Scaling| {
        let [factor, interval] = scaling.figures();
        vec![
            scaling.allocator.clone(),
            format!("{} → {}", scaling.from, scaling.to),
            factor,
            interval,
            format!("{:.0}", scaling.ideal),
            scaling.word.to_owned(),
        ]
    };
    format!("\n{}\n", columns::rows(&head, &all.iter().map(line).collect::<Vec<_>>(), 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocators::Allocator;
    use crate::run::testing::conclude;

    const QUIET: Circumstances = Circumstances { blocks: MIN_BLOCKS, ideal: 2.0, noise: 0.01, load: 0.0 };

    fn estimate(value: f64, width: f64) -> Estimate {
        Estimate { value, low: value - width, high: value + width }
    }

    fn scaling(allocator: &str, factor: Option<Estimate>, beside: &Circumstances) -> Scaling {
        let finding = finding(factor, beside);
        let (allocator, word, ideal) = (allocator.to_owned(), finding.word(), beside.ideal);
        Scaling { allocator, from: 1, to: 2, factor, ideal, finding, word, metric: false }
    }

    #[test]
    fn what_scales_and_what_does_not_is_said_of_those_of_which_it_can_be() {
        let entry = |allocator, value, width| scaling(allocator, Some(estimate(value, width)), &QUIET);
        let mut all = [entry("ample", 1.95, 0.05), entry("old", 0.9, 0.1), entry("noisy", 1.5, 0.4)];
        let begin = "From 1 to 2 threads, where 2 times would be ideal, it scales on ample (1.95 times the work); it \
                     does not scale on old (0.90 times the work)";
        let told = |all: &[Scaling]| super::told(all).expect("a sentence");
        assert_eq!(told(&all), format!("{begin}, if each thread does as much work as one alone."));
        all.iter_mut().for_each(|scaling| scaling.metric = true);
        assert_eq!(told(&all), format!("{begin}."), "a metric says what was done");
        assert!(table(&all).contains("1.10–1.90"), "{}", table(&all));
        assert_eq!(table(&[]), "");
    }

    #[test]
    fn few_blocks_and_wide_intervals_tell_nothing() {
        let few = Circumstances { blocks: MIN_BLOCKS - 1, ..QUIET };
        assert_eq!(finding(Some(estimate(2.0, 0.0)), &few).word(), "cannot be told from so few blocks");
        assert_eq!(super::told(&[scaling("noisy", Some(estimate(1.5, 0.4)), &QUIET)]), None);
        assert_eq!(super::told(&[]), None);
    }

    #[test]
    fn noise_hides_that_a_program_does_not_scale_and_not_that_it_does() {
        let noisy = Circumstances { noise: 0.11, ..QUIET };
        assert_eq!(finding(Some(estimate(1.9, 0.1)), &noisy), Finding::Scales);
        assert_eq!(
            finding(Some(estimate(0.9, 0.1)), &Circumstances { noise: 0.1, ..QUIET }),
            Finding::DoesNotScale
        );
        let told = told(&[scaling("old", Some(estimate(0.9, 0.1)), &noisy)]).expect("a sentence");
        let expected =
            "Whether it scales on old (0.90 times the work) cannot be told: the machine is too noisy.";
        assert_eq!(told, expected);
    }

    #[test]
    fn a_load_that_takes_processors_itself_hides_that_a_server_does_not_scale() {
        let loaded = Circumstances { load: 0.3, ..QUIET };
        assert_eq!(finding(Some(estimate(1.9, 0.1)), &loaded), Finding::Scales);
        let told = told(&[scaling("old", Some(estimate(0.9, 0.1)), &loaded)]).expect("a sentence");
        assert_eq!(
            told,
            "Whether it scales on old (0.90 times the work) cannot be told: the load takes processors, too: give each \
             processors of its own (taskset), or let the load run elsewhere."
        );
        // Of what was measured: half of a processor of two.
        let allocators = ["glibc", "a"].map(Allocator::fake);
        let (plan, conclusion) = conclude(&allocators, MIN_BLOCKS, usize::MAX, |asked, measurement| {
            let load = if asked.allocator == "a" { 0.5 } else { 0.1 };
            measurement.extra.insert(LOAD_PROCESSORS.into(), load);
            None
        });
        let summary = Summary::new(&conclusion, &plan, &allocators, 1);
        let found = of(&conclusion, &summary, &[2, 1], true, 2);
        let findings: Vec<Finding> = found.iter().map(|scaling| scaling.finding).collect();
        assert_eq!(findings, [Finding::DoesNotScale, Finding::Loaded]);
    }

    #[test]
    fn nothing_scales_where_the_fewest_threads_have_all_processors() {
        let full = Circumstances { ideal: 1.0, ..QUIET };
        let all = [scaling("ample", Some(estimate(1.0, 0.1)), &full)];
        let told = told(&all).expect("a sentence");
        assert_eq!(
            told,
            "Whether it scales from 1 to 2 threads cannot be told: no more processors than threads."
        );
        assert!(table(&all).contains("cannot be told: no more processors than threads"), "{}", table(&all));
    }

    #[test]
    fn work_that_is_shared_out_is_told_by_the_processor_time() {
        // Two threads take as long as one, and this many times its processor time under glibc and another.
        let found = |times: [u64; 2], metric| {
            let allocators = ["glibc", "a"].map(Allocator::fake);
            let (plan, conclusion) = conclude(&allocators, MIN_BLOCKS, usize::MAX, |asked, measurement| {
                let more = if asked.allocator == "a" { times[1] } else { times[0] };
                measurement.user_ns = if asked.threads == 2 { more } else { 1000 };
                measurement.kernel_ns = 0;
                None
            });
            let summary = Summary::new(&conclusion, &plan, &allocators, 1);
            of(&conclusion, &summary, &[2, 1], metric, 2)
        };
        let findings = |all: &[Scaling]| all.iter().map(|scaling| scaling.finding).collect::<Vec<_>>();
        let each = found([1500, 2000], false);
        assert_eq!(findings(&each), [Finding::Scales; 2]);
        assert!((each[0].factor.expect("a factor").value - 2.0).abs() < 1e-9);
        // What another one costs more is no work.
        let shared = found([1400, 1600], false);
        assert_eq!(findings(&shared), [Finding::SameWork; 2]);
        assert_eq!(shared[0].factor, None, "nothing is said to be twice the work");
        assert_eq!(
            told(&shared).expect("a sentence"),
            "Whether it scales from 1 to 2 threads cannot be told: the processor time did not grow with the threads, so \
             the work seems to be the same for any number: compare the times, or give a metric that is a rate."
        );
        assert!(table(&shared).contains('–'), "{}", table(&shared));
        // A metric says how much was done.
        let by_metric = found([1000, 1000], true);
        assert_eq!(findings(&by_metric), [Finding::DoesNotScale; 2]);
    }
}
