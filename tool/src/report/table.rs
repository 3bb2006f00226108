//! The tables of a run on standard output.

use anstyle::{AnsiColor, Style};

use super::columns::{WIDTH_OFF_TERMINAL, rows};
use super::comparison::Comparison;
use super::gaps::Gap;
use super::lines::{Standing, standings};
use super::summary::{Cell, Figures, Summary};
use super::tails::Tails;
use super::units;
use crate::stats::{MARGIN, MIN_BLOCKS, Metric, Verdict};

/// Characters that the columns before the first allocator take.
const LABELS_WIDTH: usize = 34;

/// The head over the latencies.
const TAILS: &str =
    "Latency of single calls as a multiple of glibc's, geometric means over rows (less is better)";

/// What the marks in tables mean.
pub const LEGEND: &str =
    "= equivalent within 2 %, or within the noise floor where that is higher, up to 5 %   ? cannot tell\n";

/// The tables of a run: throughput, then peak memory, as multiples of glibc's; last heap-leak's faults.
pub fn text_table(summary: &Summary, width: Option<usize>) -> String {
    let mut text = String::new();
    let titles = [
        (Metric::Throughput, "Throughput as a multiple of glibc's (more is better)"),
        (Metric::PeakRss, "Peak memory (RSS) as a multiple of glibc's (less is better)"),
    ];
    for (metric, title) in titles {
        text.push_str(&format!("{}\n", paint(title, Style::new().bold())));
        for columns in panels(summary, width.unwrap_or(WIDTH_OFF_TERMINAL)) {
            text.push_str(&panel(summary, &columns, metric));
            text.push('\n');
        }
        text.push('\n');
    }
    let standings = standings(summary);
    if !standings.is_empty() {
        text.push_str(&format!("{}\n", paint("Beside the best of each row", Style::new().bold())));
        let cells: Vec<Vec<String>> = standings.into_iter().map(Standing::cells).collect();
        text.push_str(&format!("{}\n\n", rows(&Standing::HEAD.map(String::from), &cells, 1)));
    }
    if let Some(tails) = Tails::new(summary) {
        text.push_str(&format!("{}\n", paint(TAILS, Style::new().bold())));
        let head: Vec<String> = std::iter::once(String::new()).chain(tails.head).collect();
        let cells = tails.lines.into_iter().map(|line| [vec![line.name], line.cells].concat());
        text.push_str(&format!("{}\n\n", rows(&head, &cells.collect::<Vec<_>>(), 1)));
    }
    text.push_str(&if summary.blocks < MIN_BLOCKS {
        let blocks = units::blocks(summary.blocks);
        format!("No verdict on single rows: {blocks}, and {MIN_BLOCKS} are needed.\n")
    } else {
        LEGEND.into()
    });
    text.push_str(&notes(summary));
    for gap in &summary.gaps {
        text.push_str(&format!("{}\n", describe(gap, summary.allocators.len())));
    }
    if let Some(leaks) = &summary.heap_leak {
        text.push_str(&format!("\n{}", leaks.text()));
    }
    for failure in summary.measures.failures() {
        text.push_str(&format!("{failure}\n"));
    }
    text
}

/// How quiet the run was, and the cells that one figure does not do justice to.
fn notes(summary: &Summary) -> String {
    let mut text = String::new();
    let floors = || summary.rows.iter().filter_map(|row| Some((row, row.noise_floor?.throughput)));
    let highest = floors().max_by(|a, b| a.1.total_cmp(&b.1));
    if let Some((row, highest)) = highest.filter(|_| summary.blocks >= MIN_BLOCKS) {
        let quiet = floors().filter(|(_, floor)| *floor <= MARGIN).count();
        text.push_str(&format!(
            "Noise floor: glibc differs from itself by no more than {:.0} % in {quiet} of {} rows, and by up to \
             {:.1} % in {} × {}.\n",
            MARGIN * 100.0,
            floors().count(),
            highest * 100.0,
            row.workload,
            row.threads
        ));
    }
    if summary.blocks_run_again > 0 {
        text.push_str(&format!(
            "Blocks disturbed from outside and run again: {}.\n",
            summary.blocks_run_again
        ));
    }
    for row in &summary.rows {
        for (allocator, cell) in summary.allocators.iter().zip(&row.cells) {
            let Cell::Measured(Figures { modes: Some(modes), .. }) = cell else { continue };
            text.push_str(&format!(
                "‡ two modes: {}, threads {}, {}: {} runs at {}, {} at {}\n",
                row.workload,
                row.threads,
                allocator.name,
                modes.low.runs,
                units::rate(modes.low.value),
                modes.high.runs,
                units::rate(modes.high.value)
            ));
        }
    }
    text
}

/// A line for what has no number.
fn describe(gap: &Gap, allocators: usize) -> String {
    let who =
        if gap.allocators.len() == allocators { "every allocator".into() } else { gap.allocators.join(", ") };
    let threads: Vec<String> = gap.threads.iter().map(u32::to_string).collect();
    let what = if gap.failed { "failed" } else { "not measurable here" };
    format!("{who}: {}, threads {}: {what}: {}", gap.workload, threads.join(", "), gap.reason)
}

fn panel(summary: &Summary, columns: &[usize], metric: Metric) -> String {
    let mut head = vec!["workload".to_owned(), "threads".to_owned()];
    head.extend(columns.iter().map(|&column| summary.allocators[column].title()));
    let mut last = "";
    let mut cells: Vec<Vec<String>> = Vec::with_capacity(summary.rows.len() + 1);
    for row in &summary.rows {
        let label = if row.workload == last { String::new() } else { row.workload.clone() };
        last = &row.workload;
        let mut line = vec![label, row.threads.to_string()];
        line.extend(columns.iter().map(|&column| cell_text(&row.cells[column], metric, summary.blocks)));
        cells.push(line);
    }
    let mut line = vec!["geometric mean".to_owned(), String::new()];
    line.extend(columns.iter().map(|&column| mean(summary, column, metric)));
    cells.push(line);
    rows(&head, &cells, 1)
}

/// The ratio; where there is none to take, as for glibc itself, the figure.
fn cell_text(cell: &Cell, metric: Metric, blocks: usize) -> String {
    match cell {
        Cell::Measured(figures) => {
            let text = figures.comparison(metric).map_or_else(
                || units::figure(metric, figures.absolute(metric).value),
                |found| marked(&found, blocks),
            );
            let two_modes = metric == Metric::Throughput && figures.modes.is_some();
            if two_modes { text + " ‡" } else { text }
        }
        Cell::Failed => paint("failed", AnsiColor::Red.on_default().bold()),
        Cell::NotMeasurable => "n/a".into(),
        Cell::Missing => "–".into(),
    }
}

/// The mean over rows; with the number of rows where some of glibc's are missing.
fn mean(summary: &Summary, column: usize, metric: Metric) -> String {
    let overall = &summary.allocators[column];
    let Some(found) = overall.comparison(metric) else { return "–".into() };
    let text = marked(&found, summary.blocks);
    let comparable = summary.comparable_rows();
    if overall.rows == comparable { text } else { format!("{text} ({}/{comparable})", overall.rows) }
}

/// The ratio with a mark for its verdict, where there are enough blocks for verdicts.
pub(super) fn marked(found: &Comparison, blocks: usize) -> String {
    let text = units::multiple(found.ratio.value);
    if blocks < MIN_BLOCKS {
        return text;
    }
    match found.verdict {
        Verdict::Faster | Verdict::Smaller => paint(&text, AnsiColor::Green.on_default()),
        Verdict::Slower | Verdict::Larger => paint(&text, AnsiColor::Yellow.on_default()),
        Verdict::Equivalent => format!("= {text}"),
        Verdict::CannotTell => format!("? {text}"),
    }
}

/// A verdict as a word, or a mark where there is nothing to act on.
pub(super) fn verdict(verdict: Verdict) -> String {
    let (word, colour) = match verdict {
        Verdict::Faster => ("faster", AnsiColor::Green),
        Verdict::Smaller => ("smaller", AnsiColor::Green),
        Verdict::Slower => ("slower", AnsiColor::Red),
        Verdict::Larger => ("larger", AnsiColor::Red),
        Verdict::Equivalent => return "=".into(),
        Verdict::CannotTell => return "?".into(),
    };
    paint(word, colour.on_default())
}

/// Columns of each part of a table that is too wide for one; glibc's only in the first.
fn panels(summary: &Summary, width: usize) -> Vec<Vec<usize>> {
    let room = width.saturating_sub(LABELS_WIDTH);
    let mut panels: Vec<Vec<usize>> = vec![Vec::new()];
    let mut used = 0;
    for (column, allocator) in summary.allocators.iter().enumerate() {
        let needed = allocator.title().chars().count().max("12.3 M/s".len()) + 2;
        let last = panels.len() - 1;
        if used + needed > room && !panels[last].is_empty() {
            panels.push(vec![column]);
            used = needed;
        } else {
            panels[last].push(column);
            used += needed;
        }
    }
    panels
}

fn paint(text: &str, style: Style) -> String {
    format!("{style}{text}{style:#}")
}
