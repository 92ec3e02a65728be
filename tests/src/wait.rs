//! Waiting for a condition that can be observed, with a deadline, instead of sleeping and hoping.

use std::time::{Duration, Instant};

/// How long a test waits for something that should take milliseconds. Generous, because two cores may run many tests.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Polls `condition` until it yields a value or `patience` is over.
///
/// **Panics** naming `what` when time is up: a test that waits in vain has failed.
#[track_caller]
pub fn until<T>(what: &str, patience: Duration, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + patience;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(
            Instant::now() < deadline,
            "waited {patience:?} in vain for: {what}"
        );
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// [`until`] for a plain condition.
#[track_caller]
pub fn until_true(what: &str, patience: Duration, mut condition: impl FnMut() -> bool) {
    until(what, patience, || condition().then_some(()));
}
