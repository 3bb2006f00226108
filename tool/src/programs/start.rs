//! How a program starts on an allocator: in the user's own environment, with the library before all others.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::allocators::{Allocator, OWN_VARIABLES};

const PRELOAD: &str = "LD_PRELOAD";

/// Lets the command start on this allocator. Libraries that the user preloads keep their place behind it.
pub fn put_on(command: &mut Command, allocator: &Allocator) {
    put_as_is(command);
    command.envs(&allocator.environment);
    preload(command, &allocator.library);
}

/// What the user preloads by the environment of the tool; none where that is nothing.
pub fn preloaded_by_user() -> Option<OsString> {
    env::var_os(PRELOAD).filter(|libraries| !libraries.is_empty())
}

/// Lets the command start with this library before all others.
pub fn preload(command: &mut Command, library: &Path) {
    let mut libraries = OsString::from(library);
    if let Some(others) = preloaded_by_user() {
        libraries.push(":");
        libraries.push(others);
    }
    command.env(PRELOAD, libraries);
}

/// Lets the command start as the user would start it.
pub fn put_as_is(command: &mut Command) {
    for name in OWN_VARIABLES {
        command.env_remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_comes_first_and_the_tools_own_variables_stay_behind() {
        let mut allocator = Allocator::fake("x");
        allocator.environment.insert("X_CACHE".into(), "0".into());
        let mut command = Command::new("true");
        put_on(&mut command, &allocator);
        let value = |name: &str| {
            let found = command.get_envs().find(|(key, _)| *key == name).expect("set");
            found.1.map(|value| value.to_string_lossy().into_owned())
        };
        assert!(value(PRELOAD).expect("a library").starts_with("/fake/libx.so"));
        assert_eq!(value("X_CACHE").as_deref(), Some("0"));
        assert_eq!(value("AMPLE_LIB"), None, "removed");
    }
}
