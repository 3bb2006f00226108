//! `ample history`: a row over time; and what `ample bench` adds to it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};

use super::{print, report};
use crate::cli::{self, Bench};
use crate::error::{say, unknown};
use crate::history::{Entry, History, Point, Wanted, default_path};
use crate::record::{Run, Sample};
use crate::report::{Summary, Told, interval, multiple, rows};
use crate::stats::Estimate;

/// The variable that continuous integration sets.
const CI: &str = "CI";

/// Fails where the user names a database that cannot take the run: before it is measured.
pub(super) fn check(arguments: &Bench) -> Result<()> {
    arguments.history.as_deref().map_or(Ok(()), |path| History::open(path).map(drop))
}

/// Adds a finished run where the user wants that. What goes wrong is a warning: the run itself is there. A
/// shard is no run: `ample history --add` adds it together with the others.
pub(super) fn keep(arguments: &Bench, run: &Run, summary: &Summary, samples: &[Sample], folder: &Path) {
    let unasked = arguments.history.is_none();
    let nothing_to_add = run.shard.is_some() || run.blocks == 0;
    if arguments.no_history || nothing_to_add || (unasked && env::var_os(CI).is_some()) {
        return;
    }
    let Some(path) = arguments.history.clone().or_else(default_path) else { return };
    let added = History::open(&path).and_then(|mut history| history.add(run, summary, samples, folder));
    if let Err(error) = added {
        say(&format!("ample: warning: {error:#}"));
    }
}

/// Adds what is to be added, and shows the runs, or a row.
pub fn history(arguments: &cli::History) -> Result<ExitCode> {
    let path = arguments.history.clone().or_else(default_path).ok_or_else(|| {
        anyhow!(
            "no folder for data is known: neither XDG_DATA_HOME nor HOME is set; name a file with --history"
        )
    })?;
    if arguments.add.is_empty() && !path.exists() {
        bail!(
            "there is no history at {}: ample bench makes it, or ample history --add DIR from the folders of runs",
            path.display()
        );
    }
    let mut history = History::open(&path)?;
    for merged in report::read(&arguments.add)? {
        let folder = merged.folders.first().cloned().unwrap_or_else(PathBuf::new);
        let told = Told::new(merged);
        if told.run.blocks == 0 {
            bail!("{} has no complete block: there is nothing to add", folder.display());
        }
        if let Some(note) = &told.note {
            say(&format!("ample: {}: {note}", folder.display()));
        }
        history.add(&told.run, &told.summary, &told.samples, &folder)?;
    }
    let Some(workload) = &arguments.workload else {
        let entries = history.entries()?;
        print(&if arguments.json { serde_json::to_string_pretty(&entries)? + "\n" } else { runs(&entries) })?;
        return Ok(ExitCode::SUCCESS);
    };
    let workloads = history.workloads()?;
    if !workloads.contains(workload) {
        let names: Vec<&str> = workloads.iter().map(String::as_str).collect();
        bail!(unknown("workload in the history", workload, &names));
    }
    let points =
        history.points(&Wanted { workload, threads: arguments.threads, allocator: &arguments.allocator })?;
    if points.is_empty() {
        bail!("{workload} has no number under {} on that many threads", arguments.allocator);
    }
    print(&if arguments.json { serde_json::to_string_pretty(&points)? + "\n" } else { over_time(&points) })?;
    Ok(ExitCode::SUCCESS)
}

fn runs(entries: &[Entry]) -> String {
    let head = ["started", "host", "preset", "blocks", "rows", "ample", "folder"].map(str::to_owned);
    let cells: Vec<Vec<String>> = entries
        .iter()
        .map(|entry| {
            let early = if entry.interrupted { " (ended early)" } else { "" };
            vec![
                entry.started.clone(),
                entry.host.clone(),
                entry.preset.clone(),
                format!("{}{early}", entry.blocks),
                entry.rows.to_string(),
                entry.build.clone().unwrap_or_else(|| "–".into()),
                entry.folder.clone(),
            ]
        })
        .collect();
    rows(&head, &cells, head.len()) + "\n"
}

/// A table for each machine, baseline, task, number of threads and set of parameters in force: only within one can
/// figures be held against each other.
fn over_time(points: &[Point]) -> String {
    let head = ["started", "host", "blocks", "speed × glibc", "memory × glibc", "build"].map(str::to_owned);
    let same_row = |a: &Point, b: &Point| {
        (&a.machine, &a.baseline, &a.task, a.threads, &a.settings)
            == (&b.machine, &b.baseline, &b.task, b.threads, &b.settings)
    };
    let same = |a: &Point, b: &Point| same_row(a, b) && a.parameters == b.parameters;
    let mut text = String::new();
    for group in points.chunk_by(same) {
        let Point { machine, baseline, workload, threads, settings, parameters, task, .. } = &group[0];
        let task = if task.is_empty() { String::new() } else { format!(", {task}") };
        let changed =
            points.iter().any(|point| same_row(point, &group[0]) && point.parameters != *parameters);
        let settings = match (changed, parameters.as_str(), settings.as_str()) {
            (true, "{}", "{}") => ", its parameters unknown".into(),
            (true, "{}", set) => format!(", {set}, the rest unknown"),
            (true, all, _) => format!(", {all}"),
            (false, _, "{}") => String::new(),
            (false, _, set) => format!(", {set}"),
        };
        text += &format!("{workload} × {threads}{task}{settings} on {machine}; glibc {baseline}\n");
        let cells: Vec<Vec<String>> = group
            .iter()
            .map(|point| {
                vec![
                    point.started.clone(),
                    point.host.clone(),
                    point.blocks.to_string(),
                    ratio(point.throughput),
                    ratio(point.peak_rss),
                    point.build.clone(),
                ]
            })
            .collect();
        text += &format!("{}\n\n", rows(&head, &cells, head.len()));
    }
    text
}

fn ratio(ratio: Option<[f64; 3]>) -> String {
    ratio.map_or("–".into(), |[value, low, high]| {
        format!("{} [{}]", multiple(value), interval(Estimate { value, low, high }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(settings: &str, parameters: &str) -> Point {
        Point {
            started: "20260101T000000Z".into(),
            host: "host".into(),
            machine: "machine".into(),
            workload: "larson".into(),
            threads: 2,
            settings: settings.into(),
            parameters: parameters.into(),
            task: String::new(),
            baseline: "2.36".into(),
            build: "1.0".into(),
            blocks: 10,
            operations_per_second: 1e6,
            peak_rss_bytes: 1e6,
            throughput: Some([2.0, 1.5, 2.5]),
            peak_rss: None,
        }
    }

    /// The heads of the tables.
    fn heads(points: &[Point]) -> Vec<String> {
        let text = over_time(points);
        let heads = text.lines().filter(|line| line.starts_with("larson"));
        heads.map(|line| line.split(" on ").next().expect("a part").to_owned()).collect()
    }

    #[test]
    fn runs_whose_defaults_differ_are_apart_and_the_head_tells_them() {
        let now = r#"{"rounds":4.0,"size":8.0}"#;
        let one = [point("{}", now), point("{}", now)];
        assert_eq!(heads(&one), ["larson × 2"]);
        let set = r#"{"size":8.0}"#;
        assert_eq!(heads(&[point(set, now)]), [format!("larson × 2, {set}")]);
        assert_eq!(
            heads(&[point("{}", "{}"), point("{}", now)]),
            ["larson × 2, its parameters unknown".into(), format!("larson × 2, {now}")]
        );
        let older = r#"{"rounds":3.0,"size":8.0}"#;
        assert_eq!(
            heads(&[point("{}", older), point("{}", now)]),
            [format!("larson × 2, {older}"), format!("larson × 2, {now}")]
        );
        let of = |task: &str| Point { task: task.into(), ..point("{}", "{}") };
        assert_eq!(
            heads(&[of(""), of("./a 1"), of("./a 1"), of("./a 2")]),
            ["larson × 2", "larson × 2, ./a 1", "larson × 2, ./a 2"]
        );
        assert_eq!(
            heads(&[point(set, "{}"), point(set, now)]),
            [format!("larson × 2, {set}, the rest unknown"), format!("larson × 2, {now}")]
        );
    }
}
