//! What is measured in runs of its own, with real processes.

use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{json, samples, summary, texts, tool};

const LARSON: [&str; 8] = ["larson", "-a", "glibc", "-t", "2", "-r", "1", "--quick"];

/// The only finding of a measure.
fn finding<'a>(summary: &'a Value, measure: &str) -> &'a Value {
    let findings = summary["measures"][measure].as_array().expect("a list");
    assert_eq!(findings.len(), 1, "{measure}");
    &findings[0]
}

#[test]
fn all_measures_are_in_samples_summary_and_report() {
    let folder = tempfile::tempdir().expect("a folder");
    let summary = summary(folder.path(), &[&LARSON[..], &["--measures", "all"]].concat());
    let out = folder.path().join("out");
    let samples = samples(&out);
    let of_pass = |pass: &str| samples.iter().filter(|sample| sample["pass"] == pass).collect::<Vec<_>>();
    let counts = ["latency", "memory", "counters", "system-calls"].map(|pass| of_pass(pass).len());
    assert_eq!(counts, [3, 1, 1, 1]);

    let latency = finding(&summary, "latency");
    let operations = &of_pass("latency")[0]["result"]["operations"];
    assert_eq!(latency["functions"]["malloc"]["calls"].as_f64(), operations.as_f64());
    assert!(latency["functions"]["free"]["p99_9_ns"].as_f64().expect("a number") > 0.0, "{latency}");
    let curve = of_pass("memory")[0]["result"]["curve"].as_array().expect("a curve");
    assert!(curve.len() > 100 && curve[99]["rss_bytes"].as_u64().expect("a number") > 0);
    assert!(finding(&summary, "memory")["peak_rss_to_live"].as_f64().expect("a number") > 1.0);

    // Where the machine permits neither, it says so.
    let counters = finding(&summary, "counters");
    match counters["status"].as_str() {
        Some("measured") => assert!(counters["by_name"].as_object().is_some_and(|names| !names.is_empty())),
        status => assert!(status == Some("not-measurable") && counters["reason"].is_string(), "{counters}"),
    }
    let calls = finding(&summary, "system_calls");
    match calls["status"].as_str() {
        Some("measured") => {
            // Each of the two chains is ten threads long, the first of which exists before the measured part.
            let threads = ["clone", "clone3"].map(|call| calls["by_name"][call].as_f64().unwrap_or(0.0));
            assert_eq!(threads[0] + threads[1], 18.0, "{calls}");
            assert!(
                calls["by_name"].get("execve").is_none() && calls["by_name"]["mmap"].as_f64() >= Some(18.0)
            );
        }
        status => assert!(status == Some("not-measurable") && calls["reason"].is_string(), "{calls}"),
    }

    let page = fs::read_to_string(out.join("report.html")).expect("a report");
    for text in
        ["Latency of single calls", "Memory over operations beside live bytes", "System calls", "Counters"]
    {
        assert!(page.contains(text), "{text}");
    }
    assert!(out.join("plots/larson-memory-over-operations.svg").exists());
}

#[test]
fn a_run_measures_nothing_besides_unless_asked_and_a_wrong_name_is_a_usage_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let summary = summary(folder.path(), &LARSON);
    for measure in ["latency", "memory", "counters", "system_calls"] {
        assert_eq!(summary["measures"][measure].as_array().map(Vec::len), Some(0), "{measure}");
    }
    let refused = tool(folder.path()).args(["bench", "--measures", "latenzy"]).output().expect("runs");
    assert_eq!(refused.status.code(), Some(2));
    assert!(texts(&refused).1.contains("latency, memory, counters, system-calls, all, none"));
}

#[test]
fn an_interruption_keeps_the_blocks_and_the_measures_so_far() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let mut child = tool(folder.path())
        .args(["bench", "larson", "-a", "glibc", "-t", "1,2,3,4", "-r", "1", "--quick"])
        .args(["--measures", "latency,memory", "--out", "out"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !fs::read_to_string(out.join("samples.jsonl")).unwrap_or_default().contains("\"pass\":\"latency\"")
    {
        assert!(Instant::now() < deadline, "no latency");
        assert_eq!(child.try_wait().expect("waits"), None);
        sleep(Duration::from_millis(5));
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(killed.success());
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(130));
    let run = json(&out.join("run.json"));
    assert_eq!((&run["interrupted"], &run["blocks"]), (&true.into(), &1.into()));
    assert!(samples(&out).iter().all(|sample| sample["pass"] != "memory"));
    let page = fs::read_to_string(out.join("report.html")).expect("a report");
    assert!(page.contains("Latency of single calls") && page.contains("Throughput against threads"));
}
