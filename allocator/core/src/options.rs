//! Options: one table of them, from which the parser and the lists that people read come.
//!
//! Each is an environment variable `AMPLE_NAME=value`, read once when the library is loaded. In processes that run with more
//! rights than their caller (setuid) the environment is ignored. A bad value is told in one line on standard error, and the
//! default holds.

use core::ops::RangeInclusive;

use crate::os;
use crate::sync::{AtomicU32, AtomicUsize, Ordering};

/// An option as people see it. Values are whole numbers; switches are 0 or 1.
#[derive(Debug)]
pub struct Definition {
    /// The environment variable, with the zero that ends it.
    variable: &'static str,
    /// The value when nothing is said.
    pub default: usize,
    /// The values allowed.
    pub range: RangeInclusive<usize>,
    /// One sentence.
    pub meaning: &'static str,
}

/// Names an option: its index in [`DEFINITIONS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Name {
    /// See the table.
    AbortConf,
    /// See the table.
    ConfirmConf,
    /// See the table.
    Cache,
    /// See the table.
    IsolateLines,
    /// See the table.
    BackgroundThread,
    /// See the table.
    HugePages,
    /// See the table.
    ShowStats,
}

const COUNT: usize = 7;

const fn switch(variable: &'static str, default: usize, meaning: &'static str) -> Definition {
    Definition { variable, default, range: 0..=1, meaning }
}

/// All options, in the order of [`Name`].
pub static DEFINITIONS: [Definition; COUNT] = [
    switch("AMPLE_ABORT_CONF\0", 0, "1: a bad value of an option ends the process."),
    switch("AMPLE_CONFIRM_CONF\0", 0, "1: prints every option and its value when the library is loaded."),
    switch("AMPLE_CACHE\0", 1, "0: no magazines; every call goes to the spans, for comparison."),
    switch("AMPLE_ISOLATE_LINES\0", 0, "1: every block has its cache lines to itself."),
    Definition {
        variable: "AMPLE_BACKGROUND_THREAD\0",
        default: 1,
        range: 0..=2,
        meaning: "0: memory comes back only while the program is active; 1: a helper thread sees to it in programs \
                  that have several threads; 2: in every program.",
    },
    switch(
        "AMPLE_HUGE_PAGES\0",
        1,
        "0: small blocks never get huge pages; 1: they do where the heap is large.",
    ),
    switch("AMPLE_SHOW_STATS\0", 0, "1: prints how the heap stands to standard error when the process ends."),
];

impl Definition {
    /// The environment variable.
    pub fn variable(&self) -> &'static str {
        self.variable.trim_end_matches('\0')
    }

    /// The value that `text` stands for: digits, and K, M or G for powers of 1024; `None` if it is out of range or
    /// no number.
    fn parse(&self, text: &[u8]) -> Option<usize> {
        let (digits, unit) = match text.split_last()? {
            (b'K' | b'k', digits) => (digits, 1 << 10),
            (b'M' | b'm', digits) => (digits, 1 << 20),
            (b'G' | b'g', digits) => (digits, 1 << 30),
            _ => (text, 1),
        };
        if digits.is_empty() {
            return None;
        }
        let number = digits.iter().try_fold(0usize, |number, digit| {
            let digit = digit.wrapping_sub(b'0');
            if digit > 9 { None } else { number.checked_mul(10)?.checked_add(digit.into()) }
        })?;
        number.checked_mul(unit).filter(|value| self.range.contains(value))
    }
}

/// The values in force.
pub(crate) struct Options {
    values: [AtomicUsize; COUNT],
    /// Whether the environment was read.
    read: AtomicU32,
}

impl Options {
    /// The defaults.
    pub(crate) const fn new() -> Self {
        let mut values = [const { AtomicUsize::new(0) }; COUNT];
        let mut index = 0;
        while index < COUNT {
            values[index] = AtomicUsize::new(DEFINITIONS[index].default);
            index += 1;
        }
        Self { values, read: AtomicU32::new(0) }
    }

    /// The value of an option.
    pub(crate) fn get(&self, name: Name) -> usize {
        // Relaxed: a value stands for itself.
        self.values[name as usize].load(Ordering::Relaxed)
    }

    /// Whether a switch is on.
    pub(crate) fn is_on(&self, name: Name) -> bool {
        self.get(name) != 0
    }

    /// Sets an option before it is used; `false`: the value is not allowed.
    #[cfg(test)]
    pub(crate) fn set(&self, name: Name, value: usize) -> bool {
        let allowed = DEFINITIONS[name as usize].range.contains(&value);
        if allowed {
            // Relaxed: as in `get`.
            self.values[name as usize].store(value, Ordering::Relaxed);
        }
        allowed
    }

    /// Takes the values from the environment, once, as soon as there is one: it is not there yet for what the dynamic linker
    /// allocates. `true`: it was done now.
    pub(crate) fn read_environment(&self) -> bool {
        // Relaxed: a second thread may go on with the defaults for a moment, as it could have a moment earlier.
        if !os::has_environment() || self.read.swap(1, Ordering::Relaxed) != 0 {
            return false;
        }
        for (definition, place) in DEFINITIONS.iter().zip(&self.values) {
            let Some(text) = os::environment(definition.variable) else { continue };
            match definition.parse(text) {
                // Relaxed: as in `get`.
                Some(value) => place.store(value, Ordering::Relaxed),
                None => self.complain(definition, text),
            }
        }
        if self.is_on(Name::ConfirmConf) {
            for (definition, place) in DEFINITIONS.iter().zip(&self.values) {
                // Relaxed: as in `get`.
                let value = Number::of(place.load(Ordering::Relaxed));
                os::tell(&["ample: ", definition.variable(), "=", value.text(), "\n"]);
            }
        }
        true
    }

    #[cold]
    fn complain(&self, definition: &Definition, text: &[u8]) {
        let (low, high) = (Number::of(*definition.range.start()), Number::of(*definition.range.end()));
        let shown = core::str::from_utf8(text).unwrap_or("(not text)");
        os::tell(&[
            "ample: ",
            definition.variable(),
            "=",
            shown,
            " is ignored: it takes a whole number from ",
            low.text(),
            " to ",
            high.text(),
            "\n",
        ]);
        if self.is_on(Name::AbortConf) {
            os::die("ample: AMPLE_ABORT_CONF=1: an option has a bad value\n");
        }
    }
}

/// A number as text; formatting of the standard library would need memory.
struct Number {
    digits: [u8; 20],
    first: usize,
}

impl Number {
    fn of(mut value: usize) -> Self {
        let mut number = Self { digits: [b'0'; 20], first: 20 };
        while number.first == 20 || value > 0 {
            number.first -= 1;
            number.digits[number.first] = b'0' + (value % 10) as u8;
            value /= 10;
        }
        number
    }

    fn text(&self) -> &str {
        core::str::from_utf8(&self.digits[self.first..]).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Definition = Definition { variable: "X\0", default: 0, range: 1..=1 << 40, meaning: "" };

    #[test]
    fn numbers_have_units_and_bounds() {
        for (text, value) in [("1", 1), ("64K", 64 << 10), ("3m", 3 << 20), ("2G", 2 << 30)] {
            assert_eq!(SIZE.parse(text.as_bytes()), Some(value));
        }
        for text in ["", "K", "0", "-1", "1.5", "1T", "1 ", "99999999999999999999", "16777216G"] {
            assert_eq!(SIZE.parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn options_begin_with_their_defaults_and_refuse_what_is_out_of_range() {
        let options = Options::new();
        assert!(options.is_on(Name::Cache) && !options.is_on(Name::IsolateLines));
        assert!(!options.set(Name::Cache, 2) && options.set(Name::Cache, 0));
        assert!(!options.is_on(Name::Cache));
    }

    #[test]
    fn the_environment_is_read_once_and_bad_values_leave_the_default() {
        os::set_environment([("AMPLE_ISOLATE_LINES\0", "1"), ("AMPLE_CACHE\0", "no")]);
        let options = Options::new();
        assert!(options.read_environment());
        assert!(options.is_on(Name::IsolateLines) && options.is_on(Name::Cache));
        os::set_environment([("AMPLE_CACHE\0", "0"), ("", "")]);
        assert!(!options.read_environment() && options.is_on(Name::Cache));
    }

    #[test]
    #[should_panic(expected = "AMPLE_ABORT_CONF=1")]
    fn a_bad_value_ends_the_process_on_request() {
        os::set_environment([("AMPLE_ABORT_CONF\0", "1"), ("AMPLE_CACHE\0", "2")]);
        Options::new().read_environment();
    }

    #[test]
    fn every_option_is_named_and_explained() {
        for definition in &DEFINITIONS {
            assert!(definition.variable.ends_with('\0') && definition.variable().starts_with("AMPLE_"));
            assert!(definition.range.contains(&definition.default));
            assert!(definition.meaning.ends_with('.'));
        }
        assert_eq!(DEFINITIONS[Name::IsolateLines as usize].variable(), "AMPLE_ISOLATE_LINES");
    }

    #[test]
    fn numbers_are_written_in_digits() {
        for value in [0, 7, 10, usize::MAX] {
            assert_eq!(Number::of(value).text(), value.to_string());
        }
    }
}
