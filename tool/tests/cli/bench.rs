//! Whole runs of the tool with real processes.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{json, library, samples, texts, tool};

/// Runs `ample bench --json --out out` with these arguments: the summary.
fn summary(folder: &Path, arguments: &[&str]) -> Value {
    let arguments = arguments.iter().chain(&["--json", "--out", "out"]);
    let output = tool(folder).arg("bench").args(arguments).output().expect("runs");
    let (stdout, stderr) = texts(&output);
    assert!(output.status.success(), "{stderr}");
    serde_json::from_str(&stdout).expect("JSON and nothing else")
}

fn statuses<'a>(summary: &'a Value, allocator: &str) -> Vec<&'a str> {
    let names = summary["allocators"].as_array().expect("a list");
    let column = names.iter().position(|entry| entry["name"] == allocator).expect("a column");
    let rows = summary["rows"].as_array().expect("a list");
    rows.iter().map(|row| row["cells"][column]["status"].as_str().expect("a status")).collect()
}

#[test]
fn the_default_selection_runs_and_leaves_all_its_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = ["--quick", "--runs", "1", "--threads", "1", "-a", "glibc,glibc:MALLOC_ARENA_MAX=1"];
    let summary = summary(folder.path(), &arguments);
    let rows = summary["rows"].as_array().expect("a list");
    let labels: Vec<&str> = rows.iter().map(|row| row["workload"].as_str().expect("a name")).collect();
    let expected = [
        "malloc-test",
        "heap-leak",
        "false-sharing",
        "threadtest-small",
        "threadtest-medium",
        "large-block",
        "larson",
    ];
    assert_eq!(labels, expected);
    for name in ["glibc", "glibc:MALLOC_ARENA_MAX=1"] {
        for (status, label) in statuses(&summary, name).into_iter().zip(labels.iter()) {
            // One core only: the one workload that says so is not measurable.
            let unmeasurable = *label == "false-sharing" && status == "not-measurable";
            assert!(status == "measured" || unmeasurable, "{label} under {name}: {summary}");
        }
    }
    let out = folder.path().join("out");
    let run = json(&out.join("run.json"));
    assert_eq!((&run["schema_version"], &run["seed"], &run["blocks"]), (&1.into(), &1.into(), &1.into()));
    assert_eq!(run["allocators"][0]["sha256"].as_str().expect("a hash").len(), 64);
    assert!(run["machine"]["kernel"].is_string() && run["noise_at_end"].is_object());
    let samples = samples(&out);
    let passes = |pass: &str| samples.iter().filter(|sample| sample["pass"] == pass).count();
    assert_eq!((passes("probe"), passes("canary")), (2, 14));
    assert!(passes("timed") >= 12);
    let page = fs::read_to_string(out.join("report.html")).expect("a report");
    assert!(page.contains("<svg role=\"img\"") && page.contains("larson: peak memory against threads"));
    assert!(!page.contains("http://") || !page.contains("src="), "the report needs no network");
    assert!(out.join("plots/trade-off.svg").exists() && out.join("plots/larson-throughput.svg").exists());
}

#[test]
fn faulty_libraries_are_failed_rows_with_a_reason_and_the_rest_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    library(at, "crash", "__attribute__((constructor)) void s(void) { *(volatile int *)0 = 1; }", &[]);
    library(
        at,
        "hang",
        "#include <unistd.h>\n__attribute__((constructor)) void s(void) { for (;;) pause(); }",
        &[],
    );
    library(at, "exit", "#include <unistd.h>\n__attribute__((constructor)) void s(void) { _exit(9); }", &[]);
    library(at, "nothing", "int nothing;", &[]);
    let list = "./libcrash.so,./libhang.so,./libexit.so,./libnothing.so";
    let summary = summary(at, &["larson", "-a", list, "-t", "1", "-r", "1", "--quick", "--timeout", "3"]);
    assert_eq!(statuses(&summary, "glibc"), ["measured"]);
    for (name, reason) in [
        ("crash", "crashed with SIGSEGV (signal 11)"),
        ("hang", "no result within 3 s"),
        ("exit", "exit code 9"),
        ("nothing", "wrong library: malloc is served by /"),
    ] {
        assert_eq!(statuses(&summary, name), ["failed"]);
        let gaps = summary["gaps"].as_array().expect("a list");
        let found = gaps.iter().find(|gap| gap["allocators"] == Value::from(vec![name])).expect("a gap");
        assert!(found["reason"].as_str().expect("text").starts_with(reason), "{found}");
    }
    let verdict = summary["verdict"].as_str().expect("a sentence");
    assert!(verdict.starts_with("There is nothing to compare"), "{verdict}");
}

#[test]
fn a_crash_in_the_timed_pass_is_a_failed_row_and_a_good_library_is_compared() {
    let folder = tempfile::tempdir().expect("a folder");
    let serving = include_str!("serving.c");
    library(folder.path(), "good", serving, &["-DDIES_LATE=0"]);
    library(folder.path(), "late", serving, &["-DDIES_LATE=1"]);
    let summary = summary(
        folder.path(),
        &["larson", "-a", "./libgood.so,./liblate.so", "-t", "1", "-r", "2", "--quick"],
    );
    assert_eq!(statuses(&summary, "late"), ["failed"]);
    assert_eq!(statuses(&summary, "good"), ["measured"]);
    assert_eq!(summary["gaps"][0]["reason"], "crashed with SIGABRT (signal 6)");
    let good = &summary["rows"][0]["cells"][1];
    assert!(good["throughput"]["value"].as_f64().expect("a ratio") > 0.0, "{good}");
    // It never frees, and that shows.
    assert!(good["peak_rss"]["value"].as_f64().expect("a ratio") > 1.5, "{good}");
    let late: Vec<_> = samples(&folder.path().join("out"))
        .into_iter()
        .filter(|sample| sample["allocator"] == "late" && sample["pass"] == "timed")
        .collect();
    assert_eq!(late.len(), 1, "a failed row is not run again");
}

#[test]
fn an_interruption_keeps_the_samples_and_still_reports() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let mut child = tool(folder.path())
        .args(["bench", "larson", "-a", "glibc", "-t", "1", "--quick", "--runs", "100000", "--out", "out"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    let deadline = Instant::now() + Duration::from_secs(30);
    while fs::read_to_string(out.join("samples.jsonl")).unwrap_or_default().lines().count() < 5 {
        assert!(Instant::now() < deadline, "no samples");
        assert_eq!(child.try_wait().expect("waits"), None);
        sleep(Duration::from_millis(10));
    }
    // Twice, as timeout(1) does it.
    for _ in 0..2 {
        let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
        assert!(killed.success());
    }
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(130));
    assert!(samples(&out).len() >= 5);
    assert_eq!(json(&out.join("run.json"))["interrupted"], true);
    let (stdout, stderr) = texts(&output);
    assert_eq!(stderr, "", "nothing but results, off a terminal");
    assert_eq!(stdout.lines().last().expect("a line"), "report: out/report.html");
    assert!(fs::read_to_string(out.join("report.html")).expect("a report").contains("ended early"));
}

#[test]
fn allocators_are_listed_with_hash_and_what_is_missing_with_a_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = tool(folder.path())
        .args(["allocators", "--json"])
        .env("AMPLE_PEERS_DIR", folder.path())
        .output()
        .expect("runs");
    assert!(output.status.success());
    let listing: Value = serde_json::from_str(&texts(&output).0).expect("JSON");
    let entries = |key: &str| listing[key].as_array().expect("a list").clone();
    let glibc = entries("found").into_iter().find(|entry| entry["name"] == "glibc").expect("glibc");
    assert_eq!((&glibc["check"], glibc["sha256"].as_str().expect("a hash").len()), (&"serves".into(), 64));
    let missing = entries("missing").into_iter().find(|entry| entry["name"] == "rpmalloc").expect("rpmalloc");
    assert_eq!(missing["install"], "cargo ample peers rpmalloc");
}

#[test]
fn workloads_are_listed_with_what_they_tell() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = tool(folder.path()).arg("workloads").output().expect("runs");
    assert!(output.status.success());
    let (stdout, _) = texts(&output);
    assert!(stdout.contains("malloc-test") && stdout.contains("larson"), "{stdout}");
}
