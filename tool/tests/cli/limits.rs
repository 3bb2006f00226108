//! The limits: they serve, they are told what to serve, and they are never ranked.

use std::process::Command;

use serde_json::Value;

use crate::common::{limits, samples, statuses, summary, texts, tool, workloads};

/// Runs a workload at test size on a limit: its outcome, and what it wrote to standard error.
fn outcome(limit: &str, arguments: &[&str], size: &str) -> (Value, String) {
    let output = Command::new(workloads())
        .args(["run", "--test"])
        .args(arguments)
        .env("LD_PRELOAD", limits().join(format!("lib{limit}.so")))
        .env("AMPLE_FLOOR_SIZE", size)
        .output()
        .expect("runs");
    let (stdout, stderr) = texts(&output);
    let outcome = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{limit}: {error}: {stderr}"));
    (outcome, stderr)
}

#[test]
fn limits_are_measured_where_they_serve_and_are_never_ranked() {
    let folder = tempfile::tempdir().expect("a folder");
    let workloads = ["malloc-test", "heap-leak", "threadtest-medium", "large-block", "larson"];
    let arguments = ["-a", "glibc,floor,single-lock", "-t", "2", "-r", "1", "--quick"];
    let summary = summary(folder.path(), &[&workloads[..], &arguments[..]].concat());
    let measured = "measured";
    assert_eq!(statuses(&summary, "single-lock"), [measured; 5], "{summary}");
    assert_eq!(
        statuses(&summary, "floor"),
        [measured, measured, measured, measured, "not-measurable"],
        "{summary}"
    );
    let flags: Vec<&Value> =
        summary["allocators"].as_array().expect("a list").iter().map(|entry| &entry["limit"]).collect();
    assert_eq!(flags, [false, true, true]);
    let verdict = summary["verdict"].as_str().expect("a sentence");
    assert!(!verdict.contains("floor") && !verdict.contains("single-lock"), "{verdict}");
    let samples = samples(&folder.path().join("out"));
    let of_larson: Vec<&Value> = samples
        .iter()
        .filter(|sample| sample["allocator"] == "floor" && sample["workload"] == "larson")
        .map(|sample| &sample["result"]["reason"])
        .collect();
    assert_eq!(of_larson, ["floor serves blocks of one size"], "no process was started");
}

#[test]
fn blocks_of_limits_keep_their_content_in_workloads_of_every_kind() {
    for workload in ["realloc-growth", "fragmentation", "mstress", "larson", "many-threads"] {
        for (limit, size) in [("floor", "16"), ("floor", "4096"), ("single-lock", "")] {
            let (outcome, stderr) = outcome(limit, &[workload, "--threads", "2", "--pass", "canary"], size);
            assert_eq!(outcome["outcome"], "measured", "{workload} on {limit}: {outcome}");
            assert_eq!(stderr, "");
        }
    }
}

#[test]
fn a_size_that_is_none_is_told_in_one_line_and_floor_serves_all_the_same() {
    for size in ["", "-1", "64k", "16777217"] {
        let (outcome, stderr) = outcome("floor", &["malloc-test"], size);
        assert_eq!(outcome["outcome"], "measured", "{outcome}");
        assert_eq!(
            stderr, "floor: AMPLE_FLOOR_SIZE must be a number of bytes up to 16777216; 64 is used\n",
            "{size}"
        );
    }
}

#[test]
fn the_full_run_has_the_limits_and_what_the_system_charges() {
    let folder = tempfile::tempdir().expect("a folder");
    let listed = |preset: &str| {
        let output =
            tool(folder.path()).args(["bench", "--preset", preset, "--dry-run"]).output().expect("runs");
        let (stdout, stderr) = texts(&output);
        assert!(output.status.success(), "{stderr}");
        stdout
    };
    let full = listed("full");
    assert!(full.contains("os-primitives") && full.ends_with(", floor, single-lock\n"), "{full}");
    let seed = listed("seed-001");
    assert!(seed.ends_with(", single-lock\n") && !seed.contains("floor"), "{seed}");
    let default = listed("default");
    assert!(!default.contains("single-lock") && !default.contains("floor"), "{default}");
}
