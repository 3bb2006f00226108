//! The report: one HTML file without network, the same in short as Markdown, and the plots as files of their own.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment};
use serde::Serialize;

use super::charges::ChargeTable;
use super::counted::CountedTable;
use super::distribution::{Spread, distribution, spreads};
use super::leak::Leaks;
use super::lines::{Glance, Line, Noise, Standing, floors, glances, lines, overall, standings};
use super::measured::{self, Block, Plot};
use super::palette::{COLOURS, look, style_sheet};
use super::summary::{Cell, Row, Summary};
use super::tails::Tails;
use super::then_now::ThenNow;
use super::trade_off::trade_off;
use super::{again, plots, rounds, svg, units};
use crate::record::{Folder, Run, Workload};
use crate::stats::Metric;

const HTML: &str = include_str!("report.html");
const MARKDOWN: &str = include_str!("report.markdown");
/// What pages have in common, by the names under which their templates take it.
const PARTS: [(&str, &str); 4] = [
    ("macros.html", include_str!("parts/macros.html")),
    ("then_now.html", include_str!("parts/then_now.html")),
    ("machine.html", include_str!("parts/machine.html")),
    ("table.js", include_str!("parts/table.js")),
];
/// The style of all pages.
const STYLE: &str = include_str!("parts/report.css");

/// What the templates fill in.
#[derive(Serialize)]
struct Page<'a> {
    style: String,
    summary: &'a Summary,
    run: &'a Run,
    /// How the environment configured allocators; none where it did not.
    environment: Option<String>,
    names: Vec<Name<'a>>,
    then_now: Option<ThenNow>,
    trade_off: Option<String>,
    sections: &'a [Section<'a>],
    overall: Vec<Line>,
    standings: Vec<Standing>,
    glances: Vec<Glance>,
    tails: Option<Tails>,
    counted: Option<CountedTable>,
    charges: Option<ChargeTable>,
    leak: Option<LeakTable>,
    command: String,
}

/// An allocator's name, the name of its colour, and its marker in plots.
#[derive(Serialize)]
struct Name<'a> {
    allocator: &'a str,
    colour: &'static str,
    marker: char,
}

/// One workload on the page.
#[derive(Serialize)]
struct Section<'a> {
    about: &'a Workload,
    plots: Vec<Drawn>,
    ideal: Option<String>,
    rows: Vec<Line>,
    floors: Vec<Noise>,
    runs: Vec<Runs>,
    measures: Vec<Block>,
    command: String,
}

/// A plot that is a file of its own as well.
#[derive(Serialize)]
struct Drawn {
    plot: Plot,
    file: String,
}

/// Every run of a row in which some fall into two modes.
#[derive(Serialize)]
struct Runs {
    threads: u32,
    drawn: Drawn,
    table: Vec<Spread>,
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

/// Writes the plots, the page and its Markdown into the folder, and returns the page's path.
pub fn write(folder: &Folder, summary: &Summary, run: &Run) -> Result<PathBuf> {
    let trade_off = trade_off(summary)?;
    if let Some(svg) = &trade_off {
        folder.write("plots/trade-off.svg", &svg::standalone(svg))?;
    }
    let mut sections = Vec::with_capacity(run.workloads.len());
    for (name, rows) in summary.workloads() {
        let Some(about) = run.workloads.iter().find(|workload| workload.name == name) else { continue };
        sections.push(section(folder, summary, run, about, &rows)?);
    }
    let page = Page {
        style: style(),
        summary,
        run,
        environment: run.configured_from_outside(),
        names: names(summary),
        then_now: ThenNow::new(summary, &run.preset, run.machine.cpus),
        trade_off,
        sections: &sections,
        overall: overall(summary),
        standings: standings(summary),
        glances: glances(summary),
        tails: Tails::new(summary),
        counted: CountedTable::new(summary),
        charges: ChargeTable::new(&summary.charges),
        leak: summary.heap_leak.as_ref().map(leak_table),
        command: again::whole(run),
    };
    folder.write("report.md", &markdown(&page)?)?;
    folder.write("report.html", &render(HTML, &page)?)
}

/// One workload: its plots as files, and everything as text.
fn section<'a>(
    folder: &Folder,
    summary: &Summary,
    run: &Run,
    about: &'a Workload,
    rows: &[&Row],
) -> Result<Section<'a>> {
    let name = &about.name;
    let keep = |what: &str, plot: Plot| -> Result<Drawn> {
        let file = format!("plots/{name}-{what}.svg");
        folder.write(&file, &svg::standalone(&plot.svg))?;
        Ok(Drawn { plot, file })
    };
    let mut plots = Vec::new();
    for (metric, title, file) in [
        (Metric::Throughput, "Throughput against threads: operations per second", "throughput"),
        (Metric::PeakRss, "Peak memory (RSS) against threads", "memory"),
    ] {
        let svg = plots::against_threads(summary, name, rows, metric, run.machine.cpus)?;
        let dashed = if has_limit(summary, rows) { "; dashed: a limit" } else { "" };
        if let Some(svg) = svg {
            plots.push(keep(file, Plot { title: format!("{title}{dashed}"), svg })?);
        }
    }
    let mut runs = Vec::new();
    for row in rows {
        if let Some(svg) = distribution(summary, row)? {
            let title = format!("Every run on {}, in their order", units::threads(row.threads));
            let drawn = keep(&format!("{}-runs", row.threads), Plot { title, svg })?;
            runs.push(Runs { threads: row.threads, drawn, table: spreads(summary, row) });
        }
    }
    let mut measures = rounds::blocks(summary, rows)?;
    measures.extend(measured::blocks(&summary.measures, name)?);
    for block in &mut measures {
        block.command = again::of_workload(run, about, block.measure);
        for (index, plot) in block.plots.iter().enumerate() {
            let what = block.title.to_lowercase().replace(' ', "-");
            let number = if index == 0 { String::new() } else { format!("-{}", index + 1) };
            folder.write(&format!("plots/{name}-{what}{number}.svg"), &svg::standalone(&plot.svg))?;
        }
    }
    let ideal = plots::ideal_per_thread(summary, rows);
    Ok(Section {
        about,
        plots,
        ideal: ideal.map(|rate| units::figure(Metric::Throughput, rate)),
        rows: lines(summary, rows),
        floors: floors(rows),
        runs,
        measures,
        command: again::of_workload(run, about, None),
    })
}

/// Whether a limit has a number in one of these rows.
fn has_limit(summary: &Summary, rows: &[&Row]) -> bool {
    let mut cells = rows.iter().flat_map(|row| summary.allocators.iter().zip(&row.cells));
    cells.any(|(allocator, cell)| allocator.limit && matches!(cell, Cell::Measured(_)))
}

fn names(summary: &Summary) -> Vec<Name<'_>> {
    let name = |allocator| {
        let look = look(allocator);
        Name { allocator, colour: COLOURS[look.colour].name, marker: look.marker.character() }
    };
    summary.allocators.iter().map(|allocator| name(&allocator.name)).collect()
}

/// Fills in a page.
pub(super) fn render(template: &str, page: &impl Serialize) -> Result<String> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    fill(environment, template, page)
}

fn markdown(page: &Page<'_>) -> Result<String> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).build().context("no syntax")?);
    // Text from outside may hold what ends a cell, or begins a tag.
    environment
        .add_filter("cell", |text: String| text.replace('|', "\\|").replace('<', "&lt;").replace('\n', " "));
    fill(environment, MARKDOWN, page)
}

fn fill(mut environment: Environment<'_>, template: &str, page: &impl Serialize) -> Result<String> {
    environment.add_filter("bytes", |bytes: f64| units::bytes(bytes));
    environment.add_filter("threads", |count: u32| units::threads(count));
    environment.add_filter("rows", |count: usize| units::rows(count));
    // Where a long name may be broken.
    environment.add_filter("parts", |name: String| {
        name.split_inclusive([':', '=', '_']).map(str::to_owned).collect::<Vec<_>>()
    });
    environment.add_filter("moment", |stamp: String| units::moment(&stamp));
    for (name, part) in PARTS {
        environment
            .add_template(name, part)
            .with_context(|| format!("the report's part {name} is damaged"))?;
    }
    environment.render_str(template, Serde(page)).context("cannot fill in the report")
}

/// The style of all pages, with their colours.
pub(super) fn style() -> String {
    format!("{}{STYLE}", style_sheet())
}

fn leak_table(leaks: &Leaks) -> LeakTable {
    let (head, lines) = leaks.table();
    LeakTable { about: Leaks::ABOUT, note: Leaks::NOTE, predictions: leaks.lines(), head, lines }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocators::{Allocator, Limit};
    use crate::record::{Noise, Pass};
    use crate::run::testing::{conclude_with, record, workloads};

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
                    measurement.extra =
                        [("page_fault_ns".into(), 512.25), ("others_per_cent".into(), 12.5)].into();
                }
                let bad = asked.allocator == failing;
                bad.then(|| r#"{"outcome":"failed","reason":"lost <b>content</b>"}"#.to_owned())
            });
        plan.entries[0].description.name = workload.into();
        let summary = Summary::new(&conclusion, &plan, &allocators, 1);
        let run = Run {
            command: vec!["ample".into(), "bench".into(), "it's".into()],
            block_log: conclusion.block_log,
            workloads: workloads(&plan),
            allocators,
            noise_at_start: Noise { load: Some(5.02), ..Noise::read() },
            noise_at_end: Some(Noise { load: None, ..Noise::read() }),
            ..record()
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
        assert!(page.contains("<dt>Load</dt><dd>5.02 at the start, unknown at the end</dd>"));
        let plot = folder.path().join("out/plots/larson-throughput.svg");
        let plot = std::fs::read_to_string(plot).expect("a plot");
        assert!(plot.contains("prefers-color-scheme:dark") && plot.contains("var(--s-ample)"));
    }

    #[test]
    fn the_legend_tells_relatives_apart_as_plots_do() {
        let (_folder, page) = page(&["glibc", "jemalloc", "jemalloc-debian", "mimalloc-debian"], "");
        for told in
            ["●</span>jemalloc</label>", "○</span>jemalloc-debian</label>", "▲</span>mimalloc-debian</label>"]
        {
            assert!(page.contains(told), "{told}");
        }
    }

    #[test]
    fn a_limit_is_marked_in_tables_dashed_in_curves_and_not_in_the_trade_off() {
        let floor = Allocator::fake_limit("floor", Limit::AnySize);
        let allocators = vec![Allocator::fake("ample"), Allocator::fake("glibc"), floor];
        let (folder, page) = page_of(&[], allocators, "larson", "");
        assert!(page.contains("</span>&#8288;floor (limit)</th>"), "rows");
        assert!(page.contains(r#"<td class="left rows">limit, in no mean</td>"#), "means");
        assert!(page.contains("&#8288;glibc</th><td>0 of 2</td>"), "{page}");
        assert!(!page.contains("&#8288;floor</th><td>0 of 2</td>"), "nobody is set beside a limit");
        assert!(page.contains("operations per second; dashed: a limit"), "titles");
        let plot =
            |name: &str| std::fs::read_to_string(folder.path().join("out/plots").join(name)).expect("a plot");
        let lines = |plot: &str| plot.matches(r#"stroke="var(--s-limit)""#).count();
        assert!(lines(&plot("larson-throughput.svg")) > 15, "dashes");
        assert!(!plot("trade-off.svg").contains(">\nfloor\n<"), "no point");
        assert!(plot("larson-throughput.svg").contains(">\nfloor\n<"), "a name");
    }

    #[test]
    fn what_the_system_charges_is_told_where_it_was_measured() {
        let glibc = || vec![Allocator::fake("glibc")];
        let (_folder, page) = page_of(&[], glibc(), "os-primitives", "");
        assert!(page.contains("What the system charges"), "{page}");
        assert!(page.contains(r#"page fault</th><td>512</td><td>512</td>"#), "{page}");
        assert!(!page_of(&[], glibc(), "larson", "").1.contains("What the system charges"));
    }

    #[test]
    fn what_was_counted_is_told_on_the_page_and_in_short() {
        let (folder, page) = page(&["ample", "glibc"], "");
        assert!(page.contains("Counted, not timed"), "{page}");
        assert!(page.contains("<td>12.50</td>"), "{page}");
        let short = std::fs::read_to_string(folder.path().join("out/report.md")).expect("the page in short");
        assert!(
            short.contains("| memory that another thread used last, per cent | 12.50 | 12.50 |"),
            "{short}"
        );
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
            r#"<th scope="col">malloc p99.9</th>"#,
            "Memory over operations beside live bytes, on 2 threads",
            "live bytes</th>",
            r#"<th scope="col">in all</th><th scope="col">per 1000</th><th scope="col">mmap</th>"#,
            r#"<th scope="col">cycles</th>"#,
            "--measures latency</pre>",
            "Latency of single calls, over all rows",
        ] {
            assert!(page.contains(text), "{text}");
        }
        assert!(folder.path().join("out/plots/larson-memory-over-operations.svg").exists());
        let short = std::fs::read_to_string(folder.path().join("out/report.md")).expect("the page in short");
        for text in [
            "## Latency of single calls, over all rows",
            "### Latency of single calls: larson",
            "### System calls: larson",
            "| allocator | malloc p50 |",
            "--measures latency\n",
        ] {
            assert!(short.contains(text), "{text}: {short}");
        }
        assert!(!short.contains("\n\n\n\n") && !short.contains("|\n\n|"), "{short}");
    }

    #[test]
    fn a_seeds_preset_has_then_and_now_and_the_same_in_markdown() {
        let allocators: Vec<Allocator> = ["ample", "glibc"].map(Allocator::fake).into();
        let (plan, conclusion) = conclude_with(&[], &allocators, 10, usize::MAX, |_, _| None);
        let summary = Summary::new(&conclusion, &plan, &allocators, 1);
        let run = Run { preset: "seed-000".into(), workloads: workloads(&plan), allocators, ..record() };
        let parent = tempfile::tempdir().expect("a folder");
        let folder = Folder::create(Some(&parent.path().join("out")), "t", "h").expect("made");
        let page = std::fs::read_to_string(write(&folder, &summary, &run).expect("written")).expect("a page");
        assert!(page.contains("Lever &amp; Boreham 1999, then and now: of 5 statements"), "{page}");
        assert!(page.contains(r#"<span class="answer unknown">cannot be told here</span>"#));
        let text = std::fs::read_to_string(folder.path().join("report.md")).expect("Markdown");
        assert!(
            text.contains("### 1. Sharing a C library costs about 10 %. → cannot be told here"),
            "{text}"
        );
        assert!(text.contains(
            "| 1. Two threads of one process, 512 B: time as a multiple of two processes' | 1.12 | – | – |\n"
        ));
        assert!(text.contains("![Peak memory (RSS) against threads](plots/larson-memory.svg)"), "{text}");
        assert!(text.contains("| ample | 1 | 1000 /s | 1.00× [1.00–1.00] | equivalent |"), "{text}");
        assert!(text.contains("| ample | 0 of 2 |  | 0 of 2 |  |\n"), "{text}");
        assert!(!text.contains("\n\n\n\n"), "{text}");
    }

    #[test]
    fn foreign_text_is_text_and_a_page_without_numbers_is_a_page() {
        let (_folder, page) = page(&["glibc", "<i>x</i>"], "<i>x</i>");
        assert!(page.contains("lost &lt;b&gt;content&lt;&#x2f;b&gt;"), "{page}");
        assert!(!page.contains("<i>x"));
    }
}
