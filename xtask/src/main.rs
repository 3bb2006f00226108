//! The project's chores.
//!
//! - `xtask ample ARGS…` builds allocator, workloads, limits and tool, and becomes the tool with these arguments
//!   (`cargo ample ARGS…`); `xtask ample peers [NAME…]` builds the bundled peers instead.
//! - `xtask instructions [LIB…]` counts the instructions per pair of malloc and free, `xtask instructions --check`
//!   holds Ample to its limits.
//! - `xtask atomics [LIB…]` counts the atomic operations and the locks that workloads of several threads take.
//! - `xtask paths` shows what the fast paths of malloc and free are made of; a test holds them against a golden file.
//! - `xtask aarch64` runs the allocator as code for that architecture, on an emulator, and holds its fast paths against another.
//! - `xtask musl` builds the allocator for systems with musl (Alpine), and tests it there.
//! - `xtask options` prints the allocator's options as a document; a test holds docs/options.md against it.
//! - `xtask package` makes a Debian package and an archive of tool, library, headers and manual.
//! - `xtask loom`, `xtask miri`, `xtask tsan` run the checks that are no part of `cargo test`.
//! - `xtask tidy` checks the house rules.
//!
//! Exit codes: 0 done, 1 failure, 2 usage.

mod aarch64;
mod ample;
mod atomics;
mod callgrind;
mod cargo;
mod checks;
mod conformance;
mod instructions;
mod limits;
mod musl;
mod options;
mod package;
mod paths;
mod peers;
mod process;
mod tidy;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo ample ARGS…                  build allocator, workloads, limits and tool, then run the tool with ARGS
       cargo ample peers [NAME…]          build the bundled peers, or those named
       cargo xtask package                make a Debian package, and an archive for any folder
       cargo xtask instructions [LIB…]    count instructions per malloc and free: Ample, glibc and peers, or LIBs
       cargo xtask instructions --check   count those of Ample, and fail where they are above its limits
       cargo xtask atomics [LIB…]         count atomic operations and locks in workloads on 2, 8 and 32 threads: Ample, or LIBs
       cargo xtask paths [--record]       what the fast paths of malloc and free are made of; write the golden file anew
       cargo xtask options [--record]     the allocator's options as a document; write docs/options.md anew
       cargo xtask aarch64 [--record]     the allocator for that architecture on an emulator; write its golden file anew
       cargo xtask musl                   the allocator for systems with musl (Alpine)
       cargo xtask loom | miri | tsan     model-check, interpret, or run threads under ThreadSanitizer
       cargo xtask tidy                   check the house rules";

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let (chore, rest) = match arguments.split_first() {
        Some((chore, rest)) => (chore.to_str(), rest),
        None => (None, &[][..]),
    };
    if asks_for_usage(&arguments) {
        // A reader that has gone away (`| head`) is no error.
        let _ = writeln!(std::io::stdout(), "{USAGE}");
        return ExitCode::SUCCESS;
    }
    let outcome = match chore {
        Some("ample") if rest.first().is_some_and(|first| first == "peers") => peers::build(&rest[1..]),
        Some("ample") => ample::build_and_become_the_tool(rest),
        Some("aarch64") => aarch64::run(rest),
        Some("atomics") => atomics::run(rest),
        Some("instructions") => instructions::run(rest),
        Some("musl") => musl::run(rest),
        Some("options") => options::run(rest),
        Some("package") => package::run(rest),
        Some("paths") => paths::run(rest),
        Some(name)
            if rest.is_empty()
                && let Some(check) = checks::find(name) =>
        {
            checks::run(check)
        }
        Some("tidy") if rest.is_empty() => tidy::report(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

/// Whether this asks how the chores are called. What follows `ample` is the tool's own business, but for `peers`.
fn asks_for_usage(arguments: &[OsString]) -> bool {
    let is_tools = arguments.first().is_some_and(|first| first == "ample");
    let is_peers = arguments.get(1).is_some_and(|second| second == "peers");
    (!is_tools || is_peers) && arguments.iter().any(|word| word == "--help" || word == "-h")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usage_is_asked_for_by_help_and_the_tool_has_its_own() {
        let asks = |words: &str| asks_for_usage(&words.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(
            asks("--help")
                && asks("peers --help")
                && asks("ample peers --help")
                && asks("ample peers jemalloc -h")
        );
        assert!(
            !asks("ample --help") && !asks("ample bench --help") && !asks("ample peers") && !asks("tidy")
        );
    }
}
