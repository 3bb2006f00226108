//! From samples to the figures of a report.

use ample_protocol::Measurement;

use super::behind::{Runs, behind};
use super::charges;
use super::comparison::{Floor, Ratios, compare, peak_rss};
use super::gaps::Gaps;
use super::leak::Leaks;
use super::measures::Measures;
use super::series::{Samples, Series, figures_by_name};
use super::summary::{Cell, Figures, Overall, Row, Summary};
use super::verdict;
use crate::allocators::{Allocator, BASELINE, TWIN};
use crate::record::{SCHEMA_VERSION, operations_per_second};
use crate::run::{Conclusion, Plan};
use crate::stats::{Bootstrap, Metric, Modes, Resamples, log_ratio};

impl Summary {
    /// Computes the figures. Incomplete blocks count only where there is no complete one.
    pub fn new(conclusion: &Conclusion, plan: &Plan, allocators: &[Allocator], seed: u64) -> Self {
        let blocks = conclusion.blocks.max(1);
        let resamples = Resamples::new(blocks, seed);
        let samples = Samples::index(&conclusion.samples, blocks);
        let mut gaps = Gaps::default();
        let mut rows = Vec::with_capacity(plan.rows.len());
        // By row and allocator, as the cells; and those of glibc to itself by row.
        let mut ratios: Vec<Vec<Option<Ratios>>> = Vec::with_capacity(plan.rows.len());
        let mut to_itself: Vec<Option<Ratios>> = Vec::with_capacity(plan.rows.len());
        let mut runs: Vec<Runs<'_>> = Vec::with_capacity(plan.rows.len());
        for row in &plan.rows {
            let (workload, threads) = (plan.entries[row.entry].label.as_str(), row.threads);
            let series = |allocator: &'static str| match samples.series(allocator, workload, threads) {
                Series::Values(values) => Some(values),
                _ => None,
            };
            let (reference, twin) = (series(BASELINE), series(TWIN));
            let ratio = |values: &[&Measurement]| Ratios::of(values, reference.as_deref()?, &resamples);
            let (mut cells, mut of_row, mut measured) = (Vec::new(), Vec::new(), Vec::new());
            for allocator in allocators {
                let series = samples.series(&allocator.name, workload, threads);
                of_row.push(match &series {
                    Series::Values(values) if !allocator.is_baseline() => ratio(values),
                    _ => None,
                });
                measured.push(match &series {
                    Series::Values(values) if allocator.limit.is_none() => Some(values.clone()),
                    _ => None,
                });
                cells.push(cell(series, conclusion.blocks, &resamples, |failed, reason| {
                    gaps.add(&allocator.name, workload, threads, failed, reason);
                }));
            }
            if let Series::Bad { failed, reason } = samples.series(TWIN, workload, threads) {
                gaps.add(TWIN, workload, threads, failed, &reason);
            }
            let itself = twin.and_then(|twin| ratio(&twin));
            let noise_floor = itself.as_ref().map(Ratios::floor);
            rows.push(Row { workload: workload.into(), threads, noise_floor, cells });
            ratios.push(of_row);
            runs.push(Runs { workload, threads, noise_floor, measured });
            to_itself.push(itself);
        }
        judge_rows(&mut rows, &ratios, conclusion.blocks);
        let to_itself: Vec<&Ratios> = to_itself.iter().flatten().collect();
        let noise_floor = Ratios::mean_of(&to_itself).map(|mean| mean.floor());
        let mut overall = overall(allocators, &rows, &ratios, noise_floor, conclusion.blocks);
        let behind = |metric| behind(allocators, &runs, metric, &resamples, conclusion.blocks);
        let both = behind(Metric::Throughput).into_iter().zip(behind(Metric::PeakRss));
        for (allocator, both) in overall.iter_mut().zip(both) {
            (allocator.slower, allocator.larger) = both;
        }
        let mut summary = Self {
            schema_version: SCHEMA_VERSION,
            verdict: String::new(),
            blocks: conclusion.blocks,
            blocks_run_again: conclusion.block_log.iter().filter(|block| block.run_again.is_some()).count(),
            interrupted: conclusion.interrupted,
            noise_floor,
            allocators: overall,
            rows,
            gaps: gaps.merged(),
            charges: charges::of(conclusion, plan),
            heap_leak: Leaks::find(conclusion, plan, allocators, &samples),
            measures: Measures::new(&conclusion.samples, plan, allocators),
        };
        summary.verdict = verdict::sentence(&summary);
        summary
    }
}

/// A cell, not compared with anything yet. Why there is no number goes to `note`.
fn cell(series: Series<'_>, blocks: usize, resamples: &Resamples, note: impl FnOnce(bool, &str)) -> Cell {
    match series {
        Series::Values(values) => figures(&values, resamples).map_or(Cell::Missing, |mut figures| {
            figures.modes = figures.modes.filter(|_| blocks > 0);
            Cell::Measured(figures)
        }),
        Series::Bad { failed, reason } => {
            note(failed, &reason);
            if failed { Cell::Failed } else { Cell::NotMeasurable }
        }
        Series::Missing => Cell::Missing,
    }
}

fn figures(values: &[&Measurement], resamples: &Resamples) -> Option<Figures> {
    let absolute = |figure: fn(&Measurement) -> f64| {
        let logs: Option<Vec<f64>> = values.iter().map(|value| log_ratio(figure(value), 1.0)).collect();
        Some(Bootstrap::of(&logs?, resamples)?.estimate().exp())
    };
    let runs: Vec<f64> = values.iter().map(|value| operations_per_second(value)).collect();
    Some(Figures {
        operations_per_second: absolute(operations_per_second)?,
        peak_rss_bytes: absolute(peak_rss)?,
        throughput: None,
        peak_rss: None,
        modes: Modes::find(&runs),
        values: figures_by_name(values),
    })
}

/// Judges all cells of the table: throughput, and separately peak RSS.
fn judge_rows(rows: &mut [Row], ratios: &[Vec<Option<Ratios>>], blocks: usize) {
    let floors: Vec<Option<Floor>> = rows.iter().map(|row| row.noise_floor).collect();
    let of_rows = ratios.iter().zip(floors);
    let family: Vec<_> =
        of_rows.flat_map(|(row, floor)| row.iter().flatten().map(move |r| (r, floor))).collect();
    let mut throughput = compare(&family, Metric::Throughput, blocks).into_iter();
    let mut peak_rss = compare(&family, Metric::PeakRss, blocks).into_iter();
    for (row, ratios) in rows.iter_mut().zip(ratios) {
        for (cell, _) in row.cells.iter_mut().zip(ratios).filter(|(_, ratios)| ratios.is_some()) {
            let both = (throughput.next(), peak_rss.next());
            if let Cell::Measured(figures) = cell {
                (figures.throughput, figures.peak_rss) = both;
            }
        }
    }
}

/// The allocators over all rows, their means judged together.
fn overall(
    allocators: &[Allocator],
    rows: &[Row],
    ratios: &[Vec<Option<Ratios>>],
    noise_floor: Option<Floor>,
    blocks: usize,
) -> Vec<Overall> {
    let column = |index: usize| ratios.iter().filter_map(move |row| row[index].as_ref()).collect::<Vec<_>>();
    let mean = |(index, allocator): (usize, &Allocator)| {
        allocator.limit.is_none().then(|| Ratios::mean_of(&column(index))).flatten()
    };
    let means: Vec<Option<Ratios>> = allocators.iter().enumerate().map(mean).collect();
    let family: Vec<_> = means.iter().flatten().map(|mean| (mean, noise_floor)).collect();
    let mut throughput = compare(&family, Metric::Throughput, blocks).into_iter();
    let mut peak_rss = compare(&family, Metric::PeakRss, blocks).into_iter();
    let overall = allocators.iter().zip(&means).enumerate().map(|(index, (allocator, mean))| {
        let count = |wanted: fn(&Cell) -> bool| rows.iter().filter(|row| wanted(&row.cells[index])).count();
        Overall {
            name: allocator.name.clone(),
            version: allocator.version.clone(),
            limit: allocator.limit.is_some(),
            throughput: mean.as_ref().and_then(|_| throughput.next()),
            peak_rss: mean.as_ref().and_then(|_| peak_rss.next()),
            slower: None,
            larger: None,
            rows: column(index).len(),
            failed: count(|cell| matches!(cell, Cell::Failed)),
            not_measurable: count(|cell| matches!(cell, Cell::NotMeasurable)),
        }
    });
    overall.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::gaps::Gap;
    use crate::report::text_table;
    use crate::run::testing::{Asked, conclude};
    use crate::stats::Verdict;

    /// Two allocators beside glibc on larson × 1 and 2 threads: `double` is twice as fast and needs
    /// half of the memory in every block.
    fn summary(
        blocks: usize,
        interrupt_after: usize,
        mut reason: impl FnMut(&Asked<'_>) -> Option<&'static str>,
    ) -> Summary {
        let allocators = [Allocator::fake("glibc"), Allocator::fake("double"), Allocator::fake("same")];
        let mut run = 0_u64;
        let (plan, conclusion) = conclude(&allocators, blocks, interrupt_after, |asked, measurement| {
            // A machine that gets slower all the time: only ratios within a block are stable.
            run += 1;
            measurement.wall_ns += run * 1000;
            if asked.allocator == "double" {
                measurement.wall_ns /= 2;
                measurement.peak_rss_bytes /= 2;
            }
            reason(asked).map(|reason| format!(r#"{{"outcome":"failed","reason":"{reason}"}}"#))
        });
        Summary::new(&conclusion, &plan, &allocators, 1)
    }

    fn figures(summary: &Summary, row: usize, column: usize) -> &Figures {
        match &summary.rows[row].cells[column] {
            Cell::Measured(figures) => figures,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_plain_difference_is_found_in_rows_and_means() {
        let summary = summary(10, usize::MAX, |_| None);
        assert_eq!((summary.blocks, summary.interrupted, summary.gaps.len()), (10, false, 0));
        let double = figures(&summary, 1, 1);
        let throughput = double.throughput.expect("a comparison");
        assert!((throughput.ratio.value - 2.0).abs() < 0.01, "{throughput:?}");
        assert_eq!(throughput.verdict, Verdict::Faster);
        assert_eq!(double.peak_rss.expect("a comparison").verdict, Verdict::Smaller);
        assert_eq!(double.peak_rss_bytes.value.round(), 524_288.0);
        assert_eq!(figures(&summary, 1, 2).throughput.expect("a comparison").verdict, Verdict::Equivalent);
        assert!(figures(&summary, 0, 0).throughput.is_none(), "the baseline is not compared with itself");
        let overall = &summary.allocators[1];
        assert_eq!((overall.rows, overall.failed), (2, 0));
        assert!((overall.throughput.expect("a mean").ratio.value - 2.0).abs() < 0.01);
        assert!(
            summary.verdict.starts_with("The fastest here, double, reaches 2.00×"),
            "{}",
            summary.verdict
        );
    }

    #[test]
    fn a_row_that_fails_once_has_no_number_and_counts_in_no_mean() {
        let mut seen = 0;
        let summary = summary(10, usize::MAX, |asked| {
            let row = asked.allocator == "double" && asked.threads == 2 && !asked.canary;
            seen += u32::from(row);
            (row && seen == 4).then_some("blocks overlap")
        });
        assert!(matches!(summary.rows[1].cells[1], Cell::Failed));
        let overall = &summary.allocators[1];
        assert_eq!((overall.rows, overall.failed), (1, 1));
        let gap = Gap {
            allocators: vec!["double".into()],
            workload: "larson".into(),
            threads: vec![2],
            failed: true,
            reason: "blocks overlap (after 3 runs that succeeded)".into(),
        };
        assert_eq!(summary.gaps, [gap]);
        assert!(summary.verdict.contains("Not ranked, for want of rows: double."), "{}", summary.verdict);
        let text = text_table(&summary, None);
        assert!(text.contains("double: larson, threads 2: failed: blocks overlap"), "{text}");
        assert!(text.contains("(1/2)"), "{text}");
    }

    #[test]
    fn without_a_baseline_there_are_figures_but_no_ratios() {
        let summary = summary(3, usize::MAX, |asked| (asked.allocator == "glibc").then_some("broken"));
        assert!(figures(&summary, 0, 1).throughput.is_none());
        assert_eq!(summary.allocators[1].rows, 0);
        assert!(summary.verdict.starts_with("There is nothing to compare"), "{}", summary.verdict);
        assert_eq!(summary.gaps[0].threads, [1, 2], "both rows in one line");
    }

    #[test]
    fn an_incomplete_block_counts_only_where_there_is_no_complete_one() {
        let canaries = 3;
        let one_and_a_half = summary(10, canaries + 8 + 3, |_| None);
        assert_eq!((one_and_a_half.blocks, one_and_a_half.interrupted), (1, true));
        assert!(!figures(&one_and_a_half, 0, 0).operations_per_second.is_telling(), "of one block");
        let nearly_one = summary(10, canaries + 7, |_| None);
        let cells = nearly_one.rows.iter().flat_map(|row| &row.cells);
        let missing = cells.filter(|cell| matches!(cell, Cell::Missing)).count();
        assert_eq!((nearly_one.blocks, missing), (0, 1));
        assert!(nearly_one.verdict.contains("Provisional: 0 blocks"), "{}", nearly_one.verdict);
    }

    #[test]
    fn two_modes_are_told_as_two_modes() {
        let allocators = [Allocator::fake("glibc"), Allocator::fake("x")];
        let mut run = 0_u64;
        let (plan, conclusion) = conclude(&allocators, 10, usize::MAX, |asked, measurement| {
            run += u64::from(asked.allocator == "x" && asked.threads == 2);
            let slow = asked.allocator == "x" && asked.threads == 2 && run.is_multiple_of(2);
            measurement.wall_ns += run * 10_000 + u64::from(slow) * 200_000_000;
            None
        });
        let summary = Summary::new(&conclusion, &plan, &allocators, 1);
        let modes = figures(&summary, 1, 1).modes.expect("two modes");
        assert_eq!(modes.low.runs + modes.high.runs, 10);
        assert!(figures(&summary, 1, 0).modes.is_none() && figures(&summary, 0, 1).modes.is_none());
        let text = text_table(&summary, None);
        assert!(text.contains("× ‡") && text.contains("‡ two modes: larson, threads 2, x: "), "{text}");
    }

    #[test]
    fn the_baseline_is_measured_twice_and_its_floor_is_told() {
        let summary = summary(10, usize::MAX, |_| None);
        let floor = summary.rows[0].noise_floor.expect("a floor");
        assert!(floor.throughput < 0.01 && floor.peak_rss == 0.0, "{floor:?}");
        assert!(summary.noise_floor.is_some());
        assert!(summary.allocators.iter().all(|allocator| allocator.name != TWIN));
        let text = text_table(&summary, None);
        assert!(text.contains("Noise floor: glibc differs from itself by no more than"), "{text}");
    }

    #[test]
    fn what_fails_everywhere_for_one_reason_is_told_once() {
        let summary = summary(3, usize::MAX, |asked| (asked.threads == 2).then_some("no room"));
        assert_eq!(summary.gaps.len(), 1);
        assert_eq!(summary.gaps[0].allocators, ["glibc", "double", "same"]);
        assert!(
            text_table(&summary, Some(80)).contains("every allocator: larson, threads 1, 2: failed: no room")
        );
    }
}
