//! `ample observe` tells of a program what it does with malloc.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use crate::common::{json, program, texts, tool};

const OBSERVED: &str = include_str!("observed.c");
const BLOCKS: u64 = 20_000;

/// The observer, built on first use into the folder that the tool is in.
pub fn observer() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let profile = Path::new(env!("CARGO_BIN_EXE_ample")).parent().expect("a folder");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "ample-observer", "--target-dir"]);
        build.arg(profile.parent().expect("a target folder"));
        if profile.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().expect("cargo runs").success(), "the observer does not build");
        profile.join("libample_observer.so")
    })
}

/// The tool that observes, in a folder with the program.
fn observing(folder: &Path) -> Command {
    program(folder, "observed", OBSERVED, &["-pthread"]);
    let mut command = tool(folder);
    command.env("AMPLE_OBSERVER", observer()).arg("observe");
    command
}

/// Observes the program with this argument, which ends with this code: all figures, and what is told.
fn observe(what: &str, code: i32) -> (Value, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = observing(folder.path());
    // glibc with one arena: its threads' blocks lie side by side.
    command.env("MALLOC_ARENA_MAX", "1").args(["-o", "figures.json", "--", "./observed", what]);
    let output = command.output().expect("runs");
    let (_, said) = texts(&output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    (json(&folder.path().join("figures.json")), said)
}

fn number(figures: &Value, name: &str) -> u64 {
    figures["all"][name].as_u64().unwrap_or_else(|| panic!("{name} in {figures}"))
}

fn found(figures: &Value) -> Vec<&str> {
    let findings = figures["findings"].as_array().expect("a list");
    findings.iter().map(|finding| finding["kind"].as_str().expect("a kind")).collect()
}

/// What the C library itself allocates beside the program: threads, and the buffers of streams.
const BESIDE: u64 = 20;

#[test]
fn blocks_that_another_thread_frees_are_counted_one_by_one() {
    let (figures, said) = observe("hand-over", 7);
    for (name, expected) in [("allocations", BLOCKS), ("frees", BLOCKS), ("others_freed", BLOCKS)] {
        let counted = number(&figures, name);
        assert!((expected..expected + BESIDE).contains(&counted), "{name}: {counted}");
    }
    let peak = figures["processes"][0]["peak_live_bytes"].as_u64().expect("bytes");
    assert!((48 * BLOCKS..48 * BLOCKS + 20_000).contains(&peak), "{peak}");
    assert!(found(&figures).contains(&"handed-over"), "{figures}");
    assert!(said.contains("blocks are freed by another thread than allocated them"), "{said}");
    assert!(said.contains("\n   ample compare -- ./observed hand-over\n"), "{said}");
}

#[test]
fn blocks_of_two_threads_on_one_line_are_counted() {
    let (figures, said) = observe("alternate", 7);
    // Two of these blocks lie on a line, with what glibc has before each, and the second is the other thread's.
    assert!(number(&figures, "shared_lines") > BLOCKS * 2 / 5, "{figures}");
    assert!(found(&figures).contains(&"shared-lines"), "{said}");
    assert_eq!(
        number(&observe("hand-over", 7).0, "shared_lines"),
        0,
        "one thread allocates, the other one frees"
    );
}

#[test]
fn large_blocks_that_live_for_a_moment_are_found() {
    let (figures, said) = observe("large", 7);
    assert_eq!(
        (number(&figures, "large_allocations"), number(&figures, "large_bytes")),
        (1500, 1500 * (200 << 10))
    );
    assert_eq!(found(&figures), ["transient-large"], "{said}");
}

#[test]
fn a_program_that_trims_all_the_time_is_told() {
    let (figures, said) = observe("trim", 7);
    assert_eq!(number(&figures, "trims"), 100, "{said}");
    assert!(number(&figures, "trim_ns") > 0, "{said}");
    let allocations = number(&figures, "allocations");
    assert!((100..100 + BESIDE).contains(&allocations), "no call of malloc: {allocations}");
    assert!(found(&figures).contains(&"trims"), "{said}");
    assert!(said.contains(" malloc_trim    called 100 times, "), "{said}");
    assert!(said.contains("malloc_trim was called "), "{said}");
}

#[test]
fn every_function_is_seen_and_a_failure_is_one() {
    let (figures, said) = observe("resize", 7);
    assert_eq!((number(&figures, "resizes"), number(&figures, "failures")), (2999, 1), "{said}");
    let allocations = number(&figures, "allocations");
    assert!((3..3 + BESIDE).contains(&allocations), "{allocations}");
    assert_eq!(number(&figures, "unknown_freed"), 0);
    assert!(said.contains("This program calls malloc too seldom for that to matter"), "{said}");
}

#[test]
fn a_forks_child_knows_its_parents_blocks_and_a_program_that_it_becomes_counts_too() {
    let (figures, said) = observe("fork", 7);
    let processes = figures["processes"].as_array().expect("a list");
    assert_eq!(processes.len(), 3, "parent, child, what the child becomes: {said}");
    assert_eq!(number(&figures, "unknown_freed"), 0, "{figures}");
    assert!(number(&figures, "frees") >= BLOCKS && number(&figures, "resizes") == 2999, "{figures}");
}

#[test]
fn processes_that_nobody_waits_for_are_in_the_figures_all_the_same() {
    let (figures, said) = observe("unwaited", 7);
    let cpu_ns = figures["cpu_ns"].as_u64().expect("a time");
    assert!(figures["unaccounted"].as_bool().expect("a truth") && cpu_ns > 0, "{figures}");
    // Where others have the processor a call may take long.
    let quick_ns = number(&figures, "call_ns") - number(&figures, "slow_ns");
    assert!(quick_ns < cpu_ns && !found(&figures).contains(&"cheap"), "{said}");
    assert!(said.contains("at least: nobody waited for some of its processes"), "{said}");
    let text = said.replace('\n', " ");
    assert!(text.contains("Its busiest process calls malloc in one thread."), "{said}");
}

/// Bytes of a part of the memory of the busiest process.
fn part(figures: &Value, name: &str) -> u64 {
    let parts = &figures["processes"][0]["memory"]["parts"];
    parts[name]["bytes"].as_u64().unwrap_or_else(|| panic!("{name} in {parts}"))
}

const MIB: u64 = 1 << 20;

#[test]
fn memory_that_is_not_mallocs_is_told_apart() {
    let (figures, said) = observe("map", 7);
    assert!((48 * MIB..50 * MIB).contains(&part(&figures, "others")), "{figures}");
    assert!((2 * MIB..4 * MIB).contains(&part(&figures, "malloc")), "{figures}");
    assert_eq!(found(&figures), ["beside"], "{said}");
    assert!(said.contains("of the memory is not malloc's, and no allocator changes that"), "{said}");

    let (figures, said) = observe("stacks", 7);
    // Four of 6 MiB and, where the system gives huge pages to all memory, what is there of 8.
    assert!((24 * MIB..34 * MIB).contains(&part(&figures, "stacks")), "{figures}");
    assert!(part(&figures, "others") < 2 * MIB, "{figures}");
    assert!(said.contains(" MiB stacks"), "{said}");
}

#[test]
fn a_program_that_holds_more_and_more_is_told_from_an_allocator_that_keeps_what_was_freed() {
    let (figures, said) = observe("grow", 7);
    assert!(found(&figures).contains(&"grows") && !found(&figures).contains(&"kept"), "{said}");
    assert!(said.contains("What the program holds grew until it ended"), "{said}");
    let moments = figures["processes"][0]["memory"]["moments"].as_array().expect("a list");
    let live = |moment: &Value| moment["live_bytes"].as_u64().expect("bytes");
    assert!(
        moments.iter().map(live).is_sorted() && live(moments.last().expect("some")) >= 25 * MIB,
        "{figures}"
    );

    let (figures, said) = observe("keep", 7);
    assert!(found(&figures).contains(&"kept") && !found(&figures).contains(&"grows"), "{said}");
    assert!(said.contains("Most was freed, but the memory stayed"), "{said}");
}

#[test]
fn a_program_that_crashes_or_is_stopped_is_told_of() {
    let (figures, said) = observe("abort", 128 + 6);
    assert!(number(&figures, "allocations") >= BLOCKS, "{said}");
    assert!(said.contains("20.0 k blocks allocated"), "{said}");
    assert!(said.contains("ample: observed: killed by SIGABRT (signal 6)\n"), "{said}");

    let folder = tempfile::tempdir().expect("a folder");
    let mut command = observing(folder.path());
    command.args(["--", "./observed", "sleep"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    // In the background of the terminal that the tests may have.
    let mut running = command.process_group(0).spawn().expect("runs");
    let mut ready = String::new();
    BufReader::new(running.stdout.take().expect("a pipe")).read_line(&mut ready).expect("a line");
    assert_eq!(ready, "ready\n");
    let pid = rustix::process::Pid::from_child(&running);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("interrupted");
    let output = running.wait_with_output().expect("ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(128 + 15), "{said}");
    assert!(said.contains("20.0 k blocks allocated"), "{said}");
}

#[test]
fn what_cannot_be_observed_is_said_before_it_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let said = |arguments: &[&str]| {
        let output = observing(folder.path()).args(arguments).output().expect("runs");
        (output.status.code(), texts(&output).1)
    };
    let (code, text) = said(&["--", "./missing"]);
    assert!(code == Some(127) && text.contains("missing"), "{text}");
    fs::write(folder.path().join("old.json"), "kept").expect("written");
    assert_eq!(said(&["-o", "old.json", "--", "./missing"]).0, Some(127));
    assert_eq!(fs::read_to_string(folder.path().join("old.json")).expect("a file"), "kept");
    let (code, text) = said(&["-o", "no/such/folder/figures.json", "--", "./observed"]);
    assert!(code == Some(2) && text.contains("no/such/folder"), "{text}");
    program(folder.path(), "static", OBSERVED, &["-pthread", "-static"]);
    let (code, text) = said(&["--", "./static", "hand-over"]);
    assert!(code == Some(125) && text.contains("cannot be observed: it is statically linked"), "{text}");
    let output =
        observing(folder.path()).env("AMPLE_OBSERVER", "nothing.so").args(["--", "./observed"]).output();
    let output = output.expect("runs");
    let (_, text) = texts(&output);
    assert!(text.contains("AMPLE_OBSERVER names no library: nothing.so"), "{text}");
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert!(
        fs::read_dir(folder.path())
            .expect("a folder")
            .all(|entry| entry.expect("one").file_name() != "figures.json")
    );
}
