//! What is measured in runs of its own, at full work, after the blocks: latency, memory, the processor's
//! counters, system calls.
//!
//! Each would disturb the time that the blocks are about. One that fails is a failure of this measure alone.

use std::collections::BTreeSet;

use anyhow::Result;

use super::campaign::{Campaign, Conclusion, Session};
use super::executor::Executor;
use crate::record::{Judgement, Pass, Sample};

/// How often each row is run for a pass.
fn repeats(pass: Pass) -> usize {
    if pass == Pass::Latency { 3 } else { 1 }
}

impl Campaign<'_> {
    /// Adds the samples of these passes to what the blocks came to: every allocator on every row that
    /// yielded a number. Samples go to `keep` as in [`run`](Self::run).
    ///
    /// # Errors
    /// `keep` fails.
    pub fn measure(
        &self,
        passes: &[Pass],
        mut conclusion: Conclusion,
        executor: &mut dyn Executor,
        keep: &mut dyn FnMut(&Sample) -> Result<()>,
    ) -> Result<Conclusion> {
        if conclusion.interrupted || passes.is_empty() {
            return Ok(conclusion);
        }
        let mut session = Session {
            campaign: self,
            executor,
            keep,
            samples: conclusion.samples,
            block_log: conclusion.block_log,
            participants: self.allocators.to_vec(),
            out: conclusion.out,
            past: conclusion.past,
        };
        let done = session.measures(passes);
        self.progress.finish();
        conclusion.interrupted = !done?;
        (conclusion.samples, conclusion.block_log, conclusion.out, conclusion.past) =
            (session.samples, session.block_log, session.out, session.past);
        Ok(conclusion)
    }
}

impl Session<'_> {
    /// False if interrupted.
    fn measures(&mut self, passes: &[Pass]) -> Result<bool> {
        let Campaign { plan, progress, .. } = self.campaign;
        let allocators = self.participants.len();
        let runs: usize = passes.iter().map(|&pass| repeats(pass)).sum();
        let total = runs * allocators * plan.rows.len();
        let mut position = 0;
        for &pass in passes {
            let mut failed = BTreeSet::new();
            for repeat in 0..repeats(pass) {
                for step in plan.block(repeat, allocators) {
                    let (pair, entry) = ((step.allocator, step.row), &plan.entries[step.row.entry]);
                    let name = &self.participants[step.allocator].name;
                    let what =
                        format!("{}, {} × {} under {name}", pass.name(), entry.label, step.row.threads);
                    progress.measure(position, total, &what);
                    position += 1;
                    if !plan.measures(step.row) {
                        continue;
                    }
                    if self.out.contains(&pair) || failed.contains(&pair) {
                        continue;
                    }
                    match self.sample(entry, pass, None, position - 1, step)? {
                        None => return Ok(false),
                        Some(Judgement::Measured(_)) => {}
                        Some(_) => drop(failed.insert(pair)),
                    }
                }
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocators::Allocator;
    use crate::run::testing::conclude_with;

    const ALL: [Pass; 4] = [Pass::Latency, Pass::Memory, Pass::Counters, Pass::SystemCalls];

    fn count(conclusion: &Conclusion, pass: Pass, allocator: &str) -> usize {
        let samples = conclusion.samples.iter();
        samples.filter(|sample| sample.pass == pass && sample.allocator == allocator).count()
    }

    #[test]
    fn every_measure_is_taken_on_every_row_that_has_a_number() {
        let allocators = [Allocator::fake("glibc"), Allocator::fake("x")];
        let failed = r#"{"outcome":"failed","reason":"broken"}"#;
        let (_, conclusion) = conclude_with(&ALL, &allocators, 1, usize::MAX, |asked, _| {
            (asked.allocator == "x" && asked.threads == 2 && asked.pass.is_empty()).then(|| failed.to_owned())
        });
        // Two rows, of which x has one.
        let counts = |allocator| ALL.map(|pass| count(&conclusion, pass, allocator));
        assert_eq!((counts("glibc"), counts("x")), ([6, 2, 2, 2], [3, 1, 1, 1]));
        assert!(!conclusion.interrupted);
        let traced = conclusion.samples.iter().filter(|sample| sample.pass == Pass::SystemCalls);
        assert!(traced.clone().all(|sample| sample.system_calls["mmap"] == 30));
        let others = conclusion.samples.iter().filter(|sample| sample.pass != Pass::SystemCalls);
        assert!(others.clone().all(|sample| sample.system_calls.is_empty()));
    }

    #[test]
    fn a_failed_measure_is_not_repeated_and_the_others_go_on() {
        let allocators = [Allocator::fake("glibc"), Allocator::fake("x")];
        let failed = r#"{"outcome":"failed","reason":"broken"}"#;
        let (_, conclusion) = conclude_with(&ALL, &allocators, 1, usize::MAX, |asked, _| {
            (asked.allocator == "x" && asked.pass == "latency").then(|| failed.to_owned())
        });
        assert_eq!(ALL.map(|pass| count(&conclusion, pass, "x")), [2, 2, 2, 2]);
    }

    #[test]
    fn an_interruption_keeps_the_blocks_and_what_is_measured() {
        let allocators = [Allocator::fake("glibc")];
        // One canary, two rows with the twin, then five samples of latency.
        let (_, conclusion) = conclude_with(&ALL, &allocators, 1, 1 + 4 + 5, |_, _| None);
        assert_eq!((conclusion.blocks, conclusion.interrupted), (1, true));
        assert_eq!(ALL.map(|pass| count(&conclusion, pass, "glibc")), [5, 0, 0, 0]);
        let (_, conclusion) = conclude_with(&ALL, &allocators, 2, 1 + 4 + 1, |_, _| None);
        assert_eq!((conclusion.blocks, conclusion.samples.len()), (1, 6), "not begun");
    }
}
