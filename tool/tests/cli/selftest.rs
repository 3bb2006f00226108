//! The tool's test of itself.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{texts, tool};

#[test]
fn both_controls_are_counted_and_the_verdict_is_the_exit_code() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = tool(folder.path())
        .args(["selftest", "--comparisons", "1", "--blocks", "10", "--json"])
        .output()
        .expect("runs");
    let (stdout, stderr) = texts(&output);
    let findings: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"));
    let counted = |control: &str| {
        let counts = findings[control].as_object().expect("counts");
        counts.values().map(|count| count.as_u64().expect("a number")).sum::<u64>()
    };
    for control in ["itself_throughput", "itself_peak_rss", "planted"] {
        assert_eq!(counted(control), 1, "{findings}");
    }
    assert_eq!(findings["costs"].as_array().map(Vec::len), Some(4), "{findings}");
    let least_found = findings["least_found"].as_f64().expect("a share");
    assert!(least_found > 0.0 && least_found < 10.0, "{findings}");
    assert_eq!((&findings["comparisons"], &findings["interrupted"]), (&1.into(), &false.into()));
    assert_eq!(output.status.success(), findings["passed"] == true);
}

#[test]
fn an_interruption_keeps_the_comparisons_that_are_done() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut child = tool(folder.path())
        .args(["selftest", "--comparisons", "100000", "--blocks", "10"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    let mut line = String::new();
    BufReader::new(child.stderr.take().expect("piped")).read_line(&mut line).expect("readable");
    assert!(line.starts_with("ample: 100000 comparisons of 10 blocks take about "), "{line}");
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(killed.success());
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(130));
    let (stdout, _) = texts(&output);
    let (costs, controls) = (stdout.find("measuring costs"), stdout.find("false alarms"));
    assert!(costs.is_some() && costs < controls, "{stdout}");
    assert!(stdout.contains("Ended early by the user.") && stdout.contains("false alarms: "), "{stdout}");
}

#[test]
fn what_measuring_costs_is_told_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |arguments: &[&str]| {
        tool(folder.path()).args(["selftest", "--cost"]).args(arguments).output().expect("runs")
    };
    let output = run(&["--json"]);
    let (stdout, stderr) = texts(&output);
    assert!(output.status.success(), "{stderr}");
    let found: Value = serde_json::from_str(&stdout).expect("JSON");
    let value = |index: usize| {
        let cost = &found["costs"][index];
        cost["value"].as_f64().unwrap_or_else(|| panic!("{cost}"))
    };
    let [clock, null_loop, pair, start_ms] = [0, 1, 2, 3].map(value);
    assert!(clock > 0.0 && null_loop > 0.0 && pair > 0.0, "{found}");
    // A process is started in no less than a few thousand readings of the clock.
    assert!(start_ms > 0.01, "{found}");
    let units: Vec<&str> = (0..4).filter_map(|index| found["costs"][index]["unit"].as_str()).collect();
    assert_eq!(units, ["ns", "ns", "ns", "ms"]);
    let output = run(&["--quick"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(texts(&output).1.contains("cannot be used with"), "{output:?}");
}
