//! `ample workloads`.

use std::process::ExitCode;

use anyhow::Result;

use super::print;
use crate::report;
use crate::run::Program;

/// Lists the workloads and their parameters.
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
    print(&(report::wrapped_rows(&head, &rows) + "\n"))?;
    Ok(ExitCode::SUCCESS)
}
