//! What was measured in runs of its own: latency, memory over operations, counters, system calls.

use std::collections::BTreeMap;

use ample_protocol::{CurvePoint, Measurement};
use serde::Serialize;

use crate::allocators::Allocator;
use crate::record::{Judgement, Pass, Sample};
use crate::run::Plan;

/// Functions whose latency is measured, in the order of tables.
pub const FUNCTIONS: [&str; 3] = ["malloc", "free", "realloc"];

/// All measures of a run, each by row and allocator in the order of tables.
#[derive(Debug, Default, Serialize)]
pub struct Measures {
    /// Latencies of single calls.
    pub latency: Vec<Finding<Latency>>,
    /// Memory over operations.
    pub memory: Vec<Finding<Memory>>,
    /// What the processor counted.
    pub counters: Vec<Finding<Counts>>,
    /// System calls by name.
    pub system_calls: Vec<Finding<Counts>>,
}

/// One allocator in one row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding<T> {
    /// The workload, as in tables.
    pub workload: String,
    /// Threads.
    pub threads: u32,
    /// The allocator.
    pub allocator: String,
    /// What was found.
    #[serde(flatten)]
    pub result: Found<T>,
}

/// The figures, or why there are none.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "status", rename_all = "kebab-case")]
pub enum Found<T> {
    /// The figures.
    Measured(T),
    /// This machine, or the workload, has nothing to measure.
    NotMeasurable {
        /// Why.
        reason: String,
    },
    /// Something went wrong.
    Failed {
        /// What.
        reason: String,
    },
}

/// Latencies of every call in the measured part, the cost of the timer included.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Latency {
    /// Runs that the figures come from.
    pub runs: usize,
    /// What the timer adds to each latency, in nanoseconds.
    pub timer_cost_ns: f64,
    /// By function; those that are not called are absent.
    pub functions: BTreeMap<&'static str, Percentiles>,
}

/// Percentiles in nanoseconds: medians over the runs, and the highest of all.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Percentiles {
    /// Calls in one run.
    pub calls: f64,
    /// Half of the calls take no longer.
    pub p50_ns: f64,
    /// 90 %.
    pub p90_ns: f64,
    /// 99 %.
    pub p99_ns: f64,
    /// 99.9 %.
    pub p99_9_ns: f64,
    /// 99.99 %.
    pub p99_99_ns: f64,
    /// The longest of all.
    pub max_ns: f64,
}

/// Memory over operations.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Memory {
    /// The most that resident memory was, as a multiple of live bytes; none where less than 1 MiB was live.
    pub peak_rss_to_live: Option<f64>,
    /// The most that resident memory exceeded live bytes by; none as above.
    pub peak_rss_minus_live_bytes: Option<f64>,
    /// The points themselves; they are in the raw samples too.
    #[serde(skip)]
    pub curve: Vec<CurvePoint>,
}

/// Counts by name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Counts {
    /// Operations of the workload that they belong to.
    pub operations: u64,
    /// The counts of the whole measured part.
    pub by_name: BTreeMap<String, f64>,
}

impl Measures {
    /// Takes them out of the samples of a run.
    pub fn new(samples: &[Sample], plan: &Plan, allocators: &[Allocator]) -> Self {
        let find = |pass| Taken { pass, samples, plan, allocators };
        Self {
            latency: find(Pass::Latency).findings(latency),
            memory: find(Pass::Memory).findings(|values| memory(values[0].1)),
            counters: find(Pass::Counters).findings(|values| {
                let (_, measurement) = values[0];
                Counts { operations: measurement.operations, by_name: measurement.counters.clone() }
            }),
            system_calls: find(Pass::SystemCalls).findings(|values| {
                let (sample, measurement) = values[0];
                let calls = sample.system_calls.iter().map(|(name, &count)| (name.clone(), count as f64));
                Counts { operations: measurement.operations, by_name: calls.collect() }
            }),
        }
    }

    /// What failed, a line each.
    pub fn failures(&self) -> Vec<String> {
        fn of<T>(findings: &[Finding<T>], what: &str) -> Vec<String> {
            let failed = findings.iter().filter_map(|finding| match &finding.result {
                Found::Failed { reason } => Some((finding, reason)),
                _ => None,
            });
            let line = |(finding, reason): (&Finding<T>, &String)| {
                let Finding { allocator, workload, threads, .. } = finding;
                format!("{allocator}: {workload}, threads {threads}: {what} failed: {reason}")
            };
            failed.map(line).collect()
        }
        [
            of(&self.latency, "latency"),
            of(&self.memory, "memory over operations"),
            of(&self.counters, "counters"),
            of(&self.system_calls, "system calls"),
        ]
        .concat()
    }
}

/// The samples of one pass.
struct Taken<'a> {
    pass: Pass,
    samples: &'a [Sample],
    plan: &'a Plan,
    allocators: &'a [Allocator],
}

impl Taken<'_> {
    fn findings<T>(&self, figures: impl Fn(&[(&Sample, &Measurement)]) -> T) -> Vec<Finding<T>> {
        let mut findings = Vec::new();
        for row in &self.plan.rows {
            let (workload, threads) = (&self.plan.entries[row.entry].label, row.threads);
            for Allocator { name, .. } in self.allocators {
                let of_cell = |sample: &&Sample| {
                    (sample.pass, &sample.workload, sample.threads, &sample.allocator)
                        == (self.pass, workload, threads, name)
                };
                let samples: Vec<&Sample> = self.samples.iter().filter(of_cell).collect();
                if let Some(result) = found(&samples, &figures) {
                    let (workload, allocator) = (workload.clone(), name.clone());
                    findings.push(Finding { workload, threads, allocator, result });
                }
            }
        }
        findings
    }
}

/// What the samples of one cell say; none without any.
fn found<T>(samples: &[&Sample], figures: impl Fn(&[(&Sample, &Measurement)]) -> T) -> Option<Found<T>> {
    let mut values = Vec::with_capacity(samples.len());
    for sample in samples {
        match &sample.result {
            Judgement::Failed { reason } => return Some(Found::Failed { reason: reason.clone() }),
            Judgement::NotMeasurable { reason } => {
                return Some(Found::NotMeasurable { reason: reason.clone() });
            }
            Judgement::Measured(measurement) => values.push((*sample, &**measurement)),
        }
    }
    (!values.is_empty()).then(|| Found::Measured(figures(&values)))
}

fn latency(values: &[(&Sample, &Measurement)]) -> Latency {
    let of = |name: &str| -> Vec<f64> {
        values.iter().filter_map(|(_, measurement)| measurement.extra.get(name).copied()).collect()
    };
    let percentiles = |function: &str| {
        let middle = |figure: &str| median(of(&format!("{function}_{figure}")));
        Some(Percentiles {
            calls: middle("calls")?,
            p50_ns: middle("p50_ns")?,
            p90_ns: middle("p90_ns")?,
            p99_ns: middle("p99_ns")?,
            p99_9_ns: middle("p99_9_ns")?,
            p99_99_ns: middle("p99_99_ns")?,
            max_ns: of(&format!("{function}_max_ns")).into_iter().reduce(f64::max)?,
        })
    };
    let functions = FUNCTIONS.into_iter().filter_map(|function| Some((function, percentiles(function)?)));
    Latency {
        runs: values.len(),
        timer_cost_ns: median(of("timer_cost_ns")).unwrap_or_default(),
        functions: functions.collect(),
    }
}

fn memory(measurement: &Measurement) -> Memory {
    let figure = |name: &str| measurement.extra.get(name).copied();
    Memory {
        peak_rss_to_live: figure("peak_rss_to_live"),
        peak_rss_minus_live_bytes: figure("peak_rss_minus_live_bytes"),
        curve: measurement.curve.clone(),
    }
}

/// The one in the middle, or the lower of two.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::testing::conclude_with;

    const ALL: [Pass; 4] = [Pass::Latency, Pass::Memory, Pass::Counters, Pass::SystemCalls];

    #[test]
    fn figures_are_those_of_the_runs_and_a_failure_is_one_of_its_measure() {
        let allocators = [Allocator::fake("glibc"), Allocator::fake("x")];
        let mut run = 0.0;
        let (plan, conclusion) = conclude_with(&ALL, &allocators, 1, usize::MAX, |asked, measurement| {
            if asked.pass == "latency" && asked.allocator == "glibc" && asked.threads == 1 {
                run += 1.0;
                measurement.extra.insert("malloc_p99_ns".into(), 100.0 * run);
                measurement.extra.insert("malloc_max_ns".into(), 1000.0 * run);
            }
            let bad = asked.allocator == "x" && asked.pass == "memory" && asked.threads == 2;
            bad.then(|| r#"{"outcome":"failed","reason":"broken"}"#.to_owned())
        });
        let measures = Measures::new(&conclusion.samples, &plan, &allocators);
        let cells: Vec<_> =
            measures.latency.iter().map(|cell| (cell.threads, cell.allocator.as_str())).collect();
        assert_eq!(cells, [(1, "glibc"), (1, "x"), (2, "glibc"), (2, "x")]);
        let Found::Measured(latency) = &measures.latency[0].result else { panic!("measured") };
        let malloc = latency.functions["malloc"];
        assert_eq!((latency.runs, malloc.p99_ns, malloc.max_ns, malloc.calls), (3, 200.0, 3000.0, 1000.0));
        assert!(!latency.functions.contains_key("realloc"));
        let Found::Measured(calls) = &measures.system_calls[3].result else { panic!("measured") };
        assert_eq!((calls.operations, calls.by_name["mmap"]), (1000, 30.0));
        assert_eq!(measures.failures(), ["x: larson, threads 2: memory over operations failed: broken"]);
    }

    #[test]
    fn the_middle_of_an_even_number_is_the_lower_one() {
        assert_eq!(
            [vec![], vec![2.0], vec![3.0, 1.0], vec![3.0, 1.0, 2.0]].map(median),
            [None, Some(2.0), Some(1.0), Some(2.0)]
        );
    }
}
