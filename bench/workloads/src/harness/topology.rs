//! CPUs, cores, cache lines and pages of this machine.

use std::collections::BTreeMap;
use std::mem::{self, MaybeUninit};
use std::{fs, io};

use super::failure::Failure;

/// One CPU of each physical core that this process may run on, in ascending order.
///
/// Where the system does not tell which CPUs share a core, each counts as a core.
///
/// # Errors
/// The system does not tell which CPUs may be used.
pub fn cores() -> Result<Vec<usize>, Failure> {
    let mut first_of_core = BTreeMap::new();
    for cpu in allowed_cpus()? {
        let siblings = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        let core = fs::read_to_string(siblings).unwrap_or_else(|_| cpu.to_string());
        first_of_core.entry(core.trim().to_owned()).or_insert(cpu);
    }
    let mut cores: Vec<usize> = first_of_core.into_values().collect();
    cores.sort_unstable();
    Ok(cores)
}

fn allowed_cpus() -> Result<Vec<usize>, Failure> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: the target is a cpu_set_t's own memory, of the size given.
    let result = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), set.as_mut_ptr()) };
    if result != 0 {
        return Err(Failure::system("sched_getaffinity", &io::Error::last_os_error()));
    }
    // SAFETY: the set was zeroed, which is the empty set, and then filled.
    let set = unsafe { set.assume_init() };
    // SAFETY: every number below CPU_SETSIZE has its bit in the set.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect())
}

/// Binds the calling thread to one CPU.
///
/// # Errors
/// The system refuses.
pub fn pin_to(cpu: usize) -> Result<(), Failure> {
    // SAFETY: all zeros is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: `cpu` comes from a set of this size.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the set is initialised and of the size given.
    match unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) } {
        0 => Ok(()),
        _ => Err(Failure::system("sched_setaffinity", &io::Error::last_os_error())),
    }
}

/// Bytes of a cache line of the first level; 64 where the system does not say.
pub fn cache_line_bytes() -> usize {
    let told = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index0/coherency_line_size");
    let line = told.ok().and_then(|text| text.trim().parse().ok());
    line.filter(|line: &usize| line.is_power_of_two()).unwrap_or(64)
}

/// Why this many threads, each bound to a core of its own, tell nothing on this many cores.
pub fn not_measurable(threads: usize, cores: usize) -> Option<String> {
    match cores {
        0 | 1 => Some("needs two physical cores, and one only is available".into()),
        _ if threads > cores => {
            Some(format!("needs a physical core for each of {threads} threads, and {cores} are available"))
        }
        _ => None,
    }
}

/// How many pairs of objects of `size` bytes at these addresses have a cache line in common.
pub fn shared_line_pairs(addresses: &[usize], size: usize, line: usize) -> usize {
    let share = |a: usize, b: usize| a / line <= (b + size - 1) / line && b / line <= (a + size - 1) / line;
    let with_later =
        |(index, &a): (usize, &usize)| addresses[index + 1..].iter().filter(|&&b| share(a, b)).count();
    addresses.iter().enumerate().map(with_later).sum()
}

/// From now on, the process's page faults bring in pages of the base size.
///
/// # Errors
/// The system refuses.
pub fn switch_huge_pages_off() -> io::Result<()> {
    // SAFETY: this option of prctl takes plain numbers and changes no memory.
    match unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_can_be_pinned_to_every_core() {
        let cores = cores().expect("known");
        assert!(!cores.is_empty());
        std::thread::spawn(move || {
            for core in cores {
                pin_to(core).expect("pinned");
                assert_eq!(allowed_cpus().expect("known"), [core]);
            }
        })
        .join()
        .expect("joined");
    }

    #[test]
    fn pairs_on_a_common_line_are_counted() {
        assert_eq!(shared_line_pairs(&[0, 16, 32, 48], 16, 64), 6);
        assert_eq!(shared_line_pairs(&[0, 64, 128], 16, 64), 0);
        // 40 bytes at 48 reach into the second line, as do those at 96, which end in the third.
        assert_eq!(shared_line_pairs(&[0, 48, 96], 40, 64), 2);
        assert_eq!(shared_line_pairs(&[128, 0], 64, 64), 0);
    }

    #[test]
    fn one_core_or_too_few_cores_are_not_measurable() {
        assert!(not_measurable(1, 1).is_some());
        assert!(not_measurable(4, 2).is_some());
        assert_eq!(not_measurable(2, 2), None);
    }
}
