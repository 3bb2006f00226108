//! The sentence that a report begins with.

use super::summary::{Comparison, Overall, Summary};
use super::units::multiple;
use crate::allocators::{BASELINE, OURS};
use crate::stats::{MIN_BLOCKS, Verdict};

/// What the run says about the project's own allocator, the best one, and how far to trust it.
pub fn sentence(summary: &Summary) -> String {
    let mut sentences = Vec::new();
    let named = |name: &str| summary.allocators.iter().find(|allocator| allocator.name == name);
    let best = fastest(summary);
    if let Some(ours) = named(OURS) {
        sentences.push(standing("Ample", ours, summary.blocks));
        match best {
            Some(best) if best.name == OURS => sentences.push("No other allocator here is faster.".into()),
            Some(best) => sentences.push(standing(&format!("The fastest here, {},", best.name), best, summary.blocks)),
            None => {}
        }
    } else if let Some(best) = best {
        sentences.push(standing(&format!("The fastest here, {},", best.name), best, summary.blocks));
    }
    if sentences.is_empty() {
        sentences.push("There is nothing to compare: no allocator beside glibc has a complete row.".into());
        return sentences.concat();
    }
    let left_out: Vec<&str> = summary
        .allocators
        .iter()
        .filter(|allocator| allocator.name != OURS && allocator.name != BASELINE)
        .filter(|allocator| !is_complete(allocator, summary))
        .map(|allocator| allocator.name.as_str())
        .collect();
    if !left_out.is_empty() {
        sentences.push(format!("Not ranked, for want of rows: {}.", left_out.join(", ")));
    }
    if summary.blocks < MIN_BLOCKS {
        let blocks = if summary.blocks == 1 { "block" } else { "blocks" };
        sentences.push(format!(
            "Provisional: {} {blocks}; verdicts need {MIN_BLOCKS}.",
            summary.blocks
        ));
    }
    sentences.join(" ")
}

/// The allocator with the highest mean, glibc's 1 included, among those with all rows of glibc.
fn fastest(summary: &Summary) -> Option<&Overall> {
    let ratio = |allocator: &&Overall| allocator.throughput.map_or(1.0, |comparison| comparison.ratio.value);
    let candidates = summary.allocators.iter().filter(|allocator| is_complete(allocator, summary));
    candidates.max_by(|a, b| ratio(a).total_cmp(&ratio(b))).filter(|_| summary.allocators.len() > 1)
}

fn is_complete(allocator: &Overall, summary: &Summary) -> bool {
    let rows = summary.comparable_rows();
    rows > 0 && (allocator.name == BASELINE || allocator.rows == rows)
}

fn standing(subject: &str, allocator: &Overall, blocks: usize) -> String {
    let (Some(throughput), Some(peak_rss)) = (allocator.throughput, allocator.peak_rss) else {
        return if allocator.name == BASELINE {
            format!("{subject} is the baseline itself.")
        } else {
            format!("{subject} has no complete row beside glibc's ({} failed).", allocator.failed)
        };
    };
    let missing = match (allocator.failed, allocator.not_measurable) {
        (0, _) => String::new(),
        (1, _) => ", without 1 that failed".into(),
        (failed, _) => format!(", without {failed} that failed"),
    };
    format!(
        "{subject} reaches {} glibc's throughput{} at {} its peak memory{} (geometric means over {} rows{missing}).",
        interval(&throughput),
        remark(throughput.verdict, blocks),
        interval(&peak_rss),
        remark(peak_rss.verdict, blocks),
        allocator.rows
    )
}

fn interval(comparison: &Comparison) -> String {
    let ratio = comparison.ratio;
    format!("{} [{:.2}–{:.2}]", multiple(ratio.value), ratio.low, ratio.high)
}

fn remark(verdict: Verdict, blocks: usize) -> &'static str {
    match verdict {
        Verdict::Equivalent => " (equivalent)",
        Verdict::CannotTell if blocks >= MIN_BLOCKS => " (which may be no difference)",
        _ => "",
    }
}
