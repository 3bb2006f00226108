//! Text without the standard library's formatting, which takes memory and code.

/// Takes text, part by part.
pub type Sink<'a> = &'a mut dyn FnMut(&str);

/// A number as text.
#[derive(Debug)]
pub struct Number {
    digits: [u8; 20],
    first: usize,
}

impl Number {
    /// The number's digits.
    #[inline(never)]
    pub fn of(mut value: usize) -> Self {
        let mut number = Self { digits: [b'0'; 20], first: 20 };
        while number.first == 20 || value > 0 {
            number.first -= 1;
            number.digits[number.first] = b'0' + (value % 10) as u8;
            value /= 10;
        }
        number
    }

    /// They as text.
    pub fn text(&self) -> &str {
        // SAFETY: digits only.
        unsafe { core::str::from_utf8_unchecked(&self.digits[self.first..]) }
    }
}

/// The whole number that `text` is: digits, and K, M or G for powers of 1024.
#[inline(never)]
pub(crate) fn parse(text: &[u8]) -> Option<usize> {
    let (digits, unit) = match text.split_last()? {
        (b'K' | b'k', digits) => (digits, 1 << 10),
        (b'M' | b'm', digits) => (digits, 1 << 20),
        (b'G' | b'g', digits) => (digits, 1 << 30),
        _ => (text, 1),
    };
    digits_in(digits, 10)?.checked_mul(unit)
}

/// The value of a digit, or of none.
pub(crate) fn digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        b'A'..=b'F' => digit - b'A' + 10,
        _ => u8::MAX,
    }
}

/// The number that all of `text` stands for in this base.
pub(crate) fn digits_in(text: &[u8], base: u8) -> Option<usize> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0usize, |number, &digit| {
        let digit = Some(self::digit(digit)).filter(|&digit| digit < base)?;
        number.checked_mul(base.into())?.checked_add(digit.into())
    })
}

/// Text into a piece of memory; what does not fit is cut off, and counted all the same.
#[derive(Debug)]
pub struct Cut<'a> {
    room: &'a mut [u8],
    length: usize,
}

impl<'a> Cut<'a> {
    /// Nothing yet.
    pub fn new(room: &'a mut [u8]) -> Self {
        Self { room, length: 0 }
    }

    /// Appends a part.
    #[inline(never)]
    pub fn add(&mut self, part: &str) {
        if let Some(rest) = self.room.get_mut(self.length..) {
            let count = part.len().min(rest.len());
            rest[..count].copy_from_slice(&part.as_bytes()[..count]);
        }
        self.length += part.len();
    }

    /// Appends a part, and a number after it.
    #[inline(never)]
    pub fn add_number(&mut self, before: &str, value: usize) {
        self.add(before);
        self.add(Number::of(value).text());
    }

    /// Bytes of the whole, with what was cut off.
    pub fn length(&self) -> usize {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_digits() {
        for value in [0, 7, 10, usize::MAX] {
            assert_eq!(Number::of(value).text(), value.to_string());
        }
    }

    #[test]
    fn numbers_are_read_with_units_and_in_bases() {
        for (text, value) in [("1", 1), ("64K", 64 << 10), ("3m", 3 << 20), ("2G", 2 << 30)] {
            assert_eq!(parse(text.as_bytes()), Some(value));
        }
        for text in ["", "K", "-1", "1.5", "1T", "1 ", "99999999999999999999", "99999999999999999G"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!((digits_in(b"20000", 16), digits_in(b"17", 8)), (Some(0x20000), Some(15)));
        assert_eq!((digits_in(b"fF", 16), digits_in(b"18", 8), digits_in(b"", 8)), (Some(255), None, None));
    }

    #[test]
    fn what_has_no_room_is_cut_off_and_counted() {
        let mut room = [b'-'; 8];
        let mut cut = Cut::new(&mut room);
        ["abc", "defgh", "", "ijk"].into_iter().for_each(|part| cut.add(part));
        assert_eq!(cut.length(), 11);
        assert_eq!(&room, b"abcdefgh");
    }
}
