//! **malloc-test**: pairs of malloc and free in a loop.
//!
//! *Definition.* Each thread: `iterations` times { malloc(`size`); free }. One operation is one pair.
//! The number of pairs is fixed for each thread, so the total grows with the threads, and so does
//! the live set: one block a thread. A null loop of as many iterations, which calls an empty function
//! twice in each, runs first under the same conditions; what a worker needed for it is subtracted from
//! the worker's time. With `processes` above 1, that many processes run the same number of threads
//! each, all started together: the arm that the threads of one process are compared with. Efficiency
//! is the time of p processes of one thread divided by that of p threads of one process.
//!
//! *Source.* Lever & Boreham, "malloc() Performance in a Multithreaded Linux Environment" (1999 and
//! 2000), benchmark 1. Their series: 512 B, 8192 B and 4100 B, 10 million iterations, 1 to 5 and 16
//! to 48 threads; at most 50 threads.
//!
//! *Deviations.* Theirs starts threads one after the other; ours start together. Wall and CPU time
//! are those of the real loop with nothing subtracted; the workers' times, their mean and their standard
//! deviation are net of the null loop, as the source prints them. With several processes, resident
//! memory, faults and switches are the sums over them.

use std::collections::BTreeMap;
use std::ptr::null_mut;

use crate::definition::{Definition, Figures, Knob, MAX_COUNT, MAX_SIZE, Settings, Stop};
use crate::harness::crew::{Crew, Reading};
use crate::harness::failure::Failure;
use crate::harness::heap::{Heap, opaque};
use crate::harness::processes::{Gate, run_at_once};

/// malloc-test.
pub const DEFINITION: Definition = Definition {
    name: "malloc-test",
    tells: "How fast malloc and free of one size are at their simplest, and whether threads of one process \
            get as much of it as processes of their own do.",
    source: "Lever & Boreham 1999 and 2000, benchmark 1",
    operation: "a pair of malloc and free",
    knobs: &[
        Knob {
            name: "size",
            meaning: "Size of each block.",
            unit: "bytes",
            default: 512,
            test: 512,
            range: 0..=MAX_SIZE,
        },
        Knob {
            name: "iterations",
            meaning: "Pairs that each thread does.",
            unit: "operations",
            default: 10_000_000,
            test: 20_000,
            range: 1..=MAX_COUNT,
        },
        Knob {
            name: "processes",
            meaning: "Processes that run at once, each with the given number of threads.",
            unit: "count",
            default: 1,
            test: 1,
            range: 1..=64,
        },
    ],
    max_threads: Some(50),
    check: |_| Ok(()),
    run: on_heap!(run),
};

/// Times that each process waits for the others: before the null loop, and before the real one.
const PASSES: usize = 2;

fn run<H: Heap>(settings: &Settings) -> Result<Figures, Stop> {
    let threads = settings.threads;
    let (size, iterations) = (settings.size("size"), settings.count("iterations"));
    let processes = settings.size("processes");
    let job = |gate: &mut Gate| both_loops::<H>(threads, size, iterations, gate);
    let loops = match processes {
        1 => vec![job(&mut Gate::alone())?],
        _ => run_at_once(processes, PASSES, |_, gate| job(gate))?,
    };
    let (idle, busy): (Vec<_>, Vec<_>) = loops.into_iter().unzip();
    let together = |readings: Vec<Reading>| readings.into_iter().reduce(Reading::together);
    let (idle, busy) = together(idle).zip(together(busy)).expect("there is at least one process");
    let null_loop_s = mean_and_deviation(&idle.worker_ns).0;
    let worker_ns = busy.worker_ns.iter().zip(&idle.worker_ns).map(|(busy, idle)| busy.saturating_sub(*idle));
    let reading = Reading { worker_ns: worker_ns.collect(), ..busy };
    let (mean_s, deviation_s) = mean_and_deviation(&reading.worker_ns);
    let workers = processes as u64 * u64::from(threads);
    Ok(Figures {
        expected_operations: workers * iterations,
        peak_live_bytes: Some(workers * size as u64),
        extra: BTreeMap::from([
            ("worker_mean_s".into(), mean_s),
            ("worker_stddev_s".into(), deviation_s),
            ("null_loop_mean_s".into(), null_loop_s),
            ("kernel_share".into(), reading.kernel_share()),
        ]),
        reading,
    })
}

/// The null loop and the real one, in one process.
fn both_loops<H: Heap>(
    threads: u32,
    size: usize,
    iterations: u64,
    gate: &mut Gate,
) -> Result<(Reading, Reading), Failure> {
    let workers = || (0..threads).map(H::of).collect::<Vec<_>>();
    let (idle, _) =
        Crew::default().control().gate(|| gate.pass()).run(workers(), |_| Ok(null_loop(iterations)))?;
    let (busy, _) =
        Crew::default().gate(|| gate.pass()).run(workers(), |heap| pairs(heap, size, iterations))?;
    Ok((idle, busy))
}

fn pairs<H: Heap>(heap: &mut H, size: usize, iterations: u64) -> Result<u64, Failure> {
    let mut done = 0;
    while done < iterations {
        let block = heap.allocate(size)?;
        // SAFETY: the block is live and nobody else knows it.
        unsafe { heap.free(block)? };
        done += 1;
    }
    Ok(done)
}

fn null_loop(iterations: u64) -> u64 {
    let mut done = 0;
    while done < iterations {
        empty(null_mut());
        empty(null_mut());
        done += 1;
    }
    done
}

#[inline(never)]
fn empty(pointer: *mut u8) -> *mut u8 {
    opaque(pointer)
}

/// Arithmetic mean and sample standard deviation (0 for one value), in seconds.
fn mean_and_deviation(times_ns: &[u64]) -> (f64, f64) {
    let seconds = || times_ns.iter().map(|&time| time as f64 / 1e9);
    let count = times_ns.len() as f64;
    let mean = seconds().sum::<f64>() / count;
    let squares = seconds().map(|time| (time - mean).powi(2)).sum::<f64>();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::heap::recording::Recording;

    #[test]
    fn mean_and_deviation_are_those_of_the_sample() {
        // Series one of 1999, two processes, first process: 23.309635 s, s = 0.014586 s.
        let (mean, deviation) = mean_and_deviation(&[23_316_156_000, 23_292_935_000, 23_319_814_000]);
        assert!((mean - 23.309_635).abs() < 1e-6);
        assert!((deviation - 0.014_586).abs() < 1e-5);
        assert_eq!(mean_and_deviation(&[2_000_000_000]), (2.0, 0.0));
    }

    #[test]
    fn one_block_of_the_given_size_is_live_at_a_time() {
        let mut heap = Recording::of(0);
        assert_eq!(pairs(&mut heap, 512, 1000), Ok(1000));
        assert_eq!(heap.sizes, [512; 1000]);
        assert_eq!((heap.peak_live_bytes, heap.live_bytes), (512, 0));
        assert_eq!(null_loop(1000), 1000);
    }
}
