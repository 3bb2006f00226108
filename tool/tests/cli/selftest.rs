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
    assert!(findings["least_found"].as_f64().expect("a share") > 0.02, "{findings}");
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
    assert!(stdout.contains("Ended early by the user.") && stdout.contains("false alarms: "), "{stdout}");
}
