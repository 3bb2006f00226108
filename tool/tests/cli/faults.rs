//! Faulty libraries: each is a failed row with the right reason, and the rest of the run goes on.

use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::Value;

use crate::common::{library, samples, statuses, summary, summary_and, texts, tool};

/// A whole allocator that never frees.
const SERVING: &str = include_str!("serving.c");
/// glibc's malloc but for one function, which it takes over: the workloads' own faulty library.
const HALF: &str = include_str!("../../../bench/workloads/tests/faulty_malloc.c");

/// Why this allocator has no number, in its only gap.
fn reason<'a>(summary: &'a Value, allocator: &str) -> &'a str {
    let gaps = summary["gaps"].as_array().expect("a list");
    let mut own = gaps.iter().filter(|gap| gap["allocators"] == Value::from(vec![allocator]));
    let (gap, more) = (own.next().expect("a gap"), own.next());
    assert!(gap["failed"] == true && more.is_none(), "{gap} {more:?}");
    gap["reason"].as_str().expect("text")
}

fn assert_fails(summary: &Value, allocator: &str, expected: &str) {
    assert!(statuses(summary, allocator).iter().all(|status| *status == "failed"), "{summary}");
    let reason = reason(summary, allocator);
    assert!(reason.contains(expected), "{allocator}: {reason}");
}

#[test]
fn libraries_that_fail_at_once_are_failed_rows_and_the_rest_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    library(at, "crash", "__attribute__((constructor)) void s(void) { *(volatile int *)0 = 1; }", &[]);
    let hang = "#include <unistd.h>\n__attribute__((constructor)) void s(void) { for (;;) pause(); }";
    library(at, "hang", hang, &[]);
    library(at, "exit", "#include <unistd.h>\n__attribute__((constructor)) void s(void) { _exit(9); }", &[]);
    library(at, "nothing", "int nothing;", &[]);
    library(at, "half", HALF, &["-fno-builtin"]);
    let list = "./libcrash.so,./libhang.so,./libexit.so,./libnothing.so,./libhalf.so";
    let arguments = ["larson", "-a", list, "-t", "1", "-r", "1", "--quick", "--timeout", "3"];
    let summary = summary_and(at, &arguments, 5);
    assert_eq!(statuses(&summary, "glibc"), ["measured"]);
    assert_fails(&summary, "crash", "crashed with SIGSEGV (signal 11)");
    assert_fails(&summary, "hang", "no result within 3 s");
    assert_fails(&summary, "exit", "exit code 9");
    assert_fails(&summary, "nothing", "wrong library: malloc is served by /");
    assert_fails(&summary, "half", "wrong library: free is served by /");
    let verdict = summary["verdict"].as_str().expect("a sentence");
    assert!(verdict.starts_with("There is nothing to compare"), "{verdict}");
}

#[test]
fn where_nothing_was_measured_the_exit_code_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    for (out, arguments) in [("many", ["-t", "1000000"]), ("late", ["--timeout", "1e-9"])] {
        let mut command = tool(folder.path());
        command.args(["bench", "larson", "-a", "glibc", "-r", "1", "--quick", "--out", out]);
        let output = command.args(arguments).output().expect("runs");
        assert_eq!(output.status.code(), Some(5), "{out}: {}", texts(&output).0);
    }
}

#[test]
fn a_library_under_a_false_name_is_a_failed_row() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    // It says so itself; a link says so; and it takes the place of the C library.
    library(at, "soname", SERVING, &["-Wl,-soname,libjemalloc.so.2"]);
    symlink(library(at, "good", SERVING, &[]), at.join("libmimalloc.so")).expect("linked");
    library(at, "usurper", SERVING, &["-Wl,-soname,libc.so.6"]);
    let list = "./libsoname.so,link=./libmimalloc.so,./libusurper.so,./libgood.so";
    let summary = summary(at, &["larson", "-a", list, "-t", "1", "-r", "1", "--quick"]);
    assert_fails(&summary, "soname", "wrong library: it is called libjemalloc.so.2, but defines no mallctl");
    assert_fails(&summary, "link", "wrong library: it is called libmimalloc.so, but defines no mi_version");
    assert_fails(&summary, "usurper", "exit code 127");
    assert_eq!(
        (statuses(&summary, "glibc"), statuses(&summary, "good")),
        (vec!["measured"], vec!["measured"])
    );
}

#[test]
fn blocks_that_overlap_or_lose_their_content_are_failed_rows_of_the_workloads_that_see_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let at: &Path = folder.path();
    library(at, "overlaps", SERVING, &["-DOVERLAPS"]);
    library(at, "loses", SERVING, &["-DLOSES_CONTENT"]);
    let arguments = [
        "threadtest-small",
        "malloc-test",
        "-a",
        "./liboverlaps.so,./libloses.so",
        "--set",
        "threadtest-small.size=777",
        "-t",
        "1",
        "-r",
        "1",
        "--quick",
    ];
    let summary = summary(at, &arguments);
    for (name, expected) in [("overlaps", "overlaps another"), ("loses", "lost its content at byte 100")] {
        assert_eq!(statuses(&summary, name), ["failed", "measured"]);
        assert!(reason(&summary, name).contains(expected), "{}", reason(&summary, name));
    }
    assert_eq!(statuses(&summary, "glibc"), ["measured", "measured"]);
}

#[test]
fn a_crash_in_the_timed_pass_is_a_failed_row_and_a_good_library_is_compared() {
    let folder = tempfile::tempdir().expect("a folder");
    library(folder.path(), "good", SERVING, &[]);
    library(folder.path(), "late", SERVING, &["-DDIES_LATE"]);
    let summary = summary(
        folder.path(),
        &["larson", "-a", "./libgood.so,./liblate.so", "-t", "1", "-r", "2", "--quick"],
    );
    assert_fails(&summary, "late", "crashed with SIGABRT (signal 6)");
    assert_eq!(statuses(&summary, "good"), ["measured"]);
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
