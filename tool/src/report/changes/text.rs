//! What changed, as a sentence and a table.

use super::{Change, Changes, Step};
use crate::report::comparison::Comparison;
use crate::report::{columns, table, units};
use crate::stats::{EQUIVALENT_AT_MOST, MARGIN, Verdict};

/// The result in a sentence or two.
pub(super) fn sentence(changes: &Changes) -> String {
    let rows = changes.rows.len();
    let count = |wanted: fn(&Change) -> bool| changes.rows.iter().filter(|change| wanted(change)).count();
    let mut failed = String::new();
    if !changes.fails_now.is_empty() {
        failed += "Some of what had a number fails now. ";
    }
    if !changes.gone.is_empty() {
        failed += "Some of what had a number is gone. ";
    }
    if rows == 0 {
        return failed + "No row has numbers in both runs.";
    }
    let (worse, better, undecided) =
        (count(Change::is_worse), count(Change::is_better), count(Change::is_undecided));
    let of_rows = |number: usize| format!("{number} of {rows} {}", if rows == 1 { "row" } else { "rows" });
    let main = if worse > 0 {
        format!("Worse in {}, better in {better}", of_rows(worse))
    } else if changes.means.iter().any(Change::is_worse) {
        "Worse in the geometric mean, and in no single row for certain".into()
    } else if better > 0 {
        format!("Nothing is worse; better in {}", of_rows(better))
    } else {
        "Nothing is worse, and nothing is better".into()
    };
    let undecided = match undecided {
        0 => String::new(),
        undecided => format!("; cannot tell in {undecided}, more blocks may"),
    };
    format!("{failed}{main}{undecided}.{}", noise(changes))
}

/// How much the noise of both runs hides, where that is more than the least that counts.
fn noise(changes: &Changes) -> String {
    let rows = changes.rows.iter();
    let Some(noisiest) =
        rows.max_by(|a, b| a.throughput.change.margin.total_cmp(&b.throughput.change.margin))
    else {
        return String::new();
    };
    let margin = noisiest.throughput.change.margin;
    let (Some(workload), Some(threads)) = (&noisiest.workload, noisiest.threads) else {
        return String::new();
    };
    if margin <= MARGIN {
        return String::new();
    }
    format!(" Noise hides changes of speed up to {:.0} % in {workload} × {threads}.", margin * 100.0)
}

impl Changes {
    /// The sentence, what was compared, and the table.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n\n", self.verdict);
        for (which, run) in ["before", "after"].into_iter().zip(&self.runs) {
            text += &format!("{which}: {}, {}, {}\n", run.host, run.started, units::blocks(run.blocks));
        }
        for build in &self.allocators {
            let news = if build.same { "the same file".to_owned() } else { format!("now {}", build.after) };
            text += &format!("{}: {}; {news}\n", build.name, build.before);
        }
        let head = [
            "workload",
            "threads",
            "allocator",
            "speed × glibc",
            "change",
            "",
            "memory × glibc",
            "change",
            "",
        ];
        let head = head.map(str::to_owned);
        let cells: Vec<Vec<String>> = self.rows.iter().chain(&self.means).map(cells).collect();
        text += &format!("\n{}\n", columns::rows(&head, &cells, 3));
        text += &format!(
            "Changes with intervals that hold for the whole table; ? cannot tell; = no change of more than {:.0} %, or of \
             what both runs' noise floors allow together, up to {:.0} %: ±.\n",
            MARGIN * 100.0,
            EQUIVALENT_AT_MOST * 100.0
        );
        let lists =
            [("fails now", &self.fails_now), ("gone", &self.gone), ("failed before", &self.works_now)];
        for (what, gaps) in lists {
            for gap in gaps {
                text += &format!("{what}: {gap}\n");
            }
        }
        for note in &self.notes {
            text += &format!("{note}\n");
        }
        text
    }
}

/// What counts as no change, where the noise of the runs has a say in it.
fn margin(change: &Comparison) -> String {
    if change.verdict == Verdict::Equivalent && change.margin > MARGIN {
        format!(" ±{:.0} %", change.margin.min(EQUIVALENT_AT_MOST) * 100.0)
    } else {
        String::new()
    }
}

fn cells(change: &Change) -> Vec<String> {
    let workload = change.workload.clone().unwrap_or_else(|| "geometric mean".into());
    let mut cells = vec![workload, change.threads.map_or(String::new(), |threads| threads.to_string())];
    cells.push(change.allocator.clone());
    for Step { before, after, change } in [&change.throughput, &change.peak_rss] {
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        let ratio = change.ratio;
        cells.push(format!("{} → {}", units::multiple(*before), units::multiple(*after)));
        let interval = if ratio.is_telling() {
            format!("{:+.1}, {:+.1}", percent(ratio.low), percent(ratio.high))
        } else {
            "?".into()
        };
        cells.push(format!("{:+.1} % [{interval}]", percent(ratio.value)));
        cells.push(table::verdict(change.verdict) + &margin(change));
    }
    cells
}
