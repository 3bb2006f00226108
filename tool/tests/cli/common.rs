//! What the tests of the finished tool share.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;

/// The source of a whole allocator that never frees.
pub const SERVING: &str = include_str!("serving.c");

/// The program with the workloads, built on first use into the folder that the tool is in.
pub fn workloads() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let tool = Path::new(env!("CARGO_BIN_EXE_ample"));
        let profile = tool.parent().expect("a folder");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "ample-workloads", "--target-dir"]);
        build.arg(profile.parent().expect("a target folder"));
        if profile.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().expect("cargo runs").success(), "ample-workload does not build");
        profile.join("ample-workload")
    })
}

/// The folder with the limits, compiled on first use.
pub fn limits() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("limits");
        fs::create_dir_all(&folder).expect("created");
        let arguments = ["-std=gnu11", "-O2", "-fno-builtin", "-Wall", "-Wextra", "-Werror"];
        library(&folder, "floor", include_str!("../../../bench/limits/floor.c"), &arguments);
        library(&folder, "single-lock", include_str!("../../../bench/limits/single-lock.c"), &arguments);
        folder
    })
}

/// The tool in a folder of its own, with the workloads and the limits.
pub fn tool(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ample"));
    command.current_dir(folder).env("NO_COLOR", "1").env_remove("CI");
    command.env("XDG_DATA_HOME", folder.join(".data"));
    command.env("AMPLE_WORKLOAD", workloads()).env("AMPLE_LIMITS_DIR", limits());
    command
}

/// A shared library made from C, with further arguments for the compiler.
pub fn library(folder: &Path, name: &str, source: &str, arguments: &[&str]) -> PathBuf {
    let code = folder.join(format!("{name}.c"));
    fs::write(&code, source).expect("written");
    let library = folder.join(format!("lib{name}.so"));
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&code)
        .args(arguments)
        .status()
        .expect("a C compiler");
    assert!(compiled.success());
    library
}

/// A program made from C, with further arguments for the compiler.
pub fn program(folder: &Path, name: &str, source: &str, arguments: &[&str]) -> PathBuf {
    let (code, program) = (folder.join(format!("{name}-program.c")), folder.join(name));
    fs::write(&code, source).expect("written");
    let compiled = Command::new("cc").arg("-o").arg(&program).arg(&code).args(arguments).status();
    assert!(compiled.expect("a C compiler").success());
    program
}

/// Standard output and error as text.
pub fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    (text(&output.stdout), text(&output.stderr))
}

/// The lines of `samples.jsonl` in an output folder.
pub fn samples(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("samples.jsonl")).expect("samples");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// A JSON file.
pub fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).expect("a file")).expect("JSON")
}

/// Runs `ample bench --json --out out` with these arguments: the summary.
pub fn summary(folder: &Path, arguments: &[&str]) -> Value {
    summary_and(folder, arguments, 0)
}

/// The same where it ends with this exit code.
pub fn summary_and(folder: &Path, arguments: &[&str], code: i32) -> Value {
    let arguments = arguments.iter().chain(&["--json", "--out", "out"]);
    let output = tool(folder).arg("bench").args(arguments).output().expect("runs");
    let (stdout, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    serde_json::from_str(&stdout).expect("JSON and nothing else")
}

/// The status of every row under one allocator.
pub fn statuses<'a>(summary: &'a Value, allocator: &str) -> Vec<&'a str> {
    let names = summary["allocators"].as_array().expect("a list");
    let column = names.iter().position(|entry| entry["name"] == allocator).expect("a column");
    let rows = summary["rows"].as_array().expect("a list");
    rows.iter().map(|row| row["cells"][column]["status"].as_str().expect("a status")).collect()
}

/// The allocator, built on first use into the target folder of the tool under test.
pub fn ample() -> PathBuf {
    let target = Path::new(env!("CARGO_BIN_EXE_ample")).ancestors().nth(2).expect("a target folder");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--release", "--package", "ample-abi", "--target-dir"]).arg(target);
    assert!(build.status().expect("cargo runs").success(), "ample-abi does not build");
    target.join("release/libample.so")
}
