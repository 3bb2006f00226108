//! Runs the binary as the tool does, and holds what it prints against the definitions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use ample_protocol::{Description, Measurement, Outcome};

const NAMES: [&str; 29] = [
    "malloc-test",
    "heap-leak",
    "false-sharing",
    "threadtest",
    "large-block",
    "larson",
    "shbench",
    "shbench-mixed",
    "producer-consumer",
    "xmalloc",
    "mstress",
    "cache-scratch",
    "cache-thrash",
    "migration",
    "transaction-pool",
    "size-curve",
    "rebuild",
    "giant",
    "buffers",
    "hot-slots",
    "realloc-growth",
    "fragmentation",
    "idle-return",
    "synthetic",
    "many-threads",
    "server-uptime",
    "prefork",
    "startup",
    "os-primitives",
];

/// Bind each thread to a core of its own.
const BOUND_TO_CORES: [&str; 3] = ["false-sharing", "cache-scratch", "cache-thrash"];

/// Do not know their live bytes.
const WITHOUT_LIVE_BYTES: [&str; 3] = ["mstress", "synthetic", "startup"];

/// Whether a workload gives a number with so many threads on this machine.
fn measurable(name: &str, threads: u64) -> bool {
    match name {
        _ if BOUND_TO_CORES.contains(&name) => threads <= 2 && two_cores(),
        _ => true,
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ample-workload"));
    command.env_remove("LD_PRELOAD").args(arguments);
    command
}

fn ended(mut command: Command) -> Output {
    command.output().expect("the binary starts")
}

/// The one line on standard output, and the exit code.
fn outcome(command: Command) -> (Outcome, i32) {
    let output = ended(command);
    let stdout = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!(stdout.lines().count(), 1, "{stdout}");
    (serde_json::from_str(&stdout).expect("an outcome"), output.status.code().expect("an exit code"))
}

fn measured(arguments: &[&str]) -> Measurement {
    match outcome(command(arguments)) {
        (Outcome::Measured(measurement), 0) => *measurement,
        other => panic!("{arguments:?}: {other:?}"),
    }
}

fn failed(command: Command) -> String {
    match outcome(command) {
        (Outcome::Failed { reason }, 1) => reason,
        other => panic!("{other:?}"),
    }
}

/// Whether this machine has the two physical cores that false-sharing needs.
fn two_cores() -> bool {
    let cpus = std::fs::read_dir("/sys/devices/system/cpu").expect("sysfs is mounted");
    let cores: BTreeSet<String> = cpus
        .filter_map(|cpu| {
            std::fs::read_to_string(cpu.ok()?.path().join("topology/thread_siblings_list")).ok()
        })
        .collect();
    cores.len() >= 2 && std::thread::available_parallelism().expect("known").get() >= 2
}

/// Operations and peak live bytes that the definitions demand.
fn demanded(name: &str, threads: u64, parameters: &BTreeMap<String, f64>) -> (u64, Option<u64>) {
    let value = |name: &str| parameters[name] as u64;
    match name {
        "malloc-test" => (threads * value("iterations"), Some(threads * value("size"))),
        "heap-leak" => (
            threads * value("rounds") * value("blocks"),
            Some(threads * value("blocks") * (value("size") + 8)),
        ),
        "false-sharing" => (threads * value("writes"), Some(threads * value("size"))),
        "threadtest" => {
            let held = value("objects") / threads * threads;
            (2 * value("rounds") * held, Some(held * value("size")))
        }
        "large-block" => (threads * value("iterations"), Some(threads * value("size"))),
        "larson" => (threads * value("generations") * value("rounds") * value("slots"), None),
        // Ramps from 1, 2, 4, 7, 11, 17, 26, 40 and 61 bytes have 35 sizes, each 250 times.
        "shbench" => (threads * value("repeats") * 35 * 250, None),
        "shbench-mixed" => (value("repeats") * (threads * 1579 + value("gift")), None),
        "producer-consumer" => {
            let share = value("slots") / 4;
            (threads * (value("loops") * share + value("loops") / 2 * (share / 4)), None)
        }
        "xmalloc" => (threads * value("batches") * 4096, None),
        "mstress" => (threads * value("waves") * value("steps"), None),
        "cache-scratch" | "cache-thrash" => {
            (threads * value("iterations") * value("writes"), Some(threads * value("size")))
        }
        "migration" => (threads * (value("slots") + (value("rounds") - 1) * value("slots") / 10 * 9), None),
        // Shared among the threads.
        "transaction-pool" => (value("transactions"), None),
        "size-curve" | "giant" => (threads * value("replacements"), None),
        "rebuild" => {
            (threads * value("rounds") * value("objects"), Some(threads * value("objects") * value("size")))
        }
        "buffers" => (threads * value("blocks") * value("rounds"), None),
        "hot-slots" => (threads * value("accesses"), None),
        // To 256 KiB in 20 steps of a half each; to 64 KiB in 15 steps of a page each.
        "realloc-growth" => {
            let steps = value("vectors") * 20 + value("strings") * 15;
            (threads * value("repeats") * steps, None)
        }
        "fragmentation" => {
            let phase = |size: u64| (value("live_kib") << 10) / size;
            (threads * [64, 80, 112, 160, 240, 336].map(phase).iter().sum::<u64>(), None)
        }
        "synthetic" => (threads * value("generations") * value("steps"), None),
        "idle-return" => (threads * value("cycles") * value("blocks"), None),
        "many-threads" => (value("population"), Some(value("population") * 2 * (16 + 64 + 256 + 1024))),
        "server-uptime" => (threads * value("rounds") * value("requests"), None),
        "prefork" => (threads * value("requests"), None),
        "startup" => (threads * value("launches"), None),
        "os-primitives" => (threads * value("rounds") * 8 * 256, Some(0)),
        _ => panic!("no definition of {name}"),
    }
}

#[test]
fn the_list_describes_every_workload() {
    let output = ended(command(&["list"]));
    assert!(output.status.success());
    let list: Vec<Description> = String::from_utf8(output.stdout)
        .expect("UTF-8")
        .lines()
        .map(|line| serde_json::from_str(line).expect("a description"))
        .collect();
    assert_eq!(list.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(), NAMES);
    assert_eq!(list[0].max_threads, Some(50));
}

#[test]
fn every_workload_does_what_its_definition_demands() {
    for name in NAMES {
        for threads in [1, 2, 3] {
            if !measurable(name, threads) {
                continue;
            }
            let found = measured(&["run", name, "--test", "--threads", &threads.to_string()]);
            let (operations, live) = demanded(name, threads, &found.parameters);
            assert_eq!((found.workload.as_str(), u64::from(found.threads)), (name, threads));
            assert_eq!((found.operations, found.expected_operations), (operations, operations), "{name}");
            // Of xmalloc's threads, each is a producer and a consumer.
            let workers = if name == "xmalloc" { 2 * threads } else { threads };
            assert_eq!(found.worker_ns.len() as u64, workers, "{name}");
            assert!(found.wall_ns > 0 && found.peak_rss_bytes >= found.final_rss_bytes, "{name}");
            match live {
                Some(live) => assert_eq!(found.peak_live_bytes, Some(live), "{name}"),
                None => {
                    assert_eq!(found.peak_live_bytes.is_none(), WITHOUT_LIVE_BYTES.contains(&name), "{name}")
                }
            }
        }
    }
}

#[test]
fn every_workload_passes_its_canary_pass_on_the_systems_malloc() {
    for name in NAMES.into_iter().filter(|&name| measurable(name, 2)) {
        measured(&["run", name, "--test", "--pass", "canary", "--threads", "2"]);
    }
    for distribution in ["distribution=1", "distribution=2", "distribution=3", "exchange=0"] {
        measured(&["run", "producer-consumer", "--test", "--pass", "canary", "--set", distribution]);
    }
    measured(&["run", "shbench", "--test", "--pass", "canary", "--set", "min=1024", "--set", "max=8192"]);
    measured(&["run", "malloc-test", "--test", "--pass", "canary", "--set", "processes=2"]);
    measured(&["run", "large-block", "--test", "--pass", "canary", "--set", "prealloc=1"]);
}

/// The allocators of the distribution that are installed.
fn installed_allocators() -> Vec<PathBuf> {
    let names = ["libjemalloc.so.2", "libmimalloc.so.2", "libtcmalloc_minimal.so.4"];
    let directories = std::fs::read_dir("/usr/lib").expect("every system has it");
    let directories = directories.filter_map(|entry| Some(entry.ok()?.path()));
    let directories: Vec<_> =
        directories.filter(|path| path.to_string_lossy().ends_with("-linux-gnu")).collect();
    let files = directories.iter().flat_map(|directory| names.map(|name| directory.join(name)));
    files.filter(|file| file.is_file()).collect()
}

#[test]
fn every_workload_passes_its_canary_pass_on_every_allocator_installed() {
    for library in installed_allocators() {
        for name in NAMES.into_iter().filter(|&name| measurable(name, 2)) {
            let mut command = command(&["run", name, "--test", "--pass", "canary", "--threads", "2"]);
            command.env("LD_PRELOAD", &library);
            let (outcome, code) = outcome(command);
            assert!(matches!(outcome, Outcome::Measured(_)) && code == 0, "{library:?} {name}: {outcome:?}");
        }
    }
}

/// Why a pass has nothing to measure in a workload, where it has not.
fn nothing_for(pass: &str, name: &str) -> Option<&'static str> {
    match (pass, name) {
        ("latency", "startup" | "os-primitives" | "false-sharing") => Some("no malloc or free"),
        ("latency", "prefork") => Some("calls no malloc or free in the measured part"),
        ("memory", "startup" | "os-primitives") => Some("allocates no block"),
        ("memory", "prefork") => Some("several processes"),
        _ => None,
    }
}

#[test]
fn every_workload_does_the_same_work_in_every_pass() {
    for name in NAMES.into_iter().filter(|&name| measurable(name, 2)) {
        for pass in ["latency", "memory", "counters", "system-calls"] {
            let arguments = ["run", name, "--test", "--threads", "2", "--pass", pass];
            let (outcome, code) = outcome(command(&arguments));
            match (outcome, nothing_for(pass, name)) {
                (Outcome::Measured(found), None) => {
                    let (operations, _) = demanded(name, 2, &found.parameters);
                    assert_eq!(found.operations, operations, "{arguments:?}");
                    assert_eq!(found.curve.is_empty(), pass != "memory", "{arguments:?}");
                    assert!(found.counters.is_empty() || pass == "counters", "{arguments:?}");
                    let timed =
                        ["malloc_calls", "free_calls", "realloc_calls"].map(|key| found.extra.get(key));
                    assert_eq!(timed.iter().any(Option::is_some), pass == "latency", "{arguments:?}");
                }
                (Outcome::NotMeasurable { reason }, Some(expected)) => assert!(reason.contains(expected)),
                // Some machines count nothing.
                (Outcome::NotMeasurable { reason }, None) if pass == "counters" => {
                    assert!(reason.contains("perf_event_open"), "{reason}");
                }
                (other, _) => panic!("{arguments:?}: {other:?}"),
            }
            assert_eq!(code, 0, "{arguments:?}");
        }
    }
}

#[test]
fn every_call_of_the_measured_part_is_timed_and_no_other() {
    // What larson starts with, and frees at its end, is no part of it.
    let found = measured(&["run", "larson", "--test", "--threads", "2", "--pass", "latency"]);
    for function in ["malloc", "free"] {
        assert_eq!(found.extra[&format!("{function}_calls")] as u64, found.operations);
        let percentiles = ["p50", "p90", "p99", "p99_9", "p99_99", "max"]
            .map(|percentile| found.extra[&format!("{function}_{percentile}_ns")]);
        assert!(percentiles.is_sorted() && percentiles[0] > 0.0, "{percentiles:?}");
    }
    assert!(found.extra["timer_cost_ns"] > 0.0 && !found.extra.contains_key("realloc_calls"));
    let found = measured(&["run", "realloc-growth", "--test", "--pass", "latency"]);
    assert_eq!(found.extra["realloc_calls"] as u64, found.operations);
    let processes = ["run", "malloc-test", "--test", "--pass", "latency", "--set", "processes=2"];
    let (outcome, _) = outcome(command(&processes));
    assert!(matches!(outcome, Outcome::NotMeasurable { .. }), "{outcome:?}");
}

#[test]
fn memory_is_read_at_the_same_operations_and_live_bytes_in_every_run() {
    let curve = || {
        let found = measured(&["run", "larson", "--test", "--pass", "memory", "--set", "slots=5000"]);
        assert!(found.extra["peak_rss_to_live"] > 1.0);
        assert!(found.extra["peak_rss_minus_live_bytes"] < found.peak_rss_bytes as f64);
        // 5000 mallocs to begin with, then 3 × 25 000 replacements of two calls each.
        let (last, interval) = (5000 + 150_000, 1024);
        let expected: Vec<u64> = (1..=last / interval).map(|index| index * interval).collect();
        assert_eq!(found.curve.iter().map(|point| point.operations).collect::<Vec<_>>(), expected);
        assert!(found.curve.iter().all(|point| point.rss_bytes > point.live_bytes));
        let most = found.curve.iter().map(|point| point.live_bytes).max();
        assert!(most <= found.peak_live_bytes, "{most:?}");
        found.curve.into_iter().map(|point| point.live_bytes).collect::<Vec<_>>()
    };
    assert_eq!(curve(), curve());
}

#[test]
fn memory_is_sampled_at_live_bytes_that_the_definition_fixes() {
    let found = measured(&["run", "fragmentation", "--test", "--threads", "3"]);
    let limit = 3.0 * found.parameters["live_kib"] * 1024.0;
    for phase in 1..=found.parameters["phases"] as usize {
        let live = found.extra[&format!("live_phase_{phase:02}_bytes")];
        assert!((0.98 * limit..=limit).contains(&live), "{live}");
        assert!(found.extra[&format!("rss_phase_{phase:02}_bytes")] > live);
    }
    let found = measured(&["run", "server-uptime", "--test", "--threads", "2"]);
    for round in 1..=found.parameters["rounds"] as usize {
        let live = found.extra[&format!("live_round_{round:02}_bytes")];
        let connections = 2.0 * found.parameters["connections"];
        assert!((1024.0 * connections..=16_384.0 * connections).contains(&live), "{live}");
        let figure = |name| found.extra[&format!("round_{round:02}_{name}_ns")];
        let percentiles = ["p50", "p90", "p99", "p99_9", "p99_99", "max"].map(figure);
        assert!(percentiles.is_sorted() && percentiles[0] > 0.0, "{percentiles:?}");
    }
    assert!(found.extra["timer_cost_ns"] > 0.0);
}

#[test]
fn larson_is_known_in_its_live_bytes() {
    let found = measured(&["run", "larson", "--test", "--threads", "2", "--set", "min=7", "--set", "max=8"]);
    assert_eq!(found.peak_live_bytes, Some(2 * 500 * 7));
}

#[test]
fn processes_at_once_are_counted_together() {
    let found = measured(&["run", "malloc-test", "--test", "--threads", "2", "--set", "processes=3"]);
    assert_eq!(found.worker_ns.len(), 6);
    assert_eq!(found.operations, 6 * found.parameters["iterations"] as u64);
    assert_eq!(found.peak_live_bytes, Some(6 * 512));
}

#[test]
fn objects_aligned_to_cache_lines_share_none() {
    if !two_cores() {
        let (outcome, code) = outcome(command(&["run", "false-sharing", "--test"]));
        assert!(matches!(outcome, Outcome::NotMeasurable { .. }) && code == 0, "{outcome:?}");
        return;
    }
    let found = measured(&["run", "false-sharing", "--test", "--threads", "2", "--set", "aligned=1"]);
    assert_eq!(found.extra["shared_line_pairs"], 0.0);
    let line = found.extra["cache_line_bytes"] as u64;
    assert_eq!(found.peak_live_bytes, Some(2 * line));
}

#[test]
fn what_cannot_be_measured_says_why() {
    let not_measurable = |name, threads, expected| {
        let (outcome, code) = outcome(command(&["run", name, "--test", "--threads", threads]));
        let told = matches!(&outcome, Outcome::NotMeasurable { reason } if reason.contains(expected));
        assert!(told && code == 0, "{name}: {outcome:?}");
    };
    for name in BOUND_TO_CORES {
        not_measurable(name, "4096", "physical core");
    }
}

#[test]
fn bad_usage_is_one_line_that_names_what_is_valid() {
    let cases: [(&[&str], &str); 11] = [
        (&["run", "nosuch"], "no workload \"nosuch\": valid are malloc-test, heap-leak"),
        (&["run", "larson", "--set", "size=1"], "valid are min, max, slots, rounds, generations"),
        (&["run", "larson", "--set", "min=x"], "min of larson is a whole number from 2 to"),
        (&["run", "larson", "--set", "min=1000"], "min must be less than max"),
        (&["run", "malloc-test", "--threads", "51"], "runs with 1 to 50 threads, not 51"),
        (&["run", "threadtest", "--threads", "2", "--set", "objects=1"], "at least the number of threads, 2"),
        (&["run", "shbench", "--set", "min=65"], "min must not be more than max"),
        (&["run", "producer-consumer", "--set", "slots=5090"], "must not be a multiple of 509"),
        (&["run", "realloc-growth", "--set", "vectors=0", "--set", "strings=0"], "must be at least 1"),
        (&["run", "many-threads", "--threads", "3", "--set", "population=2"], "at least the number of"),
        (&["run", "larson", "--no-such-flag"], "--no-such-flag"),
    ];
    for (arguments, expected) in cases {
        let output = ended(command(arguments));
        let stderr = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(stderr.lines().count() == 1 && stderr.contains(expected), "{stderr}");
    }
}

#[test]
fn a_request_that_cannot_be_served_is_a_failure() {
    for name in ["malloc-test", "threadtest", "large-block"] {
        let reason = failed(command(&["run", name, "--test", "--set", "size=1000000000000000"]));
        assert_eq!(reason, "the allocator returned NULL for 1000000000000000 bytes", "{name}");
    }
}

/// The library of `faulty_malloc.c`, built once.
fn faulty_library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faulty_malloc.c");
        let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libfaulty_malloc.so");
        let mut compiler = Command::new("cc");
        compiler.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-fno-builtin", "-shared", "-fPIC"]);
        let status = compiler.arg("-o").arg(&library).arg(source).status().expect("a C compiler, cc");
        assert!(status.success());
        library
    })
}

/// The canary pass of a workload on the faulty library, with blocks of the size that suffers.
fn on_faulty(fault: &str, arguments: &[&str]) -> Command {
    let mut command = command(arguments);
    command.args(["--test", "--set", "size=777"]);
    command.env("LD_PRELOAD", faulty_library()).env("FAULT", fault);
    command
}

#[test]
fn each_fault_of_an_allocator_is_found_and_named() {
    let cases = [
        ("null", "returned NULL for 777 bytes"),
        ("misaligned", "is not aligned to 16 bytes"),
        ("overlap", "overlaps another: its byte 512 holds the canary of a block of worker 0"),
        ("lost-content", "lost its content at byte 100"),
    ];
    for (fault, expected) in cases {
        let reason = failed(on_faulty(fault, &["run", "threadtest", "--pass", "canary"]));
        assert!(reason.contains(expected), "{fault}: {reason}");
    }
}

#[test]
fn null_in_the_measured_pass_is_a_failure_in_every_thread_and_process() {
    for arguments in [
        &["run", "malloc-test", "--threads", "3"][..],
        &["run", "malloc-test", "--set", "processes=2"],
        &["run", "heap-leak", "--threads", "2"],
        &["run", "xmalloc", "--threads", "4"],
    ] {
        let reason = failed(on_faulty("null", arguments));
        assert_eq!(reason, "the allocator returned NULL for 777 bytes", "{arguments:?}");
    }
}

#[test]
fn a_process_that_dies_is_a_failure() {
    let reason = failed(on_faulty("abort", &["run", "malloc-test", "--set", "processes=2"]));
    assert!(reason.starts_with("process 1 of 2 was ended by signal 6"), "{reason}");
}

#[test]
fn the_process_tells_which_library_serves_each_function() {
    let found = measured(&["run", "malloc-test", "--test"]);
    assert_eq!(found.served_by.len(), 7);
    let libc = &found.served_by[0];
    assert!(libc.path.contains("libc.so.6"), "{libc:?}");
    assert!(
        found.served_by.iter().all(|entry| (&entry.path, &entry.build_id) == (&libc.path, &libc.build_id))
    );

    let (outcome, _) = outcome(on_faulty("none", &["run", "malloc-test"]));
    let Outcome::Measured(mixed) = outcome else { panic!("{outcome:?}") };
    let faulty = faulty_library().canonicalize().expect("built").to_string_lossy().into_owned();
    for entry in mixed.served_by {
        let expected = if entry.symbol == "malloc" { &faulty } else { &libc.path };
        assert_eq!(&entry.path, expected, "{}", entry.symbol);
    }
}
