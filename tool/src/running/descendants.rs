//! The processes that the one looked at has started, and those that they have: a server's workers.

use std::collections::BTreeMap;

use procfs::process::Process;
use serde::Serialize;

use super::accounts::Accounts;
use super::server::Server;
use super::{Look, Memory, age, mappings};

/// How many are told of at most; and of how many, the largest ones, malloc's memory is looked into.
const MOST: usize = 4096;
const MOST_LOOKED_INTO: usize = 64;

/// A process that the one looked at has started, or that one of those has.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Descendant {
    /// Its number.
    pub pid: i32,
    /// The program's name, its first 15 bytes.
    pub name: String,
    /// Processor time meanwhile, in nanoseconds.
    pub cpu_ns: u64,
    /// Who serves its malloc; none where that was not found out.
    pub allocator: Option<String>,
    /// Its memory when the look ended.
    pub memory: Memory,
}

/// The processor time that each of them had so far, in nanoseconds.
#[derive(Debug, Clone, Default)]
pub(super) struct Times(BTreeMap<i32, u64>);

impl Times {
    /// As of now.
    pub fn of(process: &Process) -> Self {
        Self(all(process).iter().map(|process| (process.pid(), cpu_ns(process))).collect())
    }
}

/// Those that are there now, the largest first.
pub(super) fn descendants(process: &Process, earlier: &Times) -> Vec<Descendant> {
    let seen = all(process).into_iter().filter_map(|process| {
        let cpu_ns = cpu_ns(&process).saturating_sub(earlier.0.get(&process.pid()).copied().unwrap_or(0));
        let (stat, status) = (process.stat().ok()?, process.status().ok()?);
        // In KiB; one that has ended, and that nobody has waited for, has none.
        let resident_bytes = (status.rssanon? + status.rssshmem.unwrap_or(0)) << 10;
        let memory = Memory { resident_bytes, ..Memory::default() };
        Some((Descendant { pid: process.pid(), name: stat.comm, cpu_ns, memory, allocator: None }, process))
    });
    let mut seen: Vec<_> = seen.collect();
    seen.sort_by_key(|(descendant, _)| std::cmp::Reverse(descendant.memory.resident_bytes));
    for (place, (descendant, process)) in seen.iter_mut().enumerate() {
        descendant.look_into(process, place < MOST_LOOKED_INTO);
    }
    seen.into_iter().map(|(descendant, _)| descendant).collect()
}

impl Descendant {
    /// Finds out what its memory is, and what malloc has of it, unless the system lets nobody look.
    fn look_into(&mut self, process: &Process, malloc: bool) {
        let Ok(maps) = mappings(process, &self.name) else { return };
        let server = if malloc { Server::of(process, &maps) } else { Server::default() };
        let look = Look::new(process, &server, if malloc { &maps } else { &[] });
        let age_s = process.stat().map_or(0.0, |stat| age(stat.starttime));
        self.memory = look.memory(&maps, &look.see(&maps), &[], age_s);
        self.allocator = server.name();
    }
}

/// All of them but this tool, which a shell may have started that is looked at.
fn all(process: &Process) -> Vec<Process> {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let mut all = children(process);
    let mut next = 0;
    while next < all.len() && all.len() < MOST {
        let more = children(&all[next]);
        all.extend(more);
        next += 1;
    }
    all.truncate(MOST);
    all.retain(|process| process.pid() != own);
    all
}

fn children(process: &Process) -> Vec<Process> {
    let tasks = process.tasks().into_iter().flatten().flatten();
    let numbers =
        tasks.flat_map(|task| task.children().unwrap_or_default()).filter_map(|child| child.try_into().ok());
    numbers.filter_map(|child| Process::new(child).ok()).collect()
}

fn cpu_ns(process: &Process) -> u64 {
    Accounts::of(process).map_or(0, |accounts| accounts.process.cpu_ns())
}
