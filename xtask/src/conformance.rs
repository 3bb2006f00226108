//! The conformance tests as judges of the library as it was built for another system.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

/// Cases that a system does not allow, whoever its allocator is, by the reason.
pub type LeftOut = &'static [(&'static str, &'static [&'static str])];

/// What cargo is told to run them.
pub const TEST: [&str; 4] = ["test", "-p", "ample-conformance", "--no-fail-fast"];

/// Runs them, by a command of cargo's that begins with [`TEST`], on `library`, and says what is left out.
///
/// # Errors
/// When cargo cannot be run.
pub fn judge(tests: &mut Command, library: &Path, left_out: LeftOut) -> Result<ExitCode> {
    tests.env("AMPLE_CONFORMANCE_LIB", library).args(["--", "--exact"]);
    for (reason, cases) in left_out {
        eprintln!("skipped, since {reason}: {}", cases.join(", "));
        tests.args(cases.iter().flat_map(|case| ["--skip", case]));
    }
    Ok(if passes(tests)? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether a command of cargo's succeeds.
///
/// # Errors
/// When it cannot be run.
pub fn passes(command: &mut Command) -> Result<bool> {
    Ok(command.status().context("cannot run cargo")?.success())
}

/// Ends the test that calls it if there is no such case.
#[cfg(test)]
pub fn assert_exist(left_out: LeftOut) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/conformance");
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap_or_default();
    for case in left_out.iter().flat_map(|(_, cases)| *cases) {
        let (sources, definition) = match case.split_once("::") {
            // What the macro that makes a test of each case adds to them.
            Some((_, test @ "no_case_is_left_out")) => {
                (vec!["src/lib.rs".to_string()], format!("fn {test}()"))
            }
            Some((program, case)) => {
                // One program, linked in several ways.
                let linked = ["static", "linked"].into_iter().find(|linked| program.starts_with(linked));
                let program = linked.unwrap_or(program);
                let sources = ["c", "cc"].map(|ending| format!("programs/{program}.{ending}"));
                (sources.to_vec(), format!("CASE({case})"))
            }
            None => {
                (["hostile", "proof"].map(|file| format!("tests/{file}.rs")).to_vec(), format!("fn {case}()"))
            }
        };
        assert!(sources.iter().any(|file| read(file).contains(&definition)), "there is no {case}");
    }
}
