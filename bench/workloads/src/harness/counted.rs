//! The memory pass: a heap that counts live bytes and operations, and reads resident memory at fixed
//! numbers of operations.
//!
//! The counts are those of the whole process from its first call on until the measured part ends, so that
//! blocks which the workload starts with are in them. Reading takes no memory of the heap: the file is open
//! already, and the points have their places.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use ample_protocol::CurvePoint;

use super::curve::Curve;
use super::failure::Failure;
use super::heap::{Address, Heap, Plain};
use super::phase::{self, Phase};
use super::slots;

/// What the system says of this process. `statm` would be shorter, but has no figure that holds shared
/// memory and leaves out files: its `shared` is both together.
const STATUS: &str = "/proc/self/status";

static FILE: OnceLock<File> = OnceLock::new();
static LIVE_BYTES: AtomicU64 = AtomicU64::new(0);
static OPERATIONS: AtomicU64 = AtomicU64::new(0);
static INTERVAL: AtomicU64 = AtomicU64::new(1);
static CURVE: Mutex<Curve> = Mutex::new(Curve::new());

/// Opens what is read later; to be called before the first block.
///
/// # Errors
/// `/proc` is not mounted.
pub fn prepare() -> Result<(), Failure> {
    let file = File::open(STATUS).map_err(|error| Failure::system(STATUS, &error))?;
    FILE.get_or_init(|| file);
    Ok(())
}

/// The points so far.
pub fn points() -> Vec<CurvePoint> {
    CURVE.lock().unwrap_or_else(PoisonError::into_inner).points().to_vec()
}

/// Counts an operation that has left `grown` more and `shrunk` fewer bytes live.
fn count(grown: usize, shrunk: usize) -> Result<(), Failure> {
    if phase::now() == Phase::After {
        return Ok(());
    }
    let change = (grown as u64).wrapping_sub(shrunk as u64);
    // Relaxed: whoever hands a block to another thread orders its allocation before its free.
    LIVE_BYTES.fetch_add(change, Ordering::Relaxed);
    // Relaxed: each operation has its number, and nothing else depends on it.
    let operations = OPERATIONS.fetch_add(1, Ordering::Relaxed) + 1;
    // Relaxed: an old value means a point too many, which the curve refuses.
    if !operations.is_multiple_of(INTERVAL.load(Ordering::Relaxed)) {
        return Ok(());
    }
    let mut curve = CURVE.lock().unwrap_or_else(PoisonError::into_inner);
    // Relaxed: a reading of what other threads are changing.
    let live_bytes = LIVE_BYTES.load(Ordering::Relaxed);
    let interval = curve.add(CurvePoint { operations, live_bytes, rss_bytes: rss_bytes()? });
    // Relaxed: as above.
    INTERVAL.store(interval, Ordering::Relaxed);
    Ok(())
}

/// Resident anonymous and shared memory, without the slots.
fn rss_bytes() -> Result<u64, Failure> {
    let lacking = || Failure::System { reason: format!("{STATUS} lacks RssAnon or RssShmem") };
    let file = FILE.get().ok_or_else(lacking)?;
    let mut buffer = [0; 4096];
    let length = file.read_at(&mut buffer, 0).map_err(|error| Failure::system(STATUS, &error))?;
    let resident = parse(&buffer[..length]).ok_or_else(lacking)?;
    Ok(resident.saturating_sub(slots::mapped_in_all()))
}

/// Bytes of anonymous and shared memory.
fn parse(status: &[u8]) -> Option<u64> {
    let kib = |name: &[u8]| {
        let start = status.windows(name.len()).position(|window| window == name)? + name.len();
        let digits = status[start..].iter().skip_while(|byte| !byte.is_ascii_digit());
        let digits = digits.take_while(|byte| byte.is_ascii_digit());
        Some(digits.fold(0, |number: u64, digit| 10 * number + u64::from(digit - b'0')))
    };
    Some((kib(b"RssAnon:")? + kib(b"RssShmem:")?) * 1024)
}

/// A block and the bytes that were asked for.
#[derive(Debug, Clone, Copy)]
pub struct Sized {
    block: Address,
    size: usize,
}

/// [`Plain`], and the counts.
#[derive(Debug)]
pub struct Counted;

impl Heap for Counted {
    type Block = Sized;

    fn of(_owner: u32) -> Self {
        Self
    }

    fn allocate(&mut self, size: usize) -> Result<Sized, Failure> {
        let block = Plain.allocate(size)?;
        count(size, 0)?;
        Ok(Sized { block, size })
    }

    fn allocate_aligned(&mut self, alignment: usize, size: usize) -> Result<Sized, Failure> {
        let block = Plain.allocate_aligned(alignment, size)?;
        count(size, 0)?;
        Ok(Sized { block, size })
    }

    #[inline]
    unsafe fn write(&self, Sized { block, .. }: Sized, offset: usize) -> Result<(), Failure> {
        // SAFETY: the caller vouches for it.
        unsafe { Plain.write(block, offset) }
    }

    #[inline]
    unsafe fn fill(&self, Sized { block, .. }: Sized, size: usize) -> Result<(), Failure> {
        // SAFETY: the caller vouches for it.
        unsafe { Plain.fill(block, size) }
    }

    #[inline]
    unsafe fn read_back(&self, Sized { block, .. }: Sized, size: usize) -> Result<(), Failure> {
        // SAFETY: the caller vouches for it.
        unsafe { Plain.read_back(block, size) }
    }

    unsafe fn resize(&mut self, old: Sized, old_size: usize, new_size: usize) -> Result<Sized, Failure> {
        // SAFETY: the caller vouches for it.
        let block = unsafe { Plain.resize(old.block, old_size, new_size)? };
        count(new_size, old.size)?;
        Ok(Sized { block, size: new_size })
    }

    unsafe fn free(&mut self, Sized { block, size }: Sized) -> Result<(), Failure> {
        // SAFETY: the caller vouches for it.
        unsafe { Plain.free(block)? };
        count(0, size)
    }

    fn address(Sized { block, .. }: Sized) -> usize {
        Plain::address(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_and_shared_memory_count_and_files_do_not() {
        let status = b"VmRSS:\t 9 kB\nRssAnon:\t     148 kB\nRssFile:\t 2184 kB\nRssShmem:\t  20 kB\n";
        assert_eq!(parse(status), Some(168 << 10));
        assert_eq!(parse(b"RssAnon:\t 1 kB\n"), None);
    }

    #[test]
    fn blocks_count_as_live_from_their_malloc_to_their_free() {
        prepare().expect("/proc");
        // Other tests do not use this heap.
        // Relaxed: one thread.
        let live = || LIVE_BYTES.load(Ordering::Relaxed);
        let mut heap = Counted::of(0);
        let block = heap.allocate(4 << 20).expect("allocated");
        // SAFETY: fresh, and as long as this.
        unsafe { heap.fill(block, 4 << 20) }.expect("filled");
        let aligned = heap.allocate_aligned(64, 128).expect("allocated");
        assert_eq!(live(), (4 << 20) + 128);
        // SAFETY: live, and no longer used.
        let aligned = unsafe { heap.resize(aligned, 128, 100) }.expect("resized");
        assert_eq!(live(), (4 << 20) + 100);
        for block in [block, aligned] {
            // SAFETY: live, and no longer used.
            unsafe { heap.free(block) }.expect("freed");
        }
        assert_eq!(live(), 0);
        let points = points();
        let live: Vec<_> = points.iter().map(|point| point.live_bytes).collect();
        assert_eq!(live, [4 << 20, (4 << 20) + 128, (4 << 20) + 100, 100, 0]);
        assert_eq!(points[4].operations, 5);
        assert!(points[1].rss_bytes >= 4 << 20, "{points:?}");
    }
}
