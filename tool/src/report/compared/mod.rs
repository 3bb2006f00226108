//! The result for a program of the user's: a sentence, a table of its measures, a page.
//!
//! Ratios and verdicts are those of the [`Summary`] of any run; this adds what a workload does not have:
//! the program's own metrics, processor time, faults and switches of one run.

mod page;
mod scaling;
mod sentence;

use std::path::Path;

use ample_protocol::Measurement;
use serde::Serialize;

pub use self::scaling::Scaling;
use super::summary::{Cell, Summary};
use super::{columns, table, units};
use crate::record::{Judgement, Pass};
use crate::run::Conclusion;
use crate::stats::{MIN_BLOCKS, Metric as Axis, hodges_lehmann};
use crate::trial::{Kind, Metric, Subject};

/// Everything that is told of the program.
#[derive(Debug, Serialize)]
pub struct Compared {
    /// What to use, in a sentence or two.
    pub verdict: String,
    /// How the environment configured allocators; none where it did not.
    pub environment: Option<String>,
    /// What else a reader should know of the program.
    pub notes: Vec<String>,
    /// What stands for the speed: `time`, or the first metric.
    pub speed: Speed,
    /// The measures: heads of the columns.
    pub measures: Vec<String>,
    /// One line an allocator.
    pub lines: Vec<Line>,
    /// The ratios and verdicts.
    pub summary: Summary,
    /// How each allocator scales, where the program ran on several thread counts; the other figures are those of the most
    /// threads.
    pub scaling: Vec<Scaling>,
    /// Whether the memory is that of a server under load.
    pub server: bool,
}

/// What stands for the speed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Speed {
    /// The wall time of a run.
    Time,
    /// A metric of the program's.
    Metric(String),
}

/// One allocator's figures.
#[derive(Debug, Serialize)]
pub struct Line {
    /// Its name.
    pub allocator: String,
    /// One value a measure: Hodges–Lehmann estimates over blocks; empty where there is no number.
    pub values: Vec<f64>,
    /// The same as text.
    pub texts: Vec<String>,
}

/// One column.
struct Measure {
    head: String,
    value: Box<dyn Fn(&Measurement) -> f64>,
    text: fn(f64) -> String,
}

impl Compared {
    /// Computes everything from a run of the subject. `own` is the file that serves the program as it is,
    /// where that is not glibc.
    pub fn new(
        mut summary: Summary,
        conclusion: &Conclusion,
        subject: &Subject,
        own: Option<&Path>,
        environment: Option<String>,
        notes: Vec<String>,
    ) -> Self {
        let measures = measures(subject);
        let lines: Vec<Line> = summary
            .allocators
            .iter()
            .zip(&summary.rows[0].cells)
            .map(|(allocator, cell)| match cell {
                Cell::Measured(_) => line(&allocator.name, summary.rows[0].threads, &measures, conclusion),
                _ => Line { allocator: allocator.name.clone(), values: Vec::new(), texts: Vec::new() },
            })
            .collect();
        let speed = subject.metrics.first().map_or(Speed::Time, |metric| Speed::Metric(metric.name.clone()));
        let scaling = scaling::scaling(conclusion, &summary, subject);
        let mut verdict = sentence::sentence(&summary, &speed, &lines, own);
        if let Some(told) = scaling::told(&scaling) {
            verdict = format!("{verdict} {told}");
        }
        summary.verdict.clone_from(&verdict);
        Self {
            verdict,
            environment,
            notes,
            speed,
            measures: measures.into_iter().map(|measure| measure.head).collect(),
            lines,
            summary,
            scaling,
            server: matches!(subject.kind, Kind::Server(_)),
        }
    }

    /// How far glibc differs from itself, on each thread count; none where that was not measured.
    fn noise(&self) -> Option<String> {
        let rows = &self.summary.rows;
        let noise = rows.iter().filter_map(|row| {
            let floor = row.noise_floor?;
            let on = if rows.len() == 1 { "" } else { &format!("on {} ", units::threads(row.threads)) };
            let [speed, memory] = [floor.throughput, floor.peak_rss].map(units::floor);
            Some(format!("{on}{speed} in speed, {memory} in memory"))
        });
        let noise: Vec<String> = noise.collect();
        (!noise.is_empty()).then(|| noise.join("; "))
    }

    /// The sentence, the table and the notes, for a terminal.
    pub fn text(&self) -> String {
        let summary = &self.summary;
        let mut head = vec!["allocator".to_owned(), format!("{} × glibc", self.speed.word())];
        head.push("memory × glibc".into());
        head.extend(self.measures.iter().cloned());
        let cells: Vec<Vec<String>> = self
            .lines
            .iter()
            .zip(&summary.rows[0].cells)
            .map(|(line, cell)| {
                let mut cells = vec![line.allocator.clone()];
                cells.extend([Axis::Throughput, Axis::PeakRss].map(|axis| {
                    let base = || if line.values.is_empty() { String::new() } else { "–".into() };
                    match cell {
                        Cell::Measured(figures) => figures
                            .comparison(axis)
                            .map_or_else(base, |found| table::marked(&found, summary.blocks)),
                        Cell::Failed => "failed".into(),
                        Cell::NotMeasurable => "n/a".into(),
                        Cell::Missing => "not finished".into(),
                    }
                }));
                cells.extend(line.texts.iter().cloned());
                cells.resize(head.len(), String::new());
                cells
            })
            .collect();
        let environment = self.environment.as_ref().map_or(String::new(), |text| format!("{text}\n"));
        let mut text = format!("{}\n{environment}\n{}\n", self.verdict, columns::rows(&head, &cells, 1));
        text.push_str(&if summary.blocks >= MIN_BLOCKS {
            table::LEGEND.into()
        } else {
            format!("No verdicts: {}, and {MIN_BLOCKS} are needed.\n", units::blocks(summary.blocks))
        });
        if let Some(noise) = self.noise() {
            text.push_str(&format!("Noise floor, glibc against itself: {noise}.\n"));
        }
        text.push_str(&scaling::table(&self.scaling));
        for gap in &summary.gaps {
            let what = if gap.failed { "failed" } else { "not measurable" };
            text.push_str(&format!("{}: {what}: {}\n", gap.allocators.join(", "), gap.reason));
        }
        for note in &self.notes {
            text.push_str(&format!("Note: {note}\n"));
        }
        text
    }
}

impl Speed {
    /// The word for it in heads of columns.
    fn word(&self) -> &str {
        match self {
            Self::Time => "speed",
            Self::Metric(name) => name,
        }
    }
}

fn measures(subject: &Subject) -> Vec<Measure> {
    let plain = |head: &str, value: fn(&Measurement) -> f64, text: fn(f64) -> String| Measure {
        head: head.into(),
        value: Box::new(value),
        text,
    };
    let metric = |metric: &Metric| {
        let key = metric.key();
        Measure {
            head: metric.name.clone(),
            value: Box::new(move |measurement| measurement.extra.get(&key).copied().unwrap_or(f64::NAN)),
            text: units::significant,
        }
    };
    let server = matches!(subject.kind, Kind::Server(_));
    let mut measures: Vec<Measure> = subject.metrics.iter().map(metric).collect();
    let time = if server { "time of the load" } else { "time" };
    measures.push(plain(time, |m| m.wall_ns as f64 / 1e9, units::seconds));
    measures.push(plain("peak memory", |m| m.peak_rss_bytes as f64, units::bytes));
    if server {
        measures.push(plain("after the load", |m| m.final_rss_bytes as f64, units::bytes));
    }
    measures.push(plain("user", |m| m.user_ns as f64 / 1e9, units::seconds));
    measures.push(plain("kernel", |m| m.kernel_ns as f64 / 1e9, units::seconds));
    measures.push(plain("page faults", |m| (m.minor_faults + m.major_faults) as f64, units::count));
    let switches = |m: &Measurement| (m.voluntary_switches + m.involuntary_switches) as f64;
    measures.push(plain("switches", switches, units::count));
    measures
}

fn line(allocator: &str, threads: u32, measures: &[Measure], conclusion: &Conclusion) -> Line {
    let measured: Vec<&Measurement> = conclusion
        .samples
        .iter()
        .filter(|sample| {
            sample.pass == Pass::Timed && sample.allocator == allocator && sample.threads == threads
        })
        .filter_map(|sample| match &sample.result {
            Judgement::Measured(measurement) => Some(&**measurement),
            _ => None,
        })
        .collect();
    let values: Vec<f64> = measures
        .iter()
        .map(|measure| {
            let values: Vec<f64> = measured.iter().map(|measurement| (measure.value)(measurement)).collect();
            hodges_lehmann(&values).unwrap_or(f64::NAN)
        })
        .collect();
    let texts = measures.iter().zip(&values).map(|(measure, &value)| (measure.text)(value)).collect();
    Line { allocator: allocator.into(), values, texts }
}
