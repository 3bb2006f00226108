//! A process from the file that the observer wrote.

use ample_protocol::observation::{
    BINS, BYTES, Count, Distribution, Fact, HEADER, MAGIC, SLOT, SLOTS, place_in, place_of, place_of_bin,
};

use super::{Histogram, Memory, PAGE, Process, Totals};

/// A process from its file; none where it ended before it could count anything.
pub(super) fn process(bytes: &[u8], memory: Memory) -> Option<Process> {
    if bytes.len() != BYTES {
        return None;
    }
    let numbers: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    let fact = |fact| numbers[place_of(fact)];
    if fact(Fact::Magic) != MAGIC {
        return None;
    }
    let mut totals = Totals::default();
    let mut calls_of_threads = Vec::new();
    for thread in 0..SLOTS {
        let start = HEADER + thread * SLOT;
        if numbers[start..start + SLOT].iter().all(|number| *number == 0) {
            continue;
        }
        let one = of_thread(&numbers, thread, fact(Fact::ClockNs));
        calls_of_threads.push(one.allocations + one.frees);
        totals.add(&one);
    }
    calls_of_threads.sort_unstable_by(|a, b| b.cmp(a));
    let name = [Fact::Name, Fact::NameRest].map(|part| fact(part).to_le_bytes()).concat();
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Some(Process {
        pid: fact(Fact::Process),
        name: String::from_utf8_lossy(name).into_owned(),
        peak_live_bytes: fact(Fact::PeakLiveBytes),
        peak_live_blocks: fact(Fact::PeakLiveBlocks),
        peak_resident_bytes: fact(Fact::PeakResidentBytes),
        live_at_peak_resident: fact(Fact::LiveAtPeakResident),
        live_at_end_bytes: fact(Fact::LiveBytes),
        cpu_ns: fact(Fact::CpuNs),
        faults: fact(Fact::MinorFaults).saturating_sub(fact(Fact::OwnBytes) / PAGE),
        lost: fact(Fact::Lost),
        calls_of_threads,
        memory,
        own_bytes: fact(Fact::OwnBytes),
        totals,
    })
}

fn of_thread(numbers: &[u64], thread: usize, clock_ns: u64) -> Totals {
    let count = |count| numbers[place_in(thread, count)];
    let distribution = |distribution| {
        Histogram((0..BINS).map(|bin| numbers[place_of_bin(thread, distribution, bin)]).collect())
    };
    let calls = distribution(Distribution::Calls);
    Totals {
        threads: 1,
        allocations: count(Count::Allocations),
        frees: count(Count::Frees),
        resizes: count(Count::Resizes),
        moves: count(Count::Moves),
        bytes: count(Count::Bytes),
        others_freed: count(Count::OthersFreed),
        unknown_freed: count(Count::UnknownFreed),
        shared_lines: count(Count::SharedLines),
        large_allocations: count(Count::LargeAllocations),
        large_bytes: count(Count::LargeBytes),
        large_short: count(Count::LargeShort),
        call_ns: count(Count::CallNs).saturating_sub(clock_ns * calls.count()),
        slow_calls: count(Count::SlowCalls),
        slow_ns: count(Count::SlowNs),
        seen_ns: count(Count::SeenNs),
        wait_ns: count(Count::WaitNs),
        taken_ns: count(Count::TakenNs),
        fault_ns: count(Count::FaultNs),
        failures: count(Count::Failures),
        trims: count(Count::Trims),
        trim_ns: count(Count::TrimNs),
        // One reading of the clock is in the time of the call, the others are in this.
        own_ns: count(Count::OwnNs) + clock_ns * calls.count(),
        sizes: distribution(Distribution::Sizes),
        calls,
        lives: distribution(Distribution::Lives),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_numbers_becomes_a_process() {
        let mut numbers = vec![0_u64; BYTES / size_of::<u64>()];
        assert!(process(&[0; BYTES], Memory::default()).is_none(), "nobody wrote the magic number");
        numbers[place_of(Fact::Magic)] = MAGIC;
        numbers[place_of(Fact::Process)] = 77;
        numbers[place_of(Fact::ClockNs)] = 20;
        numbers[place_of(Fact::Name)] = u64::from_ne_bytes(*b"a-progra");
        numbers[place_of(Fact::NameRest)] = u64::from_ne_bytes(*b"m\0\0\0\0\0\0\0");
        for (thread, calls) in [(0, 10), (3, 30)] {
            numbers[place_in(thread, Count::Allocations)] = calls;
            numbers[place_in(thread, Count::CallNs)] = calls * 50;
            numbers[place_of_bin(thread, Distribution::Calls, 10)] = calls;
        }
        let mut bytes = Vec::with_capacity(BYTES);
        numbers.iter().for_each(|number| bytes.extend(number.to_ne_bytes()));
        drop(numbers);
        let found = process(&bytes, Memory::default()).expect("a process");
        assert_eq!(
            (found.pid, found.name.as_str(), &found.calls_of_threads[..]),
            (77, "a-program", &[30, 10][..])
        );
        assert_eq!((found.totals.threads, found.totals.allocations, found.totals.call_ns), (2, 40, 40 * 30));
        assert!(process(&bytes[8..], Memory::default()).is_none(), "another length");
    }
}
