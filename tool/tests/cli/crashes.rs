//! `ample compare` with programs of which a process crashes.

use std::fs;

use crate::common::{SERVING, library, program};
use crate::compare::compare_and;

#[test]
fn a_crash_under_one_allocator_is_a_failed_row_with_its_output() {
    let folder = tempfile::tempdir().expect("a folder");
    library(folder.path(), "late", SERVING, &["-DDIES_LATE"]);
    library(folder.path(), "nothing", "int nothing;", &[]);
    let script = "sleep 0.01";
    let list = "./liblate.so,./libnothing.so";
    let compared = compare_and(folder.path(), &["-a", list, "-r", "1", "--", "sh", "-c", script], 5);
    let cells = &compared["summary"]["rows"][0]["cells"];
    let statuses: Vec<&str> = (0..3).map(|index| cells[index]["status"].as_str().expect("text")).collect();
    assert_eq!(statuses, ["measured", "failed", "failed"]);
    let gaps = compared["summary"]["gaps"].to_string();
    assert!(gaps.contains("wrong library: malloc is served by /"), "{gaps}");
    assert!(gaps.contains("SIGABRT"), "{gaps}");
}

#[test]
fn a_crash_of_a_child_that_its_shell_passes_over_is_a_failed_row_unless_it_is_usual() {
    let folder = tempfile::tempdir().expect("a folder");
    library(folder.path(), "good", SERVING, &[]);
    // Crashes where a library is preloaded, or always.
    let crashes = "#include <signal.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
        int main(int count, char **words) { usleep(20000); return (count > 1 || getenv(\"LD_PRELOAD\")) && raise(SIGSEGV); }";
    program(folder.path(), "crashes", crashes, &[]);
    let gaps = |code: i32, script: &str| {
        let words = ["-a", "./libgood.so", "-r", "1", "--", "sh", "-c", script];
        let compared = compare_and(folder.path(), &words, code);
        fs::remove_dir_all(folder.path().join("out")).expect("removed");
        compared["summary"]["gaps"].to_string()
    };
    let told = gaps(5, "./crashes; sleep 0.01; exit 0");
    assert!(told.contains("one of its processes crashed") && told.contains("Segmentation fault"), "{told}");
    assert_eq!(gaps(0, "./crashes always; sleep 0.01; exit 0"), "[]");
}
