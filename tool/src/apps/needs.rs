//! What an app needs, whether it is there, and how it is got.

use std::collections::BTreeMap;
use std::env;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::App;
use crate::allocators::package_version;

/// Where servers lie, beside the user's PATH.
const MORE_PLACES: &[&str] = &["/usr/sbin", "/sbin"];
/// Name of the interpreter among the programs of an app.
pub const PYTHON: &str = "python3";

/// One thing that an app needs.
#[derive(Debug, Clone, Copy)]
pub enum Need {
    /// A program, and the Debian package that it comes with.
    Program(&'static str, &'static str),
    /// A module of Python, by its name on PyPI.
    Module(&'static str),
}

/// Looks for everything that an app needs: its programs by name, or the command that installs what is missing.
pub fn find(app: &App) -> Result<BTreeMap<&'static str, PathBuf>, String> {
    let (mut programs, mut packages, mut modules) = (BTreeMap::new(), Vec::new(), Vec::new());
    for need in app.needs {
        match *need {
            Need::Program(name, package) => match program(name) {
                Some(path) => drop(programs.insert(name, path)),
                None if packages.contains(&package) => {}
                None => packages.push(package),
            },
            Need::Module(name) => {
                let there = program(PYTHON).is_some_and(|python| has_module(&python, name));
                modules.extend((!there).then_some(name));
            }
        }
    }
    let mut commands = Vec::new();
    if !packages.is_empty() {
        commands.push(format!("apt-get install {}", packages.join(" ")));
    }
    if !modules.is_empty() {
        commands.push(format!("python3 -m pip install {}", modules.join(" ")));
    }
    if commands.is_empty() { Ok(programs) } else { Err(commands.join(" && ")) }
}

/// The program that the allocator serves: its version, where its package tells, and its file.
pub fn served(app: &App, programs: &BTreeMap<&'static str, PathBuf>) -> String {
    let name = match app.needs.first() {
        Some(Need::Program(name, _) | Need::Module(name)) => name,
        None => app.name,
    };
    let Some(path) = programs.get(name) else { return name.to_string() };
    match package_version(path) {
        Some(version) => format!("{name} {version}: {}", path.display()),
        None => format!("{name}: {}", path.display()),
    }
}

/// The file of a program. Of Python the interpreter itself, not a script that chooses among several.
fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let places = env::split_paths(&path).chain(MORE_PLACES.iter().map(PathBuf::from));
    let found = places.map(|place| place.join(name)).find(|file| is_executable(file))?;
    if name == PYTHON { interpreter(&found) } else { Some(found) }
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

fn interpreter(python: &Path) -> Option<PathBuf> {
    let mut command = Command::new(python);
    command.args(["-c", "import sys; print(sys.executable)"]).stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    is_executable(&path).then_some(path)
}

fn has_module(python: &Path, name: &str) -> bool {
    let mut command = Command::new(python);
    command.args(["-c", &format!("import {name}")]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apps::all;

    fn app(needs: &'static [Need]) -> App {
        App { needs, ..all()[0] }
    }

    #[test]
    fn what_is_there_is_found_and_the_rest_has_one_command() {
        let found = find(&app(&[Need::Program("sh", "dash"), Need::Program("env", "coreutils")]));
        let found = found.expect("every system has these");
        assert!(found["sh"].is_absolute() && found["env"].ends_with("env"));
        const LACKING: &[Need] = &[
            Need::Program("sh", "dash"),
            Need::Program("no-such-server", "no-package"),
            Need::Program("no-such-client", "no-package"),
            Need::Program("no-such-tool", "other"),
            Need::Module("no_such_module"),
        ];
        let command = find(&app(LACKING)).expect_err("not there");
        assert_eq!(command, "apt-get install no-package other && python3 -m pip install no_such_module");
    }
}
