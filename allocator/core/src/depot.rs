//! The shared depot: full magazines of one class that any thread may take. Only classes whose blocks fill whole cache lines
//! go through it.

use core::ptr::NonNull;

use crate::magazine::{Magazine, Stack};
use crate::size_class::{self, Class};

/// Bytes of blocks that the depot of one class holds at most, unless that would be fewer than [`LEAST`] magazines.
const BYTES: usize = 1 << 20;
/// Magazines that the depot of one class may always hold.
const LEAST: usize = 4;

/// The shared depot of one class.
pub(crate) struct Depot {
    full: Stack,
}

impl Depot {
    pub(crate) const fn new() -> Self {
        Self { full: Stack::new() }
    }

    /// Takes a magazine with at least one block.
    pub(crate) fn take(&mut self) -> Option<NonNull<Magazine>> {
        self.full.pop()
    }

    /// Puts a magazine in, unless the depot is full; then it stays the caller's.
    pub(crate) fn put(&mut self, class: Class, magazine: NonNull<Magazine>) -> bool {
        let info = size_class::of(class);
        let bound = (BYTES / (info.size as usize * usize::from(info.magazine))).max(LEAST);
        if self.full.len() as usize >= bound {
            return false;
        }
        self.full.push(magazine);
        true
    }
}
