//! **os-primitives**: what the system charges for what allocators are made of.
//!
//! *Definition.* Each thread does `rounds` rounds; in each, 256 times each: lock and unlock a mutex that
//! nobody else uses (`mutex_ns`); wake the waiters of a futex that has none (`futex_ns`); map and unmap
//! 64 KiB (`mmap_munmap_ns`); move the end of the data segment up and down by 64 KiB, one thread at a time
//! (`brk_ns`); extend a mapping from 64 to 128 KiB and shrink it again (`mremap_ns`). Then, with 256 pages of
//! a mapping: write to each for the first time (`page_fault_ns`), fill them all (`memset_page_ns`), and give them back by
//! madvise(MADV_DONTNEED) in one call (`madvise_page_ns`). One operation is one of these pairs, calls or
//! pages. The figures are means over all threads and rounds, in nanoseconds: what an allocator can at best
//! hide or must pay, and the limit that the other rows are held against. No block is allocated.
//!
//! *Source.* Lever & Boreham (2000), future work: measure the primitives that an allocator depends on.
//!
//! *Deviations.* Transparent huge pages are switched off for the process: a page is one of the base size.
//! The clock is read twice for each primitive and round, a two hundredth of its cost in each figure.

use std::cell::UnsafeCell;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::{Mutex, PoisonError};

use crate::definition::{Definition, Figures, Knob, Settings, Stop};
use crate::harness::crew::Crew;
use crate::harness::failure::Failure;
use crate::harness::heap::opaque;
use crate::harness::topology::switch_huge_pages_off;
use crate::harness::usage::now_ns;

/// os-primitives.
pub const DEFINITION: Definition = Definition {
    name: "os-primitives",
    tells: "What locks, system calls, page faults and memory cost on this machine, whichever the allocator.",
    source: "Lever & Boreham 2000, future work",
    operation: "a primitive: a pair of calls, a call, or a page",
    knobs: &[Knob {
        name: "rounds",
        meaning: "Rounds of each thread.",
        unit: "count",
        default: 100,
        test: 2,
        range: 1..=1 << 32,
    }],
    max_threads: None,
    check: |_| Ok(()),
    run,
};

/// Times that each primitive is done in a round.
const TIMES: usize = 256;
/// Bytes of a small mapping, and by which the data segment's end moves.
const SMALL: usize = 64 << 10;
/// The primitives, in the order in which they are done.
const NAMES: [&str; 8] = [
    "mutex_ns",
    "futex_ns",
    "mmap_munmap_ns",
    "brk_ns",
    "mremap_ns",
    "page_fault_ns",
    "memset_page_ns",
    "madvise_page_ns",
];

fn run(settings: &Settings) -> Result<Figures, Stop> {
    if let Err(error) = switch_huge_pages_off() {
        return Err(Stop::NotMeasurable(format!("transparent huge pages cannot be switched off: {error}")));
    }
    let (threads, rounds) = (u64::from(settings.threads), settings.count("rounds"));
    let workers = vec![[0u64; NAMES.len()]; threads as usize];
    let (reading, workers) = Crew::default().run(workers, |times| all_rounds(rounds, times))?;
    let each = threads * rounds * TIMES as u64;
    let mean = |index: usize| workers.iter().map(|times| times[index]).sum::<u64>() as f64 / each as f64;
    Ok(Figures {
        reading,
        expected_operations: each * NAMES.len() as u64,
        peak_live_bytes: Some(0),
        extra: NAMES.into_iter().enumerate().map(|(index, name)| (name.into(), mean(index))).collect(),
    })
}

/// Adds the time of each primitive to `times`, in nanoseconds.
fn all_rounds(rounds: u64, times: &mut [u64; NAMES.len()]) -> Result<u64, Failure> {
    let page = page_bytes();
    let (lock, futex) = (Lock::new(), 0u32);
    let mut growing = Mapping::new(SMALL)?;
    let pages = Mapping::new(TIMES * page)?;
    let mut done = 0;
    for _ in 0..rounds {
        let mut primitives: [&mut dyn FnMut() -> Result<(), Failure>; NAMES.len()] = [
            &mut || repeat(|| lock.lock_and_unlock()),
            &mut || repeat(|| wake(&futex)),
            &mut || repeat(|| Mapping::new(SMALL).map(drop)),
            &mut || repeat(move_break_up_and_down),
            &mut || repeat(|| growing.resize(2 * SMALL).and_then(|()| growing.resize(SMALL))),
            &mut || pages.touch_each(page),
            &mut || pages.fill(),
            &mut || pages.give_back(),
        ];
        for (primitive, time) in primitives.iter_mut().zip(times.iter_mut()) {
            let start = now_ns();
            primitive()?;
            *time += now_ns() - start;
            done += TIMES as u64;
        }
    }
    Ok(done)
}

fn repeat(mut primitive: impl FnMut() -> Result<(), Failure>) -> Result<(), Failure> {
    (0..TIMES).try_for_each(|_| primitive())
}

fn page_bytes() -> usize {
    // SAFETY: sysconf takes any name.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(page).expect("Linux always has a page size")
}

/// The system's answer to a call that returns a negative number when it refuses.
fn accepted(wanted: &str, result: i64) -> Result<(), Failure> {
    if result < 0 { Err(Failure::system(wanted, &io::Error::last_os_error())) } else { Ok(()) }
}

/// A mutex of the C library.
struct Lock(UnsafeCell<libc::pthread_mutex_t>);

impl Lock {
    fn new() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }

    #[inline(always)]
    fn lock_and_unlock(&self) -> Result<(), Failure> {
        // SAFETY: the mutex was initialised statically, and stays where it is while `self` is borrowed.
        let locked = unsafe { libc::pthread_mutex_lock(self.0.get()) };
        // SAFETY: as above; this thread has just locked it.
        let error = if locked == 0 { unsafe { libc::pthread_mutex_unlock(self.0.get()) } } else { locked };
        match error {
            0 => Ok(()),
            _ => Err(Failure::system("pthread_mutex", &io::Error::from_raw_os_error(error))),
        }
    }
}

fn wake(futex: &u32) -> Result<(), Failure> {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the call does not write; it wakes whoever waits at this address, which is nobody.
    accepted("futex", unsafe { libc::syscall(libc::SYS_futex, futex, operation, 1) })
}

/// Moves the end of the data segment up and down by [`SMALL`]. Nobody uses what lies between, and no worker allocates meanwhile. One worker at a
/// time: the C library remembers where the end is, without a lock, and would cut off its own heap.
fn move_break_up_and_down() -> Result<(), Failure> {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    move_break(SMALL as isize)?;
    move_break(-(SMALL as isize))
}

fn move_break(bytes: isize) -> Result<(), Failure> {
    // SAFETY: the memory that goes is what the caller has just added.
    let previous = unsafe { libc::sbrk(bytes) };
    accepted("brk", if previous as isize == -1 { -1 } else { 0 })
}

/// A private mapping of anonymous pages.
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    #[inline(always)]
    fn new(bytes: usize) -> Result<Self, Failure> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping, wherever the system likes, touches nobody's memory.
        let start = unsafe {
            libc::mmap(null_mut(), bytes, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        Ok(Self { start: mapped("mmap", start)?, bytes })
    }

    #[inline(always)]
    fn resize(&mut self, bytes: usize) -> Result<(), Failure> {
        // SAFETY: this mapping is the worker's own, and nobody has a pointer into it.
        let start =
            unsafe { libc::mremap(self.start.as_ptr().cast(), self.bytes, bytes, libc::MREMAP_MAYMOVE) };
        self.start = mapped("mremap", start)?;
        self.bytes = bytes;
        Ok(())
    }

    fn touch_each(&self, page: usize) -> Result<(), Failure> {
        for offset in (0..self.bytes).step_by(page) {
            // SAFETY: the offset is within the mapping, which is the worker's own.
            unsafe { self.start.add(offset).write_volatile(1) };
        }
        Ok(())
    }

    fn fill(&self) -> Result<(), Failure> {
        // SAFETY: these are the mapping's own bytes, and the worker's alone.
        unsafe { self.start.write_bytes(0x5A, self.bytes) };
        opaque(self.start.as_ptr());
        Ok(())
    }

    fn give_back(&self) -> Result<(), Failure> {
        // SAFETY: the pages are the worker's own, and it does not need their content.
        let result = unsafe { libc::madvise(self.start.as_ptr().cast(), self.bytes, libc::MADV_DONTNEED) };
        accepted("madvise", result.into())
    }
}

impl Drop for Mapping {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: this mapping has this very size, and nobody uses it any more.
        let result = unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert_eq!(result, 0);
    }
}

fn mapped(wanted: &str, start: *mut libc::c_void) -> Result<NonNull<u8>, Failure> {
    match NonNull::new(start.cast()) {
        Some(address) if start != libc::MAP_FAILED => Ok(address),
        _ => Err(Failure::system(wanted, &io::Error::last_os_error())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::usage::Usage;

    #[test]
    fn every_primitive_is_done_and_timed() {
        let mut times = [0; NAMES.len()];
        assert_eq!(all_rounds(2, &mut times), Ok(2 * 8 * 256));
        assert!(times.iter().all(|&time| time > 0), "{times:?}");
    }

    #[test]
    fn pages_given_back_fault_again() {
        switch_huge_pages_off().expect("permitted");
        let pages = Mapping::new(256 * page_bytes()).expect("mapped");
        for _ in 0..2 {
            let before = Usage::so_far();
            pages.touch_each(page_bytes()).expect("touched");
            assert!(Usage::so_far().since(before).minor_faults >= 256);
            pages.give_back().expect("given back");
        }
    }
}
