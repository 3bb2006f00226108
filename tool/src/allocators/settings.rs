//! Settings of an allocator under the project's own names, and the environment that brings them about.
//!
//! `glibc:mmap_threshold=131072` sets `GLIBC_TUNABLES=glibc.malloc.mmap_threshold=131072`. A name in
//! upper case is an environment variable as it stands.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};

use super::options::Definition;
use super::{BASELINE, OURS};
use crate::error::{UsageError, unknown};

/// How the settings of a family of allocators become environment variables.
enum Style {
    /// All in one variable, each as `PREFIX name SEPARATOR value`, joined.
    One { variable: &'static str, prefix: &'static str, separator: char, joint: char },
    /// Each in a variable of its own: this prefix and the name in upper case.
    Each { prefix: &'static str },
    /// The allocator reads no settings.
    None,
}

/// What our own settings begin with in the environment.
pub const OWN_PREFIX: &str = "AMPLE_";
/// Variables by which glibc's malloc takes single numbers.
const NUMBERS: &[&str] = &[
    "MALLOC_ARENA_MAX",
    "MALLOC_ARENA_TEST",
    "MALLOC_CHECK_",
    "MALLOC_MMAP_MAX_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_PERTURB_",
    "MALLOC_TOP_PAD_",
    "MALLOC_TRIM_THRESHOLD_",
];
/// What glibc's settings begin with in [`TUNABLES`].
const PREFIX: &str = "glibc.malloc.";
/// The variable that holds settings of glibc, its malloc's among them.
const TUNABLES: &str = "GLIBC_TUNABLES";

/// How each family does it. `known`, where it is not empty, lists all settings there are: an allocator
/// ignores an unknown one in silence, and the variant would be none. Those of our own come from its library.
struct Family {
    /// Names of the allocators, in the order of tables.
    allocators: &'static [&'static str],
    style: Style,
    known: &'static [&'static str],
}

const FAMILIES: &[Family] = &[
    Family { allocators: &[OURS], style: Style::Each { prefix: OWN_PREFIX }, known: &[] },
    Family {
        allocators: &[BASELINE],
        style: Style::One { variable: TUNABLES, prefix: PREFIX, separator: '=', joint: ':' },
        known: &[
            "arena_max",
            "arena_test",
            "check",
            "hugetlb",
            "mmap_max",
            "mmap_threshold",
            "mxfast",
            "perturb",
            "tcache_count",
            "tcache_max",
            "tcache_unsorted_limit",
            "top_pad",
            "trim_threshold",
        ],
    },
    Family {
        // Both builds carry no prefix: they read this variable, and not `_RJEM_MALLOC_CONF`.
        allocators: &["jemalloc", "jemalloc-debian"],
        style: Style::One { variable: "MALLOC_CONF", prefix: "", separator: ':', joint: ',' },
        known: &[],
    },
    Family {
        allocators: &["mimalloc2", "mimalloc3", "mimalloc-debian"],
        style: Style::Each { prefix: "MIMALLOC_" },
        known: &[],
    },
    Family {
        allocators: &["tcmalloc", "gperftools"],
        style: Style::Each { prefix: "TCMALLOC_" },
        known: &[],
    },
    Family { allocators: &["tbbmalloc"], style: Style::Each { prefix: "TBB_MALLOC_" }, known: &[] },
    Family {
        allocators: &["scudo"],
        style: Style::One { variable: "SCUDO_OPTIONS", prefix: "", separator: '=', joint: ':' },
        known: &[],
    },
    Family { allocators: &["snmalloc", "rpmalloc", "floor", "single-lock"], style: Style::None, known: &[] },
];

/// Refuses, with a usage error, values that glibc and our own allocator would not take as they are meant, and settings
/// that the latter does not know. Other libraries' values are their own matter.
///
/// `options` asks our own library for its settings.
pub fn check(
    allocator: Option<&str>,
    settings: &[(&str, &str)],
    options: impl FnOnce() -> Result<Vec<Definition>>,
) -> Result<()> {
    let own = allocator == Some(OURS);
    for &(name, value) in settings {
        let tunable = match value.split_once('=') {
            Some((setting, value)) if name == TUNABLES && setting.starts_with(PREFIX) => {
                Some((setting, value))
            }
            _ if NUMBERS.contains(&name) || allocator == Some(BASELINE) && !is_variable(name) => {
                Some((name, value))
            }
            _ => None,
        };
        if let Some((setting, value)) = tunable.filter(|(_, value)| !is_whole(value)) {
            bail!(UsageError(format!(
                "'{value}' is no value of {setting}: glibc takes whole numbers, and reads no suffix: write 131072, not \
                 128K"
            )));
        }
    }
    let own: Vec<(String, &str)> = settings
        .iter()
        .filter(|(name, _)| own && (!is_variable(name) || name.starts_with(OWN_PREFIX)))
        .map(|&(name, value)| match is_variable(name) {
            true => (name.to_owned(), value),
            false => (format!("{OWN_PREFIX}{}", name.to_ascii_uppercase()), value),
        })
        .collect();
    if own.is_empty() {
        return Ok(());
    }
    let options = options().context("its settings cannot be checked")?;
    for (variable, value) in own {
        let Some(option) = options.iter().find(|option| option.name == variable) else {
            let names: Vec<&str> = options.iter().map(|option| option.name.as_str()).collect();
            bail!(unknown(&format!("setting of {OURS}"), &variable, &names));
        };
        if let Some(takes) = option.refuses(value) {
            bail!(UsageError(format!("'{value}' is no value of {variable}, which takes {takes}")));
        }
    }
    Ok(())
}

/// A whole number as glibc reads it: decimal, or hexadecimal after 0x.
fn is_whole(text: &str) -> bool {
    let hexadecimal = text.strip_prefix("0x").filter(|digits| !digits.is_empty());
    match hexadecimal {
        Some(digits) => {
            digits.bytes().all(|digit| digit.is_ascii_hexdigit()) && u64::from_str_radix(digits, 16).is_ok()
        }
        None => text.bytes().all(|digit| digit.is_ascii_digit()) && text.parse::<u64>().is_ok(),
    }
}

/// Adds settings, as `(name, value)`, to the environment of the allocator of this name; none for a library
/// given by its path. A variable that the environment holds already is extended, where it takes several
/// settings, and replaced otherwise.
///
/// Fails with a usage error for a name that can be no setting of this allocator.
pub fn apply(
    allocator: Option<&str>,
    settings: &[(&str, &str)],
    environment: &mut BTreeMap<String, String>,
) -> Result<()> {
    for &(name, value) in settings {
        if is_variable(name) {
            environment.insert(name.to_owned(), value.to_owned());
            continue;
        }
        let family =
            FAMILIES.iter().find(|family| allocator.is_some_and(|name| family.allocators.contains(&name)));
        let Some(family) = family else {
            bail!(UsageError(format!(
                "'{name}' is no setting that is known for a library given by its path; write an environment \
                 variable in upper case: NAME=value"
            )));
        };
        let allocator = allocator.unwrap_or_default();
        if !family.known.is_empty() && !family.known.contains(&name) {
            bail!(unknown(&format!("setting of {allocator}"), name, family.known));
        }
        match family.style {
            Style::None => bail!(UsageError(format!("{allocator} reads no settings from its environment"))),
            Style::Each { prefix } => {
                environment.insert(format!("{prefix}{}", name.to_ascii_uppercase()), value.to_owned());
            }
            Style::One { variable, prefix, separator, joint } => {
                let setting = format!("{prefix}{name}{separator}{value}");
                environment
                    .entry(variable.to_owned())
                    .and_modify(|all| all.push_str(&format!("{joint}{setting}")))
                    .or_insert(setting);
            }
        }
    }
    Ok(())
}

/// Whether this is the name of an environment variable, in upper case.
fn is_variable(name: &str) -> bool {
    let valid = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(valid)
}

/// Whether this can be the name of a setting or of a variable at all.
pub fn is_name(name: &str) -> bool {
    let valid = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(allocator: &str, settings: &[(&str, &str)]) -> Result<Vec<String>> {
        let mut environment = BTreeMap::new();
        apply(Some(allocator), settings, &mut environment)?;
        Ok(environment.into_iter().map(|(name, value)| format!("{name}={value}")).collect())
    }

    #[test]
    fn each_family_has_its_way() {
        type Case = (&'static str, &'static [(&'static str, &'static str)], &'static [&'static str]);
        let cases: &[Case] = &[
            (
                "glibc",
                &[("mmap_threshold", "131072"), ("arena_max", "1")],
                &["GLIBC_TUNABLES=glibc.malloc.mmap_threshold=131072:glibc.malloc.arena_max=1"],
            ),
            (
                "jemalloc",
                &[("background_thread", "true"), ("narenas", "4")],
                &["MALLOC_CONF=background_thread:true,narenas:4"],
            ),
            ("mimalloc3", &[("purge_delay", "0")], &["MIMALLOC_PURGE_DELAY=0"]),
            ("ample", &[("cache", "0")], &["AMPLE_CACHE=0"]),
            (
                "gperftools",
                &[("max_total_thread_cache_bytes", "1")],
                &["TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES=1"],
            ),
            ("tbbmalloc", &[("use_huge_pages", "1")], &["TBB_MALLOC_USE_HUGE_PAGES=1"]),
            ("scudo", &[("release_to_os_interval_ms", "0")], &["SCUDO_OPTIONS=release_to_os_interval_ms=0"]),
            ("glibc", &[("MALLOC_ARENA_MAX", "1")], &["MALLOC_ARENA_MAX=1"]),
            ("snmalloc", &[("X", "1")], &["X=1"]),
        ];
        for (allocator, settings, expected) in cases {
            assert_eq!(environment(allocator, settings).expect("known"), *expected, "{allocator}");
        }
    }

    #[test]
    fn what_would_be_ignored_in_silence_is_refused() {
        let refused =
            |allocator, name| environment(allocator, &[(name, "1")]).expect_err("refused").to_string();
        assert!(refused("glibc", "mmap_treshold").contains("did you mean 'mmap_threshold'?"));
        assert!(refused("rpmalloc", "x").contains("rpmalloc reads no settings"));
        let by_path = apply(None, &[("x", "1")], &mut BTreeMap::new()).expect_err("refused");
        assert!(by_path.to_string().contains("in upper case"), "{by_path}");
    }

    #[test]
    fn values_that_would_not_be_taken_are_refused() {
        let option = |name: &str, most| Definition {
            name: name.into(),
            kind: "number".into(),
            default: Some(1),
            least: Some(0),
            most: Some(most),
            meaning: String::new(),
        };
        let check = |allocator, setting| {
            let options = || Ok(vec![option("AMPLE_CACHE", 1), option("AMPLE_SOFT_LIMIT", 1 << 47)]);
            check(Some(allocator), &[setting], options).map_err(|error| {
                assert!(error.is::<UsageError>(), "{error}");
                error.to_string()
            })
        };
        for good in [
            ("glibc", ("mmap_threshold", "131072")),
            ("glibc", ("mmap_threshold", "0x20000")),
            ("glibc", ("MALLOC_ARENA_MAX", "1")),
            ("glibc", ("GLIBC_TUNABLES", "glibc.malloc.arena_max=1")),
            ("glibc", ("GLIBC_TUNABLES", "glibc.pthread.x=y")),
            ("ample", ("cache", "0")),
            ("ample", ("AMPLE_SOFT_LIMIT", "64M")),
            ("jemalloc", ("background_thread", "true")),
        ] {
            assert_eq!(check(good.0, good.1), Ok(()), "{good:?}");
        }
        for (allocator, setting, told) in [
            (
                "glibc",
                ("mmap_threshold", "128K"),
                "'128K' is no value of mmap_threshold: glibc takes whole numbers",
            ),
            ("glibc", ("mmap_threshold", "abc"), "reads no suffix"),
            ("glibc", ("mmap_threshold", ""), "whole numbers"),
            ("glibc", ("MALLOC_ARENA_MAX", "1k"), "whole numbers"),
            ("ample", ("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=1M"), "glibc.malloc.mmap_threshold"),
            (
                "ample",
                ("cache", "off"),
                "'off' is no value of AMPLE_CACHE, which takes a whole number from 0 to 1",
            ),
            ("ample", ("AMPLE_CACHE", "banana"), "which takes a whole number from 0 to 1"),
            ("ample", ("cahce", "0"), "unknown setting of ample 'AMPLE_CAHCE'; did you mean 'AMPLE_CACHE'?"),
            ("ample", ("AMPLE_SOFTLIMIT", "0"), "did you mean 'AMPLE_SOFT_LIMIT'?"),
        ] {
            let error = check(allocator, setting).expect_err(told);
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn what_an_allocator_needs_anyway_is_kept() {
        let mut environment =
            BTreeMap::from([("GLIBC_TUNABLES".to_owned(), "glibc.pthread.rseq=0".to_owned())]);
        apply(Some("glibc"), &[("perturb", "1")], &mut environment).expect("known");
        assert_eq!(environment["GLIBC_TUNABLES"], "glibc.pthread.rseq=0:glibc.malloc.perturb=1");
    }

    #[test]
    fn every_known_allocator_is_in_one_family() {
        for name in crate::allocators::names() {
            let families = FAMILIES.iter().filter(|family| family.allocators.contains(&name)).count();
            assert_eq!(families, 1, "{name}");
        }
    }
}
