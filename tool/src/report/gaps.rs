//! Cells without a number, told once for each reason.

use std::fmt;

use serde::Serialize;

/// Cells without a number, for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// The allocators.
    pub allocators: Vec<String>,
    /// The workload.
    pub workload: String,
    /// The thread counts that it concerns.
    pub threads: Vec<u32>,
    /// Whether it failed; otherwise it cannot be measured here.
    pub failed: bool,
    /// Why.
    pub reason: String,
}

impl fmt::Display for Gap {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads: Vec<String> = self.threads.iter().map(u32::to_string).collect();
        let Self { allocators, workload, reason, .. } = self;
        write!(out, "{}: {workload}, threads {}: {reason}", allocators.join(", "), threads.join(", "))
    }
}

/// Gaps, those of the same reason together.
#[derive(Debug, Default)]
pub struct Gaps {
    list: Vec<Gap>,
}

impl Gaps {
    /// One gap for all thread counts that differ in nothing else.
    pub fn merged(self) -> Vec<Gap> {
        let mut merged: Vec<Gap> = Vec::with_capacity(self.list.len());
        for gap in self.list {
            let same = |other: &&mut Gap| {
                (&other.allocators, &other.workload, other.failed, &other.reason)
                    == (&gap.allocators, &gap.workload, gap.failed, &gap.reason)
            };
            match merged.iter_mut().find(same) {
                Some(other) => other.threads.extend(&gap.threads),
                None => merged.push(gap),
            }
        }
        merged
    }

    /// Notes one cell.
    pub fn add(&mut self, allocator: &str, workload: &str, threads: u32, failed: bool, reason: &str) {
        let same = |gap: &Gap| gap.workload == workload && gap.failed == failed && gap.reason == reason;
        if let Some(gap) = self.list.iter_mut().find(|gap| same(gap) && gap.threads == [threads]) {
            gap.allocators.push(allocator.into());
            return;
        }
        self.list.push(Gap {
            allocators: vec![allocator.into()],
            workload: workload.into(),
            threads: vec![threads],
            failed,
            reason: reason.into(),
        });
    }
}
