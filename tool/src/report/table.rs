//! The table on standard output.

use anstyle::{AnsiColor, Style};
use comfy_table::{
    Attribute, Cell as TableCell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle, presets,
};

use super::gaps::Gap;
use super::summary::{Cell, Comparison, Summary};
use super::units;
use crate::stats::{MIN_BLOCKS, Metric, Verdict};

/// Lines above, below the head, and below; none between rows.
const STYLE: TableStyle = presets::UTF8_HORIZONTAL_ONLY
    .row_separator(LineStyle::none())
    .header_separator(LineStyle::none().fill('─').junction('─'));
/// Width that a table may take where there is no terminal.
const WIDTH_OFF_TERMINAL: usize = 160;
/// Characters that the columns before the first allocator take.
const LABELS_WIDTH: usize = 34;

/// Columns of the terminal; none off a terminal.
pub fn terminal_width() -> Option<usize> {
    Table::new().width().map(usize::from)
}

/// A table of text that is wrapped to the terminal's width.
pub fn wrapped_rows(head: &[String], cells: &[Vec<String>]) -> String {
    let mut table = filled(head, cells);
    let width = terminal_width().unwrap_or(WIDTH_OFF_TERMINAL);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(u16::try_from(width).unwrap_or(u16::MAX));
    table.to_string()
}

/// A table of text with a bold head. `cells[row][column]`; the first `left` columns are aligned to
/// the left, and nothing is wrapped.
pub fn rows(head: &[String], cells: &[Vec<String>], left: usize) -> String {
    let mut table = filled(head, cells);
    for column in table.column_iter_mut().skip(left) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn filled(head: &[String], cells: &[Vec<String>]) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE);
    table.set_header(head.iter().map(|text| TableCell::new(text).add_attribute(Attribute::Bold)));
    for row in cells {
        table.add_row(row);
    }
    table
}

/// Both tables of a run: throughput, then peak memory, as multiples of glibc's.
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
    text.push_str(&if summary.blocks < MIN_BLOCKS {
        format!("No verdict on single rows: {} blocks, and {MIN_BLOCKS} are needed.\n", summary.blocks)
    } else {
        "= equivalent within 2 %   ? cannot tell\n".into()
    });
    for gap in &summary.gaps {
        text.push_str(&format!("{}\n", describe(gap, summary.allocators.len())));
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
    head.extend(columns.iter().map(|&column| summary.allocators[column].name.clone()));
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
        Cell::Measured(figures) => figures.comparison(metric).map_or_else(
            || units::figure(metric, figures.absolute(metric).value),
            |found| marked(&found, blocks),
        ),
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
fn marked(found: &Comparison, blocks: usize) -> String {
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

/// Columns of each part of a table that is too wide for one; glibc's only in the first.
fn panels(summary: &Summary, width: usize) -> Vec<Vec<usize>> {
    let room = width.saturating_sub(LABELS_WIDTH);
    let mut panels: Vec<Vec<usize>> = vec![Vec::new()];
    let mut used = 0;
    for (column, allocator) in summary.allocators.iter().enumerate() {
        let needed = allocator.name.chars().count().max("12.3 M/s".len()) + 2;
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
