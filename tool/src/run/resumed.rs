//! How a run takes what it has measured before.

use super::campaign::Session;
use super::past::{Key, Recall};
use super::plan::{Entry, Step};
use crate::record::{Judgement, Pass, Sample};

impl Session<'_> {
    /// What is known of this attempt at a block.
    pub(super) fn recall(&self, block: usize, attempt: usize) -> Recall {
        if !self.past.is_begun(block, attempt) {
            return Recall::Nothing;
        }
        let is_there = |step: &Step| {
            self.out.contains(&(step.allocator, step.row)) || self.past.has(&self.key(block, attempt, *step))
        };
        if !self.campaign.plan.block(block, self.participants.len()).iter().all(is_there) {
            return Recall::Unfinished;
        }
        Recall::Whole(self.past.log_of(block, attempt))
    }

    /// Passes over an attempt that was not run to its end. What failed in it stays failed.
    pub(super) fn pass_over(&mut self, block: usize, attempt: usize) {
        for step in self.campaign.plan.block(block, self.participants.len()) {
            let Some(sample) = self.past.take(&self.key(block, attempt, step)) else { continue };
            if !matches!(sample.result, Judgement::Measured(_)) {
                self.samples.push(sample);
                self.drop_out(step.allocator, &[step.row]);
            }
        }
    }

    /// The sample that a process would give, where there is one already.
    pub(super) fn known(
        &mut self,
        entry: &Entry,
        pass: Pass,
        block: Option<(usize, usize)>,
        step: Step,
    ) -> Option<Sample> {
        let (block, attempt) = (block.map(|(block, _)| block), block.map_or(0, |(_, attempt)| attempt));
        let allocator = self.participants[step.allocator].name.clone();
        self.past.take(&(pass, block, attempt, allocator, entry.label.clone(), step.row.threads))
    }

    fn key(&self, block: usize, attempt: usize, step: Step) -> Key {
        let allocator = self.participants[step.allocator].name.clone();
        let workload = self.campaign.plan.entries[step.row.entry].label.clone();
        (Pass::Timed, Some(block), attempt, allocator, workload, step.row.threads)
    }
}
