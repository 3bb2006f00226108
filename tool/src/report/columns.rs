//! Text in columns, as all tables on standard output are laid out.

use comfy_table::{
    Attribute, Cell as TableCell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle, presets,
};

/// Lines above, below the head, and below; none between rows.
const STYLE: TableStyle = presets::UTF8_HORIZONTAL_ONLY
    .row_separator(LineStyle::none())
    .header_separator(LineStyle::none().fill('─').junction('─'));
/// Width that a table may take where there is no terminal.
pub const WIDTH_OFF_TERMINAL: usize = 160;

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
