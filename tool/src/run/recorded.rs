//! A run that lies on the disk, as a campaign would have left it.

use std::collections::{BTreeMap, BTreeSet};

use ample_protocol::Parameter;

use super::{Conclusion, Past, Plan};
use crate::record::{BlockLog, Judgement, Run, Sample};

/// The plan of a run and what it came to, from its record and all its samples.
pub fn recorded(run: &Run, samples: Vec<Sample>) -> (Plan, Conclusion) {
    let blocks = complete_blocks(run, &samples);
    let plan = Plan::recorded(run, |label| parameters(label, &samples));
    let mut block_log = run.block_log.clone();
    block_log.retain(|log| log.block < blocks);
    let conclusion = Conclusion {
        samples: counting(samples),
        blocks,
        block_log,
        interrupted: run.interrupted || run.ended.is_none(),
        out: BTreeSet::new(),
        past: Past::default(),
    };
    (plan, conclusion)
}

/// Complete blocks, as far as their samples are there. A run that was killed could not tell how many there are:
/// the last block that it began does not count.
pub fn complete_blocks(run: &Run, samples: &[Sample]) -> usize {
    let told = if run.ended.is_some() || !run.merged.is_empty() {
        run.blocks
    } else {
        samples.iter().filter_map(|sample| sample.block).max().unwrap_or(0)
    };
    let mut taken: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for sample in samples {
        if let Some(block) = sample.block {
            *taken.entry((block, sample.attempt)).or_default() += 1;
        }
    }
    let counts = run.block_log.iter().filter(|log| log.run_again.is_none());
    let logged: BTreeMap<usize, &BlockLog> = counts.map(|log| (log.block, log)).collect();
    let is_there = |block: &usize| match logged.get(block) {
        Some(log) => taken.get(&(*block, log.attempt)).copied().unwrap_or(0) >= log.processes,
        // Records of older versions have no log.
        None => taken.range((*block, 0)..=(*block, usize::MAX)).next().is_some(),
    };
    (0..told).take_while(is_there).count()
}

/// What to say of a run of whose complete blocks not all have their samples; none where all are there.
pub fn lost(run: &Run, samples: &[Sample]) -> Option<String> {
    let (told, found) = (run.blocks, complete_blocks(run, samples));
    let finished = run.ended.is_some() || !run.merged.is_empty();
    (finished && found < told).then(|| {
        format!(
            "The samples are damaged: run.json tells of {told} complete blocks, and {found} are there; the rest of what was measured does not count."
        )
    })
}

/// Without the samples of attempts at a block that were followed by another one, but for what failed.
fn counting(mut samples: Vec<Sample>) -> Vec<Sample> {
    let mut last: BTreeMap<usize, usize> = BTreeMap::new();
    for sample in &samples {
        if let Some(block) = sample.block {
            let attempt = last.entry(block).or_default();
            *attempt = sample.attempt.max(*attempt);
        }
    }
    samples.retain(|sample| {
        let counts = sample.block.is_none_or(|block| last[&block] == sample.attempt);
        counts || !matches!(sample.result, Judgement::Measured(_))
    });
    samples
}

/// The parameters of a workload with the values that were in force, those that nobody set included; none where it
/// was never measured.
pub fn in_force(label: &str, samples: &[Sample]) -> BTreeMap<String, f64> {
    let measured = samples.iter().filter(|sample| sample.workload == label && sample.pass.is_at_full_work());
    let mut measurements = measured.filter_map(|sample| match &sample.result {
        Judgement::Measured(measurement) if sample.block.is_some() => Some(measurement),
        _ => None,
    });
    measurements.next().map(|measurement| measurement.parameters.clone()).unwrap_or_default()
}

/// The same, as the descriptions of workloads have them.
fn parameters(label: &str, samples: &[Sample]) -> Vec<Parameter> {
    let parameter = |(name, value): (String, f64)| Parameter {
        name,
        meaning: String::new(),
        unit: String::new(),
        default: value,
        test: value,
    };
    in_force(label, samples).into_iter().map(parameter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocators::Allocator;
    use crate::record::Pass;
    use crate::run::testing::{conclude_from, run_of};

    #[test]
    fn what_is_read_back_is_what_was_concluded() {
        let allocators = [Allocator::fake("glibc"), Allocator::fake("x")];
        let (kept, conclusion) =
            conclude_from(Vec::new(), &[Pass::Memory], &allocators, 3, usize::MAX, |_, _| None);
        let mut run = run_of(&allocators, &conclusion);
        let (plan, again) = recorded(&run, kept.clone());
        assert_eq!((plan.rows.len(), again.blocks, again.interrupted), (2, 3, false));
        assert_eq!(again.samples, conclusion.samples);
        assert_eq!(again.block_log, conclusion.block_log);
        // Killed: nobody wrote down how far it was.
        (run.ended, run.blocks) = (None, 0);
        let (_, killed) = recorded(&run, kept);
        assert_eq!((killed.blocks, killed.interrupted), (2, true));
    }

    #[test]
    fn a_block_without_all_its_samples_does_not_count() {
        let allocators = [Allocator::fake("glibc"), Allocator::fake("x")];
        let (kept, conclusion) = conclude_from(Vec::new(), &[], &allocators, 12, usize::MAX, |_, _| None);
        let run = run_of(&allocators, &conclusion);
        assert_eq!((complete_blocks(&run, &kept), lost(&run, &kept)), (12, None));
        let one_less = &kept[..kept.len() - 1];
        assert_eq!(complete_blocks(&run, one_less), 11);
        let told = lost(&run, one_less).expect("told");
        assert!(told.contains("run.json tells of 12 complete blocks, and 11 are there"), "{told}");
        assert_eq!(complete_blocks(&run, &[]), 0);
        // Older versions kept no log: whatever is there of a block counts.
        let older = Run { block_log: Vec::new(), blocks: 1_000_000_000, ..run };
        assert_eq!(complete_blocks(&older, &kept), 12);
    }

    #[test]
    fn the_last_attempt_at_a_block_counts_and_what_failed_stays_failed() {
        let allocators = [Allocator::fake("glibc")];
        let (mut kept, _) = conclude_from(Vec::new(), &[], &allocators, 1, usize::MAX, |_, _| None);
        let timed: Vec<Sample> = kept.iter().filter(|sample| sample.block.is_some()).cloned().collect();
        kept.extend(timed.into_iter().map(|sample| Sample { attempt: 1, ..sample }));
        let failed = kept.iter_mut().find(|sample| sample.block.is_some()).expect("one");
        failed.result = Judgement::Failed { reason: "broken".into() };
        let attempts: Vec<usize> =
            counting(kept).iter().filter(|s| s.block.is_some()).map(|s| s.attempt).collect();
        assert_eq!(attempts, [0, 1, 1, 1, 1]);
    }
}
