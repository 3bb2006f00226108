//! The page: one HTML file without network.

use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;

use super::{Compared, Scaling};
use crate::record::{Folder, Run};
use crate::report::html::{render, style};
use crate::report::lines::{Figure, ratio};
use crate::report::palette::{COLOURS, look};
use crate::report::summary::Cell;
use crate::report::{again, svg, trade_off::trade_off};
use crate::stats::Metric;

const TEMPLATE: &str = include_str!("page.html");

#[derive(Serialize)]
struct Page<'a> {
    style: String,
    compared: &'a Compared,
    run: &'a Run,
    command: String,
    trade_off: Option<String>,
    rows: Vec<Row<'a>>,
    /// How far glibc differs from itself; none where that was not measured.
    noise: Option<String>,
    /// Of each line on how the program scales: the factor, and its interval.
    factors: Vec<[String; 2]>,
}

/// A line of the table.
#[derive(Serialize)]
struct Row<'a> {
    allocator: &'a str,
    colour: &'static str,
    /// Why there are no figures; empty where there are.
    gap: &'static str,
    /// Of speed, then of memory.
    ratios: [Figure; 2],
    texts: &'a [String],
}

impl Compared {
    /// Writes the page and its plot into the folder, and returns the page's path.
    pub fn write(&self, folder: &Folder, run: &Run) -> Result<PathBuf> {
        let trade_off = trade_off(&self.summary)?;
        if let Some(drawing) = &trade_off {
            folder.write("plots/trade-off.svg", &svg::standalone(drawing))?;
        }
        folder.write("report.html", &self.render(run, trade_off)?)
    }

    fn render(&self, run: &Run, trade_off: Option<String>) -> Result<String> {
        let page = Page {
            style: style(),
            compared: self,
            run,
            command: again::whole(run),
            trade_off,
            rows: self.rows(),
            noise: self.noise(),
            factors: self.scaling.iter().map(Scaling::figures).collect(),
        };
        render(TEMPLATE, &page)
    }

    fn rows(&self) -> Vec<Row<'_>> {
        let blocks = self.summary.blocks;
        let rows = self.lines.iter().zip(&self.summary.rows[0].cells).map(|(line, cell)| {
            let of = |metric| match cell {
                Cell::Measured(figures) => figures.comparison(metric),
                _ => None,
            };
            let figure = |metric| of(metric).map_or_else(Figure::default, |found| ratio(&found, blocks));
            Row {
                allocator: &line.allocator,
                colour: COLOURS[look(&line.allocator).colour].name,
                gap: match cell {
                    Cell::Measured(_) => "",
                    Cell::Failed => "failed",
                    Cell::NotMeasurable => "not measurable",
                    Cell::Missing => "not finished",
                },
                ratios: [figure(Metric::Throughput), figure(Metric::PeakRss)],
                texts: &line.texts,
            }
        });
        rows.collect()
    }
}
