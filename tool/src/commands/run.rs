//! `ample run`: becomes the user's program on an allocator, or checks who serves it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};

use super::tell_unread;
use crate::allocators::{self, Allocator, Finder, OURS};
use crate::cli::Run;
use crate::error::{UsageError, say};
use crate::programs::{
    NotFound, Operators, Prospect, Record, Served, Sightings, Unserved, Watcher, examine, put_as_is, put_on,
    system_of,
};
use crate::run::{Interrupt, tie, wait_for};
use crate::scratch;
use crate::trial::Tree;

/// Exit codes of `env` and shells: the tool itself failed; the program cannot be executed; there is none.
pub(super) const FAILED: u8 = 125;
pub(super) const NOT_EXECUTABLE: u8 = 126;
pub(super) const MISSING: u8 = 127;

/// Runs the program; returns only where it cannot be started, or after a check.
pub fn run(arguments: &Run) -> Result<ExitCode> {
    let allocator = match Finder::new().and_then(|finder| allocators::one(&finder, &arguments.allocator)) {
        Ok(allocator) => allocator,
        Err(error) if arguments.check => return Err(error),
        Err(error) => return Ok(failed(FAILED, &format!("{error:#}"))),
    };
    let program = arguments.command[0].as_os_str();
    let prospect = match examine(program, system_of(&allocator.library)) {
        Ok(prospect) => prospect,
        Err(error) if arguments.check => {
            let (NotFound::Missing(reason) | NotFound::NotExecutable(reason)) = error;
            return Err(UsageError(reason).into());
        }
        Err(NotFound::NotExecutable(reason)) => return Ok(failed(NOT_EXECUTABLE, &reason)),
        Err(NotFound::Missing(reason)) => return Ok(failed(MISSING, &reason)),
    };
    if !arguments.quiet && allocator.name.split(':').next() == Some(OURS) {
        tell_unread();
    }
    if arguments.check {
        check(arguments, &allocator, &prospect)
    } else {
        Ok(become_it(arguments, &allocator, &prospect))
    }
}

pub(super) fn failed(code: u8, reason: &str) -> ExitCode {
    say(&format!("ample: {reason}"));
    ExitCode::from(code)
}

/// The start of the program: on the allocator, unless that is for another system and would keep it from starting.
fn prepared(arguments: &Run, allocator: &Allocator, prospect: &Prospect) -> Command {
    let mut command = Command::new(&arguments.command[0]);
    command.args(&arguments.command[1..]);
    if prospect.foreign {
        put_as_is(&mut command);
    } else {
        put_on(&mut command, allocator);
    }
    command
}

/// Replaces this process by the program. Returns only where that did not work.
fn become_it(arguments: &Run, allocator: &Allocator, prospect: &Prospect) -> ExitCode {
    let name = shown(&arguments.command[0]);
    let mut watcher = None;
    if !arguments.quiet {
        if let Some(reason) = prospect.obstacle.as_ref().or(prospect.in_part.as_ref()) {
            say(&format!("ample: {} does not serve {name}: it {reason}", whole(allocator, prospect)));
        } else {
            let warning = format!(
                "ample: {} does not serve {name}: {} is not in its process",
                allocator.name,
                allocator.library.display()
            );
            // Without it nothing is said, as with --quiet: no reason not to run the program.
            watcher = Watcher::start(&allocator.library, &warning).ok();
        }
    }
    let mut command = prepared(arguments, allocator, prospect);
    let error = command.exec();
    drop(watcher);
    failed(NOT_EXECUTABLE, &format!("cannot run {name}: {error}"))
}

/// How much of the program is spoken of.
fn whole(allocator: &Allocator, prospect: &Prospect) -> String {
    let part = if prospect.obstacle.is_none() { " alone" } else { "" };
    format!("{}{part}", allocator.name)
}

pub(super) fn shown(program: &OsStr) -> String {
    Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned()
}

/// Runs the program to its end, and tells who served it.
fn check(arguments: &Run, allocator: &Allocator, prospect: &Prospect) -> Result<ExitCode> {
    let record = scratch::folder()?;
    let interrupt = Interrupt::install().context("cannot catch signals")?;
    let mut command = prepared(arguments, allocator, prospect);
    Record::write_to(record.path(), &mut command).context("cannot prepare the record")?;
    let name = shown(&arguments.command[0]);
    tie(&mut command);
    let child = command.spawn().with_context(|| format!("cannot run {name}"))?;
    let pid = child.id();
    let sightings = Sightings::of(Some(&allocator.library));
    let mut tree = Tree::of(i32::try_from(pid)?).noting(sightings);
    let (end, _) = wait_for(child, &interrupt, || tree.look())?;
    let record = Record::read(record.path()).context("cannot read the record")?;
    let served = record.served(&allocator.library, pid);
    let unserved = tree.sightings().unserved(&record, pid);
    let verdict = verdict(&served, allocator, prospect).and_then(|text| match without_record(&unserved) {
        Some(reason) => Err(format!("{text}, but not of all its processes: {reason}")),
        None => Ok(text),
    });
    if !arguments.quiet {
        let remarks = prospect.remarks.iter().map(|remark| format!("ample: {name} {remark}\n"));
        let (Ok(text) | Err(text)) = &verdict;
        say(&format!("{}ample: {name}: {text}; {end}", remarks.collect::<String>()));
    }
    Ok(if verdict.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A program among the processes that no preloaded library serves, and that leaves no record of it.
fn without_record(unserved: &[Unserved]) -> Option<String> {
    let Unserved { name, reason, .. } = unserved.first()?;
    let others: BTreeSet<&str> =
        unserved.iter().map(|other| other.name.as_str()).filter(|other| other != name).collect();
    let more = if others.is_empty() {
        String::new()
    } else {
        format!("; nor is it known of {}", others.into_iter().collect::<Vec<_>>().join(", "))
    };
    Some(format!("{name} {reason}{more}"))
}

/// Whether the allocator, and it alone, serves malloc; in a phrase that tells by whom.
fn verdict(served: &Served, allocator: &Allocator, prospect: &Prospect) -> Result<String, String> {
    let by_it: Vec<&str> = served.by_it.iter().map(String::as_str).collect();
    let processes = if served.count == 1 { "process" } else { "processes" };
    let who =
        format!("{} serves malloc in {} {processes} ({})", allocator.name, served.count, by_it.join(", "));
    if let Some(obstacle) = &prospect.obstacle {
        return Err(format!("{} does not serve it: it {obstacle}", allocator.name));
    }
    if let Some((program, library)) = served.by_others.first() {
        let others = served.by_others.len() - 1;
        let more =
            if others == 0 { String::new() } else { format!(", and {others} more are not on it either") };
        let but = if served.count == 0 { String::new() } else { format!("; {who}") };
        return Err(format!("malloc of {program} is served by {}{more}{but}", library.display()));
    }
    if let Some(Operators { program, library, .. }) = served.operators.first() {
        let library = library.display();
        return Err(format!("{who}, but operator new and delete of {program} are served by {library}"));
    }
    if !served.seen && system_of(&allocator.library).is_some_and(|system| system.musl) {
        return Err("musl's dynamic linker keeps no record of who serves malloc; without --check, it is said after a second if the library is not there".into());
    }
    if !served.seen {
        return Err("it left no record: it has no dynamic linker, or other rights than yours".into());
    }
    if served.count == 0 {
        return Err("it did not call malloc".into());
    }
    match &prospect.in_part {
        Some(part) => Err(format!("{who}, but not all it allocates: it {part}")),
        None => Ok(format!("{who}: {}", allocator.library.display())),
    }
}
