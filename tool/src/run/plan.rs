//! What is to be run: which workloads, with which parameters, on how many threads, in which order.

use std::collections::BTreeMap;

use ample_protocol::Description;
use anyhow::{Result, bail};
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::presets::{PRESETS, Preset, Size};
use crate::error::{UsageError, unknown};

/// The environment of each process is padded by fewer bytes than this: its size shifts the stack,
/// which alone can change timings.
const PADDING_BOUND: usize = 4096;

type Settings = BTreeMap<String, f64>;

/// What the user asked for.
#[derive(Debug)]
pub struct Request<'a> {
    /// Workloads or variants by name; none: the default selection.
    pub workloads: &'a [String],
    /// Thread counts; none: powers of two up to twice the CPUs, four at least.
    pub threads: Option<&'a [u32]>,
    /// Parameters, as `workload.key=value`.
    pub settings: &'a [String],
    /// How much work.
    pub size: Size,
    /// CPUs of this machine.
    pub cpus: u32,
}

/// A workload or a variant of it, with its parameters.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Name in tables.
    pub label: String,
    /// What the workload says of itself.
    pub description: Description,
    /// Parameters that differ from the workload's defaults.
    pub settings: Settings,
    /// The part of them that holds at test size too: the variant's shape, and the user's own.
    pub fixed: Settings,
    /// Thread counts that the workload's definition allows.
    pub threads: Vec<u32>,
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// Index of the entry.
    pub entry: usize,
    /// Threads.
    pub threads: u32,
}

/// One sample to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Index of the allocator.
    pub allocator: usize,
    /// The row.
    pub row: Row,
    /// Bytes of padding in the environment.
    pub padding: usize,
}

/// All rows of a run.
#[derive(Debug)]
pub struct Plan {
    /// The workloads.
    pub entries: Vec<Entry>,
    /// The rows, in the order of the table.
    pub rows: Vec<Row>,
    seed: u64,
}

impl Plan {
    /// Resolves a request against what the workloads' program offers.
    ///
    /// Fails with a usage error for an unknown workload, parameter or variant, for a value that is
    /// no number, and where no thread count suits a workload.
    pub fn new(request: &Request<'_>, offered: &[Description], seed: u64) -> Result<Self> {
        let mut threads = request.threads.map_or_else(|| sweep(request.cpus), <[u32]>::to_vec);
        threads.sort_unstable();
        threads.dedup();
        let mut entries = choose(request, offered)?;
        for setting in request.settings {
            apply(setting, &mut entries)?;
        }
        for entry in &mut entries {
            let bound = entry.description.max_threads.unwrap_or(u32::MAX);
            entry.threads = threads.iter().copied().filter(|threads| (1..=bound).contains(threads)).collect();
            if entry.threads.is_empty() {
                bail!(UsageError(format!("{} runs with 1 to {bound} threads", entry.label)));
            }
        }
        let rows = entries
            .iter()
            .enumerate()
            .flat_map(|(index, entry)| {
                entry.threads.iter().map(move |&threads| Row { entry: index, threads })
            })
            .collect();
        Ok(Self { entries, rows, seed })
    }

    /// The order of one block: every allocator runs every row once, shuffled by seed and block.
    pub fn block(&self, block: usize, allocators: usize) -> Vec<Step> {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(block as u64);
        let mut steps: Vec<Step> = self
            .rows
            .iter()
            .flat_map(|&row| (0..allocators).map(move |allocator| Step { allocator, row, padding: 0 }))
            .collect();
        steps.shuffle(&mut random);
        for step in &mut steps {
            step.padding = random.random_range(0..PADDING_BOUND);
        }
        steps
    }
}

/// 1, 2, 4 … up to twice the CPUs, and up to 4 at least.
fn sweep(cpus: u32) -> Vec<u32> {
    let most = cpus.saturating_mul(2).max(4);
    std::iter::successors(Some(1_u32), |threads| threads.checked_mul(2))
        .take_while(|&threads| threads <= most)
        .collect()
}

fn choose(request: &Request<'_>, offered: &[Description]) -> Result<Vec<Entry>> {
    let find = |name: &str| offered.iter().find(|description| description.name == name);
    let preset = |preset: &Preset| {
        find(preset.workload).map(|description| from_preset(preset, description, request.size))
    };
    if request.workloads.is_empty() {
        let entries: Vec<Entry> = PRESETS.iter().filter_map(preset).collect();
        if entries.is_empty() {
            bail!("the workloads' program offers none of the default selection");
        }
        return Ok(entries);
    }
    let mut entries: Vec<Entry> = Vec::new();
    for name in request.workloads {
        let matching = PRESETS.iter().filter(|preset| preset.label == name || preset.workload == name);
        let mut found: Vec<Entry> = matching.filter_map(preset).collect();
        if found.is_empty() {
            let Some(description) = find(name) else { bail!(unknown("workload", name, &names(offered))) };
            found.push(Entry::plain(description));
        }
        for entry in found {
            if !entries.iter().any(|other| other.label == entry.label) {
                entries.push(entry);
            }
        }
    }
    Ok(entries)
}

fn names(offered: &[Description]) -> Vec<&str> {
    let variants = PRESETS.iter().filter(|preset| preset.label != preset.workload);
    offered
        .iter()
        .map(|description| description.name.as_str())
        .chain(variants.map(|preset| preset.label))
        .collect()
}

fn from_preset(preset: &Preset, description: &Description, size: Size) -> Entry {
    let owned = |settings: &[(&str, f64)]| -> Settings {
        settings.iter().map(|&(key, value)| (key.to_owned(), value)).collect()
    };
    let fixed = owned(preset.shape);
    let mut settings = owned(if size == Size::Quick { preset.quick } else { preset.work });
    settings.extend(fixed.clone());
    Entry { label: preset.label.into(), settings, fixed, ..Entry::plain(description) }
}

impl Entry {
    /// A workload with its own defaults, and no thread counts yet.
    pub fn plain(description: &Description) -> Self {
        Self {
            label: description.name.clone(),
            description: description.clone(),
            settings: Settings::new(),
            fixed: Settings::new(),
            threads: Vec::new(),
        }
    }
}

/// Applies `workload.key=value` to every entry of that workload or variant.
fn apply(setting: &str, entries: &mut [Entry]) -> Result<()> {
    let parts = setting.split_once('=').and_then(|(name, value)| {
        let (workload, key) = name.split_once('.')?;
        let value: f64 = value.parse().ok().filter(|value: &f64| value.is_finite())?;
        Some((workload, key, value))
    });
    let Some((workload, key, value)) = parts else {
        bail!(UsageError(format!("--set takes WORKLOAD.KEY=NUMBER, not '{setting}'")));
    };
    let chosen: Vec<String> = entries.iter().map(|entry| entry.label.clone()).collect();
    let mut matched = false;
    for entry in entries {
        if entry.label != workload && entry.description.name != workload {
            continue;
        }
        matched = true;
        let keys: Vec<&str> =
            entry.description.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
        if !keys.contains(&key) {
            bail!(unknown(&format!("parameter of {workload}"), key, &keys));
        }
        entry.settings.insert(key.to_owned(), value);
        entry.fixed.insert(key.to_owned(), value);
    }
    if !matched {
        let chosen: Vec<&str> = chosen.iter().map(String::as_str).collect();
        bail!(unknown("workload in --set", workload, &chosen));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::testing::descriptions;

    fn request<'a>(
        workloads: &'a [String],
        settings: &'a [String],
        threads: Option<&'a [u32]>,
    ) -> Request<'a> {
        Request { workloads, threads, settings, size: Size::Default, cpus: 2 }
    }

    fn plan(workloads: &[&str], settings: &[&str], threads: Option<&[u32]>) -> Result<Plan> {
        let owned = |list: &[&str]| list.iter().map(|&item| item.to_owned()).collect::<Vec<_>>();
        Plan::new(&request(&owned(workloads), &owned(settings), threads), &descriptions(), 1)
    }

    fn refused(workloads: &[&str], settings: &[&str], threads: Option<&[u32]>) -> String {
        let error = plan(workloads, settings, threads).expect_err("refused");
        assert!(error.is::<UsageError>(), "{error}");
        error.to_string()
    }

    #[test]
    fn threads_are_swept_to_twice_the_cpus_and_to_four_at_least() {
        assert_eq!(sweep(1), [1, 2, 4]);
        assert_eq!(sweep(2), [1, 2, 4]);
        assert_eq!(sweep(6), [1, 2, 4, 8]);
        assert_eq!(sweep(64), [1, 2, 4, 8, 16, 32, 64, 128]);
    }

    #[test]
    fn a_workload_stands_for_all_its_variants_and_settings_reach_them() {
        let plan = plan(&["threadtest", "threadtest-small"], &["threadtest.rounds=3"], Some(&[2, 1, 2]))
            .expect("a plan");
        let labels: Vec<&str> = plan.entries.iter().map(|entry| entry.label.as_str()).collect();
        assert_eq!(labels, ["threadtest-small", "threadtest-medium"]);
        for entry in &plan.entries {
            assert_eq!(entry.threads, [1, 2]);
            assert_eq!((entry.settings["rounds"], entry.fixed["rounds"]), (3.0, 3.0));
        }
        assert_eq!((plan.entries[0].fixed["size"], plan.entries[1].fixed["size"]), (64.0, 4096.0));
        assert_eq!(plan.rows.len(), 4);
    }

    #[test]
    fn a_workload_outside_the_selection_runs_with_its_own_defaults_and_bounds() {
        let plan = plan(&["bounded"], &[], Some(&[1, 2, 8])).expect("a plan");
        assert!(plan.entries[0].settings.is_empty());
        assert_eq!(plan.entries[0].threads, [1, 2]);
    }

    #[test]
    fn a_block_is_complete_shuffled_and_repeatable() {
        let plan = plan(&[], &[], None).expect("a plan");
        let (first, second) = (plan.block(0, 3), plan.block(1, 3));
        assert_eq!(first, plan.block(0, 3));
        assert_ne!(first, second);
        for block in [&first, &second] {
            let mut pairs: Vec<(usize, Row)> = block.iter().map(|step| (step.allocator, step.row)).collect();
            pairs.sort_unstable();
            pairs.dedup();
            assert_eq!(pairs.len(), plan.rows.len() * 3);
            assert!(block.iter().all(|step| step.padding < PADDING_BOUND));
        }
    }

    #[test]
    fn nonsense_is_a_usage_error_that_helps() {
        assert!(refused(&["larsen"], &[], None).contains("did you mean 'larson'?"));
        assert!(refused(&["larson"], &["larson.size"], None).contains("not 'larson.size'"));
        assert!(refused(&["larson"], &["larson.rounds=x"], None).contains("WORKLOAD.KEY=NUMBER"));
        assert!(refused(&["larson"], &["larson.roundz=1"], None).contains("did you mean 'rounds'?"));
        assert!(
            refused(&["larson"], &["threadtest.size=1"], None)
                .contains("unknown workload in --set 'threadtest'")
        );
        assert!(refused(&["bounded"], &[], Some(&[8])).contains("bounded runs with 1 to 2 threads"));
    }
}
