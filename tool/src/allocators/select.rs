//! Resolves the allocators that the user asked for.
//!
//! An entry of the list is a known name (`jemalloc`), a file (`./libfoo.so`), a named file
//! (`new=./libfoo.so`), each optionally with settings of its own (`glibc:mmap_threshold=131072`,
//! `glibc:MALLOC_ARENA_MAX=1`).

use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};

use super::Allocator;
use super::catalogue::BASELINE;
use super::discover::{Finder, from_file};
use super::identify::package_version;
use super::options::told_by;
use super::settings;
use crate::error::{UsageError, unknown};

/// The allocators for a run, the baseline always among them; without a list, all that are found but limits,
/// and `arms` beside them.
///
/// Fails for an unknown name, for a known one that is not on this machine, and for a file that is
/// no library; so that a run starts with all that was asked for, or not at all.
pub fn select(finder: &Finder, list: Option<&[String]>, arms: &[&str]) -> Result<Vec<Allocator>> {
    let Some(list) = list else {
        if let Some(reason) = finder.refused() {
            bail!("{reason}");
        }
        let arms = arms.iter().map(|arm| entry(finder, arm));
        let found = finder.all().into_iter().filter_map(Result::ok);
        return found.filter(|allocator| allocator.limit.is_none()).map(Ok).chain(arms).collect();
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

/// One allocator, without the baseline beside it.
///
/// Fails as [`select`] does.
pub fn one(finder: &Finder, item: &str) -> Result<Allocator> {
    entry(finder, item)
}

fn entry(finder: &Finder, item: &str) -> Result<Allocator> {
    let (base, settings) = split_settings(item)?;
    let (mut allocator, known) = if let Some((name, path)) = base.split_once('=') {
        (named_file(name, Path::new(path))?, None)
    } else if base.contains('/') {
        (named_file(&name_of(Path::new(base)), Path::new(base))?, None)
    } else {
        (known(finder, base)?, Some(base))
    };
    let options = || told_by(&allocator.library).with_context(|| format!("{}", allocator.library.display()));
    settings::check(known, &settings, options)?;
    settings::apply(known, &settings, &mut allocator.environment)?;
    for (name, value) in settings {
        allocator.name.push_str(&format!(":{name}={value}"));
    }
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

/// Splits `base:name=value:name=value`.
fn split_settings(item: &str) -> Result<(&str, Vec<(&str, &str)>)> {
    let mut parts = item.split(':');
    let base = parts.next().unwrap_or_default();
    let settings: Result<_> = parts
        .map(|part| match part.split_once('=') {
            Some((name, value)) if settings::is_name(name) => Ok((name, value)),
            _ => bail!(UsageError(format!(
                "'{part}' in '{item}' is not a setting; write ALLOCATOR:setting=value, or \
                 ALLOCATOR:VARIABLE=value with an environment variable"
            ))),
        })
        .collect();
    Ok((base, settings?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(list: &[&str]) -> Result<Vec<String>> {
        let list: Vec<String> = list.iter().map(|&item| item.to_owned()).collect();
        let found = select(&Finder::new().expect("places"), Some(&list), &[])?;
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
        let list = ["glibc", "glibc:MALLOC_ARENA_MAX=1", "glibc:arena_max=1:tcache_count=0"];
        assert_eq!(chosen(&list).expect("found"), list);
    }

    #[test]
    fn the_arms_of_a_preset_join_what_is_found() {
        let found = select(&Finder::new().expect("places"), None, &["glibc:arena_max=1"]).expect("found");
        assert_eq!(found.last().expect("one").name, "glibc:arena_max=1");
        assert!(found.iter().any(Allocator::is_baseline));
    }

    #[test]
    fn limits_take_part_only_where_they_are_asked_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let libc = Finder::new().expect("places").by_name(BASELINE).expect("known").expect("found").library;
        for name in ["floor", "single-lock"] {
            std::fs::copy(&libc, folder.path().join(format!("lib{name}.so"))).expect("copied");
        }
        let finder = Finder::of_folder(folder.path());
        let chosen = |list: Option<&[String]>, arms: &[&str]| -> Vec<String> {
            let found = select(&finder, list, arms).expect("found");
            found.into_iter().map(|allocator| allocator.name).collect()
        };
        assert_eq!(chosen(None, &[]), ["glibc"]);
        assert_eq!(chosen(None, &["single-lock"]), ["glibc", "single-lock"]);
        assert_eq!(chosen(Some(&["floor".to_owned()]), &["single-lock"]), ["glibc", "floor"]);
        let variant = select(&finder, Some(&["floor:AMPLE_FLOOR_SIZE=128".to_owned()]), &[]).expect("found");
        assert!(variant[1].limit.is_some());
    }

    #[test]
    fn nonsense_is_a_usage_error() {
        assert!(refused("glbc").contains("did you mean 'glibc'?"));
        assert!(refused("glibc:arena_min=1").contains("unknown setting of glibc 'arena_min'"));
        assert!(refused("glibc:arena").contains("is not a setting"));
        assert!(refused("jemalloc=./x.so").contains("choose another name"));
        let twice = chosen(&["glibc", "glibc"]).expect_err("refused");
        assert_eq!(twice.to_string(), "allocator 'glibc' is listed twice");
    }
}
