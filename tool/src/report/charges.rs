//! What the system's primitives cost: the table that the rows of allocators are held against.

use std::collections::BTreeMap;

use serde::Serialize;

use super::units;
use crate::allocators::BASELINE;
use crate::record::{Judgement, Pass};
use crate::run::{Conclusion, Plan};
use crate::stats::median;

/// The workload that measures them.
const WORKLOAD: &str = "os-primitives";
/// How the names of its figures end: their unit.
const UNIT: &str = "_ns";

/// One primitive on one thread count.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Charge {
    /// The primitive: `page fault`.
    pub primitive: String,
    /// Threads that did it at once.
    pub threads: u32,
    /// Time of one, in nanoseconds: the median over the blocks.
    pub nanoseconds: f64,
}

/// The figures of the baseline's samples in the blocks that count, by primitive and threads.
pub fn of(conclusion: &Conclusion, plan: &Plan) -> Vec<Charge> {
    let mut figures: BTreeMap<(String, u32), Vec<f64>> = BTreeMap::new();
    let labels: Vec<&str> = plan
        .entries
        .iter()
        .filter(|entry| entry.description.name == WORKLOAD)
        .map(|entry| entry.label.as_str())
        .collect();
    let blocks = conclusion.blocks.max(1);
    let counts = conclusion.samples.iter().filter(|sample| {
        let block = sample.block.is_some_and(|block| block < blocks);
        sample.pass == Pass::Timed && block && sample.allocator == BASELINE
    });
    for sample in counts.filter(|sample| labels.contains(&sample.workload.as_str())) {
        let Judgement::Measured(measurement) = &sample.result else { continue };
        for (name, value) in &measurement.extra {
            let Some(primitive) = name.strip_suffix(UNIT) else { continue };
            figures.entry((primitive.replace('_', " "), sample.threads)).or_default().push(*value);
        }
    }
    let charge = |((primitive, threads), mut values): ((String, u32), Vec<f64>)| {
        Some(Charge { primitive, threads, nanoseconds: median(&mut values)? })
    };
    figures.into_iter().filter_map(charge).collect()
}

/// The same as a table: a row for each primitive, a column for each thread count.
#[derive(Debug, PartialEq, Serialize)]
pub struct ChargeTable {
    threads: Vec<u32>,
    rows: Vec<ChargeRow>,
}

/// A primitive, and its figures as text.
#[derive(Debug, PartialEq, Serialize)]
struct ChargeRow {
    name: String,
    figures: Vec<String>,
}

impl ChargeTable {
    /// None without charges.
    pub fn new(charges: &[Charge]) -> Option<Self> {
        let mut threads: Vec<u32> = charges.iter().map(|charge| charge.threads).collect();
        threads.sort_unstable();
        threads.dedup();
        let mut names: Vec<&str> = charges.iter().map(|charge| charge.primitive.as_str()).collect();
        names.dedup();
        let figure = |name: &str, threads: u32| {
            let found = charges.iter().find(|charge| charge.primitive == name && charge.threads == threads);
            found.map_or("–".to_owned(), |charge| units::significant(charge.nanoseconds))
        };
        let row = |name: &str| ChargeRow {
            name: name.to_owned(),
            figures: threads.iter().map(|&threads| figure(name, threads)).collect(),
        };
        let rows = names.into_iter().map(row).collect();
        (!charges.is_empty()).then_some(Self { threads, rows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocators::Allocator;
    use crate::run::testing::conclude;

    /// A run of larson that calls itself `name`, with two figures of which one is a primitive's.
    fn charges(name: &str) -> Vec<Charge> {
        let allocators = [Allocator::fake("x"), Allocator::fake("glibc")];
        let mut run = 0.0;
        let (mut plan, conclusion) = conclude(&allocators, 2, usize::MAX, |asked, measurement| {
            run += 1.0;
            let cost = if asked.allocator == "x" { 1e6 } else { 100.0 * f64::from(asked.threads) };
            measurement.extra = [("page_fault_ns".into(), cost), ("share".into(), run)].into();
            None
        });
        plan.entries[0].description.name = name.into();
        of(&conclusion, &plan)
    }

    #[test]
    fn the_baseline_tells_what_the_system_charges() {
        let charge = |threads, nanoseconds| Charge { primitive: "page fault".into(), threads, nanoseconds };
        let found = charges(WORKLOAD);
        assert_eq!(found, [charge(1, 100.0), charge(2, 200.0)]);
        let row = ChargeRow { name: "page fault".into(), figures: vec!["100".into(), "200".into()] };
        assert_eq!(ChargeTable::new(&found), Some(ChargeTable { threads: vec![1, 2], rows: vec![row] }));
    }

    #[test]
    fn without_the_workload_there_is_no_table() {
        assert_eq!(charges("larson"), []);
        assert_eq!(ChargeTable::new(&[]), None);
    }
}
