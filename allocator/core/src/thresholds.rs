//! glibc's parameters for large blocks and free memory, from `mallopt`, `MALLOC_*_` variables or `GLIBC_TUNABLES`.
//!
//! As long as nobody sets one, Ample decides by itself: freed large blocks stay with their thread or wait as dirty runs, and go back
//! to the system when nobody used them for 0.7 s. Whoever sets one ends that, as in glibc (A. van de Ven & V. Henson, "Make the
//! mmap/brk threshold in malloc dynamic", 2006):
//!
//! - Large blocks from the mmap threshold on (128 KiB unless it is set) go back to the system as soon as they are freed, unless
//!   the number of mappings is set to 0.
//! - With a trim threshold, free memory stays, however old, until there is more of it than that; then it goes back at once, all but
//!   the padding.

use crate::os;
use crate::sync::{AtomicU32, AtomicUsize, Ordering};
use crate::text::digits_in;

/// A parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parameter {
    /// `M_MMAP_THRESHOLD`, in bytes.
    MmapThreshold,
    /// `M_MMAP_MAX`: 0 and anything else differ.
    MmapMax,
    /// `M_TRIM_THRESHOLD`, in bytes; `usize::MAX`: free memory never goes back by itself.
    TrimThreshold,
    /// `M_TOP_PAD`, in bytes.
    TopPad,
}

/// A parameter's environment variable, and its name among `GLIBC_TUNABLES`.
struct Source {
    parameter: Parameter,
    variable: &'static str,
    tunable: &'static [u8],
}

const SOURCES: [Source; 4] = [
    Source {
        parameter: Parameter::MmapThreshold,
        variable: "MALLOC_MMAP_THRESHOLD_\0",
        tunable: b"glibc.malloc.mmap_threshold",
    },
    Source {
        parameter: Parameter::MmapMax,
        variable: "MALLOC_MMAP_MAX_\0",
        tunable: b"glibc.malloc.mmap_max",
    },
    Source {
        parameter: Parameter::TrimThreshold,
        variable: "MALLOC_TRIM_THRESHOLD_\0",
        tunable: b"glibc.malloc.trim_threshold",
    },
    Source { parameter: Parameter::TopPad, variable: "MALLOC_TOP_PAD_\0", tunable: b"glibc.malloc.top_pad" },
];

/// The parameters in force.
pub(crate) struct Thresholds {
    values: [AtomicUsize; 4],
    /// Whether somebody set one.
    fixed: AtomicU32,
}

impl Thresholds {
    /// Nobody set any.
    pub(crate) const fn new() -> Self {
        let values = [128 << 10, 65_536, 0, 0];
        let [mmap_threshold, mmap_max, trim_threshold, top_pad] = values;
        Self {
            values: [
                AtomicUsize::new(mmap_threshold),
                AtomicUsize::new(mmap_max),
                AtomicUsize::new(trim_threshold),
                AtomicUsize::new(top_pad),
            ],
            fixed: AtomicU32::new(0),
        }
    }

    fn get(&self, parameter: Parameter) -> usize {
        // Relaxed: a value stands for itself.
        self.values[parameter as usize].load(Ordering::Relaxed)
    }

    fn is_set(&self, parameters: u32) -> bool {
        // Relaxed: a thread that sees it a moment later could as well have come a moment earlier.
        self.fixed.load(Ordering::Relaxed) & parameters != 0
    }

    /// Sets a parameter, which ends what Ample decides by itself.
    pub(crate) fn set(&self, parameter: Parameter, value: usize) {
        // Relaxed: as in `get`.
        self.values[parameter as usize].store(value, Ordering::Relaxed);
        // Relaxed: as in `is_set`.
        self.fixed.fetch_or(1 << parameter as u32, Ordering::Relaxed);
    }

    /// Takes what the environment says.
    pub(crate) fn read_environment(&self) {
        let tunables = os::environment("GLIBC_TUNABLES\0").unwrap_or_default();
        for Source { parameter, variable, tunable } in &SOURCES {
            let in_tunables = tunables
                .split(|&byte| byte == b':')
                .filter_map(|setting| setting.strip_prefix(*tunable)?.strip_prefix(b"="))
                .next_back();
            if let Some(value) = in_tunables.or_else(|| os::environment(variable)).and_then(number) {
                self.set(*parameter, value);
            }
        }
    }

    /// Whether a large block of so many bytes goes back to the system as soon as it is freed.
    pub(crate) fn returns_at_once(&self, bytes: usize) -> bool {
        self.is_set(u32::MAX)
            && self.get(Parameter::MmapMax) > 0
            && bytes >= self.get(Parameter::MmapThreshold)
    }

    /// Bytes of free memory that may stay, and those that stay when there was more; `None`: it goes back by its age.
    pub(crate) fn kept(&self) -> Option<(usize, usize)> {
        let threshold = self.get(Parameter::TrimThreshold);
        self.is_set(1 << Parameter::TrimThreshold as u32).then(|| (threshold, threshold.min(self.top_pad())))
    }

    /// Bytes by which the heap grows beyond what is asked for, at least; no more than there can be, so that sums with it are numbers.
    pub(crate) fn top_pad(&self) -> usize {
        self.get(Parameter::TopPad).min(os::window().len())
    }
}

/// A number as glibc's tunables are written: hexadecimal after 0x, octal after 0, else decimal.
fn number(text: &[u8]) -> Option<usize> {
    match text {
        [b'0', b'x' | b'X', digits @ ..] => digits_in(digits, 16),
        [b'0', digits @ ..] if !digits.is_empty() => digits_in(digits, 8),
        _ => digits_in(text, 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_long_as_nothing_is_set_nothing_goes_back_at_once() {
        let thresholds = Thresholds::new();
        assert!(!thresholds.returns_at_once(usize::MAX) && thresholds.kept().is_none());
    }

    #[test]
    fn whoever_sets_one_ends_the_sliding() {
        for parameter in
            [Parameter::MmapThreshold, Parameter::MmapMax, Parameter::TrimThreshold, Parameter::TopPad]
        {
            let thresholds = Thresholds::new();
            thresholds.set(parameter, 128 << 10);
            assert!(thresholds.returns_at_once(128 << 10) && !thresholds.returns_at_once((128 << 10) - 1));
            assert_eq!(thresholds.kept().is_some(), parameter == Parameter::TrimThreshold);
        }
    }

    #[test]
    fn without_mappings_nothing_goes_back_at_once() {
        let thresholds = Thresholds::new();
        thresholds.set(Parameter::MmapMax, 0);
        assert!(!thresholds.returns_at_once(1 << 30));
    }

    #[test]
    fn trimming_leaves_the_padding() {
        let thresholds = Thresholds::new();
        thresholds.set(Parameter::TopPad, 1 << 20);
        thresholds.set(Parameter::TrimThreshold, 8 << 20);
        assert_eq!(thresholds.kept(), Some((8 << 20, 1 << 20)));
        thresholds.set(Parameter::TrimThreshold, 4096);
        assert_eq!(thresholds.kept(), Some((4096, 4096)));
    }

    #[test]
    fn a_padding_is_no_longer_than_the_address_space() {
        let thresholds = Thresholds::new();
        for parameter in [Parameter::TopPad, Parameter::TrimThreshold, Parameter::MmapThreshold] {
            thresholds.set(parameter, usize::MAX);
        }
        assert_eq!(thresholds.top_pad(), os::window().len());
        assert_eq!(thresholds.kept(), Some((usize::MAX, os::window().len())));
        assert!(!thresholds.returns_at_once(usize::MAX - 1));
    }

    #[test]
    fn variables_and_tunables_are_read() {
        let tunables = "glibc.malloc.check=1:glibc.malloc.mmap_threshold=0x40000:glibc.malloc.top_pad=x";
        os::set_environment([("GLIBC_TUNABLES\0", tunables), ("MALLOC_TOP_PAD_\0", "0100")]);
        let thresholds = Thresholds::new();
        thresholds.read_environment();
        assert!(thresholds.returns_at_once(0x40000) && !thresholds.returns_at_once(0x3ffff));
        assert_eq!(thresholds.top_pad(), 0, "the tunable comes first, and is no number");
        os::set_environment([("MALLOC_TOP_PAD_\0", "0100"), ("MALLOC_MMAP_MAX_\0", "many")]);
        thresholds.read_environment();
        assert_eq!((thresholds.top_pad(), thresholds.get(Parameter::MmapMax)), (0o100, 65_536));
    }
}
