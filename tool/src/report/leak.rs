//! heap-leak's page faults beside those that are predicted.

use ample_protocol::Measurement;
use serde::Serialize;

use super::series::{Samples, Series};
use super::{columns, units};
use crate::allocators::Allocator;
use crate::record::FaultPrediction;
use crate::run::{Conclusion, FAULTS, Plan, Shape, predictions};

/// heap-leak in a run: what was predicted, and what was measured.
#[derive(Debug, Serialize)]
pub struct Leaks {
    /// The predictions.
    pub predictions: Vec<FaultPrediction>,
    /// One for each row and each allocator with a number in it.
    pub rows: Vec<Leak>,
}

/// One allocator in one row. Faults are those of the whole process, as the source counts them.
#[derive(Debug, Serialize)]
pub struct Leak {
    /// The row's workload, as in tables.
    pub workload: String,
    /// Chains at the same time.
    pub threads: u32,
    /// Threads of each chain, one after the other.
    pub rounds: f64,
    /// The allocator.
    pub allocator: String,
    /// The fewest minor page faults of any run.
    pub least_faults: f64,
    /// Their mean over all runs.
    pub mean_faults: f64,
    /// The most.
    pub most_faults: f64,
    /// The faults predicted; none where the allocator has no prediction.
    pub predicted_faults: Option<f64>,
    /// The mean less what was predicted: faults for memory that got lost.
    pub leak: Option<f64>,
    /// Mean of the peak resident set, in bytes.
    pub peak_rss_bytes: f64,
    /// Mean of the resident set at the end, in bytes.
    pub final_rss_bytes: f64,
}

impl Leaks {
    /// What the predictions are.
    pub const ABOUT: &str = "Minor page faults of the whole process, predicted for t chains of r rounds from runs of \
                             a single chain (the source's, in 2000: 14 + 1.1·t·r + 127.6·t)";
    /// What the table shows.
    pub const NOTE: &str = "leak: the mean less the prediction. A fault may bring several pages: hold it against the \
                            resident memory.";

    /// None where heap-leak has no number in any row.
    pub fn find<'a>(
        conclusion: &Conclusion,
        plan: &'a Plan,
        allocators: &'a [Allocator],
        samples: &Samples<'a>,
    ) -> Option<Self> {
        let predictions = predictions(plan, allocators, &conclusion.samples);
        let mut rows = Vec::new();
        for row in &plan.rows {
            let entry = &plan.entries[row.entry];
            let Some(shape) = Shape::of(entry) else { continue };
            for allocator in allocators {
                let Series::Values(runs) = samples.series(&allocator.name, &entry.label, row.threads) else {
                    continue;
                };
                let faults: Vec<f64> = runs.iter().filter_map(|run| run.extra.get(FAULTS).copied()).collect();
                let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
                let bytes = |figure: fn(&Measurement) -> u64| {
                    mean(&runs.iter().map(|run| figure(run) as f64).collect::<Vec<_>>())
                };
                let of_allocator = predictions.iter().find(|prediction| {
                    prediction.allocator == allocator.name
                        && (prediction.blocks, prediction.size) == (shape.blocks, shape.size)
                });
                let model = of_allocator.and_then(|prediction| prediction.model);
                let predicted = model.map(|m| m.predict(row.threads.into(), shape.rounds, shape.blocks));
                let (least, most) =
                    (faults.iter().copied().reduce(f64::min), faults.iter().copied().reduce(f64::max));
                let (Some(least_faults), Some(most_faults)) = (least, most) else { continue };
                let mean_faults = mean(&faults);
                rows.push(Leak {
                    workload: entry.label.clone(),
                    threads: row.threads,
                    rounds: shape.rounds,
                    allocator: allocator.name.clone(),
                    least_faults,
                    mean_faults,
                    most_faults,
                    predicted_faults: predicted,
                    leak: predicted.map(|predicted| mean_faults - predicted),
                    peak_rss_bytes: bytes(|run| run.peak_rss_bytes),
                    final_rss_bytes: bytes(|run| run.final_rss_bytes),
                });
            }
        }
        (!rows.is_empty()).then_some(Self { predictions, rows })
    }

    /// The predictions as lines of text, and what the figures mean.
    pub fn lines(&self) -> Vec<String> {
        let formulas = self.predictions.iter().map(|prediction| {
            let FaultPrediction { allocator, blocks, size, model, reason } = prediction;
            match model {
                Some(model) => {
                    let of_blocks = model.per_block * blocks;
                    let (rounds, blocks_term) = (term(model.per_round, 2, "·t·r"), term(of_blocks, 1, "·t"));
                    format!(
                        "{allocator}: {:.1}{rounds}{blocks_term} ({blocks} blocks of {size} B)",
                        model.base
                    )
                }
                None => {
                    let reason = reason.as_deref().unwrap_or("not measured");
                    format!("{allocator}: no prediction: {reason}")
                }
            }
        });
        formulas.collect()
    }

    /// The head of the table, and its lines; the first two columns are text.
    pub fn table(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let head = ["workload", "allocator", "t", "r", "least", "mean", "most", "predicted", "leak"];
        let head = head.into_iter().chain(["peak RSS", "final RSS"]);
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".into());
        let mut last = None;
        let lines = self.rows.iter().map(|row| {
            let repeated = last.replace(&row.workload) == Some(&row.workload);
            vec![
                if repeated { String::new() } else { row.workload.clone() },
                row.allocator.clone(),
                row.threads.to_string(),
                format!("{:.0}", row.rounds),
                format!("{:.0}", row.least_faults),
                format!("{:.1}", row.mean_faults),
                format!("{:.0}", row.most_faults),
                or_dash(row.predicted_faults.map(|faults| format!("{faults:.1}"))),
                or_dash(row.leak.map(|faults| format!("{faults:+.1}"))),
                units::bytes(row.peak_rss_bytes),
                units::bytes(row.final_rss_bytes),
            ]
        });
        (head.map(str::to_owned).collect(), lines.collect())
    }

    /// What follows the tables on standard output.
    pub fn text(&self) -> String {
        let (head, lines) = self.table();
        let (formulas, table) = (self.lines().join("\n  "), columns::rows(&head, &lines, 2));
        format!("heap-leak: {}\n  {formulas}\n{table}\n{}\n", Self::ABOUT, Self::NOTE)
    }
}

/// A summand with its sign.
fn term(value: f64, decimals: usize, factors: &str) -> String {
    let sign = if value < 0.0 { '-' } else { '+' };
    format!(" {sign} {:.decimals$}{factors}", value.abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::FaultModel;

    fn leak(allocator: &str, threads: u32, predicted: Option<f64>) -> Leak {
        Leak {
            workload: "heap-leak".into(),
            threads,
            rounds: 8.0,
            allocator: allocator.into(),
            least_faults: 390.0,
            mean_faults: 399.5,
            most_faults: 410.0,
            predicted_faults: predicted,
            leak: predicted.map(|predicted| 399.5 - predicted),
            peak_rss_bytes: 4.0 * 1024.0 * 1024.0,
            final_rss_bytes: 1024.0,
        }
    }

    #[test]
    fn the_prediction_and_what_is_beyond_it_are_told() {
        let prediction = |allocator: &str, model, reason| FaultPrediction {
            allocator: allocator.into(),
            blocks: 10_000.0,
            size: 40.0,
            model,
            reason,
        };
        let model = FaultModel { base: 251.04, per_round: -0.021, per_block: 0.0132 };
        let leaks = Leaks {
            predictions: vec![
                prediction("glibc", Some(model), None),
                prediction("x", None, Some("crashed with SIGSEGV (signal 11)".into())),
            ],
            rows: vec![leak("glibc", 1, Some(382.87)), leak("x", 1, None), leak("glibc", 3, Some(410.0))],
        };
        let text = leaks.text();
        assert!(text.contains("glibc: 251.0 - 0.02·t·r + 132.0·t (10000 blocks of 40 B)"), "{text}");
        assert!(text.contains("x: no prediction: crashed with SIGSEGV (signal 11)"), "{text}");
        let (head, lines) = leaks.table();
        assert!(lines.iter().all(|line| line.len() == head.len()));
        assert_eq!(lines[0][4..9], ["390", "399.5", "410", "382.9", "+16.6"]);
        assert_eq!((lines[1][0].as_str(), &lines[1][7..9]), ("", &["–".to_owned(), "–".to_owned()][..]));
        assert_eq!((lines[2][8].as_str(), lines[2][9].as_str()), ("-10.5", "4.00 MiB"));
    }
}
