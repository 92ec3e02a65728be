//! Direct hand-off to one worker: a word that says whether it sleeps, and a place for what it gets.
//!
//! ```text
//! consumer: (found idle by others from here on)  CAS EMPTY -> PARKED, park until POSTED;  word = EMPTY; take
//! producer: (has taken the worker from the idle stack)  fill; swap POSTED == PARKED -> unpark
//! ```
//!
//! No lock is held when a worker is woken, and one that has not gone to sleep yet costs no system call. `tests/loom_calls.rs` holds
//! the model, and a twin with the swap taken apart that loses the wake-up.

use std::sync::OnceLock;

use crate::sync::{self, AtomicU32, Mutex, Ordering, Thread, lock};

const EMPTY: u32 = 0;
const POSTED: u32 = 1;
const PARKED: u32 = 2;

/// What a worker is woken for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivery<T> {
    /// This.
    Item(T),
    /// Something in the queue, or the end.
    Look,
}

/// One per worker. Producers may post only after they have taken the worker off the idle stack, so there is one of them at a time.
#[derive(Debug)]
pub struct Slot<T> {
    word: AtomicU32,
    // Never contended: the protocol says whose turn it is. A lock because a cell would need `unsafe`, at 10 ns.
    item: Mutex<Option<T>>,
    thread: OnceLock<Thread>,
}

impl<T> Slot<T> {
    /// An empty slot that belongs to no thread yet.
    pub fn new() -> Self {
        Self {
            word: AtomicU32::new(EMPTY),
            item: Mutex::new(None),
            thread: OnceLock::new(),
        }
    }

    /// Consumer, before it can be found idle for the first time: the calling thread is the one to wake.
    pub fn attach(&self) {
        // A second attach by the same worker changes nothing.
        let _ = self.thread.set(sync::current_thread());
    }

    /// Producer: hands over, and wakes the worker if it sleeps; true if it did.
    pub fn post(&self, delivery: Delivery<T>) -> bool {
        if let Delivery::Item(item) = delivery {
            *lock(&self.item) = Some(item);
        }
        // Release: the item. Acquire: pairs with the consumer's exchange, for the thread it attached. One swap, because between a look
        // and a store the consumer could fall asleep.
        if self.word.swap(POSTED, Ordering::AcqRel) != PARKED {
            return false;
        }
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
        true
    }

    /// Consumer: waits to be posted to, after `spins` looks asleep.
    pub fn wait(&self, spins: u32) -> Delivery<T> {
        for _ in 0..spins {
            if self.word.load(Ordering::Relaxed) == POSTED {
                break;
            }
            std::hint::spin_loop();
        }
        // Acquire on both outcomes: pairs with the producer's swap.
        if self
            .word
            .compare_exchange(EMPTY, PARKED, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
        {
            // A thread may be unparked by anybody and for nothing.
            while self.word.load(Ordering::Acquire) != POSTED {
                sync::park();
            }
        }
        // Relaxed: nobody else looks until this worker is on the idle stack again, and getting there takes the lock.
        self.word.store(EMPTY, Ordering::Relaxed);
        match lock(&self.item).take() {
            Some(item) => Delivery::Item(item),
            None => Delivery::Look,
        }
    }

    /// What was handed over to a worker that never came for it.
    pub(crate) fn take_back(&self) -> Option<T> {
        lock(&self.item).take()
    }
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self::new()
    }
}
