//! The report: one HTML file without network, and the plots as files of their own.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment};
use serde::Serialize;

use super::charges::ChargeTable;
use super::comparison::Comparison;
use super::leak::Leaks;
use super::measured::{Block, blocks};
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
    charges: Option<ChargeTable>,
    leak: Option<LeakTable>,
    command: String,
}

/// One workload on the page.
#[derive(Serialize)]
struct Section<'a> {
    about: &'a Workload,
    plots: Vec<Plot>,
    rows: Vec<Line>,
    floors: Vec<Noise>,
    measures: Vec<Block>,
}

/// heap-leak's page faults and their prediction, as text.
#[derive(Serialize)]
struct LeakTable {
    about: &'static str,
    note: &'static str,
    predictions: Vec<String>,
    head: Vec<String>,
    lines: Vec<Vec<String>>,
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
pub(super) struct Plot {
    pub(super) title: String,
    pub(super) svg: String,
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
            let dashed = if summary.has_limits() { "; dashed: a limit" } else { "" };
            let svg = plots::against_threads(summary, name, &rows, metric)?;
            keep(&format!("{name}-{file}"), svg.as_ref())?;
            plots.extend(svg.map(|svg| Plot { title: format!("{title}{dashed}"), svg }));
        }
        for row in &rows {
            let svg = plots::distribution(summary, row)?;
            keep(&format!("{name}-{}-runs", row.threads), svg.as_ref())?;
            let title = format!("Every run on {} threads: two modes, or more", row.threads);
            plots.extend(svg.map(|svg| Plot { title, svg }));
        }
        let measures = blocks(&summary.measures, name)?;
        for block in &measures {
            keep(&format!("{name}-memory-over-operations"), block.plot.as_ref().map(|plot| &plot.svg))?;
        }
        let (rows, floors) = (lines(summary, &rows), floors(&rows));
        sections.push(Section { about, plots, rows, floors, measures });
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
        charges: ChargeTable::new(&summary.charges),
        leak: summary.heap_leak.as_ref().map(leak_table),
        command: command.join(" "),
    };
    environment.render_str(TEMPLATE, Serde(page)).context("cannot fill in the report")
}

fn leak_table(leaks: &Leaks) -> LeakTable {
    let (head, lines) = leaks.table();
    LeakTable { about: Leaks::ABOUT, note: Leaks::NOTE, predictions: leaks.lines(), head, lines }
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
                allocator: allocator.title(),
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
    use crate::allocators::{Allocator, Limit};
    use crate::record::Pass;
    use crate::run::testing::{conclude_with, run_of};

    fn page(names: &[&str], failing: &str) -> (tempfile::TempDir, String) {
        page_of(&[], names.iter().map(|name| Allocator::fake(name)).collect(), "larson", failing)
    }

    /// The page of a run of larson that calls itself `workload`.
    fn page_of(
        measures: &[Pass],
        allocators: Vec<Allocator>,
        workload: &str,
        failing: &str,
    ) -> (tempfile::TempDir, String) {
        let (mut plan, conclusion) =
            conclude_with(measures, &allocators, 10, usize::MAX, |asked, measurement| {
                if asked.pass.is_empty() {
                    measurement.extra = [("page_fault_ns".into(), 512.25)].into();
                }
                let bad = asked.allocator == failing;
                bad.then(|| r#"{"outcome":"failed","reason":"lost <b>content</b>"}"#.to_owned())
            });
        plan.entries[0].description.name = workload.into();
        let summary = Summary::new(&conclusion, &plan, &allocators, 1);
        let mut run = run_of(&allocators, &conclusion);
        run.workloads[0].workload = workload.into();
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
    fn a_limit_is_marked_in_tables_dashed_in_curves_and_not_in_the_trade_off() {
        let floor = Allocator::fake_limit("floor", Limit::AnySize);
        let allocators = vec![Allocator::fake("ample"), Allocator::fake("glibc"), floor];
        let (folder, page) = page_of(&[], allocators, "larson", "");
        assert!(page.contains("</span>floor (limit)</td>"), "rows");
        assert!(page.contains(r#"<td class="left">limit, in no mean</td>"#), "means");
        assert!(page.contains("operations per second; dashed: a limit"), "titles");
        let plot =
            |name: &str| std::fs::read_to_string(folder.path().join("out/plots").join(name)).expect("a plot");
        let lines = |plot: &str| plot.matches(r#"stroke="var(--s-limit)""#).count();
        assert!(lines(&plot("larson-throughput.svg")) > 20, "dashes");
        assert!(!plot("trade-off.svg").contains(">\nfloor\n<"), "no point");
        assert!(plot("larson-throughput.svg").contains(">\nfloor\n<"), "a name");
    }

    #[test]
    fn what_the_system_charges_is_told_where_it_was_measured() {
        let glibc = || vec![Allocator::fake("glibc")];
        let (_folder, page) = page_of(&[], glibc(), "os-primitives", "");
        assert!(page.contains("What the system charges"), "{page}");
        assert!(page.contains(r#"<td class="left">page fault</td><td>512</td><td>512</td>"#), "{page}");
        assert!(!page_of(&[], glibc(), "larson", "").1.contains("What the system charges"));
    }

    #[test]
    fn what_was_measured_in_runs_of_its_own_has_tables_behind_its_plot() {
        let passes = [Pass::Latency, Pass::Memory, Pass::Counters, Pass::SystemCalls];
        let (folder, page) =
            page_of(&passes, vec![Allocator::fake("ample"), Allocator::fake("glibc")], "larson", "");
        assert_eq!(page.matches("<svg ").count(), 4);
        for text in [
            "Latency of single calls",
            "Percentiles are medians over 3 runs",
            "<th>malloc p99.9</th>",
            "Memory over operations beside live bytes, on 2 threads",
            "live bytes</td>",
            "<th>in all</th><th>per 1000</th><th>mmap</th><th>futex</th>",
            "<th>cycles</th>",
        ] {
            assert!(page.contains(text), "{text}");
        }
        assert!(folder.path().join("out/plots/larson-memory-over-operations.svg").exists());
    }

    #[test]
    fn foreign_text_is_text_and_a_page_without_numbers_is_a_page() {
        let (_folder, page) = page(&["glibc", "<i>x</i>"], "<i>x</i>");
        assert!(page.contains("lost &lt;b&gt;content&lt;&#x2f;b&gt;"), "{page}");
        assert!(!page.contains("<i>x"));
    }
}
