//! `xtask atomics`: how many atomic operations, and how many locks, an allocator takes in workloads of several threads.
//!
//! Callgrind counts how often each instruction of the library ran; the disassembly tells which of them are atomic:
//! those with a `lock` prefix, and exchanges with memory, which the processor locks by itself. In `libample.so` an
//! exchange gives a lock back (`sync.rs`), so that their number is that of the locks that were taken. Under valgrind threads
//! take turns, and wait for each other less often than on real processors: a lower bound, but one that is the same on every machine.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};
use object::{Object, ObjectSection, SectionKind};
use serde_json::Value;

use crate::{callgrind, cargo, process};

/// Workloads, each with an amount of work that takes seconds under valgrind.
const WORKLOADS: [(&str, &[&str]); 4] = [
    ("threadtest", &["size=64", "objects=10000", "rounds=3"]),
    ("larson", &["rounds=2", "generations=3"]),
    ("producer-consumer", &["loops=20"]),
    ("xmalloc", &["batches=10"]),
];
/// Thread counts.
const THREADS: [u32; 3] = [2, 8, 32];
/// How long one run under valgrind may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// How often atomic instructions ran.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    atomic: u64,
    exchanges: u64,
}

/// Prints a Markdown table: a row for each library, workload and thread count.
///
/// # Errors
/// When something does not build or run, or a library is no ELF file of x86-64.
pub fn run(arguments: &[OsString]) -> Result<ExitCode> {
    let workspace = cargo::workspace()?;
    ensure!(cargo::build(&workspace, "release", &["ample-abi", "ample-workloads"])?, "it does not build");
    let release = workspace.target_directory.join("release");
    let libraries: Vec<PathBuf> = match arguments {
        [] => vec![release.join("libample.so")],
        files => files.iter().map(PathBuf::from).collect(),
    };
    let program = release.join("ample-workload");
    let profile = workspace.target_directory.join("atomics.out");
    println!(
        "| library | workload | threads | operations | atomic operations per million | exchanges (locks) per million |"
    );
    println!("|---|---|--:|--:|--:|--:|");
    for library in &libraries {
        let library = library.canonicalize().with_context(|| format!("cannot find {}", library.display()))?;
        let atomic = atomic_instructions(&library)?;
        for (workload, settings) in WORKLOADS {
            for threads in THREADS {
                let mut command =
                    vec!["run".to_owned(), workload.into(), "--threads".into(), threads.to_string()];
                command
                    .extend(settings.iter().flat_map(|setting| ["--set".to_owned(), (*setting).to_owned()]));
                let operations = operations(&program, &command)?;
                let counts = count(&program, &command, &library, &profile, &atomic)
                    .with_context(|| format!("{workload} on {threads} threads"))?;
                let per_million = |count: u64| count as f64 * 1e6 / operations as f64;
                println!(
                    "| {} | {workload} | {threads} | {operations} | {:.0} | {:.0} |",
                    library.file_name().unwrap_or_default().display(),
                    per_million(counts.atomic),
                    per_million(counts.exchanges)
                );
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// How many operations the workload does: a run without valgrind says so.
fn operations(program: &Path, command: &[String]) -> Result<u64> {
    let output = Command::new(program).args(command).output().context("cannot run the workloads")?;
    let outcome: Value = serde_json::from_slice(&output.stdout).context("the workload says nothing")?;
    outcome["operations"]
        .as_u64()
        .filter(|count| *count > 0)
        .with_context(|| format!("the workload says {outcome}"))
}

/// Runs the workload on the library under callgrind.
fn count(
    program: &Path,
    command: &[String],
    library: &Path,
    profile: &Path,
    atomic: &BTreeMap<u64, Kind>,
) -> Result<Counts> {
    fs::write(profile, "").with_context(|| format!("cannot write {}", profile.display()))?;
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["-q", "--tool=callgrind", "--dump-instr=yes", "--compress-pos=no", "--fair-sched=yes"]);
    valgrind.arg(format!("--callgrind-out-file={}", profile.display()));
    valgrind.arg(program).args(command).env_remove("VALGRIND_OPTS").env("LD_PRELOAD", library);
    let finished = process::run_at_most(PATIENCE, &mut valgrind)
        .context("cannot run valgrind: apt-get install valgrind")?
        .context("under valgrind it does not end")?;
    ensure!(
        finished.status.success(),
        "under valgrind it ends with {}: {}",
        finished.status,
        finished.stderr
    );
    let text = fs::read_to_string(profile).with_context(|| format!("cannot read {}", profile.display()))?;
    let ran = callgrind::instructions_by_address(&text, &library.display().to_string())?;
    ensure!(!ran.is_empty(), "no instruction of the library ran: it does not serve malloc");
    Ok(sum(&ran, atomic))
}

/// What an atomic instruction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Exchange,
    Other,
}

fn sum(ran: &BTreeMap<u64, u64>, atomic: &BTreeMap<u64, Kind>) -> Counts {
    let mut counts = Counts::default();
    for (address, times) in ran {
        let Some(kind) = atomic.get(address) else { continue };
        counts.atomic += times;
        counts.exchanges += if *kind == Kind::Exchange { *times } else { 0 };
    }
    counts
}

/// The atomic instructions of a library, by address.
fn atomic_instructions(library: &Path) -> Result<BTreeMap<u64, Kind>> {
    let data = fs::read(library).with_context(|| format!("cannot read {}", library.display()))?;
    let file =
        object::File::parse(&*data).with_context(|| format!("{} is no ELF file", library.display()))?;
    if file.architecture() != object::Architecture::X86_64 {
        bail!("{} is no code of x86-64", library.display());
    }
    let mut found = BTreeMap::new();
    for section in file.sections().filter(|section| section.kind() == SectionKind::Text) {
        let mut decoder = Decoder::with_ip(64, section.data()?, section.address(), DecoderOptions::NONE);
        while decoder.can_decode() {
            let instruction = decoder.decode();
            found.extend(kind(&instruction).map(|kind| (instruction.ip(), kind)));
        }
    }
    Ok(found)
}

fn kind(instruction: &Instruction) -> Option<Kind> {
    let with_memory =
        (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory);
    match instruction.mnemonic() {
        _ if instruction.code() == Code::INVALID => None,
        Mnemonic::Xchg if with_memory => Some(Kind::Exchange),
        _ if instruction.has_lock_prefix() => Some(Kind::Other),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_instructions_and_exchanges_with_memory_are_atomic() {
        // lock cmpxchg [rdi],ecx; xchg [rdi],eax; xchg rax,rcx; add dword [rdi],1
        let code = [0xf0, 0x0f, 0xb1, 0x0f, 0x87, 0x07, 0x48, 0x91, 0x83, 0x07, 0x01];
        let decoder = Decoder::new(64, &code, DecoderOptions::NONE);
        let kinds: Vec<_> = decoder.into_iter().map(|instruction| kind(&instruction)).collect();
        assert_eq!(kinds, [Some(Kind::Other), Some(Kind::Exchange), None, None]);
    }

    #[test]
    fn only_what_is_atomic_is_counted() {
        let atomic = [(4, Kind::Other), (8, Kind::Exchange)].into();
        let ran = [(0, 100), (4, 7), (8, 5)].into();
        assert_eq!(sum(&ran, &atomic), Counts { atomic: 12, exchanges: 5 });
    }
}
