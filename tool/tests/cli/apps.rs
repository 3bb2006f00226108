//! `ample bench --apps`: real programs at test size, and programs that go wrong.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::common::{SERVING, json, library, samples, statuses, texts, tool};

/// Runs `ample bench --apps LIST` at test size, with only these programs to be found.
fn apps(folder: &Path, list: &str, more: &[&str]) -> Output {
    library(folder, "good", SERVING, &[]);
    let mut command = tool(folder);
    command.env("PATH", folder.join("bin")).args(["bench", "--quick", "-a", "./libgood.so", "--apps", list]);
    command.args(more).output().expect("runs")
}

fn bin(folder: &Path) -> PathBuf {
    let bin = folder.join("bin");
    fs::create_dir_all(&bin).expect("created");
    bin
}

/// Offers a program of this system.
fn offer(folder: &Path, name: &str) {
    let places = ["/usr/bin", "/bin"].map(|place| Path::new(place).join(name));
    let found = places.iter().find(|path| path.exists()).expect("every Debian has it");
    symlink(found, bin(folder).join(name)).expect("linked");
}

/// Offers a script under a program's name.
fn pretend(folder: &Path, name: &str, script: &str) {
    let path = bin(folder).join(name);
    fs::write(&path, script).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("allowed");
}

#[test]
fn apps_that_are_there_are_measured_and_the_others_say_how_they_are_got() {
    let folder = tempfile::tempdir().expect("a folder");
    offer(folder.path(), "sort");
    offer(folder.path(), "perl");
    let output = apps(folder.path(), "sort,perl,redis", &["-r", "1", "--json", "--out", "out"]);
    let (stdout, stderr) = texts(&output);
    assert!(output.status.success(), "{stderr}");
    let summary: Value = serde_json::from_str(&stdout).expect("JSON and nothing else");
    for allocator in ["glibc", "good"] {
        assert_eq!(statuses(&summary, allocator), ["measured", "measured", "not-measurable"], "{summary}");
    }
    let gap = &summary["gaps"][0];
    assert_eq!(gap["reason"], "not installed: apt-get install redis-server redis-tools");
    let out = folder.path().join("out");
    let all = samples(&out);
    let of_perl: Vec<&Value> = all.iter().filter(|sample| sample["workload"] == "perl").collect();
    // Each allocator's warm-up, then one block with the baseline's twin.
    assert_eq!(of_perl.len(), 2 + 3);
    let served = |sample: &Value| sample["result"]["served_by"][0]["path"].as_str().map(str::to_owned);
    let good = of_perl.iter().find(|sample| sample["allocator"] == "good").expect("a sample");
    assert!(served(good).expect("a path").ends_with("libgood.so"));
    assert_eq!(json(&out.join("run.json"))["preset"], "apps, quick");
    assert!(fs::read_to_string(out.join("report.html")).expect("a page").contains("sort"));
}

#[test]
fn a_wrong_output_is_a_failed_row_and_never_a_number() {
    let folder = tempfile::tempdir().expect("a folder");
    let differs = "#!/bin/sh\ni=0; while [ $i -lt 100000 ]; do i=$((i+1)); done\n\
                   case $LD_PRELOAD in *libgood*) echo 7 wrong;; *) echo 7 right;; esac\n";
    pretend(folder.path(), "perl", differs);
    // One that loses lines, whatever serves it.
    let loses = "#!/bin/sh\nwhile [ \"$1\" != -o ]; do shift; done\n\
                 i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo line >\"$2\"\n";
    pretend(folder.path(), "sort", loses);
    let output = apps(folder.path(), "perl,sort", &["-r", "1", "--json", "--out", "out"]);
    let (stdout, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(5), "no row can be compared: {stderr}");
    let summary: Value = serde_json::from_str(&stdout).expect("JSON and nothing else");
    assert_eq!(statuses(&summary, "glibc"), ["measured", "failed"], "{summary}");
    assert_eq!(statuses(&summary, "good"), ["failed", "failed"]);
    let gaps = summary["gaps"].to_string();
    assert!(
        gaps.contains("wrong output: 7 wrong instead of 7 right, which it is without a preload"),
        "{gaps}"
    );
    assert!(gaps.contains("fails by itself") && gaps.contains("1 lines instead of 20000"), "{gaps}");
    let kept = fs::read_to_string(folder.path().join("out/perl/failed/1-good.stdout")).expect("kept");
    assert_eq!(kept, "7 wrong\n");
}

#[test]
fn an_input_that_cannot_be_made_fails_its_row_only() {
    let folder = tempfile::tempdir().expect("a folder");
    offer(folder.path(), "sort");
    for name in ["slapd", "slapcat", "ldapsearch", "ldapmodify"] {
        pretend(folder.path(), name, "#!/bin/sh\n");
    }
    pretend(folder.path(), "slapadd", "#!/bin/sh\necho no luck >&2\nexit 1\n");
    let output = apps(folder.path(), "slapd,sort", &["-r", "1", "--json", "--out", "out"]);
    let (stdout, stderr) = texts(&output);
    assert!(output.status.success(), "{stderr}");
    let summary: Value = serde_json::from_str(&stdout).expect("JSON and nothing else");
    assert_eq!(statuses(&summary, "good"), ["failed", "measured"], "{summary}");
    assert_eq!(summary["gaps"][0]["reason"], "its input cannot be made: slapadd: no luck");
}

#[test]
fn nothing_to_measure_and_nonsense_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    bin(folder.path());
    let refused = |list: &str, more: &[&str]| {
        let output = apps(folder.path(), list, more);
        assert!(!folder.path().join("ample-out").exists(), "no output folder is left behind");
        (output.status.code().expect("a code"), texts(&output).1)
    };
    let (code, stderr) = refused("sort", &[]);
    let expected = "ample: none of these programs is installed; run: apt-get install coreutils\n";
    assert_eq!((code, stderr.as_str()), (1, expected));
    let (code, stderr) = refused("srot", &[]);
    assert!(code == 2 && stderr.contains("did you mean 'sort'?"), "{stderr}");
    assert_eq!(refused("sort", &["--threads", "2"]).0, 2);
    let output = apps(folder.path(), "sort,redis", &["--dry-run"]);
    let (stdout, _) = texts(&output);
    assert!(output.status.success() && stdout.contains("apt-get install coreutils"), "{stdout}");
}

#[test]
fn the_list_of_workloads_names_the_apps() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = tool(folder.path()).arg("workloads").output().expect("runs");
    let (stdout, _) = texts(&output);
    for app in
        ["slapd", "redis", "rsyslog", "mariadb", "tokenizers", "ghostscript", "rocksdb", "cppcheck", "ruby"]
    {
        assert!(stdout.lines().any(|line| line.trim_start().starts_with(app)), "{app}: {stdout}");
    }
}

#[test]
fn every_app_that_is_installed_passes_its_own_check() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("tmp")).expect("created");
    let mut command = tool(folder.path());
    command.env("TMPDIR", folder.path().join("tmp"));
    command.args([
        "bench",
        "--apps",
        "--quick",
        "-a",
        "glibc:arena_max=1",
        "-r",
        "1",
        "--json",
        "--out",
        "out",
    ]);
    let (stdout, stderr) = texts(&command.output().expect("runs"));
    let summary: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stderr}"));
    for gap in summary["gaps"].as_array().expect("a list") {
        assert_eq!(gap["failed"], false, "{gap}");
        eprintln!("skipped: {}: {}", gap["workload"], gap["reason"]);
    }
    let measured = statuses(&summary, "glibc").into_iter().filter(|status| *status == "measured").count();
    assert!(measured >= 3, "gcc, perl and sort are on every machine that builds this: {summary}");
    for row in summary["kept"]["rows"].as_array().expect("a list") {
        assert!(
            row["bytes"].as_array().expect("a list").iter().all(|bytes| bytes.as_f64() > Some(1e5)),
            "{row}"
        );
    }
    let left = fs::read_dir(folder.path().join("tmp")).expect("a folder").count();
    assert_eq!(left, 0, "the scratch folder has gone");
}
