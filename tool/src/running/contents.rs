//! What is in the memory of a process.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Memory of a process.
pub(super) trait Contents {
    /// Reads from this address on: how many bytes.
    fn read(&self, at: u64, into: &mut [u8]) -> usize;
}

impl Contents for File {
    fn read(&self, at: u64, into: &mut [u8]) -> usize {
        self.read_at(into, at).unwrap_or(0)
    }
}

/// Memory of a test's own that begins here.
#[cfg(test)]
pub(super) struct Fake(u64, Vec<u8>);

#[cfg(test)]
impl Contents for Fake {
    fn read(&self, at: u64, into: &mut [u8]) -> usize {
        let Some(from) = at.checked_sub(self.0).map(|from| from as usize) else { return 0 };
        let bytes = self.1.get(from..).unwrap_or_default();
        let count = into.len().min(bytes.len());
        into[..count].copy_from_slice(&bytes[..count]);
        count
    }
}

#[cfg(test)]
impl Fake {
    /// Zeros.
    pub(super) fn new(range: &std::ops::Range<u64>) -> Self {
        Self(range.start, vec![0; (range.end - range.start) as usize])
    }

    /// Writes words from here on.
    pub(super) fn put(&mut self, at: u64, words: &[u64]) {
        for (word, place) in words.iter().zip((at - self.0..).step_by(8)) {
            self.1[place as usize..][..8].copy_from_slice(&word.to_ne_bytes());
        }
    }
}
