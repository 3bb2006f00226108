//! What is seen of the memory of processes while they run, from outside: how it grows, and what it is.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ample_protocol::observation::{Count, Fact, PLACES, SLOTS, place_in, place_of, place_of_place};
use procfs::process::{MMapPath, Process};
use serde::Serialize;

use super::parts::{Known, Parts, in_memory, parts};

/// Moments that are kept, at most; from then on every second one.
const MOST: usize = 240;
/// Below so much memory nobody asks what it is.
const LEAST: u64 = 4 << 20;
/// From this much more memory on than when it was last asked for, it is asked again at once; of any more only after so long, and so many times as long as the asking takes,
/// since the process cannot change its mappings meanwhile.
const MORE: u64 = 10;
const APART: Duration = Duration::from_millis(250);
const COSTS: u32 = 50;
/// How long until the next look, at least and at most, and as a part of the time since the program began: whoever runs for long is looked at seldom.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(500)];
const PART: u32 = 50;

/// A moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Moment {
    /// When, in milliseconds since the program began.
    pub at_ms: u64,
    /// Bytes live then.
    pub live_bytes: u64,
    /// Memory of its own that was resident, in bytes: mapped files left out, and the observer's.
    pub resident_bytes: u64,
}

/// What was seen of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Moments, less dense the later.
    pub moments: Vec<Moment>,
    /// What the memory was when there was most of it, or little less; none where it was never much, or not for long enough to be seen.
    pub parts: Option<Parts>,
}

/// Looks at the processes that write into the observer's folder.
#[derive(Debug)]
pub struct Watch {
    folder: PathBuf,
    began: Instant,
    processes: BTreeMap<OsString, Watched>,
}

#[derive(Debug)]
struct Watched {
    pid: i32,
    /// What the observer writes; none once there is no such process any more.
    file: Option<File>,
    /// Whether the process of that number has mapped it: in a namespace of its own another has that number here.
    is_its: bool,
    /// Looks between two moments that are kept, and since the last one.
    every: usize,
    since: usize,
    memory: Memory,
    /// Resident bytes when it was last asked what they are, and from when on it is asked of slightly more.
    asked_of: u64,
    asks_from: Instant,
}

impl Watch {
    /// Of a program that begins now, and of its children.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, began: Instant::now(), processes: BTreeMap::new() }
    }

    /// Looks once: how long until the next time.
    pub fn look(&mut self) -> Duration {
        self.find();
        let elapsed = self.began.elapsed();
        for (name, watched) in &mut self.processes {
            watched.look(name, u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX));
        }
        (elapsed / PART).clamp(PAUSES[0], PAUSES[1])
    }

    /// What was seen, by the names of the files.
    pub fn seen(self) -> BTreeMap<OsString, Memory> {
        self.processes.into_iter().map(|(name, watched)| (name, watched.memory)).collect()
    }

    /// New processes.
    fn find(&mut self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let names = entries.flatten().map(|entry| entry.file_name());
        let mut new: Vec<OsString> = names.filter(|name| !self.processes.contains_key(name)).collect();
        // By time, as the names end in it.
        new.sort_unstable();
        for name in new {
            let Some(pid) = pid(&name) else { continue };
            // It executes another program now, and a later one of that number comes after it.
            for other in self.processes.values_mut().filter(|other| other.pid == pid) {
                other.file = None;
            }
            let watched = Watched {
                pid,
                file: File::open(self.folder.join(&name)).ok(),
                is_its: false,
                every: 1,
                since: 0,
                memory: Memory::default(),
                asked_of: LEAST,
                asks_from: Instant::now(),
            };
            self.processes.insert(name, watched);
        }
    }
}

/// The process of a file: its number comes first in the name.
fn pid(name: &OsStr) -> Option<i32> {
    name.to_str()?.split_once('-')?.0.parse().ok()
}

impl Watched {
    fn look(&mut self, name: &OsStr, at_ms: u64) {
        let Some(file) = &self.file else { return };
        let Some((process, resident_bytes)) = resident(self.pid) else {
            self.file = None;
            return;
        };
        self.is_its = self.is_its || has_mapped(&process, name);
        if !self.is_its {
            return;
        }
        let live_bytes = number(file, place_of(Fact::LiveBytes));
        let resident_bytes = resident_bytes.saturating_sub(number(file, place_of(Fact::OwnBytes)));
        let more = resident_bytes > self.asked_of;
        let much_more = resident_bytes > self.asked_of + self.asked_of / MORE;
        // While a program frees all before its end, what is live says nothing of the memory that there is.
        let grows = self.memory.parts.is_none_or(|parts| live_bytes >= parts.live_bytes);
        if much_more || more && grows && Instant::now() >= self.asks_from {
            let asked = Instant::now();
            if let Some(parts) = look_at_parts(&process, file) {
                self.memory.parts = Some(Parts { at_ms, live_bytes, ..parts });
            }
            self.asked_of = resident_bytes;
            self.asks_from = Instant::now() + (asked.elapsed() * COSTS).max(APART);
        }
        self.keep(Moment { at_ms, live_bytes, resident_bytes });
    }

    fn keep(&mut self, moment: Moment) {
        self.since += 1;
        if self.since < self.every {
            return;
        }
        self.since = 0;
        self.memory.moments.push(moment);
        if self.memory.moments.len() > MOST {
            let mut index = 0;
            self.memory.moments.retain(|_| {
                index += 1;
                index % 2 == 0
            });
            self.every *= 2;
        }
    }
}

/// A process that has memory of its own, and how many bytes, mapped files left out.
fn resident(pid: i32) -> Option<(Process, u64)> {
    let process = Process::new(pid).ok()?;
    let statm = process.statm().ok()?;
    // One that has ended, and for which nobody has waited, has none.
    (statm.resident > 0).then(|| (process, statm.resident.saturating_sub(statm.shared) * procfs::page_size()))
}

/// Whether a process has a file of this name, which no other file has, in its memory.
fn has_mapped(process: &Process, name: &OsStr) -> bool {
    let is_it = |path: &MMapPath| matches!(path, MMapPath::Path(path) if path.file_name() == Some(name));
    process.maps().is_ok_and(|maps| maps.0.iter().any(|map| is_it(&map.pathname)))
}

/// What its memory is; none where the system does not let us see.
fn look_at_parts(process: &Process, file: &File) -> Option<Parts> {
    let known = known(file);
    let maps = process.smaps().ok()?;
    Some(parts(&maps.0, &known, |range| in_memory(process, range).unwrap_or(0)))
}

/// What the observer wrote of the process's addresses.
fn known(file: &File) -> Known {
    let mut places = vec![0; PLACES * size_of::<u64>()];
    let mut known = Known::default();
    if file.read_exact_at(&mut places, offset(place_of_place(0))).is_ok() {
        known.places = places
            .as_chunks()
            .0
            .iter()
            .map(|place| u64::from_ne_bytes(*place))
            .filter(|place| *place != 0)
            .collect();
        known.places.sort_unstable();
    }
    let threads = usize::try_from(number(file, place_of(Fact::Threads))).unwrap_or(0);
    for thread in 0..threads.min(SLOTS - 1) {
        let [from, to] =
            [Count::StackFrom, Count::StackTo].map(|count| number(file, place_in(thread, count)));
        if from < to {
            known.stacks.push(from..to.next_multiple_of(procfs::page_size()));
        }
    }
    known
}

/// A number of the observer's; 0 where it cannot be read.
fn number(file: &File, place: usize) -> u64 {
    let mut bytes = [0; size_of::<u64>()];
    file.read_exact_at(&mut bytes, offset(place)).map_or(0, |()| u64::from_ne_bytes(bytes))
}

fn offset(place: usize) -> u64 {
    (place * size_of::<u64>()) as u64
}
