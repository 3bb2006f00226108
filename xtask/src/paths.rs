//! `xtask paths`: what the fast paths of malloc and free are made of, from the disassembly of `libample.so`.
//!
//! A path is an exported function's code from its first instruction to its first return: what runs while magazines
//! have blocks and room. Counts are of x86-64 code; they are recorded in `xtask/golden/fast-paths.txt`, which a test holds them
//! against: a change of the code that makes them grow must say so.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess};
use object::{Object, ObjectSection, ObjectSymbol};

use crate::cargo;

/// The functions: exported names.
const FUNCTIONS: [&str; 2] = ["malloc", "free"];

/// Most instructions of a path; one that is longer has no return where it should.
const LONGEST: usize = 64;

/// What one path is made of.
#[derive(Debug, Default, PartialEq, Eq)]
struct Made {
    instructions: usize,
    branches: usize,
    loads: usize,
    stores: usize,
    calls: usize,
    locked: usize,
}

impl Made {
    fn add(&mut self, instruction: &Instruction, factory: &mut InstructionInfoFactory) {
        self.instructions += 1;
        self.branches += usize::from(instruction.flow_control() == FlowControl::ConditionalBranch);
        self.calls += usize::from(matches!(
            instruction.flow_control(),
            FlowControl::Call | FlowControl::IndirectCall | FlowControl::Interrupt
        ));
        self.locked += usize::from(instruction.has_lock_prefix());
        // What a return reads of the stack is no load of the path's own.
        if instruction.flow_control() == FlowControl::Return {
            return;
        }
        for memory in factory.info(instruction).used_memory() {
            let access = memory.access();
            self.loads +=
                usize::from(matches!(access, OpAccess::Read | OpAccess::ReadWrite | OpAccess::CondRead));
            self.stores += usize::from(matches!(
                access,
                OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite | OpAccess::ReadCondWrite
            ));
        }
    }

    fn line(&self, name: &str) -> String {
        let Self { instructions, branches, loads, stores, calls, locked } = self;
        format!(
            "{name}: {instructions} instructions: {branches} branches, {loads} loads, {stores} stores, {calls} calls, \
             {locked} locked\n"
        )
    }
}

/// `xtask paths`: prints them; with `--record`, into the golden file.
///
/// # Errors
/// When the library does not build, or has no such paths.
pub fn run(arguments: &[OsString]) -> Result<ExitCode> {
    let record = match arguments {
        [] => false,
        [only] if only == "--record" => true,
        _ => bail!("usage: cargo xtask paths [--record]"),
    };
    let text = describe()?;
    print!("{text}");
    if record {
        fs::write(golden(), &text).with_context(|| format!("cannot write {}", golden().display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/fast-paths.txt")
}

/// The library as it is built now.
fn library() -> Result<Vec<u8>> {
    let workspace = cargo::workspace()?;
    ensure!(cargo::build(&workspace, "release", &["ample-abi"])?, "the allocator does not build");
    let library = workspace.target_directory.join("release/libample.so");
    fs::read(&library).with_context(|| format!("cannot read {}", library.display()))
}

/// One line for each path.
fn describe() -> Result<String> {
    let data = library()?;
    let file = object::File::parse(&*data).context("not an object file")?;
    ensure!(file.architecture() == object::Architecture::X86_64, "the counts are of x86-64 code");
    FUNCTIONS.into_iter().map(|name| Ok(path(&file, name)?.line(name))).collect()
}

fn path(file: &object::File<'_>, name: &str) -> Result<Made> {
    let symbol = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(name));
    let start = symbol.with_context(|| format!("the library does not export {name}"))?.address();
    let text = file.section_by_name(".text").context("no code")?;
    let code = text.data()?.get((start - text.address()) as usize..).context("the function is no code")?;
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let (mut made, mut factory) = (Made::default(), InstructionInfoFactory::new());
    while made.instructions < LONGEST {
        let instruction = decoder.decode();
        ensure!(!instruction.is_invalid(), "{name}: no instruction at {:#x}", instruction.ip());
        made.add(&instruction, &mut factory);
        match instruction.flow_control() {
            FlowControl::Return => return Ok(made),
            FlowControl::UnconditionalBranch => bail!("{name}: the fast path jumps"),
            _ => {}
        }
    }
    bail!("{name}: no return within {LONGEST} instructions")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_fast_paths_are_as_recorded() {
        let recorded = fs::read_to_string(golden()).expect("the golden file");
        let found = describe().expect("paths");
        assert_eq!(found, recorded, "if this is meant: cargo xtask paths --record");
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_library_takes_little_of_a_small_process() {
        // What lies in the file is mapped in pieces of 64 KiB around whatever is touched: nearly all of it is resident in every process.
        let data = library().expect("the library");
        let file = object::File::parse(&*data).expect("an object file");
        let kib = |name| file.section_by_name(name).expect(name).size() >> 10;
        assert!(kib(".text") < 72, "code: {} KiB; Cargo.toml says why it is built for size", kib(".text"));
        assert!(kib(".data") < 36, "data: {} KiB; what is all zeros belongs into .bss", kib(".data"));
    }

    #[test]
    fn profilers_show_the_family_by_its_own_names() {
        // Of several names of one address they take one without leading underscores, and the longest of those.
        let data = library().expect("the library");
        let file = object::File::parse(&*data).expect("an object file");
        let exported: Vec<(u64, &str)> = file
            .dynamic_symbols()
            .filter(|symbol| symbol.is_definition())
            .filter_map(|symbol| Some((symbol.address(), symbol.name().ok()?)))
            .collect();
        for name in ["malloc", "free", "calloc", "realloc", "posix_memalign"] {
            let (address, _) = exported.iter().find(|symbol| symbol.1 == name).expect(name);
            let shown = exported.iter().filter(|symbol| symbol.0 == *address && !symbol.1.starts_with('_'));
            assert_eq!(shown.map(|symbol| symbol.1).collect::<Vec<_>>(), [name]);
        }
    }

    #[test]
    fn loads_stores_branches_and_locks_are_told_apart() {
        // mov rax,[rdi]; mov [rdi],rax; add qword [rdi],1; lock inc dword [rdi]; je +0; call rax; ret
        let code = [
            0x48, 0x8b, 0x07, 0x48, 0x89, 0x07, 0x48, 0x83, 0x07, 0x01, 0xf0, 0xff, 0x07, 0x74, 0x00, 0xff,
            0xd0, 0xc3,
        ];
        let mut decoder = Decoder::new(64, &code, DecoderOptions::NONE);
        let (mut made, mut factory) = (Made::default(), InstructionInfoFactory::new());
        while decoder.can_decode() {
            made.add(&decoder.decode(), &mut factory);
        }
        // A call stores its return address.
        let expected = Made { instructions: 7, branches: 1, loads: 3, stores: 4, calls: 1, locked: 1 };
        assert_eq!(made, expected);
    }
}
