//! One run held against another.

use std::collections::BTreeMap;

use super::{Build, Change, Changes, Step, side};
use crate::allocators::{Allocator, BASELINE, TWIN};
use crate::merge::Merged;
use crate::report::comparison::{Comparison, Floor, Ratios};
use crate::report::gaps::Gaps;
use crate::report::series::{Samples, Series};
use crate::run::{Conclusion, Entry, Plan, recorded};
use crate::stats::{ALPHA, Location, MARGIN, MIN_BLOCKS, Metric, Resamples, holm, judge};

/// Why nothing can be said: one reason at least.
#[derive(Debug)]
pub struct Incomparable(pub Vec<String>);

/// A run, ready to be asked.
struct Run {
    plan: Plan,
    conclusion: Conclusion,
    resamples: Resamples,
}

impl Run {
    fn new(merged: &Merged) -> Self {
        let (plan, conclusion) = recorded(&merged.run, merged.samples.clone());
        let resamples = Resamples::new(conclusion.blocks, merged.run.seed);
        Self { plan, conclusion, resamples }
    }
}

/// One row of both runs.
struct Row {
    workload: String,
    threads: u32,
    /// glibc's to itself, of the older run and of the newer one.
    itself: [Option<Ratios>; 2],
}

/// One allocator in one row of both runs.
struct Pair {
    /// Index of the row.
    row: usize,
    allocator: String,
    /// Of the older run, of the newer one.
    ratios: [Ratios; 2],
}

/// All but the sentence.
pub(super) fn hold(older: &Merged, newer: &Merged, only: Option<&[String]>) -> Result<Changes, Incomparable> {
    let runs = [Run::new(older), Run::new(newer)];
    let allocators = common(older, newer, only)?;
    refuse(older, newer, &runs)?;
    let samples = [0, 1].map(|at| Samples::index(&runs[at].conclusion.samples, runs[at].conclusion.blocks));
    let mut found = Found::default();
    for row in &runs[0].plan.rows {
        let entry = &runs[0].plan.entries[row.entry];
        let others = &runs[1].plan.entries;
        let again = if others.iter().any(|other| is_same(other, entry, row.threads)) {
            Ok(())
        } else if others
            .iter()
            .any(|other| other.label == entry.label && other.threads.contains(&row.threads))
        {
            Err("measured with other parameters in the newer run")
        } else {
            Err("not measured in the newer run")
        };
        found.row(&entry.label, row.threads, again, &allocators, &samples, &runs);
    }
    let Found { rows, pairs, fails_now, works_now, gone } = found;
    let [fails_now, works_now, gone] = [fails_now, works_now, gone].map(Gaps::merged);
    if pairs.is_empty() && fails_now.is_empty() && works_now.is_empty() {
        let mut reason = "they have no row in common in which glibc and another allocator have numbers: \
            same workload, threads and parameters"
            .to_owned();
        for gap in &gone {
            reason += &format!("; {gap}");
        }
        return Err(Incomparable(vec![reason]));
    }
    Ok(Changes {
        verdict: String::new(),
        worse: false,
        runs: [side(&older.run, runs[0].conclusion.blocks), side(&newer.run, runs[1].conclusion.blocks)],
        means: means(&rows, &pairs, &allocators, &runs),
        rows: changes(&rows, &pairs, &runs),
        allocators,
        fails_now,
        works_now,
        gone,
        notes: notes(older, newer, only),
    })
}

/// What was found in the rows so far.
#[derive(Default)]
struct Found {
    rows: Vec<Row>,
    pairs: Vec<Pair>,
    fails_now: Gaps,
    works_now: Gaps,
    gone: Gaps,
}

impl Found {
    /// Looks at one row of the older run, which the newer one has too, or for this reason has not.
    fn row<'a>(
        &mut self,
        workload: &'a str,
        threads: u32,
        again: Result<(), &str>,
        allocators: &'a [Build],
        samples: &[Samples<'a>; 2],
        runs: &[Run; 2],
    ) {
        let series = |at: usize, name: &'a str| samples[at].series(name, workload, threads);
        let values = |at: usize, name: &'a str| match series(at, name) {
            Series::Values(values) => Some(values),
            _ => None,
        };
        let references = values(0, BASELINE).zip(again.ok().and_then(|()| values(1, BASELINE)));
        if let Some((before, after)) = &references {
            let itself = [(0, before), (1, after)]
                .map(|(at, reference)| Ratios::of(&values(at, TWIN)?, reference, &runs[at].resamples));
            self.rows.push(Row { workload: workload.to_owned(), threads, itself });
        }
        for name in std::iter::once(BASELINE).chain(allocators.iter().map(|build| build.name.as_str())) {
            let old = match (series(0, name), again) {
                (Series::Values(_), Err(reason)) => {
                    self.gone.add(name, workload, threads, false, reason);
                    continue;
                }
                (_, Err(_)) => continue,
                (old, Ok(())) => old,
            };
            match (old, series(1, name)) {
                (Series::Values(old), Series::Values(new)) if name != BASELINE => {
                    let ratios = references.as_ref().map(|(before, after)| {
                        let before = Ratios::of(&old, before, &runs[0].resamples);
                        before.zip(Ratios::of(&new, after, &runs[1].resamples))
                    });
                    match ratios {
                        Some(Some((before, after))) => self.pairs.push(Pair {
                            row: self.rows.len() - 1,
                            allocator: name.to_owned(),
                            ratios: [before, after],
                        }),
                        Some(None) => {
                            self.gone.add(name, workload, threads, false, "a figure is no number above 0")
                        }
                        None if values(0, BASELINE).is_some() => {
                            let reason = "glibc has no number there in the newer run";
                            self.gone.add(name, workload, threads, false, reason);
                        }
                        // It could not be held against glibc in the older run either.
                        None => {}
                    }
                }
                (Series::Values(_), Series::Bad { failed: true, reason }) => {
                    self.fails_now.add(name, workload, threads, true, &reason);
                }
                (Series::Values(_), Series::Bad { failed: false, reason }) => {
                    self.gone.add(name, workload, threads, false, &reason);
                }
                (Series::Values(_), Series::Missing) => {
                    self.gone.add(
                        name,
                        workload,
                        threads,
                        false,
                        "not measured in every block of the newer run",
                    );
                }
                (Series::Bad { failed: true, reason }, Series::Values(_)) => {
                    self.works_now.add(name, workload, threads, true, &reason);
                }
                _ => {}
            }
        }
    }
}

/// Whether this entry has that row too, with the same work in it.
fn is_same(one: &Entry, other: &Entry, threads: u32) -> bool {
    let in_force = |entry: &Entry| -> BTreeMap<String, f64> {
        let defaults = entry.description.parameters.iter();
        defaults.map(|parameter| (parameter.name.clone(), parameter.default)).collect()
    };
    let (of_one, of_other) = (in_force(one), in_force(other));
    let parameters = of_one.is_empty() || of_other.is_empty() || of_one == of_other;
    one.label == other.label && one.settings == other.settings && one.threads.contains(&threads) && parameters
}

/// The allocators of both runs; only those that are named, if any are.
fn common(older: &Merged, newer: &Merged, only: Option<&[String]>) -> Result<Vec<Build>, Incomparable> {
    let find = |merged: &Merged, name: &str| {
        merged.run.allocators.iter().find(|allocator| allocator.name == name).cloned()
    };
    let absent: Vec<String> = only
        .into_iter()
        .flatten()
        .filter(|name| find(older, name).is_none() || find(newer, name).is_none())
        .map(|name| format!("{name} is not in both runs"))
        .collect();
    if !absent.is_empty() {
        return Err(Incomparable(absent));
    }
    let wanted = |allocator: &&Allocator| {
        !allocator.is_baseline()
            && allocator.limit.is_none()
            && only.is_none_or(|only| only.contains(&allocator.name))
    };
    let builds: Vec<Build> = newer
        .run
        .allocators
        .iter()
        .filter(wanted)
        .filter_map(|after| {
            let before = find(older, &after.name)?;
            let same = before.sha256 == after.sha256 && before.environment == after.environment;
            Some(Build { name: after.name.clone(), before: before.build(), after: after.build(), same })
        })
        .collect();
    if builds.is_empty() {
        return Err(Incomparable(vec!["they have no allocator in common but glibc".into()]));
    }
    Ok(builds)
}

/// Fails where figures of the two runs say nothing about each other.
fn refuse(older: &Merged, newer: &Merged, runs: &[Run; 2]) -> Result<(), Incomparable> {
    let mut reasons = Vec::new();
    let machine = older.run.machine.differences(&newer.run.machine);
    if !machine.is_empty() {
        reasons.push(format!("they ran on another machine: {}", machine.join("; ")));
    }
    let tasks = older.run.task_differences(&newer.run);
    if !tasks.is_empty() {
        reasons.push(format!("they measured different things under one name: {}", tasks.join("; ")));
    }
    let baseline =
        |merged: &Merged| merged.run.allocators.iter().find(|allocator| allocator.is_baseline()).cloned();
    match (baseline(older), baseline(newer)) {
        (Some(before), Some(after)) if before.sha256 == after.sha256 => {}
        (Some(before), Some(after)) => {
            reasons.push(format!(
                "they have another glibc as the baseline: {}, and {}",
                before.build(),
                after.build()
            ));
        }
        _ => reasons.push("glibc, the baseline, is not in both runs".into()),
    }
    for ((which, merged), run) in [("older", older), ("newer", newer)].into_iter().zip(runs) {
        let blocks = run.conclusion.blocks;
        if blocks < MIN_BLOCKS {
            reasons.push(format!(
                "the {which} run has {blocks} complete blocks, and verdicts need {MIN_BLOCKS}: measure with --runs {MIN_BLOCKS}"
            ));
        }
        reasons.extend(merged.run.damage.iter().filter(|_| blocks < MIN_BLOCKS).cloned());
    }
    if reasons.is_empty() { Ok(()) } else { Err(Incomparable(reasons)) }
}

fn notes(older: &Merged, newer: &Merged, only: Option<&[String]>) -> Vec<String> {
    let [before, after] = [older, newer].map(|merged| &merged.run.workload_program_sha256);
    let anew = before.is_some() && after.is_some() && before != after;
    let note = "The workloads' program was built anew in between; each run compares within its own.";
    let environment = older.run.environment_differences(&newer.run);
    let of_runs = [("older", older), ("newer", newer)]
        .into_iter()
        .filter_map(|(which, merged)| merged.note.as_ref().map(|note| format!("The {which} run: {note}")));
    let absent = older.run.allocators.iter().filter(|allocator| {
        only.is_none() && newer.run.allocators.iter().all(|other| other.name != allocator.name)
    });
    let absent = absent.map(|allocator| format!("{} is only in the older run.", allocator.name));
    anew.then(|| note.to_owned()).into_iter().chain(environment).chain(of_runs).chain(absent).collect()
}

/// Every row, judged together with all others.
fn changes(rows: &[Row], pairs: &[Pair], runs: &[Run; 2]) -> Vec<Change> {
    let family: Vec<Member<'_>> = pairs
        .iter()
        .map(|pair| {
            let floors = [0, 1].map(|at| rows[pair.row].itself[at].as_ref().map(Ratios::floor));
            Member { ratios: [&pair.ratios[0], &pair.ratios[1]], floors }
        })
        .collect();
    let changes = pairs.iter().zip(judged(&family, runs)).map(|(pair, [throughput, peak_rss])| Change {
        workload: Some(rows[pair.row].workload.clone()),
        threads: Some(rows[pair.row].threads),
        allocator: pair.allocator.clone(),
        throughput,
        peak_rss,
    });
    changes.collect()
}

/// The geometric means over rows, judged together.
fn means(rows: &[Row], pairs: &[Pair], allocators: &[Build], runs: &[Run; 2]) -> Vec<Change> {
    let mut of_allocators = Vec::new();
    for build in allocators {
        let own: Vec<&Pair> = pairs.iter().filter(|pair| pair.allocator == build.name).collect();
        let mean = |at: usize| Ratios::mean_of(&own.iter().map(|pair| &pair.ratios[at]).collect::<Vec<_>>());
        let floor = |at: usize| {
            let itself: Option<Vec<&Ratios>> =
                own.iter().map(|pair| rows[pair.row].itself[at].as_ref()).collect();
            Some(Ratios::mean_of(&itself?)?.floor())
        };
        if let (Some(before), Some(after)) = (mean(0), mean(1)) {
            of_allocators.push((build.name.clone(), [before, after], [floor(0), floor(1)]));
        }
    }
    let family: Vec<Member<'_>> = of_allocators
        .iter()
        .map(|each| Member { ratios: [&each.1[0], &each.1[1]], floors: each.2 })
        .collect();
    let steps = judged(&family, runs);
    let changes = of_allocators.iter().zip(steps).map(|((name, ..), [throughput, peak_rss])| Change {
        workload: None,
        threads: None,
        allocator: name.clone(),
        throughput,
        peak_rss,
    });
    changes.collect()
}

/// One comparison of a family: the ratios and the noise floors of the older run and of the newer one.
struct Member<'a> {
    ratios: [&'a Ratios; 2],
    floors: [Option<Floor>; 2],
}

/// Throughput and memory of each member of a family.
fn judged(family: &[Member<'_>], runs: &[Run; 2]) -> Vec<[Step; 2]> {
    let blocks = runs[0].conclusion.blocks.min(runs[1].conclusion.blocks);
    let [throughput, peak_rss] = [Metric::Throughput, Metric::PeakRss].map(|metric| {
        let locations = |member: &Member<'_>| member.ratios.map(|ratios| ratios.in_metric(metric).location());
        let difference = |member: &Member<'_>| {
            let [before, after] = locations(member);
            after.above(before)
        };
        let differences: Vec<Location> = family.iter().map(difference).collect();
        let levels = holm(&differences.iter().map(|found| found.p_value()).collect::<Vec<_>>(), ALPHA);
        let judged = family.iter().zip(differences.iter().zip(levels)).map(|(member, (found, level))| {
            let estimate = found.interval(level);
            // Either ratio may be off by what the noise floor of its own run allows.
            let [before, after] = member.floors.map(|floor| floor.map(|floor| floor.of(metric).ln_1p()));
            let together = before.zip(after).map(|(before, after)| (before + after).exp_m1());
            let margin = together.unwrap_or_default().max(MARGIN);
            let known = together.map_or(0, |_| blocks);
            let [before, after] = locations(member).map(|location| location.value.exp());
            let verdict = judge(estimate, metric, known, margin);
            Step { before, after, change: Comparison { ratio: estimate.exp(), margin, verdict } }
        });
        judged.collect::<Vec<_>>()
    });
    throughput.into_iter().zip(peak_rss).map(|(one, other)| [one, other]).collect()
}
