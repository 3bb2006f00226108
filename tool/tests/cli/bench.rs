//! Whole runs of the tool with real processes.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{SERVING, json, library, samples, statuses, summary, texts, tool};

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
    let log = run["block_log"].as_array().expect("a list");
    assert!(log.iter().filter(|block| block["run_again"].is_null()).count() == 1, "{log:?}");
    assert!(log[0]["processes"].as_u64().expect("a number") >= 18 && log[0]["steal_share"].is_f64());
    assert!(run["noise_rule"].as_str().expect("text").contains("run again as a whole"));
    let samples = samples(&out);
    let twins = samples.iter().filter(|sample| sample["allocator"] == "glibc (A/A)");
    assert!(twins.clone().count() >= 6 && twins.clone().all(|sample| sample["pass"] == "timed"));
    let passes = |pass: &str| samples.iter().filter(|sample| sample["pass"] == pass).count();
    assert_eq!((passes("probe"), passes("canary")), (2, 14));
    assert!(passes("timed") >= 12);
    assert_eq!(
        (passes("calibration"), run["fault_predictions"].as_array().expect("a list").len()),
        (2 * 15, 2)
    );
    let page = fs::read_to_string(out.join("report.html")).expect("a report");
    assert!(page.contains("<svg role=\"img\"") && page.contains("larson: peak memory against threads"));
    assert!(!page.contains("http://") || !page.contains("src="), "the report needs no network");
    assert!(out.join("plots/trade-off.svg").exists() && out.join("plots/larson-throughput.svg").exists());
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
    const GO_ON: &str = "ample: ended early; to go on with the run: ample bench --resume out\n";
    assert_eq!(stderr, GO_ON, "nothing but that, off a terminal");
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
fn what_an_allocator_needs_in_its_environment_is_told_to_whoever_would_use_it_elsewhere() {
    let folder = tempfile::tempdir().expect("a folder");
    library(folder.path(), "tcmalloc", SERVING, &[]);
    let peers = r#"[{"name": "tcmalloc", "crate": "x", "crate_version": "1", "version": "1", "library": "libtcmalloc.so",
                     "error": null, "env": {"GLIBC_TUNABLES": "glibc.pthread.rseq=0"}}]"#;
    fs::write(folder.path().join("peers.json"), peers).expect("written");
    let told = |arguments: &[&str]| {
        let output = tool(folder.path()).args(arguments).env("AMPLE_PEERS_DIR", folder.path()).output();
        let (stdout, stderr) = texts(&output.expect("runs"));
        assert!(stdout.contains("GLIBC_TUNABLES=glibc.pthread.rseq=0"), "{stdout}{stderr}");
        stdout
    };
    told(&["allocators"]);
    let compare =
        ["compare", "-a", "tcmalloc,glibc:arena_max=1", "-r", "1", "--out", "out", "--", "sleep", "0.02"];
    let stdout = told(&compare);
    for (name, set) in
        [("tcmalloc", "glibc.pthread.rseq=0"), ("glibc:arena_max=1", "glibc.malloc.arena_max=1")]
    {
        let note = format!(
            "Note: {name} runs with GLIBC_TUNABLES={set}: whoever uses it elsewhere must set that, too.\n"
        );
        assert!(stdout.contains(&note), "{stdout}");
    }
}

#[test]
fn what_the_environment_configures_is_told_below_the_verdict() {
    let folder = tempfile::tempdir().expect("a folder");
    let tunables = "glibc.malloc.mmap_threshold=100000000";
    let told = format!("configured allocators by GLIBC_TUNABLES={tunables};");
    let below = |output: &std::process::Output| {
        let (stdout, stderr) = texts(output);
        assert!(output.status.success(), "{stderr}");
        stdout.lines().nth(1).expect("a second line").to_owned()
    };
    let run = |arguments: &[&str], tunables: &str| {
        tool(folder.path()).args(arguments).env("GLIBC_TUNABLES", tunables).output().expect("runs")
    };
    let bench = ["bench", "larson", "-a", "glibc", "-t", "1", "-r", "1", "--quick", "--out"];
    let line = below(&run(&[&bench[..], &["bench"]].concat(), tunables));
    assert!(line.contains(&told), "{line}");
    let report = fs::read_to_string(folder.path().join("bench/report.md")).expect("a report");
    assert!(report.contains(&told), "{report}");
    let compare = ["compare", "-a", "glibc", "-r", "1", "--out", "compare", "--", "sleep", "0.02"];
    let line = below(&run(&compare, tunables));
    assert!(line.contains(&told), "{line}");
    let line =
        below(&tool(folder.path()).args(["report", "compare", "--out", "again"]).output().expect("runs"));
    assert!(line.contains(&told), "{line}");
    let line = below(&run(&[&bench[..], &["other"]].concat(), "glibc.pthread.rseq=1"));
    assert_eq!(line, "", "what configures no allocator is no matter");
}

#[test]
fn workloads_are_listed_with_what_they_tell() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = tool(folder.path()).arg("workloads").output().expect("runs");
    assert!(output.status.success());
    let (stdout, _) = texts(&output);
    assert!(stdout.contains("malloc-test") && stdout.contains("larson"), "{stdout}");
}

#[test]
fn every_preset_names_workloads_and_parameters_that_there_are() {
    let folder = tempfile::tempdir().expect("a folder");
    for preset in ["quick", "default", "full", "seed-000", "seed-001", "seed-002", "seed-003", "seed-004"] {
        let arguments = ["bench", "--preset", preset, "--dry-run", "--allocators", "glibc"];
        let output = tool(folder.path()).args(arguments).output().expect("runs");
        let (stdout, stderr) = texts(&output);
        assert!(output.status.success(), "{preset}: {stderr}");
        assert!(stdout.ends_with("allocators: glibc\n"), "{preset}: {stdout}");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0, "nothing is written");
}

#[test]
fn malloc_test_takes_the_arguments_of_its_source_and_prints_its_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = tool(folder.path())
        .args(["bench", "malloc-test", "-a", "glibc", "-r", "1", "--", "512", "100000", "2"])
        .output()
        .expect("runs");
    let (stdout, stderr) = texts(&output);
    assert!(output.status.success(), "{stderr}");
    let lines: Vec<&str> = stdout.lines().filter(|line| line.starts_with("Thread ")).collect();
    assert_eq!(lines.len(), 2, "{stdout}");
    for (line, thread) in lines.iter().zip(["Thread 1 ", "Thread 2 "]) {
        assert!(line.starts_with(thread), "{line}");
        assert!(line.ends_with(" seconds for 100000 requests of 512 bytes."), "{line}");
    }
    let refused = tool(folder.path()).args(["bench", "larson", "--", "512"]).output().expect("runs");
    assert_eq!(refused.status.code(), Some(2));
    assert!(texts(&refused).1.contains("only malloc-test takes arguments after '--'"));
}

#[test]
fn heap_leak_is_held_against_a_prediction_measured_on_this_machine() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = ["bench", "heap-leak", "-a", "glibc", "-r", "2", "-t", "1,3", "--out", "out"];
    let output = tool(folder.path())
        .args(arguments)
        .args(["--set", "heap-leak.rounds=4", "--set", "heap-leak.blocks=3000"])
        .output()
        .expect("runs");
    let (stdout, stderr) = texts(&output);
    assert!(output.status.success(), "{stderr}");
    let run = json(&folder.path().join("out/run.json"));
    let found = &run["fault_predictions"][0];
    let model = |key: &str| found["model"][key].as_f64().expect("a number");
    assert_eq!((&found["allocator"], &found["blocks"]), (&"glibc".into(), &3000.0.into()));
    // A chain's array has 8 bytes a block, a block of 40 bytes takes 48: 41 pages of 4096 bytes.
    let of_blocks = model("per_block") * 3000.0;
    assert!(model("base") > 20.0 && (5.0..200.0).contains(&of_blocks), "{found}");
    let formula = format!("  glibc: {:.1} ", model("base"));
    let line = stdout.lines().find(|line| line.starts_with(&formula)).expect("the coefficients");
    assert!(line.ends_with(&format!("{of_blocks:.1}·t (3000 blocks of 40 B)")), "{line}");
    let row =
        stdout.lines().find(|line| line.contains(" glibc ") && line.contains(" 3   4 ")).expect("a row");
    let samples = samples(&folder.path().join("out"));
    let timed = samples.iter().filter(|sample| sample["pass"] == "timed" && sample["threads"] == 3);
    // Of a block that was run again, the last attempt counts.
    let own = timed.filter(|sample| sample["allocator"] == "glibc");
    let by_block: BTreeMap<_, _> =
        own.map(|sample| (sample["block"].as_u64(), sample["result"]["extra"]["faults"].as_f64())).collect();
    let faults: Vec<f64> = by_block.into_values().flatten().collect();
    assert_eq!(faults.len(), 2);
    let mean = faults.iter().sum::<f64>() / faults.len() as f64;
    let predicted = model("base") + 3.0 * (4.0 * model("per_round") + of_blocks);
    let columns: Vec<&str> = row.split_whitespace().collect();
    let leak = format!("{:+.1}", mean - predicted);
    assert!(
        columns.contains(&format!("{mean:.1}").as_str()) && columns.contains(&leak.as_str()),
        "{row}, {leak}"
    );
    let page = fs::read_to_string(folder.path().join("out/report.html")).expect("a report");
    assert!(
        page.contains("heap-leak: faults and leaks") && page.contains(&format!("<td>{leak}</td>")),
        "{leak}"
    );
}
