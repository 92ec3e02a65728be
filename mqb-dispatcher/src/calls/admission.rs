//! What is measured to decide who gets in: service times, queue delay, and whether the queue is standing.
//!
//! Plain numbers behind the exchange's lock; all times are nanoseconds.

use std::time::Duration;

use crate::calls::config::{Bound, PoolConfig};

/// Before anything was measured.
const SERVICE_SEED_NS: u64 = 100_000;
/// No estimate goes below: it is divided by.
const SERVICE_FLOOR_NS: u64 = 100;
/// The least and the most that a caller is told to wait.
const RETRY_MIN_NS: u64 = 1_000_000;
const RETRY_MAX_NS: u64 = 5_000_000_000;

/// Mean and mean deviation, exponentially weighted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Estimate {
    mean_ns: u64,
    deviation_ns: u64,
}

impl Estimate {
    fn new() -> Self {
        Self {
            mean_ns: SERVICE_SEED_NS,
            deviation_ns: SERVICE_SEED_NS / 2,
        }
    }

    fn record(&mut self, nanos: u64) {
        // 1/32: a few dozen calls until a change shows, a single slow one does not.
        self.deviation_ns = blend(self.deviation_ns, nanos.abs_diff(self.mean_ns));
        self.mean_ns = blend(self.mean_ns, nanos).max(SERVICE_FLOOR_NS);
    }

    /// Forgets a little. Called when a call is refused for this estimate: otherwise one stall could lock a class out for good, since
    /// who is never served is never measured again.
    fn fade(&mut self) {
        self.deviation_ns -= self.deviation_ns / 32;
        self.mean_ns = (self.mean_ns - self.mean_ns / 64).max(SERVICE_FLOOR_NS);
    }

    /// A time that about 95 % of all calls stay below: two mean deviations above the mean, exact for no distribution but near for
    /// those that occur (94 % for normal, 95 % for exponential).
    fn p95_ns(&self) -> u64 {
        self.mean_ns
            .saturating_add(self.deviation_ns.saturating_mul(2))
    }
}

fn blend(old: u64, new: u64) -> u64 {
    // In this order the result is between both, and nothing overflows. At least 1, lest small steps are lost.
    if new >= old {
        old + (new - old).div_ceil(32)
    } else {
        old - (old - new).div_ceil(32)
    }
}

/// Tells a burst from a queue that stands: the *least* delay within an interval is above the target.
#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    interval_end_ns: u64,
    least_ns: u64,
    is_standing: bool,
}

#[derive(Debug)]
pub(crate) struct Load {
    workers: u64,
    bound: Bound,
    shed_after_ns: u64,
    classes: Vec<Estimate>,
    all: Estimate,
    delay_mean_ns: u64,
    standing: Standing,
    // Spreads retries. Not a secret and not a decision, so a counter's hash will do.
    jitter: u64,
}

impl Load {
    pub(crate) fn new(config: &PoolConfig) -> Self {
        Self {
            workers: u64::from(config.workers),
            bound: config.bound,
            shed_after_ns: nanos(config.shed_after),
            classes: vec![Estimate::new(); config.classes.len()],
            all: Estimate::new(),
            delay_mean_ns: 0,
            standing: Standing::default(),
            jitter: 0,
        }
    }

    pub(crate) fn record_service(&mut self, class: usize, service_ns: u64) {
        self.classes[class].record(service_ns);
        self.all.record(service_ns);
    }

    /// A call of `class` was refused because of its expected service time.
    pub(crate) fn fade(&mut self, class: usize) {
        self.classes[class].fade();
    }

    pub(crate) fn service_mean_ns(&self) -> u64 {
        self.all.mean_ns
    }

    pub(crate) fn p95_ns(&self, class: usize) -> u64 {
        self.classes[class].p95_ns()
    }

    /// How many calls may wait now.
    pub(crate) fn limit(&self) -> usize {
        match self.bound {
            Bound::Count(count) => count,
            Bound::Time { target, min, max } => {
                let in_target = nanos(target).saturating_mul(self.workers) / self.all.mean_ns;
                usize::try_from(in_target).unwrap_or(max).clamp(min, max)
            }
        }
    }

    /// When a call behind `ahead` others will start, from now.
    pub(crate) fn wait_ns(&self, ahead: usize) -> u64 {
        (ahead as u64).saturating_mul(self.all.mean_ns) / self.workers
    }

    /// A call that waited for `delay_ns` is about to start; true if it should be shed instead.
    pub(crate) fn must_shed(&mut self, delay_ns: u64, now_ns: u64) -> bool {
        self.delay_mean_ns = blend(self.delay_mean_ns, delay_ns);
        let Bound::Time { target, .. } = self.bound else {
            return false;
        };
        if self.shed_after_ns == 0 {
            return false;
        }
        // With one call per worker the delay is a service time: that is no standing queue.
        let target_ns = nanos(target).max(self.all.mean_ns);
        let standing = &mut self.standing;
        if now_ns >= standing.interval_end_ns {
            // A first interval has seen nothing.
            standing.is_standing = standing.interval_end_ns != 0 && standing.least_ns > target_ns;
            standing.interval_end_ns = now_ns.saturating_add(self.shed_after_ns);
            standing.least_ns = delay_ns;
        } else {
            standing.least_ns = standing.least_ns.min(delay_ns);
        }
        standing.is_standing && delay_ns > 2 * target_ns
    }

    /// A worker found nothing to do.
    pub(crate) fn queue_was_empty(&mut self) {
        self.standing.is_standing = false;
        self.standing.least_ns = 0;
    }

    pub(crate) fn is_standing(&self) -> bool {
        self.standing.is_standing
    }

    /// When to come back: the delay that there is, give or take half of it.
    pub(crate) fn retry_after(&mut self) -> Duration {
        self.jitter = self.jitter.wrapping_add(1);
        // Fibonacci hashing: the top bits of consecutive numbers are spread evenly.
        let share = self.jitter.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
        let base = self
            .delay_mean_ns
            .max(self.all.mean_ns)
            .clamp(RETRY_MIN_NS, RETRY_MAX_NS);
        Duration::from_nanos(base / 2 + base / 1024 * share)
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load() -> Load {
        Load::new(&PoolConfig::default())
    }

    #[test]
    fn the_bound_follows_the_service_time() {
        let mut load = load();
        // 5 ms x 2 workers / 100 µs.
        assert_eq!(load.limit(), 100);
        for _ in 0..1000 {
            load.record_service(0, 1_000_000);
        }
        assert_eq!(load.limit(), 16, "the minimum: 10 would fit in the target");
        for _ in 0..1000 {
            load.record_service(0, 0);
        }
        assert_eq!(load.limit(), 1024, "the maximum");
    }

    #[test]
    fn a_class_that_stalled_once_is_not_locked_out_for_good() {
        let mut load = load();
        load.record_service(0, 60_000_000_000);
        let stalled = load.p95_ns(0);
        assert!(stalled > 1_000_000_000);
        for _ in 0..600 {
            load.fade(0);
        }
        assert!(load.p95_ns(0) < stalled / 1000);
    }

    #[test]
    fn a_burst_is_not_shed_and_a_standing_queue_is() {
        let ms = 1_000_000;
        let mut load = load();
        let mut shed = 0;
        // A burst: 20 ms of delay, but somebody gets through at once in each interval.
        for step in 0..200 {
            let delay = if step % 50 == 0 { 0 } else { 20 * ms };
            shed += u32::from(load.must_shed(delay, (1000 + step) * ms));
        }
        assert_eq!(shed, 0);
        // The same delay for everybody, for longer than an interval.
        for step in 200..500 {
            shed += u32::from(load.must_shed(20 * ms, (1000 + step) * ms));
        }
        assert!(shed > 90, "{shed}");
        assert!(!load.must_shed(9 * ms, 1501 * ms), "below twice the target");
        load.queue_was_empty();
        assert!(!load.must_shed(20 * ms, 1502 * ms));
    }

    #[test]
    fn retries_are_spread_around_the_delay() {
        let mut load = load();
        for step in 0..10_000 {
            load.must_shed(20_000_000, step);
        }
        let hints: Vec<_> = (0..100).map(|_| load.retry_after().as_micros()).collect();
        assert!(
            hints.iter().all(|hint| (9_900..=30_100).contains(hint)),
            "{hints:?}"
        );
        assert!(hints.iter().max() > hints.iter().min().map(|least| least + 15_000).as_ref());
    }
}
