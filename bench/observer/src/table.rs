//! A hash table whose memory comes from the system itself: the observer may not call the malloc that it observes.

use std::mem::size_of;
use std::ptr::NonNull;

/// What a table may hold: fresh pages are full of it.
///
/// # Safety
/// All bits zero are a value.
pub unsafe trait Plain: Copy {}

/// Entries of a table that has any.
const LEAST: usize = 64;

/// From keys other than 0 to values. Linear probing; what is removed leaves no mark, as later entries move up.
pub struct Table<V: Plain> {
    /// `capacity` entries, zeroed pages at first: a key of 0 means that there is none.
    entries: NonNull<Entry<V>>,
    /// A power of two, or 0.
    capacity: usize,
    len: usize,
}

#[derive(Clone, Copy)]
struct Entry<V> {
    key: u64,
    value: V,
}

// SAFETY: the entries are the table's own.
unsafe impl<V: Plain + Send> Send for Table<V> {}

/// There was no memory for more entries.
#[derive(Debug, PartialEq)]
pub struct Full;

impl<V: Plain> Table<V> {
    /// Without any memory.
    pub const fn new() -> Self {
        Self { entries: NonNull::dangling(), capacity: 0, len: 0 }
    }

    /// Entries that are there.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes that it has mapped.
    pub fn bytes(&self) -> usize {
        self.capacity * size_of::<Entry<V>>()
    }

    /// The value of a key.
    pub fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        let at = self.find(key)?;
        Some(&mut self.entries_mut()[at].value)
    }

    /// Notes a value, in the place of what the key had.
    pub fn insert(&mut self, key: u64, value: V) -> Result<Option<V>, Full> {
        if let Some(there) = self.get_mut(key) {
            return Ok(Some(std::mem::replace(there, value)));
        }
        // Three of four entries are taken at most, so that probes stay short and end.
        if (self.len + 1) * 4 > self.capacity * 3 {
            self.grow()?;
        }
        self.put(Entry { key, value });
        self.len += 1;
        Ok(None)
    }

    /// Forgets a key: the value that it had.
    pub fn remove(&mut self, key: u64) -> Option<V> {
        let mut hole = self.find(key)?;
        let mask = self.capacity - 1;
        let entries = self.entries_mut();
        let value = entries[hole].value;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let entry = entries[at];
            if entry.key == 0 {
                break;
            }
            // It may move up unless its own place lies behind the hole.
            let home = place(entry.key, mask);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                entries[hole] = entry;
                hole = at;
            }
        }
        entries[hole].key = 0;
        self.len -= 1;
        Some(value)
    }

    fn find(&self, key: u64) -> Option<usize> {
        if self.capacity == 0 {
            return None;
        }
        let (entries, mask) = (self.entries(), self.capacity - 1);
        let mut at = place(key, mask);
        while entries[at].key != 0 {
            if entries[at].key == key {
                return Some(at);
            }
            at = (at + 1) & mask;
        }
        None
    }

    /// Puts an entry whose key is not there into a table with room.
    fn put(&mut self, entry: Entry<V>) {
        let mask = self.capacity - 1;
        let entries = self.entries_mut();
        let mut at = place(entry.key, mask);
        while entries[at].key != 0 {
            at = (at + 1) & mask;
        }
        entries[at] = entry;
    }

    fn grow(&mut self) -> Result<(), Full> {
        let capacity = (self.capacity * 2).max(LEAST);
        let mut larger = Self { entries: map(capacity).ok_or(Full)?, capacity, len: self.len };
        for entry in self.entries().iter().filter(|entry| entry.key != 0) {
            larger.put(*entry);
        }
        *self = larger;
        Ok(())
    }

    fn entries(&self) -> &[Entry<V>] {
        // SAFETY: so many entries are mapped, and readable: the system's zeroes, which are an entry
        // (`Plain`), or what was put there.
        unsafe { std::slice::from_raw_parts(self.entries.as_ptr(), self.capacity) }
    }

    fn entries_mut(&mut self) -> &mut [Entry<V>] {
        // SAFETY: as above; they are the table's own.
        unsafe { std::slice::from_raw_parts_mut(self.entries.as_ptr(), self.capacity) }
    }
}

impl<V: Plain> Drop for Table<V> {
    fn drop(&mut self) {
        if self.capacity > 0 {
            // SAFETY: this range was mapped by `map`, and nobody else knows it.
            unsafe { libc::munmap(self.entries.as_ptr().cast(), self.bytes()) };
        }
    }
}

/// Where a key belongs: the high bits of a product (Knuth's multiplicative hashing).
fn place(key: u64, mask: usize) -> usize {
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & mask
}

fn map<V>(capacity: usize) -> Option<NonNull<Entry<V>>> {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the system's choice changes no memory that is in use.
    let start =
        unsafe { libc::mmap(std::ptr::null_mut(), capacity * size_of::<Entry<V>>(), access, kind, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    // So that the tool can tell it from the program's: it has a mapping of its own by that. A refusal would change nothing else.
    for mark in [libc::MADV_DONTDUMP, libc::MADV_RANDOM] {
        // SAFETY: our own memory, whose content the advice leaves as it is.
        unsafe { libc::madvise(start, capacity * size_of::<Entry<V>>(), mark) };
    }
    NonNull::new(start.cast())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    // SAFETY: an integer.
    unsafe impl Plain for u64 {}

    proptest! {
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((0_u8..3, 1_u64..200, any::<u64>()), 0..2000)) {
            let (mut table, mut model) = (Table::new(), HashMap::new());
            for (what, key, value) in steps {
                match what {
                    0 => prop_assert_eq!(table.insert(key, value), Ok(model.insert(key, value))),
                    1 => prop_assert_eq!(table.remove(key), model.remove(&key)),
                    _ => prop_assert_eq!(table.get_mut(key).copied(), model.get(&key).copied()),
                }
                prop_assert_eq!(table.len(), model.len());
            }
            for (key, value) in model {
                prop_assert_eq!(table.remove(key), Some(value));
            }
            prop_assert_eq!(table.len(), 0);
        }
    }
}
