//! The tables of a run as text: means, rows, and all rows at a glance.

use serde::Serialize;

use super::comparison::Comparison;
use super::frontier::frontier;
use super::palette::{COLOURS, look};
use super::summary::{Cell, Row, Summary};
use super::units;
use crate::stats::{MIN_BLOCKS, Metric, Verdict};

/// A line of a table: one allocator, in one row or over all.
#[derive(Serialize)]
pub struct Line {
    threads: Option<u32>,
    /// What identifies the allocator.
    allocator: String,
    /// The same as it is shown.
    title: String,
    colour: &'static str,
    note: String,
    /// Whether no other allocator is better in time and in memory.
    frontier: bool,
    throughput: Figure,
    peak_rss: Figure,
}

/// A figure and its ratio, as text.
#[derive(Default, Serialize)]
pub struct Figure {
    absolute: String,
    /// The ratio.
    pub ratio: String,
    /// Its interval.
    pub interval: String,
    two_modes: bool,
    /// What may be said of it.
    pub verdict: &'static str,
}

/// How far glibc differs from itself in one row, as text.
#[derive(Serialize)]
pub struct Noise {
    threads: u32,
    throughput: String,
    peak_rss: String,
}

/// All rows in one metric: a column for each allocator.
#[derive(Serialize)]
pub struct Glance {
    title: &'static str,
    columns: Vec<Column>,
    rows: Vec<GlanceRow>,
}

#[derive(Serialize)]
struct Column {
    allocator: String,
    title: String,
    colour: &'static str,
}

#[derive(Serialize)]
struct GlanceRow {
    workload: String,
    threads: u32,
    cells: Vec<GlanceCell>,
}

#[derive(Serialize)]
struct GlanceCell {
    text: String,
    verdict: &'static str,
}

/// The means over rows, one line an allocator.
pub fn overall(summary: &Summary) -> Vec<Line> {
    let comparable = summary.comparable_rows();
    let baseline = summary.baseline();
    let means: Vec<Option<(f64, f64)>> = summary
        .allocators
        .iter()
        .enumerate()
        .map(|(column, allocator)| match (allocator.throughput, allocator.peak_rss) {
            (Some(throughput), Some(peak_rss)) => Some((throughput.ratio.value, peak_rss.ratio.value)),
            _ => (baseline == Some(column)).then_some((1.0, 1.0)),
        })
        .collect();
    let mut on_frontier = frontier(&means.iter().flatten().copied().collect::<Vec<_>>()).into_iter();
    let lines = summary.allocators.iter().zip(&means).enumerate().map(|(column, (allocator, mean))| {
        let figure = |metric| {
            allocator.comparison(metric).map_or_else(Figure::default, |found| ratio(&found, summary.blocks))
        };
        let mut notes = Vec::new();
        if baseline == Some(column) {
            notes.push("baseline".to_owned());
        } else if allocator.limit {
            notes.push("limit, in no mean".to_owned());
        } else {
            notes.push(format!("{} of {comparable}", allocator.rows));
        }
        if allocator.failed > 0 {
            notes.push(format!("{} failed", allocator.failed));
        }
        Line {
            threads: None,
            allocator: allocator.name.clone(),
            title: allocator.name.clone(),
            colour: COLOURS[look(&allocator.name).colour].name,
            note: notes.join(", "),
            frontier: mean.is_some() && on_frontier.next().unwrap_or_default(),
            throughput: figure(Metric::Throughput),
            peak_rss: figure(Metric::PeakRss),
        }
    });
    lines.collect()
}

/// An allocator beside the best other one of each row, as text.
#[derive(Serialize)]
pub struct Standing {
    name: String,
    colour: &'static str,
    /// In how many rows another one is faster, and by how much at most.
    slower: (String, String),
    /// In how many rows another one is leaner, likewise.
    larger: (String, String),
}

impl Standing {
    /// The heads of its cells.
    pub const HEAD: [&str; 5] =
        ["allocator", "slower than the best in", "at most", "larger than the leanest in", "at most"];

    /// Its cells.
    pub fn cells(self) -> Vec<String> {
        vec![self.name, self.slower.0, self.slower.1, self.larger.0, self.larger.1]
    }
}

/// One line for each allocator that is in the means; none where there are too few blocks for a verdict.
pub fn standings(summary: &Summary) -> Vec<Standing> {
    let lines = summary.allocators.iter().filter_map(|allocator| {
        let told = |metric| allocator.behind(metric).map(|behind| (behind.count(), behind.worst()));
        Some(Standing {
            name: allocator.name.clone(),
            colour: COLOURS[look(&allocator.name).colour].name,
            slower: told(Metric::Throughput)?,
            larger: told(Metric::PeakRss)?,
        })
    });
    lines.collect()
}

/// Every allocator in each of these rows.
pub fn lines(summary: &Summary, rows: &[&Row]) -> Vec<Line> {
    let mut lines = Vec::new();
    for row in rows {
        for (allocator, cell) in summary.allocators.iter().zip(&row.cells) {
            let figure = |metric| match cell {
                Cell::Measured(figures) => {
                    let found = figures.comparison(metric);
                    let absolute = units::figure(metric, figures.absolute(metric).value);
                    Figure {
                        absolute,
                        two_modes: metric == Metric::Throughput && figures.modes.is_some(),
                        ..found.map_or_else(Figure::default, |found| ratio(&found, summary.blocks))
                    }
                }
                _ => Figure::default(),
            };
            lines.push(Line {
                threads: Some(row.threads),
                allocator: allocator.name.clone(),
                title: allocator.title(),
                colour: COLOURS[look(&allocator.name).colour].name,
                note: gap(cell).into(),
                frontier: false,
                throughput: figure(Metric::Throughput),
                peak_rss: figure(Metric::PeakRss),
            });
        }
    }
    lines
}

/// All rows at a glance: throughput, and peak memory.
pub fn glances(summary: &Summary) -> Vec<Glance> {
    let columns = || {
        let column = |allocator: &super::summary::Overall| Column {
            allocator: allocator.name.clone(),
            title: allocator.title(),
            colour: COLOURS[look(&allocator.name).colour].name,
        };
        summary.allocators.iter().map(column).collect()
    };
    let cell = |cell: &Cell, metric| match cell {
        Cell::Measured(figures) => match figures.comparison(metric) {
            None => GlanceCell { text: units::figure(metric, figures.absolute(metric).value), verdict: "" },
            Some(found) => {
                let Figure { ratio, verdict, .. } = ratio(&found, summary.blocks);
                let mark = match verdict {
                    "equivalent" => "= ",
                    "cannot tell" => "? ",
                    _ => "",
                };
                GlanceCell { text: format!("{mark}{ratio}"), verdict }
            }
        },
        other => GlanceCell { text: gap(other).into(), verdict: "" },
    };
    let glance = |(title, metric)| Glance {
        title,
        columns: columns(),
        rows: summary
            .rows
            .iter()
            .map(|row| GlanceRow {
                workload: row.workload.clone(),
                threads: row.threads,
                cells: row.cells.iter().map(|each| cell(each, metric)).collect(),
            })
            .collect(),
    };
    let both = [
        ("Throughput as a multiple of glibc's: more is better", Metric::Throughput),
        ("Peak memory as a multiple of glibc's: less is better", Metric::PeakRss),
    ];
    both.into_iter().map(glance).collect()
}

/// Why a cell has no number; empty where it has.
fn gap(cell: &Cell) -> &'static str {
    match cell {
        Cell::Measured(_) => "",
        Cell::Failed => "failed",
        Cell::NotMeasurable => "not measurable here",
        Cell::Missing => "not finished",
    }
}

/// The noise floor of each row.
pub fn floors(rows: &[&Row]) -> Vec<Noise> {
    let floors = rows.iter().filter_map(|row| Some((row.threads, row.noise_floor?)));
    let text = floors.map(|(threads, floor)| Noise {
        threads,
        throughput: units::floor(floor.throughput),
        peak_rss: units::floor(floor.peak_rss),
    });
    text.collect()
}

/// A ratio as text.
pub fn ratio(found: &Comparison, blocks: usize) -> Figure {
    Figure {
        absolute: String::new(),
        two_modes: false,
        ratio: units::multiple(found.ratio.value),
        interval: units::interval(found.ratio),
        verdict: if blocks < MIN_BLOCKS { "" } else { word(found.verdict) },
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Faster => "faster",
        Verdict::Slower => "slower",
        Verdict::Smaller => "smaller",
        Verdict::Larger => "larger",
        Verdict::Equivalent => "equivalent",
        Verdict::CannotTell => "cannot tell",
    }
}
