//! `ample options`.

use std::ffi::c_char;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use libloading::{Library, Symbol};
use serde::{Deserialize, Serialize};

use super::print;
use crate::allocators::{Finder, OURS, one};
use crate::cli::Options;
use crate::report;

/// An option as the library tells it.
#[derive(Serialize, Deserialize)]
struct Definition {
    name: String,
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    default: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    least: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    most: Option<u64>,
    meaning: String,
}

/// Lists the options of the allocator.
pub fn options(arguments: &Options) -> Result<ExitCode> {
    let library = one(&Finder::new()?, OURS)?.library;
    let definitions = told_by(&library).with_context(|| format!("{}", library.display()))?;
    let text = if arguments.json { serde_json::to_string_pretty(&definitions)? } else { table(&definitions) };
    print(&(text + "\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// What the library says of itself. The tool links no allocator: it opens the file like any other program would, and its own
/// malloc stays the C library's.
fn told_by(library: &Path) -> Result<Vec<Definition>> {
    // SAFETY: Ample's constructor reads the environment and reserves addresses, nothing more.
    let library = unsafe { Library::new(library) }.context("it does not open")?;
    // SAFETY: `ample.h` declares the function so.
    let tell: Symbol<'_, unsafe extern "C" fn(*mut c_char, usize) -> usize> =
        unsafe { library.get(b"ample_options_json\0") }
            .context("it tells no options: it is older than this tool, or not Ample")?;
    // SAFETY: without room nothing is written.
    let length = unsafe { tell(std::ptr::null_mut(), 0) };
    let mut text = vec![0u8; length + 1];
    // SAFETY: the text has room for that many bytes.
    unsafe { tell(text.as_mut_ptr().cast(), text.len()) };
    serde_json::from_slice(&text[..length])
        .context("it tells its options in words that this tool does not know")
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
