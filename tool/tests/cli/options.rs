//! `ample options`.

use serde_json::Value;

use crate::common::{ample, library, texts, tool};

#[test]
fn the_library_tells_its_options() {
    let folder = tempfile::tempdir().expect("a folder");
    let library = ample();
    let output =
        tool(folder.path()).env("AMPLE_LIB", &library).args(["options", "--json"]).output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let options: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    let named = |name: &str| options.iter().find(|option| option["name"] == name).expect(name);
    assert_eq!(named("AMPLE_CACHE")["default"], 1);
    assert_eq!(named("AMPLE_STATS_SIGNAL")["most"], 64);
    assert_eq!(named("AMPLE_STATS_JSON")["kind"], "path");
    let output = tool(folder.path()).env("AMPLE_LIB", &library).arg("options").output().expect("runs");
    let table = String::from_utf8(output.stdout).expect("text");
    assert!(options.iter().all(|option| table.contains(option["name"].as_str().expect("a name"))), "{table}");
}

#[test]
fn settings_that_the_library_would_ignore_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let library = ample();
    for (setting, told) in [
        ("ample:cahce=0", "unknown setting of ample 'AMPLE_CAHCE'; did you mean 'AMPLE_CACHE'?"),
        (
            "ample:AMPLE_CACHE=banana",
            "'banana' is no value of AMPLE_CACHE, which takes a whole number from 0 to 1",
        ),
        ("glibc:mmap_threshold=128K", "'128K' is no value of mmap_threshold: glibc takes whole numbers"),
    ] {
        let arguments = ["bench", "larson", "-t", "1", "-r", "1", "--quick", "-a", setting];
        let output = tool(folder.path()).env("AMPLE_LIB", &library).args(arguments).output().expect("runs");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && error.contains(told), "{error}");
    }
    let arguments =
        ["bench", "larson", "--dry-run", "-a", "ample:cache=0:soft_limit=64M,glibc:mmap_threshold=131072"];
    let output = tool(folder.path()).env("AMPLE_LIB", &library).args(arguments).output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_variable_that_the_library_passes_over_is_told_and_configures_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let library = ample();
    let run = |arguments: &[&str]| {
        let mut command = tool(folder.path());
        command.env("AMPLE_LIB", &library).env("AMPLE_SOFT_LIMIT", "64MB").env("AMPLE_BACKGROUD_THREAD", "0");
        let output = command.args(arguments).output().expect("runs");
        let (stdout, stderr) = texts(&output);
        assert!(output.status.success(), "{stdout}{stderr}");
        (stdout, stderr)
    };
    let misspelt = "there is no such option; did you mean AMPLE_BACKGROUND_THREAD?";
    for arguments in [&["options"][..], &["run", "--", "true"]] {
        let (_, said) = run(arguments);
        let told =
            format!("ample: AMPLE_BACKGROUD_THREAD in the environment is without effect: {misspelt}\n");
        assert!(said.contains(&told), "{said}");
        let bad = "ample: AMPLE_SOFT_LIMIT in the environment is without effect: that option takes a whole number from";
        assert!(said.contains(bad), "{said}");
    }
    assert!(!run(&["run", "-q", "--", "true"]).1.contains("AMPLE_BACKGROUD"), "quiet");
    let (compared, _) = run(&["compare", "-a", "ample", "-r", "1", "-o", "out", "--", "sleep", "0.02"]);
    let told =
        format!("without effect on Ample: AMPLE_BACKGROUD_THREAD=0 ({misspelt}), AMPLE_SOFT_LIMIT=64MB (");
    assert!(compared.contains(&told) && !compared.contains("configured allocators by"), "{compared}");
    let page = std::fs::read_to_string(folder.path().join("out/report.html")).expect("a page");
    assert!(page.contains("without effect on Ample: AMPLE_BACKGROUD_THREAD=0"), "{page}");
}

#[test]
fn a_library_that_tells_none_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let mute = library(folder.path(), "mute", "int mute;", &[]);
    let output = tool(folder.path()).env("AMPLE_LIB", &mute).arg("options").output().expect("runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("mute"), "{error}");
}
