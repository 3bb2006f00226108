//! `ample bench`: plan, measure, summarise, report.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::print;
use crate::allocators::{self, Allocator, Finder};
use crate::cli::Bench;
use crate::record::{Folder, Machine, Noise, Run, SCHEMA_VERSION, Sample, Workload, timestamp};
use crate::report::{self, Summary};
use crate::run::{
    Campaign, DOES_NOT_LOAD, INTERRUPTED, Interrupt, Plan, ProcessExecutor, Program, Progress, Request, Size,
    Stopping, inherited_environment, probe,
};

/// Time that a run without options takes, as far as three blocks fit into it.
const BUDGET: Duration = Duration::from_secs(150);
/// The same for a quick one.
const QUICK_BUDGET: Duration = Duration::from_secs(30);

/// Measures, prints the comparison, and writes the report.
pub fn bench(arguments: &Bench) -> Result<ExitCode> {
    let program = Program::find()?;
    let machine = Machine::read();
    let (size, budget) = if arguments.quick { (Size::Quick, QUICK_BUDGET) } else { (Size::Default, BUDGET) };
    let request = Request {
        workloads: &arguments.workloads,
        threads: arguments.threads.as_deref(),
        settings: &arguments.settings,
        size,
        cpus: u32::try_from(machine.cpus).unwrap_or(u32::MAX),
    };
    let plan = Plan::new(&request, &program.descriptions, arguments.seed)?;
    if !arguments.settings.is_empty() {
        plan.entries.iter().try_for_each(|entry| program.check(entry))?;
    }
    let chosen = allocators::select(&Finder::new()?, arguments.allocators.as_deref())?;
    let stopping = arguments.runs.map_or(Stopping::Budget(budget), |runs| Stopping::Blocks(runs as usize));
    let mut executor = ProcessExecutor::new(Interrupt::install().context("cannot catch signals")?);
    let probes = try_all(&mut executor, &program, &chosen, arguments)?;
    let mut folder = Folder::create(arguments.out.as_deref(), &timestamp(), &machine.host)?;
    for sample in &probes {
        folder.append(sample)?;
    }

    let mut record = record(arguments, &program, &plan, &chosen, machine, stopping);
    folder.write_json("run.json", &record)?;
    let campaign = Campaign {
        plan: &plan,
        allocators: &chosen,
        program: &program.path,
        stopping,
        timeout: arguments.timeout,
        progress: &Progress::start(stopping),
    };
    let conclusion = campaign.run(probes, &mut executor, &mut |sample| folder.append(sample))?;

    record.ended = Some(timestamp());
    record.noise_at_end = Some(Noise::read());
    record.interrupted = conclusion.interrupted;
    record.blocks = conclusion.blocks;
    folder.write_json("run.json", &record)?;
    let summary = Summary::new(&conclusion, &plan, &chosen, arguments.seed);
    let page = report::write(&folder, &summary, &record)?;
    if arguments.json {
        print(&(serde_json::to_string_pretty(&summary)? + "\n"))?;
    } else {
        let table = report::text_table(&summary, report::terminal_width());
        let samples = folder.path().join("samples.jsonl");
        print(&format!(
            "{}\n\n{table}\nraw samples: {}\nreport: {}\n",
            summary.verdict,
            samples.display(),
            page.display()
        ))?;
    }
    Ok(if conclusion.interrupted { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// Tries every library once, so that a run does not begin with one that cannot be loaded.
///
/// Asked for by name or path, such a library is an error; otherwise a warning, and failed rows.
fn try_all(
    executor: &mut ProcessExecutor,
    program: &Program,
    chosen: &[Allocator],
    arguments: &Bench,
) -> Result<Vec<Sample>> {
    let mut probes = Vec::with_capacity(chosen.len());
    for allocator in chosen {
        let Some(sample) = probe(executor, program, allocator, arguments.timeout) else { break };
        if let Some(reason) = sample.result.reason() {
            if arguments.allocators.is_some() && reason.starts_with(DOES_NOT_LOAD) {
                bail!("{} ({}): {reason}", allocator.name, allocator.library.display());
            }
            anstream::eprintln!("ample: warning: {}: {reason}", allocator.name);
        }
        probes.push(sample);
    }
    Ok(probes)
}

fn record(
    arguments: &Bench,
    program: &Program,
    plan: &Plan,
    chosen: &[Allocator],
    machine: Machine,
    stopping: Stopping,
) -> Run {
    let workloads = plan.entries.iter().map(|entry| Workload {
        name: entry.label.clone(),
        workload: entry.description.name.clone(),
        tells: entry.description.tells.clone(),
        source: entry.description.source.clone(),
        operation: entry.description.operation.clone(),
        settings: entry.settings.clone(),
        threads: entry.threads.clone(),
    });
    Run {
        schema_version: SCHEMA_VERSION,
        tool_version: env!("CARGO_PKG_VERSION").into(),
        command: std::env::args().collect(),
        started: timestamp(),
        ended: None,
        interrupted: false,
        blocks: 0,
        seed: arguments.seed,
        stopping: stopping.to_string(),
        timeout_seconds: arguments.timeout.as_secs_f64(),
        machine,
        noise_at_start: Noise::read(),
        noise_at_end: None,
        inherited_environment: inherited_environment(),
        workload_program: program.path.display().to_string(),
        allocators: chosen.to_vec(),
        workloads: workloads.collect(),
    }
}
