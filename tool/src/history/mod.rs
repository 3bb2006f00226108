//! All runs of this machine, and those that were added from elsewhere, in one SQLite database: how a row went
//! over time, under which build of the allocator, on which machine.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, named_params, params};
use serde::Serialize;

use crate::record::{Machine, Run, Sample, Task};
use crate::report::{Cell, Comparison, Summary};
use crate::run::in_force;

/// Version of the tables; raised when a column changes its meaning.
const VERSION: i64 = 3;
const TABLES: &str = include_str!("tables.sql");
/// Turns tables of version 1, which did not tell what a workload did by default, into those of version 2.
const FROM_1: &str = "ALTER TABLE cells ADD COLUMN parameters TEXT NOT NULL DEFAULT '{}'";
/// Turns those of version 2, which had one run a second of each host, into today's.
const FROM_2: &str = include_str!("from_2.sql");

/// A database of runs.
#[derive(Debug)]
pub struct History {
    connection: Connection,
}

/// A run in the database.
#[derive(Debug, PartialEq, Serialize)]
pub struct Entry {
    /// Start, in UTC.
    pub started: String,
    /// The host.
    pub host: String,
    /// The preset.
    pub preset: String,
    /// Complete blocks.
    pub blocks: usize,
    /// Whether it was ended early.
    pub interrupted: bool,
    /// Rows that have a number.
    pub rows: usize,
    /// Version, commit and build id of our own allocator; none where it took no part.
    pub build: Option<String>,
    /// Its folder, when it was added.
    pub folder: String,
}

/// One allocator in one row of one run.
#[derive(Debug, PartialEq, Serialize)]
pub struct Point {
    /// Start of the run, in UTC.
    pub started: String,
    /// The host.
    pub host: String,
    /// The kind of machine: those of one kind can be held against each other.
    pub machine: String,
    /// The workload.
    pub workload: String,
    /// Threads.
    pub threads: u32,
    /// The parameters that were set, as JSON.
    pub settings: String,
    /// The parameters that were in force, those that nobody set included, as JSON; `{}` where that was not kept.
    pub parameters: String,
    /// What a program of the user's was asked to do; empty for other workloads, and where that was not kept.
    pub task: String,
    /// The baseline.
    pub baseline: String,
    /// Version, commit and build id of the allocator.
    pub build: String,
    /// Complete blocks.
    pub blocks: usize,
    /// Operations per second.
    pub operations_per_second: f64,
    /// Peak resident memory, in bytes.
    pub peak_rss_bytes: f64,
    /// Throughput as a multiple of glibc's, and its interval; none for glibc itself.
    pub throughput: Option<[f64; 3]>,
    /// Peak resident memory as a multiple of glibc's, and its interval.
    pub peak_rss: Option<[f64; 3]>,
}

/// Which points are wanted.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// The workload.
    pub workload: &'a str,
    /// Threads; none: all.
    pub threads: Option<u32>,
    /// The allocator.
    pub allocator: &'a str,
}

/// Where the database lies unless the user says otherwise: `$XDG_DATA_HOME/ample/history.sqlite`, or below
/// `~/.local/share`. None where neither is known.
pub fn default_path() -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")))?;
    Some(data.join("ample/history.sqlite"))
}

impl History {
    /// Opens the database, and makes it where there is none.
    ///
    /// Fails where that cannot be written, where the file is no such database, or one of a later version.
    pub fn open(path: &Path) -> Result<Self> {
        let explain = || format!("cannot open the history {}", path.display());
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(explain)?;
        }
        let mut connection = Connection::open(path).with_context(explain)?;
        connection.busy_timeout(std::time::Duration::from_secs(10)).with_context(explain)?;
        let found = version(&connection).with_context(explain)?;
        if !(0..=VERSION).contains(&found) {
            bail!(
                "the history {} is of version {found}, and this tool reads version {VERSION}; name another one with --history",
                path.display()
            );
        }
        // Whoever only looks writes nothing: the file may be read-only, or another process be adding to it.
        if found != VERSION {
            update(&mut connection).with_context(explain)?;
        }
        connection.pragma_update(None, "foreign_keys", true).with_context(explain)?;
        Ok(Self { connection })
    }

    /// Adds a run with its figures and samples. It replaces itself, where it is there already: the run of the same
    /// host, start and id; without an id, that of the same host, start, command and seed.
    pub fn add(&mut self, run: &Run, summary: &Summary, samples: &[Sample], folder: &Path) -> Result<()> {
        // To write from the beginning: one that has read and then wants to write is refused at once, without the
        // wait, where another tool is writing.
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .context("cannot add the run to the history")?;
        put(&transaction, run, summary, samples, folder).context("cannot add the run to the history")?;
        transaction.commit().context("cannot add the run to the history")
    }

    /// All runs, the oldest first.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        let mut statement = self.connection.prepare(
            "SELECT started, host, preset, blocks, interrupted, folder, \
             (SELECT count(DISTINCT workload || ' ' || threads) FROM cells WHERE run = runs.id), \
             (SELECT min(build) FROM cells WHERE run = runs.id AND allocator = ?1) \
             FROM runs ORDER BY started, host",
        )?;
        let entry = |row: &rusqlite::Row<'_>| {
            Ok(Entry {
                started: row.get(0)?,
                host: row.get(1)?,
                preset: row.get(2)?,
                blocks: row.get(3)?,
                interrupted: row.get(4)?,
                folder: row.get(5)?,
                rows: row.get(6)?,
                build: row.get(7)?,
            })
        };
        let entries = statement.query_map(params![crate::allocators::OURS], entry)?;
        Ok(entries.collect::<rusqlite::Result<_>>()?)
    }

    /// One allocator in one row over time: by machine, threads and parameters, the oldest first, as are sets of
    /// parameters that differ only in what nobody set.
    pub fn points(&self, wanted: &Wanted<'_>) -> Result<Vec<Point>> {
        let mut statement = self.connection.prepare(
            "SELECT started, host, machine, workload, threads, settings, parameters, baseline, build, blocks, \
             operations_per_second, peak_rss_bytes, throughput, throughput_low, throughput_high, \
             peak_rss, peak_rss_low, peak_rss_high, task \
             FROM cells JOIN runs ON runs.id = cells.run \
             WHERE workload = :workload AND allocator = :allocator AND (:threads IS NULL OR threads = :threads) \
             ORDER BY machine, baseline, workload, task, threads, settings, min(started) OVER \
             (PARTITION BY machine, baseline, workload, task, threads, settings, parameters), parameters, started",
        )?;
        let point = |row: &rusqlite::Row<'_>| {
            let ratio = |at: usize| -> rusqlite::Result<Option<[f64; 3]>> {
                let Some(value) = row.get::<_, Option<f64>>(at)? else { return Ok(None) };
                Ok(Some([value, row.get(at + 1)?, row.get(at + 2)?]))
            };
            Ok(Point {
                started: row.get(0)?,
                host: row.get(1)?,
                machine: row.get(2)?,
                workload: row.get(3)?,
                threads: row.get(4)?,
                settings: row.get(5)?,
                parameters: row.get(6)?,
                baseline: row.get(7)?,
                build: row.get(8)?,
                blocks: row.get(9)?,
                operations_per_second: row.get(10)?,
                peak_rss_bytes: row.get(11)?,
                throughput: ratio(12)?,
                peak_rss: ratio(15)?,
                task: row.get(18)?,
            })
        };
        let Wanted { workload, threads, allocator } = *wanted;
        let values = named_params! { ":workload": workload, ":allocator": allocator, ":threads": threads };
        let points = statement.query_map(values, point)?;
        Ok(points.collect::<rusqlite::Result<_>>()?)
    }

    /// The workloads that there are, by name.
    pub fn workloads(&self) -> Result<Vec<String>> {
        let mut statement =
            self.connection.prepare("SELECT DISTINCT workload FROM cells ORDER BY workload")?;
        let names = statement.query_map([], |row| row.get(0))?;
        Ok(names.collect::<rusqlite::Result<_>>()?)
    }
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Makes the tables, or turns older ones into today's.
fn update(connection: &mut Connection) -> rusqlite::Result<()> {
    // A table that is replaced would take the rows that refer to it with it.
    connection.pragma_update(None, "foreign_keys", false)?;
    // Of several tools that begin at once, one makes the tables, and the others wait for it.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    match version(&transaction)? {
        0 => transaction.execute_batch(TABLES)?,
        1 => transaction.execute_batch(&format!("{FROM_1};\n{FROM_2}"))?,
        2 => transaction.execute_batch(FROM_2)?,
        // Another tool was faster.
        _ => return Ok(()),
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()
}

fn put(
    transaction: &Transaction<'_>,
    run: &Run,
    summary: &Summary,
    samples: &[Sample],
    folder: &Path,
) -> Result<()> {
    let identity = run.id.as_deref().unwrap_or_default();
    let known: Option<i64> = transaction
        .query_row(
            "SELECT id FROM runs WHERE host = ?1 AND started = ?2 AND identity = ?3 \
             AND (identity <> '' OR (command = ?4 AND seed = ?5))",
            params![run.machine.host, run.started, identity, run.command.join(" "), run.seed.to_string()],
            |row| row.get(0),
        )
        .optional()?;
    if let Some(known) = known {
        transaction.execute("DELETE FROM runs WHERE id = ?1", params![known])?;
    }
    let baseline = summary.baseline().map(|column| &run.allocators[column]);
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    transaction.execute(
        "INSERT INTO runs (started, host, machine, machine_record, baseline, tool_version, command, preset, \
         seed, blocks, interrupted, folder, identity) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        params![
            run.started,
            run.machine.host,
            kind(&run.machine),
            serde_json::to_string(&run.machine)?,
            baseline.map(|allocator| allocator.build()).unwrap_or_default(),
            run.tool_version,
            run.command.join(" "),
            run.preset,
            run.seed.to_string(),
            run.blocks,
            summary.interrupted,
            folder.display().to_string(),
            identity,
        ],
    )?;
    let id = transaction.last_insert_rowid();
    let mut insert = transaction.prepare(
        "INSERT INTO cells (run, workload, threads, settings, parameters, task, allocator, build, sha256, \
         operations_per_second, peak_rss_bytes, throughput, throughput_low, throughput_high, \
         peak_rss, peak_rss_low, peak_rss_high) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
    )?;
    for row in &summary.rows {
        let about = run.workloads.iter().find(|workload| workload.name == row.workload);
        let settings = serde_json::to_string(&about.map(|about| &about.settings))?;
        let task = about.and_then(|about| about.task.as_ref()).map(Task::line).unwrap_or_default();
        let parameters = serde_json::to_string(&in_force(&row.workload, samples))?;
        for (allocator, cell) in run.allocators.iter().zip(&row.cells) {
            let Cell::Measured(figures) = cell else { continue };
            let [speed, memory] = [figures.throughput, figures.peak_rss].map(split);
            insert.execute(params![
                id,
                row.workload,
                row.threads,
                settings,
                parameters,
                task,
                allocator.name,
                allocator.build(),
                allocator.sha256,
                figures.operations_per_second.value,
                figures.peak_rss_bytes.value,
                speed[0],
                speed[1],
                speed[2],
                memory[0],
                memory[1],
                memory[2],
            ])?;
        }
    }
    Ok(())
}

fn split(comparison: Option<Comparison>) -> [Option<f64>; 3] {
    let ratio = comparison.map(|comparison| comparison.ratio);
    [ratio.map(|ratio| ratio.value), ratio.map(|ratio| ratio.low), ratio.map(|ratio| ratio.high)]
}

/// What machines of one kind have in common, in a line.
fn kind(machine: &Machine) -> String {
    let memory = machine
        .memory_bytes
        .map_or("unknown memory".to_owned(), |bytes| format!("{:.0} GiB", bytes as f64 / f64::from(1 << 30)));
    let cpu = machine.cpu.as_deref().unwrap_or("unknown processor");
    let system = machine.system.as_deref().unwrap_or("unknown system");
    format!("{cpu}, {} CPUs, {memory}, {system}, Linux {}", machine.cpus, machine.kernel)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocators::Allocator;
    use crate::run::recorded;
    use crate::run::testing::{conclude_from, run_of};

    fn measured() -> (Run, Summary, Vec<Sample>) {
        let allocators = [Allocator::fake("glibc"), Allocator::fake("ample")];
        let (samples, conclusion) =
            conclude_from(Vec::new(), &[], &allocators, 10, usize::MAX, |asked, measurement| {
                measurement.wall_ns /= if asked.allocator == "ample" { 2 } else { 1 };
                measurement.parameters.insert("rounds".into(), 3.0);
                None
            });
        let run = run_of(&allocators, &conclusion);
        let (plan, conclusion) = recorded(&run, samples);
        let summary = Summary::new(&conclusion, &plan, &run.allocators, 1);
        (run, summary, conclusion.samples)
    }

    fn wanted<'a>(workload: &'a str, threads: Option<u32>, allocator: &'a str) -> Wanted<'a> {
        Wanted { workload, threads, allocator }
    }

    #[test]
    fn a_run_is_added_once_and_its_rows_are_found_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("deep/history.sqlite");
        let (mut run, summary, samples) = measured();
        let mut history = History::open(&path).expect("made");
        history.add(&run, &summary, &samples, folder.path()).expect("added");
        history.add(&run, &summary, &samples, folder.path()).expect("replaced");
        run.started = "20260102T000000Z".into();
        run.allocators[1].build_id = Some("abcdef0123456789".into());
        history.add(&run, &summary, &samples, folder.path()).expect("added");
        drop(history);
        let history = History::open(&path).expect("opened again");
        let entries = history.entries().expect("entries");
        assert_eq!(entries.len(), 2);
        assert_eq!(
            (entries[0].started.as_str(), entries[0].rows, entries[0].blocks),
            ("20260101T000000Z", 2, 10)
        );
        let points = history.points(&wanted("larson", Some(2), "ample")).expect("points");
        assert_eq!(points.len(), 2);
        assert!((points[0].throughput.expect("a ratio")[0] - 2.0).abs() < 1e-3, "{points:?}");
        assert_eq!(points[1].build, "1.0, build id abcdef012345");
        assert_eq!(history.points(&wanted("larson", None, "ample")).expect("points").len(), 4);
        assert!(history.points(&wanted("larson", None, "glibc")).expect("points")[0].throughput.is_none());
        assert!(history.points(&wanted("nothing", None, "ample")).expect("points").is_empty());
        assert_eq!(history.workloads().expect("names"), ["larson"]);
    }

    #[test]
    fn tables_of_the_version_before_are_read_and_added_to() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("history.sqlite");
        let (mut run, summary, samples) = measured();
        History::open(&path).and_then(|mut new| new.add(&run, &summary, &samples, &path)).expect("added");
        let older = "ALTER TABLE cells DROP COLUMN parameters; ALTER TABLE cells DROP COLUMN task; ALTER TABLE runs DROP COLUMN identity; \
            PRAGMA user_version = 1";
        Connection::open(&path).and_then(|made| made.execute_batch(older)).expect("as version 1 was");
        let mut history = History::open(&path).expect("opened");
        run.started = "20260102T000000Z".into();
        history.add(&run, &summary, &samples, &path).expect("added");
        drop(history);
        let points = History::open(&path).and_then(|again| again.points(&wanted("larson", Some(1), "ample")));
        let parameters: Vec<_> = points.expect("points").into_iter().map(|point| point.parameters).collect();
        assert_eq!(parameters, ["{}", r#"{"rounds":3.0}"#]);
    }

    #[test]
    fn runs_that_begin_in_the_same_second_are_all_kept_and_older_tables_say_who_is_who() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("history.sqlite");
        let (mut run, summary, samples) = measured();
        let with_id = |id: &str| Run { id: Some(id.into()), ..run.clone() };
        let (first, second) = (with_id("1"), with_id("2"));
        let mut history = History::open(&path).expect("made");
        for run in [&run, &first, &second, &second, &run] {
            history.add(run, &summary, &samples, &path).expect("added");
        }
        assert_eq!(history.entries().expect("entries").len(), 3);
        run.command.push("--out".into());
        history.add(&run, &summary, &samples, &path).expect("added");
        assert_eq!(history.entries().expect("entries").len(), 4, "no id, and another command");
        drop(history);
        let older = "ALTER TABLE cells DROP COLUMN task; ALTER TABLE runs DROP COLUMN identity; PRAGMA user_version = 2";
        Connection::open(&path).and_then(|made| made.execute_batch(older)).expect("as version 2 was");
        let mut history = History::open(&path).expect("opened");
        history.add(&run, &summary, &samples, &path).expect("replaced");
        let rows: Vec<usize> = history.entries().expect("entries").iter().map(|entry| entry.rows).collect();
        assert_eq!(rows, [2, 2, 2, 2], "cells stay with their runs");
        assert_eq!(history.points(&wanted("larson", Some(1), "ample")).expect("points").len(), 4);
    }

    #[test]
    fn several_tools_may_make_the_tables_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("history.sqlite");
        std::thread::scope(|scope| {
            let open = || History::open(&path).map(drop);
            let all: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            for one in all {
                one.join().expect("ends").expect("opened");
            }
        });
    }

    #[test]
    fn opening_waits_for_nobody_who_writes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("history.sqlite");
        History::open(&path).expect("made");
        let writer = Connection::open(&path).expect("opened");
        writer.execute_batch("BEGIN IMMEDIATE").expect("nobody else writes");
        assert!(History::open(&path).expect("opened").entries().expect("entries").is_empty());
    }

    #[test]
    fn adding_waits_for_another_tool_that_writes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("history.sqlite");
        let (run, summary, samples) = measured();
        let mut history = History::open(&path).expect("made");
        let writer = Connection::open(&path).expect("opened");
        writer.execute_batch("BEGIN IMMEDIATE").expect("nobody else writes");
        std::thread::scope(|scope| {
            let added = scope.spawn(|| history.add(&run, &summary, &samples, &path));
            std::thread::sleep(std::time::Duration::from_millis(200));
            writer.execute_batch("COMMIT").expect("written");
            added.join().expect("ends").expect("added");
        });
        assert_eq!(history.entries().expect("entries").len(), 1);
    }

    #[test]
    fn what_is_no_history_of_ours_is_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), "this is no database, however long it may be").expect("written");
        let error = History::open(file.path()).expect_err("refused").to_string();
        assert!(error.starts_with("cannot open the history"), "{error}");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("later.sqlite");
        Connection::open(&path).expect("made").pragma_update(None, "user_version", 9).expect("set");
        let error = History::open(&path).expect_err("refused").to_string();
        assert!(error.contains("is of version 9"), "{error}");
    }
}
