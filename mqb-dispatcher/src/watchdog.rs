//! A thread that looks from time to time whether a processor has been in one turn for too long, and says in whose handler.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, panic};

use crate::config::StuckReport;
use crate::current;
use crate::group::Group;

/// Stops and is joined when dropped.
pub(crate) struct Watchdog {
    // Dropping it is the signal.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// `None` if the configuration wants none.
    pub(crate) fn start<E: Send + 'static>(group: Arc<Group<E>>) -> io::Result<Option<Self>> {
        let limit = group.config.stuck_after;
        if limit.is_zero() {
            return Ok(None);
        }
        let (stop, stopped) = channel();
        let look = move || {
            let mut reported = vec![0; group.processors.len()];
            while stopped.recv_timeout(limit / 2) == Err(RecvTimeoutError::Timeout) {
                look(&group, limit, &mut reported);
            }
        };
        let thread = std::thread::Builder::new()
            .name("watchdog".into())
            .spawn(look)?;
        Ok(Some(Self {
            stop: Some(stop),
            thread: Some(thread),
        }))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Hooks that panic are caught below.
            let _ = thread.join();
        }
    }
}

/// `reported` holds, by processor, the start of the turn that was reported last: each is reported once.
fn look<E: Send + 'static>(group: &Group<E>, limit: Duration, reported: &mut [u64]) {
    let now = group.clock.now().as_nanos();
    for (shared, reported) in group.processors.iter().zip(reported) {
        let started = shared.counters.turn_started_ns.load(Ordering::Relaxed);
        let turn_for = Duration::from_nanos(now.saturating_sub(started.saturating_sub(1)));
        if started == 0 || turn_for < limit || started == *reported {
            continue;
        }
        let word = shared.counters.current.load(Ordering::Relaxed);
        *reported = started;
        shared.counters.stuck.fetch_add(1, Ordering::Relaxed);
        let report = StuckReport {
            handler: current::report(group, shared, word),
            turn_for,
        };
        // A hook that panics must not end the watch.
        let _ = panic::catch_unwind(panic::AssertUnwindSafe(|| (group.hooks.on_stuck)(&report)));
    }
}
