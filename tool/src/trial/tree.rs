//! Memory of a process and all its descendants, looked at from outside.
//!
//! Anonymous and shared memory count; pages of mapped files do not, since they are the system's cache and
//! no allocator's. Pages that a fork shares count in each process.
//!
//! A look every 10 ms misses what comes between, above all the end. The kernel's high-water marks fill the gap:
//! a process's own while it lives, and the largest of the tree (wait4) at its end. Both count pages of files
//! too, of which the most that were seen are taken off.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use crate::programs::Sightings;
use crate::run::children;

/// Time between two looks, once the program has run for a while.
const PAUSE: Duration = Duration::from_millis(10);
/// A look may take this share of the time at most, once the program has run for [`EARLY`].
const SHARE: u32 = 20;
/// The same where programs are noted.
const NOTING_SHARE: u32 = 2;
/// While looks follow each other closely.
const EARLY: Duration = Duration::from_millis(20);
/// Time between the first looks.
const SHORTEST_PAUSE: Duration = Duration::from_micros(200);

/// The memory of one process, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Memory {
    anonymous: u64,
    shared: u64,
    files: u64,
    /// The largest resident set so far, files included.
    high_water: u64,
}

/// A process and everything that descends from it.
#[derive(Debug)]
pub struct Tree {
    root: i32,
    /// All that were ever seen, with their most pages of files, in bytes: a process whose parent has ended
    /// still belongs to the tree.
    members: BTreeMap<i32, u64>,
    sightings: Option<Sightings>,
    /// The processor time of each, in ticks, as of the last look; only where programs are noted.
    ticks: BTreeMap<i32, u64>,
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
            sightings: None,
            ticks: BTreeMap::new(),
            began: Instant::now(),
            last: Duration::ZERO,
            peak: 0,
            now: 0,
        }
    }

    /// Looks at which programs run, besides.
    pub fn noting(mut self, sightings: Sightings) -> Self {
        self.sightings = Some(sightings);
        self
    }

    /// The largest sum of all looks, in bytes; or the largest part of one process's own high-water mark that
    /// cannot be pages of files, where that is more. 0 where there was no look at a process alive.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// The most pages of files that one process had, in bytes.
    pub fn most_files(&self) -> u64 {
        self.members.values().copied().max().unwrap_or(0)
    }

    /// Takes the kernel's account at the end into the peak: the largest resident set of any process, in bytes.
    /// It says nothing below `floor`, the memory of the process that it was forked from. Of the rest, as many
    /// pages of files are taken off as were seen, now or in earlier runs (`files`).
    pub fn settle(&mut self, largest: u64, floor: u64, files: u64) {
        let files = files.max(self.most_files());
        if largest > floor && files > 0 {
            self.peak = self.peak.max(largest.saturating_sub(files));
        }
    }

    /// The sum at the last look, in bytes.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// What was seen of programs, where that was looked at.
    pub fn sightings(&self) -> Sightings {
        self.sightings.clone().unwrap_or_default()
    }

    /// The processor time of all members, as far as it was seen where programs were noted, in nanoseconds.
    pub fn seen_cpu_ns(&self) -> u64 {
        self.ticks.values().sum::<u64>() * 1_000_000_000 / rustix::param::clock_ticks_per_second()
    }

    /// Looks at the process that was started once more: it has ended, and nobody has waited for it yet.
    pub fn look_at_end(&mut self) {
        if let Some(sightings) = &mut self.sightings {
            sightings.look(self.root.unsigned_abs());
        }
    }

    /// Looks once, and tells how long to wait for the next time: shortly at first, so that a short life is
    /// seen several times.
    pub fn look(&mut self) -> Duration {
        let begin = Instant::now();
        let mut sum = 0;
        for pid in self.descendants() {
            if let Some(sightings) = &mut self.sightings {
                sightings.look(pid.unsigned_abs());
                self.ticks.extend(ticks(pid).map(|ticks| (pid, ticks)));
            }
            let Some(memory) = memory(pid) else { continue };
            let most_files = self.members.entry(pid).or_default();
            *most_files = memory.files.max(*most_files);
            sum += memory.anonymous + memory.shared;
            // What the mark exceeds the most pages of files by was anonymous or shared at some time.
            self.peak = self.peak.max(memory.high_water.saturating_sub(*most_files));
        }
        self.peak = self.peak.max(sum);
        self.now = sum;
        self.last = begin.elapsed();
        let age = self.began.elapsed();
        let pause = (age / 4).clamp(SHORTEST_PAUSE, PAUSE);
        // What is noted besides is lost in a long pause, and a run in which it is noted is not measured.
        let share = if self.sightings.is_some() { NOTING_SHARE } else { SHARE };
        if age < EARLY { pause } else { pause.max(self.last * share) }
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

/// Memory of this process that a fork of it begins with, in bytes.
pub fn floor() -> u64 {
    memory(std::process::id() as i32).map_or(0, |memory| memory.anonymous + memory.shared)
}

/// The processor time of a process without its children, in ticks; none for one that has ended.
fn ticks(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may hold anything. User time and kernel time are the 14th and 15th word.
    let mut words = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    Some(words.next()?.parse::<u64>().ok()? + words.next()?.parse::<u64>().ok()?)
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
    fn the_account_at_the_end_counts_only_above_the_floor_and_without_files() {
        let mut tree = Tree::of(1);
        tree.settle(100, 100, 30);
        assert_eq!(tree.peak(), 0, "that may be the parent's memory");
        tree.settle(200, 100, 0);
        assert_eq!(tree.peak(), 0, "nobody knows how much of it is files");
        tree.settle(200, 100, 30);
        assert_eq!(tree.peak(), 170);
        tree.members.insert(7, 50);
        tree.settle(300, 100, 30);
        assert_eq!(tree.peak(), 250);
    }

    #[test]
    fn the_early_looks_follow_each_other_closely() {
        let mut tree = Tree::of(std::process::id() as i32);
        let pause = tree.look();
        assert!(tree.began.elapsed() > EARLY || pause < PAUSE);
        assert!(tree.peak() >= tree.now() && tree.now() > 0);
    }
}
