//! An arena's inbox: magazines of its own blocks that other threads freed. Any thread puts in, the arena's threads take all.

use core::ptr;

use crate::sync::{AtomicPtr, AtomicU32, Ordering};

/// What can lie in an inbox: a record with room for a link.
pub(crate) trait Linked {
    /// Writes the link. The caller owns the record.
    fn set_next(&self, next: *mut Self);
}

/// A stack of records that is only ever emptied as a whole, so that no ABA problem arises (R. K. Treiber 1986). While closed it
/// takes nothing: an arena without threads must not be sent what nobody would take out.
pub(crate) struct Inbox<T> {
    /// The newest record, null when empty, [`closed`] when closed.
    head: AtomicPtr<T>,
    /// About how many records there are.
    len: AtomicU32,
}

/// The head of a closed inbox: an address that no record has.
fn closed<T>() -> *mut T {
    ptr::without_provenance_mut(1)
}

impl<T: Linked> Inbox<T> {
    /// An open, empty inbox.
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self { head: AtomicPtr::new(ptr::null_mut()), len: AtomicU32::new(0) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self { head: AtomicPtr::new(ptr::null_mut()), len: AtomicU32::new(0) }
    }

    /// Puts `record` in, unless the inbox is closed or holds `bound` records already; then it stays the caller's.
    ///
    /// # Safety
    /// `record` is valid and the caller's; after success it belongs to the inbox.
    pub(crate) unsafe fn put(&self, record: *mut T, bound: u32) -> bool {
        // Relaxed: a bound on memory, not a promise.
        if self.len.load(Ordering::Relaxed) >= bound {
            return false;
        }
        // Relaxed: the exchange below checks it again.
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            if head == closed() {
                return false;
            }
            // SAFETY: the record is the caller's until the exchange succeeds.
            unsafe { &*record }.set_next(head);
            // Release: pairs with the Acquire in `take_all` and `close`: the record's content is seen with it.
            // Relaxed: a failed attempt only reads the new head.
            match self.head.compare_exchange_weak(head, record, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        // Relaxed: as above.
        self.len.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Takes all records out, newest first, linked; null when there are none, or the inbox is closed.
    pub(crate) fn take_all(&self) -> *mut T {
        // Relaxed: a record that is counted late makes the count too high until the next taking.
        if self.len.load(Ordering::Relaxed) != 0 {
            // Relaxed: as above.
            self.len.store(0, Ordering::Relaxed);
        }
        // Relaxed: a look before the exchange; what is missed now is found next time.
        let mut head = self.head.load(Ordering::Relaxed);
        while !head.is_null() && head != closed() {
            // Acquire: pairs with the Release in `put`. Relaxed: a failed attempt only reads the new head.
            match self.head.compare_exchange_weak(head, ptr::null_mut(), Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(records) => return records,
                Err(now) => head = now,
            }
        }
        ptr::null_mut()
    }

    /// Closes the inbox and takes out what was in it.
    pub(crate) fn close(&self) -> *mut T {
        // Acquire: pairs with the Release in `put`.
        let records = self.head.swap(closed(), Ordering::Acquire);
        if records == closed() { ptr::null_mut() } else { records }
    }

    /// Opens a closed inbox; one that is open keeps what is in it.
    pub(crate) fn open(&self) {
        // Relaxed: nothing is published by an empty inbox, and nothing read from a closed one.
        let (now, then) = (Ordering::Relaxed, Ordering::Relaxed);
        if self.head.compare_exchange(closed(), ptr::null_mut(), now, then).is_ok() {
            // Relaxed: a record that was put in since is counted too late, which only makes the bound a little higher.
            self.len.store(0, Ordering::Relaxed);
        }
    }
}
