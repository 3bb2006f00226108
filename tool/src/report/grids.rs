//! The tables of what was measured in runs of its own, for one workload each.

use serde::Serialize;

use super::measures::{Counts, FUNCTIONS, Finding, Found, Latency, Memory};
use super::palette::{COLOURS, FAINT, look};
use super::units;

/// Columns of counts at most; the rarest share the last one.
const MOST_COLUMNS: usize = 8;
/// Numbers of operations at which the table of memory shows it.
const MOMENTS: u64 = 6;
/// System calls about memory: their columns come first.
const ABOUT_MEMORY: [&str; 7] = ["mmap", "munmap", "mremap", "mprotect", "madvise", "brk", "futex"];

/// A table on one number of threads.
#[derive(Debug, PartialEq, Serialize)]
pub struct Grid {
    /// Threads.
    pub threads: u32,
    /// What it shows.
    pub title: String,
    /// Heads of the columns after the name.
    pub head: Vec<String>,
    /// The rows.
    pub lines: Vec<GridLine>,
    /// Why no allocator has a number, where all have the same reason.
    pub gap: Option<String>,
}

/// An allocator's row.
#[derive(Debug, PartialEq, Serialize)]
pub struct GridLine {
    /// The name.
    pub name: String,
    /// Name of its colour.
    pub colour: &'static str,
    /// The cells; none where there is no number.
    pub cells: Vec<String>,
    /// Why there is none.
    pub note: String,
}

/// Thread counts of a workload's findings, the highest first.
fn thread_counts<T>(findings: &[&Finding<T>]) -> Vec<u32> {
    let mut threads: Vec<u32> = findings.iter().map(|finding| finding.threads).collect();
    threads.sort_unstable_by(|a, b| b.cmp(a));
    threads.dedup();
    threads
}

/// A grid for each thread count, the highest first. `grid` makes head and cells of the figures that there are.
fn grids<T>(
    findings: &[Finding<T>],
    workload: &str,
    grid: impl Fn(&[&T]) -> (Vec<String>, Vec<Vec<String>>),
) -> Vec<Grid> {
    let findings: Vec<&Finding<T>> = findings.iter().filter(|finding| finding.workload == workload).collect();
    let one = |threads| {
        let of_row: Vec<&&Finding<T>> =
            findings.iter().filter(|finding| finding.threads == threads).collect();
        let measured = of_row.iter().filter_map(|finding| match &finding.result {
            Found::Measured(figures) => Some(figures),
            _ => None,
        });
        let (head, cells) = grid(&measured.collect::<Vec<_>>());
        let mut cells = cells.into_iter();
        let line = |finding: &&&Finding<T>| {
            let (cells, note) = match &finding.result {
                Found::Measured(_) => (cells.next().unwrap_or_default(), String::new()),
                Found::NotMeasurable { reason } => (Vec::new(), format!("not measurable here: {reason}")),
                Found::Failed { reason } => (Vec::new(), format!("failed: {reason}")),
            };
            let (name, colour) = (finding.allocator.clone(), COLOURS[look(&finding.allocator).colour].name);
            GridLine { name, colour, cells, note }
        };
        let lines: Vec<GridLine> = of_row.iter().map(line).collect();
        let reason = lines.first().map(|line| line.note.clone()).filter(|note| !note.is_empty());
        let gap = reason.filter(|reason| lines.iter().all(|line| line.note == *reason));
        Grid { threads, title: format!("On {}", units::threads(threads)), head, lines, gap }
    };
    thread_counts(&findings).into_iter().map(one).collect()
}

/// Percentiles of each function that is called.
pub fn latency(findings: &[Finding<Latency>], workload: &str) -> Vec<Grid> {
    grids(findings, workload, |all| {
        let called = |function: &&str| all.iter().any(|latency| latency.functions.contains_key(function));
        let functions: Vec<&str> = FUNCTIONS.into_iter().filter(called).collect();
        let head = functions
            .iter()
            .flat_map(|function| ["p50", "p99", "p99.9", "max"].map(|figure| format!("{function} {figure}")));
        let cells = all.iter().map(|latency| {
            let of_function = |function: &&str| match latency.functions.get(function) {
                Some(found) => {
                    [found.p50_ns, found.p99_ns, found.p99_9_ns, found.max_ns].map(units::nanoseconds)
                }
                None => ["–"; 4].map(str::to_owned),
            };
            functions.iter().flat_map(of_function).collect()
        });
        (head.collect(), cells.collect())
    })
}

/// Resident memory at some numbers of operations, and the most that it exceeded live bytes by.
pub fn memory(findings: &[Finding<Memory>], workload: &str) -> Vec<Grid> {
    let mut grids = grids(findings, workload, |all| {
        let mut head = vec!["RSS ÷ live at most".to_owned(), "RSS − live at most".to_owned()];
        let moments = moments(all);
        head.extend(moments.iter().map(|&operations| format!("after {}", units::count(operations as f64))));
        let cells = all.iter().map(|memory| {
            let most = [
                memory.peak_rss_to_live.map(units::multiple),
                memory.peak_rss_minus_live_bytes.map(units::bytes),
            ];
            let most = most.map(|cell| cell.unwrap_or_else(|| "–".into()));
            most.into_iter().chain(at(memory, &moments, |point| point.rss_bytes)).collect()
        });
        (head, cells.collect())
    });
    for grid in &mut grids {
        let row = (workload, grid.threads);
        let mut of_row =
            findings.iter().filter(|finding| (finding.workload.as_str(), finding.threads) == row);
        let figures = |finding: &&Finding<Memory>| matches!(finding.result, Found::Measured(_));
        if let Some(Finding { result: Found::Measured(memory), .. }) = of_row.clone().find(figures) {
            let all = of_row.by_ref().filter_map(|finding| match &finding.result {
                Found::Measured(memory) => Some(memory),
                _ => None,
            });
            let moments = moments(&all.collect::<Vec<_>>());
            let cells = ["", ""].map(str::to_owned).into_iter();
            let cells = cells.chain(at(memory, &moments, |point| point.live_bytes)).collect();
            let (name, colour) = ("live bytes".to_owned(), COLOURS[FAINT].name);
            grid.lines.insert(0, GridLine { name, colour, cells, note: String::new() });
        }
    }
    grids
}

/// Evenly spread numbers of operations, up to the last that all curves reach.
fn moments(all: &[&Memory]) -> Vec<u64> {
    let lasts = all.iter().filter_map(|memory| memory.curve.last()).map(|point| point.operations);
    let last = lasts.min().unwrap_or_default();
    (1..=MOMENTS).map(|moment| last * moment / MOMENTS).collect()
}

/// The figure of the last point up to each moment.
fn at<'a>(
    memory: &'a Memory,
    moments: &'a [u64],
    figure: impl Fn(&ample_protocol::CurvePoint) -> u64 + 'a,
) -> impl Iterator<Item = String> + 'a {
    moments.iter().map(move |&moment| {
        let point = memory.curve.iter().rfind(|point| point.operations <= moment);
        point.map_or_else(|| "–".into(), |point| units::bytes(figure(point) as f64))
    })
}

/// System calls: all of them, and by name for every thousand operations.
pub fn system_calls(findings: &[Finding<Counts>], workload: &str) -> Vec<Grid> {
    grids(findings, workload, |all| {
        let names = columns(all, |name| ABOUT_MEMORY.iter().position(|known| *known == name));
        let (named, rest) = names.split_at(names.len().min(MOST_COLUMNS));
        let mut head = vec!["in all".to_owned(), "per 1000".to_owned()];
        head.extend(named.iter().map(|name| name.to_string()));
        head.extend((!rest.is_empty()).then(|| format!("{} others", rest.len())));
        let cells = all.iter().map(|counts| {
            let sum: f64 = counts.by_name.values().sum();
            let of =
                |names: &[&str]| -> f64 { names.iter().filter_map(|name| counts.by_name.get(*name)).sum() };
            let mut cells = vec![units::count(sum), per_thousand(sum, counts.operations)];
            cells.extend(named.iter().map(|name| per_thousand(of(&[name]), counts.operations)));
            cells.extend((!rest.is_empty()).then(|| per_thousand(of(rest), counts.operations)));
            cells
        });
        (head, cells.collect())
    })
}

/// What the processor or the kernel counted for every thousand operations.
pub fn counters(findings: &[Finding<Counts>], workload: &str) -> Vec<Grid> {
    const ORDER: [&str; 3] = ["cycles", "instructions", "task_clock_ns"];
    grids(findings, workload, |all| {
        let names = columns(all, |name| ORDER.iter().position(|known| name.starts_with(known)));
        let head = names.iter().map(|name| match name.strip_suffix("_ns") {
            Some(time) => time.replace('_', " "),
            None => name.replace('_', " "),
        });
        let cells = all.iter().map(|counts| {
            let cell = |name: &&str| match counts.by_name.get(*name) {
                Some(time) if name.ends_with("_ns") => {
                    units::nanoseconds(time * 1e3 / counts.operations as f64)
                }
                Some(count) => per_thousand(*count, counts.operations),
                None => "–".into(),
            };
            names.iter().map(cell).collect()
        });
        (head.collect(), cells.collect())
    })
}

/// All names that occur: those with a rank first, the others by how often they do.
fn columns<'a>(all: &[&'a Counts], rank: impl Fn(&str) -> Option<usize>) -> Vec<&'a str> {
    let mut names: Vec<&str> =
        all.iter().flat_map(|counts| counts.by_name.keys().map(String::as_str)).collect();
    names.sort_unstable();
    names.dedup();
    let sum = |name: &str| all.iter().filter_map(|counts| counts.by_name.get(name)).sum::<f64>();
    names.sort_by(|a, b| {
        let ranks = rank(a).unwrap_or(usize::MAX).cmp(&rank(b).unwrap_or(usize::MAX));
        ranks.then_with(|| sum(b).total_cmp(&sum(a)))
    });
    names
}

fn per_thousand(count: f64, operations: u64) -> String {
    let value = count * 1000.0 / operations as f64;
    match value {
        0.0 => "0".into(),
        0.0..0.001 => "< 0.001".into(),
        0.0..0.1 => units::trim(&format!("{value:.3}")).to_owned(),
        _ => units::trim(&units::count(value)).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ample_protocol::CurvePoint;
    use std::collections::BTreeMap;

    fn finding<T>(threads: u32, allocator: &str, result: Found<T>) -> Finding<T> {
        Finding { workload: "larson".into(), threads, allocator: allocator.into(), result }
    }

    fn counts(pairs: &[(&str, f64)]) -> Found<Counts> {
        let by_name = pairs.iter().map(|&(name, count)| (name.to_owned(), count)).collect();
        Found::Measured(Counts { operations: 10_000, by_name })
    }

    #[test]
    fn only_system_calls_that_occur_have_columns_and_those_about_memory_come_first() {
        let failed = Found::Failed { reason: "broken".into() };
        let findings = [
            finding(1, "x", counts(&[("read", 1.0)])),
            finding(2, "x", counts(&[("read", 900.0), ("munmap", 20.0), ("write", 1000.0)])),
            finding(2, "y", counts(&[("mmap", 0.05)])),
            finding(2, "z", failed),
        ];
        let grids = system_calls(&findings, "larson");
        assert_eq!(grids.iter().map(|grid| grid.threads).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(grids[0].head, ["in all", "per 1000", "mmap", "munmap", "write", "read"]);
        assert_eq!(grids[0].lines[0].cells, ["1.92 k", "192", "0", "2", "100", "90"]);
        assert_eq!(grids[0].lines[1].cells[1..3], ["0.005", "0.005"]);
        assert_eq!((grids[0].lines[2].note.as_str(), &grids[0].gap), ("failed: broken", &None));
        assert!(system_calls(&findings, "other").is_empty());
    }

    #[test]
    fn the_rarest_calls_share_a_column() {
        let names: Vec<String> = (0..13).map(|index| format!("call_{index:02}")).collect();
        let pairs: Vec<(&str, f64)> =
            names.iter().enumerate().map(|(index, name)| (name.as_str(), 100.0 - index as f64)).collect();
        let grids = system_calls(&[finding(1, "x", counts(&pairs))], "larson");
        assert_eq!(grids[0].head.len(), 2 + 8 + 1);
        assert_eq!(grids[0].head[10], "5 others");
        assert_eq!(grids[0].lines[0].cells[10], "45");
    }

    #[test]
    fn one_reason_for_all_is_told_once() {
        let refused = || Found::<Counts>::NotMeasurable { reason: "no ptrace".into() };
        let grids = counters(&[finding(1, "x", refused()), finding(1, "y", refused())], "larson");
        assert_eq!(grids[0].gap.as_deref(), Some("not measurable here: no ptrace"));
    }

    #[test]
    fn counters_are_per_thousand_operations_and_times_have_units() {
        let found = counts(&[("page_faults", 20.0), ("task_clock_ns", 5e6)]);
        let grid = &counters(&[finding(1, "x", found)], "larson")[0];
        assert_eq!(grid.head, ["task clock", "page faults"]);
        assert_eq!(grid.lines[0].cells, ["500 µs", "2"]);
    }

    #[test]
    fn memory_is_shown_at_the_same_operations_beside_live_bytes() {
        let curve = |last: u64| -> Vec<CurvePoint> {
            let point = |index| CurvePoint {
                operations: 10 * index,
                live_bytes: index << 20,
                rss_bytes: index << 21,
            };
            (1..=last).map(point).collect()
        };
        let memory_of = |last| {
            let (peak_rss_to_live, peak_rss_minus_live_bytes) = (Some(2.0), None);
            Found::Measured(Memory { peak_rss_to_live, peak_rss_minus_live_bytes, curve: curve(last) })
        };
        let grid = &memory(&[finding(1, "x", memory_of(6)), finding(1, "y", memory_of(8))], "larson")[0];
        assert_eq!(grid.head[2..], ["after 10", "after 20", "after 30", "after 40", "after 50", "after 60"]);
        let names: Vec<&str> = grid.lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["live bytes", "x", "y"]);
        assert_eq!(grid.lines[0].cells[7], "6.00 MiB");
        assert_eq!((grid.lines[2].cells[0].as_str(), grid.lines[2].cells[1].as_str()), ("2.00×", "–"));
        assert_eq!(grid.lines[2].cells[7], "12.0 MiB");
    }

    #[test]
    fn functions_that_are_not_called_have_no_column() {
        let percentiles = super::super::measures::Percentiles {
            calls: 1.0,
            p50_ns: 30.0,
            p90_ns: 40.0,
            p99_ns: 50.0,
            p99_9_ns: 1500.0,
            p99_99_ns: 2e6,
            max_ns: 3e6,
        };
        let functions = BTreeMap::from([("free", percentiles)]);
        let found = Found::Measured(Latency { runs: 3, timer_cost_ns: 20.0, functions });
        let grid = &latency(&[finding(1, "x", found)], "larson")[0];
        assert_eq!(grid.head, ["free p50", "free p99", "free p99.9", "free max"]);
        assert_eq!(grid.lines[0].cells, ["30 ns", "50 ns", "1.5 µs", "3 ms"]);
    }
}
