//! `ample compare` with real programs.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{SERVING, json, library, program, samples, texts, tool};

const CONTENDED: &str = include_str!("contended.c");

/// Runs `ample compare --json --out out` with these arguments.
fn compare(folder: &Path, arguments: &[&str]) -> Value {
    compare_and(folder, arguments, 0)
}

/// The same where it ends with this exit code.
pub fn compare_and(folder: &Path, arguments: &[&str], code: i32) -> Value {
    let mut command = tool(folder);
    command.args(["compare", "--json", "--out", "out"]).args(arguments);
    let output = command.stdin(Stdio::null()).output().expect("runs");
    let (stdout, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    serde_json::from_str(&stdout).expect("JSON and nothing else")
}

/// The exit code and the only line on standard error of a comparison that is refused.
fn refused(folder: &Path, arguments: &[&str]) -> (i32, String) {
    let output = tool(folder).arg("compare").args(arguments).output().expect("runs");
    let (stdout, stderr) = texts(&output);
    assert_eq!(stdout, "");
    assert!(!folder.join("ample-out").exists(), "no output folder is left behind");
    (output.status.code().expect("a code"), stderr)
}

fn names(compared: &Value) -> Vec<&str> {
    let lines = compared["lines"].as_array().expect("a list");
    lines.iter().map(|line| line["allocator"].as_str().expect("a name")).collect()
}

fn value(compared: &Value, allocator: &str, measure: &str) -> f64 {
    let measures = compared["measures"].as_array().expect("a list");
    let column = measures.iter().position(|head| head == measure).expect("a measure");
    let line = names(compared).into_iter().position(|name| name == allocator).expect("a line");
    compared["lines"][line]["values"][column].as_f64().expect("a number")
}

#[test]
fn a_program_with_a_contended_heap_is_measured_judged_and_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    library(folder.path(), "leaky", SERVING, &[]);
    program(folder.path(), "contended", CONTENDED, &["-O2", "-pthread"]);
    let compared = compare(folder.path(), &["-a", "./libleaky.so", "-r", "10", "--", "./contended"]);
    assert_eq!(names(&compared), ["glibc", "leaky"]);
    // 120 MB that are never given back, and next to nothing where they are.
    assert!(value(&compared, "leaky", "peak memory") > 110e6, "{compared}");
    assert!(value(&compared, "glibc", "peak memory") < 10e6, "{compared}");
    let memory = &compared["summary"]["rows"][0]["cells"][1]["peak_rss"];
    assert_eq!(memory["verdict"], "larger");
    assert!(value(&compared, "leaky", "page faults") > 7000.0);
    assert!(value(&compared, "glibc", "time") > 0.0 && value(&compared, "glibc", "user") > 0.0);
    let verdict = compared["verdict"].as_str().expect("a sentence");
    assert!(verdict.starts_with("Stay with glibc") || verdict.contains("times as much memory"), "{verdict}");

    let out = folder.path().join("out");
    let all = samples(&out);
    let count = |pass: &str, name: &str| {
        all.iter().filter(|sample| sample["pass"] == pass && sample["allocator"] == name).count()
    };
    assert_eq!((count("canary", "glibc"), count("canary", "leaky")), (1, 1), "a warm-up each");
    assert!(count("timed", "leaky") >= 10 && count("timed", "glibc (A/A)") >= 10);
    let malloc =
        &all.iter().find(|sample| sample["allocator"] == "leaky").expect("one")["result"]["served_by"][0];
    assert!(malloc["path"].as_str().expect("a path").ends_with("/libleaky.so"), "{malloc}");
    let page = fs::read_to_string(out.join("report.html")).expect("a report");
    assert!(page.contains("<svg role=\"img\"") && page.trim_end().ends_with("</html>"));
    assert!(!page.contains("src=") && out.join("plots/trade-off.svg").exists());
    assert_eq!(json(&out.join("run.json"))["preset"], "compare");
}

#[test]
fn a_static_program_is_measured_as_it_is_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let waits =
        "#include <stdlib.h>\n#include <unistd.h>\nint main(void) { return !malloc(9) || usleep(20000); }";
    program(folder.path(), "fixed", waits, &["-static"]);
    let twice = compare_and(folder.path(), &["-a", "glibc", "-r", "2", "--", "./fixed"], 5);
    assert_eq!((names(&twice), &twice["summary"]["blocks"]), (vec!["as-is"], &2.into()));
    // No time is spent on what can tell nothing.
    std::fs::remove_dir_all(folder.path().join("out")).expect("a folder");
    let compared = compare_and(folder.path(), &["-a", "glibc", "--", "./fixed"], 5);
    assert_eq!((names(&compared), &compared["summary"]["blocks"]), (vec!["as-is"], &1.into()));
    assert!(value(&compared, "as-is", "time") >= 0.02);
    assert_eq!(
        compared["verdict"],
        "Nothing can be compared: no allocator can take the place of the program's own, as the note says."
    );
    let notes = compared["notes"].to_string();
    assert!(notes.contains("No allocator can take the place of its own: it is statically linked"), "{notes}");
}

#[test]
fn a_program_on_another_allocator_has_a_row_for_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let library = library(folder.path(), "linked", SERVING, &["-Wl,-soname,liblinked.so"]);
    let at = format!("-Wl,-rpath,{}", folder.path().display());
    let library = library.display().to_string();
    program(folder.path(), "linked", CONTENDED, &["-pthread", &at, &library]);
    let compared = compare(folder.path(), &["-a", "glibc", "-r", "1", "--", "./linked"]);
    assert_eq!(names(&compared), ["glibc", "as-is"]);
    assert!(value(&compared, "as-is", "peak memory") > 110e6);
    assert!(value(&compared, "glibc", "peak memory") < 10e6, "the baseline is glibc all the same");
    let notes = compared["notes"].to_string();
    assert!(notes.contains("it is not glibc that serves it") && notes.contains("liblinked.so"), "{notes}");
}

#[test]
fn a_row_whose_program_runs_without_the_library_has_failed_and_a_child_is_noted() {
    let folder = tempfile::tempdir().expect("a folder");
    library(folder.path(), "good", SERVING, &[]);
    let waits =
        "#include <stdlib.h>\n#include <unistd.h>\nint main(void) { return !malloc(9) || usleep(50000); }";
    program(folder.path(), "waits", waits, &[]);
    let compared =
        compare_and(folder.path(), &["-a", "./libgood.so", "-r", "1", "--", "env", "-i", "./waits"], 5);
    let cells = &compared["summary"]["rows"][0]["cells"];
    assert_eq!((&cells[0]["status"], &cells[1]["status"]), (&"measured".into(), &"failed".into()));
    let gaps = compared["summary"]["gaps"].to_string();
    assert!(gaps.contains("malloc is served by another one: waits runs without /"), "{gaps}");
    fs::remove_dir_all(folder.path().join("out")).expect("removed");
    let script = ["-a", "./libgood.so", "-r", "1", "--", "sh", "-c", "env -i ./waits; :"];
    let notes = compare(folder.path(), &script)["notes"].to_string();
    assert!(notes.contains("waits among its processes runs without /"), "{notes}");
}

#[test]
fn processes_of_which_there_is_no_account_are_noted() {
    let folder = tempfile::tempdir().expect("a folder");
    let works = "#include <signal.h>\n#include <sys/wait.h>\n#include <time.h>\n#include <unistd.h>\n\
        int main(void) { signal(SIGCHLD, SIG_IGN); if (fork() == 0) { while (clock() < CLOCKS_PER_SEC / 4) {} _exit(0); }\n\
        while (wait(0) > 0) {} return 0; }";
    program(folder.path(), "works", works, &[]);
    let notes = compare(folder.path(), &["-a", "glibc", "-r", "1", "--", "./works"])["notes"].to_string();
    assert!(notes.contains("Nobody waits for some of its processes"), "{notes}");
}

#[test]
fn the_output_of_a_run_with_the_wrong_code_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    library(folder.path(), "good", SERVING, &[]);
    let script =
        "sleep 0.01; case $LD_PRELOAD in *good*) echo words; echo bad news >&2; exit 9;; esac; exit 4";
    let arguments = ["--exit-code", "4", "-a", "./libgood.so", "-r", "1", "--", "sh", "-c", script];
    let compared = compare_and(folder.path(), &arguments, 5);
    let reason = compared["summary"]["gaps"][0]["reason"].as_str().expect("text").to_owned();
    assert_eq!(reason, "exit code 9 instead of 4: bad news");
    let failed = folder.path().join("out/failed");
    assert_eq!(fs::read_to_string(failed.join("1-good.stdout")).expect("kept"), "words\n");
    assert_eq!(fs::read_to_string(failed.join("1-good.stderr")).expect("kept"), "bad news\n");
}

#[test]
fn metrics_are_read_and_every_run_reads_its_input_from_the_beginning() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("input"), "twelve bytes").expect("written");
    let script = "wc -c; echo took 8 ms >&2; sleep 0.01";
    let output = tool(folder.path())
        .args(["compare", "--json", "--out", "out", "-a", "glibc:arena_max=1", "-r", "2"])
        .args(["--metric", r"ms:lower=took (\d+) ms", "--metric", r"bytes=^(\d+)$", "--", "sh", "-c", script])
        .stdin(Stdio::from(File::open(folder.path().join("input")).expect("opened")))
        .output()
        .expect("runs");
    let (stdout, stderr) = texts(&output);
    assert!(output.status.success(), "{stderr}");
    let compared: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(value(&compared, "glibc", "bytes"), 12.0);
    assert_eq!(value(&compared, "glibc:arena_max=1", "ms"), 8.0);
    assert_eq!(compared["speed"]["metric"], "ms");
    let rate = &compared["summary"]["rows"][0]["cells"][0]["operations_per_second"]["value"];
    assert!((rate.as_f64().expect("a number") - 0.125).abs() < 1e-9, "less is better: {rate}");
}

#[test]
fn an_input_that_can_be_read_only_once_is_empty_and_a_note_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = "test $(wc -c) -eq 0 && sleep 0.01";
    let words = ["compare", "-a", "glibc", "-r", "1", "--out", "out", "--", "sh", "-c", script];
    let output = tool(folder.path()).args(words).stdin(Stdio::piped()).output().expect("runs");
    let (stdout, stderr) = texts(&output);
    assert!(
        output.status.success() && stdout.contains("Note: Standard input is a pipe"),
        "{stdout} {stderr}"
    );
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    for arguments in [
        &[][..],
        &["--", "no-such-command"],
        &["--metric", "plain", "--", "true"],
        &["--server", "x", "--", "true"],
        &["--server", "true", "--load", "true"],
        &["--server", "sh -c 'open", "--load", "true", "--port", "1"],
        &["-a", "nope", "--", "true"],
    ] {
        let (code, stderr) = refused(at, arguments);
        assert!(code == 2 && stderr.starts_with(['a', 'e']), "{arguments:?}: {code} {stderr}");
    }
    let (code, stderr) = refused(at, &["-a", "glibc", "--", "sh", "-c", "echo no luck >&2; exit 5"]);
    let expected = "ample: the program fails by itself, without any allocator preloaded: exit code 5 instead of \
                    0: no luck; where that is success: --exit-code 5\n";
    assert_eq!((code, stderr.as_str()), (1, expected));
    let (code, stderr) = refused(at, &["-a", "glibc", "--", "true"]);
    assert!(code == 1 && stderr.contains("too soon to be compared; give it more to do"), "{stderr}");
    assert!(!stderr.contains("Standard input"), "{stderr}");
    let (code, stderr) = refused(at, &["-a", "glibc", "--timeout", "0.2", "--", "sleep", "100"]);
    assert!(code == 1 && stderr.ends_with("it ran longer than 0.2 s; --timeout allows more\n"), "{stderr}");
    let mut broken = tool(at);
    broken.args(["compare", "-a", "glibc", "--", "sleep", "0.01"]).env("LD_PRELOAD", "/nonexist.so");
    let (_, stderr) = texts(&broken.output().expect("runs"));
    const LINKER: &str = "object '/nonexist.so' from LD_PRELOAD cannot be preloaded";
    let told =
        format!("\nample: LD_PRELOAD=/nonexist.so of your environment does not load: {LINKER} (cannot open");
    assert!(stderr.contains(&told) && stderr.ends_with("): ignored\n"), "{stderr}");
    let mut nowhere = tool(at);
    nowhere.args(["compare", "-a", "glibc", "--", "sleep", "0.01"]).env("TMPDIR", "/nonexistent");
    let (_, stderr) = texts(&nowhere.output().expect("runs"));
    let told = "ample: cannot make a folder for scratch files (TMPDIR says where): No such file or directory";
    assert!(stderr.starts_with(told), "{stderr}");
    let mut piped = tool(at);
    piped.args(["compare", "-a", "glibc", "--", "sh", "-c", "read x || exit 9"]).stdin(Stdio::piped());
    let (_, stderr) = texts(&piped.output().expect("runs"));
    assert!(stderr.contains("--exit-code 9. Standard input is a pipe, "), "{stderr}");
    let (code, stderr) = refused(at, &["-a", "glibc", "--metric", "n=x", "--", "sh", "-c", "echo y"]);
    assert_eq!((code, stderr.as_str()), (1, "ample: no 'n' in the output\n"));
}

#[test]
fn an_interruption_keeps_what_is_done_and_still_says_something() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let mut child = tool(folder.path())
        .args(["compare", "-a", "glibc:arena_max=1", "-r", "100000", "--out", "out", "--", "sleep", "0.02"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    let deadline = Instant::now() + Duration::from_secs(30);
    while fs::read_to_string(out.join("samples.jsonl")).unwrap_or_default().lines().count() < 6 {
        assert!(Instant::now() < deadline, "no samples");
        assert_eq!(child.try_wait().expect("waits"), None);
        sleep(Duration::from_millis(10));
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(killed.success());
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(130));
    let (stdout, _) = texts(&output);
    assert!(stdout.lines().next().expect("a line").ends_with("(Ended early by the user.)"), "{stdout}");
    assert_eq!(stdout.lines().last().expect("a line"), "report: out/report.html");
    assert!(samples(&out).len() >= 6 && json(&out.join("run.json"))["interrupted"] == true);
}

/// A port that nobody uses now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port()
}

/// Answers each connection with a word, and holds some memory.
const SERVER: &str = "import socket\n\
    listener = socket.create_server((\"127.0.0.1\", PORT))\n\
    held = []\n\
    while True:\n    connection, _ = listener.accept()\n    held.append(b\"x\" * (1 << 20))\n    \
    connection.sendall(b\"word\")\n    connection.close()\n";
/// Asks twenty times, and says how often.
const LOAD: &str = "import socket\n\
    for _ in range(20):\n    with socket.create_connection((\"127.0.0.1\", PORT)) as s: assert s.recv(9) == b\"word\"\n\
    print(\"asked 20 times\")\n";

#[test]
fn a_server_is_started_loaded_measured_and_stopped() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = free_port();
    for (name, text) in [("server.py", SERVER), ("load.py", LOAD)] {
        fs::write(folder.path().join(name), text.replace("PORT", &port.to_string())).expect("written");
    }
    let (port, metric) = (port.to_string(), r"asked=asked (\d+) times");
    let mut arguments = vec!["--server", "python3 server.py", "--load", "python3 load.py", "--port", &port];
    arguments.extend(["--metric", metric, "-a", "glibc:arena_max=1", "-r", "1"]);
    let compared = compare(folder.path(), &arguments);
    assert_eq!(names(&compared), ["glibc", "glibc:arena_max=1"]);
    assert_eq!(value(&compared, "glibc", "asked"), 20.0);
    let peak = value(&compared, "glibc", "peak memory");
    assert!((20e6..60e6).contains(&peak), "twenty times a mebibyte, and Python: {peak}");
    assert!(value(&compared, "glibc", "after the load") > 20e6);
    assert!(TcpListener::bind(format!("127.0.0.1:{port}")).is_ok(), "the server has gone");

    // One that never answers, and a port that is taken.
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let server = ["--server", "sleep 100", "--load", "true", "-a", "glibc", "--timeout", "1"];
    let (code, stderr) = refused(folder.path(), &[&server[..], &["--port", &port]].concat());
    assert!(code == 1 && stderr.contains(&format!("something answers on port {port} already")), "{stderr}");
    let (code, stderr) = refused(folder.path(), &[&server[..], &["--ready", "false"]].concat());
    let late = "the server was not ready: false did not succeed within 1 s; --timeout allows more\n";
    assert!(code == 1 && stderr.ends_with(late), "{stderr}");
    let nobody = free_port();
    let (_, stderr) = refused(folder.path(), &[&server[..], &["--port", &nobody.to_string()]].concat());
    let late = format!("the server did not answer on port {nobody} within 1 s; --timeout allows more\n");
    assert!(stderr.ends_with(&late), "{stderr}");

    // Loads that fail.
    let load = |load: &str| {
        let arguments =
            ["--server", "sleep 100", "-a", "glibc", "--timeout", "5", "--ready", "true", "--load", load];
        refused(folder.path(), &arguments).1
    };
    const FIRST: &str = "ample: it fails without any allocator preloaded: the load";
    assert_eq!(
        load("false"),
        format!("{FIRST} (false) fails: exit code 1 instead of 0; where that is success: --exit-code 1\n")
    );
    let missing = load("nosuchload");
    assert!(missing.starts_with(&format!("{FIRST} fails: cannot run nosuchload: No such file")), "{missing}");

    // One that ends before it answers: how, and what may be done about it.
    let ends = |server: &str| {
        let arguments = ["--load", "true", "-a", "glibc", "--ready", "false", "--server", server];
        refused(folder.path(), &arguments).1
    };
    let crashed = ends("sh -c 'kill -SEGV $$'");
    assert!(
        crashed.contains("the server ended before it answered: killed by SIGSEGV (signal 11)"),
        "{crashed}"
    );
    let gave_up = ends("sh -c 'echo no such file; exit 7'");
    assert!(
        gave_up.contains("the server ended before it answered with exit code 7: no such file"),
        "{gave_up}"
    );
    assert!(!(crashed + &gave_up).contains("background"));
    assert!(ends("true").contains("with exit code 0 (one that goes to the background must be told to stay)"));
}

#[test]
fn without_glibc_or_without_another_nothing_can_be_compared() {
    let folder = tempfile::tempdir().expect("a folder");
    let crash = "__attribute__((constructor)) void s(void) { *(volatile int *)0 = 1; }";
    library(folder.path(), "crash", crash, &[]);
    library(folder.path(), "leaky", SERVING, &[]);
    library(folder.path(), "other", SERVING, &[]);
    let verdict = |arguments: &[&str]| {
        let mut command = tool(folder.path());
        command.args(["compare", "--json", "-r", "1"]).args(arguments);
        let output = command.stdin(Stdio::null()).output().expect("runs");
        let (stdout, stderr) = texts(&output);
        assert_eq!(output.status.code(), Some(5), "{stderr}");
        let compared: Value = serde_json::from_str(&stdout).expect("JSON");
        compared["verdict"].as_str().expect("a sentence").to_owned()
    };
    let alone = verdict(&["--out", "alone", "-a", "./libcrash.so", "--", "sleep", "0.02"]);
    assert!(alone.starts_with("Nothing can be compared: only 'glibc' has numbers. crash: "), "{alone}");
    let not_on_glibc = "sleep 0.02; case \"$LD_PRELOAD\" in *libc.so*) exit 3;; esac";
    let arguments = ["--out", "several", "-a", "./libleaky.so,./libother.so", "--", "sh", "-c", not_on_glibc];
    let several = verdict(&arguments);
    assert!(
        several.starts_with(
            "Nothing can be compared with glibc, which has no numbers; 'leaky', 'other' have some. glibc"
        ),
        "{several}"
    );
}

#[test]
fn redis_is_compared_with_its_own_allocator() {
    let there = |name: &str| Command::new(name).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !there("redis-server") || !there("redis-benchmark") {
        eprintln!("skipped: redis-server and redis-benchmark are not installed");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let port = free_port();
    let server = format!("redis-server --port {port} --bind 127.0.0.1 --save '' --appendonly no");
    let load = format!("redis-benchmark -p {port} -n 2000 -c 4 -t set -q");
    let (port, metric) = (port.to_string(), r"SET=^SET: ([\d.]+) requests");
    let mut arguments = vec!["--server", &server, "--load", &load, "--port", &port, "--metric", metric];
    arguments.extend(["-a", "glibc", "-r", "1"]);
    let compared = compare(folder.path(), &arguments);
    assert!(value(&compared, "glibc", "SET") > 0.0, "{compared}");
    assert!(value(&compared, "glibc", "peak memory") > 1e6, "{compared}");
}

/// Each thread takes, fills and gives back large buffers.
const USERS: &str = include_str!("../../../tests/programs/users.c");

#[test]
fn a_fixed_threshold_is_seen_to_fault_in_every_buffer_and_a_sliding_one_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    program(folder.path(), "users", USERS, &["-O2", "-pthread"]);
    // Pages of all buffers of a thread: 24 000 requests of 200 KiB.
    const PAGES: f64 = 24_000.0 * 50.0;
    for threads in ["1", "2"] {
        let fixed = "glibc:mmap_threshold=131072";
        let compared = compare(folder.path(), &["-a", fixed, "-r", "1", "--", "./users", threads, "24000"]);
        let faults = |name| value(&compared, name, "page faults");
        assert!(faults(fixed) >= PAGES, "{threads}: {}", faults(fixed));
        assert!(faults("glibc") < PAGES / 10.0, "{threads}: {}", faults("glibc"));
        fs::remove_dir_all(folder.path().join("out")).expect("removed");
    }
}

#[test]
fn a_program_is_run_on_several_thread_counts_and_said_to_scale() {
    let folder = tempfile::tempdir().expect("a folder");
    let rate = ["--metric", r"rate=rate (\d+)"];
    let script =
        ["-r", "10", "-a", "glibc", "--threads", "1,2", "--", "sh", "-c", "sleep 0.02; echo rate {threads}0"];
    let compared = compare(folder.path(), &[&rate[..], &script[..]].concat());
    // The figures are those of the most threads.
    assert_eq!(value(&compared, "glibc", "rate"), 20.0, "{compared}");
    let scaling = &compared["scaling"][0];
    assert_eq!(
        (&scaling["from"], &scaling["to"], &scaling["word"]),
        (&1.into(), &2.into(), &"scales".into())
    );
    let factor = scaling["factor"]["value"].as_f64().expect("a number");
    assert!((factor - 2.0).abs() < 1e-9, "{factor}");
    let verdict = compared["verdict"].as_str().expect("a sentence");
    assert!(
        verdict.contains("From 1 to 2 threads") && verdict.contains("it scales on glibc (2.00"),
        "{verdict}"
    );
    let page = fs::read_to_string(folder.path().join("out/report.html")).expect("a page");
    assert!(page.contains("How it scales"));
    assert!(page.contains("(here on 2 threads 0.0 % in speed, "), "which noise floor is whose");
}

#[test]
fn work_that_threads_share_out_is_not_said_to_scale() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done; : {threads}";
    // One run on a busy machine may take twice the processor time of another.
    let words = ["-r", "9", "-a", "glibc", "--threads", "1,2", "--", "sh", "-c", script];
    let compared = compare(folder.path(), &words);
    assert!(compared["scaling"][0]["factor"].is_null(), "{compared}");
    let verdict = compared["verdict"].as_str().expect("a sentence");
    assert!(verdict.contains("the processor time did not grow with the threads, so the work"), "{verdict}");
    assert!(!verdict.contains("it scales on"), "{verdict}");
    let page = fs::read_to_string(folder.path().join("out/report.html")).expect("a page");
    assert!(page.contains("cannot be told: the processor time did not grow with the threads"));
}

#[test]
fn one_block_shows_no_intervals() {
    let folder = tempfile::tempdir().expect("a folder");
    library(folder.path(), "good", SERVING, &[]);
    let compared = compare(folder.path(), &["-a", "./libgood.so", "-r", "1", "--", "sleep", "0.02"]);
    let throughput = &compared["summary"]["rows"][0]["cells"][1]["throughput"];
    assert!(throughput["value"].is_f64() && throughput["high"].is_null(), "{throughput}");
    let verdict = compared["verdict"].as_str().expect("a sentence");
    assert!(verdict.starts_with("Nothing is clearly faster than glibc so far"), "{verdict}");
    let page = fs::read_to_string(folder.path().join("out/report.html")).expect("a page");
    assert!(page.contains("(here unknown in speed, unknown in memory)") && page.contains("<small>?</small>"));
    assert!(!page.contains("inf %") && !page.contains("–inf"));
}

#[test]
fn thread_counts_need_a_place_in_the_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, stderr) = refused(folder.path(), &["--threads", "1,2", "--", "sleep", "0.02"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("--threads puts its numbers in for {threads}"), "{stderr}");
}
