//! A bounded queue between workers: who finds it full or empty waits.
//!
//! Nothing is taken out before it was full, or all is in: so the most elements that ever waited do not depend on who ran when.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The queue. Its room is allocated once, at the start.
#[derive(Debug)]
pub struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    capacity: usize,
}

#[derive(Debug)]
struct State<T> {
    elements: VecDeque<T>,
    writers: usize,
    broken: bool,
    /// The most elements that ever waited.
    most: usize,
}

impl<T> Queue<T> {
    /// An empty queue with room for `capacity` elements, that `writers` fill.
    pub fn new(capacity: usize, writers: usize) -> Self {
        let elements = VecDeque::with_capacity(capacity);
        let state = Mutex::new(State { elements, writers, broken: false, most: 0 });
        Self { state, changed: Condvar::new(), capacity }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an element when there is room for it. Gives it back if the queue was broken off.
    pub fn push(&self, element: T) -> Result<(), T> {
        let full = |state: &mut State<T>| state.elements.len() == self.capacity && !state.broken;
        let mut state = self.changed.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner);
        if state.broken {
            return Err(element);
        }
        state.elements.push_back(element);
        state.most = state.most.max(state.elements.len());
        self.changed.notify_all();
        Ok(())
    }

    /// Takes the oldest element when there is one. None: all writers are done, or it was broken off.
    pub fn pop(&self) -> Option<T> {
        let unready = |state: &State<T>| state.elements.is_empty() || state.most < self.capacity;
        let idle = |state: &mut State<T>| unready(state) && state.writers > 0 && !state.broken;
        let mut state = self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        if state.broken {
            return None;
        }
        let element = state.elements.pop_front();
        self.changed.notify_all();
        element
    }

    /// One writer is done.
    pub fn writer_done(&self) {
        self.lock().writers -= 1;
        self.changed.notify_all();
    }

    /// Sends everyone home: a worker failed.
    pub fn break_off(&self) {
        self.lock().broken = true;
        self.changed.notify_all();
    }

    /// The most elements that ever waited.
    pub fn most(&self) -> usize {
        self.lock().most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_arrives_in_order_and_the_bound_holds() {
        let queue = Queue::new(3, 1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..100).for_each(|value| queue.push(value).expect("not broken"));
                queue.writer_done();
            });
            assert_eq!(std::iter::from_fn(|| queue.pop()).collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
        });
        assert_eq!(queue.most(), 3);
    }

    #[test]
    fn fewer_elements_than_there_is_room_for_arrive_too() {
        let queue = Queue::new(3, 1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                queue.push(1).expect("not broken");
                queue.writer_done();
            });
            assert_eq!((queue.pop(), queue.pop()), (Some(1), None));
        });
        assert_eq!(queue.most(), 1);
    }

    #[test]
    fn a_broken_queue_sends_both_sides_home() {
        let queue = Queue::new(1, 1);
        queue.push(1).expect("room");
        queue.break_off();
        assert_eq!(queue.push(2), Err(2));
        assert_eq!(queue.pop(), None);
    }
}
