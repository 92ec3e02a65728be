//! The swap inbox: a locked queue that producers append whole batches to and that the processor takes whole.
//!
//! A mutex around a queue beat every lock-free candidate that was measured, because both sides touch it once per batch; and a
//! preempted producer holds no slot that others must wait for. Taking swaps in the consumer's emptied queue, so both keep their
//! capacity and the steady state does not allocate.

use std::collections::VecDeque;

use crate::sync::{Mutex, lock};

/// Many producers, one consumer.
#[derive(Debug)]
pub struct Inbox<T> {
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    queue: VecDeque<T>,
    closed: bool,
}

impl<T> Inbox<T> {
    /// An open, empty inbox.
    pub fn new() -> Self {
        Self {
            state: Mutex::new(State {
                queue: VecDeque::new(),
                closed: false,
            }),
        }
    }

    /// Appends one item. **Errors**: gives it back if the inbox is closed.
    pub fn push(&self, item: T) -> Result<(), T> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(item);
        }
        state.queue.push_back(item);
        Ok(())
    }

    /// Moves all of `items` in, in order; false and nothing moved if the inbox is closed.
    #[must_use]
    pub fn append(&self, items: &mut VecDeque<T>) -> bool {
        let mut state = lock(&self.state);
        if state.closed {
            return false;
        }
        state.queue.append(items);
        true
    }

    /// Consumer: exchanges the content for `emptied`, which must be empty.
    pub fn take(&self, emptied: &mut VecDeque<T>) {
        debug_assert!(emptied.is_empty());
        std::mem::swap(&mut lock(&self.state).queue, emptied);
    }

    /// True if nothing waits. In the sleep gate this look must not be a guess, so it takes the lock.
    pub fn is_empty(&self) -> bool {
        lock(&self.state).queue.is_empty()
    }

    /// Consumer: refuses everything from now on and returns what had been accepted.
    pub fn close(&self) -> VecDeque<T> {
        let mut state = lock(&self.state);
        state.closed = true;
        std::mem::take(&mut state.queue)
    }
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self::new()
    }
}
