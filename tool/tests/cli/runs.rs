//! Runs that were measured before: gone on with, merged, held against each other, remembered.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{json, library, samples, texts, tool};

/// glibc's malloc behind a lock: something that serves, and is not glibc.
const SERVING: &str = include_str!("../../../bench/limits/single-lock.c");
/// What makes each of its processes 64 MiB larger.
const FAT: &str = "\n#include <sys/mman.h>\n__attribute__((constructor)) static void fatten(void) {\n    \
    mmap(0, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);\n}\n";

fn ample(folder: &Path, arguments: &[&str]) -> Output {
    tool(folder).args(arguments).output().expect("runs")
}

/// Runs the tool, which must succeed: its standard output.
fn done(folder: &Path, arguments: &[&str]) -> String {
    let output = ample(folder, arguments);
    let (stdout, stderr) = texts(&output);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    stdout
}

/// Runs the tool, which must fail with this code: its only line on standard error.
fn refused(folder: &Path, code: i32, arguments: &[&str]) -> String {
    let output = ample(folder, arguments);
    let (_, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    stderr
}

fn larson<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["bench", "larson", "-a", "glibc", "-t", "1", "--quick"];
    arguments.extend(more);
    arguments
}

/// A copy of a run with another record.
fn altered(folder: &Path, from: &str, to: &str, change: impl FnOnce(&mut Value)) {
    fs::create_dir(folder.join(to)).expect("made");
    fs::copy(folder.join(from).join("samples.jsonl"), folder.join(to).join("samples.jsonl")).expect("copied");
    let mut run = json(&folder.join(from).join("run.json"));
    change(&mut run);
    fs::write(folder.join(to).join("run.json"), run.to_string()).expect("written");
}

/// Begins a run of larson that lasts a while, and ends it by a signal after a few samples: what it says then.
fn interrupted(folder: &Path, out: &str, signal: &str) -> String {
    let mut child = tool(folder)
        .args(larson(&["--runs", "16", "--out", out]))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    let deadline = Instant::now() + Duration::from_secs(30);
    let file = folder.join(out).join("samples.jsonl");
    while fs::read_to_string(&file).unwrap_or_default().lines().count() < 7 {
        assert!(Instant::now() < deadline, "no samples");
        assert_eq!(child.try_wait().expect("waits"), None);
        sleep(Duration::from_millis(5));
    }
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill");
    assert!(sent.success());
    texts(&child.wait_with_output().expect("ends")).1
}

/// Timed samples that count, by block: of each block those of the last attempt.
fn counting(folder: &Path) -> usize {
    let timed: Vec<Value> = samples(folder).into_iter().filter(|sample| !sample["block"].is_null()).collect();
    let last = |sample: &&Value| {
        !timed.iter().any(|other| {
            other["block"] == sample["block"] && other["attempt"].as_u64() > sample["attempt"].as_u64()
        })
    };
    timed.iter().filter(last).count()
}

#[test]
fn an_interrupted_run_goes_on_to_its_end_and_what_is_there_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    for (out, signal) in [("stopped", "-INT"), ("killed", "-KILL")] {
        let said = interrupted(folder.path(), out, signal);
        let told = said == "ample: ended early; to go on with the run: ample bench --resume stopped\n";
        assert!(told == (signal == "-INT"), "{said}");
        let path = folder.path().join(out);
        let file = path.join("samples.jsonl");
        let mut before = fs::read_to_string(&file).expect("samples");
        before.truncate(before.rfind('\n').map_or(0, |end| end + 1));
        if signal == "-KILL" {
            fs::write(&file, format!("{before}{{\"schema_version\":1,\"pa")).expect("written");
        }
        let stdout = done(folder.path(), &["bench", "--resume", out]);
        assert!(stdout.ends_with(&format!("report: {out}/report.html\n")), "{stdout}");
        let after = fs::read_to_string(&file).expect("samples");
        assert!(after.starts_with(&before) && after.ends_with('\n'), "nothing is lost or cut in two");
        let run = json(&path.join("run.json"));
        assert_eq!((&run["blocks"], &run["interrupted"]), (&16.into(), &false.into()));
        assert_eq!(run["resumed"].as_array().expect("a list").len(), 1);
        assert_eq!(run["command"][1], "bench");
        // glibc and its twin in each block.
        assert_eq!(counting(&path), 2 * 16);
        let lines = after.lines().count();
        done(folder.path(), &["bench", "--resume", out]);
        assert_eq!(samples(&path).len(), lines, "a finished run is only reported again");
    }
}

#[test]
fn a_run_that_would_be_another_one_is_not_gone_on_with() {
    let folder = tempfile::tempdir().expect("a folder");
    done(folder.path(), &larson(&["--runs", "1", "--out", "run"]));
    let refused = |name: &str, change: &dyn Fn(&mut Value)| {
        altered(folder.path(), "run", name, change);
        let before = fs::read(folder.path().join(name).join("run.json")).expect("a file");
        let line = refused(folder.path(), 1, &["bench", "--resume", name]);
        assert_eq!(fs::read(folder.path().join(name).join("run.json")).expect("a file"), before);
        line
    };
    let line = refused("machine", &|run| run["machine"]["cpus"] = 4096.into());
    assert!(line.contains(
        "cannot go on with machine: that would be another machine, then and now: usable CPUs: 4096"
    ));
    let line = refused("file", &|run| run["allocators"][0]["sha256"] = "ff".into());
    assert!(line.contains("that would be other files, then and now: allocator glibc: SHA-256 ff"), "{line}");
    let line = refused("plan", &|run| run["workloads"][0]["settings"]["rounds"] = 9.into());
    assert!(line.contains("that would be another plan, then and now: workload larson"), "{line}");
    let line =
        refused("compare", &|run| run["command"] = serde_json::json!(["ample", "compare", "--", "true"]));
    assert!(line.contains("was not measured by ample bench"), "{line}");
    let line = self::refused(folder.path(), 1, &["bench", "--resume", "nothing"]);
    assert!(line.contains("there is no folder nothing"), "{line}");
    let output = ample(folder.path(), &["bench", "larson", "--resume", "run"]);
    assert_eq!(output.status.code(), Some(2), "the command is that of the run");
}

#[test]
fn shards_become_one_run_and_strangers_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    for shard in ["1/2", "2/2"] {
        let out = format!("shard-{}", &shard[..1]);
        done(
            folder.path(),
            &larson(&["--runs", "3", "--measures", "memory", "--shard", shard, "--out", &out]),
        );
    }
    let stdout = done(folder.path(), &["report", "shard-2", "shard-1", "--out", "whole"]);
    assert!(
        stdout.contains("Merged from the shards 1/2 (") && stdout.ends_with("report: whole/report.html\n")
    );
    let whole = folder.path().join("whole");
    let run = json(&whole.join("run.json"));
    assert_eq!((&run["blocks"], &run["interrupted"]), (&3.into(), &false.into()));
    assert_eq!(run["merged"][1]["shard"], serde_json::json!({"index": 2, "count": 2}));
    assert_eq!(counting(&whole), 2 * 3);
    let memory = samples(&whole).iter().filter(|sample| sample["pass"] == "memory").count();
    assert_eq!(memory, 1, "each row is measured by one shard");
    assert!(fs::read_to_string(whole.join("report.html")).expect("a page").contains("larson: peak memory"));

    let line = refused(folder.path(), 1, &["report", "shard-1", "shard-1"]);
    assert!(line.contains("are the same shard"), "{line}");
    done(folder.path(), &larson(&["--runs", "3", "--seed", "2", "--shard", "2/2", "--out", "stranger"]));
    let line = refused(folder.path(), 1, &["report", "shard-1", "stranger", "--out", "mixed"]);
    assert!(line.contains("stranger (shard 2/2) are not of one run: seed: 1, and 2"), "{line}");
    altered(folder.path(), "shard-2", "rebuilt", |run| run["workload_program_sha256"] = "ff".into());
    let line = refused(folder.path(), 1, &["report", "shard-1", "rebuilt", "--out", "mixed"]);
    assert!(line.contains("SHA-256 of the workloads' program"), "{line}");
    assert!(!folder.path().join("mixed").exists());

    let line = refused(folder.path(), 2, &larson(&["--runs", "3", "--shard", "4/4"]));
    assert!(line.contains("4 shards of 3 blocks"), "{line}");
    for wrong in [&["--shard", "1/2"][..], &["--runs", "3", "--shard", "3/2"]] {
        assert_eq!(ample(folder.path(), &larson(wrong)).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn what_a_scheduler_starts_begins_a_shard_and_goes_on_with_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let start = |arguments: &[&str]| {
        // The environment of the tool, for the script that starts it.
        let tool = tool(folder.path());
        let mut script = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/run-shard"));
        script.current_dir(folder.path()).env("AMPLE", tool.get_program()).args(arguments);
        script.envs(tool.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = script.output().expect("runs");
        assert!(output.status.success(), "{}", texts(&output).1);
    };
    let mut arguments = vec!["2", "2", "out"];
    arguments.extend(&larson(&["--runs", "4"])[1..]);
    start(&arguments);
    let shard = folder.path().join("out/shard-2");
    let run = json(&shard.join("run.json"));
    assert_eq!((&run["shard"]["index"], &run["blocks"]), (&2.into(), &2.into()));
    let before = samples(&shard).len();
    start(&arguments);
    assert_eq!(samples(&shard).len(), before);
    assert_eq!(json(&shard.join("run.json"))["resumed"].as_array().expect("a list").len(), 1);
}

#[test]
fn runs_of_two_machines_are_reported_side_by_side_and_not_mixed() {
    let folder = tempfile::tempdir().expect("a folder");
    done(folder.path(), &larson(&["--runs", "2", "--out", "here"]));
    altered(folder.path(), "here", "there", |run| {
        run["machine"]["host"] = "elsewhere".into();
        run["machine"]["cpu"] = "Another <CPU>".into();
        run["started"] = "20200101T000000Z".into();
    });
    let stdout = done(folder.path(), &["report", "here", "there", "--out", "both", "--json"]);
    let runs: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(runs.as_array().expect("a list").len(), 2);
    assert_eq!(
        (&runs[1]["machine"]["host"], &runs[1]["summary"]["blocks"]),
        (&"elsewhere".into(), &2.into())
    );
    let page = fs::read_to_string(folder.path().join("both/report.html")).expect("a page");
    assert_eq!(page.matches("<section id=\"run-").count(), 2);
    assert!(
        page.contains("Another &lt;CPU&gt;")
            && page.contains("runs&#x2f;2-20200101T000000Z&#x2f;report.html")
    );
    let second = folder.path().join("both/runs/2-20200101T000000Z");
    assert_eq!(samples(&second).len(), samples(&folder.path().join("there")).len());
    assert!(second.join("report.html").exists());
    let line = refused(folder.path(), 1, &["report", "here", "there", "--out", "both"]);
    assert!(line.contains("both already holds a report"), "{line}");
}

#[test]
fn tools_that_begin_at_once_keep_all_their_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let begin = || {
        let mut command = tool(folder.path());
        command.args(larson(&["--runs", "1", "--history", "all.sqlite"]));
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("runs")
    };
    let tools: Vec<_> = (0..3).map(|_| begin()).collect();
    for tool in tools {
        let output = tool.wait_with_output().expect("ends");
        let (_, stderr) = texts(&output);
        assert!(output.status.success() && !stderr.contains("cannot add the run"), "{stderr}");
    }
    let text = done(folder.path(), &["history", "--history", "all.sqlite", "--json"]);
    let runs: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(runs.as_array().expect("a list").len(), 3, "{text}");
    assert_eq!(fs::read_dir(folder.path().join("ample-out")).expect("a folder").count(), 3);
}

#[test]
fn a_damaged_folder_is_told_of_and_what_is_no_file_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    done(folder.path(), &larson(&["--runs", "4", "--no-history", "--out", "whole"]));
    altered(folder.path(), "whole", "half", |_| {});
    let file = folder.path().join("half/samples.jsonl");
    let text = fs::read_to_string(&file).expect("samples");
    let lines: Vec<&str> = text.lines().collect();
    fs::write(&file, lines[..lines.len() - 3].join("\n") + "\n").expect("written");
    let told = "run.json tells of 4 complete blocks, and 2 are there";
    let stdout = done(folder.path(), &["report", "half", "--out", "told"]);
    assert!(stdout.contains(told), "{stdout}");
    assert!(fs::read_to_string(folder.path().join("told/report.html")).expect("a page").contains(told));
    let output = ample(folder.path(), &["history", "--add", "half", "--json"]);
    let (stdout, stderr) = texts(&output);
    assert!(stderr.contains(told), "{stderr}");
    let runs: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((&runs[0]["blocks"], &runs[0]["rows"]), (&2.into(), &1.into()));
    fs::write(&file, "").expect("written");
    let line = refused(folder.path(), 1, &["history", "--add", "half"]);
    assert!(line.contains("half has no complete block"), "{line}");
    altered(folder.path(), "whole", "outside", |run| run["started"] = "../../../x".into());
    let line = refused(folder.path(), 1, &["report", "whole", "outside", "--out", "both"]);
    assert!(line.contains("run.json is damaged: its start is"), "{line}");
    let line = refused(folder.path(), 1, &["bench", "larson", "-a", "x=/dev/zero", "--quick", "-r", "1"]);
    assert!(line.contains("cannot read /dev/zero: it is no regular file"), "{line}");
}

#[test]
fn diff_exits_with_what_it_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = ["-std=gnu11", "-O2", "-fno-builtin"];
    library(folder.path(), "thin", SERVING, &arguments);
    library(folder.path(), "fat", &format!("{SERVING}{FAT}"), &arguments);
    for (allocators, out) in [("x=./libthin.so", "thin"), ("x=./libfat.so", "fat")] {
        let bench = ["bench", "larson", "-a", allocators, "-t", "1", "--quick", "-r", "10", "--out", out];
        done(folder.path(), &bench);
    }
    let stdout = done(folder.path(), &["diff", "thin", "thin"]);
    assert!(stdout.starts_with("Nothing is worse, and nothing is better"), "{stdout}");
    assert!(stdout.contains("the same file"), "{stdout}");

    let output = ample(folder.path(), &["diff", "thin", "fat", "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let changes: Value = serde_json::from_str(&texts(&output).0).expect("JSON");
    let memory = &changes["rows"][0]["peak_rss"];
    assert_eq!((&changes["worse"], &memory["verdict"]), (&true.into(), &"larger".into()));
    assert!(memory["value"].as_f64().expect("a ratio") > 3.0, "{memory}");
    assert_eq!(changes["allocators"][0]["same"], false);

    altered(folder.path(), "thin", "broken", |_| {});
    let file = folder.path().join("broken/samples.jsonl");
    let broken = |mut sample: Value| {
        if sample["allocator"] == "glibc" && sample["pass"] == "timed" {
            sample["result"] = serde_json::json!({"status": "failed", "reason": "it broke"});
        }
        sample.to_string() + "\n"
    };
    let text: String = samples(&folder.path().join("broken")).into_iter().map(broken).collect();
    fs::write(file, text).expect("written");
    let output = ample(folder.path(), &["diff", "thin", "broken"]);
    let (stdout, _) = texts(&output);
    assert_eq!(output.status.code(), Some(3), "{stdout}");
    assert!(stdout.contains("fails now: glibc: larson, threads 1: it broke"), "{stdout}");
    assert!(stdout.contains("gone: x: larson, threads 1: glibc has no number"), "{stdout}");

    altered(folder.path(), "thin", "machine", |run| run["machine"]["cpus"] = 4096.into());
    altered(folder.path(), "thin", "glibc", |run| run["allocators"][0]["sha256"] = "ff".into());
    altered(folder.path(), "thin", "few", |run| run["blocks"] = 9.into());
    altered(folder.path(), "thin", "work", |run| run["workloads"][0]["settings"]["rounds"] = 9.into());
    for (other, reason) in [
        ("machine", "they ran on another machine: usable CPUs"),
        ("glibc", "they have another glibc as the baseline"),
        ("few", "the newer run has 9 complete blocks, and verdicts need 10"),
        ("work", "they have no row in common"),
    ] {
        let line = refused(folder.path(), 4, &["diff", "thin", other]);
        assert!(line.contains(reason), "{line}");
    }
    let line = refused(folder.path(), 4, &["diff", "thin", "fat", "-a", "y"]);
    assert!(line.contains("y is not in both runs"), "{line}");
    let line = refused(folder.path(), 1, &["diff", "thin", "nothing"]);
    assert!(line.contains("there is no folder nothing"), "{line}");
}

#[test]
fn programs_of_one_name_that_do_different_things_are_not_held_against_each_other() {
    let folder = tempfile::tempdir().expect("a folder");
    library(folder.path(), "x", SERVING, &["-std=gnu11", "-O2", "-fno-builtin"]);
    for (out, script) in [("short", "sleep 0.02"), ("long", "sleep 0.03")] {
        let compare = ["compare", "-a", "./libx.so", "-r", "10", "--out", out, "--", "sh", "-c", script];
        done(folder.path(), &compare);
    }
    let line = refused(folder.path(), 4, &["diff", "short", "long"]);
    let told = "under one name: sh: command: sh -c 'sleep 0.02', and sh -c 'sleep 0.03'";
    assert!(line.contains(told), "{line}");
    done(folder.path(), &["history", "--add", "short", "long"]);
    let text = done(folder.path(), &["history", "sh", "-a", "x"]);
    for script in ["sleep 0.02", "sleep 0.03"] {
        assert!(text.contains(&format!("sh × 1, sh -c '{script}' (/")), "{text}");
    }
    // Records of older versions do not tell.
    altered(folder.path(), "long", "older", |run| {
        run["workloads"][0].as_object_mut().expect("a workload").remove("task").expect("recorded");
    });
    let output = ample(folder.path(), &["diff", "short", "older"]);
    assert!([Some(0), Some(3)].contains(&output.status.code()), "{}", texts(&output).1);
}

#[test]
fn the_history_has_every_run_that_may_be_added_and_shows_a_row_over_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let database = folder.path().join(".data/ample/history.sqlite");
    let line = refused(folder.path(), 1, &["history"]);
    assert!(line.contains("there is no history at"), "{line}");
    done(folder.path(), &larson(&["--runs", "1", "--no-history", "--out", "a"]));
    done(folder.path(), &larson(&["--runs", "2", "--shard", "1/2", "--out", "shard"]));
    let quiet = tool(folder.path()).args(larson(&["--runs", "1", "--out", "b"])).env("CI", "true").output();
    assert!(quiet.expect("runs").status.success());
    assert!(!database.exists(), "not asked for, a shard, continuous integration");
    done(folder.path(), &larson(&["--runs", "1", "--out", "c"]));
    assert!(database.exists());
    let asked = tool(folder.path())
        .args(larson(&["--runs", "1", "--history", "own.sqlite", "--out", "d"]))
        .env("CI", "true")
        .output();
    assert!(asked.expect("runs").status.success() && folder.path().join("own.sqlite").exists());

    altered(folder.path(), "a", "older", |run| run["started"] = "20200101T000000Z".into());
    done(folder.path(), &["history", "--add", "older"]);
    let runs: Value = serde_json::from_str(&done(folder.path(), &["history", "--json"])).expect("JSON");
    assert_eq!(runs.as_array().expect("a list").len(), 2);
    assert_eq!((&runs[0]["started"], &runs[0]["blocks"]), (&"20200101T000000Z".into(), &1.into()));
    let text = done(folder.path(), &["history", "larson", "-t", "1", "-a", "glibc"]);
    assert!(text.starts_with("larson × 1") && text.contains(" 20200101T000000Z "), "{text}");
    assert!(text.contains("build id ") || text.contains("SHA-256 "), "{text}");
    let line = refused(folder.path(), 2, &["history", "larsn"]);
    assert!(line.contains("did you mean 'larson'?"), "{line}");
    fs::write(folder.path().join("text"), "no database, and long enough to be told from one")
        .expect("written");
    let line = refused(folder.path(), 1, &larson(&["--runs", "1", "--history", "text", "--out", "e"]));
    assert!(line.starts_with("ample: cannot open the history text") && !folder.path().join("e").exists());
    fs::write(folder.path().join(".data/ample/history.sqlite"), "damaged, and no database").expect("written");
    let output = ample(folder.path(), &larson(&["--runs", "1", "--out", "e"]));
    assert!(output.status.success(), "the run is there all the same");
    assert!(texts(&output).1.starts_with("ample: warning: cannot open the history "));
}
