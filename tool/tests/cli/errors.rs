//! Bad input: one clear line that says what to do, the right exit code, nothing measured.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;

use crate::common::{json, library, texts, tool};

/// Runs `ample bench` with these arguments: the exit code and the only line on standard error.
fn refused(folder: &Path, arguments: &[&str]) -> (i32, String) {
    let output = tool(folder).arg("bench").args(arguments).output().expect("runs");
    let (stdout, stderr) = texts(&output);
    assert_eq!(stdout, "");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    (output.status.code().expect("a code"), stderr)
}

#[test]
fn what_does_not_exist_is_a_usage_error_with_a_suggestion() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, line) = refused(folder.path(), &["larsn"]);
    assert_eq!(code, 2);
    assert!(line.contains("unknown workload 'larsn'; did you mean 'larson'? valid: malloc-test"), "{line}");
    let (code, line) = refused(folder.path(), &["--allocators", "jemaloc"]);
    assert_eq!(code, 2);
    assert!(line.contains("unknown allocator 'jemaloc'; did you mean 'jemalloc'?"), "{line}");
    let (code, line) = refused(folder.path(), &["--set", "larson.x=1"]);
    assert_eq!(code, 2);
    assert!(line.contains("unknown parameter of larson 'x'"), "{line}");
    let (code, line) = refused(folder.path(), &["larson", "--set", "larson.rounds=0.5"]);
    assert_eq!(code, 2);
    assert!(line.contains("rounds of larson is a whole number"), "{line}");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0, "no output folder is left behind");
}

#[test]
fn malformed_options_are_usage_errors() {
    let folder = tempfile::tempdir().expect("a folder");
    for arguments in [["--dry-run", "--json"], ["--threads", "0"], ["--runs", "none"], ["--timeout", "-1"]] {
        let output = tool(folder.path()).arg("bench").args(arguments).output().expect("runs");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_known_allocator_that_is_missing_says_how_to_get_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = tool(folder.path())
        .args(["bench", "--allocators", "snmalloc"])
        .env("AMPLE_PEERS_DIR", folder.path())
        .output()
        .expect("runs");
    assert_eq!(output.status.code(), Some(1));
    let (_, stderr) = texts(&output);
    assert_eq!(stderr, "ample: snmalloc is not available: not built yet; run: cargo ample peers snmalloc\n");
    let output = tool(folder.path())
        .args(["bench", "--preset", "seed-000"])
        .env("AMPLE_LIMITS_DIR", folder.path())
        .output()
        .expect("runs");
    assert_eq!(output.status.code(), Some(1));
    let (_, stderr) = texts(&output);
    assert_eq!(stderr, "ample: single-lock is not available: not built yet; run: cargo ample allocators\n");
}

#[test]
fn a_library_that_does_not_load_ends_the_run_before_it_begins() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, line) = refused(folder.path(), &["-a", "/nonexistent/libx.so"]);
    assert_eq!(code, 1);
    assert!(line.contains("cannot read /nonexistent/libx.so"), "{line}");

    fs::write(folder.path().join("text.so"), "not a library").expect("written");
    let (code, line) = refused(folder.path(), &["-a", "./text.so"]);
    assert_eq!(code, 1);
    assert!(line.contains("text.so is not a shared library"), "{line}");

    // A program is an ELF file, but cannot be preloaded.
    let (code, line) = refused(folder.path(), &["-a", "program=/bin/true"]);
    assert_eq!(code, 1);
    assert!(line.contains("the library does not load: object '"), "{line}");

    library(folder.path(), "missing", "int missing(void) { return 1; }", &[]);
    let needs = "int missing(void); __attribute__((constructor)) void start(void) { missing(); }";
    let at = folder.path().display().to_string();
    library(folder.path(), "needs", needs, &["-L", &at, "-lmissing"]);
    fs::remove_file(folder.path().join("libmissing.so")).expect("removed");
    let (code, line) = refused(folder.path(), &["-a", "./libneeds.so"]);
    assert_eq!(code, 1);
    assert!(line.contains("the library does not load: libmissing.so: cannot open"), "{line}");
    assert!(!folder.path().join("ample-out").exists(), "no output folder is left behind");
}

#[test]
fn an_output_folder_that_cannot_be_written_is_told_before_measuring() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("file"), "").expect("written");
    let (code, line) = refused(folder.path(), &["--out", "file"]);
    assert_eq!(code, 1);
    assert!(line.contains("cannot write to the output folder file; choose another with --out"), "{line}");
}

#[test]
fn where_no_more_samples_can_be_written_the_tool_says_what_goes_on_with_the_run() {
    let folder = tempfile::tempdir().expect("a folder");
    // As on a disk that is full: no file may become longer than so many blocks of 512 bytes.
    const FULL: &str = "trap '' XFSZ; ulimit -f 60; exec \"$0\" bench larson -a glibc -t 1 --quick -r 1000 --no-history --out o*t";
    let tool = tool(folder.path());
    let mut shell = Command::new("sh");
    shell.current_dir(&folder).args(["-c", FULL]).arg(tool.get_program());
    shell.envs(tool.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let (_, stderr) = texts(&shell.output().expect("runs"));
    let end = "; when that is mended, go on with the run: ample bench --resume 'o*t'\n";
    assert!(stderr.starts_with("ample: cannot write samples.jsonl: ") && stderr.ends_with(end), "{stderr}");
}

#[test]
fn without_the_workloads_the_tool_says_what_builds_them() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ample"));
    let output = command.arg("bench").env("AMPLE_WORKLOAD", "/nonexistent").output().expect("runs");
    assert_eq!(output.status.code(), Some(1));
    let (_, stderr) = texts(&output);
    assert!(stderr.contains("/nonexistent does not exist; `cargo ample workloads` builds it"), "{stderr}");
}

#[test]
fn a_full_standard_error_changes_no_exit_code() {
    let folder = tempfile::tempdir().expect("a folder");
    let code = |words: &[&str]| {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
        let status = tool(folder.path()).args(words).stderr(full).status();
        status.expect("runs").code()
    };
    assert_eq!(code(&["run", "-a", "glibc", "--check", "--", "sh", "-c", "exit 3"]), Some(0));
    assert_eq!(code(&["run", "-a", "nope", "--", "true"]), Some(125));
    assert_eq!(code(&["diff", "no-folder", "nope"]), Some(1));
    assert_eq!(code(&["bench", "larsn"]), Some(2));
}

#[test]
fn words_and_variables_that_are_no_text_are_taken_as_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = OsStr::from_bytes(b"b\xff\xfe");
    let mut compare = tool(folder.path());
    compare.args(["compare", "-a", "glibc", "-r", "1", "--out", "out", "--", "sh", "-c", "sleep 0.01", "sh"]);
    let mut bench = tool(folder.path());
    bench.args(["bench", "larson", "--quick", "-r", "1", "-t", "1", "-a", "glibc", "--out"]).arg(bytes);
    for command in [compare.arg(bytes), &mut bench] {
        let output = command.env("X", bytes).env("MALLOC_X", bytes).output().expect("runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let run = json(&folder.path().join("out/run.json"));
    assert_eq!(run["command"].as_array().expect("words").last(), Some(&"b\u{fffd}\u{fffd}".into()));
    assert!(folder.path().join(bytes).join("report.html").exists());
}
