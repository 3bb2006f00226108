//! The figures of a report.

use serde::Serialize;

use super::behind::Behind;
use super::charges::Charge;
use super::comparison::{Comparison, Floor};
use super::gaps::Gap;
use super::leak::Leaks;
use super::measures::Measures;
use super::series::{OPERATIONS_PER_S, Values};
use crate::allocators::BASELINE;
use crate::stats::{Estimate, Metric, Modes};

/// The figures of a run.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// Version of this structure.
    pub schema_version: u32,
    /// The result in a sentence or two.
    pub verdict: String,
    /// Blocks that the figures come from.
    pub blocks: usize,
    /// Blocks that were disturbed from outside and run again.
    pub blocks_run_again: usize,
    /// Whether the user ended the run early.
    pub interrupted: bool,
    /// How far glibc differs from itself in the geometric means; none where that was not measured.
    pub noise_floor: Option<Floor>,
    /// The allocators, in the order of tables.
    pub allocators: Vec<Overall>,
    /// The rows of the table.
    pub rows: Vec<Row>,
    /// What failed, and what cannot be measured here.
    pub gaps: Vec<Gap>,
    /// What the system's primitives cost; empty where that was not measured.
    pub charges: Vec<Charge>,
    /// heap-leak's page faults and their prediction; none where it has no number.
    pub heap_leak: Option<Leaks>,
    /// What was measured in runs of its own.
    pub measures: Measures,
}

/// An allocator over all rows.
#[derive(Debug, Serialize)]
pub struct Overall {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: Option<String>,
    /// Whether it is a limit: shown beside the others in each row, and in no mean or ranking.
    pub limit: bool,
    /// Geometric mean of throughput as a multiple of the baseline's; none for a limit.
    pub throughput: Option<Comparison>,
    /// Geometric mean of peak RSS as a multiple of the baseline's; none for a limit.
    pub peak_rss: Option<Comparison>,
    /// In how many rows another one is faster; none for a limit, and where there are too few blocks for a verdict.
    pub slower: Option<Behind>,
    /// In how many rows another one is leaner; none likewise.
    pub larger: Option<Behind>,
    /// Rows that went into the means.
    pub rows: usize,
    /// Rows that failed.
    pub failed: usize,
    /// Rows that cannot be measured here.
    pub not_measurable: usize,
}

/// One workload on one thread count.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The workload, as in tables.
    pub workload: String,
    /// Threads.
    pub threads: u32,
    /// How far glibc differs from itself in this row; none where that was not measured.
    pub noise_floor: Option<Floor>,
    /// One cell an allocator, in the order of [`Summary::allocators`].
    pub cells: Vec<Cell>,
}

/// One allocator in one row.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "status", rename_all = "kebab-case")]
pub enum Cell {
    /// Every sample passed its checks.
    Measured(Figures),
    /// This machine cannot give a true number.
    NotMeasurable,
    /// Something went wrong: see [`Summary::gaps`].
    Failed,
    /// The run ended before the row had a sample in every block that counts.
    Missing,
}

/// The numbers of a cell.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    /// Operations per second.
    pub operations_per_second: Estimate,
    /// Peak RSS, in bytes.
    pub peak_rss_bytes: Estimate,
    /// Throughput as a multiple of the baseline's; none for the baseline or where it has no number.
    pub throughput: Option<Comparison>,
    /// Peak RSS as a multiple of the baseline's; none for the baseline or where it has no number.
    pub peak_rss: Option<Comparison>,
    /// Operations per second as two modes, where one figure would hide them.
    pub modes: Option<Modes>,
    /// Every figure that the runs have.
    #[serde(skip)]
    pub values: Values,
}

impl Figures {
    /// Operations per second of every run, in the order of blocks.
    pub fn runs(&self) -> &[f64] {
        self.values.get(OPERATIONS_PER_S).map_or(&[], Vec::as_slice)
    }

    /// The ratio to the baseline in this metric.
    pub fn comparison(&self, metric: Metric) -> Option<Comparison> {
        match metric {
            Metric::Throughput => self.throughput,
            Metric::PeakRss => self.peak_rss,
        }
    }

    /// The figure itself in this metric: operations per second, or bytes.
    pub fn absolute(&self, metric: Metric) -> Estimate {
        match metric {
            Metric::Throughput => self.operations_per_second,
            Metric::PeakRss => self.peak_rss_bytes,
        }
    }
}

impl Overall {
    /// Its name in the head of a column.
    pub fn title(&self) -> String {
        if self.limit { format!("{} (limit)", self.name) } else { self.name.clone() }
    }

    /// The geometric mean of ratios in this metric.
    pub fn comparison(&self, metric: Metric) -> Option<Comparison> {
        match metric {
            Metric::Throughput => self.throughput,
            Metric::PeakRss => self.peak_rss,
        }
    }

    /// How far it is behind the best of each row in this metric.
    pub fn behind(&self, metric: Metric) -> Option<&Behind> {
        match metric {
            Metric::Throughput => self.slower.as_ref(),
            Metric::PeakRss => self.larger.as_ref(),
        }
    }
}

impl Summary {
    /// The baseline's column.
    pub fn baseline(&self) -> Option<usize> {
        self.allocators.iter().position(|allocator| allocator.name == BASELINE)
    }

    /// The row of this workload on this number of threads.
    pub fn row(&self, workload: &str, threads: u32) -> Option<&Row> {
        self.rows.iter().find(|row| (row.workload.as_str(), row.threads) == (workload, threads))
    }

    /// Rows that the baseline has a number for.
    pub fn comparable_rows(&self) -> usize {
        let Some(baseline) = self.baseline() else { return 0 };
        self.rows.iter().filter(|row| matches!(row.cells[baseline], Cell::Measured(_))).count()
    }

    /// The workloads in the order of the table, each with its rows.
    pub fn workloads(&self) -> Vec<(&str, Vec<&Row>)> {
        let mut workloads: Vec<(&str, Vec<&Row>)> = Vec::new();
        for row in &self.rows {
            match workloads.last_mut() {
                Some((name, rows)) if *name == row.workload => rows.push(row),
                _ => workloads.push((&row.workload, vec![row])),
            }
        }
        workloads
    }
}
