//! Then and now: what the document behind a preset found, and what the run says of it today.
//!
//! Each document is a file of data beside this module: its statements, the figures that it gave for them, where the
//! same figures are in a run, and between which bounds they must lie for a statement to hold.

mod document;
mod evaluate;

use serde::Serialize;

use super::palette::{COLOURS, look};
use super::summary::Summary;
use super::units;
use document::{Document, Need, Rule, Statement, Unit};
use evaluate::Evaluation;

/// A document and a run side by side, as text.
#[derive(Debug, Serialize)]
pub struct ThenNow {
    /// The document.
    pub source: String,
    /// On what it measured.
    pub then: String,
    /// How many of its statements hold.
    pub verdict: String,
    columns: Vec<Column>,
    statements: Vec<Answered>,
}

#[derive(Debug, Serialize)]
struct Column {
    allocator: String,
    title: String,
    colour: &'static str,
}

/// A statement, and whether it still holds.
#[derive(Debug, Serialize)]
struct Answered {
    says: String,
    answer: Answer,
    word: &'static str,
    rule: String,
    comment: String,
    lines: Vec<Figures>,
}

/// A figure then and now.
#[derive(Debug, Serialize)]
struct Figures {
    what: String,
    then: String,
    now: Vec<String>,
}

/// Whether a statement holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Holds,
    Fails,
    Unknown,
}

impl Answer {
    fn word(self) -> &'static str {
        match self {
            Self::Holds => "still holds",
            Self::Fails => "no longer holds",
            Self::Unknown => "cannot be told here",
        }
    }
}

impl ThenNow {
    /// The document of this preset beside the run on so many CPUs; none for a preset without one.
    pub fn new(summary: &Summary, preset: &str, cpus: usize) -> Option<Self> {
        let document = document::of_preset(preset)?;
        Some(Self::of(document, &Evaluation { summary, cpus }))
    }

    fn of(document: Document, evaluation: &Evaluation<'_>) -> Self {
        let columns = evaluation.summary.allocators.iter().map(|allocator| Column {
            allocator: allocator.name.clone(),
            title: allocator.title(),
            colour: COLOURS[look(&allocator.name).colour].name,
        });
        let statements: Vec<Answered> =
            document.statements.into_iter().map(|statement| answered(statement, evaluation)).collect();
        let count = |answer| statements.iter().filter(|statement| statement.answer == answer).count();
        let verdict = format!(
            "{}, then and now: of {} statements {} still hold{}, {} no longer do{}, and {} cannot be told here.",
            document.by,
            statements.len(),
            count(Answer::Holds),
            if count(Answer::Holds) == 1 { "s" } else { "" },
            count(Answer::Fails),
            if count(Answer::Fails) == 1 { "es" } else { "" },
            count(Answer::Unknown)
        );
        Self { source: document.source, then: document.then, verdict, columns: columns.collect(), statements }
    }
}

fn answered(statement: Statement, evaluation: &Evaluation<'_>) -> Answered {
    let values: Vec<Vec<Option<f64>>> =
        statement.lines.iter().map(|line| evaluation.values(&line.value)).collect();
    let answer = judge(&statement.holds, &values, evaluation.summary);
    let rule = rule(&statement);
    let figures = statement.lines.into_iter().zip(values).map(|(line, values)| Figures {
        now: values
            .into_iter()
            .map(|value| value.map_or_else(|| "–".into(), |v| text(line.unit, v)))
            .collect(),
        what: line.what,
        then: line.then,
    });
    Answered {
        says: statement.says,
        answer,
        word: answer.word(),
        rule,
        comment: statement.comment,
        lines: figures.collect(),
    }
}

/// Whether the values of the rule's lines lie within its bounds.
fn judge(rule: &Rule, values: &[Vec<Option<f64>>], summary: &Summary) -> Answer {
    let columns: Vec<usize> = summary
        .allocators
        .iter()
        .enumerate()
        .filter(|(column, allocator)| match rule.allocator.as_str() {
            document::OTHERS => !allocator.limit && summary.baseline() != Some(*column),
            document::ANYONE => !allocator.limit,
            name => allocator.name == name,
        })
        .map(|(column, _)| column)
        .collect();
    let within =
        |value: f64| rule.from.is_none_or(|from| value >= from) && rule.to.is_none_or(|to| value <= to);
    let of_line = |line: &usize| columns.iter().map(|&column| values[line - 1][column]).collect::<Vec<_>>();
    let cells = rule.lines.iter().flat_map(of_line);
    let answers: Vec<Option<bool>> = cells.map(|value| value.map(within)).collect();
    let decisive = rule.need == Need::Any;
    if answers.contains(&Some(decisive)) {
        return if decisive { Answer::Holds } else { Answer::Fails };
    }
    match answers.is_empty() || answers.contains(&None) {
        true => Answer::Unknown,
        false if decisive => Answer::Fails,
        false => Answer::Holds,
    }
}

/// The rule in words.
fn rule(Statement { lines, holds, .. }: &Statement) -> String {
    let unit = lines[holds.lines[0] - 1].unit;
    let bounds = match (holds.from, holds.to) {
        (Some(from), Some(to)) => format!("from {} to {}", text(unit, from), text(unit, to)),
        (Some(from), None) => format!("at least {}", text(unit, from)),
        (None, Some(to)) => format!("at most {}", text(unit, to)),
        (None, None) => "there".into(),
    };
    let numbers: Vec<String> = holds.lines.iter().map(usize::to_string).collect();
    let figure = match (numbers.as_slice(), holds.need) {
        ([number], _) => format!("figure {number}"),
        (_, Need::All) => format!("each of figures {}", numbers.join(", ")),
        (_, Need::Any) => format!("one of figures {}", numbers.join(", ")),
    };
    let who = match (holds.allocator.as_str(), holds.need) {
        (document::OTHERS, _) => "all allocators but glibc".into(),
        (document::ANYONE, Need::Any) => "any allocator".into(),
        (document::ANYONE, Need::All) => "all allocators".into(),
        (name, _) => name.to_owned(),
    };
    format!("Holds if {figure} is {bounds} under {who}.")
}

fn text(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Ratio => units::multiple(value),
        Unit::Share => units::percent(value),
        Unit::Seconds => units::seconds(value),
        Unit::Count => units::trim(&units::count((value * 100.0).round() / 100.0)).to_owned(),
        Unit::Bytes => units::bytes(value),
    }
}

#[cfg(test)]
mod tests;
