//! What the threads of a process that runs wait for, as seen by looking at them again and again.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use procfs::process::{Process, Syscall, Task};
use serde::Serialize;

/// The least time between two looks, and as a multiple of what a look costs.
const PAUSE: Duration = Duration::from_millis(10);
const COSTS: u32 = 20;
/// Calls by which a process changes its memory: while one thread makes one, others wait that want to.
const CHANGES: &[i64] = &[
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_brk,
];
/// What the system tells of a thread that waits without having called it: for a page.
const NO_CALL: i64 = -1;

/// How often threads were seen that had something to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Waits {
    /// They ran, or could have.
    pub running: u64,
    /// They waited for a lock of malloc's.
    pub for_malloc: u64,
    /// They waited while memory was mapped, unmapped or brought in.
    pub for_memory: u64,
}

impl Waits {
    /// Threads that had something to do, in all looks together.
    pub fn busy(&self) -> u64 {
        self.running + self.for_malloc + self.for_memory
    }
}

/// Looks at the threads of a process.
#[derive(Debug, Default)]
pub(super) struct Looker {
    threads: BTreeMap<i32, Task>,
    waits: Waits,
    /// Where threads wait by a futex, and how often one was seen to.
    futexes: BTreeMap<u64, u64>,
    /// Stack pointers that were seen, by thread.
    stacks: BTreeMap<i32, u64>,
    /// Whether the system tells what threads do.
    told: bool,
}

impl Looker {
    /// Learns of threads that are new.
    pub fn find(&mut self, process: &Process) {
        for task in process.tasks().into_iter().flatten().flatten() {
            self.threads.entry(task.tid).or_insert(task);
        }
    }

    /// Looks at each thread once: how long until the next time.
    pub fn look(&mut self) -> Duration {
        let began = Instant::now();
        let mut ended = Vec::new();
        for (&thread, task) in &self.threads {
            match task.syscall() {
                Ok(Syscall::Running) => {
                    self.told = true;
                    self.waits.running += 1;
                }
                Ok(Syscall::Blocked { syscall_number, argument_registers, stack_pointer, .. }) => {
                    self.told = true;
                    self.stacks.insert(thread, stack_pointer);
                    if syscall_number == libc::SYS_futex {
                        *self.futexes.entry(argument_registers[0]).or_default() += 1;
                    } else if syscall_number == NO_CALL || CHANGES.contains(&syscall_number) {
                        self.waits.for_memory += 1;
                    }
                }
                // It has ended, or nobody may look.
                _ => ended.push(thread),
            }
        }
        for thread in ended {
            self.threads.remove(&thread);
        }
        PAUSE.max(began.elapsed() * COSTS)
    }

    /// What was seen, given where malloc's locks are; none where the system tells nothing.
    pub fn waits(&self, locks: &[Range<u64>]) -> Option<Waits> {
        let is_lock = |address: u64| locks.iter().any(|lock| lock.contains(&address));
        let waits = self.futexes.iter().filter(|(address, _)| is_lock(**address));
        self.told.then(|| Waits { for_malloc: waits.map(|(_, count)| count).sum(), ..self.waits })
    }

    /// Addresses in the stacks of threads that waited.
    pub fn stacks(&self) -> impl Iterator<Item = u64> {
        self.stacks.values().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_malloc_s_where_its_lock_is() {
        let mut looker = Looker::default();
        assert_eq!(looker.waits(&[]), None, "nobody was seen");
        looker.told = true;
        looker.waits = Waits { running: 6, for_malloc: 0, for_memory: 1 };
        looker.futexes = BTreeMap::from([(0x100, 3), (0x108, 5), (0x200, 7)]);
        let waits = looker.waits(&[0x100..0x108, 0x1f8..0x201]).expect("seen");
        assert_eq!((waits.for_malloc, waits.busy()), (10, 17));
    }
}
