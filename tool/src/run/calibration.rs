//! Measures heap-leak's prediction of page faults anew, on this machine and under each allocator.
//!
//! The source (Lever & Boreham 2000) reads three coefficients off runs of a single chain: one round on
//! one block, then the slope in rounds, then the slope in blocks. So do these runs, for each allocator: a
//! library that needs more faults to load, or more room for a block, has not leaked yet. The source has
//! 10 000 blocks where it varies the rounds; here it is one, so that what a single chain loses is a leak too.

use std::collections::{BTreeMap, BTreeSet};

use super::plan::{Entry, Plan};
use crate::allocators::Allocator;
use crate::record::{FaultPrediction, Judgement, Pass, Sample};
use crate::stats::{FaultModel, FaultPoints, median};

/// The workload whose faults are predicted.
const WORKLOAD: &str = "heap-leak";
/// The figure that it reports its faults under.
pub const FAULTS: &str = "faults";
/// Runs of each point; their median counts.
const REPEATS: usize = 5;
/// Rounds of the point that tells the slope in rounds.
const ROUNDS: f64 = 200.0;
/// Blocks at least of the point that tells the slope in blocks.
const LEAST_BLOCKS: f64 = 1000.0;

/// What a chain of heap-leak is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// Threads of a chain, one after the other.
    pub rounds: f64,
    /// Blocks of a chain.
    pub blocks: f64,
    /// Size of each block, in bytes.
    pub size: f64,
}

impl Shape {
    /// The shape of an entry; none where it is another workload.
    pub fn of(entry: &Entry) -> Option<Self> {
        if entry.description.name != WORKLOAD {
            return None;
        }
        let value = |key: &str| {
            let parameter = || entry.description.parameters.iter().find(|parameter| parameter.name == key);
            entry.settings.get(key).copied().or_else(|| Some(parameter()?.default))
        };
        Some(Self { rounds: value("rounds")?, blocks: value("blocks")?, size: value("size")? })
    }

    /// The points that predict it: the smallest run, many rounds, many blocks.
    fn points(self) -> [Self; 3] {
        let smallest = Self { rounds: 1.0, blocks: 1.0, ..self };
        let many_blocks = self.blocks.max(LEAST_BLOCKS);
        [smallest, Self { rounds: ROUNDS, ..smallest }, Self { blocks: many_blocks, ..smallest }]
    }

    fn settings(self) -> BTreeMap<String, f64> {
        [("rounds", self.rounds), ("blocks", self.blocks), ("size", self.size)]
            .map(|(key, value)| (key.to_owned(), value))
            .into()
    }
}

/// The runs that a plan needs under each allocator, one by one, and the index of the entry that each is
/// for: none where heap-leak does not take part.
pub fn runs(plan: &Plan) -> Vec<(usize, Entry)> {
    let mut seen = BTreeSet::new();
    let mut runs = Vec::new();
    for (index, entry) in plan.entries.iter().enumerate() {
        for point in Shape::of(entry).into_iter().flat_map(Shape::points) {
            if seen.insert([point.rounds, point.blocks, point.size].map(f64::to_bits)) {
                runs.push((index, Entry { settings: point.settings(), ..entry.clone() }));
            }
        }
    }
    runs.iter().cycle().take(runs.len() * REPEATS).cloned().collect()
}

/// The predictions for all entries under the allocators that were calibrated; entries of the same blocks
/// have them in common.
pub fn predictions(plan: &Plan, allocators: &[Allocator], samples: &[Sample]) -> Vec<FaultPrediction> {
    let mut predictions: Vec<FaultPrediction> = Vec::new();
    for shape in plan.entries.iter().filter_map(Shape::of) {
        for allocator in allocators {
            let known = |other: &FaultPrediction| {
                (other.allocator.as_str(), other.blocks, other.size)
                    == (&allocator.name, shape.blocks, shape.size)
            };
            if !predictions.iter().any(known) {
                predictions.extend(prediction(shape, &allocator.name, samples));
            }
        }
    }
    predictions
}

/// None where the allocator was never calibrated, or the run ended before all points had a run.
fn prediction(shape: Shape, allocator: &str, samples: &[Sample]) -> Option<FaultPrediction> {
    let own = |sample: &&Sample| sample.pass == Pass::Calibration && sample.allocator == allocator;
    let mut reason = None;
    let [smallest, rounds, blocks] = shape.points();
    let mut faults = |point: Shape| {
        let settings = point.settings();
        let of_point = samples.iter().filter(own).filter(|sample| sample.settings == settings);
        let mut found = Vec::with_capacity(REPEATS);
        for sample in of_point {
            match &sample.result {
                Judgement::Measured(measurement) => found.extend(measurement.extra.get(FAULTS).copied()),
                other => reason = other.reason().map(str::to_owned),
            }
        }
        median(&mut found)
    };
    let measured = [smallest, rounds, blocks].map(&mut faults);
    let model = match (measured, &reason) {
        ([Some(of_smallest), Some(of_rounds), Some(of_blocks)], None) => {
            Some(FaultModel::through(&FaultPoints {
                smallest: of_smallest,
                rounds: (rounds.rounds, of_rounds),
                blocks: (blocks.blocks, of_blocks),
            }))
        }
        (_, Some(_)) => None,
        (_, None) => return None,
    };
    Some(FaultPrediction {
        allocator: allocator.to_owned(),
        blocks: shape.blocks,
        size: shape.size,
        model,
        reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::executor::End;
    use crate::run::presets::{DEFAULT, find};
    use crate::run::testing::{Asked, MockExecutor, describe, ended};
    use crate::run::{Campaign, Conclusion, Progress, Request, Stopping};
    use ample_protocol::Measurement;
    use std::time::Duration;

    fn plan(workload: &str, settings: &[&str]) -> Plan {
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        let request = Request {
            workloads: &[workload.to_owned()],
            preset: find(DEFAULT).expect("known"),
            threads: Some(&[1, 3]),
            settings: &settings,
            cpus: 2,
        };
        let offered = [
            describe("heap-leak", &["rounds", "blocks", "size"], None),
            describe("larson", &["rounds"], None),
        ];
        Plan::new(&request, &offered, 1).expect("a plan")
    }

    fn conclude(
        plan: &Plan,
        allocators: &[Allocator],
        interrupt_after: usize,
        mut deviate: impl FnMut(&Asked<'_>, &mut Measurement) -> bool,
    ) -> Conclusion {
        let stopping = Stopping::blocks(2);
        let mut executor = MockExecutor::new(allocators, |asked, measurement| {
            deviate(asked, measurement).then(|| ended(End::Killed(11), ""))
        });
        executor.interrupt_after = interrupt_after;
        let campaign = Campaign {
            plan,
            allocators,
            program: "/fake/program".as_ref(),
            stopping,
            timeout: Duration::from_secs(1),
            progress: &Progress::start(stopping),
        };
        campaign.run(Vec::new(), &mut executor, &mut |_| Ok(())).expect("concluded")
    }

    /// 100 faults for the process, 2 a round, 0.5 a block; twice that many with `x`.
    fn faults(asked: &Asked<'_>, measurement: &mut Measurement) {
        let setting = |key: &str| asked.settings.get(key).copied().unwrap_or(1.0);
        let chains = f64::from(asked.threads);
        let all = 100.0 + chains * (2.0 * setting("rounds") + 0.5 * setting("blocks"));
        let all = if asked.allocator == "x" { 2.0 * all } else { all };
        measurement.extra.insert(FAULTS.into(), all);
    }

    fn close(model: FaultModel, [base, per_round, per_block]: [f64; 3]) -> bool {
        let found = [model.base - base, model.per_round - per_round, model.per_block - per_block];
        found.iter().all(|difference| difference.abs() < 1e-9)
    }

    #[test]
    fn every_allocator_has_its_own_prediction_that_a_few_wild_runs_do_not_move() {
        let allocators = [Allocator::fake("glibc"), Allocator::fake("x")];
        let plan = plan("heap-leak", &["heap-leak.rounds=7", "heap-leak.blocks=5000"]);
        let mut seen = 0;
        let conclusion = conclude(&plan, &allocators, usize::MAX, |asked, measurement| {
            faults(asked, measurement);
            seen += 1;
            if seen % 10 == 0 {
                measurement.extra.insert(FAULTS.into(), 1e6);
            }
            false
        });
        let calibration = conclusion.samples.iter().filter(|sample| sample.pass == Pass::Calibration);
        assert_eq!(calibration.clone().count(), 2 * 3 * REPEATS);
        assert!(calibration.clone().all(|sample| sample.threads == 1 && sample.block.is_none()));
        let found = predictions(&plan, &allocators, &conclusion.samples);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].allocator.as_str(), found[0].blocks, found[0].size), ("glibc", 5000.0, 1.0));
        assert!(close(found[0].model.expect("a model"), [100.0, 2.0, 0.5]), "{found:?}");
        assert!(close(found[1].model.expect("a model"), [200.0, 4.0, 1.0]), "{found:?}");
    }

    #[test]
    fn entries_of_the_same_blocks_share_their_runs_and_other_workloads_need_none() {
        assert!(runs(&plan("larson", &[])).is_empty());
        let mut plan = plan("heap-leak", &["heap-leak.blocks=5000"]);
        assert_eq!(runs(&plan).len(), 3 * REPEATS);
        let mut other = plan.entries[0].clone();
        other.settings.insert("rounds".into(), 99.0);
        plan.entries.push(other.clone());
        assert_eq!(runs(&plan).len(), 3 * REPEATS);
        other.settings.insert("blocks".into(), 6000.0);
        plan.entries.push(other);
        assert_eq!(runs(&plan).len(), 4 * REPEATS);
    }

    #[test]
    fn few_blocks_are_predicted_from_many() {
        let plan = plan("heap-leak", &["heap-leak.blocks=1"]);
        let blocks: Vec<f64> = runs(&plan)[..3].iter().map(|(_, entry)| entry.settings["blocks"]).collect();
        assert_eq!(blocks, [1.0, 1.0, LEAST_BLOCKS]);
    }

    #[test]
    fn an_allocator_that_fails_has_a_reason_instead_and_is_tried_once() {
        let allocators = [Allocator::fake("glibc"), Allocator::fake("x")];
        let plan = plan("heap-leak", &["heap-leak.blocks=5000"]);
        let conclusion = conclude(&plan, &allocators, usize::MAX, |asked, measurement| {
            faults(asked, measurement);
            asked.allocator == "x" && asked.settings.get("rounds") == Some(&ROUNDS)
        });
        let found = predictions(&plan, &allocators, &conclusion.samples);
        assert!(found[0].model.is_some());
        assert_eq!(found[1].model, None);
        assert_eq!(found[1].reason.as_deref(), Some("crashed with SIGSEGV (signal 11)"));
        let own = |sample: &&Sample| sample.pass == Pass::Calibration && sample.allocator == "x";
        assert_eq!(conclusion.samples.iter().filter(own).count(), 2);
        // Its rows are measured all the same.
        assert_eq!(conclusion.blocks, 2);
    }

    #[test]
    fn an_interruption_or_a_failed_canary_leaves_no_prediction() {
        let allocators = [Allocator::fake("glibc"), Allocator::fake("x")];
        let plan = plan("heap-leak", &["heap-leak.blocks=5000"]);
        let interrupted = conclude(&plan, &allocators, 4, |asked, measurement| {
            faults(asked, measurement);
            false
        });
        assert!(interrupted.interrupted && interrupted.blocks == 0);
        assert!(predictions(&plan, &allocators, &interrupted.samples).is_empty());
        let failed = conclude(&plan, &allocators, usize::MAX, |asked, measurement| {
            faults(asked, measurement);
            asked.allocator == "x" && asked.canary
        });
        let names: Vec<String> = predictions(&plan, &allocators, &failed.samples)
            .into_iter()
            .map(|found| found.allocator)
            .collect();
        assert_eq!(names, ["glibc"]);
    }
}
