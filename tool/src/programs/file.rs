//! From a command's name to what stands between its program and a preloaded allocator.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::elf::{Facts, System};
use crate::regular;

/// Scripts whose interpreters are scripts themselves are followed so far, as the kernel does.
const DEPTH: usize = 4;
/// Bytes of a script's first line that the kernel reads.
const FIRST_LINE: usize = 256;

/// A command that cannot be started.
#[derive(Debug, PartialEq, Eq)]
pub enum NotFound {
    /// There is no such file: exit code 127.
    Missing(String),
    /// There is one, but it cannot be executed: exit code 126.
    NotExecutable(String),
}

/// What the file of a program tells, in phrases that follow the program's name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Prospect {
    /// The file that the command names: of a script, the script.
    pub file: PathBuf,
    /// The file that is executed in the end: of a script, its interpreter.
    pub program: PathBuf,
    /// Why a preloaded library does not serve its malloc; none where nothing speaks against it.
    pub obstacle: Option<String>,
    /// Whether the library is for another system than the program, which may not even start with it.
    pub foreign: bool,
    /// Why it serves only a part of what the program allocates, and another malloc the rest.
    pub in_part: Option<String>,
    /// What else a reader should know: a heap that is no malloc's business, a script.
    pub remarks: Vec<String>,
}

/// Looks at the program that this command starts, for a library of this system.
///
/// Fails where there is no such program.
pub fn examine(command: &OsStr, library: Option<System>) -> Result<Prospect, NotFound> {
    let file = find(command)?;
    let (mut program, mut remarks) = (file.clone(), Vec::new());
    for _ in 0..DEPTH {
        let Some(interpreter) = interpreter(&program) else { break };
        if !is_executable(&interpreter) {
            let why = if interpreter.exists() { "cannot be executed" } else { "does not exist" };
            let (script, interpreter) = (program.display(), interpreter.display());
            let reason = format!("{script} cannot be executed: {interpreter}, which is to run it, {why}");
            return Err(NotFound::NotExecutable(reason));
        }
        remarks.push(format!("is a script; {} runs it", interpreter.display()));
        program = interpreter;
    }
    // What cannot be read (only executed) is left to the proof at run time.
    let Some(facts) = regular::read(&program).ok().and_then(|bytes| Facts::read(&bytes)) else {
        return Ok(Prospect { file, program, remarks, ..Prospect::default() });
    };
    remarks.extend(heap_of_its_own(&program, &facts));
    let foreign = foreign(&facts, library);
    let is_foreign = foreign.is_some();
    let obstacle = foreign.or_else(|| obstacle(&program, &facts));
    let in_part = in_part(&facts).filter(|_| obstacle.is_none());
    Ok(Prospect { file, program, obstacle, foreign: is_foreign, in_part, remarks })
}

/// The file of a command, as a shell finds it.
fn find(command: &OsStr) -> Result<PathBuf, NotFound> {
    let shown = command.display();
    if command.as_encoded_bytes().contains(&b'/') {
        let path = PathBuf::from(command);
        return match fs::metadata(&path) {
            Err(_) => Err(NotFound::Missing(format!("{shown} does not exist"))),
            Ok(_) if is_executable(&path) => Ok(path),
            Ok(_) => Err(NotFound::NotExecutable(format!("{shown} cannot be executed"))),
        };
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let files = env::split_paths(&path).map(|folder| folder.join(command));
    let found = files.into_iter().find(|file| is_executable(file));
    found.ok_or_else(|| NotFound::Missing(format!("there is no command '{shown}' in PATH")))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// What runs this script; none for what is no script. `env NAME` stands for the NAME in PATH.
fn interpreter(script: &Path) -> Option<PathBuf> {
    let mut head = Vec::new();
    fs::File::open(script).ok()?.take(FIRST_LINE as u64).read_to_end(&mut head).ok()?;
    let line = String::from_utf8_lossy(head.strip_prefix(b"#!")?).into_owned();
    let mut words = line.lines().next()?.split_whitespace();
    let program = PathBuf::from(words.next()?);
    if program.file_name() != Some(OsStr::new("env")) {
        return Some(program);
    }
    let name = words.find(|word| !word.starts_with('-') && !word.contains('='));
    name.and_then(|name| find(OsStr::new(name)).ok()).or(Some(program))
}

/// Why the library is for another system than this program.
fn foreign(facts: &Facts, library: Option<System>) -> Option<String> {
    if let (Some(own), Some(System { architecture: other, .. })) = (facts.architecture, library)
        && own != other
    {
        return Some(format!("is for another architecture ({own:?}) than the library ({other:?})"));
    }
    let for_musl = library.is_some_and(|library| library.musl);
    match facts.interpreter.as_ref()? {
        linker if linker.contains("ld-musl") && !for_musl => Some(format!(
            "runs on musl ({linker}), and the library on glibc; Ample has one for musl (README.md), to be named by --allocator musl=PATH"
        )),
        linker if !linker.contains("ld-musl") && for_musl => {
            Some(format!("runs on glibc ({linker}), and the library on musl"))
        }
        _ => None,
    }
}

/// Why a library for its own system does not serve this program.
fn obstacle(program: &Path, facts: &Facts) -> Option<String> {
    match &facts.interpreter {
        None if facts.go => return Some("is a static Go program: Go's own heap serves it".into()),
        None => return Some("is statically linked: it has its malloc inside".into()),
        Some(_) => {}
    }
    if let Some(privilege) = privilege(program) {
        return Some(format!("{privilege}: the dynamic linker ignores LD_PRELOAD for it"));
    }
    facts.own_malloc.then(|| {
        let whose = facts.bundled.map_or(String::new(), |name| format!(" ({name})"));
        format!("brings a malloc of its own{whose}, which comes before any preloaded one")
    })
}

/// Why the kernel would start this program with more rights than the caller has; none if it does not.
fn privilege(program: &Path) -> Option<&'static str> {
    const SETUID: u32 = 0o4000;
    const SETGID: u32 = 0o2010;
    let data = fs::metadata(program).ok()?;
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    if data.mode() & SETUID != 0 && data.uid() != user.as_raw() {
        return Some("is setuid");
    }
    if data.mode() & SETGID == SETGID && data.gid() != group.as_raw() {
        return Some("is setgid");
    }
    let has_capabilities =
        || rustix::fs::getxattr(program, "security.capability", &mut [0_u8; 64]).is_ok_and(|size| size > 0);
    (!user.is_root() && has_capabilities()).then_some("has file capabilities")
}

fn in_part(facts: &Facts) -> Option<String> {
    if let Some(name) = facts.bundled {
        return Some(format!(
            "has {name} inside under names of its own: what uses it stays there, and only malloc goes elsewhere"
        ));
    }
    let call = facts.foreign_call?;
    Some(format!("calls {call}, another allocator's own function, besides malloc: blocks may be mixed up"))
}

/// Memory that a program manages itself, and takes from the system without malloc.
fn heap_of_its_own(program: &Path, facts: &Facts) -> Option<String> {
    let needs = |beginning: &str| facts.needed.iter().any(|name| name.starts_with(beginning));
    let called = |name: &str| program.file_name() == Some(OsStr::new(name));
    let text = if needs("libjli") {
        "is Java: objects live in the JVM's own heap, and only native code uses malloc"
    } else if facts.go {
        "is a Go program: Go's own heap serves it, and only its C code uses malloc"
    } else if needs("libnode") || called("node") {
        "is Node.js: JavaScript objects live in V8's own heap, and only native code uses malloc"
    } else if facts.python || needs("libpython") {
        "is Python: objects up to 512 bytes come from its own pools, unless PYTHONMALLOC=malloc is set"
    } else {
        return None;
    };
    Some(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::system_of;
    use std::process::Command;

    fn compiled(folder: &Path, name: &str, source: &str, arguments: &[&str]) -> PathBuf {
        let (code, program) = (folder.join(format!("{name}.c")), folder.join(name));
        fs::write(&code, source).expect("written");
        let compiler = Command::new("cc").arg("-o").arg(&program).arg(&code).args(arguments).status();
        assert!(compiler.expect("a C compiler").success());
        program
    }

    fn look(path: &Path) -> Prospect {
        examine(path.as_os_str(), system_of(Path::new("/bin/sh"))).expect("found")
    }

    const PLAIN: &str = "#include <stdlib.h>\nint main(void) { free(malloc(9)); return 0; }";

    #[test]
    fn a_dynamic_program_can_be_served_and_a_static_one_cannot() {
        let folder = tempfile::tempdir().expect("a folder");
        let plain = look(&compiled(folder.path(), "plain", PLAIN, &[]));
        assert_eq!((plain.obstacle, plain.in_part, plain.remarks), (None, None, Vec::new()));
        let fixed = look(&compiled(folder.path(), "static", PLAIN, &["-static"]));
        assert_eq!(fixed.obstacle.as_deref(), Some("is statically linked: it has its malloc inside"));
    }

    #[test]
    fn a_program_needs_a_library_for_its_own_c_library() {
        let here = system_of(Path::new("/bin/sh")).expect("an ELF file");
        let told = |linker: &str, musl| {
            let facts = Facts { interpreter: Some(linker.into()), ..Facts::default() };
            foreign(&facts, Some(System { musl, ..here })).unwrap_or_default()
        };
        const MUSL: &str = "/lib/ld-musl-x86_64.so.1";
        const GLIBC: &str = "/lib64/ld-linux-x86-64.so.2";
        assert!(
            told(MUSL, false)
                .starts_with("runs on musl (/lib/ld-musl-x86_64.so.1), and the library on glibc")
        );
        assert_eq!(told(GLIBC, true), "runs on glibc (/lib64/ld-linux-x86-64.so.2), and the library on musl");
        assert_eq!((told(MUSL, true), told(GLIBC, false)), (String::new(), String::new()));
    }

    #[test]
    fn another_malloc_inside_is_seen_with_its_name_and_without() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = "void *malloc(unsigned long n) { (void)n; return 0; } int main(void) { return 0; }";
        let own = look(&compiled(folder.path(), "own", own, &["-fno-builtin", "-rdynamic"]));
        assert!(own.obstacle.expect("one").starts_with("brings a malloc of its own, which comes before"));
        let named = "void *_rjem_malloc(unsigned long n) { (void)n; return 0; } int main(void) { return 0; }";
        let named = look(&compiled(folder.path(), "named", named, &[]));
        assert!(named.in_part.expect("a part").starts_with("has jemalloc inside"));
        let text = "const char *volatile t = \"<jemalloc>: \"; int main(void) { return !t; }";
        let stripped = look(&compiled(folder.path(), "stripped", text, &["-s"]));
        assert!(stripped.in_part.expect("a part").starts_with("has jemalloc inside"));
        let calls = "void dallocx(void *p, int f); int main(void) { dallocx(0, 0); return 0; }";
        let library = compiled(
            folder.path(),
            "libx.so",
            "void dallocx(void *p, int f) { (void)p; (void)f; }",
            &["-shared", "-fPIC"],
        );
        let calls = look(&compiled(folder.path(), "calls", calls, &[library.to_str().expect("UTF-8")]));
        assert!(calls.in_part.expect("a part").starts_with("calls dallocx"));
    }

    #[test]
    fn scripts_are_followed_to_what_runs_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = folder.path().join("script");
        for (line, end) in [("#!/bin/sh -e", "/bin/sh"), ("#!/usr/bin/env sh", "/sh")] {
            fs::write(&script, format!("{line}\ntrue\n")).expect("written");
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("allowed");
            let found = look(&script);
            assert!(found.program.ends_with(end.trim_start_matches('/')) || found.program == Path::new(end));
            assert!(found.remarks[0].starts_with("is a script; ") && found.obstacle.is_none());
        }
    }

    #[test]
    fn what_cannot_be_started_is_told_apart() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        fs::write(&file, "").expect("written");
        let failure = |command: &OsStr| examine(command, None).expect_err("refused");
        assert!(matches!(failure(file.as_os_str()), NotFound::NotExecutable(_)));
        assert!(matches!(failure(OsStr::new("/nonexistent/x")), NotFound::Missing(_)));
        let NotFound::Missing(text) = failure(OsStr::new("no-such-command")) else { panic!("missing") };
        assert_eq!(text, "there is no command 'no-such-command' in PATH");
        let script = folder.path().join("script");
        fs::write(&script, "#!/nonexistent/int -x\n").expect("written");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("allowed");
        let NotFound::NotExecutable(text) = failure(script.as_os_str()) else { panic!("not executable") };
        let end = "script cannot be executed: /nonexistent/int, which is to run it, does not exist";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn rights_that_the_caller_lacks_are_an_obstacle() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = compiled(folder.path(), "plain", PLAIN, &[]);
        let setuid = fs::Permissions::from_mode(0o4755);
        fs::set_permissions(&program, setuid.clone()).expect("allowed");
        assert_eq!(look(&program).obstacle, None, "one's own setuid program gives no new rights");
        const NOBODY: u32 = 65534;
        if std::os::unix::fs::chown(&program, Some(NOBODY), None).is_ok() {
            fs::set_permissions(&program, setuid).expect("allowed");
            let obstacle = look(&program).obstacle.expect("one");
            assert_eq!(obstacle, "is setuid: the dynamic linker ignores LD_PRELOAD for it");
        }
    }
}
