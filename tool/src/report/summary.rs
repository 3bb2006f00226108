//! From samples to the figures of a report.

use std::collections::BTreeMap;

use ample_protocol::Measurement;
use serde::Serialize;

use super::gaps::{Gap, Gaps};
use super::verdict;
use crate::allocators::{Allocator, BASELINE};
use crate::record::{Judgement, Pass, SCHEMA_VERSION, Sample};
use crate::run::{Conclusion, Entry, Plan};
use crate::stats::{Bootstrap, Estimate, MARGIN, Metric, Resamples, Verdict, judge, log_ratio};

/// The figures of a run.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// Version of this structure.
    pub schema_version: u32,
    /// The result in a sentence or two.
    pub verdict: String,
    /// Blocks that the figures come from.
    pub blocks: usize,
    /// Whether the user ended the run early.
    pub interrupted: bool,
    /// The allocators, in the order of tables.
    pub allocators: Vec<Overall>,
    /// The rows of the table.
    pub rows: Vec<Row>,
    /// What failed, and what cannot be measured here.
    pub gaps: Vec<Gap>,
}

/// An allocator over all rows.
#[derive(Debug, Serialize)]
pub struct Overall {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: Option<String>,
    /// Geometric mean of throughput as a multiple of the baseline's.
    pub throughput: Option<Comparison>,
    /// Geometric mean of peak RSS as a multiple of the baseline's.
    pub peak_rss: Option<Comparison>,
    /// Rows that went into the means.
    pub rows: usize,
    /// Rows that failed.
    pub failed: usize,
    /// Rows that cannot be measured here.
    pub not_measurable: usize,
}

/// One workload on one thread count.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The workload, as in tables.
    pub workload: String,
    /// Threads.
    pub threads: u32,
    /// One cell an allocator, in the order of [`Summary::allocators`].
    pub cells: Vec<Cell>,
}

/// One allocator in one row.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "status", rename_all = "kebab-case")]
pub enum Cell {
    /// Every sample passed its checks.
    Measured(Figures),
    /// This machine cannot give a true number.
    NotMeasurable,
    /// Something went wrong: see [`Summary::gaps`].
    Failed,
    /// The run ended before the row had a sample in every block that counts.
    Missing,
}

/// The numbers of a cell.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    /// Operations per second.
    pub operations_per_second: Estimate,
    /// Peak RSS, in bytes.
    pub peak_rss_bytes: Estimate,
    /// Throughput as a multiple of the baseline's; none for the baseline or where it has no number.
    pub throughput: Option<Comparison>,
    /// Peak RSS as a multiple of the baseline's; none for the baseline or where it has no number.
    pub peak_rss: Option<Comparison>,
}

impl Figures {
    /// The ratio to the baseline in this metric.
    pub fn comparison(&self, metric: Metric) -> Option<Comparison> {
        match metric {
            Metric::Throughput => self.throughput,
            Metric::PeakRss => self.peak_rss,
        }
    }

    /// The figure itself in this metric: operations per second, or bytes.
    pub fn absolute(&self, metric: Metric) -> Estimate {
        match metric {
            Metric::Throughput => self.operations_per_second,
            Metric::PeakRss => self.peak_rss_bytes,
        }
    }
}

impl Overall {
    /// The geometric mean of ratios in this metric.
    pub fn comparison(&self, metric: Metric) -> Option<Comparison> {
        match metric {
            Metric::Throughput => self.throughput,
            Metric::PeakRss => self.peak_rss,
        }
    }
}

/// A ratio to the baseline, and what may be said of it.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Comparison {
    /// The ratio.
    #[serde(flatten)]
    pub ratio: Estimate,
    /// The verdict.
    pub verdict: Verdict,
}

/// The value of each block, or the reason why there is none.
enum Series<'a> {
    Values(Vec<&'a Measurement>),
    Bad { failed: bool, reason: &'a str },
    Missing,
}

/// Resampled logarithms of one cell's two ratios.
struct Ratios {
    throughput: Bootstrap,
    peak_rss: Bootstrap,
}

impl Summary {
    /// Computes the figures. Incomplete blocks count only where there is no complete one.
    pub fn new(conclusion: &Conclusion, plan: &Plan, allocators: &[Allocator], seed: u64) -> Self {
        let blocks = conclusion.blocks.max(1);
        let resamples = Resamples::new(blocks, seed);
        let samples = Samples::index(&conclusion.samples, blocks);
        let baseline = allocators.iter().position(Allocator::is_baseline);
        let mut gaps = Gaps::default();
        let mut ratios: Vec<Vec<Ratios>> = allocators.iter().map(|_| Vec::new()).collect();
        let mut rows = Vec::with_capacity(plan.rows.len());
        for row in &plan.rows {
            let entry = &plan.entries[row.entry];
            let series: Vec<Series<'_>> =
                allocators.iter().map(|allocator| samples.series(allocator, entry, row.threads)).collect();
            let reference = baseline.and_then(|index| match &series[index] {
                Series::Values(values) => Some(values.as_slice()),
                _ => None,
            });
            let mut cells = Vec::with_capacity(series.len());
            for (index, (allocator, series)) in allocators.iter().zip(&series).enumerate() {
                cells.push(match series {
                    Series::Values(values) => {
                        let reference = reference.filter(|_| baseline != Some(index));
                        let ratio = reference.and_then(|reference| Ratios::of(values, reference, &resamples));
                        let figures = Figures::of(values, ratio.as_ref(), conclusion.blocks, &resamples);
                        ratios[index].extend(ratio);
                        figures.map_or(Cell::Missing, Cell::Measured)
                    }
                    Series::Bad { failed, reason } => {
                        gaps.add(&allocator.name, &entry.label, row.threads, *failed, reason);
                        if *failed { Cell::Failed } else { Cell::NotMeasurable }
                    }
                    Series::Missing => Cell::Missing,
                });
            }
            rows.push(Row { workload: entry.label.clone(), threads: row.threads, cells });
        }
        let overall = allocators.iter().zip(&ratios).enumerate().map(|(index, (allocator, ratios))| {
            let count =
                |wanted: fn(&Cell) -> bool| rows.iter().filter(|row| wanted(&row.cells[index])).count();
            let mean = |pick: fn(&Ratios) -> &Bootstrap, metric| {
                let picked: Vec<&Bootstrap> = ratios.iter().map(pick).collect();
                Bootstrap::mean_of(&picked).map(|mean| compare(&mean, metric, conclusion.blocks))
            };
            Overall {
                name: allocator.name.clone(),
                version: allocator.version.clone(),
                throughput: mean(|ratios| &ratios.throughput, Metric::Throughput),
                peak_rss: mean(|ratios| &ratios.peak_rss, Metric::PeakRss),
                rows: ratios.len(),
                failed: count(|cell| matches!(cell, Cell::Failed)),
                not_measurable: count(|cell| matches!(cell, Cell::NotMeasurable)),
            }
        });
        let mut summary = Self {
            schema_version: SCHEMA_VERSION,
            verdict: String::new(),
            blocks: conclusion.blocks,
            interrupted: conclusion.interrupted,
            allocators: overall.collect(),
            rows,
            gaps: gaps.merged(),
        };
        summary.verdict = verdict::sentence(&summary);
        summary
    }

    /// The baseline's column.
    pub fn baseline(&self) -> Option<usize> {
        self.allocators.iter().position(|allocator| allocator.name == BASELINE)
    }

    /// Rows that the baseline has a number for.
    pub fn comparable_rows(&self) -> usize {
        let Some(baseline) = self.baseline() else { return 0 };
        self.rows.iter().filter(|row| matches!(row.cells[baseline], Cell::Measured(_))).count()
    }

    /// The workloads in the order of the table, each with its rows.
    pub fn workloads(&self) -> Vec<(&str, Vec<&Row>)> {
        let mut workloads: Vec<(&str, Vec<&Row>)> = Vec::new();
        for row in &self.rows {
            match workloads.last_mut() {
                Some((name, rows)) if *name == row.workload => rows.push(row),
                _ => workloads.push((&row.workload, vec![row])),
            }
        }
        workloads
    }
}

/// Samples by allocator, workload and threads.
struct Samples<'a> {
    by_row: BTreeMap<(&'a str, &'a str, u32), Vec<&'a Sample>>,
    canaries: BTreeMap<(&'a str, &'a str), Vec<&'a Sample>>,
    probes: BTreeMap<&'a str, &'a Sample>,
    blocks: usize,
}

impl<'a> Samples<'a> {
    fn index(samples: &'a [Sample], blocks: usize) -> Self {
        let mut by_row: BTreeMap<_, Vec<&Sample>> = BTreeMap::new();
        let mut canaries: BTreeMap<_, Vec<&Sample>> = BTreeMap::new();
        let mut probes = BTreeMap::new();
        for sample in samples {
            let (allocator, workload) = (sample.allocator.as_str(), sample.workload.as_str());
            match sample.pass {
                Pass::Probe => drop(probes.insert(allocator, sample)),
                Pass::Canary => canaries.entry((allocator, workload)).or_default().push(sample),
                Pass::Timed => by_row.entry((allocator, workload, sample.threads)).or_default().push(sample),
            }
        }
        Self { by_row, canaries, probes, blocks }
    }

    /// One value a block in the order of blocks, if every sample of the row ever taken is good.
    fn series(&self, allocator: &Allocator, entry: &Entry, threads: u32) -> Series<'a> {
        let key = (allocator.name.as_str(), entry.label.as_str());
        let probe = self.probes.get(key.0).copied();
        let canaries = self.canaries.get(&key).into_iter().flatten().copied();
        let timed = self.by_row.get(&(key.0, key.1, threads)).map_or(&[][..], Vec::as_slice);
        let mut values = Vec::with_capacity(timed.len());
        for sample in probe.into_iter().chain(canaries).chain(timed.iter().copied()) {
            match &sample.result {
                Judgement::Failed { reason } => return Series::Bad { failed: true, reason },
                Judgement::NotMeasurable { reason } if sample.threads == threads => {
                    return Series::Bad { failed: false, reason };
                }
                Judgement::NotMeasurable { .. } => {}
                Judgement::Measured(measurement) => {
                    if sample.block.is_some_and(|block| block < self.blocks) {
                        values.push(&**measurement);
                    }
                }
            }
        }
        if values.len() == self.blocks { Series::Values(values) } else { Series::Missing }
    }
}

impl Ratios {
    fn of(values: &[&Measurement], reference: &[&Measurement], resamples: &Resamples) -> Option<Self> {
        let paired = |figure: fn(&Measurement) -> f64| {
            let pairs = values.iter().zip(reference);
            let logs: Option<Vec<f64>> =
                pairs.map(|(value, base)| log_ratio(figure(value), figure(base))).collect();
            Bootstrap::of(&logs?, resamples)
        };
        Some(Self { throughput: paired(throughput)?, peak_rss: paired(peak_rss)? })
    }
}

impl Figures {
    fn of(
        values: &[&Measurement],
        ratios: Option<&Ratios>,
        blocks: usize,
        resamples: &Resamples,
    ) -> Option<Self> {
        let absolute = |figure: fn(&Measurement) -> f64| {
            let logs: Option<Vec<f64>> = values.iter().map(|value| log_ratio(figure(value), 1.0)).collect();
            Some(Bootstrap::of(&logs?, resamples)?.estimate().exp())
        };
        Some(Self {
            operations_per_second: absolute(throughput)?,
            peak_rss_bytes: absolute(peak_rss)?,
            throughput: ratios.map(|ratios| compare(&ratios.throughput, Metric::Throughput, blocks)),
            peak_rss: ratios.map(|ratios| compare(&ratios.peak_rss, Metric::PeakRss, blocks)),
        })
    }
}

fn throughput(measurement: &Measurement) -> f64 {
    measurement.operations as f64 * 1e9 / measurement.wall_ns as f64
}

fn peak_rss(measurement: &Measurement) -> f64 {
    measurement.peak_rss_bytes as f64
}

fn compare(log_ratio: &Bootstrap, metric: Metric, blocks: usize) -> Comparison {
    let estimate = log_ratio.estimate();
    Comparison { ratio: estimate.exp(), verdict: judge(estimate, metric, blocks, MARGIN) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::text_table;
    use crate::run::testing::{Asked, conclude};

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
            reason: "blocks overlap".into(),
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
        let one_and_a_half = summary(10, canaries + 6 + 3, |_| None);
        assert_eq!((one_and_a_half.blocks, one_and_a_half.interrupted), (1, true));
        assert_eq!(
            figures(&one_and_a_half, 0, 0).operations_per_second.low,
            figures(&one_and_a_half, 0, 0).operations_per_second.high
        );
        let nearly_one = summary(10, canaries + 5, |_| None);
        let cells = nearly_one.rows.iter().flat_map(|row| &row.cells);
        let missing = cells.filter(|cell| matches!(cell, Cell::Missing)).count();
        assert_eq!((nearly_one.blocks, missing), (0, 1));
        assert!(nearly_one.verdict.contains("Provisional: 0 blocks"), "{}", nearly_one.verdict);
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
