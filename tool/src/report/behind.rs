//! How far each allocator is behind the best of each row: a mean hides the workload in which an allocator is bad. (E. D. Dolan &
//! J. J. Moré, "Benchmarking optimization software with performance profiles", 2002, set each solver beside the best one of each problem.)

use ample_protocol::Measurement;
use serde::Serialize;

use super::comparison::{Floor, Ratios, compare, peak_rss};
use super::units;
use crate::allocators::Allocator;
use crate::record::operations_per_second;
use crate::stats::{MIN_BLOCKS, Metric, Resamples, Verdict};

/// What was measured in a row.
pub struct Runs<'a> {
    /// The workload, as in tables.
    pub workload: &'a str,
    /// Threads.
    pub threads: u32,
    /// How far glibc differs from itself in this row; none where that was not measured.
    pub noise_floor: Option<Floor>,
    /// The measurements, one a block, by allocator; none for what has no number, and for limits.
    pub measured: Vec<Option<Vec<&'a Measurement>>>,
}

/// An allocator beside the best other one of each row, in one metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Behind {
    /// Rows in which it has a number, and another one, too.
    pub rows: usize,
    /// Those in which the best other one is better beyond the noise, the worst first.
    pub beaten: Vec<Beaten>,
}

/// A row in which another allocator is better.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Beaten {
    /// The row's workload, as in tables.
    pub workload: String,
    /// Its threads.
    pub threads: u32,
    /// The best other allocator.
    pub by: String,
    /// Time, or peak memory, as a multiple of that one's: above 1.
    pub ratio: f64,
}

impl Behind {
    /// In how many rows: `4 of 38`.
    pub fn count(&self) -> String {
        format!("{} of {}", self.beaten.len(), self.rows)
    }

    /// The worst of them: `1.23× (larson × 2, tcmalloc)`; empty where there is none.
    pub fn worst(&self) -> String {
        self.beaten.first().map_or_else(String::new, |worst| {
            let Beaten { workload, threads, by, ratio } = worst;
            format!("{} ({workload} × {threads}, {by})", units::multiple(*ratio))
        })
    }
}

/// All allocators beside the best other one of each row, judged together; none where there are too few blocks for a
/// verdict.
///
/// Which one is the best is taken from the same measurements: where several are equally good, one of them looks better than it
/// is. So more rows may be counted than there are, not fewer.
pub fn behind(
    allocators: &[Allocator],
    rows: &[Runs<'_>],
    metric: Metric,
    resamples: &Resamples,
    blocks: usize,
) -> Vec<Option<Behind>> {
    if blocks < MIN_BLOCKS {
        return vec![None; allocators.len()];
    }
    let mut pairs = Vec::new();
    for row in rows {
        for (index, own) in row.measured.iter().enumerate() {
            let Some(own) = own else { continue };
            let Some((best, theirs)) = best_other(row, index, metric) else { continue };
            let Some(ratios) = Ratios::of(own, theirs, resamples) else { continue };
            pairs.push((row, index, best, ratios));
        }
    }
    let family: Vec<_> = pairs.iter().map(|(row, _, _, ratios)| (ratios, row.noise_floor)).collect();
    let mut all = vec![Behind { rows: 0, beaten: Vec::new() }; allocators.len()];
    for ((row, index, best, _), found) in pairs.iter().zip(compare(&family, metric, blocks)) {
        let behind = &mut all[*index];
        behind.rows += 1;
        let ratio = match found.verdict {
            Verdict::Slower => 1.0 / found.ratio.value,
            Verdict::Larger => found.ratio.value,
            _ => continue,
        };
        let by = allocators[*best].name.clone();
        behind.beaten.push(Beaten { workload: row.workload.into(), threads: row.threads, by, ratio });
    }
    for behind in &mut all {
        behind.beaten.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
    }
    all.into_iter().map(|behind| (behind.rows > 0).then_some(behind)).collect()
}

/// The allocator other than this one with the highest throughput, or the smallest peak, in geometric mean.
fn best_other<'a, 'b>(
    row: &'b Runs<'a>,
    index: usize,
    metric: Metric,
) -> Option<(usize, &'b [&'a Measurement])> {
    let cost = |runs: &[&Measurement]| -> f64 {
        let figures = runs.iter().map(|run| match metric {
            Metric::Throughput => -operations_per_second(run).ln(),
            Metric::PeakRss => peak_rss(run).ln(),
        });
        figures.sum()
    };
    let others = row.measured.iter().enumerate().filter(|(other, _)| *other != index);
    let measured = others.filter_map(|(other, runs)| Some((other, runs.as_deref()?)));
    measured.min_by(|a, b| cost(a.1).total_cmp(&cost(b.1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::summary::Summary;
    use crate::run::testing::conclude;

    /// glibc, one that is twice as fast and needs twice the memory, and one that is like glibc but on two threads twice
    /// as slow.
    fn summary(blocks: usize) -> Summary {
        let allocators = ["glibc", "double", "uneven"].map(Allocator::fake);
        let mut run = 0_u64;
        let (plan, conclusion) = conclude(&allocators, blocks, usize::MAX, |asked, measurement| {
            run += 1;
            measurement.wall_ns += run * 1000;
            match asked.allocator {
                "double" => {
                    measurement.wall_ns /= 2;
                    measurement.peak_rss_bytes *= 2;
                }
                "uneven" if asked.threads == 2 => measurement.wall_ns *= 2,
                _ => {}
            }
            None
        });
        Summary::new(&conclusion, &plan, &allocators, 1)
    }

    #[test]
    fn each_is_set_beside_the_best_other_one_of_each_row() {
        let summary = summary(10);
        let told = |index: usize, metric| {
            let behind = summary.allocators[index].behind(metric).expect("enough blocks");
            (behind.count(), behind.worst())
        };
        let text = |count: &str, worst: &str| (count.to_owned(), worst.to_owned());
        assert_eq!(told(1, Metric::Throughput), text("0 of 2", ""));
        assert_eq!(told(1, Metric::PeakRss).0, "2 of 2");
        let (count, worst) = told(2, Metric::Throughput);
        assert_eq!((count.as_str(), worst.as_str()), ("2 of 2", "4.00× (larson × 2, double)"));
        assert_eq!(told(2, Metric::PeakRss), text("0 of 2", ""), "as lean as glibc");
        assert_eq!(told(0, Metric::Throughput).0, "2 of 2");
    }

    #[test]
    fn a_few_blocks_are_no_verdict() {
        let summary = summary(3);
        assert!(summary.allocators.iter().all(|allocator| allocator.behind(Metric::Throughput).is_none()));
    }
}
