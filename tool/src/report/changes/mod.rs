//! What changed between two runs: the ratios to glibc of the one compared with those of the other.
//!
//! Within each run ratios are paired by block, so that what slows down a whole machine for a while is in both
//! sides of each. The blocks of two runs have nothing in common: whether the two estimates differ is judged by their
//! errors, added up as those of two samples. All rows are judged together (Holm), and a
//! change counts from 2 % on, or from where both runs' noise floors together are exceeded.

mod held;
mod text;

use serde::Serialize;

use super::comparison::Comparison;
use super::gaps::Gap;
use crate::merge::Merged;
use crate::record::Run;
use crate::stats::Verdict;

pub use held::Incomparable;

/// What changed.
#[derive(Debug, Serialize)]
pub struct Changes {
    /// The result in a sentence or two.
    pub verdict: String,
    /// Whether anything is worse.
    pub worse: bool,
    /// What the runs are: the older, the newer.
    pub runs: [Side; 2],
    /// The allocators that are in both runs, but for the baseline and limits.
    pub allocators: Vec<Build>,
    /// One for each allocator in each row that has a number in both runs.
    pub rows: Vec<Change>,
    /// Geometric means over these rows, one for each allocator.
    pub means: Vec<Change>,
    /// What has a number in the older run, and failed in the newer.
    pub fails_now: Vec<Gap>,
    /// What has a number in the older run, and in the newer none that could be held against it, without having
    /// failed: it cannot be measured there, or was not.
    pub gone: Vec<Gap>,
    /// What failed in the older run, and has a number in the newer.
    pub works_now: Vec<Gap>,
    /// What a reader should know besides.
    pub notes: Vec<String>,
}

/// One of the two runs.
#[derive(Debug, Serialize)]
pub struct Side {
    /// Its host.
    pub host: String,
    /// Its start, in UTC.
    pub started: String,
    /// Its complete blocks.
    pub blocks: usize,
}

/// An allocator, as it was and as it is.
#[derive(Debug, Serialize)]
pub struct Build {
    /// Its name.
    pub name: String,
    /// What it was: version, commit, build id.
    pub before: String,
    /// What it is.
    pub after: String,
    /// Whether the file is the same.
    pub same: bool,
}

/// One allocator in one row, or over all of them.
#[derive(Debug, Serialize)]
pub struct Change {
    /// The workload; none for the mean.
    pub workload: Option<String>,
    /// Threads; none for the mean.
    pub threads: Option<u32>,
    /// The allocator.
    pub allocator: String,
    /// Throughput.
    pub throughput: Step,
    /// Peak resident memory.
    pub peak_rss: Step,
}

/// A change in one metric.
#[derive(Debug, Serialize)]
pub struct Step {
    /// As a multiple of glibc's, in the older run.
    pub before: f64,
    /// As a multiple of glibc's, in the newer run.
    pub after: f64,
    /// The second as a multiple of the first, and what may be said of that.
    #[serde(flatten)]
    pub change: Comparison,
}

impl Change {
    /// Whether the newer run is worse here.
    fn is_worse(&self) -> bool {
        self.verdicts().iter().any(|verdict| matches!(verdict, Verdict::Slower | Verdict::Larger))
    }

    /// Whether the newer run is better here, and worse in nothing.
    fn is_better(&self) -> bool {
        let better = |verdict: &Verdict| matches!(verdict, Verdict::Faster | Verdict::Smaller);
        !self.is_worse() && self.verdicts().iter().any(better)
    }

    fn is_undecided(&self) -> bool {
        self.verdicts().contains(&Verdict::CannotTell)
    }

    fn verdicts(&self) -> [Verdict; 2] {
        [self.throughput.change.verdict, self.peak_rss.change.verdict]
    }
}

impl Changes {
    /// Holds the newer run against the older one; only these allocators, where they are named.
    ///
    /// Fails where nothing could be said, however the figures are.
    pub fn new(older: &Merged, newer: &Merged, only: Option<&[String]>) -> Result<Self, Incomparable> {
        let mut changes = held::hold(older, newer, only)?;
        let (rows, means) = (&changes.rows, &changes.means);
        changes.worse = !changes.fails_now.is_empty() || rows.iter().chain(means).any(Change::is_worse);
        changes.verdict = text::sentence(&changes);
        Ok(changes)
    }
}

fn side(run: &Run, blocks: usize) -> Side {
    Side { host: run.machine.host.clone(), started: run.started.clone(), blocks }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocators::Allocator;
    use crate::record::{Judgement, Pass};
    use crate::run::testing::{Asked, conclude_from, run_of};

    /// A run of twelve blocks under glibc and x, whose time is so many times glibc's, with a spread of 1 % that
    /// goes its own ways in runs of another seed.
    fn merged(share: f64, seed: u64, blocks: usize, failing: bool) -> Merged {
        let allocators = [Allocator::fake("glibc"), Allocator::fake("x")];
        let mut state = seed;
        let deviate = |asked: &Asked<'_>, measurement: &mut ample_protocol::Measurement| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let noise = 1.0 + ((state >> 40) as f64 / f64::from(1 << 24) - 0.5) / 50.0;
            let factor = if asked.allocator == "x" { share * noise } else { noise };
            measurement.wall_ns = (measurement.wall_ns as f64 * factor) as u64;
            let bad = failing && asked.allocator == "x" && asked.threads == 2;
            bad.then(|| r#"{"outcome":"failed","reason":"broken"}"#.to_owned())
        };
        let (samples, conclusion) = conclude_from(Vec::new(), &[], &allocators, blocks, usize::MAX, deviate);
        Merged { run: run_of(&allocators, &conclusion), samples, folders: Vec::new(), note: None }
    }

    fn changes(older: &Merged, newer: &Merged) -> Changes {
        Changes::new(older, newer, None).unwrap_or_else(|reasons| panic!("{reasons:?}"))
    }

    #[test]
    fn what_is_slower_is_worse_and_what_is_faster_is_not() {
        let (before, after) = (merged(0.8, 1, 12, false), merged(0.88, 2, 12, false));
        let slower = changes(&before, &after);
        assert!(slower.worse && slower.rows.len() == 2, "{slower:?}");
        let step = &slower.rows[0].throughput;
        assert!((step.before - 1.25).abs() < 0.02 && (step.change.ratio.value - 0.8 / 0.88).abs() < 0.02);
        assert_eq!(step.change.verdict, Verdict::Slower);
        assert_eq!(slower.rows[0].peak_rss.change.verdict, Verdict::Equivalent);
        assert!(
            slower.verdict.starts_with("Worse in 2 of 2 rows, better in 0. Noise hides"),
            "{}",
            slower.verdict
        );
        assert_eq!(slower.notes, [""; 0]);
        let mut after = after;
        after.run.inherited_environment.insert("MALLOC_ARENA_MAX".into(), "1".into());
        let faster = changes(&after, &before);
        assert_eq!(faster.notes, ["environment variable MALLOC_ARENA_MAX: only in the first"]);
        assert!(!faster.worse, "{faster:?}");
        assert_eq!(faster.means[0].throughput.change.verdict, Verdict::Faster);
    }

    #[test]
    fn nothing_changed_between_two_runs_of_one_thing() {
        for seed in 1..6 {
            let same = changes(&merged(0.8, seed, 12, false), &merged(0.8, seed + 100, 14, false));
            assert!(!same.worse, "{same:?}");
        }
    }

    #[test]
    fn what_fails_now_is_worse_and_what_works_now_is_told() {
        let (whole, broken) = (merged(0.8, 1, 12, false), merged(0.8, 2, 12, true));
        let fails = changes(&whole, &broken);
        assert!(fails.worse && fails.rows.is_empty() && fails.fails_now.len() == 1, "{fails:?}");
        let works = changes(&broken, &whole);
        assert!(!works.worse && works.works_now.len() == 1, "{works:?}");
    }

    /// The same run, in which these samples have another result.
    fn but(mut merged: Merged, allocator: &str, threads: u32, result: &Judgement) -> Merged {
        for sample in &mut merged.samples {
            if sample.allocator == allocator && sample.threads == threads && sample.pass == Pass::Timed {
                sample.result = result.clone();
            }
        }
        merged
    }

    fn gap(allocators: &[&str], failed: bool, reason: &str) -> Gap {
        Gap {
            allocators: allocators.iter().map(|&name| name.to_owned()).collect(),
            workload: "larson".into(),
            threads: vec![2],
            failed,
            reason: reason.into(),
        }
    }

    #[test]
    fn a_baseline_that_fails_now_is_worse_and_takes_no_row_away_silently() {
        let broken = Judgement::Failed { reason: "broken".into() };
        let older = merged(0.8, 1, 12, false);
        let found = changes(&older, &but(merged(0.8, 2, 12, false), "glibc", 2, &broken));
        assert!(found.worse && found.rows.len() == 1, "{found:?}");
        assert_eq!(found.fails_now, [gap(&["glibc"], true, "broken")]);
        assert_eq!(found.gone, [gap(&["x"], false, "glibc has no number there in the newer run")]);
        assert!(
            found.verdict.starts_with("Some of what had a number fails now. Some of"),
            "{}",
            found.verdict
        );
    }

    #[test]
    fn what_is_not_measured_or_not_measurable_any_more_is_listed() {
        let older = merged(0.8, 1, 12, false);
        let unable = Judgement::NotMeasurable { reason: "one core".into() };
        let found = changes(&older, &but(merged(0.8, 1, 12, false), "x", 2, &unable));
        assert_eq!((found.worse, &found.gone[..]), (false, &[gap(&["x"], false, "one core")][..]));
        let mut less = merged(0.8, 1, 12, false);
        less.run.workloads[0].threads = vec![1];
        let found = changes(&older, &less);
        assert_eq!(found.gone, [gap(&["glibc", "x"], false, "not measured in the newer run")]);
        assert!(
            found.verdict.starts_with("Some of what had a number is gone. Nothing is worse"),
            "{}",
            found.verdict
        );
        let told = "gone: glibc, x: larson, threads 2: not measured in the newer run";
        assert!(found.text().contains(told), "{}", found.text());
        assert!(changes(&less, &older).gone.is_empty(), "new rows are no loss");
    }

    #[test]
    fn where_no_row_is_left_the_runs_say_nothing_about_each_other() {
        let older = merged(0.8, 1, 12, false);
        let mut without = merged(0.8, 2, 12, false);
        without.samples.retain(|sample| sample.allocator != "x");
        without.run.block_log.clear();
        let line = refused(&older, &without, None);
        let gone = "x: larson, threads 1, 2: not measured in every block of the newer run";
        assert!(line.contains("no row in common") && line.contains(gone), "{line}");
    }

    fn refused(older: &Merged, newer: &Merged, only: Option<&[String]>) -> String {
        Changes::new(older, newer, only).expect_err("refused").0.join("; ")
    }

    #[test]
    fn what_cannot_be_held_against_each_other_is_refused_with_the_reason() {
        let older = merged(1.0, 1, 12, false);
        let few = merged(1.0, 2, 9, false);
        assert!(refused(&older, &few, None).contains("9 complete blocks"));
        let mut other = merged(1.0, 2, 12, false);
        other.run.machine.cpus += 1;
        assert!(refused(&older, &other, None).contains("another machine: usable CPUs"));
        let mut other = merged(1.0, 2, 12, false);
        other.run.allocators[0].sha256 = "other".into();
        assert!(refused(&older, &other, None).contains("another glibc"));
        let mut other = merged(1.0, 2, 12, false);
        other.run.workloads[0].settings.insert("rounds".into(), 7.0);
        assert!(refused(&older, &other, None).contains("no row in common"));
        let task = |metrics: &[&str]| crate::record::Task {
            command: "./work 300".into(),
            file: "/work".into(),
            sha256: None,
            metrics: metrics.iter().map(|&metric| metric.to_owned()).collect(),
            exit_code: 0,
        };
        let (mut one, mut other) = (merged(1.0, 1, 12, false), merged(1.0, 2, 12, false));
        one.run.workloads[0].task = Some(task(&[]));
        assert!(!changes(&one, &other).worse, "what was not recorded is taken for the same");
        other.run.workloads[0].task = Some(task(&["requests (more is better)"]));
        let metric = "under one name: larson: metric: wall time, and requests (more is better)";
        assert!(refused(&one, &other, None).contains(metric), "{}", refused(&one, &other, None));
        assert!(one.run.plan_differences(&other.run).join("; ").contains("larson: metric: wall time"));
        assert!(refused(&older, &older, Some(&["y".to_owned()])).contains("y is not in both runs"));
    }
}
