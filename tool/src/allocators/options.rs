//! Options of the project's own allocator, as its library tells them.

use std::ffi::c_char;
use std::path::Path;

use anyhow::{Context as _, Result};
use libloading::{Library, Symbol};
use serde::{Deserialize, Serialize};

/// Bytes of a path at most, as the library takes it.
const PATH: usize = 255;

/// An option as the library tells it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Definition {
    /// The environment variable.
    pub name: String,
    /// `number` or `path`.
    pub kind: String,
    /// The value when nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<u64>,
    /// The least number allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least: Option<u64>,
    /// The largest number allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u64>,
    /// One sentence.
    pub meaning: String,
}

/// What the library says of itself. The tool links no allocator: it opens the file like any other program would, and its own
/// malloc stays the C library's.
pub fn told_by(library: &Path) -> Result<Vec<Definition>> {
    // SAFETY: Ample's constructor reads the environment and reserves addresses, nothing more.
    let library = unsafe { Library::new(library) }.context("it does not open")?;
    // SAFETY: `ample.h` declares the function so.
    let tell: Symbol<'_, unsafe extern "C" fn(*mut c_char, usize) -> usize> =
        unsafe { library.get(b"ample_options_json\0") }
            .context("it tells no options: it is older than this tool, or not Ample")?;
    // SAFETY: without room nothing is written.
    let length = unsafe { tell(std::ptr::null_mut(), 0) };
    let mut text = vec![0u8; length + 1];
    // SAFETY: the text has room for that many bytes.
    unsafe { tell(text.as_mut_ptr().cast(), text.len()) };
    serde_json::from_slice(&text[..length])
        .context("it tells its options in words that this tool does not know")
}

impl Definition {
    /// What the option takes, where this value is not it: the library would say so and go on with the default.
    pub fn refuses(&self, value: &str) -> Option<String> {
        match (self.least, self.most) {
            (Some(least), Some(most)) => {
                let fits = number(value).is_some_and(|number| (least..=most).contains(&number));
                (!fits).then(|| format!("a whole number from {least} to {most}"))
            }
            _ => {
                (!(1..=PATH).contains(&value.len())).then(|| format!("the path of a file, 1 to {PATH} bytes"))
            }
        }
    }
}

/// A whole number; K, M and G stand for powers of 1024.
fn number(text: &str) -> Option<u64> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'K' | b'k' => (&text[..text.len() - 1], 1 << 10),
        b'M' | b'm' => (&text[..text.len() - 1], 1 << 20),
        b'G' | b'g' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    // A sign is none of the digits.
    let plain = digits.bytes().all(|digit| digit.is_ascii_digit());
    digits.parse::<u64>().ok().filter(|_| plain)?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_as_the_library_takes_them() {
        let option = |kind: &str, range: Option<(u64, u64)>| Definition {
            name: "AMPLE_X".into(),
            kind: kind.into(),
            default: None,
            least: range.map(|range| range.0),
            most: range.map(|range| range.1),
            meaning: String::new(),
        };
        let limit = option("number", Some((0, 1 << 30)));
        for good in ["0", "64M", "1g", "1048576K"] {
            assert_eq!(limit.refuses(good), None, "{good}");
        }
        for bad in ["", "K", "-1", "+1", "2G", "1.5M", "0x10", "off", "99999999999999999999", "1Ä"] {
            assert!(limit.refuses(bad).is_some_and(|takes| takes.ends_with("from 0 to 1073741824")), "{bad}");
        }
        let path = option("path", None);
        assert!(path.refuses("/tmp/x").is_none() && path.refuses("").is_some());
        assert!(path.refuses(&"x".repeat(256)).is_some());
    }
}
