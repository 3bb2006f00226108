//! `ample compare`: which allocator suits a program of the user's.

use std::cmp::Reverse;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow};

use super::opening::{self, Opening};
use super::{NO_NUMBER, exit_code, print};
use crate::allocators::{self, Allocator, BASELINE, Finder};
use crate::cli::Compare;
use crate::error::{UsageError, say};
use crate::programs::{NotFound, Prospect, examine, preloaded_by_user, system_of};
use crate::record::{Folder, Machine, timestamp};
use crate::report::{self, Compared};
use crate::run::{Campaign, INTERRUPTED, Interrupt, Progress, Stopping, adopt_orphans};
use crate::trial::{
    FirstLook, Kind, Ready, Server, Subject, THREADS, TrialExecutor, as_is, input_is_lost, marked, plan,
};

/// What a program finds that should read what another one writes.
const EMPTY_INPUT: &str = "Standard input is a pipe, which only one process could read: the program found it empty. Redirect it from a file.";

/// Measures, prints what to use, and writes the report.
pub fn compare(arguments: &Compare) -> Result<ExitCode> {
    let subject = subject(arguments)?;
    let finder = Finder::new()?;
    let glibc = allocators::one(&finder, BASELINE)?;
    let prospect = examine(&subject.words()[0], system_of(&glibc.library)).map_err(|error| {
        let (NotFound::Missing(reason) | NotFound::NotExecutable(reason)) = error;
        UsageError(reason)
    })?;
    let mut chosen = allocators::select(&finder, arguments.allocators.as_deref(), &[])?;
    let mut executor = TrialExecutor::new(&subject, Interrupt::install().context("cannot catch signals")?);
    adopt_orphans().context("cannot look after orphans")?;
    let progress = Progress::first_look();
    let look = executor.first_look();
    progress.finish();
    let look =
        look.map_err(|error| if input_is_lost() { anyhow!("{error:#}. {EMPTY_INPUT}") } else { error })?;
    let Some(look) = look else {
        say("ample: ended by you before anything was measured");
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let mut notes = notes(&prospect, &look, &glibc);
    if input_is_lost() {
        notes.push(EMPTY_INPUT.into());
    }
    let obstacle = obstacle(&prospect, &look);
    let own = own(&prospect, &look, &glibc, obstacle.is_some());
    if let Some(reason) = &obstacle {
        chosen.clear();
        notes.push(format!("No allocator can take the place of its own: it {reason}."));
    }
    notes.extend(chosen.iter().filter_map(|allocator| {
        let set = allocator.assignments()?;
        Some(format!("{} runs with {set}: whoever uses it elsewhere must set that, too.", allocator.name))
    }));
    if let Some(file) = &own {
        let at = chosen.iter().position(Allocator::is_baseline).map_or(0, |at| at + 1);
        chosen.insert(at, as_is(file));
    }

    let plan = plan(&subject, &prospect.file, arguments.seed);
    let stopping = match (arguments.runs, &obstacle) {
        (Some(runs), _) => Stopping::blocks(runs as usize),
        // Once, for its figures: there is nothing that more of them could tell.
        (None, Some(_)) => Stopping::blocks(1),
        (None, None) => Stopping::budget(arguments.budget, None),
    };
    let machine = Machine::read();
    let mut folder = Folder::create(arguments.out.as_deref(), &timestamp(), &machine.host)?;
    executor.prepare(&chosen, folder.path());
    let mut record = Opening {
        plan: &plan,
        allocators: &chosen,
        machine,
        seed: arguments.seed,
        preset: "compare",
        stopping,
        measures: &[],
        timeout: arguments.timeout,
        program: &prospect.program,
    }
    .record();
    folder.write_json("run.json", &record)?;
    let campaign = Campaign {
        plan: &plan,
        allocators: &marked(&chosen),
        program: &prospect.program,
        stopping,
        timeout: arguments.timeout,
        progress: &Progress::start(stopping),
    };
    let conclusion = campaign.run(Vec::new(), &mut executor, &mut |sample| folder.append(sample))?;

    opening::close(&mut record, &conclusion);
    folder.write_json("run.json", &record)?;
    // The first look may have said it already.
    let remarks = executor.remarks().into_iter().map(|remark| format!("{remark}."));
    let new: Vec<String> = remarks.filter(|remark| !notes.contains(remark)).collect();
    notes.extend(new);
    let summary = report::Summary::new(&conclusion, &plan, &chosen, arguments.seed);
    let environment = record.configured_from_outside();
    let compared = Compared::new(summary, &conclusion, &subject, own.as_deref(), environment, notes);
    let page = compared.write(&folder, &record)?;
    show(arguments, &compared, folder.path(), &page)?;
    // What serves the program whatever is chosen was not asked for, and has nothing to be compared with.
    if obstacle.is_some() && !compared.summary.interrupted {
        return Ok(ExitCode::from(NO_NUMBER));
    }
    Ok(exit_code(&compared.summary))
}

/// Prints what to use and why, as JSON or as text, and where the rest lies.
fn show(arguments: &Compare, compared: &Compared, folder: &Path, page: &Path) -> Result<()> {
    if arguments.json {
        return print(&(serde_json::to_string_pretty(compared)? + "\n"));
    }
    let (text, samples) = (compared.text(), folder.join("samples.jsonl"));
    print(&format!("{text}\nraw samples: {}\nreport: {}\n", samples.display(), page.display()))
}

fn subject(arguments: &Compare) -> Result<Subject> {
    let kind = match (&arguments.server, &arguments.load) {
        (Some(server), Some(load)) => {
            let ready = match (&arguments.port, &arguments.ready) {
                (Some(port), _) => Ready::Port(*port),
                (None, command) => Ready::Command(words("--ready", command.as_deref().unwrap_or_default())?),
            };
            Kind::Server(Server { server: words("--server", server)?, load: words("--load", load)?, ready })
        }
        _ => Kind::Command(arguments.command.clone()),
    };
    Ok(Subject {
        thread_counts: thread_counts(&arguments.threads, kind.clone())?,
        kind,
        metrics: arguments.metrics.clone(),
        exit_code: arguments.exit_code,
        timeout: arguments.timeout,
        environment: Vec::new(),
        care: None,
    })
}

/// The thread counts that are asked for, each once, the largest first.
fn thread_counts(asked: &[u32], mut kind: Kind) -> Result<Vec<u32>> {
    let mut counts = asked.to_vec();
    counts.sort_unstable_by_key(|&count| Reverse(count));
    counts.dedup();
    let taken = kind.all_words().any(|word| word.to_string_lossy().contains(THREADS));
    if !counts.is_empty() && !taken {
        let message = format!(
            "--threads puts its numbers in for {THREADS}, and no command has that: write it where the program takes its number of threads"
        );
        return Err(UsageError(message).into());
    }
    Ok(counts)
}

/// The words of a command, as a shell splits them.
fn words(option: &str, command: &str) -> Result<Vec<OsString>> {
    let words = shlex::split(command).unwrap_or_default();
    if words.is_empty() {
        let message = format!("{option} takes a command, with its quotes closed, not '{command}'");
        return Err(UsageError(message).into());
    }
    Ok(words.into_iter().map(OsString::from).collect())
}

/// Why no allocator can serve the program; none where one can.
fn obstacle(prospect: &Prospect, look: &FirstLook) -> Option<String> {
    let unseen =
        || look.library.is_none().then(|| "has no malloc that the dynamic linker knows of".to_owned());
    prospect.obstacle.clone().or_else(unseen)
}

/// The file that serves the program as it is, where that is not glibc.
fn own(prospect: &Prospect, look: &FirstLook, glibc: &Allocator, fixed: bool) -> Option<PathBuf> {
    let other = look.libraries.iter().find(|library| **library != glibc.library);
    other.cloned().or_else(|| fixed.then(|| prospect.program.clone()))
}

/// What a reader should know of the program.
fn notes(prospect: &Prospect, look: &FirstLook, glibc: &Allocator) -> Vec<String> {
    let mut notes: Vec<String> = prospect.remarks.iter().map(|remark| format!("It {remark}.")).collect();
    notes.extend(prospect.in_part.iter().map(|part| format!("It {part}.")));
    let own: Vec<String> = look
        .libraries
        .iter()
        .filter(|library| **library != glibc.library)
        .map(|library| library.display().to_string())
        .collect();
    if !own.is_empty() && prospect.obstacle.is_none() {
        notes.push(format!(
            "As you start it, it is not glibc that serves it, but {}: the row 'as-is'.",
            own.join(", ")
        ));
    }
    if let Some(libraries) = preloaded_by_user() {
        notes.push(format!(
            "LD_PRELOAD={} of your environment stays in force, behind each allocator: unset it to see them without.",
            libraries.display()
        ));
    }
    let library = system_of(&glibc.library);
    for program in look.programs.iter().filter(|program| **program != prospect.program) {
        if let Ok(Prospect { obstacle: Some(reason), .. }) = examine(program.as_os_str(), library) {
            notes.push(format!("{} among its processes {reason}.", name(program)));
        }
    }
    notes
}

fn name(program: &Path) -> String {
    program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned()
}
