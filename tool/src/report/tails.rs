//! Latency of single calls over all rows: what a table for each workload does not tell at a glance.

use serde::Serialize;

use super::measures::{FUNCTIONS, Finding, Found, Latency, Percentiles};
use super::palette::{COLOURS, look};
use super::summary::Summary;
use super::units;
use crate::allocators::BASELINE;
use crate::stats::log_ratio;

/// What a percentile is read from.
type Figure = fn(&Percentiles) -> f64;

/// The percentiles of the table.
const FIGURES: [(&str, Figure); 4] = [
    ("p50", |found| found.p50_ns),
    ("p99", |found| found.p99_ns),
    ("p99.9", |found| found.p99_9_ns),
    ("p99.99", |found| found.p99_99_ns),
];

/// Percentiles as multiples of glibc's, geometric means over rows; a line for each allocator.
#[derive(Debug, PartialEq, Serialize)]
pub struct Tails {
    /// Rows in which glibc has figures.
    pub rows: usize,
    /// Function and percentile of each column.
    pub head: Vec<String>,
    /// The allocators that have figures, glibc excepted.
    pub lines: Vec<TailLine>,
}

/// One allocator's.
#[derive(Debug, PartialEq, Serialize)]
pub struct TailLine {
    /// The allocator.
    pub name: String,
    /// Name of its colour.
    pub colour: &'static str,
    /// Rows that it shares with glibc.
    pub rows: usize,
    /// A cell for each column.
    pub cells: Vec<String>,
}

impl Tails {
    /// None where no allocator shares a row with glibc.
    pub fn new(summary: &Summary) -> Option<Self> {
        let findings = &summary.measures.latency;
        let pairs: Vec<(&str, &Latency, &Latency)> =
            findings.iter().filter_map(|own| pair(own, findings)).collect();
        let called =
            |function: &&str| pairs.iter().any(|(_, _, glibc)| glibc.functions.contains_key(function));
        let functions: Vec<&str> = FUNCTIONS.into_iter().filter(called).collect();
        let columns = || functions.iter().flat_map(|function| FIGURES.map(|figure| (*function, figure)));
        let line = |allocator: &str| {
            let of_one = || pairs.iter().filter(move |(name, ..)| *name == allocator);
            let cells = columns().map(|(function, (_, figure))| {
                let ratios = of_one().filter_map(|(_, own, glibc)| {
                    let [own, glibc] =
                        [own, glibc].map(|latency| latency.functions.get(function).map(figure));
                    log_ratio(own?, glibc?)
                });
                mean(ratios).map_or("–".into(), units::multiple)
            });
            let colour = COLOURS[look(allocator).colour].name;
            TailLine { name: allocator.to_owned(), colour, rows: of_one().count(), cells: cells.collect() }
        };
        let others = summary.allocators.iter().map(|allocator| allocator.name.as_str());
        let lines: Vec<TailLine> = others.map(line).filter(|line| line.rows > 0).collect();
        let head = columns().map(|(function, (name, _))| format!("{function} {name}")).collect();
        let rows =
            findings.iter().filter(|finding| finding.allocator == BASELINE && measured(finding).is_some());
        (!lines.is_empty()).then(|| Self { rows: rows.count(), head, lines })
    }
}

/// The allocator's figures, and glibc's in the same row.
fn pair<'a>(
    own: &'a Finding<Latency>,
    all: &'a [Finding<Latency>],
) -> Option<(&'a str, &'a Latency, &'a Latency)> {
    let row = (&own.workload, own.threads);
    let glibc =
        all.iter().find(|other| (&other.workload, other.threads) == row && other.allocator == BASELINE)?;
    (own.allocator != BASELINE).then_some(())?;
    Some((&own.allocator, measured(own)?, measured(glibc)?))
}

fn measured(finding: &Finding<Latency>) -> Option<&Latency> {
    match &finding.result {
        Found::Measured(latency) => Some(latency),
        _ => None,
    }
}

/// The geometric mean; none of nothing.
fn mean(logarithms: impl Iterator<Item = f64>) -> Option<f64> {
    let all: Vec<f64> = logarithms.collect();
    (!all.is_empty()).then(|| (all.iter().sum::<f64>() / all.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocators::Allocator;
    use crate::report::Summary;
    use crate::run::testing::conclude;

    fn percentiles(nanoseconds: f64) -> Percentiles {
        Percentiles {
            calls: 1e6,
            p50_ns: 20.0,
            p90_ns: 30.0,
            p99_ns: nanoseconds,
            p99_9_ns: 2.0 * nanoseconds,
            p99_99_ns: 4.0 * nanoseconds,
            max_ns: 1e6,
        }
    }

    fn finding(workload: &str, allocator: &str, p99_ns: Option<f64>) -> Finding<Latency> {
        let result = match p99_ns {
            Some(p99_ns) => Found::Measured(Latency {
                runs: 3,
                timer_cost_ns: 17.0,
                functions: [("malloc", percentiles(p99_ns))].into(),
            }),
            None => Found::Failed { reason: "it ended".into() },
        };
        Finding { workload: workload.into(), threads: 2, allocator: allocator.into(), result }
    }

    fn tails(findings: Vec<Finding<Latency>>) -> Option<Tails> {
        let allocators = ["x", "glibc", "y"].map(Allocator::fake);
        let (plan, conclusion) = conclude(&allocators, 1, usize::MAX, |_, _| None);
        let mut summary = Summary::new(&conclusion, &plan, &allocators, 1);
        summary.measures.latency = findings;
        Tails::new(&summary)
    }

    #[test]
    fn it_is_the_geometric_mean_over_the_rows_that_are_shared_with_glibc() {
        let found = tails(vec![
            finding("larson", "x", Some(50.0)),
            finding("larson", "glibc", Some(100.0)),
            finding("larson", "y", None),
            finding("mstress", "x", Some(800.0)),
            finding("mstress", "glibc", Some(100.0)),
            finding("alone", "x", Some(1.0)),
        ]);
        let found = found.expect("a table");
        assert_eq!(found.head, ["malloc p50", "malloc p99", "malloc p99.9", "malloc p99.99"]);
        let cells = ["1.00×", "2.00×", "2.00×", "2.00×"].map(str::to_owned).to_vec();
        let [line] = &found.lines[..] else { panic!("{found:?}") };
        assert_eq!((found.rows, line.name.as_str(), line.rows, &line.cells), (2, "x", 2, &cells));
    }

    #[test]
    fn without_glibc_or_another_there_is_none() {
        assert_eq!(tails(vec![finding("larson", "x", Some(50.0))]), None);
        assert_eq!(tails(vec![finding("larson", "glibc", Some(50.0)), finding("larson", "x", None)]), None);
    }
}
