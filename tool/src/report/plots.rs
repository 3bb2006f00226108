//! The plots, as SVG: curves over threads, and what all drawings share.

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
use super::labels::{Label, place};
use super::palette::{FAINT, GRID, INK, Look, Marker, look, stand_in};
use super::summary::{Cell, Row, Summary};
use super::{svg, units};
use crate::stats::{Estimate, Metric};

/// Sizes in pixels, chosen so that text can still be read when a phone scales the picture down.
pub(super) const CURVES: (u32, u32) = (480, 350);
/// Room for the axes' own labels: on the left, and below.
pub(super) const AXES: (u32, u32) = (80, 50);
/// Size of all text.
const FONT: u32 = 18;
/// Room for one character of the labels at the ends of curves, and for what leads to them.
const CHARACTER: u32 = 10;
const LEADER: u32 = 24;
/// How strong a line is that leads from a point to its name.
pub(super) const LED: f64 = 0.35;
/// Characters of a label at most; the tables have the whole name.
const LONGEST_LABEL: usize = 16;
/// Length of a dash, and of the gap behind it.
const DASH: (u32, u32) = (7, 5);
/// Highest over lowest value above which an axis is logarithmic.
const LOGARITHMIC: f64 = 12.0;
/// Name of the line of perfect scaling.
const IDEAL: &str = "ideal";

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(super) type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

/// One curve: its points by position on the x axis.
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) look: Look,
    pub(super) points: Vec<(f64, Estimate)>,
}

/// The axes of a picture of curves.
pub(super) struct Frame<'a> {
    /// What the x axis shows.
    pub(super) title: &'a str,
    /// The text at each position of the x axis.
    pub(super) positions: &'a [String],
    /// The text at each tick of the y axis.
    pub(super) tick: fn(f64) -> String,
    /// What units of the y axis are powers of.
    pub(super) base: f64,
}

/// Throughput or peak memory of one workload against threads, with the line of perfect scaling on so many CPUs beside
/// throughput. None where nothing was measured.
pub fn against_threads(
    summary: &Summary,
    workload: &str,
    rows: &[&Row],
    metric: Metric,
    cpus: usize,
) -> Result<Option<String>> {
    let mut curves = of_allocators(summary, rows, metric);
    if metric == Metric::Throughput {
        curves.extend(ideal(summary, rows, cpus));
    }
    // The widest line is drawn last, over the others.
    curves.sort_by_key(|curve| curve.look.width);
    let positions: Vec<String> = rows.iter().map(|row| row.threads.to_string()).collect();
    let (tick, base, what): (fn(f64) -> String, _, _) = match metric {
        Metric::Throughput => (|y| units::tick(Metric::Throughput, y), 1000.0, "throughput"),
        Metric::PeakRss => (|y| units::tick(Metric::PeakRss, y), 1024.0, "peak memory"),
    };
    let frame = Frame { title: "threads", positions: &positions, tick, base };
    draw(&curves, &frame, &format!("{workload}: {what} against threads"))
}

/// What the fastest allocator on one thread would reach if every further thread did as much, as long as there are
/// CPUs: that throughput on one thread. None without a row of one thread and another one.
pub(super) fn ideal_per_thread(summary: &Summary, rows: &[&Row]) -> Option<f64> {
    let single = rows.iter().find(|row| row.threads == 1).filter(|_| rows.len() > 1)?;
    let cells = summary.allocators.iter().zip(&single.cells).filter(|(allocator, _)| !allocator.limit);
    let rates = cells.filter_map(|(_, cell)| match cell {
        Cell::Measured(figures) => Some(figures.operations_per_second.value),
        _ => None,
    });
    rates.reduce(f64::max)
}

fn ideal(summary: &Summary, rows: &[&Row], cpus: usize) -> Option<Curve> {
    let single = ideal_per_thread(summary, rows)?;
    let point = |(index, row): (usize, &&Row)| {
        let value = single * (row.threads as usize).min(cpus) as f64;
        (index as f64, Estimate { value, low: value, high: value })
    };
    let look = Look { colour: FAINT, marker: Marker::None, width: 1, dashed: true };
    Some(Curve { name: IDEAL.into(), look, points: rows.iter().enumerate().map(point).collect() })
}

fn of_allocators(summary: &Summary, rows: &[&Row], metric: Metric) -> Vec<Curve> {
    let count = summary.allocators.len() as f64;
    let curve = |(column, allocator): (usize, &super::summary::Overall)| {
        // Side by side, so that error bars do not hide each other.
        let shift = ((column as f64 + 0.5) / count - 0.5) * 0.2;
        let points = rows.iter().enumerate().filter_map(|(index, row)| match &row.cells[column] {
            Cell::Measured(figures) => Some((index as f64 + shift, figures.absolute(metric).drawn())),
            _ => None,
        });
        Curve { name: allocator.name.clone(), look: look(&allocator.name), points: points.collect() }
    };
    let curves = summary.allocators.iter().enumerate().map(curve);
    curves.filter(|curve| !curve.points.is_empty()).collect()
}

/// Draws curves over positions. None without a positive value.
pub(super) fn draw(curves: &[Curve], frame: &Frame<'_>, name: &str) -> Result<Option<String>> {
    let values = curves.iter().flat_map(|curve| &curve.points).map(|(_, estimate)| estimate);
    let lowest = values.clone().map(|estimate| estimate.low).fold(f64::INFINITY, f64::min);
    let highest = values.map(|estimate| estimate.high).fold(0.0, f64::max);
    if !(lowest.is_finite() && lowest > 0.0) {
        return Ok(None);
    }
    let y = if highest / lowest > LOGARITHMIC {
        Axis::logarithmic(lowest * 0.8, highest * 1.25, frame.base)
    } else {
        Axis::linear(highest * 1.06, frame.base)
    };
    let labels = label_room(curves.iter().map(|curve| curve.name.as_str()));
    let mut drawing = String::new();
    {
        let area = SVGBackend::with_string(&mut drawing, CURVES).into_drawing_area();
        let mut builder = ChartBuilder::on(&area);
        builder.margin(8).margin_right(labels).x_label_area_size(AXES.1).y_label_area_size(AXES.0);
        let axis = Axis::positions(frame.positions.len());
        let chart = builder.build_cartesian_2d(axis, y).map_err(failed)?;
        draw_curves(&area, chart, curves, frame, labels)?;
        area.present().map_err(failed)?;
    }
    Ok(Some(svg::finish(&drawing, name)))
}

fn draw_curves(
    area: &Area<'_>,
    mut chart: Chart<'_, '_>,
    curves: &[Curve],
    frame: &Frame<'_>,
    room: u32,
) -> Result<()> {
    let position = |x: &f64| frame.positions.get(*x as usize).cloned().unwrap_or_default();
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(RGBColor(0, 0, 0).mix(0.0))
        .bold_line_style(stand_in(GRID))
        .axis_style(stand_in(FAINT))
        .label_style(text(INK))
        .x_desc(frame.title)
        .x_label_formatter(&position)
        .y_label_formatter(&|y| (frame.tick)(*y))
        .draw()
        .map_err(failed)?;
    let mut labels = Vec::with_capacity(curves.len());
    for Curve { name, look, points } in curves {
        begin_group(area, name)?;
        let (style, at) = (line(*look), points.iter().map(|(x, y)| (*x, y.value)));
        let drawn = if look.dashed {
            chart.draw_series(DashedLineSeries::new(at, DASH.0, DASH.1, style)).map(drop)
        } else {
            chart.draw_series(LineSeries::new(at, style)).map(drop)
        };
        drawn.map_err(failed)?;
        let bars = points.iter().filter(|(_, y)| y.low < y.high);
        let bars = bars.map(|(x, y)| ErrorBar::new_vertical(*x, y.low, y.value, y.high, thin(*look), 6));
        chart.draw_series(bars).map_err(failed)?;
        draw_markers(&mut chart, points.iter().map(|(x, y)| (*x, y.value)), *look)?;
        end_group(area)?;
        if let Some((x, y)) = points.last() {
            let at = chart.backend_coord(&(*x, y.value));
            labels.push(Label { at, text: name.clone(), look: *look });
        }
    }
    draw_names(area, labels, room)
}

/// Room on the right of a picture for the longest of these names.
pub(super) fn label_room<'a>(names: impl Iterator<Item = &'a str>) -> u32 {
    let longest = names.map(|name| name.chars().count().min(LONGEST_LABEL)).max().unwrap_or_default();
    LEADER + longest as u32 * CHARACTER
}

/// Names in a column on the right of curves, each with a line to what it names.
pub(super) fn draw_names(area: &Area<'_>, labels: Vec<Label>, room: u32) -> Result<()> {
    let column = (CURVES.0 - room + LEADER - 8) as i32;
    for (label, y) in place(labels, FONT as i32 + 1, 8..CURVES.1 as i32 - 60) {
        begin_group(area, &label.text)?;
        let leader = vec![(label.at.0 + 4, label.at.1), (column - 2, y)];
        area.draw(&PathElement::new(leader, stand_in(label.look.colour).mix(LED))).map_err(failed)?;
        area.draw(&Text::new(shortened(&label.text), (column, y), name_style(label.look))).map_err(failed)?;
        end_group(area)?;
    }
    Ok(())
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= LONGEST_LABEL {
        return name.to_owned();
    }
    let head: String = name.chars().take(LONGEST_LABEL - 1).collect();
    head + "…"
}

/// What is drawn from here to [`end_group`] belongs to this allocator.
pub(super) fn begin_group(area: &Area<'_>, name: &str) -> Result<()> {
    mark(area, format!("{}{name}", svg::BEGIN))
}

/// The end of what belongs to an allocator.
pub(super) fn end_group(area: &Area<'_>) -> Result<()> {
    mark(area, svg::END.to_string())
}

fn mark(area: &Area<'_>, mark: String) -> Result<()> {
    area.draw(&Text::new(mark, (0, 0), text(INK))).map_err(failed)
}

pub(super) fn draw_markers(
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
        Marker::None => Ok(()),
    };
    result.map_err(failed)
}

pub(super) fn line(look: Look) -> ShapeStyle {
    stand_in(look.colour).stroke_width(look.width)
}

pub(super) fn thin(look: Look) -> ShapeStyle {
    stand_in(look.colour).mix(0.7).stroke_width(1)
}

pub(super) fn text(colour: usize) -> TextStyle<'static> {
    ("sans-serif", FONT).into_font().color(&stand_in(colour))
}

/// Names in the colour of their curve; the project's own in bold.
pub(super) fn name_style(look: Look) -> TextStyle<'static> {
    let font = ("sans-serif", FONT).into_font();
    let font = if look.is_bold() { font.style(plotters::style::FontStyle::Bold) } else { font };
    font.color(&stand_in(look.colour)).pos(Pos::new(HPos::Left, VPos::Center))
}

pub(super) fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("cannot draw a plot: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocators::Allocator;
    use crate::run::testing::conclude;

    #[test]
    fn the_ideal_grows_with_the_threads_up_to_the_cpus() {
        let allocators = [Allocator::fake("glibc"), Allocator::fake("x")];
        let (plan, conclusion) = conclude(&allocators, 3, usize::MAX, |asked, measurement| {
            measurement.wall_ns /= if asked.allocator == "x" { 4 } else { 1 };
            None
        });
        let summary = Summary::new(&conclusion, &plan, &allocators, 1);
        let rows: Vec<&Row> = summary.rows.iter().collect();
        let values = |cpus| {
            let curve = ideal(&summary, &rows, cpus).expect("two rows");
            curve.points.iter().map(|(_, y)| y.value.round()).collect::<Vec<_>>()
        };
        assert_eq!((values(2), values(1)), (vec![4000.0, 8000.0], vec![4000.0, 4000.0]));
        assert!(ideal(&summary, &rows[..1], 2).is_none());
        let picture = |metric| {
            against_threads(&summary, "larson", &rows, metric, 2).expect("drawn").expect("a picture")
        };
        assert!(picture(Metric::Throughput).contains(">\nideal\n<"));
        assert!(!picture(Metric::PeakRss).contains("ideal"));
        assert_eq!(picture(Metric::PeakRss).matches(r#"<g data-allocator="x">"#).count(), 2);
    }

    #[test]
    fn a_long_name_is_shortened() {
        assert_eq!(shortened("glibc:mmap_threshold=1"), "glibc:mmap_thre…");
        assert_eq!(shortened("jemalloc-debian"), "jemalloc-debian");
    }
}
