//! What changes while a program runs: latency over a server's uptime, memory over rounds, memory after the work.
//!
//! Workloads report such figures by name: `round_03_p99_ns`, `rss_phase_03_bytes`, `live_phase_03_bytes`,
//! `rss_after_01000_ms_bytes`.

use anyhow::Result;

use super::grids::{Grid, GridLine};
use super::measured::{Block, Plot};
use super::palette::{COLOURS, FAINT, Look, Marker, look};
use super::plots::{Curve, Frame, draw};
use super::series::Values;
use super::summary::{Cell, Row, Summary};
use super::units;
use crate::stats::{Estimate, Metric, median};

/// One figure over its moments.
struct Progress {
    title: &'static str,
    /// What comes before and after the number of the moment in a figure's name.
    name: (&'static str, &'static str),
    /// The same for what is live at that moment; none where nothing says so.
    live: Option<(&'static str, &'static str)>,
    /// What the moments are.
    axis: &'static str,
    /// The text of a moment.
    moment: fn(u32) -> String,
    /// The text of a figure, in a table and on an axis.
    text: fn(f64) -> String,
    tick: fn(f64) -> String,
    /// What units are powers of.
    base: f64,
}

const fn latency(title: &'static str, end: &'static str) -> Progress {
    Progress {
        title,
        name: ("round_", end),
        live: None,
        axis: "round",
        moment: |number| number.to_string(),
        text: units::nanoseconds,
        tick: units::nanoseconds,
        base: 1000.0,
    }
}

const fn memory(title: &'static str, name: (&'static str, &'static str)) -> Progress {
    Progress {
        title,
        name,
        live: None,
        axis: "round",
        moment: |number| number.to_string(),
        text: units::bytes,
        tick: |bytes| units::tick(Metric::PeakRss, bytes),
        base: 1024.0,
    }
}

/// A block of the page: its title, a note, and what it shows.
type Part = (&'static str, &'static str, &'static [Progress]);

const PARTS: &[Part] = &[
    (
        "Latency over uptime",
        "Percentiles of all calls of malloc and free in each round: a perfect curve is flat.",
        &[
            latency("The median call", "_p50_ns"),
            latency("99 % of the calls take no longer", "_p99_ns"),
            latency("99.9 % of the calls take no longer", "_p99_9_ns"),
        ],
    ),
    (
        "Memory over time",
        "Resident memory at the end of each round, and the bytes that the workload has asked for and not freed.",
        &[
            Progress {
                live: Some(("live_round_", "_bytes")),
                ..memory("Resident memory beside live bytes", ("rss_round_", "_bytes"))
            },
            Progress {
                live: Some(("live_phase_", "_bytes")),
                ..memory("Resident memory beside live bytes", ("rss_phase_", "_bytes"))
            },
        ],
    ),
    (
        "Memory after the work",
        "Resident memory while the program does nothing, after it has freed everything.",
        &[Progress {
            axis: "after the work",
            moment: |milliseconds| units::nanoseconds(f64::from(milliseconds) * 1e6),
            ..memory("Resident memory of an idle program", ("rss_after_", "_ms_bytes"))
        }],
    ),
];

/// What a workload reports over time, on the most threads that it was measured on.
///
/// # Errors
/// A plot cannot be drawn.
pub fn blocks(summary: &Summary, rows: &[&Row]) -> Result<Vec<Block>> {
    let measured = |row: &&&Row| row.cells.iter().any(|cell| matches!(cell, Cell::Measured(_)));
    let Some(row) = rows.iter().filter(measured).max_by_key(|row| row.threads) else { return Ok(Vec::new()) };
    let mut blocks = Vec::new();
    for (title, note, all) in PARTS {
        let mut block = Block {
            title,
            note: format!(
                "{note} On {}: medians over {} runs, with bars from the lower to the upper quartile.",
                units::threads(row.threads),
                summary.blocks.max(1)
            ),
            plots: Vec::new(),
            shown: None,
            folded: Vec::new(),
            folded_title: "The figures of these plots",
            measure: None,
            command: String::new(),
        };
        for progress in *all {
            if let Some((plot, grid)) = progress.part(summary, row)? {
                block.plots.push(plot);
                block.folded.push(grid);
            }
        }
        blocks.extend((!block.plots.is_empty()).then_some(block));
    }
    Ok(blocks)
}

impl Progress {
    fn part(&self, summary: &Summary, row: &Row) -> Result<Option<(Plot, Grid)>> {
        let mut curves = Vec::new();
        let mut moments: Vec<u32> = Vec::new();
        let mut live = Vec::new();
        for (allocator, cell) in summary.allocators.iter().zip(&row.cells) {
            let Cell::Measured(figures) = cell else { continue };
            let found = over(&figures.values, self.name);
            if found.len() < 2 {
                continue;
            }
            moments = found.iter().map(|(moment, _)| *moment).collect();
            if live.is_empty() {
                live = self.live.map(|name| over(&figures.values, name)).unwrap_or_default();
            }
            curves.push((allocator.name.as_str(), look(&allocator.name), found));
        }
        if !live.is_empty() {
            let look = Look { colour: FAINT, marker: Marker::None, width: 2, dashed: true };
            curves.push(("live bytes", look, live));
        }
        let positions: Vec<String> = moments.iter().map(|moment| (self.moment)(*moment)).collect();
        let lines = curves.iter().map(|(name, look, points)| GridLine {
            name: (*name).to_owned(),
            colour: COLOURS[look.colour].name,
            cells: points.iter().map(|(_, estimate)| (self.text)(estimate.value)).collect(),
            note: String::new(),
        });
        let grid = Grid {
            threads: row.threads,
            title: format!("{}, on {}", self.title, units::threads(row.threads)),
            head: positions.iter().map(|position| format!("{} {position}", self.axis)).collect(),
            lines: lines.collect(),
            gap: None,
        };
        let curve = |(name, look, points): (&str, Look, Vec<(u32, Estimate)>)| Curve {
            name: name.to_owned(),
            look,
            points: points
                .iter()
                .enumerate()
                .map(|(index, (_, estimate))| (index as f64, *estimate))
                .collect(),
        };
        let mut curves: Vec<Curve> = curves.into_iter().map(curve).collect();
        // The widest line is drawn last, over the others.
        curves.sort_by_key(|curve| curve.look.width);
        let frame = Frame { title: self.axis, positions: &positions, tick: self.tick, base: self.base };
        let name = format!("{}: {}", row.workload, self.title);
        let svg = draw(&curves, &frame, &name)?;
        Ok(svg.map(|svg| (Plot { title: self.title.to_owned(), svg }, grid)))
    }
}

/// The figures of such a name over their moments: median and quartiles.
fn over(values: &Values, (start, end): (&str, &str)) -> Vec<(u32, Estimate)> {
    let moment = |(name, values): (&String, &Vec<f64>)| {
        let number = name.strip_prefix(start)?.strip_suffix(end)?;
        Some((number.parse().ok()?, quartiles(values)?))
    };
    let mut found: Vec<(u32, Estimate)> = values.iter().filter_map(moment).collect();
    found.sort_by_key(|(moment, _)| *moment);
    found
}

fn quartiles(values: &[f64]) -> Option<Estimate> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    // Between two values, the outer one.
    let (low, high) = (sorted[last / 4], sorted[last - last / 4]);
    Some(Estimate { low, high, value: median(&mut sorted)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocators::Allocator;
    use crate::run::testing::conclude;

    #[test]
    fn figures_over_rounds_become_plots_with_their_tables() {
        let allocators = [Allocator::fake("glibc"), Allocator::fake("x")];
        let (plan, conclusion) = conclude(&allocators, 3, usize::MAX, |asked, measurement| {
            for round in 1..=3_u32 {
                let number = f64::from(round * asked.threads);
                measurement.extra.extend([
                    (format!("round_{round:02}_p99_ns"), 100.0 * number),
                    (format!("rss_round_{round:02}_bytes"), 2048.0 * number),
                    (format!("live_round_{round:02}_bytes"), 1024.0 * number),
                ]);
            }
            measurement.extra.insert("rss_after_00100_ms_bytes".into(), 1.0);
            None
        });
        let summary = Summary::new(&conclusion, &plan, &allocators, 1);
        let blocks = blocks(&summary, &summary.rows.iter().collect::<Vec<_>>()).expect("drawn");
        let titles: Vec<&str> = blocks.iter().map(|block| block.title).collect();
        assert_eq!(titles, ["Latency over uptime", "Memory over time"], "one moment is no curve");
        let latency = &blocks[0].folded[0];
        assert_eq!(latency.head, ["round 1", "round 2", "round 3"]);
        assert_eq!((latency.lines.len(), &latency.lines[1].cells[2]), (2, &"600 ns".to_owned()));
        let memory = &blocks[1].folded[0];
        assert_eq!(
            (memory.lines[2].name.as_str(), memory.lines[2].cells[0].as_str()),
            ("live bytes", "2.00 KiB")
        );
        assert!(blocks[1].plots[0].svg.contains(">\nlive bytes\n<"));
    }

    #[test]
    fn quartiles_enclose_the_median() {
        let found = quartiles(&[5.0, 1.0, 3.0, 2.0, 4.0]).expect("values");
        assert_eq!((found.low, found.value, found.high), (2.0, 3.0, 4.0));
        assert!(quartiles(&[]).is_none());
    }
}
