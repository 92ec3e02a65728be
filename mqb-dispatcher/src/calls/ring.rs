//! A ring of keys that is always in order. Where all deadlines are the arrival plus one timeout it is a plain queue.

use std::collections::VecDeque;

/// Where a call stands in the order, and where it is kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key {
    pub(crate) order_ns: u64,
    /// Among equals the first come is the first.
    pub(crate) arrival: u64,
    pub(crate) slot: u32,
}

#[derive(Debug)]
pub(crate) struct Ring(VecDeque<Key>);

impl Ring {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self(VecDeque::with_capacity(capacity))
    }

    /// **Cost**: O(1) if it belongs at the end, else a binary search and a move of the shorter side.
    pub(crate) fn insert(&mut self, key: Key) {
        match self.0.back() {
            Some(last) if *last > key => {
                let at = self.0.partition_point(|other| *other < key);
                self.0.insert(at, key);
            }
            _ => self.0.push_back(key),
        }
    }

    pub(crate) fn first(&self) -> Option<Key> {
        self.0.front().copied()
    }

    pub(crate) fn last(&self) -> Option<Key> {
        self.0.back().copied()
    }

    pub(crate) fn pop_first(&mut self) -> Option<Key> {
        self.0.pop_front()
    }

    /// Takes out `key`, which must be there.
    pub(crate) fn remove(&mut self, key: Key) {
        if self.0.back() == Some(&key) {
            self.0.pop_back();
            return;
        }
        let at = self
            .0
            .binary_search(&key)
            .expect("a call is in the ring that its note names");
        self.0.remove(at);
    }

    /// How many come before a newcomer with this deadline.
    pub(crate) fn count_until(&self, order_ns: u64) -> usize {
        self.0.partition_point(|key| key.order_ns <= order_ns)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
