use super::document::{DOCUMENTS, Expression, Line, OTHERS, Per, Term};
use super::*;
use crate::allocators::{Allocator, Limit};
use crate::run::testing::conclude;
use crate::run::{Preset, preset};

fn terms(expression: &Expression) -> Vec<(&str, u32)> {
    match expression {
        Expression::Figure(term) => vec![(term.workload.as_str(), term.threads)],
        Expression::Ratio { of, to, .. } => {
            vec![(of.workload.as_str(), of.threads), (to.workload.as_str(), to.threads)]
        }
        Expression::Slope { workload, .. } => vec![(workload.as_str(), 1)],
        Expression::SlowerThanBaseline {}
        | Expression::AmongFastest { .. }
        | Expression::RowsInTwoModes {} => Vec::new(),
    }
}

#[test]
fn every_document_can_be_read_and_speaks_of_rows_that_its_preset_has() {
    for (name, text) in DOCUMENTS {
        let document: Document = serde_json::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let preset: &Preset = preset(name).expect("a preset");
        assert!(document.statements.len() >= 4, "{name}");
        for statement in &document.statements {
            let lines = statement.lines.len();
            let rule = &statement.holds;
            assert!(
                !rule.lines.is_empty() && rule.lines.iter().all(|line| (1..=lines).contains(line)),
                "{name}: {}",
                statement.says
            );
            assert!(rule.from.is_some() || rule.to.is_some(), "{name}: {}", statement.says);
            for (workload, threads) in statement.lines.iter().flat_map(|line| terms(&line.value)) {
                let item = preset.items.iter().find(|item| item.label == workload);
                let item = item.unwrap_or_else(|| panic!("{name}: no row {workload}"));
                let of_every_machine = [1, 2, 4].as_slice();
                let counts = if item.threads.is_empty() { of_every_machine } else { item.threads };
                assert!(counts.contains(&threads), "{name}: {workload} on {threads}");
            }
        }
    }
    assert!(of_preset_exists("seed-004") && !of_preset_exists("quick"));
}

fn of_preset_exists(preset: &str) -> bool {
    document::of_preset(preset).is_some()
}

/// larson on one and two threads: `x` takes twice as long on two threads as on one, glibc as long; both on two CPUs.
fn summary() -> Summary {
    let allocators =
        [Allocator::fake("glibc"), Allocator::fake("x"), Allocator::fake_limit("floor", Limit::AnySize)];
    let mut run = 0;
    let (plan, conclusion) = conclude(&allocators, 3, usize::MAX, |asked, measurement| {
        run += 1;
        if asked.allocator == "x" && asked.threads == 2 {
            measurement.wall_ns *= 2;
        }
        measurement.extra.insert("faults".into(), 100.0);
        if asked.allocator == "x" {
            measurement.extra.insert("faults".into(), 100.0 + f64::from(run % 2) * 50.0);
        }
        None
    });
    Summary::new(&conclusion, &plan, &allocators, 1)
}

fn values(json: &str) -> Vec<Option<f64>> {
    let summary = summary();
    Evaluation { summary: &summary, cpus: 2 }.values(&serde_json::from_str(json).expect("an expression"))
}

#[test]
fn expressions_take_their_values_from_the_rows() {
    let of = |figure, threads| format!(r#"{{"workload":"larson","threads":{threads},"figure":"{figure}"}}"#);
    let ratio = |per: &str| {
        format!(r#"{{"ratio":{{"of":{},"to":{},"per":"{per}"}}}}"#, of("wall_s", 2), of("wall_s", 1))
    };
    assert_eq!(values(&ratio("one")), [Some(1.0), Some(2.0), Some(1.0)]);
    assert_eq!(values(&ratio("thread")), [Some(0.5), Some(1.0), Some(0.5)]);
    assert_eq!(values(&ratio("thread-of-cpu")), [Some(1.0), Some(2.0), Some(1.0)]);
    assert_eq!(values(&format!(r#"{{"figure":{}}}"#, of("wall_s", 3))), [None; 3]);
    let spread = r#"{"figure":{"workload":"larson","threads":1,"figure":"faults","reduce":"spread"}}"#;
    assert_eq!(values(spread)[0], Some(0.0));
    let of_glibc = r#"{"figure":{"workload":"larson","threads":2,"figure":"wall_s","allocator":"glibc"}}"#;
    assert_eq!(values(of_glibc), [Some(1.0); 3]);
    assert_eq!(values(r#"{"slower-than-baseline":{}}"#), [None, Some(0.5), Some(0.0)]);
    assert_eq!(values(r#"{"among-fastest":{"of":1}}"#), [Some(1.0), Some(0.5), None]);
    assert_eq!(values(r#"{"rows-in-two-modes":{}}"#), [Some(0.0); 3]);
    // From two threads on there is one point alone.
    assert_eq!(values(r#"{"slope":{"workload":"larson","figure":"wall_s"}}"#), [None; 3]);
}

fn answer(rule: &str) -> Answer {
    let summary = summary();
    let values = [vec![Some(1.0), Some(3.0), Some(9.0)], vec![Some(2.0), None, None]];
    judge(&serde_json::from_str(rule).expect("a rule"), &values, &summary)
}

#[test]
fn a_rule_needs_all_values_or_any_and_says_so_where_they_are_missing() {
    use Answer::{Fails, Holds, Unknown};
    assert_eq!(answer(r#"{"lines":[1],"allocator":"glibc","from":1}"#), Holds);
    assert_eq!(answer(r#"{"lines":[1,2],"allocator":"glibc","to":1.5}"#), Fails);
    assert_eq!(answer(r#"{"lines":[1,2],"allocator":"glibc","to":1.5,"need":"any"}"#), Holds);
    assert_eq!(answer(r#"{"lines":[1,2],"allocator":"x","from":2}"#), Unknown);
    assert_eq!(answer(r#"{"lines":[1,2],"allocator":"x","from":4}"#), Fails);
    assert_eq!(answer(r#"{"lines":[1],"allocator":"nobody","from":4}"#), Unknown);
    assert_eq!(answer(r#"{"lines":[1],"allocator":"others","to":3}"#), Holds, "a limit does not count");
    assert_eq!(answer(r#"{"lines":[1],"allocator":"anyone","from":9,"need":"any"}"#), Fails);
}

#[test]
fn the_rule_is_told_in_words() {
    let line = || Line {
        what: "a".into(),
        then: "b".into(),
        unit: Unit::Share,
        value: Expression::Ratio {
            of: Term {
                workload: "larson".into(),
                threads: 1,
                figure: "wall_s".into(),
                reduce: document::Reduce::Median,
                allocator: None,
            },
            to: Term {
                workload: "larson".into(),
                threads: 2,
                figure: "wall_s".into(),
                reduce: document::Reduce::Median,
                allocator: None,
            },
            per: Per::One,
        },
    };
    let statement = |allocator: &str, lines: &[usize], need| Statement {
        says: "It is so.".into(),
        lines: vec![line(), line()],
        holds: Rule { lines: lines.to_vec(), allocator: allocator.into(), from: Some(0.5), to: None, need },
        comment: String::new(),
    };
    assert_eq!(
        rule(&statement("glibc", &[2], Need::All)),
        "Holds if figure 2 is at least 50.0 % under glibc."
    );
    assert_eq!(
        rule(&statement(OTHERS, &[1, 2], Need::Any)),
        "Holds if one of figures 1, 2 is at least 50.0 % under all allocators but glibc."
    );
}

#[test]
fn a_presets_page_counts_its_answers() {
    let summary = summary();
    let found = ThenNow::new(&summary, "seed-000", 2).expect("a document");
    assert_eq!(
        found.verdict,
        "Lever & Boreham 1999, then and now: of 5 statements 0 still hold, 0 no longer do, and 5 cannot be told here."
    );
    assert_eq!(found.statements[0].lines[0].now, ["–", "–", "–"]);
    assert!(ThenNow::new(&summary, "default", 2).is_none());
}
