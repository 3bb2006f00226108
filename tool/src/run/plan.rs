//! What is to be run: which workloads, with which parameters, on how many threads, in which order.

use std::collections::BTreeMap;

use ample_protocol::{Description, Parameter};
use anyhow::{Result, anyhow, bail};
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::presets::{COMMON, Item, Preset, Size, Sweep};
use crate::error::{UsageError, unknown};
use crate::record::{Run, Shard, Task, Workload};

/// The environment of each process is padded by fewer bytes than this: its size shifts the stack,
/// which alone can change timings.
pub const PADDING_BOUND: usize = 4096;

type Settings = BTreeMap<String, f64>;

/// What the user asked for.
#[derive(Debug)]
pub struct Request<'a> {
    /// Workloads or variants by name; none: all of the preset.
    pub workloads: &'a [String],
    /// What is measured unless workloads are named, and how much of it.
    pub preset: &'static Preset,
    /// Thread counts; none: the preset's own, or its sweep.
    pub threads: Option<&'a [u32]>,
    /// Parameters, as `workload.key=value`.
    pub settings: &'a [String],
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
    /// Thread counts: the preset's own at first, then those that the workload's definition allows.
    pub threads: Vec<u32>,
    /// What a program of the user's is asked to do; none for a workload.
    pub task: Option<Task>,
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
    /// The part of them that this run is; none for all.
    pub shard: Option<Shard>,
    seed: u64,
}

impl Plan {
    /// Resolves a request against what the workloads' program offers.
    ///
    /// Fails with a usage error for an unknown workload, parameter or variant, for a value that is
    /// no number, and where no thread count suits a workload; and where the preset needs a workload that
    /// is not offered.
    pub fn new(request: &Request<'_>, offered: &[Description], seed: u64) -> Result<Self> {
        let mut entries = choose(request, offered)?;
        for setting in request.settings {
            apply(setting, &mut entries)?;
        }
        let sweep = if request.workloads.is_empty() { request.preset.sweep } else { Sweep::Doubling };
        for entry in &mut entries {
            let bound = entry.description.max_threads.unwrap_or(u32::MAX);
            let own = std::mem::take(&mut entry.threads);
            entry.threads = match request.threads {
                Some(threads) => threads.to_vec(),
                None if own.is_empty() => swept(sweep, request.cpus),
                None => own,
            };
            entry.threads.retain(|threads| (1..=bound).contains(threads));
            entry.threads.sort_unstable();
            entry.threads.dedup();
            if entry.threads.is_empty() {
                bail!(UsageError(format!("{} runs with 1 to {bound} threads", entry.label)));
            }
        }
        Ok(Self { rows: rows(&entries), entries, shard: None, seed })
    }

    /// These entries as they are, each with its own thread counts.
    pub fn of(entries: Vec<Entry>, seed: u64) -> Self {
        Self { rows: rows(&entries), entries, shard: None, seed }
    }

    /// The rows of a run that was recorded so. They can be told of, and not be run.
    pub fn recorded(run: &Run, parameters: impl Fn(&str) -> Vec<Parameter>) -> Self {
        let entry = |workload: &Workload| Entry {
            label: workload.name.clone(),
            description: Description {
                name: workload.workload.clone(),
                tells: workload.tells.clone(),
                source: workload.source.clone(),
                operation: workload.operation.clone(),
                parameters: parameters(&workload.name),
                max_threads: None,
            },
            settings: workload.settings.clone(),
            fixed: Settings::new(),
            threads: workload.threads.clone(),
            task: workload.task.clone(),
        };
        let entries: Vec<Entry> = run.workloads.iter().map(entry).collect();
        Self { rows: rows(&entries), entries, shard: run.shard, seed: run.seed }
    }

    /// Whether what is measured after the blocks is measured on this row, and not by another shard.
    pub fn measures(&self, row: Row) -> bool {
        let number = self.rows.iter().position(|other| *other == row);
        self.shard.zip(number).is_none_or(|(shard, number)| shard.takes(number))
    }

    /// The order of one block: every allocator runs every row once, shuffled by seed and block.
    pub fn block(&self, block: usize, allocators: usize) -> Vec<Step> {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(self.shard.map_or(block, |shard| shard.block(block)) as u64);
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

/// The rows of these entries, in their order.
fn rows(entries: &[Entry]) -> Vec<Row> {
    let of_entry = |(index, entry): (usize, &Entry)| {
        entry.threads.iter().map(move |&threads| Row { entry: index, threads }).collect::<Vec<_>>()
    };
    entries.iter().enumerate().flat_map(of_entry).collect()
}

fn swept(sweep: Sweep, cpus: u32) -> Vec<u32> {
    match sweep {
        Sweep::Ends => vec![1, 2, cpus],
        Sweep::Doubling => {
            let most = cpus.saturating_mul(2).max(4);
            std::iter::successors(Some(1_u32), |threads| threads.checked_mul(2))
                .take_while(|&threads| threads <= most)
                .collect()
        }
    }
}

fn choose(request: &Request<'_>, offered: &[Description]) -> Result<Vec<Entry>> {
    let Preset { name: preset, items, others_too, size, .. } = *request.preset;
    let find = |name: &str| offered.iter().find(|description| description.name == name);
    let entry = |item: &Item| {
        let lacks = |what: &str| {
            anyhow!(
                "the preset '{preset}' needs {what}, which the workloads' program does not offer; build it anew \
                 with: cargo ample workloads"
            )
        };
        let Some(description) = find(item.workload) else {
            return Err(lacks(&format!("the workload '{}'", item.workload)));
        };
        let offered = |key: &str| description.parameters.iter().any(|parameter| parameter.name == key);
        let entry = from_item(item, description, size);
        match entry.settings.keys().find(|key| !offered(key)) {
            Some(key) => Err(lacks(&format!("the parameter '{key}' of {}", item.workload))),
            None => Ok(entry),
        }
    };
    if request.workloads.is_empty() {
        let mut entries = items.iter().map(entry).collect::<Result<Vec<Entry>>>()?;
        let others = offered.iter().filter(|description| others_too && is_new(description, items));
        entries.extend(others.map(Entry::plain));
        return Ok(entries);
    }
    let mut entries: Vec<Entry> = Vec::new();
    for name in request.workloads {
        let matching =
            |items: &'static [Item]| items.iter().filter(|item| item.label == name || item.workload == name);
        // What the preset does not have is taken from the common variants, and then as it comes.
        let mut chosen: Vec<&Item> = matching(items).collect();
        if chosen.is_empty() {
            chosen.extend(matching(COMMON));
        }
        let mut found = chosen.into_iter().map(entry).collect::<Result<Vec<Entry>>>()?;
        if found.is_empty() {
            let valid = || names(offered, items);
            let Some(description) = find(name) else { bail!(unknown("workload", name, &valid())) };
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

fn is_new(description: &Description, items: &[Item]) -> bool {
    items.iter().all(|item| item.workload != description.name)
}

fn names<'a>(offered: &'a [Description], items: &'static [Item]) -> Vec<&'a str> {
    let mut names: Vec<&str> = offered.iter().map(|description| description.name.as_str()).collect();
    for item in items.iter().chain(COMMON) {
        if !names.contains(&item.label) {
            names.push(item.label);
        }
    }
    names
}

fn from_item(item: &Item, description: &Description, size: Size) -> Entry {
    let owned = |settings: &[(&str, f64)]| -> Settings {
        settings.iter().map(|&(key, value)| (key.to_owned(), value)).collect()
    };
    let fixed = owned(item.shape);
    let mut settings = owned(match size {
        Size::Quick => item.quick,
        Size::Default => item.work,
        Size::Full => &[],
    });
    settings.extend(fixed.clone());
    let threads = item.threads.to_vec();
    Entry { label: item.label.into(), settings, fixed, threads, ..Entry::plain(description) }
}

impl Entry {
    /// A workload with its own defaults, and no thread counts of its own.
    pub fn plain(description: &Description) -> Self {
        Self {
            label: description.name.clone(),
            description: description.clone(),
            settings: Settings::new(),
            fixed: Settings::new(),
            threads: Vec::new(),
            task: None,
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
    use crate::run::presets::{DEFAULT, find};
    use crate::run::testing::descriptions;

    fn request<'a>(
        workloads: &'a [String],
        settings: &'a [String],
        threads: Option<&'a [u32]>,
    ) -> Request<'a> {
        Request { workloads, threads, settings, preset: find(DEFAULT).expect("known"), cpus: 2 }
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
        let sweep = |cpus| swept(Sweep::Doubling, cpus);
        assert_eq!(sweep(1), [1, 2, 4]);
        assert_eq!(sweep(2), [1, 2, 4]);
        assert_eq!(sweep(6), [1, 2, 4, 8]);
        assert_eq!(sweep(64), [1, 2, 4, 8, 16, 32, 64, 128]);
    }

    #[test]
    fn the_whole_default_run_has_few_thread_counts_and_a_named_workload_all() {
        const ITEMS: &[Item] =
            &[Item { label: "larson", workload: "larson", shape: &[], work: &[], quick: &[], threads: &[] }];
        let preset: &'static Preset =
            Box::leak(Box::new(Preset { items: ITEMS, ..*find(DEFAULT).expect("known") }));
        let counts = |workloads: &[String], cpus| {
            let request = Request { workloads, preset, threads: None, settings: &[], cpus };
            Plan::new(&request, &descriptions(), 1).expect("a plan").entries[0].threads.clone()
        };
        assert_eq!(counts(&[], 1), [1, 2]);
        assert_eq!(counts(&[], 2), [1, 2]);
        assert_eq!(counts(&[], 16), [1, 2, 16]);
        assert_eq!(counts(&["larson".to_owned()], 2), [1, 2, 4]);
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
        let plan = plan(&["threadtest", "larson"], &[], None).expect("a plan");
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
    fn shards_have_the_blocks_of_the_whole_and_each_measures_rows_of_its_own() {
        let whole = plan(&["threadtest", "larson"], &[], None).expect("a plan");
        let shards = [1, 2].map(|index| {
            let shard = Some(Shard { index, count: 2 });
            Plan { shard, ..plan(&["threadtest", "larson"], &[], None).expect("a plan") }
        });
        for block in 0..4 {
            assert_eq!(shards[block % 2].block(block / 2, 3), whole.block(block, 3));
        }
        for &row in &whole.rows {
            assert!(whole.measures(row) && shards[0].measures(row) != shards[1].measures(row));
        }
    }

    #[test]
    fn a_preset_may_have_thread_counts_of_its_own_and_needs_all_its_workloads() {
        const ITEMS: &[Item] = &[Item {
            label: "larson-odd",
            workload: "larson",
            shape: &[],
            work: &[("rounds", 7.0)],
            quick: &[],
            threads: &[5, 3],
        }];
        let preset: &'static Preset =
            Box::leak(Box::new(Preset { items: ITEMS, others_too: true, ..*find(DEFAULT).expect("known") }));
        let plan = |workloads: &[String], threads| {
            let request = Request { workloads, preset, threads, settings: &[], cpus: 2 };
            Plan::new(&request, &descriptions(), 1).expect("a plan")
        };
        let all = plan(&[], None);
        let labels: Vec<&str> = all.entries.iter().map(|entry| entry.label.as_str()).collect();
        assert_eq!(labels, ["larson-odd", "threadtest", "bounded"]);
        assert_eq!((&all.entries[0].threads, all.entries[0].settings["rounds"]), (&vec![3, 5], 7.0));
        assert_eq!(plan(&["larson".into()], Some(&[2])).entries[0].threads, [2]);
        assert_eq!(plan(&["threadtest-small".into()], None).entries[0].threads, [1, 2, 4]);
        let missing = Plan::new(&request(&[], &[], None), &descriptions(), 1).expect_err("refused");
        assert!(missing.to_string().contains("needs the workload 'malloc-test'"), "{missing}");
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
