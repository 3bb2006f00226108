//! `ample bench --apps`: real programs under all allocators.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ample_protocol::Description;
use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use tempfile::TempDir;

use super::opening::{self, Opening};
use super::{exit_code, print, verdict};
use crate::allocators::{self, Allocator, Finder};
use crate::apps::{self, App, AppsExecutor, Site};
use crate::cli::Bench;
use crate::record::{Folder, Machine, Run, Sample, timestamp};
use crate::report::{self, Kept, Summary};
use crate::run::{Campaign, Entry, Interrupt, Plan, Progress, Stopping, TIMEOUT, adopt_orphans};
use crate::trial::{Subject, marked};

/// Seconds that a run takes, as far as three blocks fit into them.
const BUDGET: Duration = Duration::from_secs(900);
/// The same at test size.
const QUICK_BUDGET: Duration = Duration::from_secs(60);

/// The result: that of any run, and what apps have besides.
#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    kept: &'a Kept,
    notes: &'a [String],
}

/// Measures the apps of these names, prints the comparison, and writes the report.
pub fn apps(arguments: &Bench, names: &[String]) -> Result<ExitCode> {
    let chosen_apps = apps::choose(names)?;
    let found: Vec<(&App, Programs)> = chosen_apps.iter().map(|&app| (app, apps::find(app))).collect();
    let allocators = allocators::select(&Finder::new()?, arguments.allocators.as_deref(), &[])?;
    let plan = Plan::of(found.iter().map(|(app, programs)| entry(app, programs)).collect(), arguments.seed);
    if arguments.dry_run {
        return list(&plan, &allocators);
    }
    if let Some((_, Err(install))) = found.first().filter(|_| found.iter().all(|(_, found)| found.is_err())) {
        bail!("none of these programs is installed; run: {install}");
    }
    let scratch = apps::scratch()?;
    let subjects = subjects(&found, &scratch, arguments);
    adopt_orphans().context("cannot look after orphans")?;
    let interrupt = || Interrupt::install().context("cannot catch signals");
    let machine = Machine::read();
    let mut folder = Folder::create(arguments.out.as_deref(), &timestamp(), &machine.host)?;
    let mut executor = AppsExecutor::new(interrupt()?);
    for (name, subject) in &subjects {
        match subject {
            Ok(subject) => executor.add(name, subject, interrupt()?, (&allocators, folder.path())),
            Err(error) => executor.add_broken(name, format!("its input cannot be made: {error}")),
        }
    }
    for (app, programs) in &found {
        if let Err(install) = programs {
            executor.add_missing(app.name, install);
        }
    }
    let stopping = stopping(arguments);
    let mut record = Opening {
        plan: &plan,
        allocators: &allocators,
        machine,
        seed: arguments.seed,
        preset: if arguments.quick { "apps, quick" } else { "apps" },
        stopping,
        timeout: arguments.timeout.unwrap_or(TIMEOUT),
        measures: &[],
        program: Path::new("the programs themselves"),
    }
    .record();
    folder.write_json("run.json", &record)?;
    let campaign = Campaign {
        plan: &plan,
        allocators: &marked(&allocators),
        program: Path::new(""),
        stopping,
        timeout: arguments.timeout.unwrap_or(TIMEOUT),
        progress: &Progress::start(stopping),
    };
    let conclusion = campaign.run(Vec::new(), &mut executor, &mut |sample: &Sample| folder.append(sample))?;

    opening::close(&mut record, &conclusion);
    folder.write_json("run.json", &record)?;
    let summary = Summary::new(&conclusion, &plan, &allocators, arguments.seed);
    let servers: Vec<&str> = chosen_apps.iter().filter(|app| app.is_server).map(|app| app.name).collect();
    let kept = Kept::of(&conclusion, &allocators, &servers);
    let notes = executor.remarks();
    let page = report::write(&folder, &summary, &record)?;
    let answer = Answer { summary: &summary, kept: &kept, notes: &notes };
    show(arguments, &answer, &record, folder.path(), &page)?;
    Ok(exit_code(&summary))
}

/// When the run ends: as the options say, or else within the usual budget.
fn stopping(arguments: &Bench) -> Stopping {
    let rule = match arguments.runs {
        Some(runs) => Stopping::blocks(runs as usize),
        None => {
            let usual = if arguments.quick { QUICK_BUDGET } else { BUDGET };
            Stopping::budget(arguments.budget.unwrap_or(usual), None)
        }
    };
    arguments.precision.map_or(rule, |percent| rule.or_precision(percent / 100.0))
}

/// Prints the comparison, as JSON or as tables, and where the rest lies.
fn show(arguments: &Bench, answer: &Answer, record: &Run, folder: &Path, page: &Path) -> Result<()> {
    if arguments.json {
        return print(&(serde_json::to_string_pretty(answer)? + "\n"));
    }
    let table = report::text_table(answer.summary, report::terminal_width());
    let notes: String = answer.notes.iter().map(|note| format!("Note: {note}\n")).collect();
    print(&format!(
        "{}\n\n{table}{notes}{}\nraw samples: {}\nreport: {}\n",
        verdict(answer.summary, record),
        answer.kept.text(),
        folder.join("samples.jsonl").display(),
        page.display()
    ))
}

/// The programs of an app by name, or the command that installs what is missing.
type Programs = Result<BTreeMap<&'static str, PathBuf>, String>;

/// A row of the table.
fn entry(app: &App, programs: &Programs) -> Entry {
    let description = Description {
        name: app.name.into(),
        tells: app.tells.into(),
        source: match programs {
            Ok(programs) => apps::served(app, programs),
            Err(install) => format!("not installed: {install}"),
        },
        operation: "one run".into(),
        parameters: Vec::new(),
        max_threads: Some(app.threads),
    };
    Entry { threads: vec![app.threads], ..Entry::plain(&description) }
}

/// Makes the inputs of all apps that are there.
fn subjects(
    found: &[(&App, Programs)],
    scratch: &TempDir,
    arguments: &Bench,
) -> Vec<(&'static str, io::Result<Subject>)> {
    let there = found.iter().filter_map(|(app, programs)| Some((app, programs.as_ref().ok()?)));
    there
        .map(|(app, programs)| {
            let site = Site {
                folder: scratch.path().join(app.name),
                programs: programs.clone(),
                small: arguments.quick,
                timeout: arguments.timeout.unwrap_or(TIMEOUT),
            };
            (app.name, fs::create_dir(&site.folder).and_then(|()| (app.subject)(&site)))
        })
        .collect()
}

/// Lists what would be measured.
fn list(plan: &Plan, allocators: &[Allocator]) -> Result<ExitCode> {
    let head = ["app", "threads", "program"].map(str::to_owned);
    let row = |entry: &Entry| {
        vec![
            entry.label.clone(),
            entry.description.max_threads.unwrap_or(1).to_string(),
            entry.description.source.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = plan.entries.iter().map(row).collect();
    let names: Vec<&str> = allocators.iter().map(|allocator| allocator.name.as_str()).collect();
    print(&format!("{}\nallocators: {}\n", report::wrapped_rows(&head, &rows), names.join(", ")))?;
    Ok(ExitCode::SUCCESS)
}
