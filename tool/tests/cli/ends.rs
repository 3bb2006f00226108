//! What is left when the tool, or a run of it, has ended: a report where there can be one, and no process.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{json, texts, tool};

const LONG: Duration = Duration::from_secs(30);

/// Waits until this is so.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !so() {
        assert!(Instant::now() < deadline, "{what}");
        sleep(Duration::from_millis(10));
    }
}

/// A comparison of something that writes its number into a file of this name, and lasts.
fn endless(folder: &Path, runs: &str) -> Command {
    let mut command = tool(folder);
    command.args(["compare", "-a", "glibc:arena_max=1", "-r", runs, "--out", "out", "--"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts it with this answer to a closed terminal, whatever the answer is to what started the tests.
fn spawn(command: &mut Command, answer: libc::sighandler_t) -> Child {
    let set = move || {
        // SAFETY: changes what one signal does, in a process that nothing else runs in.
        unsafe { libc::signal(libc::SIGHUP, answer) };
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes one system call.
    unsafe { command.pre_exec(set) }.spawn().expect("runs")
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill");
    assert!(sent.success());
}

/// Whether the process whose number this file holds is alive.
fn is_alive(file: &Path) -> bool {
    let pid = fs::read_to_string(file).expect("a number");
    let state = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    !matches!(state.rsplit(") ").next().and_then(|rest| rest.chars().next()), None | Some('Z'))
}

#[test]
fn a_closed_terminal_is_an_interruption_unless_it_is_to_be_ignored() {
    let folder = tempfile::tempdir().expect("a folder");
    let samples = folder.path().join("out/samples.jsonl");
    let count = || fs::read_to_string(&samples).unwrap_or_default().lines().count();
    let start = |answer| spawn(endless(folder.path(), "100000").args(["sleep", "0.02"]), answer);
    let child = start(libc::SIG_DFL);
    until("no samples", || count() >= 4);
    signal(&child, "-HUP");
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(130));
    assert!(texts(&output).0.contains("(Ended early by the user.)"));
    assert_eq!(json(&folder.path().join("out/run.json"))["interrupted"], true);

    fs::remove_dir_all(folder.path().join("out")).expect("removed");
    let mut child = start(libc::SIG_IGN);
    until("no samples", || count() >= 4);
    signal(&child, "-HUP");
    let before = count();
    until("it goes on", || count() >= before + 4);
    assert_eq!(child.try_wait().expect("waits"), None);
    signal(&child, "-TERM");
    assert_eq!(child.wait_with_output().expect("ends").status.code(), Some(130));
}

#[test]
fn a_tool_that_is_killed_takes_the_program_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let pid = folder.path().join("pid");
    let mut compared = endless(folder.path(), "1");
    let mut checked = tool(folder.path());
    checked.args(["run", "-a", "glibc", "--check", "--"]);
    for command in [&mut compared, &mut checked] {
        let mut child = command.args(["sh", "-c", "echo $$ >pid; exec sleep 1000"]).spawn().expect("runs");
        until("no number", || fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n')));
        assert!(is_alive(&pid));
        signal(&child, "-KILL");
        child.wait().expect("ends");
        until("it lives on", || !is_alive(&pid));
        fs::remove_file(&pid).expect("removed");
    }
}

#[test]
fn what_leaves_its_session_ends_with_its_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = "setsid sh -c 'echo $$ >>left; sleep 1000 & exec sleep 1000' & sleep 0.1";
    let output = endless(folder.path(), "1").args(["sh", "-c", script]).output().expect("runs");
    assert!(output.status.success(), "{}", texts(&output).1);
    let left = fs::read_to_string(folder.path().join("left")).expect("numbers");
    assert!(left.lines().count() >= 4, "{left}");
    let one = folder.path().join("one");
    for pid in left.lines() {
        fs::write(&one, pid).expect("written");
        assert!(!is_alive(&one), "{pid}");
    }
}

#[test]
fn a_program_that_wants_a_terminal_fails_at_once() {
    if Command::new("script").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: script is not installed: programs that want a terminal are not tested");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("wants"), "sleep 0.02\nread x </dev/tty || exit 7\n").expect("written");
    let tool_line = format!("{} compare -a glibc -r 1 -- sh wants", env!("CARGO_BIN_EXE_ample"));
    let mut command = Command::new("script");
    command.current_dir(&folder).args(["-qec", &tool_line, "/dev/null"]).stdin(Stdio::null());
    let begin = Instant::now();
    let output = command.env("AMPLE_LIMITS_DIR", crate::common::limits()).output().expect("runs");
    assert!(begin.elapsed() < LONG);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("exit code") && said.contains("/dev/tty"), "{said}");
}
