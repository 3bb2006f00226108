//! `ample selftest`: what measuring costs, two controls of the instrument itself, and how small a difference it
//! can see.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde::Serialize;

use super::print;
use crate::allocators::{Allocator, BASELINE, Finder, TWIN};
use crate::cli::Selftest;
use crate::error::say;
use crate::record::{SCHEMA_VERSION, operations_per_second};
use crate::report::{self, Cell, Summary};
use crate::run::{
    Campaign, Conclusion, Cost, DEFAULT_PRESET, INTERRUPTED, Interrupt, PLANTED_MARK, Plan, Planted,
    ProcessExecutor, Program, Progress, Request, Stopping, TIMEOUT, clock, costs, preset,
};
use crate::stats::{Metric, Verdict, least_found, log_ratio};

/// The workload, on one thread: small blocks allocated and freed in rounds. Of those tried it strays least
/// from itself, and a twentieth more rounds is a twentieth more time: its blocks are few enough that
/// touching them for the first time costs next to nothing.
const WORKLOAD: &str = "threadtest";
/// Its parameter for the amount of work, and a value that takes some tens of milliseconds.
const WORK: (&str, u32) = ("rounds", 200);
/// Its other parameters.
const SHAPE: [(&str, u32); 2] = [("size", 64), ("objects", 10_000)];
/// The slowdown that must be found: 5 % more work for as many operations.
const PLANTED: f64 = 0.05;
/// False alarms that are allowed, as a share of the comparisons.
const MOST_ALARMS: f64 = 0.05;
/// Planted slowdowns that must be found, as a share; the power at which the least one is told.
const POWER: f64 = 0.95;
/// Comparisons of a quick self-test.
const QUICK: u32 = 20;
/// The limit whose loop bounds the cost of the harness.
const FLOOR: &str = "floor";
/// glibc under a third name, and once more with the planted slowdown.
const AGAIN: &str = "glibc again";
const SLOWED: &str = "glibc slowed down";

/// How often each verdict was given.
#[derive(Debug, Default, Serialize)]
struct Counts {
    better: usize,
    worse: usize,
    equivalent: usize,
    cannot_tell: usize,
}

impl Counts {
    fn add(&mut self, verdict: Verdict) {
        *match verdict {
            Verdict::Faster | Verdict::Smaller => &mut self.better,
            Verdict::Slower | Verdict::Larger => &mut self.worse,
            Verdict::Equivalent => &mut self.equivalent,
            Verdict::CannotTell => &mut self.cannot_tell,
        } += 1;
    }

    fn all(&self) -> usize {
        self.better + self.worse + self.equivalent + self.cannot_tell
    }

    fn alarms(&self) -> usize {
        self.better + self.worse
    }
}

/// What came of it.
#[derive(Debug, Default, Serialize)]
struct Findings {
    schema_version: u32,
    /// What measuring itself costs.
    costs: Vec<Cost>,
    workload: &'static str,
    parameters: BTreeMap<&'static str, u32>,
    blocks: usize,
    /// Comparisons that were run to their end.
    comparisons: usize,
    interrupted: bool,
    seconds: f64,
    blocks_run_again: usize,
    /// glibc against itself: throughput, and peak RSS.
    itself_throughput: Counts,
    itself_peak_rss: Counts,
    /// glibc against itself with [`PLANTED`] more work: throughput.
    planted_share: f64,
    planted: Counts,
    /// Standard deviation of the log ratio of glibc to itself over blocks.
    spread: Option<f64>,
    /// Median of the comparisons' noise floors, as a share.
    median_noise_floor: Option<f64>,
    /// The least extra work that is found with a probability of 95 %, as a share.
    least_found: Option<f64>,
    passed: bool,
    #[serde(skip)]
    pairs: Vec<(f64, f64)>,
    #[serde(skip)]
    floors: Vec<f64>,
}

/// What `--cost --json` prints.
#[derive(Debug, Serialize)]
struct Costs {
    schema_version: u32,
    costs: Vec<Cost>,
}

/// Prints what measuring costs, runs both controls, and prints what they found. Fails where either does not pass.
pub fn selftest(arguments: &Selftest) -> Result<ExitCode> {
    let program = Program::find()?;
    let finder = Finder::new()?;
    let (Some(Ok(glibc)), Some(floor)) = (finder.by_name(BASELINE), finder.by_name(FLOOR)) else {
        bail!("the system's C library is not glibc")
    };
    let mut executor = ProcessExecutor::new(Interrupt::install().context("cannot catch signals")?);
    let Some(costs) = costs(&mut executor, &program, &glibc, floor.as_ref()) else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    if arguments.cost {
        let text = match arguments.json {
            true => serde_json::to_string_pretty(&Costs { schema_version: SCHEMA_VERSION, costs })?,
            false => cost_table(&costs),
        };
        print(&(text + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !arguments.json {
        print(&(cost_table(&costs) + "\n"))?;
    }
    let comparisons = if arguments.quick { QUICK } else { arguments.comparisons };
    let mut executor = Planted { inner: &mut executor, parameter: WORK.0, share: PLANTED };
    let mut findings = Findings {
        schema_version: SCHEMA_VERSION,
        costs,
        workload: WORKLOAD,
        parameters: SHAPE.into_iter().chain([WORK]).collect(),
        blocks: arguments.blocks as usize,
        planted_share: PLANTED,
        ..Findings::default()
    };
    let started = Instant::now();
    for index in 0..comparisons {
        let spent = started.elapsed().as_secs_f64();
        let left = match index {
            // The first comparison tells how long the others take.
            0 => String::new(),
            _ => format!(", {} left", time(spent / f64::from(index) * f64::from(comparisons - index))),
        };
        if index == 1 {
            let all = time(spent * f64::from(comparisons));
            say(&format!("ample: {comparisons} comparisons of {} blocks take about {all}", findings.blocks));
        }
        let part = format!("comparison {} of {comparisons}{left}: ", index + 1);
        let seed = arguments.seed.wrapping_add(u64::from(index));
        let (plan, conclusion) = compare(&mut executor, &program, &glibc, findings.blocks, seed, part)?;
        if conclusion.interrupted {
            findings.interrupted = true;
            break;
        }
        findings.add(&conclusion, &plan, &glibc, seed)?;
    }
    findings.seconds = started.elapsed().as_secs_f64();
    findings.conclude(arguments.seed);
    let text = if arguments.json { serde_json::to_string_pretty(&findings)? } else { findings.table() };
    print(&(text + "\n"))?;
    Ok(match (findings.interrupted, findings.passed) {
        (true, _) => ExitCode::from(INTERRUPTED),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => ExitCode::FAILURE,
    })
}

/// glibc, the same under another name, and the same slowed down: a run like any other.
fn entries(glibc: &Allocator) -> [Allocator; 3] {
    let named = |name: &str| Allocator { name: name.into(), ..glibc.clone() };
    let mut slowed = named(SLOWED);
    slowed.environment.insert(PLANTED_MARK.into(), String::new());
    [glibc.clone(), named(AGAIN), slowed]
}

fn compare(
    executor: &mut Planted<'_>,
    program: &Program,
    glibc: &Allocator,
    blocks: usize,
    seed: u64,
    part: String,
) -> Result<(Plan, Conclusion)> {
    let stopping = Stopping::blocks(blocks);
    let settings = SHAPE.iter().chain([&WORK]).map(|(key, value)| format!("{WORKLOAD}.{key}={value}"));
    let request = Request {
        workloads: &[format!("{WORKLOAD}-small")],
        preset: preset(DEFAULT_PRESET)?,
        threads: Some(&[1]),
        settings: &settings.collect::<Vec<_>>(),
        cpus: 1,
    };
    let plan = Plan::new(&request, &program.descriptions, seed)?;
    let campaign = Campaign {
        plan: &plan,
        allocators: &entries(glibc),
        program: &program.path,
        stopping,
        timeout: TIMEOUT,
        progress: &Progress::part(stopping, part),
    };
    let conclusion = campaign.run(Vec::new(), executor, &mut |_| Ok(()))?;
    Ok((plan, conclusion))
}

impl Findings {
    /// Counts the verdicts of one comparison: each kind judged as a run of its own.
    fn add(&mut self, conclusion: &Conclusion, plan: &Plan, glibc: &Allocator, seed: u64) -> Result<()> {
        let [glibc, again, slowed] = entries(glibc);
        for (other, planted) in [(again, false), (slowed, true)] {
            let summary = Summary::new(conclusion, plan, &[glibc.clone(), other], seed);
            let [_, Cell::Measured(figures)] = &summary.rows[0].cells[..] else {
                let reason = summary.gaps.first().map_or("not finished", |gap| &gap.reason);
                bail!("{WORKLOAD} under glibc has no number: {reason}");
            };
            let verdict = |metric| figures.comparison(metric).map(|found| found.verdict);
            let (Some(throughput), Some(peak_rss)) = (verdict(Metric::Throughput), verdict(Metric::PeakRss))
            else {
                bail!("{WORKLOAD} under glibc has no ratio");
            };
            if planted {
                self.planted.add(throughput);
            } else {
                self.itself_throughput.add(throughput);
                self.itself_peak_rss.add(peak_rss);
                self.floors.extend(summary.rows[0].noise_floor.map(|floor| floor.throughput));
            }
        }
        self.comparisons += 1;
        self.blocks_run_again +=
            conclusion.block_log.iter().filter(|block| block.run_again.is_some()).count();
        self.pairs.extend((0..conclusion.blocks).filter_map(|block| {
            let rate = |name| conclusion.measured(block, name, 1).map(operations_per_second);
            let ratio = |name| log_ratio(rate(name)?, rate(BASELINE)?);
            Some((ratio(AGAIN)?, ratio(TWIN)?))
        }));
        Ok(())
    }

    fn conclude(&mut self, seed: u64) {
        self.spread = spread(self.pairs.iter().flat_map(|&(again, twin)| [again, twin]));
        self.floors.sort_by(f64::total_cmp);
        self.median_noise_floor = self.floors.get(self.floors.len() / 2).copied();
        self.least_found = least_found(&self.pairs, self.blocks, POWER, seed);
        let alarms = [&self.itself_throughput, &self.itself_peak_rss].map(Counts::alarms);
        let most = (self.comparisons as f64 * MOST_ALARMS).floor() as usize;
        self.passed = self.comparisons > 0
            && alarms.iter().all(|alarms| *alarms <= most)
            && self.planted.worse >= self.demanded();
    }

    /// How many planted slowdowns must be found.
    fn demanded(&self) -> usize {
        (self.comparisons as f64 * POWER).ceil() as usize
    }

    fn table(&self) -> String {
        let head = ["control", "comparisons", "better", "worse", "equivalent", "cannot tell", "demanded", ""]
            .map(str::to_owned);
        let most = (self.comparisons as f64 * MOST_ALARMS).floor() as usize;
        let line = |name: &str, counts: &Counts, demanded: String, passed: bool| {
            let mut cells = vec![name.to_owned()];
            let figures = [counts.all(), counts.better, counts.worse, counts.equivalent, counts.cannot_tell];
            cells.extend(figures.iter().map(usize::to_string));
            cells.extend([demanded, if passed { "passed" } else { "FAILED" }.to_owned()]);
            cells
        };
        let alarm = |name: &str, counts: &Counts| {
            line(name, counts, format!("better + worse ≤ {most}"), counts.alarms() <= most)
        };
        let planted = format!("throughput, {:.0} % more work", self.planted_share * 100.0);
        let found = self.planted.worse >= self.demanded();
        let rows = [
            alarm("throughput, glibc against itself", &self.itself_throughput),
            alarm("peak memory, glibc against itself", &self.itself_peak_rss),
            line(&planted, &self.planted, format!("worse ≥ {}", self.demanded()), found),
        ];
        let rate = |count: usize, all: usize| match all {
            0 => "unknown".to_owned(),
            _ => percent(Some(count as f64 / all as f64)),
        };
        let alarms = self.itself_throughput.alarms() + self.itself_peak_rss.alarms();
        let facts = [
            ("false alarms", rate(alarms, self.itself_throughput.all() + self.itself_peak_rss.all())),
            ("planted slowdowns found", rate(self.planted.worse, self.planted.all())),
            ("least slowdown found with 95 % power", percent(self.least_found)),
            ("spread of glibc against itself, one block", percent(self.spread)),
            ("noise floor, median of the comparisons", percent(self.median_noise_floor)),
            ("blocks disturbed from outside and run again", self.blocks_run_again.to_string()),
            ("time", time(self.seconds)),
        ];
        let facts: String = facts.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        let parameters: Vec<String> =
            self.parameters.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        let early = if self.interrupted { "Ended early by the user.\n" } else { "" };
        format!(
            "{}\n\n{facts}{early}{WORKLOAD} on one thread, {}, {} blocks a comparison.",
            report::rows(&head, &rows, 1),
            parameters.join(", "),
            self.blocks
        )
    }
}

/// What measuring costs, a line each.
fn cost_table(costs: &[Cost]) -> String {
    let head = ["measuring costs", "as told by", "time"].map(str::to_owned);
    let line = |cost: &Cost| {
        let time = cost.value.map_or("unknown".to_owned(), |value| format!("{value:.2} {}", cost.unit));
        vec![cost.name.to_owned(), cost.reason.clone().unwrap_or_else(|| cost.how.to_owned()), time]
    };
    report::rows(&head, &costs.iter().map(line).collect::<Vec<_>>(), 2)
}

/// Standard deviation; none for fewer than two values.
fn spread(values: impl Iterator<Item = f64> + Clone) -> Option<f64> {
    let count = values.clone().count();
    let mean = values.clone().sum::<f64>() / count as f64;
    let squares: f64 = values.map(|value| (value - mean).powi(2)).sum();
    (count > 1).then(|| (squares / (count - 1) as f64).sqrt())
}

fn percent(share: Option<f64>) -> String {
    share.map_or("unknown".into(), |share| format!("{:.1} %", share * 100.0))
}

fn time(seconds: f64) -> String {
    clock(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_controls_decide() {
        let findings = |worse: usize, alarms: usize| {
            let mut findings = Findings { comparisons: 100, blocks: 10, ..Findings::default() };
            findings.planted.worse = worse;
            findings.planted.cannot_tell = 100 - worse;
            findings.itself_throughput =
                Counts { better: alarms, equivalent: 100 - alarms, ..Counts::default() };
            findings.itself_peak_rss.equivalent = 100;
            findings.conclude(1);
            findings
        };
        assert!(findings(95, 5).passed);
        assert!(!findings(94, 0).passed && !findings(100, 6).passed);
        let text = findings(94, 5).table();
        assert!(text.contains("false alarms: 2.5 %") && text.contains("FAILED"), "{text}");
        assert!(text.contains("least slowdown found with 95 % power: unknown"), "{text}");
        assert!(!Findings::default().passed);
    }

    #[test]
    fn a_cost_has_its_unit_and_an_unknown_one_its_reason() {
        let cost = |value, reason: Option<&str>| Cost {
            name: "a read",
            how: "in a loop",
            value,
            unit: "ns",
            reason: reason.map(str::to_owned),
        };
        let known = cost_table(&[cost(Some(1.234), None)]);
        assert!(known.contains("in a loop") && known.contains("1.23 ns"), "{known}");
        let unknown = cost_table(&[cost(None, Some("no clock"))]);
        assert!(unknown.contains("no clock") && unknown.contains("unknown"), "{unknown}");
    }

    #[test]
    fn the_spread_is_that_of_the_sample() {
        assert_eq!(spread([1.0, 3.0].into_iter()), Some(f64::sqrt(2.0)));
        assert_eq!(spread([1.0].into_iter()), None);
    }
}
