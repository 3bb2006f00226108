//! The documents, as data.

use serde::Deserialize;

/// In a rule: every allocator but the baseline, limits left out.
pub const OTHERS: &str = "others";
/// In a rule: every allocator, limits left out.
pub const ANYONE: &str = "anyone";

/// The files, by preset.
pub const DOCUMENTS: &[(&str, &str)] = &[
    ("seed-000", include_str!("seed-000.json")),
    ("seed-001", include_str!("seed-001.json")),
    ("seed-002", include_str!("seed-002.json")),
    ("seed-003", include_str!("seed-003.json")),
    ("seed-004", include_str!("seed-004.json")),
];

/// What somebody measured and concluded.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// Who and when, in a few words.
    pub by: String,
    /// Who, what, where, when.
    pub source: String,
    /// On what.
    pub then: String,
    /// What it concludes.
    pub statements: Vec<Statement>,
}

/// A conclusion that can be tested.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// The conclusion.
    pub says: String,
    /// The figures that it rests on, numbered from 1.
    pub lines: Vec<Line>,
    /// When it holds.
    pub holds: Rule,
    /// What a reader should know.
    #[serde(default)]
    pub comment: String,
}

/// A figure: what the document has, and where a run has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// What it is.
    pub what: String,
    /// The document's.
    pub then: String,
    /// The unit of the run's.
    pub unit: Unit,
    /// The run's.
    pub value: Expression,
}

/// How a value is written.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    Ratio,
    Share,
    Seconds,
    Count,
    Bytes,
}

/// Where a value comes from, for each allocator.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Expression {
    /// A figure of one row.
    Figure(Term),
    /// One figure as a multiple of another.
    Ratio {
        /// The figure.
        of: Term,
        /// The other.
        to: Term,
        /// What both are divided by first.
        #[serde(default)]
        per: Per,
    },
    /// How steeply a time grows with the threads, from as many threads as CPUs on: as a multiple of the time of one thread divided
    /// by the CPUs.
    Slope {
        /// The workload.
        workload: String,
        /// The time.
        figure: String,
    },
    /// Share of the rows in which it has less throughput than the baseline.
    SlowerThanBaseline {},
    /// Share of the rows in which it is among so many with the highest throughput, limits left out.
    AmongFastest {
        /// So many.
        of: usize,
    },
    /// Rows in which its runs fall into two modes.
    RowsInTwoModes {},
}

/// What the figures of a ratio are divided by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Per {
    /// Nothing.
    #[default]
    One,
    /// Their threads.
    Thread,
    /// Threads for each CPU, where there are more threads than CPUs: what a perfect run would take longer.
    ThreadOfCpu,
}

/// A figure of one row.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Term {
    /// The row's workload.
    pub workload: String,
    /// Its threads.
    pub threads: u32,
    /// Name of the figure.
    pub figure: String,
    /// What becomes of the values of all blocks.
    #[serde(default)]
    pub reduce: Reduce,
    /// The allocator; without one, each has its own.
    #[serde(default)]
    pub allocator: Option<String>,
}

/// From the values of all blocks to one.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reduce {
    /// Their median.
    #[default]
    Median,
    /// How much larger the largest is than the least, as a share of that.
    Spread,
}

/// When a statement holds.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Numbers of the lines, from 1.
    pub lines: Vec<usize>,
    /// The allocator whose value counts, or [`OTHERS`] or [`ANYONE`].
    pub allocator: String,
    /// Least value.
    #[serde(default)]
    pub from: Option<f64>,
    /// Largest value.
    #[serde(default)]
    pub to: Option<f64>,
    /// Of several values.
    #[serde(default)]
    pub need: Need,
}

/// How many of several values must be within the bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// All of them.
    #[default]
    All,
    /// One of them.
    Any,
}

/// The document behind a preset; none for one that has none.
pub fn of_preset(preset: &str) -> Option<Document> {
    let (_, text) = DOCUMENTS.iter().find(|(name, _)| *name == preset)?;
    // A test reads them all.
    serde_json::from_str(text).ok()
}
