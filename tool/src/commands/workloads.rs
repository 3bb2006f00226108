//! `ample workloads`: the workloads, and the real programs.

use std::process::ExitCode;

use anyhow::Result;

use super::print;
use crate::apps;
use crate::report;
use crate::run::Program;

/// Lists the workloads and their parameters; and the apps, with the programs found or how to get them.
pub fn workloads() -> Result<ExitCode> {
    let program = Program::find()?;
    let head =
        ["workload", "what it tells", "one operation", "parameters (default)", "source"].map(str::to_owned);
    let rows: Vec<Vec<String>> = program
        .descriptions
        .iter()
        .map(|workload| {
            let parameters = workload.parameters.iter().map(|parameter| {
                let unit =
                    if parameter.unit == "count" { String::new() } else { format!(" {}", parameter.unit) };
                format!("{}: {} ({}{unit})", parameter.name, parameter.meaning, parameter.default)
            });
            vec![
                workload.name.clone(),
                workload.tells.clone(),
                workload.operation.clone(),
                parameters.collect::<Vec<_>>().join("\n"),
                workload.source.clone(),
            ]
        })
        .collect();
    let workloads = report::wrapped_rows(&head, &rows);
    let head = ["app (ample bench --apps)", "what it tells", "threads", "found"].map(str::to_owned);
    let rows: Vec<Vec<String>> = apps::all()
        .iter()
        .map(|app| {
            let found = match apps::find(app) {
                Ok(programs) => apps::served(app, &programs),
                Err(install) => format!("not installed: {install}"),
            };
            vec![app.name.into(), app.tells.into(), app.threads.to_string(), found]
        })
        .collect();
    print(&format!("{workloads}\n\n{}\n", report::wrapped_rows(&head, &rows)))?;
    Ok(ExitCode::SUCCESS)
}
