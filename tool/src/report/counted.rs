//! What workloads count instead of timing it: figures that do not depend on how fast the machine is at the moment.

use serde::Serialize;

use super::summary::{Cell, Figures, Summary};
use crate::stats::median;

/// The figures, and what they say. Of each less is better.
const FIGURES: [(&str, &str); 2] = [
    ("shared_line_pairs", "pairs of threads' objects on one cache line"),
    ("others_per_cent", "memory that another thread used last, per cent"),
];

/// They as a table: a row for each figure of a row of the run, a column for each allocator.
#[derive(Debug, PartialEq, Serialize)]
pub struct CountedTable {
    allocators: Vec<String>,
    rows: Vec<CountedRow>,
}

/// One figure under all allocators, as text.
#[derive(Debug, PartialEq, Serialize)]
struct CountedRow {
    workload: String,
    threads: u32,
    what: &'static str,
    figures: Vec<String>,
}

impl CountedTable {
    /// None where nothing was counted.
    pub fn new(summary: &Summary) -> Option<Self> {
        let mut rows = Vec::new();
        for row in &summary.rows {
            for (name, what) in FIGURES {
                let figures: Vec<Option<f64>> = row.cells.iter().map(|cell| figure(cell, name)).collect();
                if figures.iter().any(Option::is_some) {
                    let figures = figures.into_iter().map(text).collect();
                    rows.push(CountedRow {
                        workload: row.workload.clone(),
                        threads: row.threads,
                        what,
                        figures,
                    });
                }
            }
        }
        let allocators = summary.allocators.iter().map(|allocator| allocator.name.clone()).collect();
        (!rows.is_empty()).then_some(Self { allocators, rows })
    }
}

/// A count as one, a mean with two digits: what is less than a hundredth of a per cent is none.
fn text(figure: Option<f64>) -> String {
    match figure {
        Some(count) if count.fract() == 0.0 => format!("{count:.0}"),
        Some(mean) => format!("{mean:.2}"),
        None => "–".to_owned(),
    }
}

/// The median over the blocks.
fn figure(cell: &Cell, name: &str) -> Option<f64> {
    let Cell::Measured(Figures { values, .. }) = cell else { return None };
    median(&mut values.get(name)?.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocators::Allocator;
    use crate::run::testing::conclude;

    /// The table of a run in which `x` has these figures, and glibc none.
    fn table(figures: &[(&str, f64)]) -> Option<CountedTable> {
        let allocators = [Allocator::fake("x"), Allocator::fake("glibc")];
        let (plan, conclusion) = conclude(&allocators, 3, usize::MAX, |asked, measurement| {
            if asked.allocator == "x" {
                measurement.extra = figures.iter().map(|(name, value)| ((*name).into(), *value)).collect();
            }
            None
        });
        CountedTable::new(&Summary::new(&conclusion, &plan, &allocators, 1))
    }

    #[test]
    fn what_was_counted_is_told_for_each_row_and_allocator() {
        let table = table(&[("others_per_cent", 6.5), ("noted_lines", 1e6)]).expect("a table");
        assert_eq!(table.allocators, ["x", "glibc"]);
        let threads: Vec<u32> = table.rows.iter().map(|row| row.threads).collect();
        assert_eq!(threads, [1, 2]);
        assert!(table.rows.iter().all(|row| row.figures == ["6.50", "–"] && row.what == FIGURES[1].1));
    }

    #[test]
    fn counts_have_no_decimals_and_nearly_none_is_none() {
        let texts = [Some(3.0), Some(0.0), Some(28.714), Some(4.8e-5), None].map(text);
        assert_eq!(texts, ["3", "0", "28.71", "0.00", "–"]);
    }

    #[test]
    fn without_such_a_figure_there_is_no_table() {
        assert_eq!(table(&[("page_fault_ns", 512.0)]), None);
    }
}
