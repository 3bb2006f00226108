//! Judges what a process left behind. Whatever is not proved right is a failure with a reason.

use std::path::Path;
use std::time::Duration;

use ample_protocol::{Measurement, Outcome, ServedBy};

use super::executor::{End, Ended};
use crate::allocators::{Allocator, resolve};
use crate::record::{Judgement, Pass};

/// Functions that must all be served by the library in question, whether it defines them or not: a
/// block from one allocator that reaches another one's `free` is an error.
const REQUIRED: &[&str] = &["malloc", "free", "calloc", "realloc", "posix_memalign", "aligned_alloc"];
/// A function that some libraries leave out, to be served by the library if it defines it.
const OPTIONAL: &str = "malloc_usable_size";
/// What is said of C++'s operators, where another allocator than the library serves them.
pub const OPERATORS: &str = "operator new";
/// Reason for a workload that takes a null loop's time off its own, with nothing left.
const TOO_SHORT: &str =
    "too little work: its time is lost in the noise of this machine; raise its amount with --set";
/// Characters of a foreign message that a reason quotes.
const QUOTE: usize = 160;

/// How the reason for a library that the dynamic linker refuses begins.
pub const DOES_NOT_LOAD: &str = "the library does not load";

/// What a result must say to be believed.
#[derive(Debug)]
pub struct Expected<'a> {
    /// The allocator that was asked for.
    pub allocator: &'a Allocator,
    /// Name of the workload itself.
    pub workload: &'a str,
    /// Threads asked for.
    pub threads: u32,
    /// What the process was for.
    pub pass: Pass,
    /// Longest life of the process.
    pub timeout: Duration,
}

/// The judgement on one process; none if it was interrupted, which says nothing about it.
pub fn judge(ended: &Ended, expected: &Expected<'_>) -> Option<Judgement> {
    let refused = refusal(&ended.stderr).map(|line| format!("{DOES_NOT_LOAD}: {line}"));
    let result = match (&ended.end, refused) {
        (End::Interrupted, _) => return None,
        (_, Some(reason)) => Err(reason),
        (End::NotStarted(reason), None) => Err(reason.clone()),
        (End::TimedOut, None) => {
            // As it was asked for: how long the process really had says nothing more.
            Err(format!("no result within {} s; --timeout allows more", expected.timeout.as_secs_f64()))
        }
        (End::Killed(signal), None) => {
            let name = signal_hook::low_level::signal_name(*signal).unwrap_or("an unnamed signal");
            Err(format!("crashed with {name} (signal {signal}){}", last_words(&ended.stderr)))
        }
        (End::Exited(code), None) => outcome(*code, ended, expected),
    };
    Some(result.unwrap_or_else(|reason| Judgement::Failed { reason }))
}

/// What the dynamic linker says of a library that it cannot preload (glibc's then goes on without it, musl's gives up), or
/// of one that lacks another one (both give up).
pub fn refusal(stderr: &str) -> Option<String> {
    const GIVEN_UP: &str = "error while loading shared libraries: ";
    const OF_MUSL: [&str; 2] = ["Error loading shared library ", "Error relocating "];
    let refuses = |line: &&str| {
        line.contains("cannot be preloaded")
            || line.contains(GIVEN_UP)
            || OF_MUSL.iter().any(|beginning| line.starts_with(beginning))
    };
    let line = stderr.lines().find(refuses)?;
    let line = line.strip_prefix("ERROR: ld.so: ").unwrap_or(line);
    Some(shorten(line.split_once(GIVEN_UP).map_or(line, |(_, reason)| reason).trim_end_matches('.')))
}

fn outcome(code: i32, ended: &Ended, expected: &Expected<'_>) -> Result<Judgement, String> {
    let mut lines = ended.stdout.lines().filter(|line| !line.trim().is_empty());
    let parsed = match (lines.next(), lines.next()) {
        (Some(line), None) => serde_json::from_str(line).map_err(|error| error.to_string()),
        (None, _) => Err("no output".to_owned()),
        (Some(_), Some(_)) => Err("more than one line of output".to_owned()),
    };
    match parsed {
        Ok(Outcome::Failed { reason }) => Err(reason),
        Ok(_) | Err(_) if code != 0 => Err(format!("exit code {code}{}", last_words(&ended.stderr))),
        Ok(Outcome::NotMeasurable { reason }) => Ok(Judgement::NotMeasurable { reason }),
        Ok(Outcome::Measured(measurement)) => {
            check(&measurement, expected)?;
            if expected.pass == Pass::Timed && measurement.wall_ns == 0 {
                return Ok(Judgement::NotMeasurable { reason: TOO_SHORT.into() });
            }
            Ok(Judgement::Measured(measurement))
        }
        Err(error) => Err(format!("malformed output: {}", shorten(&error))),
    }
}

fn check(measurement: &Measurement, expected: &Expected<'_>) -> Result<(), String> {
    let found = measurement.schema_version;
    if found != ample_protocol::SCHEMA_VERSION {
        return Err(format!(
            "the workload speaks schema version {found}, not {}",
            ample_protocol::SCHEMA_VERSION
        ));
    }
    if measurement.workload != expected.workload || measurement.threads != expected.threads {
        return Err(format!(
            "asked for {} on {} threads, got {} on {}",
            expected.workload, expected.threads, measurement.workload, measurement.threads
        ));
    }
    if measurement.operations != measurement.expected_operations || measurement.operations == 0 {
        return Err(format!(
            "wrong operation count: {} instead of {}",
            measurement.operations, measurement.expected_operations
        ));
    }
    served(&measurement.served_by, expected.allocator)?;
    let missing = match expected.pass {
        Pass::Timed if measurement.peak_rss_bytes == 0 => Some("peak RSS"),
        Pass::Latency if !measurement.extra.keys().any(|name| name.ends_with("_calls")) => Some("latency"),
        Pass::Memory if measurement.curve.is_empty() => Some("curve of memory"),
        Pass::Counters if measurement.counters.is_empty() => Some("counter"),
        _ => None,
    };
    missing.map_or(Ok(()), |what| Err(format!("no {what} in the result")))
}

/// Whether the allocator's own library answers every function that matters.
fn served(functions: &[ServedBy], allocator: &Allocator) -> Result<(), String> {
    if let Some(lie) = &allocator.false_name {
        return Err(format!("wrong library: {lie}"));
    }
    let optional = allocator.defines.contains(OPTIONAL).then_some(OPTIONAL);
    let operators = functions.iter().any(|function| function.symbol == OPERATORS).then_some(OPERATORS);
    for name in REQUIRED.iter().copied().chain(optional).chain(operators) {
        let function = functions
            .iter()
            .find(|function| function.symbol == name)
            .ok_or_else(|| format!("no proof of which library serves {name}"))?;
        if resolve(Path::new(&function.path)) != allocator.library {
            return Err(format!("wrong library: {name} is served by {}", function.path));
        }
        if let (Some(found), Some(wanted)) = (&function.build_id, &allocator.build_id)
            && found != wanted
        {
            return Err(format!("{} has changed: build id {found} instead of {wanted}", function.path));
        }
    }
    Ok(())
}

fn last_words(stderr: &str) -> String {
    let last = stderr.lines().rev().find(|line| !line.trim().is_empty());
    last.map_or(String::new(), |line| format!(": {}", shorten(line.trim())))
}

fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(QUOTE).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::testing::{ended, measurement};

    const TIMEOUT: Duration = Duration::from_millis(1500);

    fn judged(ended: &Ended) -> Judgement {
        let allocator = Allocator::fake("x");
        let expected = Expected {
            allocator: &allocator,
            workload: "larson",
            threads: 2,
            pass: Pass::Timed,
            timeout: TIMEOUT,
        };
        judge(ended, &expected).expect("not interrupted")
    }

    fn line(change: impl FnOnce(&mut Measurement)) -> Ended {
        let mut measurement = measurement(&Allocator::fake("x"), "larson", 2, 1000);
        change(&mut measurement);
        let outcome = Outcome::Measured(Box::new(measurement));
        ended(End::Exited(0), &serde_json::to_string(&outcome).expect("encoded"))
    }

    fn reason(ended: &Ended) -> String {
        match judged(ended) {
            Judgement::Failed { reason } => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_result_that_proves_everything_counts() {
        assert!(matches!(judged(&line(|_| ())), Judgement::Measured(_)));
    }

    #[test]
    fn every_wrong_end_has_its_reason() {
        assert_eq!(reason(&ended(End::Killed(11), "")), "crashed with SIGSEGV (signal 11)");
        let hung = ended(End::TimedOut, "");
        assert_eq!(reason(&hung), "no result within 1.5 s; --timeout allows more");
        let mut unhappy = ended(End::Exited(7), "");
        unhappy.stderr = "first\nlast word\n".into();
        assert_eq!(reason(&unhappy), "exit code 7: last word");
        assert_eq!(reason(&ended(End::NotStarted("why".into()), "")), "why");
        assert_eq!(reason(&ended(End::Exited(0), "")), "malformed output: no output");
        assert!(reason(&ended(End::Exited(0), "{}")).starts_with("malformed output: missing field"));
        assert!(reason(&ended(End::Exited(0), "{}\n{}")).contains("more than one line"));
        let failed = r#"{"outcome":"failed","reason":"canary of block 7 is gone"}"#;
        assert_eq!(reason(&ended(End::Exited(1), failed)), "canary of block 7 is gone");
    }

    #[test]
    fn a_number_with_a_bad_exit_code_does_not_count() {
        let mut late = line(|_| ());
        late.end = End::Exited(1);
        assert_eq!(reason(&late), "exit code 1");
    }

    #[test]
    fn a_library_that_was_not_preloaded_is_named_as_such() {
        let mut refused = line(|_| ());
        refused.stderr =
            "ERROR: ld.so: object '/x.so' from LD_PRELOAD cannot be preloaded (bad): ignored.\n".into();
        let reason = reason(&refused);
        let expected =
            "the library does not load: object '/x.so' from LD_PRELOAD cannot be preloaded (bad): ignored";
        assert_eq!(reason, expected);
    }

    #[test]
    fn figures_that_contradict_the_request_do_not_count() {
        assert!(
            reason(&line(|m| m.operations -= 1)).starts_with("wrong operation count: 999 instead of 1000")
        );
        assert!(reason(&line(|m| m.threads = 1)).starts_with("asked for larson on 2 threads"));
        assert!(reason(&line(|m| m.workload = "other".into())).contains("got other on 2"));
        assert!(reason(&line(|m| m.schema_version += 1)).contains("schema version"));
        assert!(reason(&line(|m| m.peak_rss_bytes = 0)).contains("no peak RSS"));
    }

    #[test]
    fn a_pass_must_have_what_it_is_for() {
        let allocator = Allocator::fake("x");
        let judged = |pass, change: fn(&mut Measurement)| {
            let expected =
                Expected { allocator: &allocator, workload: "larson", threads: 2, pass, timeout: TIMEOUT };
            judge(&line(change), &expected).expect("not interrupted")
        };
        for (pass, what) in
            [(Pass::Latency, "latency"), (Pass::Memory, "curve of memory"), (Pass::Counters, "counter")]
        {
            let empty = judged(pass, |_| ());
            assert_eq!(empty.reason(), Some(format!("no {what} in the result").as_str()));
        }
        let timed = judged(Pass::Latency, |m| m.extra.extend([("free_calls".into(), 1.0)]));
        assert_eq!(timed.reason(), None);
    }

    #[test]
    fn a_time_of_nothing_is_no_fault_of_the_allocator_and_no_number() {
        let judged = judged(&line(|m| m.wall_ns = 0));
        assert_eq!(judged, Judgement::NotMeasurable { reason: TOO_SHORT.into() });
    }

    #[test]
    fn one_function_of_another_library_is_enough_to_fail() {
        for symbol in REQUIRED {
            let foreign = line(|m| {
                let function = m.served_by.iter_mut().find(|f| f.symbol == *symbol).expect("there");
                function.path = "/other/lib.so".into();
            });
            assert_eq!(reason(&foreign), format!("wrong library: {symbol} is served by /other/lib.so"));
            let silent = line(|m| m.served_by.retain(|f| f.symbol != *symbol));
            assert_eq!(reason(&silent), format!("no proof of which library serves {symbol}"));
        }
    }

    #[test]
    fn what_is_told_of_further_functions_matters_too_and_the_build_id_must_agree() {
        let mut allocator = Allocator::fake("x");
        let mut functions = measurement(&allocator, "larson", 2, 1).served_by;
        assert_eq!(served(&functions, &allocator), Ok(()));
        allocator.defines.insert(OPTIONAL.into());
        assert!(served(&functions, &allocator).is_err());
        allocator.defines.clear();
        let path = "/other/lib.so".into();
        functions.push(ServedBy { symbol: OPERATORS.into(), path, build_id: None });
        let reason = served(&functions, &allocator).expect_err("operators are elsewhere");
        assert_eq!(reason, "wrong library: operator new is served by /other/lib.so");
        functions.pop();
        allocator.build_id = Some("aa".into());
        functions[0].build_id = Some("bb".into());
        assert!(served(&functions, &allocator).expect_err("changed").contains("build id bb instead of aa"));
    }

    #[test]
    fn an_interruption_is_no_failure() {
        let allocator = Allocator::fake("x");
        let expected = Expected {
            allocator: &allocator,
            workload: "larson",
            threads: 2,
            pass: Pass::Timed,
            timeout: TIMEOUT,
        };
        assert_eq!(judge(&ended(End::Interrupted, ""), &expected), None);
    }
}
