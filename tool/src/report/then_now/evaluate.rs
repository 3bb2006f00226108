//! The values of a document's expressions in a run.

use super::document::{Expression, Per, Reduce, Term};
use crate::report::summary::{Cell, Figures, Row, Summary};
use crate::stats::{Metric, median};

/// Figures that heap-leak's table has, and no run by itself: page faults beyond those that are predicted, and the same as a share
/// of those.
const LEAK: &str = "leak";
const LEAK_SHARE: &str = "leak_share";

/// A run to take values from.
pub struct Evaluation<'a> {
    /// Its figures.
    pub summary: &'a Summary,
    /// CPUs that it had.
    pub cpus: usize,
}

impl Evaluation<'_> {
    /// The value for each allocator, in the order of tables; none where there is no number.
    pub fn values(&self, expression: &Expression) -> Vec<Option<f64>> {
        (0..self.summary.allocators.len()).map(|column| self.value(expression, column)).collect()
    }

    fn value(&self, expression: &Expression, column: usize) -> Option<f64> {
        match expression {
            Expression::Figure(term) => self.term(term, column),
            Expression::Ratio { of, to, per } => {
                let scaled = |term: &Term| Some(self.term(term, column)? / self.divisor(*per, term.threads));
                let base = scaled(to)?;
                (base > 0.0).then_some(scaled(of)? / base)
            }
            Expression::Slope { workload, figure } => self.slope(workload, figure, column),
            Expression::SlowerThanBaseline {} => {
                if self.summary.baseline() == Some(column) {
                    return None;
                }
                share(self.measured(column).filter_map(|(_, figures)| {
                    Some(figures.comparison(Metric::Throughput)?.ratio.value < 1.0)
                }))
            }
            Expression::AmongFastest { of } => {
                if self.summary.allocators[column].limit {
                    return None;
                }
                share(self.measured(column).map(|(row, figures)| self.faster_in(row, figures) < *of))
            }
            Expression::RowsInTwoModes {} => {
                let mut rows = self.measured(column).peekable();
                rows.peek()?;
                Some(rows.filter(|(_, figures)| figures.modes.is_some()).count() as f64)
            }
        }
    }

    fn divisor(&self, per: Per, threads: u32) -> f64 {
        let threads = f64::from(threads);
        match per {
            Per::One => 1.0,
            Per::Thread => threads,
            Per::ThreadOfCpu => (threads / self.cpus as f64).max(1.0),
        }
    }

    fn measured(&self, column: usize) -> impl Iterator<Item = (&Row, &Figures)> {
        self.summary.rows.iter().filter_map(move |row| Some((row, figures(row, column)?)))
    }

    /// How many others are faster in this row.
    fn faster_in(&self, row: &Row, own: &Figures) -> usize {
        let cells = self.summary.allocators.iter().zip(&row.cells);
        let others = cells.filter(|(allocator, _)| !allocator.limit).filter_map(|(_, cell)| match cell {
            Cell::Measured(figures) => Some(figures.operations_per_second.value),
            _ => None,
        });
        others.filter(|rate| *rate > own.operations_per_second.value).count()
    }

    fn term(&self, term: &Term, column: usize) -> Option<f64> {
        let column = match &term.allocator {
            Some(name) => self.summary.allocators.iter().position(|allocator| allocator.name == *name)?,
            None => column,
        };
        if [LEAK, LEAK_SHARE].contains(&term.figure.as_str()) {
            return self.leak(term, column);
        }
        let row = self.summary.row(&term.workload, term.threads)?;
        let values = figures(row, column)?.values.get(&term.figure)?;
        match term.reduce {
            Reduce::Median => median(&mut values.clone()),
            Reduce::Spread => {
                let least = values.iter().copied().reduce(f64::min)?;
                let most = values.iter().copied().reduce(f64::max)?;
                (least > 0.0).then_some((most - least) / least)
            }
        }
    }

    fn leak(&self, term: &Term, column: usize) -> Option<f64> {
        let allocator = &self.summary.allocators[column].name;
        let rows = &self.summary.heap_leak.as_ref()?.rows;
        let row = rows.iter().find(|row| {
            (&row.workload, row.threads, &row.allocator) == (&term.workload, term.threads, allocator)
        })?;
        if term.figure == LEAK { row.leak } else { Some(row.leak? / row.predicted_faults?) }
    }

    fn slope(&self, workload: &str, figure: &str, column: usize) -> Option<f64> {
        let time = |row: &Row| median(&mut figures(row, column)?.values.get(figure)?.clone());
        let single = self.summary.row(workload, 1).and_then(time)?;
        let of_workload = self.summary.rows.iter().filter(|row| row.workload == workload);
        let busy = of_workload.filter(|row| row.threads as usize >= self.cpus);
        let points: Vec<(f64, f64)> =
            busy.filter_map(|row| Some((f64::from(row.threads), time(row)?))).collect();
        let count = points.len() as f64;
        if points.len() < 2 {
            return None;
        }
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let along = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>();
        let slope = along / points.iter().map(|point| (point.0 - x).powi(2)).sum::<f64>();
        Some(slope / (single / self.cpus as f64))
    }
}

fn figures(row: &Row, column: usize) -> Option<&Figures> {
    match &row.cells[column] {
        Cell::Measured(figures) => Some(figures),
        _ => None,
    }
}

/// The share of those that are true; none without any.
fn share(answers: impl Iterator<Item = bool>) -> Option<f64> {
    let (all, yes) = answers.fold((0, 0), |(all, yes), answer| (all + 1, yes + usize::from(answer)));
    (all > 0).then_some(yes as f64 / f64::from(all))
}
