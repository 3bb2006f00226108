//! **startup**: what an allocator adds to the life of the shortest program.
//!
//! *Definition.* Each thread launches `true` `launches` times, one process after the other, with this
//! process's environment, and waits for the end of each: whatever is preloaded here is preloaded there.
//! Then the same is done without `LD_PRELOAD`, outside the measured part. One operation is one launch.
//! `launch_us` and `launch_without_preload_us` are the mean times of one, in microseconds; their
//! difference is what loading and initialising the preloaded library costs.
//!
//! *Source.* exec to main of `true`, as a test of an allocator's initialisation.
//!
//! *Deviations.* From the launch to the end of the process, since `true` cannot say when its main begins.
//! CPU time and faults are those of this process; its children's are not in them. Not measurable where
//! `true` is linked statically, which no library can be preloaded into.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use object::read::{Object, ReadCache};

use crate::definition::{Definition, Figures, Knob, Settings, Stop};
use crate::harness::crew::{Crew, Reading};
use crate::harness::failure::Failure;

/// startup.
pub const DEFINITION: Definition = Definition {
    name: "startup",
    tells: "What loading and initialising the allocator adds to the start of every program.",
    source: "exec to main of `true`, as a test of an allocator's initialisation",
    operation: "a launch of `true`, from the request to its end",
    knobs: &[Knob {
        name: "launches",
        meaning: "Processes that each thread launches, one after the other.",
        unit: "operations",
        default: 200,
        test: 3,
        range: 1..=1 << 24,
    }],
    max_threads: None,
    check: |_| Ok(()),
    run,
};

/// Where `true` may be.
const PLACES: [&str; 2] = ["/usr/bin/true", "/bin/true"];

fn run(settings: &Settings) -> Result<Figures, Stop> {
    let launches = settings.count("launches");
    let program = program_among(&PLACES).map_err(Stop::NotMeasurable)?;
    let launched = |preload| {
        let workers = vec![(); settings.threads as usize];
        let crew = if preload { Crew::default() } else { Crew::default().control() };
        crew.run(workers, |()| launch_all(program, launches, preload)).map(|(reading, _)| reading)
    };
    let reading = launched(true)?;
    let control = launched(false)?;
    let mean_us = |reading: &Reading| {
        let total = reading.worker_ns.iter().sum::<u64>() as f64;
        total / 1e3 / (u64::from(settings.threads) * launches) as f64
    };
    Ok(Figures {
        expected_operations: u64::from(settings.threads) * launches,
        peak_live_bytes: None,
        extra: BTreeMap::from([
            ("launch_us".into(), mean_us(&reading)),
            ("launch_without_preload_us".into(), mean_us(&control)),
        ]),
        reading,
    })
}

/// The first of these programs that exists, if a library can be preloaded into it; else why not.
fn program_among(places: &[&'static str]) -> Result<&'static Path, String> {
    let program = places.iter().map(|&place| Path::new(place)).find(|place| place.is_file());
    let program = program.ok_or_else(|| format!("there is no {}", places.join(" or ")))?;
    let unreadable = |error: &dyn std::fmt::Display| format!("{} cannot be read: {error}", program.display());
    let cache = ReadCache::new(File::open(program).map_err(|error| unreadable(&error))?);
    let file = object::File::parse(&cache).map_err(|error| unreadable(&error))?;
    match file.dynamic_symbols().next() {
        Some(_) => Ok(program),
        None => Err(format!("{} is linked statically", program.display())),
    }
}

fn launch_all(program: &Path, launches: u64, preload: bool) -> Result<u64, Failure> {
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    if !preload {
        command.env_remove("LD_PRELOAD");
    }
    let mut done = 0;
    while done < launches {
        let status = command.status().map_err(|error| Failure::system("no process", &error))?;
        if !status.success() {
            return Err(Failure::Process { reason: format!("{} ended with {status}", program.display()) });
        }
        done += 1;
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_launch_is_a_process_that_succeeds() {
        let program = program_among(&PLACES).expect("a dynamic true");
        assert_eq!(launch_all(program, 3, true), Ok(3));
        let failure = launch_all(Path::new("/usr/bin/false"), 3, false);
        assert!(matches!(failure, Err(Failure::Process { .. })), "{failure:?}");
    }

    #[test]
    fn a_program_that_nothing_can_be_preloaded_into_is_not_measurable() {
        assert_eq!(program_among(&["/none"]), Err("there is no /none".into()));
        let reason = program_among(&["/etc/passwd"]).expect_err("no program");
        assert!(reason.starts_with("/etc/passwd cannot be read"), "{reason}");
    }
}
