//! Other programs: whether they can be run, and running them with a limit in time; the C compiler.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// How a program ended.
#[derive(Debug)]
pub struct Finished {
    /// Its exit code, or the signal that ended it.
    pub status: ExitStatus,
    /// What it wrote to standard error.
    pub stderr: String,
}

/// Whether `program --version` runs and succeeds. `program` may hold arguments after its name, as `CC` does for
/// ccache.
pub fn runs(program: &OsStr) -> bool {
    let text = program.to_string_lossy();
    let mut words = text.split_whitespace();
    let Some(first) = words.next() else { return false };
    let quiet =
        Command::new(first).args(words).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

/// The C compiler: `CC`, which may hold arguments, or `cc`.
pub fn compiler() -> OsString {
    std::env::var_os("CC").filter(|value| !value.is_empty()).unwrap_or_else(|| "cc".into())
}

/// Compiles one file of C into `result`, with these arguments.
///
/// # Errors
/// When the compiler cannot be run, or has said why the file does not compile.
pub fn compile(source: &Path, result: &Path, arguments: &[&str]) -> Result<()> {
    let compiler = compiler().to_string_lossy().into_owned();
    let mut words = compiler.split_whitespace();
    let mut command = Command::new(words.next().context("no C compiler is named")?);
    succeed(command.args(words).args(arguments).arg("-o").arg(result).arg(source))
        .with_context(|| format!("{} does not compile", source.display()))
}

/// Runs a program that must succeed.
///
/// # Errors
/// When it cannot be run, or has said why it failed.
pub fn succeed(command: &mut Command) -> Result<()> {
    let program = command.get_program().display().to_string();
    let status = command.status().with_context(|| format!("cannot run {program}"))?;
    ensure!(status.success(), "{program}: {status}");
    Ok(())
}

/// Runs a program without input and without output. Returns `None` when it had not ended after `limit` and was
/// killed. A program that writes more to standard error than a pipe holds (64 KiB) counts as one that does not
/// end.
///
/// # Errors
/// When the program cannot be started or waited for.
pub fn run_at_most(limit: Duration, command: &mut Command) -> io::Result<Option<Finished>> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut stderr = Vec::new();
    if let Some(mut pipe) = child.stderr.take() {
        pipe.read_to_end(&mut stderr)?;
    }
    Ok(Some(Finished { status, stderr: String::from_utf8_lossy(&stderr).into_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_program_can_be_run_or_not() {
        assert!(runs(OsStr::new("env true")));
        assert!(!runs(OsStr::new("no-such-compiler")));
        assert!(!runs(OsStr::new("false")));
        assert!(!runs(OsStr::new("")));
    }

    #[test]
    fn the_status_and_standard_error_come_back() {
        let finished = run_at_most(Duration::from_secs(60), &mut shell("echo out; echo why >&2; exit 3"));
        let finished = finished.expect("started").expect("ended");
        assert_eq!((finished.status.code(), &*finished.stderr), (Some(3), "why\n"));
    }

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let finished = run_at_most(Duration::from_millis(20), &mut shell("exec sleep 600"));
        assert!(finished.expect("started").is_none());
    }
}
