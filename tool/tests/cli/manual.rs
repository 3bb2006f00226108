//! Completions and manual pages of the finished tool.

use std::fs;
use std::process::{Command, Stdio};

use crate::common::{texts, tool};

const COMMANDS: [&str; 6] = ["bench", "compare", "run", "selftest", "allocators", "workloads"];

#[test]
fn every_shell_gets_completions_that_it_can_read() {
    let folder = tempfile::tempdir().expect("a folder");
    for shell in ["bash", "zsh", "fish"] {
        let output = tool(folder.path()).args(["completions", shell]).output().expect("runs");
        let (script, stderr) = texts(&output);
        assert!(output.status.success(), "{stderr}");
        for command in COMMANDS {
            assert!(script.contains(command), "{shell}: {command}");
        }
        let file = folder.path().join(shell);
        fs::write(&file, script).expect("written");
        let found = Command::new(shell).arg("-c").arg("true").stderr(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            eprintln!("skipped: {shell} is not installed, so its completions were not read by it");
            continue;
        }
        let checked = Command::new(shell).arg("-n").arg(&file).status().expect("runs");
        assert!(checked.success(), "{shell} cannot read its completions");
    }
    let refused = tool(folder.path()).args(["completions", "tcl"]).output().expect("runs");
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = tool(folder.path()).args(["man", "share/man/man1"]).output().expect("runs");
    assert!(output.status.success(), "{}", texts(&output).1);
    let pages = folder.path().join("share/man/man1");
    let main = fs::read_to_string(pages.join("ample.1")).expect("a page");
    assert!(main.contains(".TH ample 1") && main.contains("Compares memory allocators honestly"), "{main}");
    for command in COMMANDS {
        let page = fs::read_to_string(pages.join(format!("ample-{command}.1"))).expect("a page");
        assert!(page.contains(".SH SYNOPSIS"), "{command}");
    }
    fs::write(folder.path().join("file"), "").expect("written");
    let refused = tool(folder.path()).args(["man", "file"]).output().expect("runs");
    assert_eq!(refused.status.code(), Some(1));
    assert!(texts(&refused).1.contains("cannot make the folder file"));
}

#[test]
fn the_help_has_every_preset_and_says_which_options_exclude_each_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let ample = |arguments: &[&str]| {
        let (out, error) = texts(&tool(folder.path()).args(arguments).output().expect("runs"));
        (out + &error).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let help = ample(&["bench", "--help"]);
    let refusal = ample(&["bench", "--preset", "nope"]);
    let names = refusal.split_once("valid: ").expect("names").1.split(" For more").next().expect("one");
    assert!(names.split(", ").count() > 10, "{names}");
    for name in names.split(", ") {
        assert!(help.contains(&format!("{name} (")), "{name}: {help}");
    }
    for help in [help, ample(&["compare", "--help"])] {
        let both = ["not together with --budget", "not together with --runs"];
        assert!(both.iter().all(|text| help.contains(text)), "{help}");
    }
}
