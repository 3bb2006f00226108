//! `ample observe --pid` tells of a process that runs already what its malloc does, without its help.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{ample, json, library, program, texts, tool};

const RUNNING: &str = include_str!("running.c");
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const THREADS: u64 = 4;
/// Blocks of each thread, and their bytes with what glibc has before each.
const BLOCKS: u64 = 8 * 1024;
const BYTES: u64 = 1008;

/// A process, ended with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended already is none the worse for it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the program with this argument and these variables, and waits until it is ready.
fn started(folder: &Path, what: &str, variables: &[(&str, &str)]) -> Process {
    program(folder, "running", RUNNING, &["-pthread", "-fno-builtin"]);
    let mut command = Command::new(folder.join("running"));
    command.arg(what).envs(variables.iter().copied()).stdout(Stdio::piped());
    let mut process = Process(command.spawn().expect("runs"));
    let mut ready = String::new();
    let said = process.0.stdout.take().expect("a pipe");
    BufReader::new(said).read_line(&mut ready).expect("a line");
    assert_eq!(ready, "ready\n");
    process
}

fn look(folder: &Path, process: &Process, seconds: &str) -> Command {
    let mut command = tool(folder);
    command.args([
        "observe",
        "--pid",
        &process.0.id().to_string(),
        "--seconds",
        seconds,
        "-o",
        "figures.json",
    ]);
    command
}

fn figures(folder: &Path, output: &Output) -> (Value, String) {
    let (told, said) = texts(output);
    assert_eq!((output.status.code(), said.as_str()), (Some(0), ""), "{told}");
    (json(&folder.join("figures.json")), told)
}

/// Looks for a while at a process that does this.
fn seen(what: &str, variables: &[(&str, &str)], seconds: &str) -> (Value, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let process = started(folder.path(), what, variables);
    let output = look(folder.path(), &process, seconds).output().expect("runs");
    figures(folder.path(), &output)
}

fn found(figures: &Value) -> Vec<&str> {
    let findings = figures["findings"].as_array().expect("a list");
    findings.iter().map(|finding| finding["kind"].as_str().expect("a kind")).collect()
}

fn number(figures: &Value, path: &str) -> u64 {
    figures.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} in {figures}"))
}

#[test]
fn what_is_free_in_glibcs_arenas_is_told_to_the_block() {
    let (figures, told) = seen("keep", &[], "0.3");
    let live = THREADS * BLOCKS / 4;
    let heaps = |name: &str| number(&figures, &format!("/after/heaps/{name}"));
    // What threads keep in their caches counts as live, and there is what the C library has for itself and for threads.
    assert!((live..live + 100).contains(&heaps("used_blocks")), "{figures}");
    assert!((live * BYTES..live * BYTES + MIB / 2).contains(&heaps("used_bytes")), "{figures}");
    assert!(heaps("free_bytes") >= 3 * live * (BYTES - 8), "{figures}");
    assert!(heaps("unknown_bytes") < MIB / 16, "{figures}");
    assert_eq!(heaps("arenas"), THREADS + 1, "{told}");
    assert!(found(&figures).contains(&"kept"), "{told}");
    assert!(told.contains(" malloc         glibc: /"), "{told}");
}

#[test]
fn threads_that_wait_for_malloc_s_lock_are_seen_to() {
    let variables = [("GLIBC_TUNABLES", "glibc.malloc.arena_max=1:glibc.malloc.tcache_count=0")];
    let (figures, told) = seen("contend", &variables, "2");
    assert_eq!(number(&figures, "/after/heaps/arenas"), 1);
    assert!(number(&figures, "/waits/for_malloc") > 0, "{told}");
    let (others, _) = seen("contend", &[], "0.5");
    assert_eq!(number(&others, "/waits/for_malloc"), 0, "each has an arena of its own");
    // Not where the system lets nobody look, as in some containers.
    if !figures["code"].is_null() {
        let [all, malloc] = ["all", "in_malloc"].map(|name| number(&figures, &format!("/code/{name}")));
        assert!(all > 100 && malloc > all / 10, "{told}");
        assert!(found(&others).contains(&"dear"), "{others}");
    }
}

#[test]
fn memory_that_comes_fresh_again_and_again_is_seen() {
    let (figures, told) = seen("fresh", &[("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=131072")], "1");
    assert!(number(&figures, "/account/faults") > 20_000, "{told}");
    assert!(found(&figures).contains(&"fresh"), "{told}");
    assert!(told.contains("comes fresh again"), "{told}");
}

#[test]
fn memory_that_grows_by_what_the_program_holds_is_told() {
    let (figures, told) = seen("grow", &[], "1");
    let grown = ["before", "after"].map(|when| number(&figures, &format!("/{when}/heaps/used_bytes")));
    assert!(grown[1] - grown[0] > 10 * MIB && found(&figures).contains(&"holds-more"), "{told}");
}

#[test]
fn memory_beside_malloc_and_another_allocator_are_told() {
    let (figures, told) = seen("map", &[], "0.2");
    let others = number(&figures, "/after/parts/others/bytes");
    assert!((32 * MIB..34 * MIB).contains(&others) && found(&figures).contains(&"beside"), "{told}");

    let folder = tempfile::tempdir().expect("a folder");
    let other = "void *__libc_malloc(unsigned long); void *malloc(unsigned long size) { return __libc_malloc(size); }";
    let library = library(folder.path(), "libother.so", other, &["-fno-builtin"]);
    let (figures, told) = seen("keep", &[("LD_PRELOAD", library.to_str().expect("a path"))], "0.2");
    assert!(figures["after"]["heaps"].is_null(), "{figures}");
    assert_eq!(figures["allocator_file"].as_str(), library.to_str(), "{told}");
    assert!(told.contains("malloc's, or mapped otherwise"), "{told}");
}

#[test]
fn what_ample_tells_from_outside_is_what_it_tells_from_inside() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("statistics.json");
    let library = ample();
    let library = library.to_str().expect("a path");
    let variables = [
        ("LD_PRELOAD", library),
        ("AMPLE_STATS_JSON", file.to_str().expect("a path")),
        ("AMPLE_STATS_SIGNAL", "12"),
    ];
    let process = started(folder.path(), "keep", &variables);
    let began = Instant::now();
    // What was freed goes back for a while: until nothing changes between the two.
    let (figures, told) = loop {
        let (figures, told) =
            figures(folder.path(), &look(folder.path(), &process, "0.2").output().expect("runs"));
        let inside = inside(&process, &file);
        let same = [
            ("large_bytes", "large_bytes"),
            ("large_blocks", "large_blocks"),
            ("room_bytes", "room_bytes"),
            ("kept_bytes", "retained_bytes"),
            ("metadata_bytes", "metadata_bytes"),
        ];
        let outside = |name: &str| number(&figures, &format!("/after/figures/{name}"));
        if outside("small_bytes") + outside("large_bytes") == number(&inside, "/active_bytes")
            && same.iter().all(|(name, other)| outside(name) == number(&inside, &format!("/{other}")))
        {
            break (figures, told);
        }
        assert!(began.elapsed() < Duration::from_secs(40), "{told}{inside}");
    };
    let outside = |name: &str| number(&figures, &format!("/after/figures/{name}"));
    let live = THREADS * BLOCKS / 4 * KIB;
    assert!((live..live + 2 * MIB).contains(&(outside("small_bytes") - outside("room_bytes"))), "{told}");
    assert!(outside("room_bytes") > 2 * live, "{told}");
    // The system makes one mapping of a stack and what lies behind it, here 32 MiB of the heap.
    assert!(
        number(&figures, "/after/parts/stacks/bytes") < MIB && found(&figures).contains(&"kept"),
        "{told}"
    );
    assert!(told.contains(" Ample's heap ") && told.contains(" in blocks at most"), "{told}");
}

/// A shell that has started two programs on two allocators, and some more processes than are listed.
#[test]
fn the_processes_that_it_has_started_are_listed_with_what_they_have() {
    const SLEEPERS: usize = 13;
    let folder = tempfile::tempdir().expect("a folder");
    program(folder.path(), "running", RUNNING, &["-pthread", "-fno-builtin"]);
    let mut shell = Command::new("sh");
    let script = format!(
        "./running contend & LD_PRELOAD={} ./running keep & for i in $(seq {SLEEPERS}); do sleep 60 & done; wait",
        ample().display()
    );
    shell.current_dir(folder.path()).args(["-c", &script]).stdout(Stdio::piped());
    let mut shell = Process(shell.spawn().expect("runs"));
    let said = BufReader::new(shell.0.stdout.take().expect("a pipe"));
    assert_eq!(said.lines().take(2).map(|line| line.expect("a line")).collect::<Vec<_>>(), ["ready"; 2]);
    let output = look(folder.path(), &shell, "1").output().expect("runs");
    let (figures, told) = figures(folder.path(), &output);
    let descendants = figures["descendants"].as_array().expect("a list");
    end(descendants);
    assert_eq!(descendants.len(), 2 + SLEEPERS, "{told}");
    assert!(told.contains("15 processes that it has started"), "{told}");
    assert!(told.contains("hardly ran meanwhile, but processes that it has started did"), "{told}");
    // The largest first.
    let [keeps, contends, ..] = &descendants[..] else { panic!("{told}") };
    assert!(keeps["allocator"].as_str().is_some_and(|name| name.contains("ample")), "{told}");
    let small = number(keeps, "/memory/figures/small_bytes") - number(keeps, "/memory/figures/room_bytes");
    assert!((THREADS * BLOCKS / 4 * 1000..THREADS * BLOCKS / 2 * 1000).contains(&small), "{small}\n{told}");
    let own = number(keeps, "/memory/unshared_bytes");
    assert!(own > 30 * MIB && own == number(keeps, "/memory/resident_bytes"), "{own}\n{told}");
    assert_eq!(contends["allocator"], "glibc", "{told}");
    assert!(number(contends, "/cpu_ns") > 100_000_000, "{told}");
    assert!(number(contends, "/memory/heaps/used_blocks") > THREADS * 400, "{told}");
    // Of the sleepers some together, and in the end all.
    assert!(told.contains("\n 3 more ") && told.contains("\n all "), "{told}");
    assert_eq!(told.matches("sleep (").count(), 10, "{told}");
    assert!(
        told.contains(&format!("One of them by itself: ample observe --pid {}\n", keeps["pid"])),
        "{told}"
    );
}

/// Ends processes that a test has started by way of others.
fn end(descendants: &[Value]) {
    for descendant in descendants {
        let ended = Command::new("kill").arg(number(descendant, "/pid").to_string()).status();
        assert!(ended.expect("runs").success());
    }
}

/// A process with 32 MiB, and its child, which has written to 8 MiB of them.
#[test]
fn what_processes_share_since_a_fork_is_told_apart() {
    let (figures, told) = seen("fork", &[], "0.2");
    let [child] = &figures["descendants"].as_array().expect("a list")[..] else { panic!("{told}") };
    end(std::slice::from_ref(child));
    for memory in [&child["memory"], &figures["after"]] {
        assert!((32 * MIB..34 * MIB).contains(&number(memory, "/resident_bytes")), "{told}");
        assert!((8 * MIB..10 * MIB).contains(&number(memory, "/unshared_bytes")), "{told}");
    }
    assert!(told.contains("of it shared with other processes since a fork"), "{told}");
    assert!(told.contains(" 1 process that it has started") && !told.contains("\n all "), "{told}");
}

/// What Ample writes into that file when it is asked.
fn inside(process: &Process, file: &Path) -> Value {
    // There is none the first time.
    let _ = std::fs::remove_file(file);
    let pid = rustix::process::Pid::from_child(&process.0);
    rustix::process::kill_process(pid, rustix::process::Signal::USR2).expect("asked");
    let began = Instant::now();
    loop {
        let bytes = std::fs::read(file).unwrap_or_default();
        if let Ok(inside) = serde_json::from_slice(&bytes) {
            return inside;
        }
        assert!(began.elapsed() < Duration::from_secs(40), "it does not tell");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Begins a long look: once it catches signals, it looks.
fn looking(folder: &Path, process: &Process) -> Child {
    let command = look(folder, process, "50").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = command.expect("runs");
    let status = format!("/proc/{}/status", child.id());
    let catches_interrupts = || {
        let status = std::fs::read_to_string(&status).expect("it runs");
        let (_, caught) = status.split_once("SigCgt:").expect("as the system has it");
        let caught = caught.split_whitespace().next().expect("a mask");
        u64::from_str_radix(caught, 16).expect("a number") & 1 << (libc::SIGINT - 1) != 0
    };
    let began = Instant::now();
    while !catches_interrupts() {
        assert!(began.elapsed() < Duration::from_secs(40), "it does not look");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

#[test]
fn a_process_that_ends_and_a_user_who_does_not_wait_lose_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = started(folder.path(), "keep", &[]);
    let looking_on = looking(folder.path(), &process);
    let pid = rustix::process::Pid::from_child(&looking_on);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("interrupted");
    let output = looking_on.wait_with_output().expect("ends");
    let (seen, told) = figures(folder.path(), &output);
    assert!(seen["ended"] == false && found(&seen).contains(&"kept"), "{told}");

    let looking_on = looking(folder.path(), &process);
    // Once it is through with the first walk.
    std::thread::sleep(Duration::from_secs(1));
    drop(process);
    let output = looking_on.wait_with_output().expect("ends");
    let (seen, told) = figures(folder.path(), &output);
    assert!(seen["ended"] == true && told.starts_with("The process ended meanwhile."), "{told}");
}

#[test]
fn what_cannot_be_looked_at_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let said = |arguments: &[&str]| {
        let output = tool(folder.path()).arg("observe").args(arguments).output().expect("runs");
        (output.status.code(), texts(&output).1)
    };
    // No process has so high a number.
    let (code, text) = said(&["--pid", "2000000000"]);
    assert!(code == Some(2) && text.contains("there is no process 2000000000"), "{text}");
    for wrong in [
        &["--pid", "0"][..],
        &["--pid", "-5"],
        &["--pid", "1", "--", "ls"],
        &["--seconds", "3", "--", "ls"],
        &[],
    ] {
        assert_eq!(said(wrong).0, Some(2), "{wrong:?}");
    }
    let ended = Command::new("true").spawn().expect("runs");
    let mut ended = Process(ended);
    std::thread::sleep(Duration::from_millis(200));
    let (code, text) = said(&["--pid", &ended.0.id().to_string()]);
    assert!(code == Some(2) && text.contains("has ended: it has no memory"), "{text}");
    let _ = ended.0.wait();
    if rustix::process::getuid().is_root() {
        let process = started(folder.path(), "keep", &[]);
        let mut other = Command::new("setpriv");
        other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(env!("CARGO_BIN_EXE_ample"));
        let output =
            other.args(["observe", "--pid", &process.0.id().to_string()]).output().expect("setpriv runs");
        let (_, text) = texts(&output);
        // Where another user may not even enter the folder of the tool, it does not start.
        let cannot_start = text.contains("setpriv: failed to execute");
        assert!(
            cannot_start || output.status.code() == Some(1) && text.contains("belongs to another user"),
            "{text}"
        );
    }
}
