//! An observation for tests.

use super::*;

/// A million pairs of 64 bytes on two threads, for 100 ms of two seconds of processor time, and what is changed of that.
pub fn observed(change: impl FnOnce(&mut Process, &mut Usage)) -> Observation {
    let (mut process, mut usage) = quiet();
    change(&mut process, &mut usage);
    Observation::new(vec![process], 1_000_000_000, usage)
}

/// The same in each of three processes, and what is changed of it.
pub fn in_three_processes(change: impl FnOnce(&mut [Process; 3], &mut Usage)) -> Observation {
    let (process, mut usage) = quiet();
    usage.user_ns *= 3;
    let mut processes = [1, 2, 3].map(|pid| Process { pid, ..process.clone() });
    change(&mut processes, &mut usage);
    Observation::new(processes.into(), 1_000_000_000, usage)
}

fn quiet() -> (Process, Usage) {
    let totals = Totals {
        threads: 2,
        allocations: 1_000_000,
        frees: 1_000_000,
        bytes: 64_000_000,
        call_ns: 100_000_000,
        calls: Histogram(vec![2_000_000]),
        ..Totals::default()
    };
    let process = Process {
        pid: 1,
        name: "quiet".into(),
        peak_live_bytes: 64,
        peak_live_blocks: 1,
        peak_resident_bytes: 0,
        live_at_peak_resident: 0,
        live_at_end_bytes: 0,
        cpu_ns: 0,
        faults: 0,
        lost: 0,
        calls_of_threads: vec![1_000_000, 1_000_000],
        memory: Memory::default(),
        own_bytes: 0,
        totals,
    };
    (process, Usage { user_ns: 2_000_000_000, ..Usage::default() })
}
