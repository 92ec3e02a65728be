//! The helper threads of a data directory, and their stand-in that a test steps by hand.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::shared::{DUTIES, Duty, Scheduler, Shared};

#[derive(Default)]
struct Lane {
    state: Mutex<LaneState>,
    wake: Condvar,
}

#[derive(Default)]
struct LaneState {
    queue: VecDeque<Arc<Shared>>,
    stop: bool,
}

struct Pool {
    lanes: [Lane; 4],
}

impl Scheduler for Pool {
    fn enqueue(&self, partition: Arc<Shared>, duty: Duty) {
        let lane = &self.lanes[duty as usize];
        lane.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .queue
            .push_back(partition);
        lane.wake.notify_one();
    }
}

impl Lane {
    /// The next partition; `None` when stopped and nothing is left.
    fn next(&self) -> Option<Arc<Shared>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(partition) = state.queue.pop_front() {
                return Some(partition);
            }
            if state.stop {
                return None;
            }
            state = self
                .wake
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn try_next(&self) -> Option<Arc<Shared>> {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .queue
            .pop_front()
    }
}

/// Runs the blocking work of all partitions of one data directory.
///
/// Dropping it finishes what is queued and joins the threads.
pub struct Helpers {
    pool: Arc<Pool>,
    threads: Vec<JoinHandle<()>>,
}

impl Helpers {
    /// Starts the threads: one writer, `syncers` for fdatasync (partitions sync in parallel), one reader, one cleaner.
    ///
    /// **Errors**: the operating system gives no thread.
    pub fn start(syncers: usize) -> std::io::Result<Helpers> {
        let mut helpers = Helpers::manual();
        for duty in DUTIES {
            let (name, count) = match duty {
                Duty::Write => ("mqb-write", 1),
                Duty::Sync => ("mqb-sync", syncers.max(1)),
                Duty::Read => ("mqb-read", 1),
                Duty::Tend => ("mqb-clean", 1),
            };
            for _ in 0..count {
                let pool = Arc::clone(&helpers.pool);
                let work = move || {
                    while let Some(partition) = pool.lanes[duty as usize].next() {
                        run_caught(&partition, duty);
                    }
                };
                helpers
                    .threads
                    .push(std::thread::Builder::new().name(name.into()).spawn(work)?);
            }
        }
        Ok(helpers)
    }

    /// No threads: work is done when the owner calls [`Helpers::step`]. For tests with a deterministic order.
    pub fn manual() -> Helpers {
        Helpers {
            pool: Arc::new(Pool {
                lanes: Default::default(),
            }),
            threads: Vec::new(),
        }
    }

    /// Does one queued piece of work of this duty on the calling thread; tells whether there was any.
    pub fn step(&self, duty: Duty) -> bool {
        match self.pool.lanes[duty as usize].try_next() {
            Some(partition) => {
                partition.run(duty);
                true
            }
            None => false,
        }
    }

    /// Steps until nothing is queued.
    pub fn run_until_idle(&self) {
        while DUTIES.into_iter().any(|duty| self.step(duty)) {}
    }

    pub(crate) fn scheduler(&self) -> Arc<dyn Scheduler> {
        Arc::clone(&self.pool) as Arc<dyn Scheduler>
    }
}

/// A panic costs its partition, not the thread that serves all of them.
fn run_caught(partition: &Arc<Shared>, duty: Duty) {
    let run = std::panic::AssertUnwindSafe(|| partition.run(duty));
    if std::panic::catch_unwind(run).is_err() {
        partition.fail(
            "panic of a helper of",
            "partition",
            &std::io::Error::other(format!("{duty:?}")),
        );
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        for lane in &self.pool.lanes {
            lane.state
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .stop = true;
            lane.wake.notify_all();
        }
        for thread in self.threads.drain(..) {
            // A helper that panicked has printed why.
            let _ = thread.join();
        }
    }
}
