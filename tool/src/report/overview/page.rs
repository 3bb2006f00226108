//! The page with a section for each run, and the page of each run beside it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde::Serialize;

use super::{Overview, Told};
use crate::record::{Folder, Run};
use crate::report::comparison::Comparison;
use crate::report::html::{self, render, style};
use crate::report::lines::{Figure, ratio};
use crate::report::palette::{COLOURS, look};
use crate::report::summary::{Cell, Summary};
use crate::report::trade_off::trade_off;
use crate::stats::Metric;

const TEMPLATE: &str = include_str!("page.html");

#[derive(Serialize)]
struct Page<'a> {
    style: String,
    sections: Vec<Section<'a>>,
}

/// One run.
#[derive(Serialize)]
struct Section<'a> {
    title: String,
    /// Its own page, seen from this one.
    link: String,
    note: Option<&'a str>,
    run: &'a Run,
    summary: &'a Summary,
    trade_off: Option<String>,
    /// The allocators but the baseline: the heads of the table.
    allocators: Vec<Head<'a>>,
    rows: Vec<Row>,
}

/// A column of the table.
#[derive(Serialize)]
struct Head<'a> {
    name: &'a str,
    colour: &'static str,
}

/// A row of the table, the last of which are the means.
#[derive(Serialize)]
struct Row {
    label: String,
    /// Throughput and memory of each allocator.
    cells: Vec<[Figure; 2]>,
}

impl Overview {
    /// Writes the runs into a folder, and returns the path of the page to read first: a single run becomes the
    /// folder's own; several have folders of their own below `runs`, and a page with all of them.
    ///
    /// Fails where that cannot be written, or where the folder already holds a run or a report.
    pub fn write(&self, folder: &Path) -> Result<PathBuf> {
        if let [only] = &self.runs[..] {
            return only.write(folder);
        }
        let page = folder.join("report.html");
        if page.exists() {
            bail!("{} already holds a report; choose another folder with --out", folder.display());
        }
        let mut sections = Vec::with_capacity(self.runs.len());
        for (index, told) in self.runs.iter().enumerate() {
            let below = Path::new("runs").join(format!("{}-{}", index + 1, told.run.started));
            told.write(&folder.join(&below))?;
            sections.push(section(told, &below)?);
        }
        let text = render(TEMPLATE, &Page { style: style(), sections })?;
        fs::write(&page, text).with_context(|| format!("cannot write {}", page.display()))?;
        Ok(page)
    }
}

impl Told {
    fn write(&self, folder: &Path) -> Result<PathBuf> {
        let mut folder = Folder::create(Some(folder), &self.run.started, &self.run.machine.host)?;
        for sample in &self.samples {
            folder.append(sample)?;
        }
        folder.write_json("run.json", &self.run)?;
        html::write(&folder, &self.summary, &self.run)
    }
}

fn section<'a>(told: &'a Told, below: &Path) -> Result<Section<'a>> {
    let Told { run, summary, note, .. } = told;
    let columns: Vec<usize> =
        (0..summary.allocators.len()).filter(|column| Some(*column) != summary.baseline()).collect();
    let head = |column: &usize| {
        let name = &summary.allocators[*column].name;
        Head { name, colour: COLOURS[look(name).colour].name }
    };
    let figures = |of: &dyn Fn(Metric) -> Option<Comparison>| {
        [Metric::Throughput, Metric::PeakRss]
            .map(|metric| of(metric).map_or_else(Figure::default, |found| ratio(&found, summary.blocks)))
    };
    let mut rows: Vec<Row> = Vec::with_capacity(summary.rows.len() + 1);
    for row in &summary.rows {
        let cell = |column: &usize| {
            figures(&|metric| match &row.cells[*column] {
                Cell::Measured(of_cell) => of_cell.comparison(metric),
                _ => None,
            })
        };
        let label = format!("{} × {}", row.workload, row.threads);
        rows.push(Row { label, cells: columns.iter().map(cell).collect() });
    }
    let mean = |column: &usize| figures(&|metric| summary.allocators[*column].comparison(metric));
    rows.push(Row { label: "geometric mean".into(), cells: columns.iter().map(mean).collect() });
    Ok(Section {
        title: told.title(),
        link: below.join("report.html").display().to_string(),
        note: note.as_deref(),
        run,
        summary,
        trade_off: trade_off(summary)?,
        allocators: columns.iter().map(head).collect(),
        rows,
    })
}
