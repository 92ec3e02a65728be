//! The clock that producers and consumers share, across processes of one machine.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// **Units**: nanoseconds of the monotonic clock.
#[inline]
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // The monotonic clock starts near zero and never runs backwards.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sleeps until then; at once if that is past. Returns the time it was when it returned.
pub(crate) fn sleep_until(at_ns: u64) -> u64 {
    let now = now_ns();
    if now >= at_ns {
        return now;
    }
    std::thread::sleep(Duration::from_nanos(at_ns - now));
    now_ns()
}

/// Lets this thread's sleeps end when they should instead of up to 50 us later.
pub(crate) fn sharpen_sleeps() {
    // Without it latencies are a little worse, for the baseline as well.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}
