//! The plot of memory over operations, beside live bytes.

use anyhow::Result;
use plotters::chart::ChartBuilder;
use plotters::prelude::{Color as _, DashedLineSeries, IntoDrawingArea as _, LineSeries, SVGBackend};
use plotters::style::RGBColor;

use super::axis::Axis;
use super::labels::Label;
use super::measures::{Finding, Found, Memory};
use super::palette::{FAINT, GRID, INK, Look, Marker, look, stand_in};
use super::plots::{
    AXES, Area, CURVES, Chart, begin_group, draw_names, end_group, failed, label_room, line, text,
};
use super::{svg, units};
use crate::stats::Metric;

/// Lengths of the dashes of live bytes, and of what is between them, in pixels.
const DASHES: (i32, i32) = (7, 5);

/// Name of the line of live bytes.
const LIVE: &str = "live bytes";

/// One line of the plot: name, looks, and its points.
type Curve<'a> = (&'a str, Look, Vec<(f64, f64)>);

/// Resident memory of every allocator over operations, and live bytes as a dashed line, on the most
/// threads that there is a curve for, which are returned as well. None without any.
pub fn memory_curves(findings: &[Finding<Memory>], workload: &str) -> Result<Option<(u32, String)>> {
    let curves = |threads: u32| {
        let of_row = findings.iter().filter(move |f| f.workload == workload && f.threads == threads);
        of_row.filter_map(|finding| match &finding.result {
            Found::Measured(memory) if !memory.curve.is_empty() => Some((finding, memory)),
            _ => None,
        })
    };
    let counts = findings.iter().map(|finding| finding.threads);
    let Some(threads) = counts.filter(|&threads| curves(threads).next().is_some()).max() else {
        return Ok(None);
    };
    let points = |memory: &Memory, bytes: fn(&ample_protocol::CurvePoint) -> u64| {
        memory.curve.iter().map(|point| (point.operations as f64, bytes(point) as f64)).collect::<Vec<_>>()
    };
    let mut lines: Vec<Curve<'_>> = curves(threads)
        .map(|(finding, memory)| {
            (finding.allocator.as_str(), look(&finding.allocator), points(memory, |point| point.rss_bytes))
        })
        .collect();
    // The widest line is drawn last, over the others.
    lines.sort_by_key(|(_, look, _)| look.width);
    let live = curves(threads).next().map(|(_, memory)| points(memory, |point| point.live_bytes));
    let live = live.unwrap_or_default();

    let all = || lines.iter().flat_map(|(.., points)| points).chain(&live);
    let most = all().fold((1.0_f64, 1.0_f64), |most, point| (most.0.max(point.0), most.1.max(point.1)));
    let names = lines.iter().map(|(name, ..)| *name).chain([LIVE]);
    let room = label_room(names);
    let mut drawing = String::new();
    {
        let area = SVGBackend::with_string(&mut drawing, CURVES).into_drawing_area();
        let mut builder = ChartBuilder::on(&area);
        builder.margin(8).margin_right(room).x_label_area_size(AXES.1).y_label_area_size(AXES.0);
        let (x, y) = (Axis::linear(most.0, 1000.0), Axis::linear(most.1 * 1.06, 1024.0));
        let chart = builder.build_cartesian_2d(x, y).map_err(failed)?;
        draw(&area, chart, &lines, live, room)?;
        area.present().map_err(failed)?;
    }
    let name = format!(
        "{workload}: resident memory over operations on {}, beside live bytes",
        units::threads(threads)
    );
    Ok(Some((threads, svg::finish(&drawing, &name))))
}

fn draw(
    area: &Area<'_>,
    mut chart: Chart<'_, '_>,
    lines: &[Curve<'_>],
    live: Vec<(f64, f64)>,
    room: u32,
) -> Result<()> {
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(RGBColor(0, 0, 0).mix(0.0))
        .bold_line_style(stand_in(GRID))
        .axis_style(stand_in(FAINT))
        .label_style(text(INK))
        .x_desc("calls of malloc, free, realloc")
        .x_label_formatter(&|x| without_zeros(&units::count(*x)))
        .y_label_formatter(&|y| units::tick(Metric::PeakRss, *y))
        .draw()
        .map_err(failed)?;
    let mut labels = Vec::with_capacity(lines.len() + 1);
    for (name, look, points) in lines {
        begin_group(area, name)?;
        chart.draw_series(LineSeries::new(points.iter().copied(), line(*look))).map_err(failed)?;
        end_group(area)?;
        labels.extend(points.last().map(|end| Label {
            at: chart.backend_coord(end),
            text: (*name).to_owned(),
            look: *look,
        }));
    }
    let look = Look { colour: FAINT, marker: Marker::Disc, width: 2, dashed: true };
    labels.extend(live.last().map(|end| Label { at: chart.backend_coord(end), text: LIVE.into(), look }));
    let dashed = DashedLineSeries::new(live, DASHES.0, DASHES.1, line(look));
    chart.draw_series(dashed).map_err(failed)?;
    draw_names(area, labels, room)
}

/// `2 k` for `2.00 k`.
fn without_zeros(number: &str) -> String {
    match number.split_once(' ') {
        Some((digits, unit)) => format!("{} {unit}", units::trim(digits)),
        None => units::trim(number).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ample_protocol::CurvePoint;

    fn finding(threads: u32, allocator: &str, curve: Vec<CurvePoint>) -> Finding<Memory> {
        let memory = Memory { peak_rss_to_live: None, peak_rss_minus_live_bytes: None, curve };
        let result = Found::Measured(memory);
        Finding { workload: "larson".into(), threads, allocator: allocator.into(), result }
    }

    #[test]
    fn every_allocator_and_the_live_bytes_are_on_it_and_the_most_threads_count() {
        let point = |index| CurvePoint { operations: index, live_bytes: index << 20, rss_bytes: index << 21 };
        let curve: Vec<_> = (1..=100).map(point).collect();
        let findings = [
            finding(1, "other", curve.clone()),
            finding(2, "glibc", curve.clone()),
            finding(2, "ample", curve),
            finding(4, "glibc", Vec::new()),
        ];
        let (threads, plot) = memory_curves(&findings, "larson").expect("drawn").expect("a plot");
        assert_eq!(threads, 2);
        for name in ["glibc", "ample", "live bytes"] {
            assert!(plot.contains(&format!("{name}\n")), "{name}: {plot}");
        }
        assert!(!plot.contains("other"));
        assert!(memory_curves(&findings, "nothing").expect("drawn").is_none());
    }
}
