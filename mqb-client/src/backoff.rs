//! How long to wait before the next connection attempt.
//!
//! Exponential with full jitter on the upper half, so that many clients of one broker do not come back in step.

use std::time::Duration;

use crate::random::Random;

/// Delays between connection attempts: the first is immediate, then they grow up to a limit.
#[derive(Debug)]
pub(crate) struct Backoff {
    base: Duration,
    limit: Duration,
    attempt: u32,
}

impl Backoff {
    /// `base` is the upper bound of the first delay that is not zero.
    pub(crate) fn new(base: Duration, limit: Duration) -> Backoff {
        Backoff {
            base,
            limit,
            attempt: 0,
        }
    }

    /// The delay before the next attempt.
    pub(crate) fn next(&mut self, random: &mut Random) -> Duration {
        let attempt = self.attempt;
        self.attempt = attempt.saturating_add(1);
        if attempt == 0 {
            return Duration::ZERO;
        }
        let ceiling = self
            .base
            .saturating_mul(1 << (attempt - 1).min(16))
            .min(self.limit);
        let half = ceiling / 2;
        half + half.mul_f64(random.unit())
    }

    /// Starts over; call it once a connection has proved good.
    pub(crate) fn reset(&mut self) {
        self.attempt = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_within_their_bounds_and_start_over() {
        let mut random = Random::new(7);
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        assert_eq!(backoff.next(&mut random), Duration::ZERO);
        for ceiling in [100, 200, 400, 800, 1000, 1000] {
            let delay = backoff.next(&mut random);
            assert!(
                delay >= Duration::from_millis(ceiling / 2)
                    && delay <= Duration::from_millis(ceiling),
                "{delay:?}"
            );
        }
        backoff.reset();
        assert_eq!(backoff.next(&mut random), Duration::ZERO);
    }
}
