//! The trade-off: a point for each allocator, and the frontier.

use std::ops::Range;

use anyhow::Result;
use plotters::chart::ChartBuilder;
use plotters::prelude::{Color as _, IntoDrawingArea as _, LineSeries, PathElement, SVGBackend, Text};
use plotters::style::RGBColor;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::Axis;
use super::frontier::staircase;
use super::labels::{End, Label, leader, place_around};
use super::palette::{FAINT, GRID, INK, Look, look, stand_in};
use super::plots::{Area, Chart, LED, begin_group, draw_markers, end_group, failed, name_style, text, thin};
use super::summary::Summary;
use super::{svg, units};
use crate::stats::Estimate;

/// Size in pixels.
const PICTURE: (u32, u32) = (500, 420);
/// Room for the labels of its axes: on the left, and below.
const AXES: (u32, u32) = (78, 54);

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
            Some((name, look(name), allocator.throughput?.ratio.drawn(), allocator.peak_rss?.ratio.drawn()))
        })
        .collect();
    if points.len() < 2 {
        return Ok(None);
    }
    let x = span(points.iter().map(|(_, _, throughput, _)| throughput));
    let y = span(points.iter().map(|(.., peak_rss)| peak_rss));
    let mut drawing = String::new();
    {
        let area = SVGBackend::with_string(&mut drawing, PICTURE).into_drawing_area();
        let mut builder = ChartBuilder::on(&area);
        builder.margin(8).margin_right(24).x_label_area_size(AXES.1).y_label_area_size(AXES.0);
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
        .x_desc("throughput × glibc: more is better →")
        .y_desc("← less is better: peak memory × glibc")
        .x_label_formatter(&ratio)
        .y_label_formatter(&ratio)
        .draw()
        .map_err(failed)?;
    for equality in [vec![(1.0, y.start), (1.0, y.end)], vec![(x.start, 1.0), (x.end, 1.0)]] {
        chart.draw_series(LineSeries::new(equality, stand_in(GRID).stroke_width(2))).map_err(failed)?;
    }
    let middles: Vec<(f64, f64)> =
        points.iter().map(|(.., throughput, peak_rss)| (throughput.value, peak_rss.value)).collect();
    let frontier = staircase(&middles, x.start, y.end);
    let corners: Vec<(i32, i32)> = frontier.iter().map(|corner| chart.backend_coord(corner)).collect();
    chart.draw_series(LineSeries::new(frontier, stand_in(FAINT).stroke_width(2))).map_err(failed)?;
    let mut labels = Vec::with_capacity(points.len());
    let mut obstacles = Vec::with_capacity(points.len() * 5);
    // Each step leads to the right or upwards.
    let steps = corners.windows(2).map(|step| (step[0].0 - 2, step[1].1 - 2, step[1].0 + 2, step[0].1 + 2));
    obstacles.extend(steps);
    for (name, look, throughput, peak_rss) in points {
        begin_group(area, name)?;
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
        end_group(area)?;
        let at = chart.backend_coord(&point);
        obstacles.push((at.0 - 5, at.1 - 5, at.0 + 5, at.1 + 5));
        labels.push(Label { at, text: (*name).to_owned(), look: *look });
    }
    // The name that matters most chooses first.
    labels.sort_by_key(|label| std::cmp::Reverse(label.look.width));
    let (left, below) = AXES;
    let bounds = (left as i32 + 12, 0, PICTURE.0 as i32, (PICTURE.1 - below) as i32);
    for (label, at, end) in place_around(labels, &obstacles, bounds) {
        begin_group(area, &label.text)?;
        if let Some(line) = leader(label.at, at) {
            let style = stand_in(label.look.colour).mix(LED);
            area.draw(&PathElement::new(line.to_vec(), style)).map_err(failed)?;
        }
        let side = if end == End::Left { HPos::Left } else { HPos::Right };
        let style = name_style(label.look).pos(Pos::new(side, VPos::Center));
        area.draw(&Text::new(label.text, at, style)).map_err(failed)?;
        end_group(area)?;
    }
    Ok(())
}

/// From a little below the lowest to a little above the highest, equality included.
fn span<'a>(estimates: impl Iterator<Item = &'a Estimate>) -> Range<f64> {
    let (low, high) = estimates
        .fold((1.0_f64, 1.0_f64), |(low, high), estimate| (low.min(estimate.low), high.max(estimate.high)));
    low / 1.15..high * 1.15
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocators::Allocator;
    use crate::run::testing::conclude;

    #[test]
    fn names_that_crowd_around_one_point_are_led_to_it() {
        let leaders = |names: &[&str]| {
            let allocators: Vec<Allocator> = names.iter().map(|name| Allocator::fake(name)).collect();
            let (plan, conclusion) = conclude(&allocators, 3, usize::MAX, |_, _| None);
            let summary = Summary::new(&conclusion, &plan, &allocators, 1);
            let drawing = trade_off(&summary).expect("drawn").expect("a picture");
            drawing.matches(r#"opacity="0.35""#).count()
        };
        assert_eq!(leaders(&["glibc", "x"]), 0);
        assert!(leaders(&["glibc", "x", "y", "z", "v", "w"]) >= 2);
    }
}
