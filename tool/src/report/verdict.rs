//! The sentence that a report begins with.

use super::comparison::Comparison;
use super::summary::{Overall, Summary};
use super::units;
use crate::allocators::{BASELINE, OURS};
use crate::stats::{EQUIVALENT_AT_MOST, MIN_BLOCKS, Verdict};

/// What the run says about the project's own allocator, the best one, and how far to trust it.
pub fn sentence(summary: &Summary) -> String {
    let mut sentences = Vec::new();
    let ours = summary.allocators.iter().find(|allocator| allocator.name == OURS);
    let others = if ours.is_some() { " of the others" } else { " here" };
    if let Some(ours) = ours {
        sentences.push(standing("Ample", ours, summary.blocks));
    }
    if summary.allocators.iter().all(|allocator| allocator.throughput.is_none()) {
        sentences.push(
            "There is nothing to compare: no row has numbers of both glibc and another allocator.".into(),
        );
        return sentences.join(" ");
    }
    match fastest(summary) {
        Some(best) if best.name == BASELINE => {
            sentences.push(format!("The fastest{others} is glibc itself, the baseline."));
        }
        Some(best) => {
            sentences.push(standing(&format!("The fastest{others}, {},", best.name), best, summary.blocks));
        }
        None => {}
    }
    let left_out: Vec<&str> = summary
        .allocators
        .iter()
        .filter(|allocator| allocator.name != OURS && allocator.name != BASELINE && !allocator.limit)
        .filter(|allocator| !is_complete(allocator, summary))
        .map(|allocator| allocator.name.as_str())
        .collect();
    if !left_out.is_empty() {
        sentences.push(format!("Not ranked, for want of rows: {}.", left_out.join(", ")));
    }
    if summary.blocks < MIN_BLOCKS {
        let blocks = units::blocks(summary.blocks);
        sentences.push(format!("Provisional: {blocks}; verdicts need {MIN_BLOCKS}."));
    }
    sentences.join(" ")
}

/// The allocator beside our own with the highest mean, glibc's 1 included, among those that have all
/// rows of glibc; never a limit.
fn fastest(summary: &Summary) -> Option<&Overall> {
    let ratio = |allocator: &&Overall| allocator.throughput.map_or(1.0, |comparison| comparison.ratio.value);
    let others = summary.allocators.iter().filter(|allocator| allocator.name != OURS && !allocator.limit);
    let ranked = others.filter(|allocator| is_complete(allocator, summary));
    ranked.max_by(|a, b| ratio(a).total_cmp(&ratio(b)))
}

fn is_complete(allocator: &Overall, summary: &Summary) -> bool {
    let rows = summary.comparable_rows();
    rows > 0 && (allocator.name == BASELINE || allocator.rows == rows)
}

fn standing(subject: &str, allocator: &Overall, blocks: usize) -> String {
    let (Some(throughput), Some(peak_rss)) = (allocator.throughput, allocator.peak_rss) else {
        return format!("{subject} has no row to compare with glibc's: {} failed.", allocator.failed);
    };
    let missing = match (allocator.failed, allocator.not_measurable) {
        (0, _) => String::new(),
        (1, _) => ", without 1 that failed".into(),
        (failed, _) => format!(", without {failed} that failed"),
    };
    let rows = units::rows(allocator.rows);
    format!(
        "{subject} reaches {} glibc's throughput{} at {} its peak memory{} (geometric means over {rows}{missing}).",
        interval(&throughput),
        remark(&throughput, blocks),
        interval(&peak_rss),
        remark(&peak_rss, blocks)
    )
}

fn interval(comparison: &Comparison) -> String {
    let ratio = comparison.ratio;
    let multiple = units::multiple(ratio.value);
    if ratio.is_telling() { format!("{multiple} [{}]", units::interval(ratio)) } else { multiple }
}

fn remark(comparison: &Comparison, blocks: usize) -> String {
    match comparison.verdict {
        Verdict::Equivalent => " (equivalent)".into(),
        Verdict::CannotTell if blocks >= MIN_BLOCKS && comparison.margin > EQUIVALENT_AT_MOST => format!(
            " (which may be no difference: glibc against itself differs by up to {:.0} %)",
            comparison.margin * 100.0
        ),
        Verdict::CannotTell if blocks >= MIN_BLOCKS => " (which may be no difference)".into(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocators::{Allocator, Limit};
    use crate::report::{Cell, text_table};
    use crate::run::testing::conclude;

    fn verdict(names: &[&str], blocks: usize, fastest: &str) -> String {
        let allocators: Vec<Allocator> = names.iter().map(|name| Allocator::fake(name)).collect();
        let (plan, conclusion) = conclude(&allocators, blocks, usize::MAX, |asked, measurement| {
            if asked.allocator == fastest {
                measurement.wall_ns /= 2;
            }
            None
        });
        Summary::new(&conclusion, &plan, &allocators, 1).verdict
    }

    #[test]
    fn ample_comes_first_whoever_wins() {
        let wins = verdict(&["ample", "x", "glibc"], 10, "ample");
        assert_eq!(
            wins,
            "Ample reaches 2.00× [2.00–2.00] glibc's throughput at 1.00× [1.00–1.00] its peak memory \
             (equivalent) (geometric means over 2 rows). The fastest of the others is glibc itself, the \
             baseline."
        );
        let loses = verdict(&["ample", "glibc", "x"], 10, "x");
        assert!(
            loses.starts_with("Ample reaches 1.00× [1.00–1.00] glibc's throughput (equivalent)"),
            "{loses}"
        );
        assert!(loses.contains("The fastest of the others, x, reaches 2.00×"), "{loses}");
        let behind = verdict(&["ample", "glibc"], 10, "glibc");
        assert!(behind.contains("Ample reaches 0.50×"), "{behind}");
        assert!(behind.ends_with("The fastest of the others is glibc itself, the baseline."), "{behind}");
    }

    #[test]
    fn a_limit_is_in_its_rows_and_in_no_mean_or_ranking() {
        let floor = Allocator::fake_limit("floor", Limit::AnySize);
        let allocators = [Allocator::fake("ample"), Allocator::fake("glibc"), floor];
        let (plan, conclusion) = conclude(&allocators, 10, usize::MAX, |asked, measurement| {
            if asked.allocator == "floor" {
                measurement.wall_ns /= 4;
            }
            None
        });
        let summary = Summary::new(&conclusion, &plan, &allocators, 1);
        assert!(summary.verdict.ends_with("The fastest of the others is glibc itself, the baseline."));
        assert!(!summary.verdict.contains("floor"), "{}", summary.verdict);
        let [ample, _, floor] = &summary.allocators[..] else { panic!("three") };
        assert!(ample.throughput.is_some() && !ample.limit);
        assert!(floor.limit && floor.throughput.is_none() && floor.peak_rss.is_none());
        let Cell::Measured(figures) = &summary.rows[0].cells[2] else { panic!("a number") };
        assert_eq!(figures.throughput.expect("a ratio").verdict, Verdict::Faster);
        let table = text_table(&summary, None);
        assert!(table.contains("floor (limit)") && table.contains("4.00×"), "{table}");
        let means = table.lines().find(|line| line.contains("geometric mean")).expect("a line");
        assert!(means.trim_end().ends_with('–'), "{means}");
    }

    #[test]
    fn few_blocks_are_said_to_be_few() {
        assert!(verdict(&["glibc", "x"], 3, "x").ends_with("Provisional: 3 blocks; verdicts need 10."));
        assert!(verdict(&["glibc"], 3, "x").starts_with("There is nothing to compare"));
    }
}
