//! The page: one HTML file without network.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment};
use serde::Serialize;

use super::Compared;
use crate::record::{Folder, Run};
use crate::report::html::{STYLE, quote, ratio};
use crate::report::palette::{COLOURS, look, style_sheet};
use crate::report::summary::Cell;
use crate::report::{plots, svg, units};
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
}

/// A line of the table.
#[derive(Serialize)]
struct Row<'a> {
    allocator: &'a str,
    colour: &'static str,
    /// Why there are no figures; empty where there are.
    gap: &'static str,
    /// Ratio, interval and verdict: of speed, then of memory.
    ratios: Vec<[String; 3]>,
    texts: &'a [String],
}

impl Compared {
    /// Writes the page and its plot into the folder, and returns the page's path.
    pub fn write(&self, folder: &Folder, run: &Run) -> Result<PathBuf> {
        let trade_off = plots::trade_off(&self.summary)?;
        if let Some(drawing) = &trade_off {
            folder.write("plots/trade-off.svg", &svg::standalone(drawing))?;
        }
        folder.write("report.html", &self.render(run, trade_off)?)
    }

    fn render(&self, run: &Run, trade_off: Option<String>) -> Result<String> {
        let mut environment = Environment::new();
        environment.set_auto_escape_callback(|_| AutoEscape::Html);
        environment.add_filter("bytes", |bytes: f64| units::bytes(bytes));
        let words: Vec<String> = run.command.iter().map(|word| quote(word)).collect();
        let page = Page {
            style: format!("{}{STYLE}", style_sheet()),
            compared: self,
            run,
            command: words.join(" "),
            trade_off,
            rows: self.rows(),
        };
        environment.render_str(TEMPLATE, Serde(page)).context("cannot fill in the report")
    }

    fn rows(&self) -> Vec<Row<'_>> {
        let blocks = self.summary.blocks;
        let rows = self.lines.iter().zip(&self.summary.rows[0].cells).map(|(line, cell)| {
            let of = |metric| match cell {
                Cell::Measured(figures) => figures.comparison(metric),
                _ => None,
            };
            let text = |metric| {
                of(metric).map_or_else(Default::default, |found| {
                    let figure = ratio(&found, blocks);
                    [figure.ratio, figure.interval, figure.verdict.to_owned()]
                })
            };
            Row {
                allocator: &line.allocator,
                colour: COLOURS[look(&line.allocator).colour].name,
                gap: match cell {
                    Cell::Measured(_) => "",
                    Cell::Failed => "failed",
                    Cell::NotMeasurable => "not measurable",
                    Cell::Missing => "not finished",
                },
                ratios: vec![text(Metric::Throughput), text(Metric::PeakRss)],
                texts: &line.texts,
            }
        });
        rows.collect()
    }
}
