//! What was measured in runs of its own, as the parts of a workload's section on the page.

use anyhow::Result;
use serde::Serialize;

use super::grids::{self, Grid};
use super::measures::{Found, Measures};
use super::memory_curves::memory_curves;
use super::units;

/// A drawing, and what it shows.
#[derive(Serialize)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// The drawing.
    pub svg: String,
}

/// One measure of one workload.
#[derive(Serialize)]
pub struct Block {
    /// Its name.
    pub title: &'static str,
    /// What the figures are.
    pub note: String,
    /// Its plots.
    pub plots: Vec<Plot>,
    /// The table that is shown at once.
    pub shown: Option<Grid>,
    /// The tables that are unfolded on demand.
    pub folded: Vec<Grid>,
    /// What they are.
    pub folded_title: &'static str,
    /// The measure, as `--measures` takes it; none for figures of the timed runs.
    pub measure: Option<&'static str>,
    /// The command that measures it again.
    pub command: String,
}

/// The measures that were taken of a workload.
///
/// # Errors
/// A plot cannot be drawn.
pub fn blocks(measures: &Measures, workload: &str) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    blocks.extend(table(
        "Latency of single calls",
        "latency",
        latency_note(measures, workload),
        grids::latency(&measures.latency, workload),
    ));
    let folded = grids::memory(&measures.memory, workload);
    if !folded.is_empty() {
        let plot = memory_curves(&measures.memory, workload)?;
        blocks.push(Block {
            title: "Memory over operations",
            note: "Resident memory (anonymous and shared, without the pages of files and without what the harness \
                   maps for itself) at fixed numbers of operations, and the bytes that the workload has asked for \
                   and not freed: one run. RSS ÷ live and RSS − live count from 1 MiB live on."
                .into(),
            plots: plot
                .map(|(threads, svg)| Plot {
                    title: format!("Memory over operations beside live bytes, on {}", units::threads(threads)),
                    svg,
                })
                .into_iter()
                .collect(),
            shown: None,
            folded,
            folded_title: "The figures of this plot, and those on fewer threads",
            measure: Some("memory"),
            command: String::new(),
        });
    }
    blocks.extend(table(
        "System calls",
        "system-calls",
        "In the measured part of one run under trace, threads and child processes included, those of the \
         harness as well: all of them, and for every 1000 operations. A tracer slows calls down: how often \
         threads wait for each other (futex) is only roughly what it is without one."
            .into(),
        grids::system_calls(&measures.system_calls, workload),
    ));
    blocks.extend(table(
        "Counters",
        "counters",
        "What the processor counted in the measured part of one run, or where it has no counters, the kernel: \
         for every 1000 operations."
            .into(),
        grids::counters(&measures.counters, workload),
    ));
    Ok(blocks)
}

/// A measure with tables alone: that of the most threads that say something is shown. None without any.
fn table(title: &'static str, measure: &'static str, note: String, mut grids: Vec<Grid>) -> Option<Block> {
    if grids.is_empty() {
        return None;
    }
    let shown = grids.iter().position(|grid| grid.gap.is_none()).unwrap_or(0);
    let shown = grids.remove(shown);
    Some(Block {
        title,
        note,
        plots: Vec::new(),
        shown: Some(shown),
        folded: grids,
        folded_title: "On other numbers of threads",
        measure: Some(measure),
        command: String::new(),
    })
}

fn latency_note(measures: &Measures, workload: &str) -> String {
    let found = measures.latency.iter().filter(|finding| finding.workload == workload);
    let figures = found.filter_map(|finding| match &finding.result {
        Found::Measured(latency) => Some((latency.runs, latency.timer_cost_ns)),
        _ => None,
    });
    let (runs, cost) =
        figures.fold((0, 0.0_f64), |(runs, cost), (more, other)| (runs.max(more), cost.max(other)));
    let mut note = "Every call in the measured part is timed.".to_owned();
    if runs > 0 {
        note += &format!(
            " Each figure contains the timer's own cost, {} here. Percentiles are medians over {runs} run{}; \
             max is the longest call of all.",
            units::nanoseconds(cost),
            if runs > 1 { "s" } else { "" }
        );
    }
    note
}
