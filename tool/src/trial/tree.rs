//! Memory of a process and all its descendants, looked at from outside.
//!
//! Anonymous and shared memory count; pages of mapped files do not, since they are the system's cache and
//! no allocator's. Pages that a fork shares count in each process.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time between two looks, once the program has run for a while.
const PAUSE: Duration = Duration::from_millis(10);
/// A look may take this share of the time at most.
const SHARE: u32 = 20;

/// The memory of one process, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Memory {
    anonymous: u64,
    shared: u64,
    files: u64,
    /// The largest resident set so far, files included.
    high_water: u64,
}

/// One process over several looks.
#[derive(Debug, Default)]
struct Member {
    most_files: u64,
}

/// A process and everything that descends from it.
#[derive(Debug)]
pub struct Tree {
    root: i32,
    /// All that were ever seen: a process whose parent has ended still belongs to the tree.
    members: BTreeMap<i32, Member>,
    programs: BTreeSet<PathBuf>,
    began: Instant,
    last: Duration,
    peak: u64,
    now: u64,
}

impl Tree {
    /// Begins to look at the descendants of this process.
    pub fn of(root: i32) -> Self {
        Self {
            root,
            members: BTreeMap::new(),
            programs: BTreeSet::new(),
            began: Instant::now(),
            last: Duration::ZERO,
            peak: 0,
            now: 0,
        }
    }

    /// The largest sum of all looks, in bytes; or the largest part of one process's own high-water mark that
    /// cannot be pages of files, where that is more.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// The sum at the last look, in bytes.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The programs that were seen.
    pub fn programs(&self) -> &BTreeSet<PathBuf> {
        &self.programs
    }

    /// Looks once, and tells how long to wait for the next time: shortly at first, so that a short life is
    /// seen several times.
    pub fn look(&mut self) -> Duration {
        let begin = Instant::now();
        let mut sum = 0;
        for pid in self.descendants() {
            let Some(memory) = memory(pid) else { continue };
            let member = self.members.entry(pid).or_default();
            member.most_files = member.most_files.max(memory.files);
            sum += memory.anonymous + memory.shared;
            // What the mark exceeds the most pages of files by was anonymous or shared at some time.
            self.peak = self.peak.max(memory.high_water.saturating_sub(member.most_files));
        }
        self.peak = self.peak.max(sum);
        self.now = sum;
        self.last = begin.elapsed();
        let early = self.began.elapsed() / 4;
        early.clamp(Duration::from_micros(500), PAUSE).max(self.last * SHARE)
    }

    /// Looks once at which programs run, besides.
    pub fn look_at_programs(&mut self) -> Duration {
        let running = self.descendants();
        self.programs.extend(running.iter().filter_map(|pid| fs::read_link(format!("/proc/{pid}/exe")).ok()));
        self.look()
    }

    fn descendants(&self) -> BTreeSet<i32> {
        let mut found = BTreeSet::new();
        let mut open: Vec<i32> = self.members.keys().copied().chain([self.root]).collect();
        while let Some(pid) = open.pop() {
            if found.insert(pid) {
                open.extend(children(pid));
            }
        }
        found
    }
}

/// The children of a process: each of its threads has its own.
fn children(process: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{process}/task"));
    let mut found = Vec::new();
    for thread in threads.into_iter().flatten().flatten() {
        let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        found.extend(text.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    found
}

/// The memory of a process; none for one that has ended.
fn memory(pid: i32) -> Option<Memory> {
    parse(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn parse(status: &str) -> Option<Memory> {
    let field = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    };
    Some(Memory {
        anonymous: field("RssAnon:")?,
        shared: field("RssShmem:")?,
        files: field("RssFile:")?,
        high_water: field("VmHWM:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_and_one_without_memory_is_none() {
        let status =
            "Name:\tx\nVmHWM:\t    900 kB\nRssAnon:\t     100 kB\nRssFile:\t  20 kB\nRssShmem:\t 3 kB\n";
        let expected = Memory { anonymous: 102_400, shared: 3072, files: 20_480, high_water: 921_600 };
        assert_eq!(parse(status), Some(expected));
        assert_eq!(parse("Name:\tzombie\n"), None);
    }

    #[test]
    fn the_early_looks_follow_each_other_closely() {
        let mut tree = Tree::of(std::process::id() as i32);
        let pause = tree.look();
        assert!(pause < PAUSE.max(tree.last * SHARE + Duration::from_millis(1)));
        assert!(tree.peak() >= tree.now() && tree.now() > 0);
    }
}
