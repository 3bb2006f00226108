//! Resolves the allocators that the user asked for.
//!
//! An entry of the list is a known name (`jemalloc`), a file (`./libfoo.so`), a named file
//! (`new=./libfoo.so`), each optionally with environment settings of its own
//! (`glibc:MALLOC_ARENA_MAX=1`).

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, anyhow, bail};

use super::Allocator;
use super::catalogue::BASELINE;
use super::discover::{Finder, from_file};
use super::identify::package_version;
use crate::error::{UsageError, unknown};

/// The allocators for a run, the baseline always among them; without a list, all that are found.
///
/// Fails for an unknown name, for a known one that is not on this machine, and for a file that is
/// no library; so that a run starts with all that was asked for, or not at all.
pub fn select(finder: &Finder, list: Option<&[String]>) -> Result<Vec<Allocator>> {
    let Some(list) = list else {
        return Ok(finder.all().into_iter().filter_map(Result::ok).collect());
    };
    let mut chosen = Vec::with_capacity(list.len() + 1);
    for item in list {
        let allocator = entry(finder, item)?;
        if chosen.iter().any(|other: &Allocator| other.name == allocator.name) {
            bail!(UsageError(format!("allocator '{}' is listed twice", allocator.name)));
        }
        chosen.push(allocator);
    }
    if !chosen.iter().any(Allocator::is_baseline) {
        chosen.insert(0, entry(finder, BASELINE)?);
    }
    Ok(chosen)
}

fn entry(finder: &Finder, item: &str) -> Result<Allocator> {
    let (base, environment) = split_settings(item)?;
    let mut allocator = if let Some((name, path)) = base.split_once('=') {
        named_file(name, Path::new(path))?
    } else if base.contains('/') {
        named_file(&name_of(Path::new(base)), Path::new(base))?
    } else {
        known(finder, base)?
    };
    for (variable, value) in &environment {
        allocator.name.push_str(&format!(":{variable}={value}"));
    }
    allocator.environment = environment;
    Ok(allocator)
}

fn known(finder: &Finder, name: &str) -> Result<Allocator> {
    match finder.by_name(name) {
        Some(Ok(allocator)) => Ok(allocator),
        Some(Err(missing)) => {
            Err(anyhow!("{name} is not available: {}; run: {}", missing.reason, missing.install))
        }
        None => {
            let names: Vec<&str> = super::names().collect();
            let mut error = unknown("allocator", name, &names);
            error.0.push_str("; or the path of a library, as ./libfoo.so");
            Err(error.into())
        }
    }
}

fn named_file(name: &str, path: &Path) -> Result<Allocator> {
    if name.is_empty() || super::names().any(|known| known == name) {
        bail!(UsageError(format!(
            "'{name}' cannot name the file {}; choose another name: NAME={0}",
            path.display()
        )));
    }
    from_file(name, path, package_version(path), "given by path")
}

/// `libfoo.so.2` is called `foo`.
fn name_of(path: &Path) -> String {
    let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let stem = file.split(".so").next().unwrap_or_default();
    stem.strip_prefix("lib").unwrap_or(stem).to_owned()
}

/// Splits `base:VARIABLE=value:VARIABLE=value`.
fn split_settings(item: &str) -> Result<(&str, BTreeMap<String, String>)> {
    let mut parts = item.split(':');
    let base = parts.next().unwrap_or_default();
    let mut environment = BTreeMap::new();
    for part in parts {
        let setting = part.split_once('=').filter(|(name, _)| is_variable(name));
        let Some((name, value)) = setting else {
            bail!(UsageError(format!(
                "'{part}' in '{item}' is not a setting; write NAME:VARIABLE=value with an environment variable"
            )));
        };
        environment.insert(name.to_owned(), value.to_owned());
    }
    Ok((base, environment))
}

fn is_variable(name: &str) -> bool {
    let valid = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(list: &[&str]) -> Result<Vec<String>> {
        let list: Vec<String> = list.iter().map(|&item| item.to_owned()).collect();
        let found = select(&Finder::new().expect("places"), Some(&list))?;
        Ok(found.into_iter().map(|allocator| allocator.name).collect())
    }

    fn refused(item: &str) -> String {
        let error = chosen(&[item]).expect_err("refused");
        assert!(error.is::<UsageError>(), "{error}");
        error.to_string()
    }

    #[test]
    fn files_get_the_name_of_their_stem_or_the_given_one_and_the_baseline_joins() {
        let finder = Finder::new().expect("places");
        let libc = finder.by_name(BASELINE).expect("known").expect("found").library;
        assert_eq!(chosen(&[&format!("new={}", libc.display())]).expect("found"), ["glibc", "new"]);
        assert_eq!(name_of(Path::new("/usr/lib/libfoo.so.2")), "foo");
        assert_eq!(name_of(Path::new("./bar.so")), "bar");
    }

    #[test]
    fn a_variant_carries_its_settings_in_its_name() {
        let list = ["glibc", "glibc:MALLOC_ARENA_MAX=1"];
        assert_eq!(chosen(&list).expect("found"), list);
    }

    #[test]
    fn nonsense_is_a_usage_error() {
        assert!(refused("glbc").contains("did you mean 'glibc'?"));
        assert!(refused("glibc:arena").contains("is not a setting"));
        assert!(refused("jemalloc=./x.so").contains("choose another name"));
        let twice = chosen(&["glibc", "glibc"]).expect_err("refused");
        assert_eq!(twice.to_string(), "allocator 'glibc' is listed twice");
    }
}
