//! `ample options`.

use std::process::ExitCode;

use anyhow::{Context as _, Result};

use super::{print, tell_unread};
use crate::allocators::{Definition, Finder, OURS, one, told_by};
use crate::cli::Options;
use crate::report;

/// Lists the options of the allocator.
pub fn options(arguments: &Options) -> Result<ExitCode> {
    let library = one(&Finder::new()?, OURS)?.library;
    let definitions = told_by(&library).with_context(|| format!("{}", library.display()))?;
    let text = if arguments.json { serde_json::to_string_pretty(&definitions)? } else { table(&definitions) };
    print(&(text + "\n"))?;
    tell_unread();
    Ok(ExitCode::SUCCESS)
}

fn table(definitions: &[Definition]) -> String {
    let head = ["option", "default", "values", "meaning"].map(str::to_owned);
    let number = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    let rows: Vec<Vec<String>> = definitions
        .iter()
        .map(|option| {
            let values = match (option.least, option.most) {
                (Some(least), Some(most)) => format!("{least} to {most}"),
                _ => option.kind.clone(),
            };
            vec![option.name.clone(), number(option.default), values, option.meaning.clone()]
        })
        .collect();
    report::wrapped_rows(&head, &rows)
}
