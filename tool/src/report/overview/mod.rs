//! Several runs side by side, none mixed with another.

mod page;

use serde::Serialize;

use super::{Summary, columns, table};
use crate::merge::Merged;
use crate::record::{Machine, Run, Sample};
use crate::run::recorded;

/// One run, and what it came to.
#[derive(Debug)]
pub struct Told {
    /// Its record.
    pub run: Run,
    /// Its figures.
    pub summary: Summary,
    /// Its samples.
    pub samples: Vec<Sample>,
    /// How it was put together; none where it was measured in one.
    pub note: Option<String>,
}

impl Told {
    /// Computes the figures.
    pub fn new(merged: Merged) -> Self {
        let Merged { mut run, samples, note, .. } = merged;
        let (plan, conclusion) = recorded(&run, samples.clone());
        let summary = Summary::new(&conclusion, &plan, &run.allocators, run.seed);
        if let Some(leaks) = &summary.heap_leak {
            run.fault_predictions.clone_from(&leaks.predictions);
        }
        Self { run, summary, samples, note }
    }

    /// Where and when: `host, 20260101T000000Z`.
    pub fn title(&self) -> String {
        format!("{}, {}", self.run.machine.host, self.run.started)
    }

    fn shown(&self) -> Shown<'_> {
        let Self { run, summary, note, .. } = self;
        Shown { started: &run.started, machine: &run.machine, note: note.as_deref(), summary }
    }

    fn text(&self) -> String {
        let line = |text: &String| format!("{text}\n");
        let note = self.note.as_ref().map_or(String::new(), line);
        let environment = self.run.configured_from_outside().as_ref().map_or(String::new(), line);
        let table = table::text_table(&self.summary, columns::terminal_width());
        format!("{}\n{environment}\n{note}{table}", self.summary.verdict)
    }
}

/// All runs that were asked for, in that order; one at least.
#[derive(Debug)]
pub struct Overview {
    /// The runs.
    pub runs: Vec<Told>,
}

/// A run as JSON.
#[derive(Serialize)]
struct Shown<'a> {
    started: &'a str,
    machine: &'a Machine,
    note: Option<&'a str>,
    summary: &'a Summary,
}

impl Overview {
    /// The runs as text, one after the other.
    pub fn text(&self) -> String {
        if let [only] = &self.runs[..] {
            return only.text();
        }
        let parts: Vec<String> =
            self.runs.iter().map(|told| format!("{}\n{}", told.title(), told.text())).collect();
        parts.join("\n\n")
    }

    /// The runs as a list in JSON.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(&self.runs.iter().map(Told::shown).collect::<Vec<_>>())
    }
}
