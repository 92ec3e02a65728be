//! Where the thread that stops a dispatcher waits for clients and processors to finish.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, OnceLock};
use std::time::Instant;

use crate::sync::lock;

/// Wakes whoever waits whenever a client or a processor has gone.
#[derive(Debug, Default)]
pub(crate) struct StopMonitor {
    waiting: Mutex<usize>,
    change: Condvar,
    pub(crate) finished: AtomicUsize,
    leave_by: OnceLock<Instant>,
}

impl StopMonitor {
    /// A client has gone, its count is already lowered.
    pub(crate) fn changed(&self) {
        if *lock(&self.waiting) > 0 {
            self.change.notify_all();
        }
    }

    /// Until when processors that have been told to leave may run what they have accepted.
    pub(crate) fn leave_by(&self, deadline: Instant) {
        // Only the first order counts.
        let _ = self.leave_by.set(deadline);
    }

    pub(crate) fn may_go_on(&self) -> bool {
        self.leave_by
            .get()
            .is_some_and(|deadline| Instant::now() < *deadline)
    }

    pub(crate) fn processor_finished(&self) {
        self.finished.fetch_add(1, Ordering::Release);
        self.changed();
    }

    /// Waits until `done`, at most until `deadline`; what `done` says at the end.
    pub(crate) fn wait_until(&self, deadline: Instant, done: impl Fn() -> bool) -> bool {
        let mut waiting = lock(&self.waiting);
        *waiting += 1;
        while !done() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            waiting = self
                .change
                .wait_timeout(waiting, left)
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .0;
        }
        *waiting -= 1;
        done()
    }
}
