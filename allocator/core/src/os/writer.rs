//! Files that are written part by part.

use super::{File, write};

/// Text into a file, some hundred bytes at a time.
pub(crate) struct Writer {
    file: File,
    bytes: [u8; 512],
    used: usize,
}

impl Writer {
    pub(crate) fn new(file: File) -> Self {
        Self { file, bytes: [0; 512], used: 0 }
    }

    /// Appends a part.
    pub(crate) fn add(&mut self, part: &str) {
        let mut left = part.as_bytes();
        while !left.is_empty() {
            if self.used == self.bytes.len() {
                self.flush();
            }
            let count = left.len().min(self.bytes.len() - self.used);
            self.bytes[self.used..self.used + count].copy_from_slice(&left[..count]);
            self.used += count;
            left = &left[count..];
        }
    }

    fn flush(&mut self) {
        write(&self.file, &self.bytes[..self.used]);
        self.used = 0;
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::{create, written};
    use crate::text::Number;

    #[test]
    fn a_file_gets_all_parts_in_order() {
        let expected: String = (0..1000).map(|n| n.to_string()).collect();
        let mut writer = Writer::new(create(c"all-parts").expect("granted"));
        (0..1000).for_each(|n| writer.add(Number::of(n).text()));
        drop(writer);
        assert_eq!(written(), expected.as_bytes());
    }
}
