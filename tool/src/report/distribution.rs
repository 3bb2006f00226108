//! Every run of one row: where a mean would hide two modes.

use anyhow::Result;
use plotters::chart::ChartBuilder;
use plotters::prelude::{Color as _, IntoDrawingArea as _, SVGBackend};
use plotters::style::RGBColor;
use serde::Serialize;

use super::axis::Axis;
use super::labels::Label;
use super::palette::{COLOURS, FAINT, GRID, INK, Look, look, stand_in};
use super::plots::{
    AXES, Area, CURVES, Chart, begin_group, draw_markers, draw_names, end_group, failed, label_room, text,
};
use super::summary::{Cell, Figures, Row, Summary};
use super::{svg, units};
use crate::stats::{Metric, median};

/// The runs of one allocator in words.
#[derive(Debug, Serialize)]
pub struct Spread {
    allocator: String,
    title: String,
    colour: &'static str,
    least: String,
    middle: String,
    most: String,
    modes: String,
}

/// Allocators with figures in this row, in the order of tables; none where no one's runs fall into two modes.
fn columns<'a>(summary: &'a Summary, row: &'a Row) -> Vec<(&'a str, &'a Figures)> {
    let cells = summary.allocators.iter().zip(&row.cells);
    let columns: Vec<(&str, &Figures)> = cells
        .filter_map(|(allocator, cell)| match cell {
            Cell::Measured(figures) => Some((allocator.name.as_str(), figures)),
            _ => None,
        })
        .collect();
    if columns.iter().all(|(_, figures)| figures.modes.is_none()) { Vec::new() } else { columns }
}

/// The runs of a row as a table; empty where none fall into two modes.
pub fn spreads(summary: &Summary, row: &Row) -> Vec<Spread> {
    let spread = |(name, figures): (&str, &Figures)| {
        let runs = || figures.runs().iter().copied();
        let rate = |value: Option<f64>| value.map_or_else(String::new, units::rate);
        Spread {
            allocator: name.to_owned(),
            title: name.to_owned(),
            colour: COLOURS[look(name).colour].name,
            least: rate(runs().reduce(f64::min)),
            middle: rate(median(&mut figures.runs().to_vec())),
            most: rate(runs().reduce(f64::max)),
            modes: figures.modes.map_or_else(
                || "one".into(),
                |modes| {
                    let mode = |mode: crate::stats::Mode| {
                        let runs = if mode.runs == 1 { "run" } else { "runs" };
                        format!("{} {runs} at {}", mode.runs, units::rate(mode.value))
                    };
                    format!("{}, {}", mode(modes.low), mode(modes.high))
                },
            ),
        }
    };
    columns(summary, row).into_iter().map(spread).collect()
}

/// Every run of one row, a point each, by allocator: where some fall into two modes. None where none do.
pub fn distribution(summary: &Summary, row: &Row) -> Result<Option<String>> {
    let columns = columns(summary, row);
    if columns.is_empty() {
        return Ok(None);
    }
    let highest = columns.iter().flat_map(|(_, figures)| figures.runs()).fold(0.0_f64, |a, b| a.max(*b));
    let room = label_room(columns.iter().map(|(name, _)| *name));
    let mut drawing = String::new();
    {
        let area = SVGBackend::with_string(&mut drawing, CURVES).into_drawing_area();
        let mut builder = ChartBuilder::on(&area);
        // The names run down the right, as those of curves do: there is no room for them below.
        builder.margin(8).margin_right(room).x_label_area_size(AXES.1).y_label_area_size(AXES.0);
        let axis = Axis::linear(highest * 1.06, 1000.0);
        let chart = builder.build_cartesian_2d(Axis::positions(columns.len()), axis).map_err(failed)?;
        draw(&area, chart, &columns, room)?;
        area.present().map_err(failed)?;
    }
    let title = format!("{} on {}: throughput of every run", row.workload, units::threads(row.threads));
    Ok(Some(svg::finish(&drawing, &title)))
}

fn draw(area: &Area<'_>, mut chart: Chart<'_, '_>, columns: &[(&str, &Figures)], room: u32) -> Result<()> {
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(RGBColor(0, 0, 0).mix(0.0))
        .bold_line_style(stand_in(GRID))
        .axis_style(stand_in(FAINT))
        .label_style(text(INK))
        .x_label_formatter(&|_| String::new())
        .x_desc("runs, by allocator")
        .y_label_formatter(&|y| units::tick(Metric::Throughput, *y))
        .draw()
        .map_err(failed)?;
    let mut labels = Vec::with_capacity(columns.len());
    for (column, (name, figures)) in columns.iter().enumerate() {
        let look = Look { width: 2, ..look(name) };
        let count = figures.runs().len() as f64;
        // In the order of blocks from left to right, so that a drift is told from two modes.
        let x = |index: usize| column as f64 + ((index as f64 + 0.5) / count - 0.5) * 0.5;
        let points: Vec<(f64, f64)> =
            figures.runs().iter().enumerate().map(|(index, rate)| (x(index), *rate)).collect();
        begin_group(area, name)?;
        draw_markers(&mut chart, points.iter().copied(), look)?;
        end_group(area)?;
        if let Some(last) = points.last() {
            labels.push(Label { at: chart.backend_coord(last), text: (*name).to_owned(), look });
        }
    }
    draw_names(area, labels, room)
}
