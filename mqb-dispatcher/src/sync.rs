//! The only door to atomics and locks.
//!
//! Built with `--cfg mqb_loom` the same names come from loom, so the models in `tests/loom.rs` explore the code that ships.

#[cfg(not(mqb_loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicUsize, Ordering, fence},
};

#[cfg(not(mqb_loom))]
pub(crate) use std::thread::{Thread, current as current_thread, park};

#[cfg(mqb_loom)]
pub(crate) use loom::thread::{Thread, current as current_thread, park};

#[cfg(mqb_loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicUsize, Ordering, fence},
};

/// Locks, ignoring poison: no lock of this crate is held while foreign code runs, so a panic cannot leave one half-changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
