//! `ample run` with real programs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Output, Stdio};

use crate::common::{library, program, texts, tool};

/// A whole allocator that never frees.
const SERVING: &str = include_str!("serving.c");
const PLAIN: &str = "#include <stdlib.h>\nint main(void) { free(malloc(9)); return 0; }";

/// Runs `ample run -a ./libgood.so` with these further words.
fn run(folder: &Path, words: &[&str]) -> Output {
    library(folder, "good", SERVING, &[]);
    tool(folder).args(["run", "-a", "./libgood.so"]).args(words).output().expect("runs")
}

#[test]
fn output_and_end_are_the_programs_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = run(folder.path(), &["--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!((texts(&output), output.status.code()), (("out\n".into(), "err\n".into()), Some(7)));
    let output = run(folder.path(), &["--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!((output.status.signal(), texts(&output).1.as_str()), (Some(libc::SIGTERM), ""));
    let preloaded = run(folder.path(), &["--", "sh", "-c", "echo $LD_PRELOAD"]);
    assert!(texts(&preloaded).0.ends_with("/libgood.so\n"));
}

#[test]
fn standard_input_reaches_the_program_and_settings_its_environment() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("input"), "twelve bytes").expect("written");
    let output = tool(folder.path())
        .args(["run", "-a", "glibc:arena_max=1", "--", "sh", "-c", "cat; echo \" $GLIBC_TUNABLES\""])
        .stdin(Stdio::from(fs::File::open(folder.path().join("input")).expect("opened")))
        .output()
        .expect("runs");
    assert_eq!(texts(&output).0, "twelve bytes glibc.malloc.arena_max=1\n");
}

#[test]
fn what_cannot_be_started_has_the_exit_code_of_env() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |words: &[&str]| {
        let output = run(folder.path(), words);
        let (stdout, stderr) = texts(&output);
        assert_eq!((stdout.as_str(), stderr.lines().count()), ("", 1), "{stderr}");
        (output.status.code().expect("a code"), stderr)
    };
    fs::write(folder.path().join("file"), "").expect("written");
    assert_eq!(refused(&["--", "no-such"]), (127, "ample: there is no command 'no-such' in PATH\n".into()));
    assert_eq!(refused(&["--", "./file"]), (126, "ample: ./file cannot be executed\n".into()));
    let output = tool(folder.path()).args(["run", "-a", "nope", "--", "true"]).output().expect("runs");
    assert_eq!(output.status.code(), Some(125));
    assert!(texts(&output).1.starts_with("ample: unknown allocator 'nope'"));
    assert_eq!(refused(&["--check", "--", "no-such"]).0, 2);
    let nothing = run(folder.path(), &[]);
    assert_eq!(nothing.status.code(), Some(2));
}

#[test]
fn where_the_allocator_cannot_serve_one_line_says_so_and_the_program_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    program(folder.path(), "fixed", PLAIN, &["-static"]);
    let output = run(folder.path(), &["--", "./fixed"]);
    let expected = "ample: good does not serve fixed: it is statically linked: it has its malloc inside\n";
    assert_eq!((texts(&output).1.as_str(), output.status.code()), (expected, Some(0)));
    assert_eq!(texts(&run(folder.path(), &["--quiet", "--", "./fixed"])).1, "");
    // What no file tells is seen in the process itself.
    let output = run(folder.path(), &["--", "env", "-u", "LD_PRELOAD", "sleep", "2"]);
    let (_, stderr) = texts(&output);
    assert!(
        stderr.starts_with("ample: good does not serve env: ") && stderr.contains("is not in"),
        "{stderr}"
    );
}

#[test]
fn a_check_is_passed_only_where_the_allocator_serves_every_process() {
    let folder = tempfile::tempdir().expect("a folder");
    program(folder.path(), "fixed", PLAIN, &["-static"]);
    // glibc's own calls of malloc need a whole family.
    program(folder.path(), "own", SERVING_PROGRAM, &["-fno-builtin", "-rdynamic"]);
    let script = folder.path().join("script");
    fs::write(&script, "#!/bin/sh\nexit 3\n").expect("written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("allowed");
    let check = |words: &[&str]| {
        let words: Vec<&str> = ["--check", "--"].iter().chain(words).copied().collect();
        let output = run(folder.path(), &words);
        (output.status.code().expect("a code"), texts(&output).1)
    };
    for (words, code, says) in [
        (&["sh", "-c", "true"][..], 0, "ample: sh: good serves malloc in 1 process (sh): "),
        (&["sh", "-c", "ls >/dev/null; exit 4"], 0, "good serves malloc in 2 processes (ls, sh): "),
        (&["./script"], 0, "script is a script; /bin/sh runs it"),
        (&["./fixed"], 1, "good does not serve it: it is statically linked"),
        (&["./own"], 1, "good does not serve it: it brings a malloc of its own"),
        (&["sh", "-c", "./own; exit 0"], 1, "malloc of own is served by "),
        (&["sh", "-c", "env -u LD_PRELOAD ls >/dev/null; exit 0"], 1, "malloc of ls is served by "),
    ] {
        let (found, stderr) = check(words);
        assert!(found == code && stderr.contains(says), "{words:?}: {found} {stderr}");
    }
    let quiet = run(folder.path(), &["--check", "--quiet", "--", "sh", "-c", "echo out"]);
    assert_eq!((texts(&quiet), quiet.status.code()), (("out\n".into(), String::new()), Some(0)));
}

#[test]
fn what_runs_without_the_library_is_named_although_no_record_has_it() {
    const WAITS: &str =
        "#include <stdlib.h>\n#include <unistd.h>\nint main(void) { return !malloc(9) || usleep(100000); }";
    let folder = tempfile::tempdir().expect("a folder");
    program(folder.path(), "waits", WAITS, &[]);
    program(folder.path(), "plain", PLAIN, &[]);
    program(folder.path(), "fixed", WAITS, &["-static"]);
    let without = "but not of all its processes: waits runs without /";
    let unseen = "but not of all its processes: plain left no record, and ended before it could be looked at";
    for (words, code, says) in [
        (&["env", "-i", "./waits"][..], 1, without),
        (&["sh", "-c", "env -i ./waits; :"], 1, without),
        (&["env", "-u", "LD_PRELOAD", "-u", "LD_DEBUG", "-u", "LD_DEBUG_OUTPUT", "./waits"], 1, without),
        (&["sh", "-c", "env -i ./fixed; :"], 1, "fixed is statically linked"),
        (&["env", "-i", "./plain"], 1, unseen),
        (&["env", "./waits"], 0, "good serves malloc in 1 process (env, waits)"),
        (&["sh", "-c", "./plain; (./plain); ls | cat; ./waits; ./plain"], 0, "(cat, ls, plain, sh, waits): "),
    ] {
        let words: Vec<&str> = ["--check", "--"].iter().chain(words).copied().collect();
        let output = run(folder.path(), &words);
        let stderr = texts(&output).1;
        let as_expected = output.status.code() == Some(code)
            && (stderr.contains(says) || says == unseen && stderr.contains("plain runs without /"));
        assert!(as_expected, "{words:?}: {} {stderr}", output.status);
    }
}

/// A program with the whole family of its own.
const SERVING_PROGRAM: &str =
    concat!(include_str!("serving.c"), "\nint main(void) { return malloc(9) == 0; }\n");
