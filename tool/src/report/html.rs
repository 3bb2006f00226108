//! The report: one HTML file without network, and the plots as files of their own.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment};
use serde::Serialize;

use super::comparison::Comparison;
use super::palette::{COLOURS, look, style_sheet};
use super::summary::{Cell, Row, Summary};
use super::{plots, svg, units};
use crate::record::{Folder, Run, Workload};
use crate::stats::{MIN_BLOCKS, Metric, Verdict};

const TEMPLATE: &str = include_str!("report.html");
/// The style of all pages.
pub(super) const STYLE: &str = include_str!("report.css");

/// What the template fills in.
#[derive(Serialize)]
struct Page<'a> {
    style: String,
    summary: &'a Summary,
    run: &'a Run,
    trade_off: Option<String>,
    sections: &'a [Section<'a>],
    overall: Vec<Line>,
    command: String,
}

/// One workload on the page.
#[derive(Serialize)]
struct Section<'a> {
    about: &'a Workload,
    plots: Vec<Plot>,
    rows: Vec<Line>,
    floors: Vec<Noise>,
}

/// How far glibc differs from itself in one row, as text.
#[derive(Serialize)]
struct Noise {
    threads: u32,
    throughput: String,
    peak_rss: String,
}

/// A drawing, and what it shows.
#[derive(Serialize)]
struct Plot {
    title: String,
    svg: String,
}

/// A line of a table: one allocator, in one row or over all.
#[derive(Serialize)]
struct Line {
    threads: Option<u32>,
    allocator: String,
    colour: &'static str,
    note: String,
    throughput: Figure,
    peak_rss: Figure,
}

/// A figure and its ratio, as text.
#[derive(Default, Serialize)]
pub(super) struct Figure {
    absolute: String,
    pub(super) ratio: String,
    pub(super) interval: String,
    two_modes: bool,
    pub(super) verdict: &'static str,
}

/// Writes the plots and the page into the folder, and returns the page's path.
pub fn write(folder: &Folder, summary: &Summary, run: &Run) -> Result<PathBuf> {
    let keep = |name: &str, svg: Option<&String>| -> Result<()> {
        if let Some(svg) = svg {
            folder.write(&format!("plots/{name}.svg"), &svg::standalone(svg))?;
        }
        Ok(())
    };
    let trade_off = plots::trade_off(summary)?;
    keep("trade-off", trade_off.as_ref())?;
    let mut sections = Vec::with_capacity(run.workloads.len());
    for (name, rows) in summary.workloads() {
        let Some(about) = run.workloads.iter().find(|workload| workload.name == name) else { continue };
        let mut plots = Vec::new();
        for (metric, title, file) in [
            (Metric::Throughput, "Throughput against threads: operations per second", "throughput"),
            (Metric::PeakRss, "Peak memory (RSS) against threads", "memory"),
        ] {
            let svg = plots::against_threads(summary, name, &rows, metric)?;
            keep(&format!("{name}-{file}"), svg.as_ref())?;
            plots.extend(svg.map(|svg| Plot { title: title.into(), svg }));
        }
        for row in &rows {
            let svg = plots::distribution(summary, row)?;
            keep(&format!("{name}-{}-runs", row.threads), svg.as_ref())?;
            let title = format!("Every run on {} threads: two modes, or more", row.threads);
            plots.extend(svg.map(|svg| Plot { title, svg }));
        }
        sections.push(Section { about, plots, rows: lines(summary, &rows), floors: floors(&rows) });
    }
    let page = render(summary, run, trade_off, &sections)?;
    folder.write("report.html", &page)
}

fn render(
    summary: &Summary,
    run: &Run,
    trade_off: Option<String>,
    sections: &[Section<'_>],
) -> Result<String> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_filter("bytes", |bytes: f64| units::bytes(bytes));
    let command: Vec<String> = run.command.iter().map(|word| quote(word)).collect();
    let page = Page {
        style: format!("{}{STYLE}", style_sheet()),
        summary,
        run,
        trade_off,
        sections,
        overall: overall(summary),
        command: command.join(" "),
    };
    environment.render_str(TEMPLATE, Serde(page)).context("cannot fill in the report")
}

/// The means over rows, one line an allocator.
fn overall(summary: &Summary) -> Vec<Line> {
    let comparable = summary.comparable_rows();
    let lines = summary.allocators.iter().map(|allocator| {
        let figure = |metric| {
            allocator.comparison(metric).map_or_else(Figure::default, |found| ratio(&found, summary.blocks))
        };
        let mut notes = Vec::new();
        if summary.allocators.iter().position(|other| other.name == allocator.name) == summary.baseline() {
            notes.push("baseline".to_owned());
        } else {
            notes.push(format!("{} of {comparable}", allocator.rows));
        }
        if allocator.failed > 0 {
            notes.push(format!("{} failed", allocator.failed));
        }
        Line {
            threads: None,
            allocator: allocator.name.clone(),
            colour: COLOURS[look(&allocator.name).colour].name,
            note: notes.join(", "),
            throughput: figure(Metric::Throughput),
            peak_rss: figure(Metric::PeakRss),
        }
    });
    lines.collect()
}

fn lines(summary: &Summary, rows: &[&Row]) -> Vec<Line> {
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
            let note = match cell {
                Cell::Measured(_) => "",
                Cell::Failed => "failed",
                Cell::NotMeasurable => "not measurable here",
                Cell::Missing => "not finished",
            };
            lines.push(Line {
                threads: Some(row.threads),
                allocator: allocator.name.clone(),
                colour: COLOURS[look(&allocator.name).colour].name,
                note: note.into(),
                throughput: figure(Metric::Throughput),
                peak_rss: figure(Metric::PeakRss),
            });
        }
    }
    lines
}

fn floors(rows: &[&Row]) -> Vec<Noise> {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let floors = rows.iter().filter_map(|row| Some((row.threads, row.noise_floor?)));
    let text = floors.map(|(threads, floor)| Noise {
        threads,
        throughput: percent(floor.throughput),
        peak_rss: percent(floor.peak_rss),
    });
    text.collect()
}

/// A ratio as text.
pub(super) fn ratio(found: &Comparison, blocks: usize) -> Figure {
    Figure {
        absolute: String::new(),
        two_modes: false,
        ratio: units::multiple(found.ratio.value),
        interval: format!("{:.2}–{:.2}", found.ratio.low, found.ratio.high),
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

/// A word of a command line as a shell takes it.
pub(super) fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocators::Allocator;
    use crate::record::{Machine, Noise, SCHEMA_VERSION};
    use crate::run::testing::conclude;

    fn page(names: &[&str], failing: &str) -> (tempfile::TempDir, String) {
        let allocators: Vec<Allocator> = names.iter().map(|name| Allocator::fake(name)).collect();
        let (plan, conclusion) = conclude(&allocators, 10, usize::MAX, |asked, _| {
            let bad = asked.allocator == failing;
            bad.then(|| r#"{"outcome":"failed","reason":"lost <b>content</b>"}"#.to_owned())
        });
        let summary = Summary::new(&conclusion, &plan, &allocators, 1);
        let run = Run {
            schema_version: SCHEMA_VERSION,
            tool_version: "1".into(),
            command: vec!["ample".into(), "bench".into(), "it's".into()],
            started: "20260101T000000Z".into(),
            ended: None,
            interrupted: false,
            blocks: 10,
            seed: 1,
            preset: "quick".into(),
            stopping: "10 blocks".into(),
            noise_rule: "none".into(),
            block_log: conclusion.block_log,
            timeout_seconds: 1.0,
            machine: Machine::read(),
            noise_at_start: Noise::read(),
            noise_at_end: Some(Noise::read()),
            inherited_environment: Default::default(),
            workload_program: "/fake/program".into(),
            allocators,
            workloads: plan
                .entries
                .iter()
                .map(|entry| Workload {
                    name: entry.label.clone(),
                    workload: entry.description.name.clone(),
                    tells: entry.description.tells.clone(),
                    source: entry.description.source.clone(),
                    operation: entry.description.operation.clone(),
                    settings: entry.settings.clone(),
                    threads: entry.threads.clone(),
                })
                .collect(),
        };
        let parent = tempfile::tempdir().expect("a folder");
        let folder = Folder::create(Some(&parent.path().join("out")), "t", "h").expect("made");
        let path = write(&folder, &summary, &run).expect("written");
        let text = std::fs::read_to_string(path).expect("a page");
        (parent, text)
    }

    #[test]
    fn the_page_is_whole_and_its_plots_are_files_too() {
        let (folder, page) = page(&["ample", "glibc", "x"], "");
        assert!(page.trim_end().ends_with("</html>"));
        assert_eq!(page.matches("<svg ").count(), 3);
        assert!(page.contains("ample bench &#x27;it&#x27;\\&#x27;&#x27;s&#x27;"), "the command, for a shell");
        assert!(!page.contains("#0102"), "no stand-in colour is left");
        let plot = folder.path().join("out/plots/larson-throughput.svg");
        let plot = std::fs::read_to_string(plot).expect("a plot");
        assert!(plot.contains("prefers-color-scheme:dark") && plot.contains("var(--s-ample)"));
    }

    #[test]
    fn foreign_text_is_text_and_a_page_without_numbers_is_a_page() {
        let (_folder, page) = page(&["glibc", "<i>x</i>"], "<i>x</i>");
        assert!(page.contains("lost &lt;b&gt;content&lt;&#x2f;b&gt;"), "{page}");
        assert!(!page.contains("<i>x"));
    }
}
