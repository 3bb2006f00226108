//! `ample run` says truthfully what serves programs that no preload reaches, or reaches in part. Each program looks
//! into its own address space and says whether the library is there.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::{library, program, texts, tool};

/// A whole allocator that never frees.
const SERVING: &str = include_str!("serving.c");
/// Says whether `libgood` is in its address space.
const LOOKING: &str = r#"#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    int there = 0;
    while (maps && fgets(line, sizeof line, maps)) there |= !!strstr(line, "libgood");
    puts(there ? "preloaded" : "alone");
    return 0;
}"#;
const NOBODY: u32 = 65534;

/// What a run says on standard output and error, and its exit code.
fn said(output: &Output) -> (String, String, i32) {
    let (stdout, stderr) = texts(output);
    (stdout.trim().into(), stderr, output.status.code().expect("a code"))
}

/// Runs it with `ample run`, and then with `--check`: both must hear the same from the program itself.
fn run(folder: &Path, program: &[&str], stdout: &str) -> (String, (String, i32)) {
    library(folder, "good", SERVING, &[]);
    let run = |more: &[&str]| {
        let mut command = tool(folder);
        command.args(["run", "-a", "./libgood.so"]).args(more).arg("--").args(program);
        said(&command.output().expect("runs"))
    };
    let (plain, checked) = (run(&[]), run(&["--check"]));
    assert_eq!((plain.0.as_str(), checked.0.as_str()), (stdout, stdout), "{} {}", plain.1, checked.1);
    assert_eq!(plain.2, 0, "{}", plain.1);
    (plain.1, (checked.1, checked.2))
}

/// Whether these programs are there; if not, says what is skipped.
fn there(names: &[&str], what: &str) -> bool {
    for name in names {
        let found = Command::new(name).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if found.is_err() {
            eprintln!("skipped: {name} is not installed: {what} is not tested");
            return false;
        }
    }
    true
}

/// Whether a compiler succeeds; what it says is shown where it does not.
fn made(command: &mut Command) -> bool {
    let output = command.stdin(Stdio::null()).output().expect("runs");
    if !output.status.success() {
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.success()
}

#[test]
fn a_static_program_has_its_malloc_inside() {
    let folder = tempfile::tempdir().expect("a folder");
    program(folder.path(), "fixed", LOOKING, &["-static"]);
    let (plain, (checked, code)) = run(folder.path(), &["./fixed"], "alone");
    let reason = "it is statically linked: it has its malloc inside";
    assert_eq!(plain, format!("ample: good does not serve fixed: {reason}\n"));
    assert_eq!(
        (checked, code),
        (format!("ample: fixed: good does not serve it: {reason}; exit code 0\n"), 1)
    );
}

/// A program for musl of this C code.
fn musl_program(folder: &Path, name: &str, code: &str) {
    let file = folder.join(name).with_extension("c");
    fs::write(&file, code).expect("written");
    assert!(made(Command::new("musl-gcc").current_dir(folder).args(["-o", name]).arg(&file)));
}

#[test]
fn a_program_on_musl_runs_as_it_is() {
    if !there(&["musl-gcc"], "musl") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    musl_program(folder.path(), "hello", LOOKING);
    let (plain, (checked, code)) = run(folder.path(), &["./hello"], "alone");
    assert!(plain.starts_with("ample: good does not serve hello: it runs on musl"), "{plain}");
    assert!(code == 1 && checked.contains("good does not serve it: it runs on musl"), "{checked}");
}

#[test]
fn a_process_on_musl_that_ends_for_the_sake_of_the_library_fails_the_comparison() {
    if !there(&["musl-gcc"], "musl") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    musl_program(folder.path(), "waits", "#include <unistd.h>\nint main(void) { return usleep(200000); }");
    // musl has no such function: its dynamic linker ends the program.
    let needs = "int gnu_get_libc_version(void); int needs(void) { return gnu_get_libc_version(); }";
    library(folder.path(), "needs", &format!("{SERVING}\n{needs}"), &[]);
    let mut command = tool(folder.path());
    command.args([
        "compare",
        "-a",
        "./libneeds.so",
        "-r",
        "1",
        "--json",
        "--",
        "sh",
        "-c",
        "./waits; sleep 0.02",
    ]);
    let (stdout, stderr, code) = said(&command.output().expect("runs"));
    assert!(
        code == 5 && stdout.contains("the library does not load: Error relocating /"),
        "{stdout} {stderr}"
    );
}

#[test]
fn a_setuid_program_ignores_the_preload() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = program(folder.path(), "other-rights", LOOKING, &[]);
    if std::os::unix::fs::chown(&path, Some(NOBODY), None).is_err() {
        eprintln!("skipped: only root can make a program of another user: setuid is not tested");
        return;
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).expect("allowed");
    let mounted_nosuid = || {
        said(&Command::new(&path).env("LD_PRELOAD", folder.path().join("libgood.so")).output().expect("runs"))
            .0
            == "preloaded"
    };
    library(folder.path(), "good", SERVING, &[]);
    if mounted_nosuid() {
        eprintln!("skipped: the folder for tests is mounted without setuid: setuid is not tested");
        return;
    }
    let (plain, (checked, code)) = run(folder.path(), &["./other-rights"], "alone");
    let reason = "it is setuid: the dynamic linker ignores LD_PRELOAD for it";
    assert_eq!(plain, format!("ample: good does not serve other-rights: {reason}\n"));
    assert_eq!(code, 1);
    assert!(checked.contains(reason), "{checked}");
}

/// A Go program; `CGO` stands for the import of C, or for nothing.
const GO: &str = r#"package main

CGO

import (
	"fmt"
	"os"
	"strings"
)

func main() {
	maps, _ := os.ReadFile("/proc/self/maps")
	lists := make([][]byte, 100)
	for i := range lists {
		lists[i] = make([]byte, 10000)
	}
	USE
	if strings.Contains(string(maps), "libgood") {
		fmt.Println("preloaded")
	} else {
		fmt.Println("alone")
	}
}
"#;

fn go(folder: &Path, name: &str, source: &str, cgo: &str) -> bool {
    let code = folder.join(format!("{name}.go"));
    fs::write(&code, source).expect("written");
    let mut command = Command::new("go");
    command.current_dir(folder).args(["build", "-o", name]).arg(&code);
    command.env("CGO_ENABLED", cgo).env("GOFLAGS", "").env("GO111MODULE", "off").env("GOTOOLCHAIN", "local");
    command.env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go"));
    made(&mut command)
}

#[test]
fn a_go_program_lives_on_gos_own_heap() {
    if !there(&["go"], "Go") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    assert!(go(folder.path(), "plain", &GO.replace("CGO", "").replace("USE", ""), "0"));
    let (plain, (checked, code)) = run(folder.path(), &["./plain"], "alone");
    assert_eq!(
        plain,
        "ample: good does not serve plain: it is a static Go program: Go's own heap serves it\n"
    );
    assert!(code == 1 && checked.contains("it is a static Go program"), "{code} {checked}");

    // With C in it, the C part is served, and Go's is not.
    let source =
        GO.replace("CGO", "// #include <stdlib.h>\nimport \"C\"").replace("USE", "C.free(C.malloc(100))");
    assert!(go(folder.path(), "mixed", &source, "1"));
    let (plain, (checked, code)) = run(folder.path(), &["./mixed"], "preloaded");
    assert_eq!(plain, "", "what it can serve, it serves");
    assert!(code == 0 && checked.contains("good serves malloc in 1 process (mixed)"), "{code} {checked}");
    let remark = "ample: mixed is a Go program: Go's own heap serves it, and only its C code uses malloc\n";
    assert!(checked.starts_with(remark), "{checked}");
}

const JAVA: &str = r#"import java.nio.file.*;

public class Looking {
    public static void main(String[] words) throws Exception {
        String maps = new String(Files.readAllBytes(Path.of("/proc/self/maps")));
        System.out.println(maps.contains("libgood") ? "preloaded" : "alone");
    }
}
"#;

#[test]
fn a_java_program_uses_malloc_for_native_code_only() {
    if !there(&["java", "javac"], "Java") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("Looking.java"), JAVA).expect("written");
    assert!(made(Command::new("javac").current_dir(&folder).arg("Looking.java")));
    let (plain, (checked, code)) =
        run(folder.path(), &["java", "-Xmx64m", "-cp", ".", "Looking"], "preloaded");
    assert_eq!(plain, "");
    let remark =
        "ample: java is Java: objects live in the JVM's own heap, and only native code uses malloc\n";
    assert!(checked.starts_with(remark), "{checked}");
    assert!(code == 0 && checked.contains("good serves malloc in "), "{code} {checked}");
}

const RUST: &str = r#"#[global_allocator]
static GLOBAL: ALLOCATOR = ALLOCATOR;

fn main() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    println!("{}", if maps.contains("libgood") { "preloaded" } else { "alone" });
}
"#;

/// Builds a Rust program on an allocator, once for all runs of the tests; none without its sources.
fn rust_on(name: &str, allocator: &str, dependency: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(folder.join("src")).expect("created");
    let manifest = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[workspace]\n\n\
         [dependencies]\n{dependency}\n"
    );
    for (file, text) in [("Cargo.toml", manifest), ("src/main.rs", RUST.replace("ALLOCATOR", allocator))] {
        let path = folder.join(file);
        if fs::read_to_string(&path).ok().as_deref() != Some(&text) {
            fs::write(path, text).expect("written");
        }
    }
    let mut build = Command::new(env!("CARGO"));
    build.current_dir(&folder).args(["build", "--quiet"]).arg("--target-dir").arg(folder.join("target"));
    let fetched = made(Command::new(env!("CARGO")).current_dir(&folder).args(["fetch", "--quiet"]));
    if !fetched {
        eprintln!("skipped: what {dependency} needs cannot be downloaded: Rust on it is not tested");
        return None;
    }
    assert!(made(&mut build), "the program does not build");
    Some(folder.join("target/debug").join(name))
}

/// The program runs with the library, and the tool says that its own allocator stays.
fn stays(path: &Path, allocator: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let (plain, (checked, code)) = run(folder.path(), &[path.to_str().expect("UTF-8")], "preloaded");
    let reason = format!(
        "it has {allocator} inside under names of its own: what uses it stays there, and only malloc goes elsewhere"
    );
    let name = path.file_name().expect("a name").display();
    assert_eq!(plain, format!("ample: good alone does not serve {name}: {reason}\n"));
    assert!(
        code == 1 && checked.contains(&format!("but not all it allocates: {reason}")),
        "{code} {checked}"
    );
}

#[test]
fn a_rust_program_on_its_own_jemalloc_stays_there() {
    if !there(&["make"], "Rust on jemalloc") {
        return;
    }
    let path = rust_on("on-jemalloc", "tikv_jemallocator::Jemalloc", "tikv-jemallocator = \"=0.7.0\"");
    if let Some(path) = path {
        stays(&path, "jemalloc");
    }
}

#[test]
fn a_rust_program_on_ample_stays_there_even_without_names() {
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/../allocator/rust");
    let dependency = format!("ample-alloc = {{ path = \"{sources}\" }}");
    let Some(path) = rust_on("on-ample", "ample_alloc::Ample", &dependency) else { return };
    stays(&path, "Ample");
    if there(&["strip"], "a program without names") {
        let stripped = path.with_file_name("stripped");
        assert!(made(Command::new("strip").arg("-o").arg(&stripped).arg(&path)));
        stays(&stripped, "Ample");
    }
}

/// An allocator with C++'s operators of its own, by the names that the linker knows them by.
const OPERATORS: &str = concat!(
    include_str!("serving.c"),
    "\nvoid *_Znwm(size_t size) { return take(16, size); }\nvoid _ZdlPv(void *block) { (void)block; }\n"
);
const OPERATORS_USED: &str = "#include <stdlib.h>\n#include <unistd.h>\nvoid *_Znwm(size_t);\nvoid _ZdlPv(void *);\n\
    int main(void) { free(malloc(9)); _ZdlPv(_Znwm(9)); return usleep(20000); }";

#[test]
fn operators_new_and_delete_of_another_allocator_fail_the_check_and_the_row() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let linked = library(at, "linked", OPERATORS, &["-fno-builtin", "-Wl,-soname,liblinked.so"]);
    library(at, "whole", OPERATORS, &["-fno-builtin"]);
    let path = format!("-Wl,-rpath,{}", at.display());
    program(at, "jobs", OPERATORS_USED, &["-fno-builtin", &path, &linked.display().to_string()]);
    let run = |words: &[&str]| {
        let output = tool(at).args(words).stdin(Stdio::null()).output().expect("runs");
        let (stdout, stderr) = texts(&output);
        (output.status.code().expect("a code"), stdout, stderr)
    };
    let (code, _, stderr) = run(&["run", "--check", "-a", "glibc", "--", "./jobs"]);
    let says = "glibc serves malloc in 1 process (jobs), but operator new and delete of jobs are served by /";
    assert!(code == 1 && stderr.contains(says) && stderr.contains("/liblinked.so"), "{code} {stderr}");
    let (code, _, stderr) = run(&["run", "--check", "-a", "./libwhole.so", "--", "./jobs"]);
    assert!(code == 0 && stderr.contains("whole serves malloc in 1 process (jobs): "), "{code} {stderr}");

    let words = ["compare", "-a", "glibc,./libwhole.so", "-r", "1", "--out", "out", "--"];
    let (code, stdout, _) = run(&[&words[..], &["./jobs"]].concat());
    let says = "glibc: failed: wrong library: operator new is served by /";
    assert!(code == 5 && stdout.contains(says), "{code} {stdout}");
    let words = ["compare", "-a", "glibc", "-r", "1", "--out", "child", "--"];
    let (_, stdout, _) = run(&[&words[..], &["sh", "-c", "./jobs; :"]].concat());
    let says = "jobs among its processes stays on another allocator with operator new and delete: /";
    assert!(stdout.contains(says), "{stdout}");
}
