//! `ample bench`: plan, measure, summarise, report.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};

use super::apps::apps;
use super::opening::{self, Opening};
use super::{exit_code, history, print, resume, verdict};
use crate::allocators::{self, Allocator, Finder};
use crate::cli::Bench;
use crate::error::{UsageError, say};
use crate::record::{Folder, Machine, Run, Sample, Stored, timestamp};
use crate::report::{self, Summary};
use crate::run::{
    Campaign, DOES_NOT_LOAD, Interrupt, Past, Plan, Preset, ProcessExecutor, Program, Progress, QUICK_PRESET,
    Request, SeedArguments, Stopping, adopt_orphans, passes, preset, probe,
};

/// Measures, prints the comparison, and writes the report; or goes on with that.
pub fn bench(arguments: &Bench) -> Result<ExitCode> {
    if let Some(names) = &arguments.apps {
        return apps(arguments, names);
    }
    let Some(folder) = &arguments.resume else { return measure(arguments, None) };
    let stored = Stored::open(folder)?;
    measure(&resume::arguments(&stored)?, Some(stored))
}

fn measure(arguments: &Bench, stored: Option<Stored>) -> Result<ExitCode> {
    let program = Program::find()?;
    let machine = Machine::read();
    let preset = if arguments.quick { preset(QUICK_PRESET)? } else { arguments.preset };
    let seed_arguments = SeedArguments::parse(&arguments.workloads, &arguments.seed_arguments)?;
    let plan = plan(arguments, preset, seed_arguments.as_ref(), &program, machine.cpus)?;
    let chosen = allocators::select(&Finder::new()?, arguments.allocators.as_deref(), preset.arms)?;
    if arguments.dry_run {
        return list(&plan, &program, &chosen);
    }
    history::check(arguments)?;
    let timeout = arguments.timeout.unwrap_or(preset.timeout);
    let whole = stopping(arguments, preset);
    let stopping = share(whole, arguments)?;
    let measures = passes(arguments.measures.as_deref().unwrap_or(preset.measures));
    adopt_orphans().context("cannot look after orphans")?;
    let mut executor = ProcessExecutor::new(Interrupt::install().context("cannot catch signals")?);
    let host = machine.host.clone();
    let mut record = Opening {
        plan: &plan,
        allocators: &chosen,
        machine,
        seed: arguments.seed,
        preset: preset.name,
        stopping: whole,
        measures: &measures,
        timeout,
        program: &program.path,
    }
    .record();
    let (mut folder, past) = match stored {
        Some(stored) => resume::take_up(&mut record, stored)?,
        None => {
            let probes = try_all(&mut executor, &program, &chosen, arguments, timeout)?;
            let mut folder = Folder::create(arguments.out.as_deref(), &timestamp(), &host)?;
            probes.iter().try_for_each(|sample| folder.append(sample))?;
            (folder, Past::from(probes))
        }
    };
    folder.write_json("run.json", &record)?;
    let progress = Progress::start(stopping).after(past.elapsed());
    let campaign = Campaign {
        plan: &plan,
        allocators: &chosen,
        program: &program.path,
        stopping,
        timeout,
        progress: &progress,
    };
    let go_on = resume::command(folder.path());
    let mut keep = |sample: &Sample| {
        let kept = folder.append(sample);
        kept.map_err(|error| anyhow!("{error:#}; when that is mended, go on with the run: {go_on}"))
    };
    let conclusion = campaign.run(past, &mut executor, &mut keep)?;
    let again = Campaign { progress: &Progress::start(stopping), ..campaign };
    let conclusion = again.measure(&measures, conclusion, &mut executor, &mut keep)?;

    opening::close(&mut record, &conclusion);
    let summary = Summary::new(&conclusion, &plan, &chosen, arguments.seed);
    if let Some(leaks) = &summary.heap_leak {
        record.fault_predictions.clone_from(&leaks.predictions);
    }
    folder.write_json("run.json", &record)?;
    let page = report::write(&folder, &summary, &record)?;
    history::keep(arguments, &record, &summary, &conclusion.samples, folder.path());
    let seed_lines = match &seed_arguments {
        Some(_) => report::seed_lines(&conclusion, &chosen) + "\n",
        None => String::new(),
    };
    show(arguments, &summary, &record, &seed_lines, folder.path(), &page)?;
    if summary.interrupted {
        say(&format!("ample: ended early; to go on with the run: {go_on}"));
    }
    Ok(exit_code(&summary))
}

/// What is to be measured; the workloads have accepted all parameters that were given.
fn plan(
    arguments: &Bench,
    preset: &'static Preset,
    seed_arguments: Option<&SeedArguments>,
    program: &Program,
    cpus: usize,
) -> Result<Plan> {
    let seed_threads = seed_arguments.map(|seed| vec![seed.threads]);
    let settings = seed_arguments.map_or(&arguments.settings, |seed| &seed.settings);
    let request = Request {
        workloads: &arguments.workloads,
        preset,
        threads: seed_threads.as_deref().or(arguments.threads.as_deref()),
        settings,
        cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
    };
    let mut plan = Plan::new(&request, &program.descriptions, arguments.seed)?;
    plan.shard = arguments.shard;
    if !settings.is_empty() {
        plan.entries.iter().try_for_each(|entry| program.check(entry))?;
    }
    Ok(plan)
}

/// Prints the comparison, as JSON or as a table, `seed_lines` below it, and where the rest lies.
fn show(
    arguments: &Bench,
    summary: &Summary,
    record: &Run,
    seed_lines: &str,
    folder: &Path,
    page: &Path,
) -> Result<()> {
    if arguments.json {
        return print(&(serde_json::to_string_pretty(summary)? + "\n"));
    }
    let table = report::text_table(summary, report::terminal_width());
    print(&format!(
        "{}\n\n{table}\n{seed_lines}raw samples: {}\nreport: {}\n",
        verdict(summary, record),
        folder.join("samples.jsonl").display(),
        page.display()
    ))
}

/// Lists what would be measured, after the workloads have accepted all parameters.
fn list(plan: &Plan, program: &Program, chosen: &[Allocator]) -> Result<ExitCode> {
    let head = ["workload", "threads", "program", "parameters"].map(str::to_owned);
    let mut rows = Vec::with_capacity(plan.entries.len());
    for entry in &plan.entries {
        program.check(entry)?;
        let threads: Vec<String> = entry.threads.iter().map(u32::to_string).collect();
        let settings: Vec<String> =
            entry.settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
        rows.push(vec![
            entry.label.clone(),
            threads.join(" "),
            entry.description.name.clone(),
            settings.join(" "),
        ]);
    }
    let names: Vec<&str> = chosen.iter().map(|allocator| allocator.name.as_str()).collect();
    print(&format!("{}\nallocators: {}\n", report::wrapped_rows(&head, &rows), names.join(", ")))?;
    Ok(ExitCode::SUCCESS)
}

/// When the run ends: as the options say, or else within the budget of the preset.
fn stopping(arguments: &Bench, preset: &Preset) -> Stopping {
    let rule = match arguments.runs {
        Some(runs) => Stopping::blocks(runs as usize),
        None => Stopping::budget(arguments.budget.unwrap_or(preset.budget), preset.blocks),
    };
    arguments.precision.map_or(rule, |percent| rule.or_precision(percent / 100.0))
}

/// The part of the run's blocks that this shard runs.
fn share(whole: Stopping, arguments: &Bench) -> Result<Stopping> {
    let (Some(shard), Some(blocks)) = (arguments.shard, arguments.runs) else { return Ok(whole) };
    let own = shard.share_of(blocks as usize);
    if own == 0 {
        let message = format!("{} shards of {blocks} blocks: one a shard are needed", shard.count);
        bail!(UsageError(message));
    }
    Ok(Stopping::blocks(own))
}

/// Tries every library once, so that a run does not begin with one that cannot be loaded.
///
/// Asked for by name or path, such a library is an error; otherwise a warning, and failed rows.
fn try_all(
    executor: &mut ProcessExecutor,
    program: &Program,
    chosen: &[Allocator],
    arguments: &Bench,
    timeout: Duration,
) -> Result<Vec<Sample>> {
    let mut probes = Vec::with_capacity(chosen.len());
    for allocator in chosen {
        let Some(sample) = probe(executor, program, allocator, timeout) else { break };
        if let Some(reason) = sample.result.reason() {
            if arguments.allocators.is_some() && reason.starts_with(DOES_NOT_LOAD) {
                bail!("{} ({}): {reason}", allocator.name, allocator.library.display());
            }
            say(&format!("ample: warning: {}: {reason}", allocator.name));
        }
        probes.push(sample);
    }
    Ok(probes)
}
