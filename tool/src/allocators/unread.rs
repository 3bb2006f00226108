//! Variables of the environment that look like settings of the project's own allocator, and are none: the library passes over a name that
//! it does not know, and what it says of a bad value is lost with the output of a measured program.

use std::collections::BTreeMap;

use super::options::{Definition, told_by};
use super::settings::OWN_PREFIX;
use super::{Finder, OURS, one};
use crate::error::nearest;

/// Variables of the tool itself, which processes do not inherit.
pub const OWN_VARIABLES: &[&str] =
    &["AMPLE_WORKLOAD", "AMPLE_LIB", "AMPLE_PEERS_DIR", "AMPLE_LIMITS_DIR", "AMPLE_OBSERVER"];

/// Beginnings of names that others of this project read: its tests, the limits, the tool's test of itself.
const READ_ELSEWHERE: &[&str] = &[
    "AMPLE_CONFORMANCE_",
    "AMPLE_STRESS_",
    "AMPLE_KERNEL",
    "AMPLE_FLOOR_",
    "AMPLE_PLANTED_",
    "AMPLE_TRIAL_",
    "AMPLE_INSTALLED",
];

/// Those among these variables, by name, with the reason; none where there is no library to ask.
pub fn unread(variables: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let own = || variables.keys().filter(|name| name.starts_with(OWN_PREFIX));
    if own().next().is_none() {
        return BTreeMap::new();
    }
    let options = Finder::new().and_then(|finder| told_by(&one(&finder, OURS)?.library));
    options.map_or_else(|_| BTreeMap::new(), |options| of(variables, &options))
}

fn of<'a>(variables: &'a BTreeMap<String, String>, options: &'a [Definition]) -> BTreeMap<String, String> {
    let reason = |(name, value): (&'a String, &'a String)| {
        let known = |beginning: &&str| name.starts_with(*beginning);
        if !name.starts_with(OWN_PREFIX) || READ_ELSEWHERE.iter().any(known) {
            return None;
        }
        let reason = match options.iter().find(|option| option.name == *name) {
            Some(option) => format!("that option takes {}", option.refuses(value)?),
            None if OWN_VARIABLES.contains(&name.as_str()) => return None,
            None => {
                // What all of them begin with makes none of them alike.
                let rest = |name: &'a str| name.strip_prefix(OWN_PREFIX).unwrap_or(name);
                let names =
                    options.iter().map(|option| option.name.as_str()).chain(OWN_VARIABLES.iter().copied());
                let near = nearest(rest(name), names.map(rest));
                let near = near.map_or(String::new(), |near| format!("; did you mean {OWN_PREFIX}{near}?"));
                format!("there is no such option{near}")
            }
        };
        Some((name.clone(), reason))
    };
    variables.iter().filter_map(reason).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_nobody_reads_and_values_that_are_refused_are_told() {
        let option = Definition {
            name: "AMPLE_SOFT_LIMIT".into(),
            kind: "number".into(),
            default: Some(0),
            least: Some(0),
            most: Some(1 << 40),
            meaning: String::new(),
        };
        let told = |name: &str, value: &str| {
            let variables = [(name.to_owned(), value.to_owned())].into();
            of(&variables, std::slice::from_ref(&option)).remove(name)
        };
        let misspelt = told("AMPLE_SOFTLIMIT", "64M").expect("a reason");
        assert_eq!(misspelt, "there is no such option; did you mean AMPLE_SOFT_LIMIT?");
        assert_eq!(
            told("AMPLE_LIBB", "x").expect("a reason"),
            "there is no such option; did you mean AMPLE_LIB?"
        );
        assert_eq!(told("AMPLE_ZQXJ", "1").expect("a reason"), "there is no such option");
        assert_eq!(
            told("AMPLE_SOFT_LIMIT", "64MB").expect("a reason"),
            "that option takes a whole number from 0 to 1099511627776"
        );
        for (name, value) in [
            ("AMPLE_SOFT_LIMIT", "64M"),
            ("AMPLE_LIB", "x"),
            ("AMPLE_FLOOR_SIZE", "8"),
            ("MALLOC_ARENA_MAX", "1"),
        ] {
            assert_eq!(told(name, value), None, "{name}");
        }
    }
}
