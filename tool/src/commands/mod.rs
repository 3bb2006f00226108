//! The commands: each puts the modules below together, and prints.

mod allocators;
mod apps;
mod bench;
mod compare;
mod diff;
mod history;
mod manual;
mod observe;
mod opening;
mod options;
mod report;
mod resume;
mod run;
mod selftest;
mod workloads;

pub use allocators::allocators;
pub use bench::bench;
pub use compare::compare;
pub use diff::diff;
pub use history::history;
pub use manual::{completions, man};
pub use observe::observe;
pub use options::options;
pub use report::report;
pub use run::run;
pub use selftest::selftest;
pub use workloads::workloads;

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Result;

use crate::allocators::unread;
use crate::error::say;
use crate::record::Run;
use crate::report::{Cell, Summary};
use crate::run::{INTERRUPTED, inherited_environment};

/// Exit code where no row has a number to tell: 3 and 4 are those of `ample diff`.
const NO_NUMBER: u8 = 5;

/// The verdict, and below it what a reader must know of the environment.
fn verdict(summary: &Summary, run: &Run) -> String {
    [Some(summary.verdict.clone()), run.configured_from_outside()]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join("\n")
}

/// Says which variables of the environment look like options of Ample's, and are none.
fn tell_unread() {
    for (name, reason) in unread(&inherited_environment()) {
        say(&format!("ample: {name} in the environment is without effect: {reason}"));
    }
}

/// The exit code of a run that came to this. A script that reads figures should learn where there are none.
fn exit_code(summary: &Summary) -> ExitCode {
    if summary.interrupted {
        return ExitCode::from(INTERRUPTED);
    }
    // One entry alone has nothing to be compared with: its own figures are what was asked for.
    let alone = summary.allocators.len() == 1;
    let tells = |cell: &Cell| match cell {
        Cell::Measured(figures) => alone || figures.throughput.is_some() || figures.peak_rss.is_some(),
        _ => false,
    };
    let some = summary.rows.iter().flat_map(|row| &row.cells).any(tells);
    if some { ExitCode::SUCCESS } else { ExitCode::from(NO_NUMBER) }
}

/// Writes results to standard output. A reader that has gone away (`| head`) is no error.
fn print(text: &str) -> Result<()> {
    let mut out = anstream::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
