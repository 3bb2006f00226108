//! The plots, as SVG.

use std::ops::Range;

use anyhow::{Result, anyhow};
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::prelude::{
    Cartesian2d, Circle, Color as _, DashedLineSeries, DrawingArea, ErrorBar, IntoDrawingArea as _,
    IntoFont as _, LineSeries, PathElement, SVGBackend, Text, TriangleMarker,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{RGBColor, ShapeStyle, TextStyle};

use super::axis::Axis;
use super::labels::{Label, place, place_around};
use super::palette::{FAINT, GRID, INK, Look, Marker, look, stand_in};
use super::summary::{Cell, Figures, Row, Summary};
use super::{svg, units};
use crate::stats::{Estimate, Metric};

/// Sizes in pixels, chosen so that text can still be read when a phone scales the picture down.
pub(super) const CURVES: (u32, u32) = (560, 360);
const TRADE_OFF: (u32, u32) = (580, 460);
/// Room for the labels of its axes: on the left, and below.
const TRADE_OFF_AXES: (u32, u32) = (78, 54);
const FONT: u32 = 18;
/// Room for the labels at the ends of the curves.
pub(super) const LABELS: u32 = 144;
/// Length of a dash of a limit's line, and of the gap behind it.
const DASH: (u32, u32) = (7, 5);
/// Highest over lowest value above which an axis is logarithmic.
const LOGARITHMIC: f64 = 12.0;

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(super) type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

/// One allocator's points: position on the x axis, and the estimate.
struct Series<'a> {
    name: &'a str,
    look: Look,
    points: Vec<(f64, Estimate)>,
}

/// Throughput or peak memory of one workload against threads. None where nothing was measured.
pub fn against_threads(
    summary: &Summary,
    workload: &str,
    rows: &[&Row],
    metric: Metric,
) -> Result<Option<String>> {
    let series = curves(summary, rows, metric);
    let values = series.iter().flat_map(|series| &series.points).map(|(_, estimate)| estimate);
    let lowest = values.clone().map(|estimate| estimate.low).fold(f64::INFINITY, f64::min);
    let highest = values.map(|estimate| estimate.high).fold(0.0, f64::max);
    if !(lowest.is_finite() && lowest > 0.0) {
        return Ok(None);
    }
    let threads: Vec<u32> = rows.iter().map(|row| row.threads).collect();
    let base = match metric {
        Metric::Throughput => 1000.0,
        Metric::PeakRss => 1024.0,
    };
    let mut drawing = String::new();
    {
        let area = SVGBackend::with_string(&mut drawing, CURVES).into_drawing_area();
        let y = if highest / lowest > LOGARITHMIC {
            Axis::logarithmic(lowest * 0.8, highest * 1.25, base)
        } else {
            Axis::linear(highest * 1.06, base)
        };
        let mut builder = ChartBuilder::on(&area);
        builder.margin(8).margin_right(LABELS).x_label_area_size(50).y_label_area_size(84);
        let chart = builder.build_cartesian_2d(Axis::positions(threads.len()), y).map_err(failed)?;
        draw_curves(&area, chart, &series, &threads, metric)?;
        area.present().map_err(failed)?;
    }
    let what = match metric {
        Metric::Throughput => "throughput",
        Metric::PeakRss => "peak memory",
    };
    Ok(Some(svg::finish(&drawing, &format!("{workload}: {what} against threads"))))
}

fn curves<'a>(summary: &'a Summary, rows: &[&Row], metric: Metric) -> Vec<Series<'a>> {
    let count = summary.allocators.len() as f64;
    let mut series: Vec<Series<'a>> = summary
        .allocators
        .iter()
        .enumerate()
        .map(|(column, allocator)| {
            // Side by side, so that error bars do not hide each other.
            let shift = ((column as f64 + 0.5) / count - 0.5) * 0.2;
            let points = rows.iter().enumerate().filter_map(|(index, row)| match &row.cells[column] {
                Cell::Measured(figures) => Some((index as f64 + shift, figures.absolute(metric))),
                _ => None,
            });
            Series { name: &allocator.name, look: look(&allocator.name), points: points.collect() }
        })
        .filter(|series| !series.points.is_empty())
        .collect();
    // The widest line is drawn last, over the others.
    series.sort_by_key(|series| series.look.width);
    series
}

fn draw_curves(
    area: &Area<'_>,
    mut chart: Chart<'_, '_>,
    series: &[Series<'_>],
    threads: &[u32],
    metric: Metric,
) -> Result<()> {
    let count = |x: &f64| threads.get(*x as usize).map_or(String::new(), u32::to_string);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(RGBColor(0, 0, 0).mix(0.0))
        .bold_line_style(stand_in(GRID))
        .axis_style(stand_in(FAINT))
        .label_style(text(INK))
        .x_desc("threads")
        .x_label_formatter(&count)
        .y_label_formatter(&|y| units::tick(metric, *y))
        .draw()
        .map_err(failed)?;
    let mut labels = Vec::with_capacity(series.len());
    for Series { name, look, points } in series {
        let (style, at) = (line(*look), points.iter().map(|(x, y)| (*x, y.value)));
        let drawn = if look.dashed {
            chart.draw_series(DashedLineSeries::new(at, DASH.0, DASH.1, style)).map(drop)
        } else {
            chart.draw_series(LineSeries::new(at, style)).map(drop)
        };
        drawn.map_err(failed)?;
        let bars =
            points.iter().map(|(x, y)| ErrorBar::new_vertical(*x, y.low, y.value, y.high, thin(*look), 6));
        chart.draw_series(bars).map_err(failed)?;
        draw_markers(&mut chart, points.iter().map(|(x, y)| (*x, y.value)), *look)?;
        if let Some((x, y)) = points.last() {
            let (x, y) = chart.backend_coord(&(*x, y.value));
            labels.push(Label { at: (x, y), text: (*name).to_owned(), look: *look });
        }
    }
    draw_names(area, labels)
}

/// Names in a column on the right of curves, each with a line to what it names.
pub(super) fn draw_names(area: &Area<'_>, labels: Vec<Label>) -> Result<()> {
    let column = (CURVES.0 - LABELS) as i32 + 2;
    for (label, y) in place(labels, FONT as i32 + 1, 8..CURVES.1 as i32 - 60) {
        let leader = vec![(label.at.0 + 4, label.at.1), (column - 2, y)];
        area.draw(&PathElement::new(leader, stand_in(label.look.colour).mix(0.35))).map_err(failed)?;
        area.draw(&Text::new(label.text, (column, y), name_style(label.look))).map_err(failed)?;
    }
    Ok(())
}

/// Every run of one row, a point each, by allocator: where some fall into two modes. None where none do.
pub fn distribution(summary: &Summary, row: &Row) -> Result<Option<String>> {
    let columns: Vec<(&str, &Figures)> = summary
        .allocators
        .iter()
        .zip(&row.cells)
        .filter_map(|(allocator, cell)| match cell {
            Cell::Measured(figures) => Some((allocator.name.as_str(), figures)),
            _ => None,
        })
        .collect();
    if columns.iter().all(|(_, figures)| figures.modes.is_none()) {
        return Ok(None);
    }
    let highest = columns.iter().flat_map(|(_, figures)| &figures.runs).fold(0.0_f64, |a, b| a.max(*b));
    let mut drawing = String::new();
    {
        let area = SVGBackend::with_string(&mut drawing, CURVES).into_drawing_area();
        let mut builder = ChartBuilder::on(&area);
        // The names run down the right, as those of curves do: there is no room for them below.
        builder.margin(8).margin_right(LABELS).x_label_area_size(50).y_label_area_size(84);
        let axis = Axis::linear(highest * 1.06, 1000.0);
        let mut chart = builder.build_cartesian_2d(Axis::positions(columns.len()), axis).map_err(failed)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(RGBColor(0, 0, 0).mix(0.0))
            .bold_line_style(stand_in(GRID))
            .axis_style(stand_in(FAINT))
            .label_style(text(INK))
            .x_label_formatter(&|_| String::new())
            .x_desc("one column an allocator, one point a run")
            .y_label_formatter(&|y| units::tick(Metric::Throughput, *y))
            .draw()
            .map_err(failed)?;
        let mut labels = Vec::with_capacity(columns.len());
        for (column, (name, figures)) in columns.iter().enumerate() {
            let look = Look { width: 2, ..look(name) };
            let count = figures.runs.len() as f64;
            // In the order of blocks from left to right, so that a drift is told from two modes.
            let x = |index: usize| column as f64 + ((index as f64 + 0.5) / count - 0.5) * 0.5;
            let points: Vec<(f64, f64)> =
                figures.runs.iter().enumerate().map(|(index, rate)| (x(index), *rate)).collect();
            draw_markers(&mut chart, points.iter().copied(), look)?;
            if let Some(last) = points.last() {
                labels.push(Label { at: chart.backend_coord(last), text: (*name).to_owned(), look });
            }
        }
        draw_names(&area, labels)?;
        area.present().map_err(failed)?;
    }
    let title = format!("{} on {} threads: throughput of every run", row.workload, row.threads);
    Ok(Some(svg::finish(&drawing, &title)))
}

/// One point an allocator: geometric mean of throughput against that of peak memory. None without
/// any comparison.
pub fn trade_off(summary: &Summary) -> Result<Option<String>> {
    let equal = Estimate { value: 1.0, low: 1.0, high: 1.0 };
    let points: Vec<(&str, Look, Estimate, Estimate)> = summary
        .allocators
        .iter()
        .enumerate()
        .filter_map(|(column, allocator)| {
            let name = allocator.name.as_str();
            if summary.baseline() == Some(column) {
                return Some((name, look(name), equal, equal));
            }
            Some((name, look(name), allocator.throughput?.ratio, allocator.peak_rss?.ratio))
        })
        .collect();
    if points.len() < 2 {
        return Ok(None);
    }
    let x = span(points.iter().map(|(_, _, throughput, _)| throughput));
    let y = span(points.iter().map(|(.., peak_rss)| peak_rss));
    let mut drawing = String::new();
    {
        let area = SVGBackend::with_string(&mut drawing, TRADE_OFF).into_drawing_area();
        let mut builder = ChartBuilder::on(&area);
        builder
            .margin(8)
            .margin_right(24)
            .x_label_area_size(TRADE_OFF_AXES.1)
            .y_label_area_size(TRADE_OFF_AXES.0);
        // Ratios: half and double lie equally far from equality.
        let axis = |range: &Range<f64>| Axis::logarithmic(range.start, range.end, 1000.0);
        let chart = builder.build_cartesian_2d(axis(&x), axis(&y)).map_err(failed)?;
        draw_trade_off(&area, chart, &points, x, y)?;
        area.present().map_err(failed)?;
    }
    Ok(Some(svg::finish(&drawing, "throughput against peak memory, geometric means as multiples of glibc")))
}

fn draw_trade_off(
    area: &Area<'_>,
    mut chart: Chart<'_, '_>,
    points: &[(&str, Look, Estimate, Estimate)],
    x: Range<f64>,
    y: Range<f64>,
) -> Result<()> {
    let ratio = |value: &f64| format!("{}×", units::trim(&units::significant(*value)));
    chart
        .configure_mesh()
        .light_line_style(RGBColor(0, 0, 0).mix(0.0))
        .bold_line_style(stand_in(GRID))
        .axis_style(stand_in(FAINT))
        .label_style(text(INK))
        .x_desc("throughput, as a multiple of glibc's: more is better →")
        .y_desc("← less is better: peak memory")
        .x_label_formatter(&ratio)
        .y_label_formatter(&ratio)
        .draw()
        .map_err(failed)?;
    for equality in [vec![(1.0, y.start), (1.0, y.end)], vec![(x.start, 1.0), (x.end, 1.0)]] {
        chart.draw_series(LineSeries::new(equality, stand_in(FAINT))).map_err(failed)?;
    }
    let mut labels = Vec::with_capacity(points.len());
    let mut obstacles = Vec::with_capacity(points.len() * 3);
    for (name, look, throughput, peak_rss) in points {
        let across = [(throughput.low, peak_rss.value), (throughput.high, peak_rss.value)];
        let along = [(throughput.value, peak_rss.low), (throughput.value, peak_rss.high)];
        for bar in [across, along] {
            chart.draw_series(LineSeries::new(bar, thin(*look))).map_err(failed)?;
            let [from, to] = bar.map(|end| chart.backend_coord(&end));
            // The second end lies to the right of the first, or above it.
            obstacles.push((from.0 - 1, to.1 - 1, to.0 + 1, from.1 + 1));
        }
        let point = (throughput.value, peak_rss.value);
        draw_markers(&mut chart, std::iter::once(point), *look)?;
        let at = chart.backend_coord(&point);
        obstacles.push((at.0 - 5, at.1 - 5, at.0 + 5, at.1 + 5));
        labels.push(Label { at, text: (*name).to_owned(), look: *look });
    }
    // The name that matters most chooses first.
    labels.sort_by_key(|label| std::cmp::Reverse(label.look.width));
    let (left, below) = TRADE_OFF_AXES;
    let bounds = (left as i32 + 12, 0, TRADE_OFF.0 as i32, (TRADE_OFF.1 - below) as i32);
    for (label, at) in place_around(labels, &obstacles, bounds) {
        area.draw(&Text::new(label.text, at, name_style(label.look))).map_err(failed)?;
    }
    Ok(())
}

/// From a little below the lowest to a little above the highest, equality included.
fn span<'a>(estimates: impl Iterator<Item = &'a Estimate>) -> Range<f64> {
    let (low, high) = estimates
        .fold((1.0_f64, 1.0_f64), |(low, high), estimate| (low.min(estimate.low), high.max(estimate.high)));
    low / 1.15..high * 1.15
}

fn draw_markers(
    chart: &mut Chart<'_, '_>,
    points: impl Iterator<Item = (f64, f64)>,
    look: Look,
) -> Result<()> {
    let colour = stand_in(look.colour);
    let size = 3 + look.width as i32 / 2;
    let result = match look.marker {
        Marker::Disc => chart.draw_series(points.map(|at| Circle::new(at, size, colour.filled()))).map(drop),
        Marker::Ring => {
            chart.draw_series(points.map(|at| Circle::new(at, size, colour.stroke_width(2)))).map(drop)
        }
        Marker::Triangle => {
            chart.draw_series(points.map(|at| TriangleMarker::new(at, size + 1, colour.filled()))).map(drop)
        }
    };
    result.map_err(failed)
}

pub(super) fn line(look: Look) -> ShapeStyle {
    stand_in(look.colour).stroke_width(look.width)
}

fn thin(look: Look) -> ShapeStyle {
    stand_in(look.colour).mix(0.7).stroke_width(1)
}

pub(super) fn text(colour: usize) -> TextStyle<'static> {
    ("sans-serif", FONT).into_font().color(&stand_in(colour))
}

/// Names in the colour of their curve; the project's own in bold.
fn name_style(look: Look) -> TextStyle<'static> {
    let font = ("sans-serif", FONT).into_font();
    let font = if look.width > 2 { font.style(plotters::style::FontStyle::Bold) } else { font };
    font.color(&stand_in(look.colour)).pos(Pos::new(HPos::Left, VPos::Center))
}

pub(super) fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("cannot draw a plot: {error}")
}
