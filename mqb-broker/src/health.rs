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

/// How far recovery is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recovery {
    /// Read. **Units**: bytes of files.
    pub done_bytes: u64,
    /// To be read by the partitions that have begun: the others join when their turn comes. **Units**: bytes of files.
    pub known_bytes: u64,
    /// Partitions of the data directory; 0 until it is open.
    pub partitions: usize,
    /// 0 to 100. Partitions count alike, however large they are.
    pub percent: u64,
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
        let mut percents = 0;
        for (done, total) in state.progress.values() {
            recovery.done_bytes += done;
            recovery.known_bytes += total;
            percents += (100 * u128::from(*done) / u128::from(*total).max(1)).min(100) as u64;
        }
        recovery.percent = match state.phase {
            Phase::Recovering => percents / (state.partitions as u64).max(1),
            Phase::Ready | Phase::Draining => 100,
        };
        recovery
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every write leaves a complete state behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use mqb_core::PartitionId;

    use super::*;

    #[test]
    fn progress_counts_partitions_that_have_not_begun() {
        let health = Health::default();
        assert_eq!(health.recovery().percent, 0);
        health.set_partitions(4);
        let at = |partition, done, total| RecoveryProgress {
            partition: PartitionId(partition),
            done,
            total,
        };
        health.recovered(at(0, 10, 10));
        health.recovered(at(1, 25, 100));
        health.recovered(at(1, 50, 100));
        assert_eq!(health.recovery().percent, 37);
        assert_eq!(
            (health.recovery().done_bytes, health.recovery().known_bytes),
            (60, 110)
        );
        health.recovered(at(2, 0, 0));
        assert_eq!(
            health.recovery().percent,
            37,
            "nothing to read is no division by it"
        );
        health.enter(Phase::Ready);
        assert_eq!(health.recovery().percent, 100);
    }
}
