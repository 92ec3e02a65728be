//! In which part of its life the broker is, for `/readyz` and whoever else asks.
//!
//! Written by the start-up threads and the main thread, read by the HTTP thread. The lock is held for a copy.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::storage::RecoveryProgress;

/// Part of the broker's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Reading what the data directory holds.
    Recovering,
    /// Serving.
    Ready,
    /// Finishing what was accepted, taking nothing new.
    Draining,
}

/// How far recovery is. **Units**: bytes of files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recovery {
    /// Read.
    pub done: u64,
    /// To be read, as far as is known: partitions join when their turn comes.
    pub total: u64,
    /// Partitions that are completely read.
    pub partitions_done: usize,
    /// Partitions of the data directory; 0 until it is open.
    pub partitions: usize,
}

impl Recovery {
    /// 0 to 100.
    pub fn percent(&self) -> u64 {
        let parts = self.partitions.max(1) as u64;
        // Partitions that have not begun count as unread and as large as those that have.
        let known = self.total.saturating_mul(parts) / (self.begun() as u64).max(1);
        match known {
            0 => 100 * self.partitions_done as u64 / parts,
            known => (100 * u128::from(self.done) / u128::from(known)).min(100) as u64,
        }
    }

    fn begun(&self) -> usize {
        self.partitions
            .min(self.partitions_done + 1)
            .max(self.partitions_done)
    }
}

#[derive(Debug)]
struct State {
    phase: Phase,
    partitions: usize,
    progress: BTreeMap<u16, (u64, u64)>,
}

/// See the module.
#[derive(Debug)]
pub struct Health {
    state: Mutex<State>,
}

impl Default for Health {
    fn default() -> Self {
        let state = State {
            phase: Phase::Recovering,
            partitions: 0,
            progress: BTreeMap::new(),
        };
        Self {
            state: Mutex::new(state),
        }
    }
}

impl Health {
    /// The part of life that began.
    pub fn enter(&self, phase: Phase) {
        self.lock().phase = phase;
    }

    /// The part of life there is.
    pub fn phase(&self) -> Phase {
        self.lock().phase
    }

    /// How many partitions there are to recover.
    pub fn set_partitions(&self, count: usize) {
        self.lock().partitions = count;
    }

    /// A partition has come this far.
    pub fn recovered(&self, at: RecoveryProgress) {
        self.lock()
            .progress
            .insert(at.partition.0, (at.done, at.total));
    }

    /// How far recovery is.
    pub fn recovery(&self) -> Recovery {
        let state = self.lock();
        let mut recovery = Recovery {
            partitions: state.partitions,
            ..Recovery::default()
        };
        for (done, total) in state.progress.values() {
            recovery.done += done;
            recovery.total += total;
            recovery.partitions_done += usize::from(done >= total);
        }
        recovery
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every write leaves a complete state behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
