//! CPUs, cores and cache lines of this machine.

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
    // SAFETY: sysconf takes any name.
    let line = unsafe { libc::sysconf(libc::_SC_LEVEL1_DCACHE_LINESIZE) };
    usize::try_from(line).ok().filter(|line| line.is_power_of_two()).unwrap_or(64)
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
}
