//! The command line of the program that malloc-test comes from: `malloc-test [size [iterations [threads]]]`.

use anyhow::{Result, bail};

use crate::error::UsageError;

/// The only workload whose source has a command line of its own.
const WORKLOAD: &str = "malloc-test";
/// What its source does without arguments: size, iterations, threads.
const DEFAULTS: [u64; 3] = [512, 1_000_000, 1];

/// The arguments, as this tool's own options.
#[derive(Debug, PartialEq, Eq)]
pub struct SeedArguments {
    /// As with `--set`.
    pub settings: Vec<String>,
    /// As with `--threads`.
    pub threads: u32,
}

impl SeedArguments {
    /// Reads the arguments after `--`; none without any.
    ///
    /// Fails with a usage error for any other workload, and for what is no whole number above 0.
    pub fn parse(workloads: &[String], arguments: &[String]) -> Result<Option<Self>> {
        if arguments.is_empty() {
            return Ok(None);
        }
        let usage = "write: ample bench malloc-test -- SIZE [ITERATIONS [THREADS]]";
        if workloads != [WORKLOAD] {
            bail!(UsageError(format!("only malloc-test takes arguments after '--'; {usage}")));
        }
        if arguments.len() > DEFAULTS.len() {
            bail!(UsageError(format!("malloc-test takes three arguments at most; {usage}")));
        }
        let mut values = DEFAULTS;
        for (value, argument) in values.iter_mut().zip(arguments) {
            *value = match argument.parse() {
                Ok(number) if number > 0 => number,
                _ => bail!(UsageError(format!("'{argument}' is no whole number above 0; {usage}"))),
            };
        }
        let [size, iterations, threads] = values;
        Ok(Some(Self {
            settings: vec![format!("{WORKLOAD}.size={size}"), format!("{WORKLOAD}.iterations={iterations}")],
            threads: u32::try_from(threads).unwrap_or(u32::MAX),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(workloads: &[&str], arguments: &[&str]) -> Result<Option<SeedArguments>> {
        let owned = |list: &[&str]| list.iter().map(|&item| item.to_owned()).collect::<Vec<_>>();
        SeedArguments::parse(&owned(workloads), &owned(arguments))
    }

    #[test]
    fn what_is_left_out_is_as_in_the_source() {
        assert_eq!(parse(&["larson"], &[]).expect("nothing to read"), None);
        let all = parse(&["malloc-test"], &["8192", "10000000", "2"]).expect("read").expect("some");
        assert_eq!(all.settings, ["malloc-test.size=8192", "malloc-test.iterations=10000000"]);
        assert_eq!(all.threads, 2);
        let size = parse(&["malloc-test"], &["4100"]).expect("read").expect("some");
        assert_eq!((size.settings[1].as_str(), size.threads), ("malloc-test.iterations=1000000", 1));
    }

    #[test]
    fn nonsense_is_a_usage_error() {
        for (workloads, arguments) in [
            (&["larson"][..], &["512"][..]),
            (&["malloc-test", "larson"], &["512"]),
            (&["malloc-test"], &["0"]),
            (&["malloc-test"], &["many"]),
            (&["malloc-test"], &["1", "2", "3", "4"]),
        ] {
            let error = parse(workloads, arguments).expect_err("refused");
            assert!(error.is::<UsageError>() && error.to_string().contains("malloc-test --"), "{error}");
        }
    }
}
