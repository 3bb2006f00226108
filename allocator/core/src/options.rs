//! Options: one table of them, from which the names, the parser and the lists that people read come (`ample options`,
//! `docs/options.md`).
//!
//! Each is an environment variable `AMPLE_NAME=value`, read once when the library is loaded. In processes that run with more
//! rights than their caller (setuid) the environment is ignored. A bad value is told in one line on standard error, and the
//! default holds.

use core::ffi::CStr;
use core::ops::RangeInclusive;

use crate::os;
use crate::sync::{AtomicU8, AtomicU32, AtomicUsize, Ordering};
use crate::text::{Number, Sink, parse};
use crate::thresholds::Thresholds;

/// What an option takes.
#[derive(Debug)]
pub enum Kind {
    /// A whole number; switches are 0 or 1. K, M and G stand for powers of 1024.
    Number {
        /// The value when nothing is said.
        default: usize,
        /// The values allowed.
        range: RangeInclusive<usize>,
    },
    /// A file's path; none when nothing is said.
    Path,
}

/// An option as people see it.
#[derive(Debug)]
pub struct Definition {
    /// The environment variable, with the zero that ends it.
    variable: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// One sentence, without characters that JSON escapes.
    pub meaning: &'static str,
}

const fn switch(default: usize) -> Kind {
    Kind::Number { default, range: 0..=1 }
}

const fn number(default: usize, range: RangeInclusive<usize>) -> Kind {
    Kind::Number { default, range }
}

/// Makes the names and the table of the same lines.
macro_rules! options {
    ($($name:ident = $variable:literal, $kind:expr, $meaning:literal;)*) => {
        /// Names an option: its index in [`DEFINITIONS`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Name {
            $(#[doc = $meaning] $name,)*
        }

        const COUNT: usize = [$(Name::$name),*].len();

        /// All options, in the order of [`Name`].
        pub static DEFINITIONS: [Definition; COUNT] =
            [$(Definition { variable: concat!($variable, "\0"), kind: $kind, meaning: $meaning },)*];
    };
}

options! {
    AbortConf = "AMPLE_ABORT_CONF", switch(0), "1: a bad value of an option ends the process.";
    ConfirmConf = "AMPLE_CONFIRM_CONF", switch(0), "1: prints every option and its value when the library is loaded.";
    Cache = "AMPLE_CACHE", switch(1), "0: no magazines; every call goes to the spans, for comparison.";
    IsolateLines = "AMPLE_ISOLATE_LINES", switch(0), "1: every block has its cache lines to itself.";
    DeepBind = "AMPLE_DEEPBIND", switch(0),
        "1: libraries that a program opens with RTLD_DEEPBIND keep to that and see the C library's malloc; 0: they see Ample's like all others.";
    BackgroundThread = "AMPLE_BACKGROUND_THREAD", number(1, 0..=2),
        "0: memory comes back only while the program is active; 1: a helper thread sees to it in programs that have several \
         threads; 2: in every program.";
    HugePages = "AMPLE_HUGE_PAGES", switch(1), "0: no huge pages; 1: small blocks get them where the heap is large, large ones where the program fills them, whether the system gives them to all memory or on request.";
    Arenas = "AMPLE_ARENAS", number(0, 0..=1000),
        "How many arenas the threads have together at most: with fewer they keep less memory, but share cache lines and locks (1 for programs whose threads take turns, as Ruby's do); 0: eight for each processor.";
    SoftLimit = "AMPLE_SOFT_LIMIT", number(0, 0..=1 << 47),
        "Bytes: while the heap has more memory than that, free memory goes back to the system at once, and threads keep next to \
         none; 0: three quarters of what the control group of the process may have.";
    ShowStats = "AMPLE_SHOW_STATS", switch(0), "1: prints how the heap stands to standard error when the process ends.";
    StatsJson = "AMPLE_STATS_JSON", Kind::Path,
        "A file that is written when the process ends: how the heap stands, as JSON; %p in the path is the number of the process.";
    StatsSignal = "AMPLE_STATS_SIGNAL", number(0, 0..=64),
        "The number of a signal at which how the heap stands is written: to the file of AMPLE_STATS_JSON, or else to standard \
         error; 0: no signal.";
}

/// Bytes of a path at most.
const PATH: usize = 256;
/// Bytes of a path with the number of the process in it, and the zero that ends it.
const EXPANDED: usize = PATH + 64;

impl Definition {
    /// The environment variable.
    pub fn variable(&self) -> &'static str {
        self.variable.strip_suffix('\0').unwrap_or(self.variable)
    }

    const fn default(&self) -> usize {
        match self.kind {
            Kind::Number { default, .. } => default,
            Kind::Path => 0,
        }
    }
}

/// Writes the table as JSON: an array of objects with name, kind, default, least and most value, meaning.
pub fn to_json(sink: Sink<'_>) {
    let mut separator = "[";
    for definition in &DEFINITIONS {
        for part in [separator, "\n{\"name\":\"", definition.variable(), "\",\"kind\":"] {
            sink(part);
        }
        match &definition.kind {
            Kind::Path => sink("\"path\""),
            Kind::Number { default, range } => {
                sink("\"number\"");
                for (name, value) in
                    [(",\"default\":", default), (",\"least\":", range.start()), (",\"most\":", range.end())]
                {
                    sink(name);
                    sink(Number::of(*value).text());
                }
            }
        }
        for part in [",\"meaning\":\"", definition.meaning, "\"}"] {
            sink(part);
        }
        separator = ",";
    }
    sink("\n]");
}

/// The values in force.
pub(crate) struct Options {
    /// Of a path: its length.
    values: [AtomicUsize; COUNT],
    /// The bytes of the one path.
    path: [AtomicU8; PATH],
    /// What glibc's parameters ask for.
    pub(crate) thresholds: Thresholds,
    /// Whether the environment was read.
    read: AtomicU32,
}

impl Options {
    /// The defaults.
    pub(crate) const fn new() -> Self {
        let mut values = [const { AtomicUsize::new(0) }; COUNT];
        let mut index = 0;
        while index < COUNT {
            values[index] = AtomicUsize::new(DEFINITIONS[index].default());
            index += 1;
        }
        let path = [const { AtomicU8::new(0) }; PATH];
        Self { values, path, thresholds: Thresholds::new(), read: AtomicU32::new(0) }
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
        self.take(name as usize, Number::of(value).text().as_bytes())
    }

    /// Opens the file that a path names, with the number of the process in it; `None`: there is no path, or the system refused.
    pub(crate) fn create(&self, name: Name) -> Option<os::File> {
        // Acquire: pairs with the Release in `take`: the path's bytes are there.
        let length = self.values[name as usize].load(Ordering::Acquire);
        let (mut text, mut end, mut index) = ([0u8; EXPANDED], 0, 0);
        // Relaxed: they change no more.
        let byte = |index: usize| self.path.get(index).map_or(0, |byte| byte.load(Ordering::Relaxed));
        while index < length {
            let number;
            let part = if byte(index) == b'%' && byte(index + 1) == b'p' {
                index += 1;
                number = Number::of(os::process_id());
                number.text().as_bytes()
            } else {
                &[byte(index)]
            };
            text.get_mut(end..end + part.len())?.copy_from_slice(part);
            (end, index) = (end + part.len(), index + 1);
        }
        if end == 0 { None } else { os::create(CStr::from_bytes_until_nul(&text).ok()?) }
    }

    /// Takes the values from the environment, once, as soon as there is one: it is not there yet for what the dynamic linker
    /// allocates. `true`: it was done now.
    pub(crate) fn read_environment(&self) -> bool {
        // Relaxed: a second thread may go on with the defaults for a moment, as it could have a moment earlier.
        if !os::has_environment() || self.read.swap(1, Ordering::Relaxed) != 0 {
            return false;
        }
        for (index, definition) in DEFINITIONS.iter().enumerate() {
            if let Some(text) = os::environment(definition.variable)
                && !self.take(index, text)
            {
                self.complain(definition, text);
            }
        }
        self.thresholds.read_environment();
        if self.is_on(Name::ConfirmConf) {
            self.confirm();
        }
        true
    }

    /// Makes `text` the value of an option; `false`: that is not allowed.
    fn take(&self, index: usize, text: &[u8]) -> bool {
        let value = match &DEFINITIONS[index].kind {
            Kind::Number { range, .. } => parse(text).filter(|value| range.contains(value)),
            Kind::Path => Some(text.len()).filter(|length| (1..PATH).contains(length)),
        };
        let Some(value) = value else { return false };
        if let Kind::Path = DEFINITIONS[index].kind {
            for (byte, place) in text.iter().zip(&self.path) {
                // Relaxed: published by the length.
                place.store(*byte, Ordering::Relaxed);
            }
        }
        // Release: pairs with the Acquire in `create`.
        self.values[index].store(value, Ordering::Release);
        true
    }

    fn confirm(&self) {
        for (definition, place) in DEFINITIONS.iter().zip(&self.values) {
            // Relaxed: as in `get`.
            let value = place.load(Ordering::Relaxed);
            let mut path = [0; PATH];
            for (byte, place) in path[..value.min(PATH)].iter_mut().zip(&self.path) {
                // Relaxed: read by the thread that wrote it.
                *byte = place.load(Ordering::Relaxed);
            }
            let number = Number::of(value);
            let shown = match definition.kind {
                Kind::Number { .. } => number.text().as_bytes(),
                Kind::Path => &path[..value],
            };
            os::tell(&[b"ample: ", definition.variable().as_bytes(), b"=", shown, b"\n"]);
        }
    }

    #[cold]
    fn complain(&self, definition: &Definition, text: &[u8]) {
        let variable = definition.variable().as_bytes();
        os::tell(&[b"ample: ", variable, b"=", text, b" is ignored: it takes "]);
        match &definition.kind {
            Kind::Number { range, .. } => {
                let (low, high) = (Number::of(*range.start()), Number::of(*range.end()));
                let (low, high) = (low.text().as_bytes(), high.text().as_bytes());
                os::tell(&[b"a whole number from ", low, b" to ", high, b"\n"]);
            }
            Kind::Path => os::tell(&[b"the path of a file, 1 to 255 bytes\n"]),
        }
        if self.is_on(Name::AbortConf) {
            os::die("ample: AMPLE_ABORT_CONF=1: an option has a bad value\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_begin_with_their_defaults_and_refuse_what_is_out_of_range() {
        let options = Options::new();
        assert!(options.is_on(Name::Cache) && !options.is_on(Name::IsolateLines));
        assert!(!options.set(Name::Cache, 2) && options.set(Name::Cache, 0));
        assert!(!options.is_on(Name::Cache));
        let options = Options::new();
        for (index, definition) in DEFINITIONS.iter().enumerate() {
            assert_eq!(options.values[index].load(Ordering::Relaxed), definition.default());
        }
    }

    #[test]
    fn the_environment_is_read_once_and_bad_values_leave_the_default() {
        os::set_environment([("AMPLE_SOFT_LIMIT\0", "64M"), ("AMPLE_CACHE\0", "no")]);
        let options = Options::new();
        assert!(options.read_environment());
        assert!(options.get(Name::SoftLimit) == 64 << 20 && options.is_on(Name::Cache));
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
    fn a_path_may_hold_the_number_of_the_process() {
        let long = "x".repeat(PATH);
        for (path, expected) in
            [("", None), (long.as_str(), None), ("/a/%p-%p%", Some("/a/4711-4711%")), ("b", Some("b"))]
        {
            let options = Options::new();
            assert_eq!(options.take(Name::StatsJson as usize, path.as_bytes()), expected.is_some(), "{path}");
            assert_eq!(options.create(Name::StatsJson).is_some(), expected.is_some());
            assert!(expected.is_none_or(|expected| os::created() == expected), "{path}");
        }
    }

    #[test]
    fn every_option_is_named_and_explained() {
        let paths = DEFINITIONS.iter().filter(|definition| matches!(definition.kind, Kind::Path)).count();
        assert_eq!(paths, 1, "there is room for one path");
        for definition in &DEFINITIONS {
            assert!(definition.variable.ends_with('\0') && definition.variable().starts_with("AMPLE_"));
            assert!(definition.meaning.ends_with('.') && !definition.meaning.contains(['"', '\\']));
            if let Kind::Number { default, range } = &definition.kind {
                assert!(range.contains(default));
            }
        }
    }

    #[test]
    fn the_table_is_told_as_json() {
        let mut text = String::new();
        to_json(&mut |part| text.push_str(part));
        assert!(text.starts_with("[\n{") && text.ends_with("}\n]"));
        assert_eq!(text.matches("\"name\":\"AMPLE_").count(), COUNT);
        assert!(
            text.contains(
                "{\"name\":\"AMPLE_CACHE\",\"kind\":\"number\",\"default\":1,\"least\":0,\"most\":1,"
            )
        );
    }
}
