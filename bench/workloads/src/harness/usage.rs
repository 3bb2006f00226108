//! What the process has used so far, as the system counts it: time, faults, switches, memory.
//!
//! Nothing here allocates: reading a figure must not disturb it.

use std::fs::File;
use std::io::Read;
use std::mem::MaybeUninit;

use serde::{Deserialize, Serialize};

use super::failure::Failure;

/// Nanoseconds of the monotonic clock: comparable between threads and between processes.
pub fn now_ns() -> u64 {
    let mut time = MaybeUninit::uninit();
    // SAFETY: the target is a timespec's own memory.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, time.as_mut_ptr()) };
    assert_eq!(result, 0, "Linux always has a monotonic clock");
    // SAFETY: the call succeeded, so the timespec is filled.
    let time: libc::timespec = unsafe { time.assume_init() };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What the process, all its threads together, has used: since it started, or between two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time in user mode, in nanoseconds.
    pub user_ns: u64,
    /// CPU time in the kernel, in nanoseconds.
    pub kernel_ns: u64,
    /// Page faults served without input or output.
    pub minor_faults: u64,
    /// Page faults that waited for input or output.
    pub major_faults: u64,
    /// Times that a thread gave up the CPU to wait.
    pub voluntary_switches: u64,
    /// Times that a thread was made to give up the CPU.
    pub involuntary_switches: u64,
}

impl Usage {
    /// Since the process started.
    pub fn so_far() -> Self {
        let mut usage = MaybeUninit::uninit();
        // SAFETY: the target is an rusage's own memory.
        let result = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
        assert_eq!(result, 0, "getrusage of the own process cannot fail");
        // SAFETY: the call succeeded, so the rusage is filled.
        let usage: libc::rusage = unsafe { usage.assume_init() };
        let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
        Self {
            user_ns: ns(usage.ru_utime),
            kernel_ns: ns(usage.ru_stime),
            minor_faults: usage.ru_minflt as u64,
            major_faults: usage.ru_majflt as u64,
            voluntary_switches: usage.ru_nvcsw as u64,
            involuntary_switches: usage.ru_nivcsw as u64,
        }
    }

    /// This and another process's together.
    pub fn plus(self, other: Self) -> Self {
        self.zip(other, u64::wrapping_add)
    }

    /// What was used between the reading `earlier` and this one.
    pub fn since(self, earlier: Self) -> Self {
        self.zip(earlier, u64::saturating_sub)
    }

    fn zip(self, other: Self, combine: fn(u64, u64) -> u64) -> Self {
        Self {
            user_ns: combine(self.user_ns, other.user_ns),
            kernel_ns: combine(self.kernel_ns, other.kernel_ns),
            minor_faults: combine(self.minor_faults, other.minor_faults),
            major_faults: combine(self.major_faults, other.major_faults),
            voluntary_switches: combine(self.voluntary_switches, other.voluntary_switches),
            involuntary_switches: combine(self.involuntary_switches, other.involuntary_switches),
        }
    }
}

/// Resident memory of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// The most that ever was resident (VmHWM), in bytes.
    pub peak_rss_bytes: u64,
    /// What is resident (VmRSS), in bytes.
    pub rss_bytes: u64,
}

impl Memory {
    /// Now.
    ///
    /// # Errors
    /// `/proc` is not mounted, or does not say.
    pub fn now() -> Result<Self, Failure> {
        let mut buffer = [0; 4096];
        Self::parse(read("/proc/self/status", &mut buffer)?)
            .ok_or_else(|| Failure::System { reason: "/proc/self/status lacks VmHWM or VmRSS".into() })
    }

    fn parse(status: &[u8]) -> Option<Self> {
        Some(Self { peak_rss_bytes: bytes(status, "VmHWM:")?, rss_bytes: bytes(status, "VmRSS:")? })
    }

    /// This and another process's together.
    pub fn plus(self, other: Self) -> Self {
        Self {
            peak_rss_bytes: self.peak_rss_bytes + other.peak_rss_bytes,
            rss_bytes: self.rss_bytes + other.rss_bytes,
        }
    }
}

/// Memory that the process has for itself: pages that it has written to, and that no other process has, in bytes.
///
/// # Errors
/// As [`Memory::now`].
pub fn private_bytes() -> Result<u64, Failure> {
    const SOURCE: &str = "/proc/self/smaps_rollup";
    let mut buffer = [0; 4096];
    bytes(read(SOURCE, &mut buffer)?, "Private_Dirty:")
        .ok_or_else(|| Failure::System { reason: format!("{SOURCE} lacks Private_Dirty") })
}

/// The first part of a file of `/proc`.
fn read<'a>(path: &str, buffer: &'a mut [u8]) -> Result<&'a [u8], Failure> {
    let length = File::open(path)
        .and_then(|mut file| file.read(buffer))
        .map_err(|error| Failure::system(path, &error))?;
    Ok(&buffer[..length])
}

/// The figure of this name, which the system tells in KiB.
fn bytes(text: &[u8], name: &str) -> Option<u64> {
    let (_, rest) = std::str::from_utf8(text).ok()?.split_once(name)?;
    rest.split_ascii_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_kibibytes() {
        let status = b"Name:\tx\nVmPeak:\t 9999 kB\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        let memory = Memory { peak_rss_bytes: 2 << 20, rss_bytes: 1 << 20 };
        assert_eq!(Memory::parse(status), Some(memory));
        assert_eq!(Memory::parse(b"VmHWM:\t1 kB\n"), None);
        assert!(Memory::now().expect("readable").rss_bytes > 0);
        assert!((1..1 << 40).contains(&private_bytes().expect("readable")));
    }

    #[test]
    fn touching_pages_counts_as_faults() {
        let before = Usage::so_far();
        // Large enough that no allocator serves it from pages that were touched before.
        let mut pages = vec![0u8; 256 << 20];
        for page in pages.chunks_mut(1 << 12).take(64) {
            page[0] = 1;
        }
        std::hint::black_box(&pages);
        assert!(Usage::so_far().since(before).minor_faults > 0);
    }
}
