//! The commands: each puts the modules below together, and prints.

mod allocators;
mod apps;
mod bench;
mod compare;
mod diff;
mod history;
mod manual;
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
pub use options::options;
pub use report::report;
pub use run::run;
pub use selftest::selftest;
pub use workloads::workloads;

use std::io::{self, Write as _};

use anyhow::Result;

/// Writes results to standard output. A reader that has gone away (`| head`) is no error.
fn print(text: &str) -> Result<()> {
    let mut out = anstream::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
