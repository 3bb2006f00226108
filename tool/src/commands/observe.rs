//! `ample observe`: runs the user's program once, counts what it asks of malloc, and tells what that means; or looks at one that runs already.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use ample_protocol::observation::FOLDER;
use anyhow::{Context as _, Result, anyhow};
use serde::Serialize;

use super::print;
use super::run::{FAILED, MISSING, NOT_EXECUTABLE, failed, shown};
use crate::carried;
use crate::cli::Observe;
use crate::error::{UsageError, say};
use crate::observation::{Observation, Watch};
use crate::programs::{NotFound, examine, preload, put_as_is, system_of};
use crate::report::{observed, running};
use crate::run::{End, Interrupt, tie, wait_for};
use crate::running::look_at;
use crate::scratch;

/// The library that counts.
const LIBRARY: &str = "libample_observer.so";
/// The variable that names another one.
const VARIABLE: &str = "AMPLE_OBSERVER";

/// Runs the program to its end, whose exit code is the command's; or looks at a process.
pub fn observe(arguments: &Observe) -> Result<ExitCode> {
    if let Some(pid) = arguments.pid {
        return look(arguments, pid);
    }
    let result = run(arguments);
    result.or_else(|error| {
        if error.is::<UsageError>() { Err(error) } else { Ok(failed(FAILED, &format!("{error:#}"))) }
    })
}

fn look(arguments: &Observe, pid: i32) -> Result<ExitCode> {
    check(arguments.out.as_deref())?;
    let seen = look_at(pid, arguments.seconds)?;
    print(&running(&seen))?;
    if let Some(out) = &arguments.out {
        write(out, &seen)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether the file can be written to, before the program has run for an hour. What is in it stays until there is something to replace it.
fn check(out: Option<&Path>) -> Result<()> {
    let Some(out) = out else { return Ok(()) };
    let opened = fs::OpenOptions::new().create(true).append(true).open(out);
    opened.map_err(|error| UsageError(format!("cannot write to {}: {error}", out.display())))?;
    Ok(())
}

fn run(arguments: &Observe) -> Result<ExitCode> {
    check(arguments.out.as_deref())?;
    let library = library()?;
    let program = arguments.command[0].as_os_str();
    let name = shown(program);
    let prospect = match examine(program, system_of(&library)) {
        Ok(prospect) => prospect,
        Err(NotFound::NotExecutable(reason)) => return Ok(failed(NOT_EXECUTABLE, &reason)),
        Err(NotFound::Missing(reason)) => return Ok(failed(MISSING, &reason)),
    };
    if let Some(reason) = &prospect.obstacle {
        return Ok(failed(FAILED, &format!("{name} cannot be observed: it {reason}")));
    }
    for remark in prospect.in_part.iter().chain(&prospect.remarks) {
        say(&format!("ample: {name} {remark}"));
    }
    let folder = scratch::folder()?;
    let interrupt = Interrupt::install().context("cannot catch signals")?;
    let mut command = Command::new(program);
    command.args(&arguments.command[1..]);
    put_as_is(&mut command);
    preload(&mut command, &library);
    command.env(OsStr::from_bytes(FOLDER.to_bytes()), folder.path());
    tie(&mut command);
    let started = Instant::now();
    let mut watch = Watch::new(folder.path().to_owned());
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(failed(NOT_EXECUTABLE, &format!("cannot run {name}: {error}"))),
    };
    let (end, usage) = wait_for(child, &interrupt, || watch.look())?;
    let wall_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let observation = Observation::read(folder.path(), watch.seen(), wall_ns, usage)?;
    let words: Vec<String> =
        arguments.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let ended = if matches!(end, End::Killed(_)) { format!("ample: {name}: {end}\n") } else { String::new() };
    say(&format!("\n{ended}{}", observed(&observation, &words)));
    if let Some(out) = &arguments.out {
        write(out, &observation)?;
    }
    Ok(code(&end))
}

/// Where the observer is.
fn library() -> Result<PathBuf> {
    if let Some(set) = env::var_os(VARIABLE) {
        return present(set.into()).with_context(|| format!("{VARIABLE} names no library"));
    }
    let executable = env::current_exe().context("cannot find the tool's own path")?;
    let beside = executable.with_file_name(LIBRARY);
    let path = if beside.exists() {
        beside
    } else {
        carried::folder()?.map_or(beside, |folder| folder.join(LIBRARY))
    };
    present(path).with_context(|| {
        format!("{LIBRARY} is not beside the tool: `cargo ample` builds it, or {VARIABLE} names it")
    })
}

fn present(path: PathBuf) -> Result<PathBuf> {
    let path = path.canonicalize().with_context(|| path.display().to_string())?;
    if path.is_file() { Ok(path) } else { Err(anyhow!("{} is no file", path.display())) }
}

fn write(out: &Path, figures: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(figures)? + "\n";
    fs::write(out, text).with_context(|| format!("cannot write to {}", out.display()))
}

/// The program's exit code, as a shell tells it.
fn code(end: &End) -> ExitCode {
    match end {
        End::Exited(code) => ExitCode::from(u8::try_from(*code).unwrap_or(FAILED)),
        End::Killed(signal) => ExitCode::from(128 + u8::try_from(*signal).unwrap_or(0)),
        _ => ExitCode::from(FAILED),
    }
}
