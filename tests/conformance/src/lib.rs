//! Runs the conformance programs (`programs/*.c`, `programs/*.cc`) under a preloaded allocator.
//!
//! A program holds named cases; [`cases!`] makes one `#[test]` of each, and one more test that fails when
//! the program has a case that is not listed. Programs are compiled by the system's compilers (`CC`, `CXX`;
//! by default `cc`, `c++`; `CFLAGS` are theirs too) when a test first needs them.
//!
//! A case that this machine does not allow exits with 77 and says why: the test then writes `skipped: …` to standard error, past
//! what the test harness captures, and passes.
//!
//! The allocator under test is `libample.so` of the release profile, which is built first. The environment
//! variable `AMPLE_CONFORMANCE_LIB` names another one by its path, or `none`: nothing is preloaded and the
//! C library is judged. Where `AMPLE_CONFORMANCE_EMULATOR` holds QEMU's command (`qemu-aarch64 -L /usr/aarch64-linux-gnu`), programs are run
//! by it; `CC`, `CXX` and the library must be for the processor that it emulates.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Seconds after which a case counts as hung.
const TIME_LIMIT_S: u32 = 120;

/// Its number, on every Linux.
const SIGKILL: i32 = 9;

/// Makes a module with one `#[test]` for each case of a program, and one that compares the list with the
/// program's own.
///
/// `libraries` are compiled beside the program, for cases that open them.
#[macro_export]
macro_rules! cases {
    ($module:ident, $source:literal, $loading:ident, libraries $libraries:expr, [$($case:ident),+ $(,)?]) => {
        mod $module {
            const SUITE: $crate::Suite = $crate::Suite {
                source: $source,
                libraries: &$libraries,
                loading: $crate::Loading::$loading,
                scratch: env!("CARGO_TARGET_TMPDIR"),
            };

            $(
                #[test]
                fn $case() {
                    SUITE.run(stringify!($case));
                }
            )+

            #[test]
            fn no_case_is_left_out() {
                SUITE.expect_cases(&[$(stringify!($case)),+]);
            }
        }
    };
    ($module:ident, $source:literal, $loading:ident, [$($case:ident),+ $(,)?]) => {
        $crate::cases!($module, $source, $loading, libraries [], [$($case),+]);
    };
    ($module:ident, $source:literal, [$($case:ident),+ $(,)?]) => {
        $crate::cases!($module, $source, Preloaded, libraries [], [$($case),+]);
    };
}

/// Exit code of a case that this machine does not allow.
const SKIPPED: i32 = 77;

/// How a program meets the allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Loading {
    /// `LD_PRELOAD`: it serves the whole process.
    Preloaded,
    /// Not at all: the program opens it itself.
    ByProgram,
    /// The program is linked with the shared library.
    Linked,
    /// The same, and a copy of the library is preloaded.
    LinkedAndPreloaded,
    /// The archive is linked into a program that has a dynamic linker.
    Archive,
    /// It is linked into a program without a dynamic linker.
    Static,
    /// The same, at an address that is not known beforehand.
    StaticPie,
}

/// A conformance program.
#[derive(Debug, Clone, Copy)]
pub struct Suite {
    /// Its file in `programs/`.
    pub source: &'static str,
    /// Files in `programs/` that become shared libraries beside it.
    pub libraries: &'static [&'static str],
    /// How it meets the allocator.
    pub loading: Loading,
    /// Cargo's folder for integration tests: `tmp` in the target directory.
    pub scratch: &'static str,
}

impl Suite {
    /// Runs one case.
    ///
    /// # Panics
    /// If the program does not compile, or the case fails, crashes or hangs.
    #[track_caller]
    pub fn run(&self, case: &str) {
        let allocator = allocator_under_test(Path::new(self.scratch));
        if self.takes_archive() && !allocator.file.with_extension("a").exists() {
            return self.skipped(case, &format!("{} has no archive beside it", allocator.file.display()));
        }
        let is_ours = allocator.file.ends_with("libample.so");
        if matches!(self.loading, Loading::Linked | Loading::LinkedAndPreloaded) && !is_ours {
            return self.skipped(case, &format!("{} has another name", allocator.file.display()));
        }
        let output = self.run_as_loaded(case);
        if output.status.code() == Some(SKIPPED) {
            return self.skipped(case, String::from_utf8_lossy(&output.stdout).trim());
        }
        assert!(
            output.status.success(),
            "{}: {case}: {}\n{}",
            self.source,
            end_of(&output),
            text_of(&output)
        );
    }

    fn takes_archive(&self) -> bool {
        matches!(self.loading, Loading::Static | Loading::StaticPie | Loading::Archive)
    }

    /// Says so on standard error itself: what `eprintln` writes is shown of failed tests only.
    fn skipped(&self, case: &str, reason: &str) {
        let _ = writeln!(std::io::stderr(), "skipped: {}: {case}: {reason}", self.source);
    }

    /// Runs one case as if `library` served it, with nothing preloaded; gives what it printed.
    ///
    /// # Panics
    /// If the program does not compile, or the case passes.
    pub fn fail_unserved(&self, case: &str, library: &Path) -> String {
        let output = self.output(case, library, false);
        assert!(!output.status.success(), "{case} passes although {} does not serve it", library.display());
        text_of(&output)
    }

    /// Compares the cases that the program has with those that the tests run.
    ///
    /// # Panics
    /// If they differ.
    pub fn expect_cases(&self, expected: &[&str]) {
        let output = self.run_as_loaded("--list");
        assert!(
            output.status.success(),
            "{}: --list: {}\n{}",
            self.source,
            end_of(&output),
            text_of(&output)
        );
        let listed = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut listed: Vec<&str> = listed.lines().collect();
        let mut expected = expected.to_vec();
        listed.sort_unstable();
        expected.sort_unstable();
        assert_eq!(listed, expected, "cases of {} (left) and its tests (right)", self.source);
    }

    /// What the program does when it is given this argument, and meets the allocator under test.
    fn run_as_loaded(&self, argument: &str) -> Output {
        let allocator = allocator_under_test(Path::new(self.scratch));
        if self.loading == Loading::LinkedAndPreloaded {
            return self.output(argument, &self.copy_of_the_library(), true);
        }
        let preload = allocator.preloadable && self.loading == Loading::Preloaded;
        self.output(argument, &allocator.file, preload)
    }

    fn output(&self, case: &str, library: &Path, preload: bool) -> Output {
        // `env` sets the preload, so that `timeout` itself runs without it; `timeout` ends the whole process
        // group, children included.
        let mut command = Command::new("timeout");
        command.arg("--signal=KILL").arg(TIME_LIMIT_S.to_string()).arg("env");
        command.arg(setting("CONFORMANCE_LIBRARY", library));
        let emulator = emulator();
        command.args(&emulator);
        if preload {
            // The emulator is another machine's program: it takes the program's settings as an option.
            command.args((!emulator.is_empty()).then_some("-E")).arg(setting("LD_PRELOAD", library));
        }
        command.arg(self.program()).arg(case);
        command.current_dir(self.scratch).output().expect("coreutils' timeout starts")
    }

    /// The compiled program, compiled on first use.
    fn program(&self) -> PathBuf {
        type Slot = Arc<OnceLock<PathBuf>>;
        static PROGRAMS: OnceLock<Mutex<HashMap<(&'static str, Loading), Slot>>> = OnceLock::new();
        let slot = {
            let mut programs = PROGRAMS.get_or_init(Mutex::default).lock().expect("the map is whole");
            Slot::clone(programs.entry((self.source, self.loading)).or_default())
        };
        slot.get_or_init(|| {
            for library in self.libraries {
                self.compile(library, &["-shared", "-fPIC"], ".so");
            }
            match self.loading {
                Loading::Static => self.compile(self.source, &["-pthread", "-static", "-no-pie"], "-static"),
                Loading::StaticPie => {
                    self.compile(self.source, &["-pthread", "-static-pie", "-fPIE"], "-static-pie")
                }
                Loading::Archive => self.compile(self.source, &["-pthread"], "-archive"),
                Loading::Linked | Loading::LinkedAndPreloaded => {
                    let folder = self.installed();
                    let options = ["-pthread", "-L", &folder, "-Wl,-rpath", "-Xlinker", &folder];
                    self.compile(self.source, &options, "-linked")
                }
                Loading::Preloaded | Loading::ByProgram => {
                    self.compile(self.source, &["-pthread", "-rdynamic"], "")
                }
            }
        })
        .clone()
    }

    /// Another file that is the same library.
    fn copy_of_the_library(&self) -> PathBuf {
        static COPY: OnceLock<PathBuf> = OnceLock::new();
        let copied = || {
            let copy = Path::new(self.scratch).join("copy-of-libample.so");
            let library = &allocator_under_test(Path::new(self.scratch)).file;
            replace(&copy, |unfinished| std::fs::copy(library, unfinished).map(drop));
            copy
        };
        COPY.get_or_init(copied).clone()
    }

    /// The folder in which a linker and a program find the library by its names, as where it is installed.
    fn installed(&self) -> String {
        let allocator = allocator_under_test(Path::new(self.scratch));
        let folder = Path::new(self.scratch).join("installed");
        std::fs::create_dir_all(&folder).expect("the scratch folder is writable");
        for name in ["libample.so", "libample.so.0"] {
            let link = |unfinished: &Path| std::os::unix::fs::symlink(&allocator.file, unfinished);
            replace(&folder.join(name), link);
        }
        folder.to_str().expect("a path that is text").to_owned()
    }

    fn compile(&self, source: &str, options: &[&str], suffix: &str) -> PathBuf {
        let mut command = match source.rsplit_once('.') {
            Some((_, "cc")) => compiler("CXX", "c++"),
            _ => compiler("CC", "cc"),
        };
        // Without built-ins, the compiler may neither delete a malloc whose result is unused nor guess its
        // result.
        command.args(["-O2", "-g", "-Wall", "-Wextra", "-fno-builtin", "-D_GNU_SOURCE"]).args(options);
        let result = Path::new(self.scratch).join(source.replace('.', "-") + suffix);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(source);
        command.args(words_of("CFLAGS")).arg(source);
        if self.takes_archive() {
            command.arg(allocator_under_test(Path::new(self.scratch)).file.with_extension("a"));
        }
        if suffix == "-linked" {
            command.arg("-lample");
        }
        replace(&result, |unfinished| {
            succeed(command.arg("-o").arg(unfinished));
            Ok(())
        });
        result
    }
}

/// Makes a file, or makes it anew, in one step: another test process may be using it.
///
/// # Panics
/// If the folder is not writable.
fn replace(file: &Path, make: impl FnOnce(&Path) -> std::io::Result<()>) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let unfinished = file.with_extension(format!("{}-{number}.unfinished", std::process::id()));
    let made = make(&unfinished).and_then(|()| std::fs::rename(&unfinished, file));
    made.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}

/// The path of a library that the system's C compiler links, such as `libm.so.6`.
///
/// # Panics
/// If the compiler does not know the library.
pub fn system_library(name: &str) -> PathBuf {
    let output = succeed(compiler("CC", "cc").arg(format!("-print-file-name={name}")));
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    path.canonicalize().unwrap_or_else(|error| panic!("the C compiler does not find {name}: {error}"))
}

/// The allocator that the tests judge.
struct Allocator {
    /// The library that must serve `malloc`.
    file: PathBuf,
    /// False for the C library, which is there anyway.
    preloadable: bool,
}

fn allocator_under_test(scratch: &Path) -> &'static Allocator {
    static ALLOCATOR: OnceLock<Allocator> = OnceLock::new();
    ALLOCATOR.get_or_init(|| match std::env::var_os("AMPLE_CONFORMANCE_LIB") {
        Some(choice) if choice == "none" => {
            Allocator { file: system_library("libc.so.6"), preloadable: false }
        }
        Some(choice) => {
            let path = PathBuf::from(choice);
            let file = path
                .canonicalize()
                .unwrap_or_else(|error| panic!("AMPLE_CONFORMANCE_LIB={}: {error}", path.display()));
            Allocator { file, preloadable: true }
        }
        None => Allocator { file: build_ample(scratch), preloadable: true },
    })
}

/// Builds `libample.so` into the target directory of the running test.
fn build_ample(scratch: &Path) -> PathBuf {
    let target = scratch.parent().expect("cargo's scratch folder lies in the target directory");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let mut command = Command::new(cargo);
    command.args(["build", "--release", "--package", "ample-abi"]);
    succeed(command.arg("--manifest-path").arg(manifest).arg("--target-dir").arg(target));
    target.join("release/libample.so")
}

/// The emulator's command, in words; none where the programs are this machine's own.
fn emulator() -> Vec<String> {
    words_of("AMPLE_CONFORMANCE_EMULATOR")
}

fn words_of(variable: &str) -> Vec<String> {
    std::env::var(variable).unwrap_or_default().split_whitespace().map(String::from).collect()
}

/// What a program that is installed on this machine prints under the allocator; `None` where it is not, or where nothing can be preloaded into it,
/// which a line on standard error says.
///
/// # Panics
/// If it fails.
pub fn installed(program: &str, arguments: &[&str], scratch: &str) -> Option<String> {
    let allocator = allocator_under_test(Path::new(scratch));
    let reason = if !emulator().is_empty() {
        "it is a program for this machine's processor"
    } else if !allocator.preloadable {
        "nothing is preloaded"
    } else if Command::new(program).arg("--version").output().is_err() {
        "it is not installed"
    } else {
        let mut command = Command::new("timeout");
        command.arg("--signal=KILL").arg(TIME_LIMIT_S.to_string()).arg("env");
        command.arg(setting("LD_PRELOAD", &allocator.file)).arg(program).args(arguments);
        let output = command.output().expect("coreutils' timeout starts");
        assert!(output.status.success(), "{program}: {}\n{}", end_of(&output), text_of(&output));
        return Some(String::from_utf8_lossy(&output.stdout).into_owned());
    };
    let _ = writeln!(std::io::stderr(), "skipped: {program}: {reason}");
    None
}

fn compiler(variable: &str, default: &str) -> Command {
    Command::new(std::env::var_os(variable).unwrap_or_else(|| default.into()))
}

fn setting(name: &str, path: &Path) -> OsString {
    let mut setting = OsString::from(name);
    setting.push("=");
    setting.push(path);
    setting
}

fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, text_of(&output));
    output
}

/// How it ended; `timeout` ends itself by the signal that ended the program.
fn end_of(output: &Output) -> String {
    match output.status.signal() {
        Some(SIGKILL) => format!("killed: it hung for {TIME_LIMIT_S} s, or memory ran out"),
        Some(signal) => format!("ended by signal {signal}"),
        None => output.status.to_string(),
    }
}

fn text_of(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat()
}
