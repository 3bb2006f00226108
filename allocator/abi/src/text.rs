//! Text in a piece of the stack: the standard library's formatting needs more than this library has.

use core::ffi::CStr;

/// Bytes of text, with the zero that ends it.
const ROOM: usize = 1024;

/// A text; what does not fit is cut off.
pub(crate) struct Text {
    bytes: [u8; ROOM],
    length: usize,
}

impl Default for Text {
    fn default() -> Self {
        Self { bytes: [0; ROOM], length: 0 }
    }
}

impl Text {
    /// Appends a part.
    pub(crate) fn add(&mut self, part: &str) -> &mut Self {
        let count = part.len().min(ROOM - 1 - self.length);
        self.bytes[self.length..self.length + count].copy_from_slice(&part.as_bytes()[..count]);
        self.length += count;
        self
    }

    /// Appends a number in digits.
    pub(crate) fn number(&mut self, mut value: usize) -> &mut Self {
        let mut digits = [b'0'; 20];
        let mut first = digits.len();
        while first == digits.len() || value > 0 {
            first -= 1;
            digits[first] = b'0' + (value % 10) as u8;
            value /= 10;
        }
        self.add(core::str::from_utf8(&digits[first..]).unwrap_or_default())
    }

    /// The text as C has it.
    pub(crate) fn as_c_str(&self) -> &CStr {
        // The last byte is never written.
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }

    /// Writes it to standard error; what cannot be written is lost.
    pub(crate) fn to_standard_error(&self) {
        // SAFETY: the text is readable.
        unsafe { libc::write(2, self.bytes.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_numbers_follow_each_other_and_the_end_is_cut_off() {
        let mut text = Text::default();
        text.add("a=").number(0).add(" b=").number(usize::MAX);
        assert_eq!(text.as_c_str().to_str(), Ok("a=0 b=18446744073709551615"));
        for _ in 0..100 {
            text.add("0123456789abcdef");
        }
        assert_eq!(text.as_c_str().to_bytes().len(), ROOM - 1);
    }
}
