//! Goes on with a run that was interrupted.

use std::borrow::Cow;
use std::path::Path;

use anyhow::{Result, bail};
use clap::Parser as _;

use crate::cli::{Bench, Cli, Command};
use crate::record::{Folder, Run, Stored, timestamp};
use crate::run::Past;

/// The command that goes on with the run in this folder.
pub fn command(folder: &Path) -> String {
    let folder = folder.to_string_lossy();
    // Fails for no path: none has a byte of zero.
    let quoted = shlex::try_quote(&folder).unwrap_or(Cow::Borrowed(&*folder));
    format!("ample bench --resume {quoted}")
}

/// The arguments that the run was begun with.
///
/// Fails for what no `ample bench` of this version has begun, and for a run that was merged from shards.
pub fn arguments(stored: &Stored) -> Result<Bench> {
    let folder = stored.path.display();
    if !stored.run.merged.is_empty() {
        bail!("{folder} was merged from shards; go on with the folder of a shard, and merge again");
    }
    match Cli::try_parse_from(&stored.run.command) {
        Ok(Cli { command: Command::Bench(bench) }) if bench.apps.is_some() => {
            bail!("{folder} holds real programs (--apps), which cannot be gone on with: begin a new run")
        }
        Ok(Cli { command: Command::Bench(bench) }) => Ok(*bench),
        Ok(_) => bail!("{folder} was not measured by ample bench: only such a run can be gone on with"),
        Err(_) => bail!(
            "{folder} was begun by another version of ample, whose command this one does not know: {}",
            stored.run.command.join(" ")
        ),
    }
}

/// Opens the folder of the run anew, after `record`, made for the run that is about to go on, was found to be
/// of the same plan, machine and files; `record` then becomes the run's own.
///
/// Fails, and changes nothing, where they differ.
pub fn take_up(record: &mut Run, stored: Stored) -> Result<(Folder, Past)> {
    let Stored { path, run, samples } = stored;
    let differences = [
        ("another plan", run.plan_differences(record)),
        ("other files", run.binary_differences(record)),
        ("another machine", run.machine.differences(&record.machine)),
    ];
    for (what, found) in differences {
        if !found.is_empty() {
            bail!(
                "cannot go on with {}: that would be {what}, then and now: {}; begin a new run",
                path.display(),
                found.join("; ")
            );
        }
    }
    let folder = Folder::reopen(&path)?;
    let past = Past::new(samples, run.block_log.clone());
    *record = Run { ended: None, noise_at_end: None, interrupted: false, ..run };
    record.resumed.push(timestamp());
    Ok((folder, past))
}
