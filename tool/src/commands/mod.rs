//! The commands: each puts the modules below together, and prints.

mod allocators;
mod bench;
mod compare;
mod manual;
mod opening;
mod run;
mod selftest;
mod workloads;

pub use allocators::allocators;
pub use bench::bench;
pub use compare::compare;
pub use manual::{completions, man};
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
