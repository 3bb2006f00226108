//! A lock-free stack into which any thread pushes, and from which one takes everything at once.
//!
//! Its nodes come from the heap, pushed by one thread and freed by another, as a program's own would.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The stack.
#[derive(Debug)]
pub struct Inbox<T> {
    top: AtomicPtr<Node<T>>,
}

#[derive(Debug)]
struct Node<T> {
    value: T,
    next: *mut Node<T>,
}

// SAFETY: an inbox owns its nodes; values only pass through it, from thread to thread.
unsafe impl<T: Send> Send for Inbox<T> {}
// SAFETY: as above: no reference to a value is ever given out.
unsafe impl<T: Send> Sync for Inbox<T> {}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self { top: AtomicPtr::new(null_mut()) }
    }
}

impl<T> Inbox<T> {
    /// Puts a value on top.
    pub fn push(&self, value: T) {
        let node = Box::into_raw(Box::new(Node { value, next: null_mut() }));
        // Relaxed: the exchange below finds out whether this is still the top.
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            // SAFETY: the node is this thread's alone until the exchange succeeds.
            unsafe { (*node).next = top };
            // Release: whoever takes the node with `drain` sees what it holds. Relaxed: a failed
            // exchange passes nothing on.
            match self.top.compare_exchange_weak(top, node, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => top = other,
            }
        }
    }

    /// Takes all values that are there now, the newest first.
    pub fn drain(&self) -> Drain<T> {
        // Acquire: pairs with the release in `push`.
        Drain { next: self.top.swap(null_mut(), Ordering::Acquire) }
    }
}

impl<T> Drop for Inbox<T> {
    fn drop(&mut self) {
        drop(self.drain());
    }
}

/// The values taken from an [`Inbox`].
#[derive(Debug)]
pub struct Drain<T> {
    next: *mut Node<T>,
}

impl<T> Iterator for Drain<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.next.is_null() {
            return None;
        }
        // SAFETY: the node came from a box in `push`, and was taken off the stack together with all
        // below it, so that nobody else knows it.
        let node = unsafe { Box::from_raw(self.next) };
        self.next = node.next;
        Some(node.value)
    }
}

impl<T> Drop for Drain<T> {
    fn drop(&mut self) {
        for value in self {
            drop(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_out_newest_first_and_once() {
        let inbox = Inbox::default();
        inbox.push(1);
        inbox.push(2);
        assert_eq!(inbox.drain().collect::<Vec<_>>(), [2, 1]);
        assert_eq!(inbox.drain().next(), None);
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        let inbox = Inbox::default();
        let mut taken = Vec::new();
        std::thread::scope(|scope| {
            let pushers = [0, 1].map(|half| {
                let inbox = &inbox;
                scope.spawn(move || (0..10_000).for_each(|value| inbox.push(2 * value + half)))
            });
            while pushers.iter().any(|pusher| !pusher.is_finished()) {
                taken.extend(inbox.drain());
            }
        });
        taken.extend(inbox.drain());
        taken.sort_unstable();
        assert_eq!(taken, (0..20_000).collect::<Vec<_>>());
    }
}
