//! What a workload is to the rest of the program: a definition, settings in, figures out.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use ample_protocol::{Description, Parameter};

use crate::harness::crew::Reading;
use crate::harness::failure::Failure;
use crate::pass::Pass;

/// A workload, as its file under `workloads/` defines it.
pub struct Definition {
    /// Name on the command line and in tables.
    pub name: &'static str,
    /// One sentence: what a reader learns from it.
    pub tells: &'static str,
    /// Where it comes from, and in which meaning.
    pub source: &'static str,
    /// What one operation is.
    pub operation: &'static str,
    /// The parameters.
    pub knobs: &'static [Knob],
    /// Most threads that the definition allows, if it has a bound.
    pub max_threads: Option<u32>,
    /// What settings must fulfil beyond each value's own range; else one line for the user.
    pub check: fn(&Settings) -> Result<(), String>,
    /// Runs it once.
    pub run: fn(&Settings) -> Result<Figures, Stop>,
}

/// A parameter: a whole number.
pub struct Knob {
    /// Name, as in `--set name=value`.
    pub name: &'static str,
    /// One sentence.
    pub meaning: &'static str,
    /// Unit of the value.
    pub unit: &'static str,
    /// The value when nothing is said.
    pub default: u64,
    /// The value under `--test`.
    pub test: u64,
    /// The values allowed.
    pub range: RangeInclusive<u64>,
}

/// The most bytes that a size may be set to: more than any address space has, so that a test can ask
/// for what no allocator can give.
pub const MAX_SIZE: u64 = 1 << 50;

/// The most that a count may be set to: 2⁵³, up to where the protocol's numbers are exact.
pub const MAX_COUNT: u64 = 1 << 53;

/// Most workers.
pub const MAX_THREADS: u32 = 4096;

/// How to run a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Workers at the same time.
    pub threads: u32,
    /// What the run is for.
    pub pass: Pass,
    values: BTreeMap<&'static str, u64>,
}

/// What a run found out.
pub struct Figures {
    /// The measured figures.
    pub reading: Reading,
    /// Operations that the definition demands with these settings.
    pub expected_operations: u64,
    /// Bytes that the workload held at its peak, where it knows.
    pub peak_live_bytes: Option<u64>,
    /// Further figures by name.
    pub extra: BTreeMap<String, f64>,
}

/// Why a run yields no figures.
#[derive(Debug)]
pub enum Stop {
    /// This machine cannot give a true number: the reason.
    NotMeasurable(String),
    /// Something went wrong.
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Definition {
    /// The definition in the words of the protocol.
    pub fn description(&self) -> Description {
        let parameter = |knob: &Knob| Parameter {
            name: knob.name.into(),
            meaning: knob.meaning.into(),
            unit: knob.unit.into(),
            default: knob.default as f64,
            test: knob.test as f64,
        };
        Description {
            name: self.name.into(),
            tells: self.tells.into(),
            source: self.source.into(),
            operation: self.operation.into(),
            parameters: self.knobs.iter().map(parameter).collect(),
            max_threads: self.max_threads,
        }
    }

    /// Settings with `threads` workers; every parameter has its default, or its value under `--test`,
    /// unless `assignments` (`name=value`) say otherwise.
    ///
    /// # Errors
    /// One line for the user: an unknown parameter, a value or a number of threads out of range.
    pub fn settings(
        &self,
        threads: u32,
        test: bool,
        pass: Pass,
        assignments: &[String],
    ) -> Result<Settings, String> {
        let name = self.name;
        let max_threads = self.max_threads.unwrap_or(MAX_THREADS);
        if !(1..=max_threads).contains(&threads) {
            return Err(format!("{name} runs with 1 to {max_threads} threads, not {threads}"));
        }
        let value = |knob: &Knob| if test { knob.test } else { knob.default };
        let mut values: BTreeMap<_, _> = self.knobs.iter().map(|knob| (knob.name, value(knob))).collect();
        for assignment in assignments {
            let (key, text) = assignment
                .split_once('=')
                .ok_or_else(|| format!("--set takes name=value, not \"{assignment}\""))?;
            let knob = self.knobs.iter().find(|knob| knob.name == key).ok_or_else(|| {
                let valid: Vec<_> = self.knobs.iter().map(|knob| knob.name).collect();
                format!("{name} has no parameter \"{key}\": valid are {}", valid.join(", "))
            })?;
            let number = text.parse().ok().filter(|number| knob.range.contains(number)).ok_or_else(|| {
                let (low, high) = knob.range.clone().into_inner();
                format!("{key} of {name} is a whole number from {low} to {high}, not \"{text}\"")
            })?;
            values.insert(knob.name, number);
        }
        let settings = Settings { threads, pass, values };
        (self.check)(&settings).map_err(|line| format!("{name}: {line}"))?;
        Ok(settings)
    }
}

impl Settings {
    /// The value of a parameter that the workload's own definition declares.
    pub fn count(&self, name: &str) -> u64 {
        *self.values.get(name).unwrap_or_else(|| panic!("the definition declares no parameter {name}"))
    }

    /// The same as a number of bytes or elements.
    pub fn size(&self, name: &str) -> usize {
        usize::try_from(self.count(name)).unwrap_or(usize::MAX)
    }

    /// The same as a switch: 1 is on.
    pub fn switch(&self, name: &str) -> bool {
        self.count(name) == 1
    }

    /// All parameters in force, in the words of the protocol.
    pub fn parameters(&self) -> BTreeMap<String, f64> {
        self.values.iter().map(|(&name, &value)| (name.to_owned(), value as f64)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFINITION: Definition = Definition {
        name: "example",
        tells: "",
        source: "",
        operation: "",
        knobs: &[Knob { name: "size", meaning: "", unit: "bytes", default: 64, test: 8, range: 1..=100 }],
        max_threads: Some(4),
        check: |settings| match settings.size("size") {
            13 => Err("13 is bad luck".into()),
            _ => Ok(()),
        },
        run: |_| Err(Stop::NotMeasurable(String::new())),
    };

    fn settings(threads: u32, test: bool, assignments: &[&str]) -> Result<Settings, String> {
        let assignments: Vec<String> = assignments.iter().map(|text| text.to_string()).collect();
        DEFINITION.settings(threads, test, Pass::Timed, &assignments)
    }

    #[test]
    fn a_value_comes_from_the_default_the_test_size_or_the_user() {
        let size =
            |test, assignments: &[&str]| settings(1, test, assignments).map(|found| found.size("size"));
        assert_eq!(size(false, &[]), Ok(64));
        assert_eq!(size(true, &[]), Ok(8));
        assert_eq!(size(true, &["size=9", "size=10"]), Ok(10));
    }

    #[test]
    fn bad_settings_are_refused_in_one_line_that_names_the_valid_ones() {
        let refused =
            |threads, assignments: &[&str]| settings(threads, false, assignments).expect_err("refused");
        assert_eq!(refused(1, &["size"]), "--set takes name=value, not \"size\"");
        assert_eq!(refused(1, &["sise=1"]), "example has no parameter \"sise\": valid are size");
        for bad in ["0", "101", "1.5", "-1", "x", ""] {
            let line = refused(1, &[&format!("size={bad}")]);
            assert_eq!(line, format!("size of example is a whole number from 1 to 100, not \"{bad}\""));
        }
        assert_eq!(refused(1, &["size=13"]), "example: 13 is bad luck");
        assert_eq!(refused(5, &[]), "example runs with 1 to 4 threads, not 5");
        assert_eq!(refused(0, &[]), "example runs with 1 to 4 threads, not 0");
    }
}
