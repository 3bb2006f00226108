//! The file that the tool reads: mapped, so that what was counted is there however the process ends.

use std::ffi::CStr;
use std::io::Write as _;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use ample_protocol::observation::{
    APART, BYTES, Count, Distribution, FOLDER, Fact, MAGIC, PLACES, SLOTS, bin, place_in, place_of,
    place_of_bin, place_of_block, place_of_place,
};

/// Longest path of a file.
const PATH: usize = 4096;

/// The numbers of the process; null before there is a file, and where none can be made.
static NUMBERS: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());

/// One of the numbers. Without a file nothing can be counted.
fn number(place: usize) -> Option<&'static AtomicU64> {
    // Relaxed: the mapping is made before its address is stored, by the system itself, and it holds zeroes or what atomics wrote.
    let numbers = NUMBERS.load(Ordering::Relaxed);
    if numbers.is_null() {
        return None;
    }
    debug_assert!(place < BYTES / size_of::<u64>());
    // SAFETY: `BYTES` are mapped there, page-aligned, for as long as the process lives, and all places of the layout lie within.
    Some(unsafe { &*numbers.add(place) })
}

/// Adds to a number of the process: what it was before.
pub fn add(fact: Fact, amount: u64) -> u64 {
    // Relaxed: a count of its own, which orders nothing.
    number(place_of(fact)).map_or(0, |number| number.fetch_add(amount, Ordering::Relaxed))
}

/// Takes from a number of the process.
pub fn subtract(fact: Fact, amount: u64) {
    if let Some(number) = number(place_of(fact)) {
        // Relaxed: as in `add`.
        number.fetch_sub(amount, Ordering::Relaxed);
    }
}

/// Raises a number of the process to this one.
pub fn raise(fact: Fact, to: u64) {
    if let Some(number) = number(place_of(fact)) {
        // Relaxed: as in `add`. Most values are no record, and a load leaves the line to all.
        if number.load(Ordering::Relaxed) < to {
            number.fetch_max(to, Ordering::Relaxed);
        }
    }
}

/// Adds to a number of a thread.
pub fn count(thread: u32, count: Count, amount: u64) {
    if let Some(number) = number(place_in(thread as usize, count)) {
        // Relaxed: as in `add`.
        number.fetch_add(amount, Ordering::Relaxed);
    }
}

/// Notes a value in a distribution of a thread.
pub fn note(thread: u32, distribution: Distribution, value: u64) {
    if let Some(number) = number(place_of_bin(thread as usize, distribution, bin(value))) {
        // Relaxed: as in `add`.
        number.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sets a number of the process.
pub fn set(fact: Fact, to: u64) {
    if let Some(number) = number(place_of(fact)) {
        // Relaxed: as in `add`.
        number.store(to, Ordering::Relaxed);
    }
}

/// Notes that there is a block at this address.
pub fn place(address: u64) {
    if let Some(number) = number(place_of_place(place_of_block(address))) {
        // Relaxed: as in `add`. Most blocks lie beside the one that is noted, and a load leaves the line to all.
        if number.load(Ordering::Relaxed) / APART != address / APART {
            number.store(address, Ordering::Relaxed);
        }
    }
}

/// Notes where a thread's stack lies.
pub fn stack(thread: u32, [from, to]: [u64; 2]) {
    // Several share the last slot.
    if (thread as usize) < SLOTS - 1 {
        count(thread, Count::StackFrom, from);
        count(thread, Count::StackTo, to);
    }
}

/// Makes the file of this process, and counts there from now on. Whether there is one.
///
/// What stood in the header of the file before, if there was one, stands in this one, too, and so do the places: a child that was forked has
/// its parent's blocks.
pub fn open(process: u64, now_ns: u64) -> bool {
    let Some(numbers) = create(process, now_ns) else { return false };
    // SAFETY: just mapped, so long, and nobody else's yet.
    let place = |fact: Fact| unsafe { &*numbers.add(place_of(fact)) };
    for fact in [Fact::Threads, Fact::LiveBytes, Fact::LiveBlocks, Fact::ClockNs, Fact::OwnBytes] {
        // Relaxed: the file is nobody else's yet.
        place(fact).store(add(fact, 0), Ordering::Relaxed);
    }
    for place in (0..PLACES).map(place_of_place) {
        // Relaxed: as above.
        let there = number(place).map_or(0, |number| number.load(Ordering::Relaxed));
        if there != 0 {
            // SAFETY: as above. Relaxed: as above.
            unsafe { &*numbers.add(place) }.store(there, Ordering::Relaxed);
        }
    }
    for (fact, part) in [Fact::Name, Fact::NameRest].into_iter().zip(name()) {
        // Relaxed: as above.
        place(fact).store(part, Ordering::Relaxed);
    }
    for (peak, live) in [(Fact::PeakLiveBytes, Fact::LiveBytes), (Fact::PeakLiveBlocks, Fact::LiveBlocks)] {
        // Relaxed: as above.
        place(peak).store(add(live, 0), Ordering::Relaxed);
    }
    // Relaxed: as above; the magic number comes last only for a reader's eye.
    place(Fact::Process).store(process, Ordering::Relaxed);
    place(Fact::Magic).store(MAGIC, Ordering::Relaxed);
    // Relaxed: see `number`. A file of the parent stays mapped: its threads, which are no more here, may have been about to count.
    NUMBERS.store(numbers, Ordering::Relaxed);
    true
}

/// The program's name, as the system has it.
fn name() -> [u64; 2] {
    let mut name = [0_u8; 16];
    // SAFETY: the call writes 16 bytes at most, which are there.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|byte| name[at + byte])))
}

/// A new file in the folder, mapped and full of zeroes.
fn create(process: u64, now_ns: u64) -> Option<*mut AtomicU64> {
    // SAFETY: a string that ends; the answer is null or a string of the environment, which nobody changes while it is read:
    // this is called before `main`, in a fork's child, or from the first malloc.
    let folder = unsafe {
        let folder = libc::getenv(FOLDER.as_ptr());
        (!folder.is_null()).then(|| CStr::from_ptr(folder))
    }?;
    let mut path = [0_u8; PATH];
    let mut rest = &mut path[..];
    rest.write_all(folder.to_bytes()).ok()?;
    write!(rest, "/{process}-{now_ns}\0").ok()?;
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
    // SAFETY: a string that ends; the length of a file of our own is set, and a new mapping changes no memory that is in use.
    let start = unsafe {
        let file = libc::open(path.as_ptr(), flags, 0o600);
        if file < 0 {
            return None;
        }
        let start = if libc::ftruncate(file, BYTES as libc::off_t) == 0 {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), BYTES, access, libc::MAP_SHARED, file, 0)
        } else {
            libc::MAP_FAILED
        };
        libc::close(file);
        start
    };
    (start != libc::MAP_FAILED).then_some(start.cast())
}
