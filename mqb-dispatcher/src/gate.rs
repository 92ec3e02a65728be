//! The hand-shake between a processor that goes to sleep and producers that bring it work.
//!
//! ```text
//! sleeper:  asleep = 1; fence; work? -> cancel : sleep; asleep = 0
//! producer: publish;    fence; asleep == 1 && exchange(1 -> 0) -> write the eventfd
//! ```
//!
//! The two fences make it impossible that the sleeper misses the work *and* the producer misses the sleeper. The exchange lets one
//! of several producers win, so there is at most one write per sleep. `tests/loom.rs` holds the proof, and its twin without the
//! producer's fence that must fail.

use crate::sync::{AtomicU32, Ordering, fence};

/// One per processor.
#[derive(Debug)]
pub struct Gate {
    asleep: AtomicU32,
}

impl Gate {
    /// A gate whose processor is awake.
    pub fn new() -> Self {
        Self {
            asleep: AtomicU32::new(0),
        }
    }

    /// Sleeper: announces the sleep. Afterwards look for work once more; then sleep, or [`Gate::awake`] if there is some.
    pub fn announce(&self) {
        self.asleep.store(1, Ordering::Relaxed);
        // Pairs with the fence in `must_wake`: either that producer sees the store above or we see its work.
        fence(Ordering::SeqCst);
    }

    /// Sleeper: it is over, by a wake-up, a timer, a socket or because work was found.
    pub fn awake(&self) {
        // Relaxed: a producer that still sees 1 writes one eventfd too many, which is harmless.
        self.asleep.store(0, Ordering::Relaxed);
    }

    /// Producer, after publishing work: true if the caller, and nobody else, must wake the processor.
    ///
    /// **Cost**: 2 ns for the fence while the processor is awake; paid per published batch.
    #[must_use]
    pub fn must_wake(&self) -> bool {
        // Pairs with the fence in `announce`.
        fence(Ordering::SeqCst);
        self.must_wake_unfenced()
    }

    /// The second half of [`Gate::must_wake`]. Alone it is wrong: the model shows the lost wake-up.
    #[must_use]
    pub fn must_wake_unfenced(&self) -> bool {
        // Look before exchanging: the line stays shared while the processor is awake. An exchange that fails stores nothing, so the
        // only zeros are the sleeper's own and those of producers who are about to wake it.
        self.asleep.load(Ordering::Relaxed) == 1
            && self
                .asleep
                .compare_exchange(1, 0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}
