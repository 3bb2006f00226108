//! One row for the engine: the program; and the entries that it is run under.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use ample_protocol::Description;

use super::{Kind, Metric, Subject};
use crate::allocators::{Allocator, file_sha256, resolve};
use crate::record::Task;
use crate::run::{Entry, Plan};

/// Name of the entry that starts the program as the user would: with its own allocator, which is not glibc's.
pub const AS_IS: &str = "as-is";
/// An environment variable that tells the executor which entry is meant. It never reaches the program.
pub(super) const MARK: &str = "AMPLE_TRIAL_ENTRY";

/// The plan of a run: one row, or one for each thread count. The command names this file.
pub fn plan(subject: &Subject, file: &Path, seed: u64) -> Plan {
    let shown = |word: &OsStr| word.to_string_lossy().into_owned();
    let words: Vec<String> = subject.words().iter().map(|word| shown(word)).collect();
    let name = words.first().map(|word| {
        let file = Path::new(word).file_name();
        file.map_or(word.clone(), shown)
    });
    // A word that no shell could take (with a zero byte) cannot be in a command line either.
    let quoted = |words: &[String]| {
        shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "))
    };
    let tells = match &subject.kind {
        Kind::Command(_) => quoted(&words),
        Kind::Server(server) => {
            let load: Vec<String> = server.load.iter().map(|word| shown(word)).collect();
            format!("{}, under the load of: {}", quoted(&words), quoted(&load))
        }
    };
    let file = resolve(file);
    let metric = |metric: &Metric| {
        let direction = if metric.lower_is_better { "less" } else { "more" };
        format!("{} ({direction} is better)", metric.name)
    };
    let task = Task {
        command: tells.clone(),
        file: file.display().to_string(),
        sha256: file_sha256(&file).ok(),
        metrics: subject.metrics.iter().map(metric).collect(),
        exit_code: subject.exit_code,
    };
    // What reports of runs call throughput is the first metric, or one over it.
    let operation = match subject.metrics.first() {
        None => "one run".into(),
        Some(metric) if metric.lower_is_better => {
            format!("none; what stands for the throughput is 1 / {}, of which less is better", metric.name)
        }
        Some(metric) => format!("none; what stands for the throughput is {}", metric.name),
    };
    let description = Description {
        name: name.unwrap_or_default(),
        tells,
        source: "your own program".into(),
        operation,
        parameters: Vec::new(),
        max_threads: Some(1),
    };
    let threads = match &subject.thread_counts[..] {
        [] => vec![1],
        counts => counts.to_vec(),
    };
    Plan::of(vec![Entry { threads, task: Some(task), ..Entry::plain(&description) }], seed)
}

/// The entry [`AS_IS`], for a program that this file serves: a library, or the program itself.
pub fn as_is(file: &Path) -> Allocator {
    Allocator {
        name: AS_IS.into(),
        limit: None,
        library: resolve(file),
        environment: BTreeMap::new(),
        version: None,
        sha256: String::new(),
        build_id: None,
        commit: None,
        found: "the program's own allocator".into(),
        defines: Default::default(),
        false_name: None,
    }
}

/// The same entries, marked for the executor.
pub fn marked(allocators: &[Allocator]) -> Vec<Allocator> {
    let mark = |allocator: &Allocator| {
        let mut marked = allocator.clone();
        marked.environment.insert(MARK.into(), allocator.name.clone());
        marked
    };
    allocators.iter().map(mark).collect()
}
